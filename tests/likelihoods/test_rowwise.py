"""Methods of likelihoods at many rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiled_programs import count_programs
from likelihoods.conformance import Compiled
from vastgp._precision import precision
from vastgp.likelihoods import Gaussian, HeteroskedasticGaussian, Softmax, StudentT, rowwise
from vastgp.likelihoods.rowwise import by_rows

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
