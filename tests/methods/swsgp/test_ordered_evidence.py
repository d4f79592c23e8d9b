"""The evidence of rows in a random order, each given the nearest before it."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from vastgp import RBF, Matern12, Matern32, SWSGPRegressor
from vastgp.data import Standardizer, as_rows
from vastgp.fitting.run import Run
from vastgp.kernels.matrices import covariance
from vastgp.likelihoods import Gaussian
from vastgp.methods.swsgp.nearest import Asked, fit_nearest
from vastgp.methods.swsgp.neighbour_evidence import NeighbourEvidence
from vastgp.methods.swsgp.ordered_evidence import given_predecessors
from vastgp.options import Nearest, Subset
from vastgp.solvers.neighbour_posterior import NeighbourPosterior


def log_density(kernel, X, y, noise):
    return multivariate_normal.logpdf(y, cov=covariance(kernel, X, X) + noise * np.eye(len(X)))


def test_it_is_the_evidence_where_the_nearest_say_all_that_others_do():
    """A process of Markov on a line knows no more than the nearest row on each side; without noise."""
    generator = np.random.default_rng(0)
    X = np.sort(generator.uniform(0.0, 10.0, 120))[:, None]
    y = np.sin(X[:, 0]) + 0.1 * generator.normal(size=120)
    order = generator.permutation(120)
    kernel = Matern12([2.0], 1.3)
    chosen, near = given_predecessors(kernel, X, order, 1000)
    evidence = NeighbourEvidence(X, y, chosen, near, 1e-10)
    value, _ = evidence.objective((kernel, Gaussian(1e-10)))
    first = order[: 120 - len(chosen)]
    expected = log_density(kernel, X, y, 1e-10) - log_density(kernel, X[first], y[first], 1e-10)
    assert value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("most", [1000, 64, 200])
def test_rows_are_given_the_nearest_before_them(most):
    X = np.random.default_rng(1).uniform(size=(700, 2))
    kernel = Matern32([1.0, 3.0], 1.0)
    order = np.random.default_rng(2).permutation(700)
    place = np.argsort(order)
    chosen, near = given_predecessors(kernel, X, order, most)
    assert len(np.unique(chosen)) == len(chosen) <= most
    assert np.all(place[near] < place[chosen][:, None])
    points = X / np.array([1.0, 3.0])
    distance = np.linalg.norm(points[chosen][:, None] - points, axis=2)
    first = 700 if most >= 700 else most // 4
    doublings = 0 if most >= 700 else int(np.ceil(np.log2(700 / first)))
    edges = np.geomspace(first, 700, doublings + 1).astype(int) if doublings else np.array([700])
    # a row of the first ones may be given any before it, another those before its doubling
    begins = np.where(
        place[chosen] < first,
        place[chosen],
        edges[np.searchsorted(edges, place[chosen], "right") - 1],
    )
    distance[place[None, :] >= begins[:, None]] = np.inf
    expected = np.argsort(distance, axis=1)[:, : near.shape[1]]
    np.testing.assert_array_equal(np.sort(near, axis=1), np.sort(expected, axis=1))
    if doublings:
        assert np.sum(place[chosen] >= edges[-2]) >= 0.3 * len(chosen)
        assert set(range(near.shape[1], first)) <= set(place[chosen])


def test_absent_neighbours_play_no_part():
    generator = np.random.default_rng(3)
    Z, y, x = generator.normal(size=(9, 2)), generator.normal(size=(9, 1)), np.zeros((2, 2))
    whole = NeighbourPosterior(
        Matern32([1.0, 1.0], 1.0), Z, y, 0.0 * y, 4, 1e-10, noise=np.full(9, 0.1)
    )
    mean, variance = whole.given_neighbours(x, np.array([[3, 7, -1, -1], [-1, -1, -1, -1]]))
    two = NeighbourPosterior(whole.kernel, Z, y, 0.0 * y, 2, 1e-10, noise=whole.noise)
    expected = two.given_neighbours(x[:1], np.array([[3, 7]]))
    np.testing.assert_allclose([mean[0], variance[0]], np.concatenate(expected), rtol=1e-10)
    assert (mean[1], variance[1]) == (0.0, 1.0)


def test_structure_of_two_sizes_is_found():
    """Its evidence is that of the kernel that drew the rows, or higher but for chance; rows near each other miss it."""
    generator = np.random.default_rng(4)
    X = generator.uniform(0.0, 10.0, size=(1500, 2))
    true = Matern32([0.4, 0.4], 1.0) + Matern32([6.0, 6.0], 9.0)
    root = np.linalg.cholesky(covariance(true, X, X) + 0.09 * np.eye(1500))
    y = root @ generator.normal(size=1500)
    # the exact evidence of a hundred rows sees one size; of three hundred both, and there is nothing left to find
    tied = Subset(tied=[(0, 1)], rows=100)
    model = SWSGPRegressor(solver=Nearest(evidence="ordered"), hyperparameters=tied).fit(X, y)
    found = log_density(model.kernel_, X, y - y.mean(), float(model.likelihood_.noise_variance))
    assert found > log_density(true, X, y - y.mean(), 0.09) - 3.0
    near = SWSGPRegressor(solver="nearest", hyperparameters=tied).fit(X, y)
    other = log_density(near.kernel_, X, y - y.mean(), float(near.likelihood_.noise_variance))
    assert found > other + 5.0
    assert model.diagnosis_["factor"] == 1.0  # a thousand rows do not say otherwise


@pytest.mark.parametrize("evidence", ["neighbors", "ordered"])
def test_correcting_the_amplitude_leaves_the_noise_that_is_asked_for_at_least(evidence):
    """Without noise the rows' own factor of all variances is 0.002, and 0.0002 of a noise of 0.1 was left."""
    X = np.random.default_rng(0).uniform(-3.0, 3.0, (300, 1))
    rows = as_rows(X, np.sin(X[:, 0]), require_y=True)
    first, solver = (RBF([1.0], 1.0), Gaussian(0.1)), Nearest(evidence=evidence)
    found = [
        fit_nearest(
            rows,
            Standardizer().fit(rows),
            first,
            Asked(300, 20, solver, floor=0.1, free=False, varies=False, least=least),
            Run(),
        )
        for least in (0.1, 0.0)
    ]
    held, free = (float(answer.likelihood.noise_variance) for answer in found)
    assert held == pytest.approx(0.1) and free < 0.01
    # noise and amplitude keep their ratio: what is predicted does not change
    means = [answer.posterior().mean(X) for answer in found]
    np.testing.assert_allclose(*means, atol=1e-6)


def test_the_least_noise_of_a_user_reaches_the_fit_from_nearest_rows():
    X = np.random.default_rng(0).uniform(-3.0, 3.0, (600, 1))
    model = SWSGPRegressor(
        "rbf", solver=Nearest(evidence="ordered"), hyperparameters=Subset(noise_floor=0.1)
    ).fit(X, np.sin(X[:, 0]))
    noise = float(model.likelihood_.noise_variance) / model.standardizer_.y_scale**2
    assert noise >= 0.1 * (1.0 - 1e-9)
