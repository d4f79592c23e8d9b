"""Methods of likelihoods at many rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiled_programs import count_programs
from likelihoods.conformance import Compiled
from vastgp._precision import as_dtype, precision
from vastgp.fitting.dual_evidence import local_sites
from vastgp.likelihoods import (
    Bernoulli,
    Gaussian,
    HeteroskedasticGaussian,
    NegativeBinomial,
    Poisson,
    Softmax,
    StudentT,
    rowwise,
)
from vastgp.likelihoods.exposed import Exposed
from vastgp.likelihoods.rowwise import by_rows
from vastgp.likelihoods.weighted import Weighted

pytestmark = pytest.mark.little_work


def moments(functions, n, seed=0):
    rng = np.random.default_rng(seed)
    shape = (functions, n) if functions > 1 else (n,)
    return rng.normal(size=shape), rng.uniform(0.1, 9.0, shape)


@pytest.mark.parametrize("n", [1, 16, 37])
@pytest.mark.parametrize(
    "likelihood", [Gaussian(0.3), StudentT(0.5, 4.0), HeteroskedasticGaussian(0.5), Softmax(3)]
)
def test_values_are_those_of_the_method(likelihood, n, monkeypatch):
    monkeypatch.setattr(rowwise, "_TILE", 16)
    monkeypatch.setattr(Softmax, "most_in_numpy", 0)
    mean, variance = moments(likelihood.num_latent, n)
    y = np.random.default_rng(1).integers(0, 3, n).astype(float)
    with precision("float64"):
        for method, arguments in [
            ("predictive_mean", (mean, variance)),
            ("log_density", (y, mean, variance)),
            ("sites", (y, mean, variance)),
        ]:
            expected = getattr(Compiled(likelihood), method)(*arguments)
            found = by_rows(likelihood, method, *arguments)
            if method != "sites":
                expected, found = (expected,), (found,)
            for a, b in zip(expected, found, strict=True):
                assert np.shape(a) == b.shape
                np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("n", [1, 37])
def test_averages_of_numpy_are_those_of_the_program(n):
    """With variances of both rules, narrow and wide."""
    likelihood, weighted = Softmax(3), Softmax(3, class_weights=(1.0, 0.2, 5.0))
    mean, variance = moments(3, n)
    y = np.random.default_rng(1).integers(0, 3, n).astype(float)
    for m, v in [(mean, variance), (mean, 0.4 * variance)]:
        for method, arguments in [
            ("predictive_mean", (m, v)),
            ("predictive_variance", (m, v)),
            ("log_density", (y, m, v)),
            ("expected_log_prob", (y, m, v)),
            ("sites", (y, m, v)),
            ("value_and_sites", (y, m, v)),
        ]:
            for one in (likelihood, weighted):
                with precision("float64"):
                    with count_programs() as programs:
                        found = by_rows(one, method, *arguments)
                        assert programs() == 0
                    right = getattr(one, method)(*map(jnp.asarray, arguments))
                for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
                    assert isinstance(a, np.ndarray) and isinstance(b, jax.Array)
                    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_one_program_serves_all_sizes():
    likelihood = Softmax(4)
    given = {n: moments(4, n) for n in (600, 601, 1000, 513, 1100)}
    made = []
    with precision("float64"):
        for arguments in given.values():
            with count_programs() as programs:
                by_rows(likelihood, "predictive_mean", *arguments)
                made.append(programs())
    assert made[0] >= 1 and made[1:4] == [0, 0, 0]
    assert made[4] == 1


_LABELS, _COUNTS, _OFF = (
    np.where(np.arange(60) % 3 == 0, 1.0, -1.0),
    np.arange(60.0) % 9,
    np.linspace(-9.0, 9.0, 60),
)
_WITH_LOGS = np.linspace(-2.0, 2.0, 60)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (Bernoulli(), _LABELS),
        (Bernoulli("probit"), _LABELS),
        (Bernoulli(class_weights=(0.3, 2.0)), _LABELS),
        (Poisson(2.0), _COUNTS),
        (NegativeBinomial(2.0, 0.4), _COUNTS),
        (NegativeBinomial(2.0, 1e6), _COUNTS),
        (StudentT(0.3, 4.0), _OFF),
        (StudentT(2.0, 0.7), _OFF),
        (Weighted(Bernoulli()), np.stack([_LABELS, _WITH_LOGS], axis=1)),
        (Exposed(NegativeBinomial(2.0, 3.0)), np.stack([_COUNTS, _WITH_LOGS], axis=1)),
        (Softmax(3), np.arange(60.0) % 3),
    ],
    ids=str,
)
def test_sites_in_numpy_are_the_derivatives_of_the_bound(likelihood, y):
    """Those that a program finds, for functions that are known, and such that nothing is known of."""
    rng = np.random.default_rng(0)
    shape = (60,) if likelihood.num_latent == 1 else (3, 60)
    mean, variance = 3.0 * rng.normal(size=shape), 10.0 ** rng.uniform(-12.0, 1.5, shape)
    assert "bound_and_sites" in likelihood.in_numpy and likelihood.most_in_numpy >= 180
    with precision("float64"):
        with count_programs() as programs:
            bound, alpha, beta = likelihood.bound_and_sites(y, mean, variance)
            assert programs() == 0
        expected, sites = local_sites(as_dtype(likelihood, np.float64), y, mean, variance)
    for found, right in [
        (bound, expected),
        (beta, sites.precision),
        (beta * mean + alpha, sites.linear),
    ]:
        assert isinstance(found, np.ndarray)
        # least precisions of sites are the caller's
        np.testing.assert_allclose(found, right, rtol=1e-7, atol=1e-8)


def test_a_probit_far_on_the_wrong_side_keeps_its_digits():
    """``N(t) / Phi(t) = -t - 1 / t + 2 / t^3 - ...`` there, and minus its slope ``1 - 1 / t^2 + 6 / t^4 - ...``."""
    t = np.array([-30.0, -100.0, -1e3])
    value, alpha, beta = Bernoulli("probit").bound_and_sites(np.ones(3), t, np.zeros(3))
    of_log = np.log1p(-(t**-2.0) + 3.0 * t**-4.0) - np.log(-t) - 0.5 * np.log(2.0 * np.pi)
    np.testing.assert_allclose(value, -0.5 * t**2 + of_log, rtol=1e-10)
    np.testing.assert_allclose(alpha, -t - 1.0 / t + 2.0 * t**-3.0 - 10.0 * t**-5.0, rtol=1e-9)
    np.testing.assert_allclose(beta, 1.0 - t**-2.0 + 6.0 * t**-4.0, rtol=1e-6)
