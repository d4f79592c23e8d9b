"""Joint samples on grids with gaps have the posterior's mean and covariance."""

import numpy as np
import pytest

from grid_cases import CASES, NOISE, rows_of
from vastgp.methods.grid.evidence import GridObjective
from vastgp.methods.grid.posterior import GridPosterior
from vastgp.methods.grid.samples import grid_samples, point_samples

DRAWS = 600


@pytest.fixture(scope="module")
def setting():
    case = CASES["two dimensions"]
    observed = case.observed(0.4)
    solver = case.solver(observed, tol=1e-10)
    found = GridObjective(case.axes, case.values, solver).solve(case.kernel, NOISE)
    coefficients = found.coefficients()
    return case, observed, GridPosterior(case.kernel, NOISE, case.axes, coefficients, solver)


def check(case, observed, rows, samples):
    """Mean and every entry of the covariance within 4.7 standard errors; their mean square near 1."""
    A, alpha, *_ = case.dense(observed)
    cross = case.covariance(rows, case.rows[observed])
    covariance = case.covariance(rows, rows) - cross @ np.linalg.solve(A, cross.T)
    variance = np.diagonal(covariance)
    of_mean = (samples.mean(axis=0) - cross @ alpha) / np.sqrt(variance / DRAWS)
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / DRAWS)
    of_covariance = (np.cov(samples.T) - covariance) / error
    assert np.max(np.abs(of_mean)) < 4.0
    assert np.max(np.abs(of_covariance)) < 4.7
    assert 0.6 < np.mean(of_covariance**2) < 1.6


def test_on_a_grid_that_is_partly_new(setting):
    case, observed, posterior = setting
    new = (np.concatenate([case.axes[0][:3], [[4.5], [5.5]]]), case.axes[1][::3])
    check(case, observed, rows_of(new), grid_samples(posterior, new, DRAWS, seed=1))


def test_at_scattered_points(setting):
    case, observed, posterior = setting
    rng = np.random.default_rng(3)
    points = [rng.uniform(0.0, 5.0, size=(8, 1)), rng.uniform(0.0, 5.0, size=(8, 1))]
    samples = point_samples(posterior, points, DRAWS, seed=2)
    check(case, observed, np.concatenate(points, axis=1), samples)


def test_a_seed_and_a_number_make_a_sample(setting):
    case, _, posterior = setting
    few = grid_samples(posterior, case.axes, 2, seed=5)
    np.testing.assert_array_equal(few, grid_samples(posterior, case.axes, 3, seed=5)[:2])


def test_what_is_too_much_for_a_joint_sample_is_refused(setting):
    posterior = setting[2]
    with pytest.raises(ValueError, match=r"coords has 5001 scattered points.*at most 5000"):
        point_samples(posterior, [np.zeros((5001, 1))] * 2, 1, seed=0)
    many = np.linspace(10, 20, 40_000)[:, None]
    with pytest.raises(ValueError, match=r"make 1,\d{3},\d{3},\d{3} points, too many"):
        grid_samples(posterior, (many, many), 1, seed=0)
