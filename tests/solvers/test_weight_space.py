"""Posteriors over weights: what functions of them are at few rows and at many."""

import jax.numpy as jnp
import numpy as np
import pytest

from compiled_programs import count_programs
from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.kernels import RBF, Matern32
from vastgp.solvers import weight_space
from vastgp.solvers.weight_space import SampledPosterior


def posterior(pairs, functions=(), dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    basis = RandomFourierBasis(Matern32(1.5, 2.0) + RBF(0.3), seed_key(seed), 2 * pairs)
    mean = rng.normal(size=(*functions, 2, pairs)).astype(dtype)
    deviations = rng.normal(size=(*functions, 7, 2, pairs)).astype(dtype)
    return SampledPosterior(basis, jnp.asarray(mean), jnp.asarray(deviations))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("functions", [(), (3,)])
def test_few_rows_have_what_a_program_gives(functions, dtype, monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(5, 3)) * [1.0, 10.0, 0.1]
    with precision(dtype):
        found = posterior(139, functions, dtype)
        few = *found.mean_and_latent_variance(X), found.mean(X), found.samples(X, 9, 0)
        monkeypatch.setattr(weight_space, "_FEW_FEATURES", 0)
        many = *found.mean_and_latent_variance(X), found.mean(X), found.samples(X, 9, 0)
        # by the features themselves
        phi = np.asarray(found.basis.features_by_pair(jnp.asarray(X, dtype), jnp.arange(139)))
    expected = np.einsum("...ap,apn->...n", np.asarray(found.mean_weights), phi)
    tol = 1e-11 if dtype == "float64" else 3e-5
    np.testing.assert_allclose(few[2], expected, atol=tol, rtol=tol)
    for one, other in zip(few, many, strict=True):
        assert one.dtype == other.dtype == np.float64
        np.testing.assert_allclose(one, other, atol=tol, rtol=tol)


def test_a_first_prediction_of_a_row_compiles_the_draws_alone():
    rng = np.random.default_rng(0)
    with precision("float32"):
        found = posterior(173)
        with count_programs() as programs:
            found.mean_and_latent_variance(rng.normal(size=(1, 4)))
            assert programs() == 1
            for rows in (1, 2, 5):  # whatever their number
                found.mean_and_latent_variance(rng.normal(size=(rows, 4)))
            assert programs() == 1
