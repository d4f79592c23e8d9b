"""Grid eigenfunctions equal the dense Nystrom approximation they stand for, found without the grid's matrix."""

from __future__ import annotations

from functools import reduce

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import eigh

from vastgp._precision import precision
from vastgp.bases import GridEigenfunctionBasis, grid_axes
from vastgp.bases.largest_products import largest_products
from vastgp.kernels import RBF, GridKernel, Matern32, Product, RationalQuadratic
from vastgp.kernels.matrices import kernel_matrix

AXES = [np.linspace(-2.0, 2.0, 5), np.array([-1.0, 0.1, 1.5]), np.linspace(-1.0, 1.0, 4)]
KERNELS = {
    "rbf": RBF([0.8, 0.7, 0.5], 2.0),
    "matern": GridKernel([Matern32(0.8), RBF(0.7), Matern32(0.5, 3.0)], [["a"], ["b"], ["c"]], 2.0),
    "product": Product((RBF([0.9, 1.0, 0.8], 2.0), RBF([1.5, 1.1, 0.9], 0.7))),
}


@pytest.fixture(params=list(KERNELS))
def kernel(request):
    return KERNELS[request.param]


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).normal(size=(11, 3))


@eqx.filter_jit
def _compiled(basis, X, some):
    return basis.features(X, some)


def _features(basis, X):
    with precision("float64"):
        return np.asarray(_compiled(basis, jnp.asarray(X), jnp.arange(basis.num_basis)))


def _dense(kernel, X):
    """Return ``K_XU``, and the eigenvalues and eigenvectors of ``K_UU`` on the whole grid."""
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*AXES, indexing="ij")], axis=1)
    with precision("float64"):
        both = np.concatenate([X, grid])
        K = np.asarray(kernel_matrix(kernel, both, both))
    values, vectors = eigh(K[len(X) :, len(X) :])
    return K[: len(X), len(X) :], values[::-1], vectors[:, ::-1]


def test_all_eigenfunctions_give_the_kernel_that_the_grid_induces(kernel, X):
    basis = GridEigenfunctionBasis.build(kernel, AXES, 60)
    phi = _features(basis, X)
    K_XU, values, vectors = _dense(kernel, X)
    root = K_XU @ vectors / np.sqrt(values)
    np.testing.assert_allclose(phi @ phi.T, root @ root.T, atol=1e-10)


def test_a_few_are_the_dense_nystrom_approximation(kernel, X):
    p = 17
    basis = GridEigenfunctionBasis.build(kernel, AXES, p)
    K_XU, values, vectors = _dense(kernel, X)
    expected = K_XU @ vectors[:, :p] / np.sqrt(values[:p])
    np.testing.assert_allclose(np.exp(basis.log_eigenvalues), values[:p], rtol=1e-9)
    phi = _features(basis, X)
    np.testing.assert_allclose(phi @ phi.T, expected @ expected.T, atol=1e-10)
    np.testing.assert_allclose(np.abs(phi), np.abs(expected), atol=1e-9)


def test_chosen_ones_are_those_of_the_leading_under_another_kernel(kernel, X):
    """In the order of the new eigenvalues, which is another one."""
    basis, moved = GridEigenfunctionBasis.build(kernel, AXES, 15), kernel.in_units(2.0, 1.5)
    found = GridEigenfunctionBasis.build(moved, AXES, 15, basis.selection)
    with precision("float64"):
        expected = basis.with_kernel(moved)
    assert {*map(tuple, found.selection)} == {*map(tuple, basis.selection)}
    assert np.any(found.selection != basis.selection)
    assert np.all(np.diff(found.log_eigenvalues) <= 0.0)
    np.testing.assert_allclose(
        found.log_eigenvalues, np.sort(expected.log_eigenvalues)[::-1], atol=1e-9
    )
    phi, other = _features(found, X), _features(expected, X)
    np.testing.assert_allclose(phi @ phi.T, other @ other.T, atol=1e-7)


