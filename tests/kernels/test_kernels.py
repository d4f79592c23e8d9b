"""Kernels against closed forms, their features against the kernel, their gradients against differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gamma, kv

from vastgp import kernels
from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, StoredFourierBasis, seed_key
from vastgp.kernels import (
    RBF,
    Constant,
    Coregionalisation,
    Cyclic,
    GridKernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    OnSphere,
    Periodic,
    RationalQuadratic,
)
from vastgp.kernels.matrices import kernel_matrix

EVERY = [
    RBF([1.0, 2.0, 0.5], 2.0),
    Matern12(1.5),
    Matern32(1.0, 0.7),
    Matern52([0.8, 1.0, 1.2]),
    RationalQuadratic(1.0, 1.5, 2.0),
    RBF() + Matern32(2.0, 3.0),
    RBF() * Matern12(2.0, 3.0),
    (RBF() + Matern12()) * RBF(3.0, 2.0),
]
pytestmark = pytest.mark.little_work


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(12, 3))


@pytest.mark.parametrize(("kernel", "order"), [(Matern12, 0.5), (Matern32, 1.5), (Matern52, 2.5)])
def test_matern_is_the_bessel_form(kernel, order):
    """Rasmussen and Williams (2006), eq. (4.14)."""
    r = np.linspace(0.05, 4.0, 50)
    scaled = np.sqrt(2 * order) * r / 1.3
    expected = 2 ** (1 - order) / gamma(order) * scaled**order * kv(order, scaled)
    with precision("float64"):
        got = kernel(1.3)(jnp.zeros((1, 1)), jnp.asarray(r[:, None]))[0]
    np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_rational_quadratic_approaches_the_rbf(X):
    with precision("float64"):
        Z = jnp.asarray(X)
        np.testing.assert_allclose(RationalQuadratic(1.0, 1.0, 1e6)(Z, Z), RBF()(Z, Z), atol=1e-5)


# how normals are drawn, and what each kernel makes of them: all of either
@pytest.mark.parametrize(
    ("frequencies", "kernel"),
    [("plain", kernel) for kernel in EVERY]
    + [(kind, kernel) for kind in ("orthogonal", "qmc") for kernel in (EVERY[3], EVERY[-1])],
    ids=str,
)
def test_features_reproduce_the_kernel(frequencies, kernel, X):
    """Means over 40 seeds of phi(x)^T phi(z) lie within 4.5 standard errors of k(x, z), all 144 entries."""
    with precision("float64"):
        Z = jnp.asarray(X)

        @jax.jit
        def gram(key):
            basis = RandomFourierBasis(kernel, key, 128, frequencies)
            phi = basis.features(Z, jnp.arange(basis.num_pairs)).reshape(len(X), -1)
            return phi @ phi.T

        draws = np.stack([gram(jnp.asarray(seed_key(seed))) for seed in range(40)])
        exact = np.asarray(kernel_matrix(kernel, Z, Z))
    error = draws.mean(axis=0) - exact
    standard_error = draws.std(axis=0, ddof=1) / np.sqrt(40)
    # the diagonal is exact: cos^2 + sin^2 = 1
    np.testing.assert_allclose(np.diag(error), 0.0, atol=1e-12)
    off = ~np.eye(len(X), dtype=bool)
    # a quasi-Monte Carlo mean has a bias of its discretisation beside its (small) scatter
    slack = 0.01 * float(kernel.total_variance()) if frequencies == "qmc" else 1e-12
    assert np.all(np.abs(error[off]) < 4.5 * standard_error[off] + slack)


@pytest.mark.parametrize("kernel", [RBF(1.5), Matern52(1.5)], ids=str)
def test_better_frequencies_have_smaller_errors(kernel, X):
    def error(frequencies):
        basis = RandomFourierBasis(kernel, jnp.asarray(seed_key(3)), 4096, frequencies)
        phi = np.asarray(basis.features(jnp.asarray(X, jnp.float32), jnp.arange(2048)))
        gram = phi.reshape(len(X), -1) @ phi.reshape(len(X), -1).T
        return np.sqrt(np.mean((gram - np.asarray(kernel_matrix(kernel, X, X))) ** 2))

    assert error("qmc") < 0.5 * error("plain")


@pytest.mark.parametrize("frequencies", ["plain", "orthogonal", "qmc"])
def test_a_feature_depends_on_seed_and_index_alone(frequencies):
    basis = RandomFourierBasis(RBF() + Matern32(), jnp.asarray(seed_key(5)), 200, frequencies)
    X = jnp.asarray(np.random.default_rng(1).normal(size=(7, 3)), jnp.float32)
    everything = np.asarray(basis.features(X, jnp.arange(100)))
    some = jnp.asarray([41, 3, 99, 3])
    assert np.array_equal(
        np.asarray(basis.spectrum(some, 3, jnp.float32)[0]),
        np.asarray(basis.spectrum(jnp.arange(100), 3, jnp.float32)[0])[some],
    )
    np.testing.assert_allclose(basis.features(X, some), everything[:, :, some], atol=1e-6)
    rows_last = np.asarray(basis.features_by_pair(X, some))
    np.testing.assert_allclose(np.moveaxis(rows_last, 2, 0), everything[:, :, some], atol=1e-6)
    other = RandomFourierBasis(RBF() + Matern32(), jnp.asarray(seed_key(6)), 200, frequencies)
    assert np.max(np.abs(other.features(X, some) - everything[:, :, some])) > 0.01


def test_stored_frequencies_make_the_same_features_to_the_last_bit():
    kernel = RBF([1.0, 2.0]) + Matern32(0.7, 2.0)
    with precision("float32"):
        X = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)), jnp.float32)
        basis = RandomFourierBasis(
            kernel, seed_key(3), 2 * 700
        )  # drawn in two goes, the last one partly
        stored = basis.stored(2, "float32")
        assert isinstance(stored, StoredFourierBasis) and stored.frequencies.shape == (700, 2)
        some = jnp.asarray([0, 511, 512, 699])
        mine, theirs = (eqx.filter_jit(b.features_by_pair)(X, some) for b in (stored, basis))
        np.testing.assert_array_equal(mine, theirs)
        assert basis.stored(2, "float32", most_bytes=8000) is basis


@pytest.mark.parametrize("kernel", EVERY, ids=str)
def test_gradients_by_finite_differences(kernel, X):
    with precision("float64"):
        Z = jnp.asarray(X)
        logs = jax.tree.map(lambda leaf: jnp.log(jnp.asarray(leaf)), kernel)
        weights = jnp.asarray(np.random.default_rng(2).normal(size=(12, 12)))
        pairs = jnp.arange(8)

        def by_kernel(logs):
            return jnp.sum(weights * jax.tree.map(jnp.exp, logs)(Z, Z))

        def by_features(logs):
            basis = RandomFourierBasis(jax.tree.map(jnp.exp, logs), jnp.asarray(seed_key(0)), 16)
            return jnp.sum(basis.features(Z, pairs)[:, :, 3] ** 3)

        @jax.jit
        def slopes(logs):
            """Return gradients of both functions, and differences when a leaf is moved."""
            flat, tree = jax.tree.flatten(logs)
            moves = [
                [leaf + 1e-6 * sign * (which == place) for place, leaf in enumerate(flat)]
                for which in range(len(flat))
                for sign in (1, -1)
            ]
            moved = jax.tree.unflatten(
                tree, [jnp.stack(leaves) for leaves in zip(*moves, strict=True)]
            )
            return [
                (jax.grad(function)(logs), jax.lax.map(function, moved))
                for function in (by_kernel, by_features)
            ]

        for function, (gradient, ends) in zip((by_kernel, by_features), slopes(logs), strict=True):
            numeric = (np.asarray(ends)[::2] - np.asarray(ends)[1::2]) / 2e-6
            for which, leaf in enumerate(jax.tree.leaves(gradient)):
                if function is by_features and isinstance(kernel, RationalQuadratic) and which == 2:
                    # JAX differentiates gamma draws through their quantile: right in expectation
                    # (the evidence's slope is unbiased), not along the path of the sampler.
                    continue
                np.testing.assert_allclose(np.sum(leaf), numeric[which], rtol=2e-4, atol=2e-7)


@jax.jit
def _slope_of_sum(kernel, X):
    return jax.grad(lambda k: jnp.sum(k(X, X)))(kernel)


def test_gradient_is_finite_where_rows_coincide():
    X = jnp.zeros((3, 2))
    for kernel in (Matern12(), Matern32(), Matern52(), RBF()):
        slope = _slope_of_sum(jax.tree.map(jnp.asarray, kernel), X)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slope))


def test_units(X):
    """A kernel of standardised data in the units of inputs and target is the same function."""
    scale = np.array([2.0, 0.1, 30.0])
    with precision("float64"):
        for kernel in EVERY:
            kernel = kernel.with_ard(3)
            inner = 25.0 * np.asarray(kernel_matrix(kernel, X / scale, X / scale))
            outer = kernel_matrix(kernel.in_units(scale, 5.0), X, X)
            np.testing.assert_allclose(outer, inner, rtol=1e-12)


@pytest.mark.parametrize("kernel", EVERY, ids=str)
def test_plain_data_and_back(kernel):
    spec, arrays = kernels.to_spec(kernel.with_ard(3))
    again = kernels.from_spec(spec, arrays)
    assert str(again) == str(kernel.with_ard(3))
    assert all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(kernel.with_ard(3)), strict=True)
    )


def test_bad_hyperparameters_are_named():
    with pytest.raises(ValueError, match="lengthscales must be positive and finite, received -1"):
        RBF(-1.0)
    with pytest.raises(ValueError, match="variance must be positive"):
        Matern32(1.0, np.nan)
    with pytest.raises(ValueError, match="kernel has 2 lengthscales but the data have 3 features"):
        RBF([1.0, 2.0]).with_ard(3)
    with pytest.raises(ValueError, match="kernel must be one of 'rbf', 'matern12'"):
        kernels.from_name("gaussian")
    with pytest.raises(ValueError, match="does not know"):
        kernels.from_spec({"kind": "wavelet"}, {})


@pytest.mark.parametrize("bad", [[1.0, 2.0], np.ones((1, 1)), jnp.ones(3)], ids=str)
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda value: RBF(1.0, value), "variance"),
        (lambda value: RationalQuadratic(1.0, 1.0, value), "alpha"),
        (Periodic, "period"),
        (Cyclic, "period"),
        (lambda value: Periodic(1.0, 1.0, value), "variance"),
        (Constant, "variance"),
        (lambda value: GridKernel((RBF(),), (("a",),), value), "variance"),
    ],
)
def test_hyperparameters_that_are_one_number(make, name, bad):
    with pytest.raises(ValueError, match=f"^{name} must be one number, received"):
        make(bad)


@pytest.mark.parametrize("bad", ["a", None, [1.0, "b"], 1j, jnp.asarray(-1.0), jnp.asarray([0.0])])
def test_hyperparameters_that_are_no_positive_numbers(bad):
    """Arrays of JAX are looked at, too, but for traced ones, which have no numbers yet."""
    with pytest.raises(ValueError, match=r"^lengthscales must be positive and finite"):
        RBF(bad)
    kept = jnp.asarray(2.0)
    assert RBF(kept).lengthscales is kept
    assert jax.jit(lambda value: RBF(value).lengthscales)(-1.0) == -1.0


ONE_COLUMN, TWO_COLUMNS = np.array([[0], [1], [3]]), np.array([[0, 1], [1, 5], [3, 2]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("kernel", "X"),
    [
        (RBF(1.5), ONE_COLUMN),
        (RBF(0.5, 2.5), ONE_COLUMN),
        (Periodic(7, 1.5, 0.5), ONE_COLUMN),
        (Cyclic(24), ONE_COLUMN),
        (Linear([0.5, 1.5]), TWO_COLUMNS),
        (Constant(0.5) + RationalQuadratic(0.3) * Matern12(), TWO_COLUMNS),
        (OnSphere(), TWO_COLUMNS),
        (GridKernel((RBF(0.3), Periodic(7)), (("a",), ("b",)), 0.5), TWO_COLUMNS),
        (Coregionalisation(matrix=np.diag([0.5, 0.4, 0.3, 0.2])), ONE_COLUMN),
    ],
    ids=str,
)
def test_whole_numbers_as_inputs_are_read_as_floating_point_ones(kernel, X, dtype):
    """They cut hyperparameters to whole numbers: lengthscales of 0.5 were 0."""
    with precision(dtype):
        for function in (lambda X: kernel(X, X), kernel.diag):
            found, wanted = function(X), function(X.astype(dtype))
            assert found.dtype == wanted.dtype == dtype
            np.testing.assert_array_equal(found, wanted)
        if isinstance(kernel, GridKernel):
            axes = [jnp.asarray(X[:, :1]), jnp.asarray(X[:, 1:])]
            wanted = kernel.factors([axis.astype(dtype) for axis in axes])
            for factor, same in zip(kernel.factors(axes), wanted, strict=True):
                np.testing.assert_array_equal(factor, same)


@pytest.mark.parametrize("kernel", [*EVERY[1:3], Linear(), Constant(), Periodic(3.0)], ids=str)
def test_both_arguments_have_the_same_inputs(kernel):
    with pytest.raises(ValueError, match=r"X and Z must have the same inputs as col.*1 and 2"):
        kernel(np.ones((3, 1)), np.ones((4, 2)))
    for bad in (np.ones(3), np.ones((3, 1, 1)), 1.0):
        with pytest.raises(ValueError, match="Z must have a row for each point and a column"):
            kernel(np.ones((3, 1)), bad)
    assert jax.eval_shape(kernel, np.ones((3, 2)), np.ones((4, 2))).shape == (3, 4)


def test_a_kernel_is_called_with_the_inputs_that_it_has():
    one, two, five = np.ones((3, 1)), np.ones((3, 2)), np.ones((2, 5))
    for kernel, X, message in (
        (RBF([1.0, 0.1]), one, "kernel has 2 lengthscales but the data have 1 features"),
        (Periodic(3.0, [1.0, 0.1]), one, "kernel has 2 lengthscales but the data have 1"),
        (Linear([1.0, 0.1]), one, "kernel has 2 slope variances but the data have 1"),
        (RBF(1.0, inputs=(0, 0)), one, r"inputs=\(0, 0\) for 2 columns but the data have 1"),
        (Cyclic(), two, "a Cyclic kernel is of one input, and received 2"),
        (OnSphere(), one, "of latitude and longitude, and received 1 inputs"),
        (
            GridKernel([RBF(), RBF()], [("a",), ("b",)]),
            five,
            r"inputs \['a', 'b'\], received 5 col",
        ),
        (Coregionalisation(2), two, "X must be one column of whole numbers from 0 to 1"),
    ):
        with pytest.raises(ValueError, match=message):
            kernel(X, X)


@pytest.mark.parametrize("bad", [2.0, -1.0, 0.5, np.nan])
def test_rows_of_outputs_that_there_are_not(bad):
    kernel, good = Coregionalisation(2), np.array([[0.0], [1.0]])
    with pytest.raises(ValueError, match=f"Z must be one column of .* the first {bad}"):
        kernel(good, np.array([[0.0], [bad]]))
    with pytest.raises(ValueError, match="X must be one column of whole numbers from 0 to 1"):
        kernel.diag(np.array([[bad]]))
    np.testing.assert_array_equal(jax.jit(lambda X: kernel(X, X))(good), np.eye(2))


def test_bad_bases_are_named():
    with pytest.raises(ValueError, match="num_basis must be an even number"):
        RandomFourierBasis(RBF(), seed_key(0), 7)
    with pytest.raises(ValueError, match="frequencies must be one of"):
        RandomFourierBasis(RBF(), seed_key(0), 8, "fast")
    with pytest.raises(ValueError, match="at least 4 for a sum of 2 kernels"):
        RandomFourierBasis(RBF() + RBF(), seed_key(0), 2)
