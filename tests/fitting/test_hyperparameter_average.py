"""Hyperparameters drawn around those of highest evidence: their averages against brute quadrature."""

import numpy as np
import pytest

from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.hyperparameter_average import (
    PRIOR_DEVIATION,
    draw_around,
    laplace_root,
)
from vastgp.fitting.run import Run

Y = np.array([0.4, -1.9, 1.2, 0.9, -0.3])
NOISE = 0.3


def evidence(variance):
    """``log p(y)`` of ``y_i ~ N(0, s + 0.3)`` and its slope by ``s``."""
    total = variance + NOISE
    value = -0.5 * np.sum(np.log(total) + Y**2 / total)
    return value, -0.5 * np.sum(1.0 / total - Y**2 / total**2)


def drawn(number, learned=None, record=None, lower=1e-6, function=evidence):
    best = np.mean(Y**2) - NOISE if learned is None else learned
    return draw_around(
        lambda s: tuple(map(np.asarray, function(float(s)))),
        np.array(best),
        lower=np.array(lower),
        upper=np.array(1e6),
        num_draws=number,
        seed=0,
        record=record or Run().evaluations("average"),
    )


@pytest.mark.parametrize("factor", [1.0, 0.7])
def test_one_hyperparameter_against_quadrature(factor):
    """Also where learning ended early: the prior is there, and the draws where the evidence is."""
    last = factor * (np.mean(Y**2) - NOISE)
    found = drawn(1500, last)
    u = np.linspace(np.log(1e-6), np.log(1e6), 20001)
    logs = np.array([evidence(s)[0] for s in np.exp(u)])
    logs -= 0.5 * (u - np.log(last)) ** 2 / PRIOR_DEVIATION**2
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    for what in (np.log, lambda s: s / (s + NOISE), lambda s: 1.0 / (1.0 / s + 1.0 / NOISE)):
        exact = weights @ what(np.exp(u))
        spread = np.sqrt(weights @ (what(np.exp(u)) - exact) ** 2)
        values = what(np.array(found.params))
        assert abs(found.weights @ values - exact) < 0.1 * spread  # some 1500 draws: four errors
        deviation = np.sqrt(found.weights @ (values - found.weights @ values) ** 2)
        assert deviation == pytest.approx(spread, rel=0.12)


def test_what_nothing_is_known_of_keeps_its_prior_and_stays_within_bounds():
    found = drawn(1500, 1.0, function=lambda s: (0.001 * np.log(s), 0.001 / s))
    logs = np.log(np.array(found.params))
    assert found.weights @ logs == pytest.approx(0.0, abs=0.2)
    assert np.sqrt(found.weights @ logs**2) == pytest.approx(PRIOR_DEVIATION, rel=0.05)
    at_bound = drawn(1500, 1.0, lower=1.0, function=lambda s: (0.001 * np.log(s), 0.001 / s))
    values = np.array(at_bound.params)
    assert values.min() == 1.0
    assert at_bound.weights @ (values == 1.0) == pytest.approx(0.5, abs=0.1)


def test_directions_that_change_nothing_are_not_moved_in():
    """Of a product of two amplitudes one number is known: draws have the same ratio."""

    def product(params):
        value, slope = evidence(float(params[0] * params[1]))
        return value, (slope * params[1], slope * params[0])

    found = draw_around(
        product,
        (np.array(0.5), np.array(2.0)),
        lower=(np.array(1e-6), np.array(1e-6)),
        upper=(np.array(1e6), np.array(1e6)),
        num_draws=16,
        seed=0,
        record=Run().evaluations("average"),
    )
    ratios = [float(b / a) for a, b in found.params]
    np.testing.assert_allclose(ratios, 4.0, rtol=1e-6)
    assert np.std([float(a * b) for a, b in found.params]) > 0.1


def test_the_unit_of_length_is_that_of_the_curvature():
    """Of a quadratic log evidence: ``R R^T = (H + I / t^2)^-1`` on all directions with a curvature."""
    H = np.array([[4.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    steps = np.concatenate([np.zeros((1, 3)), *np.stack([0.1 * np.eye(3), -0.1 * np.eye(3)], 1)])
    root = laplace_root(-steps @ H)
    assert root.shape == (3, 2)
    expected = np.linalg.inv(H[:2, :2] + np.eye(2) / PRIOR_DEVIATION**2)
    np.testing.assert_allclose((root @ root.T)[:2, :2], expected, atol=1e-10)
    np.testing.assert_allclose(root[2], 0.0, atol=1e-10)


def test_draws_are_resumed_to_the_bit(tmp_path):
    """Of recorded evaluations the chain goes the same way, and computes none of them again."""

    def checkpoint():
        return Checkpoint(tmp_path / "fit", 1e9, fingerprint={"of": "a test"})

    file, calls = checkpoint(), []

    def counted(s):
        calls.append(s)
        return evidence(s)

    first = drawn(20, record=Run(checkpoint=file).evaluations("average"), function=counted)
    file.write()
    number = len(calls)
    again = drawn(20, record=Run(checkpoint=checkpoint()).evaluations("average"), function=counted)
    assert number > 40
    assert len(calls) == number
    np.testing.assert_array_equal(first.params, again.params)
    np.testing.assert_array_equal(first.weights, again.weights)


def test_a_budget_that_ends_leaves_no_average():
    run = Run(max_seconds=1e-9)
    assert drawn(8, record=run.evaluations("average")) is None
