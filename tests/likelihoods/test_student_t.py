"""Student-t noise of any degrees of freedom, however far an outlier lies."""

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp, ndtr

from vastgp._precision import precision
from vastgp.likelihoods import StudentT

pytestmark = pytest.mark.little_work
_log_density = jax.jit(lambda likelihood, *given: likelihood.log_density(*given))


def of_precisions(nu):
    """Nodes of log l, many times as close as its law is wide, and the logarithms of their weights under it."""
    a = 0.5 * nu
    low = max(-9.0 * np.sqrt(2.0 / nu) - 60.0 / nu, -250.0) if nu < 10 else -40.0 / np.sqrt(nu)
    high = np.log1p(12.0 * np.sqrt(2.0 / nu) + 80.0 / nu)
    x, step = np.linspace(low, high, 200_001, retstep=True)
    # relative to the highest, as the differences of gamma functions are
    logs = a * (x - np.expm1(x))
    if nu < 10:
        return x, logs + a * np.log(a) - a - gammaln(a) + np.log(step)
    return x, logs - logsumexp(logs)


# an outlier of noise far smaller than the function's deviation, as is, and without the function
OUTLIERS = [(1e-3, 3.0, 1.0), (0.01, 6.0, 1.0), (0.5, 0.0, 1.0), (0.5, 9.0, 0.3), (0.3, 2.0, 1e-9)]


@pytest.mark.parametrize("nu", [0.1, 0.3, 1.0, 4.0, 30.0, 1e3, 1e4, 1e5, 1e6])
def test_student_noise_of_any_degrees_of_freedom(nu):
    x, logs = of_precisions(nu)
    with precision("float64"):
        for scale, off, variance in OUTLIERS:
            width = variance + scale**2 * np.exp(-x)
            wanted = logsumexp(logs - 0.5 * (off**2 / width + np.log(2.0 * np.pi * width)))
            found = _log_density(StudentT(scale, nu), off, 0.0, variance)
            tolerance = 1e-6 if nu < 1.0 else 1e-7
            assert float(found) == pytest.approx(wanted, abs=tolerance, rel=1e-9)
    with precision("float32"):
        for scale, off, variance in OUTLIERS:
            width = variance + scale**2 * np.exp(-x)
            wanted = logsumexp(logs - 0.5 * (off**2 / width + np.log(2.0 * np.pi * width)))
            found = _log_density(StudentT(scale, nu), off, 0.0, variance)
            assert float(found) == pytest.approx(wanted, abs=2e-5, rel=1e-5)


@pytest.mark.parametrize("nu", [1e2, 1e4, 1e5])
def test_student_noise_without_a_function_is_its_own_law(nu):
    y = np.array([0.0, 0.01, 0.3, 3.0, -30.0])
    with precision("float64"):
        found = _log_density(StudentT(0.01, nu), y, 0.0, 0.0)
    np.testing.assert_allclose(found, stats.t.logpdf(y, nu, scale=0.01), rtol=1e-6)


@pytest.mark.parametrize("nu", [0.03, 0.1, 0.3, 1.0, 50.0, 1e4])
def test_distribution_functions_of_student_noise(nu):
    """Without the function those of SciPy; with it by many nodes where these reach its tail."""
    y = np.concatenate([-(10.0 ** np.arange(-3, 9)), 10.0 ** np.arange(-3, 9)])
    found = StudentT(0.7, nu).distribution(y, 0.0, np.zeros_like(y))
    np.testing.assert_allclose(found, stats.t.cdf(y / 0.7, nu), atol=1e-8)
    x, logs = of_precisions(nu)
    width = np.sqrt(1.0 + 1e-6 * np.exp(-x))
    y = np.array([-2.0, -0.01, 0.1, 1.0, 5.0])
    wanted = 0.5 + (np.exp(logs) * (ndtr(y[:, None] / width) - 0.5)).sum(axis=1)
    found = StudentT(1e-3, nu).distribution(y, 0.0, np.ones_like(y))
    np.testing.assert_allclose(found, wanted, atol=1e-8)