def test_theorem_42_and_its_logarithms(X):
    kernel, p = KERNELS["rbf"], 12
    basis = GridEigenfunctionBasis.build(kernel, AXES, p)
    pieces, logs = [], np.zeros(p)
    for axis, column, scale, which in zip(
        AXES, X.T, kernel.lengthscales, basis.selection.T, strict=True
    ):
        values, vectors = eigh(np.exp(-0.5 * ((axis[:, None] - axis) / scale) ** 2))
        values, vectors = values[::-1], vectors[:, ::-1]
        cross = np.exp(-0.5 * ((column[:, None] - axis) / scale) ** 2)
        pieces.append((cross @ vectors)[:, which])
        logs += np.log(values[which])
    # the explicit products (4.8): Khatri-Rao rows, Kronecker eigenvectors, selected columns
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*AXES, indexing="ij")], axis=1)
    vectors = [
        eigh(np.exp(-0.5 * ((a[:, None] - a) / s) ** 2))[1][:, ::-1]
        for a, s in zip(AXES, kernel.lengthscales, strict=True)
    ]
    Q = reduce(np.kron, vectors)
    flat = np.ravel_multi_index(tuple(basis.selection.T), basis.sizes)
    K_XU = np.exp(-0.5 * np.sum(((X[:, None] - grid) / kernel.lengthscales) ** 2, axis=2))
    np.testing.assert_allclose(reduce(np.multiply, pieces), (K_XU @ Q)[:, flat], atol=1e-12)
    # (4.9)
    signs = reduce(np.multiply, map(np.sign, pieces))
    stable = signs * np.exp(sum(np.log(np.abs(piece)) for piece in pieces) - 0.5 * logs)
    found = _features(basis, X) / np.sqrt(2.0)  # prior variance
    np.testing.assert_allclose(np.abs(found), np.abs(stable), atol=1e-9)


def test_the_search_finds_the_largest_products():
    rng = np.random.default_rng(1)
    logs = [np.sort(rng.normal(size=size))[::-1] for size in (4, 3, 5, 2)]
    every = reduce(lambda a, b: (a[:, None] + b).ravel(), logs)
    for count in (1, 7, 50, 500):
        indices, values = largest_products(logs, count)
        np.testing.assert_allclose(values, np.sort(every)[::-1][:count], rtol=1e-12)
        again = sum(log[which] for log, which in zip(logs, indices.T, strict=True))
        np.testing.assert_allclose(again, values, rtol=1e-12)
        assert len(np.unique(indices, axis=0)) == min(count, 120)


def test_of_equal_products_each_is_found_once():
    logs = [np.array([0.0, -1.0, -2.0])] * 4
    every = np.sort([sum(places) for places in np.ndindex(3, 3, 3, 3)])
    for count in (1, 6, 40, 81):
        indices, values = largest_products(logs, count)
        np.testing.assert_array_equal(values, -every[:count])
        np.testing.assert_array_equal(values, -indices.sum(axis=1))
        assert len(np.unique(indices, axis=0)) == count


def test_a_hundred_inputs_and_more_points_than_atoms():
    """10^200 inducing points; the diagonal is at most the prior variance, which nothing in logs would show."""
    rng = np.random.default_rng(2)
    kernel = RBF(np.full(100, 10.0), 1.0)
    axes = [np.linspace(-(3**0.5), 3**0.5, 100)] * 100
    basis = GridEigenfunctionBasis.build(kernel, axes, 300)
    X = rng.uniform(-(3**0.5), 3**0.5, size=(20, 100))
    phi = _features(basis, X)
    assert np.all(np.isfinite(phi))
    diagonal = np.sum(phi**2, axis=1)
    assert np.all(diagonal <= 1.0 + 1e-9) and np.all(diagonal > 0.6)


def test_subsets_agree_with_the_whole(kernel, X):
    basis = GridEigenfunctionBasis.build(kernel, AXES, 9)
    some = np.array([7, 0, 3])
    with precision("float64"):
        found = np.asarray(_compiled(basis, jnp.asarray(X), jnp.asarray(some)))
    np.testing.assert_array_equal(found, _features(basis, X)[:, some])


