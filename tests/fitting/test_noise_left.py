"""The noise that a fit leaves, against closed forms and a fine grid."""

import numpy as np
import pytest

from vastgp.fitting.noise_left import noise_left


def problem(errors, seed=0):
    rng = np.random.default_rng(seed)
    mean, variance = rng.normal(size=200), rng.uniform(0.0, 0.1, 200)
    inverse, error = rng.uniform(0.3, 3.0, 200), rng.choice(errors, 200) ** 2
    y = mean + np.sqrt(0.2 * inverse + error) * rng.normal(size=200)
    return np.column_stack([y, inverse, error]), mean, variance


def test_without_errors_it_is_a_weighted_mean():
    y, mean, variance = problem([0.0])
    square = (y[:, 0] - mean) ** 2 + variance
    assert noise_left(y[:, 0], mean, variance, 0.0) == pytest.approx(square.mean(), rel=1e-12)
    assert noise_left(y, mean, variance, 0.0) == pytest.approx(np.mean(square / y[:, 1]), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("floor", [1e-6, 0.5])
def test_beside_errors_no_other_is_better(seed, floor):
    y, mean, variance = problem([0.0, 0.3, 5.0], seed)
    square = (y[:, 0] - mean) ** 2 + variance

    def value(noise):
        each = noise * y[:, 1] + y[:, 2]
        return -0.5 * np.sum(np.log(each) + square / each)

    found = noise_left(y, mean, variance, floor)
    assert found >= floor
    most = max(value(noise) for noise in np.geomspace(floor, 1e3, 2000))
    assert value(found) >= most - 1e-9 * abs(most)


def test_errors_that_explain_all_leave_the_floor():
    y = np.column_stack([np.zeros(20), np.ones(20), np.full(20, 4.0)])
    assert noise_left(y, np.zeros(20), np.ones(20), 1e-3) == pytest.approx(1e-3)
