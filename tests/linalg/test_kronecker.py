"""Kronecker algebra against the products formed."""

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.linalg.cholesky import FactorizationError
from vastgp.linalg.kronecker import kron_eigen, kron_flops, kron_product, kron_rows, outer_product
from vastgp.methods.grid.lanczos import quadrature_of
from vastgp.methods.grid.selected_spectrum import select_eigenvectors


@pytest.fixture(scope="module")
def factors():
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape) for shape in ((3, 4), (5, 2), (4, 6))]


def test_products_equal_those_of_the_formed_matrix(factors):
    vectors = np.random.default_rng(1).normal(size=(3, 48))
    formed = reduce(np.kron, factors)
    with precision("float64"):
        matrices = [jnp.asarray(factor) for factor in factors]
        for rows in (vectors, vectors[:1]):
            got = kron_product(matrices, jnp.asarray(rows))
            np.testing.assert_allclose(got, rows @ formed.T, atol=1e-13)


def test_rows_of_the_product_at_points(factors):
    rng = np.random.default_rng(2)
    vector = rng.normal(size=48)
    picks = [rng.integers(len(factor), size=7) for factor in factors]
    formed = reduce(np.kron, factors)
    index = np.ravel_multi_index(picks, [len(factor) for factor in factors])
    with precision("float64"):
        rows = [jnp.asarray(factor[pick]) for factor, pick in zip(factors, picks, strict=True)]
        np.testing.assert_allclose(
            kron_rows(rows, jnp.asarray(vector)), formed[index] @ vector, atol=1e-13
        )
        one = kron_rows(rows[2:], jnp.asarray(vector[:6]))
    np.testing.assert_allclose(one, factors[2][picks[2]] @ vector[:6], atol=1e-13)


def test_eigenvalues_and_eigenvectors_are_those_of_the_product():
    rng = np.random.default_rng(3)
    symmetric = [M @ M.T for M in (rng.normal(size=(m, m)) for m in (3, 5, 4))]
    formed = 0.7 * reduce(np.kron, symmetric)
    eigen = kron_eigen(symmetric, 0.7)
    np.testing.assert_allclose(
        np.sort(np.asarray(outer_product([0.7 * eigen.values[0], *eigen.values[1:]]))),
        np.linalg.eigvalsh(formed),
        atol=1e-11 * np.max(formed),
    )
    vectors = rng.normal(size=(2, 60))
    with precision("float64"):
        cast = eigen.astype("float64")
        inverse = cast.apply(1.0 / (cast.spectrum() + 0.1), jnp.asarray(vectors))
        again = kron_product(jax.device_put(cast.factors()), jnp.asarray(vectors))
    np.testing.assert_allclose(again, vectors @ formed, atol=1e-11)
    np.testing.assert_allclose(
        inverse, np.linalg.solve(formed + 0.1 * np.eye(60), vectors.T).T, atol=1e-10
    )


def test_negative_eigenvalues_of_rounding_are_zero_and_nan_is_refused():
    ones = np.ones((30, 30))
    assert kron_eigen([ones]).values[0].min() == 0.0
    with pytest.raises(FactorizationError, match=r"factor 1 \(2 x 2\).*NaN or infinity"):
        kron_eigen([ones, np.array([[1.0, np.nan], [np.nan, 1.0]])])


def test_the_cost_of_a_product_is_counted():
    assert kron_flops((10, 20)) == 2 * 200 * 30


class _Diagonal:
    """A matrix whose Lanczos iteration ends early: three distinct eigenvalues."""

    values = jnp.asarray(np.array([1.0, 2.0, 5.0]).repeat(4), jnp.float32)

    def product(self, vectors):
        return vectors * self.values.astype(vectors.dtype)


def test_lanczos_quadrature_is_exact_once_the_subspace_is_invariant():
    probes = np.random.default_rng(0).normal(size=(2, 12))
    with precision("float64"):
        got = quadrature_of(np.log, _Diagonal(), jnp.asarray(probes), 8)
    np.testing.assert_allclose(
        got, probes**2 @ np.log(np.asarray(_Diagonal.values, float)), rtol=1e-10
    )


@pytest.mark.parametrize("shape", [(50,), (12, 9), (5, 4, 3, 5)])
def test_gram_matrices_by_pairs_and_by_columns_are_those_of_the_columns(shape, monkeypatch):
    rng = np.random.default_rng(0)
    factors = [root @ root.T for root in (rng.normal(size=(m, m)) for m in shape)]
    mask = rng.uniform(size=int(np.prod(shape))) < 0.6
    with precision("float64"):
        eigen = kron_eigen(factors).astype("float64")
        every = np.asarray(eigen.rotate_back(jnp.eye(mask.size))).T
        for rank in (1, 17, 30):
            selected, values = select_eigenvectors(eigen, rank, mask, "float64")
            chosen = np.isin(np.asarray(eigen.spectrum()), values)
            U = every[mask][:, chosen]
            np.testing.assert_allclose(selected.gram(), U.T @ U, atol=1e-12)
            with monkeypatch.context() as patch:
                patch.setattr("vastgp.methods.grid.selected_spectrum._MOST_HELD", 0)
                np.testing.assert_allclose(selected.gram(), U.T @ U, atol=1e-12)