def test_gradients_by_hyperparameters_equal_finite_differences(kernel, X):
    basis = GridEigenfunctionBasis.build(kernel, AXES, 14)
    weights = np.random.default_rng(3).normal(size=(11, 11))
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda leaf: np.asarray(leaf, float), kernel))

    with precision("float64"):

        @jax.jit
        def value(leaves):
            own = basis.with_kernel(jax.tree.unflatten(structure, leaves))
            phi = own.features(jnp.asarray(X), jnp.arange(14))
            return jnp.sum(jnp.asarray(weights) * (phi @ phi.T))

        same = float(value(leaves))
        phi = _features(basis, X)
        assert same == pytest.approx(np.sum(weights * (phi @ phi.T)), rel=1e-8)
        found = jax.jit(jax.grad(value))(leaves)
        for number, leaf in enumerate(leaves):
            for place in np.ndindex(leaf.shape):
                ends = []
                for step in (1e-5, -1e-5):
                    moved = [entry.copy() for entry in leaves]
                    moved[number][place] += step
                    ends.append(float(value(moved)))
                slope = (ends[0] - ends[1]) / 2e-5
                assert float(found[number][place]) == pytest.approx(slope, rel=1e-4, abs=1e-4)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "kernel", [Matern32([1.0, 1.0, 1.0]), RationalQuadratic(), RBF() + RBF(2.0)]
)
def test_a_kernel_that_does_not_factor_is_refused(kernel):
    with pytest.raises(ValueError, match="does not factor over the inputs"):
        GridEigenfunctionBasis.build(kernel, AXES, 5)


def test_more_functions_than_points_are_refused():
    with pytest.raises(ValueError, match="num_basis=61 is more than the 60 points of the grid"):
        GridEigenfunctionBasis.build(KERNELS["rbf"], AXES, 61)


def test_a_constant_axis_is_refused_unless_it_has_one_point():
    with pytest.raises(ValueError, match=r"axes\[1\] repeats points \(1 of 4 are distinct\)"):
        GridEigenfunctionBasis.build(RBF([1.0, 1.0]), [AXES[0], np.full(4, 2.0)], 5)
    basis = GridEigenfunctionBasis.build(RBF([1.0, 1.0]), [AXES[0], np.array([2.0])], 5)
    phi = _features(basis, np.array([[0.3, 2.0]]))
    alone = _features(GridEigenfunctionBasis.build(RBF([1.0]), AXES[:1], 5), np.array([[0.3]]))
    np.testing.assert_allclose(phi, alone, atol=1e-12)


def test_other_refusals():
    with pytest.raises(ValueError, match="kernel has 2 lengthscales but the data have 3"):
        GridEigenfunctionBasis.build(RBF([1.0, 1.0]), AXES, 5)
    with pytest.raises(ValueError, match="kernel has 3 parts but the data have 1"):
        GridEigenfunctionBasis.build(KERNELS["matern"], AXES[:1], 5)
    with pytest.raises(ValueError, match=r"axes\[0\] has shape \(0,\)"):
        GridEigenfunctionBasis.build(RBF(), [np.array([])], 1)
    with pytest.raises(ValueError, match="placement must be 'even' or 'k-means'"):
        grid_axes(np.zeros((3, 1)), 4, "random")
    with pytest.raises(ValueError, match="grid_size must be at least 2"):
        grid_axes(np.zeros((3, 1)), 1)


# ---------------------------------------------------------------- grids


def test_grids_of_columns():
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.normal(size=200), rng.integers(0, 3, size=200), np.full(200, 7.0)])
    even, levels, constant = grid_axes(X, 6)
    np.testing.assert_allclose(even, np.linspace(X[:, 0].min(), X[:, 0].max(), 6))
    np.testing.assert_array_equal(levels, [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(constant, [7.0])
    clustered = grid_axes(X, 6, "k-means")[0]
    assert len(clustered) == 6 and clustered[0] == X[:, 0].min() and clustered[-1] == X[:, 0].max()
    # clusters lie where the values are: closer together in the middle
    assert np.diff(clustered)[1:-1].max() < np.diff(clustered)[[0, -1]].max()
    wide = grid_axes(X[:, :1], 4, limits=np.array([[-9.0], [9.0]]))[0]
    np.testing.assert_allclose(wide, [-9.0, -3.0, 3.0, 9.0])
