"""Laws of counts where numbers are large or far apart: modes far below the mean, counts of millions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp

from vastgp._precision import precision
from vastgp.likelihoods import NegativeBinomial, Poisson, PoissonLogNormal
from vastgp.likelihoods.poisson import mode_of_counts

pytestmark = pytest.mark.little_work
_log_density = jax.jit(lambda likelihood, *given: likelihood.log_density(*given))
_log_prob = jax.jit(lambda likelihood, *given: likelihood.log_prob(*given))

# rate, count, mean and variance of the latent value: the mode of its law is far below where counts are, or its mean
FAR_DOWN = [
    (1e8, 0.0, 0.0, 9.0), (1e9, 0.0, 0.0, 16.0), (1.0, 1.0, 25.0, 25.0), (1.0, 3.0, 60.0, 4.0),
    (1e-6, 50.0, 0.0, 1e-4), (2.0, 1.0, -30.0, 9.0), (1.0, 1e6, 5.0, 30.0),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rate", "y", "mean", "variance"), FAR_DOWN)
def test_counts_whose_mode_is_far_from_the_mean(rate, y, mean, variance, dtype):
    f, step = np.linspace(mean - 120.0, mean + 60.0, 4_000_001, retstep=True)
    logs = y * (f + np.log(rate)) - rate * np.exp(f) - gammaln(y + 1.0)
    wanted = logsumexp(logs + stats.norm.logpdf(f, mean, variance**0.5)) + np.log(step)
    with precision(dtype):
        found = _log_density(Poisson(rate), y, mean, variance)
        normal = _log_prob(PoissonLogNormal(rate, variance), y, mean)
    tolerance = {"float32": 1e-4, "float64": 1e-7}[dtype]
    np.testing.assert_allclose([found, normal], wanted, rtol=tolerance)


def test_the_mode_of_counts_is_where_the_slope_is_zero():
    """However far it lies from where Newton's method starts: ``s (y - count) = u``."""
    y, log_rate, std = (
        part.ravel()
        for part in np.meshgrid(
            [0.0, 1.0, 30.0, 1e4, 1e7], np.linspace(-40.0, 60.0, 21), [1e-3, 0.1, 1.0, 3.0, 30.0]
        )
    )
    with precision("float64"):
        u = np.asarray(mode_of_counts(*map(jnp.asarray, (y, log_rate, std)), 1.0, 5))
    count = np.exp(log_rate + std * u)
    # in units of the width of what it is the mode of
    left = (std * (y - count) - u) / np.sqrt(1.0 + std**2 * count)
    assert np.max(np.abs(left)) < 1e-6


@pytest.mark.parametrize("y", [0.0, 1.0, 7.0, 19.0, 21.0, 300.0, 1e4, 1e6, 1e7])
def test_laws_of_large_counts_keep_their_digits_in_single_precision(y):
    """Beside the rounding of the function's value, here 16 at most, by which the law falls ``count`` times as much."""
    f = np.log(np.maximum(y, 1.0) * np.array([0.3, 0.9, 0.999, 1.0, 1.001, 1.2, 5.0]))
    f = f.astype(np.float32).astype(np.float64)
    count = np.exp(f)
    with precision("float32"):
        given = jnp.full(f.shape, y, jnp.float32), jnp.asarray(f, jnp.float32)
        found = {1.0: _log_prob(Poisson(1.0), *given)}
        for size in (0.3, 10.0, 1e3, 1e5):
            found[size] = _log_prob(NegativeBinomial(1.0, size), *given)
        averaged = Poisson(1.0).expected_log_prob(*given, jnp.full(f.shape, 0.02, jnp.float32))
    rounding = 2e-6 * np.abs(count - y) + 2e-5 + 1e-5 * np.sqrt(y)
    wanted = stats.poisson.logpmf(y, count)
    assert np.all(np.abs(found.pop(1.0) - wanted) < rounding + 2e-6 * np.abs(wanted))
    # E[e^f] = e^(m + v/2)
    wanted = stats.poisson.logpmf(y, count * np.exp(0.01)) - 0.01 * y
    assert np.all(np.abs(averaged - wanted) < rounding + 2e-6 * np.abs(wanted))
    for size, law in found.items():
        wanted = stats.nbinom.logpmf(y, size, size / (size + count))
        assert np.all(np.abs(law - wanted) < rounding + 2e-6 * np.abs(wanted)), size


