"""Counts of rows with exposures: the law of counts at a shifted function."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from likelihoods import test_conformance as laws
from likelihoods.conformance import Compiled
from vastgp._precision import precision
from vastgp.likelihoods import Exposed, Gaussian, Poisson, PoissonLogNormal, from_spec, to_spec
from vastgp.likelihoods.exposed import of_exposure

pytestmark = pytest.mark.little_work

EXPOSURE = 3.7


@pytest.fixture(autouse=True)
def _double():
    with precision("float64"):
        yield


def beside(y, exposure=EXPOSURE):
    y = np.asarray(y, float)
    return np.stack(np.broadcast_arrays(y, np.log(exposure)), axis=-1)


@pytest.mark.parametrize("case", [laws.TestPoisson, laws.TestPoissonLogNormal])
def test_averages_are_those_of_quadrature_at_the_law_of_more(case):
    """Gauss-Hermite of the law that SciPy has of ``EXPOSURE`` times the rate, its slopes by differences."""
    law = case()
    found, (y, m, v) = Compiled(Exposed(law.make())), (part[:12] for part in law.grid())
    v = np.minimum(v, 0.7)
    z, w = np.polynomial.hermite_e.hermegauss(80)
    w = w / w.sum()

    def average(mean):
        f = (mean + np.log(EXPOSURE))[:, None] + np.sqrt(v)[:, None] * z
        return law.log_law(y[:, None], f) @ w

    value = average(m)
    np.testing.assert_allclose(found.expected_log_prob(beside(y), m, v), value, rtol=1e-4)
    h = 1e-3
    up, down = average(m + h), average(m - h)
    alpha, beta = found.sites(beside(y), m, v)
    np.testing.assert_allclose(alpha, (up - down) / (2 * h), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(beta, -(up - 2 * value + down) / h**2, rtol=1e-2, atol=1e-3)
    by_mean = jax.jit(jax.grad(lambda m: found.site_bound(beside(y), m, v).sum()))(jnp.asarray(m))
    np.testing.assert_allclose(by_mean, alpha, rtol=1e-9)
    # E[p], by the same nodes
    f = (m + np.log(EXPOSURE))[:, None] + np.sqrt(v)[:, None] * z
    density = logsumexp(law.log_law(y[:, None], f), b=w, axis=-1)
    near = np.abs(density) < 30.0
    log_density = np.asarray(found.log_density(beside(y), m, v))
    np.testing.assert_allclose(log_density[near], density[near], atol=2e-3)


@pytest.mark.parametrize("law", [Poisson(1.7), PoissonLogNormal(1.7, 0.4)])
def test_an_exposure_of_one_changes_no_bit_and_others_are_rates(law):
    y, m = np.array([0.0, 3.0, 40.0]), np.array([0.2, -1.0, 2.0])
    variance = {"log_prob": ()}
    for name in ("log_prob", "expected_log_prob", "log_density", "distribution"):
        given = variance.get(name, (0.5,))
        mine = getattr(Exposed(law), name)(beside(y, 1.0), m, *given)
        np.testing.assert_array_equal(mine, getattr(law, name)(y, m, *given))
        mine = getattr(Exposed(law), name)(beside(y), m, *given)
        of_rate = getattr(of_exposure(law, EXPOSURE), name)(y, m, *given)
        np.testing.assert_allclose(mine, of_rate, rtol=1e-9, atol=1e-12)
    centre, width = Exposed(law).feature(beside(y))
    np.testing.assert_allclose(centre, law.feature(y)[0] - np.log(EXPOSURE))
    np.testing.assert_array_equal(width, law.feature(y)[1])


def test_a_count_of_twice_the_exposure_is_the_sum_of_two():
    law, f, total = Exposed(Poisson(1.3)), 0.4, 5
    k = np.arange(total + 1.0)
    each = np.asarray(law.log_prob(beside(k, 1.0), f))
    both = logsumexp(each + each[::-1])
    assert float(law.log_prob(beside(total, 2.0), f)) == pytest.approx(both, abs=1e-12)


def test_files_and_refusals():
    law = Exposed(PoissonLogNormal(2.0, 0.3))
    assert repr(from_spec(json.loads(json.dumps(to_spec(law))))) == repr(law)
    law.check_targets(beside([0.0, 2.0]))
    with pytest.raises(ValueError, match=r"counts 0, 1, 2, .*the first 0.5"):
        law.check_targets(beside([0.5, 2.0]))
    with pytest.raises(ValueError, match="of_one must be a likelihood of counts"):
        Exposed(Gaussian(1.0))
