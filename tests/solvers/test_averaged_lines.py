"""Linear functions averaged over their variances are right in their moments, and in what they promise."""

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import multivariate_normal, norm

from vastgp.fitting.hyperparameter_prior import NOISE, Scale
from vastgp.solvers.averaged_lines import average_lines

pytestmark = pytest.mark.little_work


def features(rng, n, d):
    return np.column_stack([np.ones(n), rng.normal(size=(n, d))])


@pytest.mark.parametrize("own_noise", [False, True])
@pytest.mark.parametrize("rows", [2, 7, 60])
def test_moments_and_evidence_are_those_of_brute_force(rows, own_noise):
    rng = np.random.default_rng(rows)
    phi, d = features(rng, rows, 2), 2
    y = phi[:, 1] + 0.3 * rng.normal(size=rows)
    observed, inverse, error = y, np.ones(rows), np.zeros(rows)
    if own_noise:
        inverse, error = rng.uniform(0.5, 3.0, rows), rng.uniform(0.0, 0.1, rows)
        observed = np.column_stack([y, inverse, error])
    found = average_lines(phi, observed)

    log_s = np.linspace(-6.69, 5.31, 41)
    log_noise = np.linspace(np.log(1e-6), np.log(10.0), 97)
    logs, means, squares = [], [], []
    for a in log_s:
        for b in log_noise:
            noise = np.exp(b) * inverse + error
            A = np.exp(a) * phi @ phi.T + np.diag(noise)
            prior = norm.logpdf(a, -np.log(d), 1.5) + norm.logpdf(b, *NOISE)
            factor = cho_factor(A, lower=True)
            misfit = y @ cho_solve(factor, y) + 2.0 * np.sum(np.log(np.diag(factor[0])))
            logs.append(prior - 0.5 * (misfit + rows * np.log(2.0 * np.pi)))
            gain = np.exp(a) * cho_solve(factor, phi).T
            means.append(gain @ y)
            covariance = np.exp(a) * (np.eye(d + 1) - gain @ phi)
            squares.append(covariance + np.outer(means[-1], means[-1]))
    logs = np.array(logs)
    share = np.exp(logs - logs.max())
    cell = (log_s[1] - log_s[0]) * (log_noise[1] - log_noise[0])
    total, share = share.sum(), share / share.sum()
    mean = share @ np.array(means)
    covariance = np.einsum("k,kij->ij", share, np.array(squares)) - np.outer(mean, mean)
    noise = share @ np.tile(np.exp(log_noise), len(log_s))
    np.testing.assert_allclose(found.log_evidence, logs.max() + np.log(total * cell), atol=0.02)
    weights, of_weights = found.weights, found.covariance
    if found.basis is not None:
        # fewer rows than weights: all other directions are as before
        weights, spanned = found.basis @ weights, found.basis @ found.basis.T
        of_weights = found.basis @ of_weights @ found.basis.T
        of_weights += found.variance * (np.eye(d + 1) - spanned)
    np.testing.assert_allclose(weights, mean, atol=0.01)
    np.testing.assert_allclose(of_weights, covariance, rtol=0.03, atol=0.01)
    # the last points of either grid stand for cells of other widths
    np.testing.assert_allclose(found.noise_variance, noise, rtol=0.05)


