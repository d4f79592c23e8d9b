"""Low-rank factors for preconditioners: what they approximate, and which is taken where."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from vastgp import IterativeGPRegressor
from vastgp._precision import precision
from vastgp.kernels import RBF, Matern32
from vastgp.methods.iterative.kernel_factors import low_rank_factor
from vastgp.methods.iterative.kernel_system import kernel_operator, kernel_preconditioner
from vastgp.options import CG
from vastgp.solvers.cg import cg_start, run_cg
from vastgp.solvers.distinct_rows import merge_repeated

KERNEL = RBF([1.0, 1.2, 0.9], 2.0)


def _box(n=1500, d=3, seed=0):
    return np.random.default_rng(seed).uniform(-1.7, 1.7, (n, d))


def _curve(n=1500, d=3, seed=0):
    t = np.random.default_rng(seed).uniform(-1.7, 1.7, (n, 1))
    return np.concatenate([t, np.sin(5.0 * t), np.cos(5.0 * t)], axis=1)[:, :d]


def _left(X, factor):
    return 2.0 - np.sum(factor**2, axis=0)


def test_a_factor_of_the_grid_has_the_kernel_matrix_as_its_square():
    X = _box(200)
    with precision("float64"):
        factor = low_rank_factor(KERNEL, X, 400, 0, "grid")
        K = np.asarray(KERNEL(jnp.asarray(X), jnp.asarray(X)))
    assert factor.shape == (400, 200)
    np.testing.assert_allclose(factor.T @ factor, K, atol=2e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_factor_that_leaves_less_is_taken(dtype):
    for X, better in ((_box(), "grid"), (_curve(), "pivots")):
        with precision(dtype):
            X = X.astype(dtype)
            auto, pivots, grid = (
                low_rank_factor(KERNEL, X, 60, 0, kind) for kind in ("auto", "pivots", "grid")
            )
        wanted, other = (grid, pivots) if better == "grid" else (pivots, grid)
        np.testing.assert_array_equal(auto, wanted)
        assert auto.dtype == dtype
        assert np.mean(_left(X, wanted)) < np.mean(_left(X, other))


def test_the_grid_halves_the_iterations_where_rows_fill_the_box():
    X = _box(2000)
    observed = merge_repeated(X, np.sin(2.0 * X[:, 0]) + X[:, 1])
    with precision("float64"):
        operator = kernel_operator(KERNEL, 0.01, observed)
        right = jnp.asarray(observed.y)[None]
        found = {}
        for kind in ("pivots", "grid"):
            P = kernel_preconditioner(KERNEL, 0.01, observed, 100, 0, kind)
            goal = 1e-8 * jnp.linalg.norm(right)
            start = cg_start(jnp.zeros_like(right), right, P)
            found[kind] = run_cg(operator, P, start, goal, jnp.asarray(400))
    (grid, few), (pivots, many) = found["grid"], found["pivots"]
    np.testing.assert_allclose(grid.solution, pivots.solution, atol=1e-4)
    assert few < 0.7 * many and many < 400


def test_a_kernel_that_is_no_product_has_pivots_or_an_error():
    X = _box(300)
    kernel = Matern32([1.0, 1.0, 1.0], 2.0)
    with precision("float64"):
        auto = low_rank_factor(kernel, X, 40, 0)
        np.testing.assert_array_equal(auto, low_rank_factor(kernel, X, 40, 0, "pivots"))
        with pytest.raises(ValueError, match="does not factor over the inputs"):
            low_rank_factor(kernel, X, 40, 0, "grid")
    with pytest.raises(ValueError, match=r"preconditioner must be one of .* received 'grief'"):
        IterativeGPRegressor(solver=CG(preconditioner="grief")).fit(X, X[:, 0])


def test_a_grid_of_fewer_points_than_the_rank_has_them_all():
    X = np.random.default_rng(0).integers(0, 2, (400, 2)).astype(float)
    with precision("float64"):
        factor = low_rank_factor(RBF([1.0, 1.0]), X, 50, 0, "grid")
    assert factor.shape == (4, 400)
    with precision("float64"):
        K = np.asarray(RBF([1.0, 1.0])(jnp.asarray(X), jnp.asarray(X)))
    np.testing.assert_allclose(factor.T @ factor, K, atol=1e-10)