@pytest.mark.parametrize("y", [1e4, 1e6, 1e7])
def test_densities_of_large_counts_in_single_precision(y):
    """They are averages of such laws, of sizes of one: nothing is left where the parts of a law are rounded."""
    f = np.float64(np.float32(np.log(y)))
    with precision("float32"):
        found = _log_density(NegativeBinomial(1.0, 10.0), y, f, 1e-4)
        counts = _log_density(Poisson(1.0), y, f, 0.04)
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = np.log(weights / weights.sum())
    count = np.exp(f + 0.01 * z)
    wanted = logsumexp(weights + stats.nbinom.logpmf(y, 10.0, 10.0 / (10.0 + count)))
    assert float(found) == pytest.approx(wanted, abs=1e-3)
    # the normal law of f where the mean is the count, as that of the count is far narrower
    f, step = np.linspace(f - 1.0, f + 1.0, 2_000_001, retstep=True)
    logs = stats.poisson.logpmf(y, np.exp(f)) + stats.norm.logpdf(f, np.log(y), 0.2)
    assert float(counts) == pytest.approx(logsumexp(logs) + np.log(step), abs=1e-3)


def test_gradients_of_counts_far_out_are_finite():
    y = jnp.array([0.0, 0.0, 3.0, 3.0, 1e5, 1e5])
    f = jnp.array([-60.0, 70.0] * 3)
    for likelihood in (Poisson(2.0), NegativeBinomial(2.0, 0.3), NegativeBinomial(2.0, 1e9)):
        made = jax.tree.map(jnp.asarray, likelihood)
        grads = jax.grad(lambda given, f: given.log_prob(y, f).sum(), argnums=(0, 1))(made, f)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_medians_of_counts_of_any_size(dtype):
    """In float64 whatever the precision of a fit, from the smaller of both chances."""
    with precision(dtype):
        for rate, size in (
            (1e5, 0.5),
            (3.0, 1e8),
            (3.0, 1e16),
            (1e6, 3.0),
            (1e6, 0.01),
            (1e7, 1e7),
        ):
            found = NegativeBinomial(rate, size).median(np.zeros(2))
            law = stats.nbinom(size, size / (size + rate)) if size < 1e15 else stats.poisson(rate)
            np.testing.assert_array_equal(found, law.median())


def test_a_distribution_function_of_a_huge_size_is_that_of_poisson():
    y = np.arange(9.0)
    found = NegativeBinomial(3.0, 1e16).distribution(y, 0.0, 0.0)
    np.testing.assert_allclose(found, stats.poisson.cdf(y, 3.0), rtol=1e-12)
    # and of a small one it keeps the digits of what is seldom
    found = NegativeBinomial(1e20, 0.5).distribution(y, 0.0, 0.0)
    np.testing.assert_allclose(found, stats.nbinom.cdf(y, 0.5, 0.5 / 1e20), rtol=1e-8)


@pytest.mark.parametrize(
    "law", [Poisson(2.0), PoissonLogNormal(2.0, 4.0), NegativeBinomial(2.0, 3.0)]
)
@pytest.mark.filterwarnings("error")
def test_a_function_that_nothing_is_known_of_overflows_nowhere(law):
    """Of a deviation of a thousand the count is below a few for a half, and beyond all numbers for the other half."""
    y, variance = np.array([0.0, 3.0, 1e3]), np.full(3, 1e6)
    found = np.asarray(law.distribution(y, np.zeros(3), variance))
    np.testing.assert_allclose(found, stats.norm.cdf(np.log((y + 0.5) / 2.0) / 1e3), atol=2e-3)
    least = np.asarray(law.distribution(y, np.full(3, 2000.0), np.ones(3)))
    np.testing.assert_array_equal(least, 0.0)