def test_intervals_hold_what_they_say_where_the_prior_is_right():
    """Of 4 rows and 3 weights: 300 tables of 40 new rows each; the gate is four standard errors below 93 %."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(300):
        s = np.exp(rng.normal(-np.log(2), 1.5))
        noise = np.exp(np.clip(rng.normal(*NOISE), np.log(1e-6), np.log(10.0)))
        phi = features(rng, 44, 2)
        y = phi @ rng.normal(scale=s**0.5, size=3) + noise**0.5 * rng.normal(size=44)
        found = average_lines(phi[:4], y[:4])
        mean = phi[4:] @ found.weights
        variance = found.noise_variance + np.sum((phi[4:] @ found.covariance) * phi[4:], axis=1)
        inside.append(np.mean(np.abs(y[4:] - mean) < 1.96 * variance**0.5))
    assert np.mean(inside) > 0.93 - 4.0 * np.std(inside) / 300**0.5


def test_what_repeated_rows_share_and_an_open_scale_are_averaged_over():
    """Seven rows at four places: brute force over three variances, with the covariance of all rows."""
    rng = np.random.default_rng(4)
    groups = np.array([0, 1, 1, 2, 3, 3, 3])
    phi, d, scale = features(rng, 4, 1)[groups], 1, Scale(0.4, 0.9)
    y = phi[:, 1] + 0.5 * rng.normal(size=4)[groups] + 0.1 * rng.normal(size=7)
    found = average_lines(phi, y, groups, scale)

    log_s, log_noise = np.linspace(-7.5, 8.5, 25), np.linspace(-10.0, 8.0, 28)
    odds, widths = np.linspace(-12.0, 12.0, 25), [2.0 / 3.0, 2.0 / 3.0, 1.0]
    prior = multivariate_normal(
        np.array([-np.log(d), NOISE[0], NOISE[0]]) + 0.4,
        np.diag([1.5**2, NOISE[1] ** 2, NOISE[1] ** 2]) + 0.9,
    )
    together = (groups[:, None] == groups).astype(float)
    logs, means, noises = [], [], []
    for c in odds:
        share = 1.0 / (1.0 + np.exp(-c))
        R = (1.0 - share) * np.eye(7) + share * together
        for b in log_noise:
            for a in log_s:
                A = np.exp(a) * phi @ phi.T + np.exp(b) * R
                solved = np.linalg.solve(A, np.column_stack([y, phi]))
                misfit = y @ solved[:, 0] + np.linalg.slogdet(A)[1] + 7 * np.log(2.0 * np.pi)
                each = [a, b + np.log(share), b + np.log(1.0 - share)]
                logs.append(prior.logpdf(each) - 0.5 * misfit)
                means.append(np.exp(a) * phi.T @ solved[:, 0])
                noises.append(np.exp(b))
    logs = np.array(logs) + np.log(np.prod(widths) / 2.0)
    # or there is no lack of fit
    plain = average_lines(phi, y, None, scale)
    logs = np.append(logs, plain.log_evidence - np.log(2.0))
    means.append(plain.weights)
    noises.append(plain.noise_variance)
    share = np.exp(logs - max(logs))
    wanted = max(logs) + np.log(share.sum())
    share /= share.sum()
    assert found.log_evidence == pytest.approx(wanted, abs=0.03)
    np.testing.assert_allclose(found.weights, share @ np.array(means), atol=0.02)
    assert found.noise_variance == pytest.approx(share @ np.array(noises), rel=0.1)


def test_repeated_rows_do_not_make_a_line_sure_of_new_ones():
    """Twelve places of a curve, each seen five times: five rows that agree say how far none of the others is."""
    rng = np.random.default_rng(1)
    groups = np.arange(60) % 12
    x = rng.uniform(-1.7, 1.7, 12)[groups]
    y = x + np.sin(4.0 * x) + 0.02 * rng.normal(size=60)
    found = average_lines(np.column_stack([np.ones(60), x]), y, groups)
    new = np.linspace(-1.7, 1.7, 200)
    phi = np.column_stack([np.ones(200), new])
    variance = found.noise_variance + np.sum((phi @ found.covariance) * phi, axis=1)
    away = np.abs(new + np.sin(4.0 * new) - phi @ found.weights)
    assert np.mean(away < 1.96 * variance**0.5) > 0.95
    # of a constant beside a slope: twelve places tell the variance of a mean to a twelfth, sixty rows to a sixtieth
    assert found.covariance[0, 0] > found.noise_variance / 20.0


def test_the_unit_that_few_rows_have_is_open():
    """Rows in units of their own deviation, as they are fitted: three of them hold too few of the new ones."""
    rng = np.random.default_rng(0)
    inside = {True: [], False: []}
    for _ in range(100):
        noise = np.exp(np.clip(rng.normal(*NOISE), np.log(1e-6), 0.0))
        phi = features(rng, 43, 1)
        y = phi @ rng.normal(size=2) + noise**0.5 * rng.normal(size=43)
        y = (y - y[:3].mean()) / y[:3].std()
        for known, held in inside.items():
            found = average_lines(
                phi[:3], y[:3], None, *([] if known else [Scale.of_groups(np.arange(3))])
            )
            variance = np.sum((phi[3:] @ found.covariance) * phi[3:], axis=1)
            variance += found.noise_variance
            held.append(np.mean(np.abs(y[3:] - phi[3:] @ found.weights) < 1.96 * variance**0.5))
    assert np.mean(inside[False]) > np.mean(inside[True]) + 0.03
    assert np.mean(inside[False]) > 0.85


def test_the_lack_of_fit_is_no_less_where_rows_of_one_place_agree_more():
    """Twelve places of a curve: what rows of one place are from each other says nothing of others."""
    groups, rng = np.arange(60) % 12, np.random.default_rng(2)
    x = rng.uniform(-1.7, 1.7, 12)[groups]
    noise = rng.normal(size=60)
    at = [
        average_lines(np.column_stack([np.ones(60), x]), np.sin(3.0 * x) + level * noise, groups)
        for level in (0.03, 0.002)
    ]
    assert at[1].noise_variance == pytest.approx(at[0].noise_variance, rel=0.1)
    assert at[1].noise_variance > 0.2


def test_the_mixture_has_heavier_tails_than_its_moments():
    """Of 3 rows and 2 weights in units of their own deviation: 200 tables; parts add up to the moments."""
    rng = np.random.default_rng(0)
    gains = []
    for _ in range(200):
        noise = np.exp(np.clip(rng.normal(*NOISE), np.log(1e-6), 0.0))
        phi = features(rng, 43, 1)
        y = phi @ rng.normal(size=2) + noise**0.5 * rng.normal(size=43)
        y = (y - y[:3].mean()) / y[:3].std()
        found = average_lines(phi[:3], y[:3], None, Scale.of_groups(np.arange(3)))
        weights = np.array([part.weight for part in found.parts])
        assert weights.sum() == pytest.approx(1.0)
        assert weights @ [part.noise_variance for part in found.parts] == pytest.approx(
            found.noise_variance
        )
        means = np.array([part.weights for part in found.parts])
        np.testing.assert_allclose(weights @ means, found.weights, atol=1e-12)
        densities = [
            norm.logpdf(
                y[3:],
                phi[3:] @ each.weights,
                (each.noise_variance + np.sum((phi[3:] @ each.covariance) * phi[3:], axis=1))
                ** 0.5,
            )
            for each in (found, *found.parts)
        ]
        mixed = np.log(weights @ np.exp(densities[1:]))
        gains.append(np.mean(mixed - densities[0]))
    # a few tables of which three rows tell nothing gain tens of nats
    assert np.mean(np.minimum(gains, 1.0)) > 4.0 * np.std(np.minimum(gains, 1.0)) / 200**0.5
    assert np.median(gains) > 0.02
