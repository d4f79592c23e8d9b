"""Joint samples on grids with gaps have the posterior's mean and covariance."""

import numpy as np
import pytest

from grid_cases import CASES, NOISE, rows_of
from vastgp.methods.grid.evidence import GridObjective
from vastgp.methods.grid.posterior import GridPosterior
from vastgp.methods.grid.samples import joint_samples

DRAWS = 600


@pytest.fixture(scope="module")
def setting():
    case = CASES["two dimensions"]
    observed = case.observed(0.4)
    solver = case.solver(observed, tol=1e-10)
    found = GridObjective(case.axes, case.values, solver).solve(case.kernel, NOISE)
    filled = found.filled()
    return case, observed, GridPosterior(case.kernel, NOISE, case.axes, filled, solver)


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
    check(case, observed, rows_of(new), joint_samples(posterior, new, DRAWS, 1, False))


def test_at_scattered_points(setting):
    case, observed, posterior = setting
    rng = np.random.default_rng(3)
    points = [rng.uniform(0.0, 5.0, size=(8, 1)), rng.uniform(0.0, 5.0, size=(8, 1))]
    samples = joint_samples(posterior, points, DRAWS, 2, True)
    check(case, observed, np.concatenate(points, axis=1), samples)


def test_a_seed_and_a_number_make_a_sample(setting):
    case, _, posterior = setting
    few = joint_samples(posterior, case.axes, 2, 5, False)
    np.testing.assert_array_equal(few, joint_samples(posterior, case.axes, 3, 5, False)[:2])


def test_what_is_too_much_for_a_joint_sample_is_refused(setting):
    posterior = setting[2]
    with pytest.raises(ValueError, match=r"coords has 5001 scattered points.*at most 5000"):
        joint_samples(posterior, [np.zeros((5001, 1))] * 2, 1, 0, True)
    many = np.linspace(10, 20, 40_000)[:, None]
    with pytest.raises(ValueError, match=r"make 1,\d{3},\d{3},\d{3} points, too many"):
        joint_samples(posterior, (many, many), 1, 0, False)
