"""`QSGPRegressor` with a grid's eigenfunctions as its basis."""

import jax.numpy as jnp
import numpy as np
import pytest

import vastgp
from vastgp._precision import precision
from vastgp.bases import GridEigenfunctionBasis
from vastgp.kernels import RBF
from vastgp.options import Block, Fixed

pytestmark = pytest.mark.little_work

KERNEL, NOISE = RBF([0.9, 1.4], 1.3), 0.2


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (300, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + NOISE * rng.standard_normal(300)


def make(**options):
    fixed = {"hyperparameters": Fixed(noise_std=NOISE), "kernel": KERNEL, "dtype": "float64"}
    return vastgp.QSGPRegressor(**(fixed | {"basis": "grief", "random_state": 0} | options))


@pytest.mark.parametrize("num_basis", [30, 100])
@pytest.mark.parametrize("space", ["basis", "rows"])
def test_the_posterior_is_that_of_the_functions(table, num_basis, space):
    """Mean and variance are those of linear regression with normal weights on the eigenfunctions."""
    X, y = table
    if space == "rows":
        X, y = X[:25], y[:25]
    model = make(num_basis=num_basis, tol=1e-8, solver=Block(2000, max_products=500)).fit(X, y)
    assert model.diagnosis_["space"] == space
    assert model.num_basis_ == num_basis
    new = np.random.default_rng(1).uniform(-2.0, 2.0, (30, 2))
    scaling, basis = model.standardizer_, model.posterior_.basis
    with precision("float64"):
        phi, phi_new = (
            np.asarray(
                basis.features(jnp.asarray(scaling.transform_X(rows)), jnp.arange(num_basis))
            )
            for rows in (X, new)
        )
    noise = (NOISE / scaling.y_scale) ** 2
    precision_matrix = phi.T @ phi / noise + np.eye(num_basis)
    weights = np.linalg.solve(precision_matrix, phi.T @ scaling.transform_y(y) / noise)
    variance = np.einsum("ij,ij->i", phi_new, np.linalg.solve(precision_matrix, phi_new.T).T)
    with precision("float64"):
        mean, found = model.posterior_.mean_and_latent_variance(scaling.transform_X(new))
    np.testing.assert_allclose(mean, phi_new @ weights, atol=1e-7)
    # the relative standard error of a variance of 2000 samples is sqrt(2 / 2000)
    ratio = found / variance
    assert np.all(np.abs(ratio - 1.0) < 4.5 * (2.0 / 2000) ** 0.5)


def test_few_functions_reach_the_exact_process(table):
    X, y = table
    exact = vastgp.ExactGPRegressor(KERNEL, hyperparameters=Fixed(noise_std=NOISE)).fit(X, y)
    model = make(num_basis=80, tol=1e-6, solver=Block(500, max_products=1000)).fit(X, y)
    new = np.random.default_rng(2).uniform(-2.0, 2.0, (50, 2))
    expected, found = exact.predict(new, return_std=True), model.predict(new, return_std=True)
    np.testing.assert_allclose(found[0], expected[0], atol=0.02)
    np.testing.assert_allclose(found[1], expected[1], rtol=0.03)


def test_pairs_are_neighbouring_functions():
    axes = [np.linspace(-2.0, 2.0, 6), np.linspace(-1.0, 1.0, 4)]
    basis = GridEigenfunctionBasis.build(KERNEL, axes, 9).in_pairs()
    assert (basis.num_basis, basis.num_pairs) == (8, 4)
    X = jnp.asarray(np.random.default_rng(3).normal(size=(7, 2)))
    with precision("float64"):
        pairs = np.asarray(basis.features_by_pair(X, jnp.asarray([3, 1])))
        each = np.asarray(basis.features(X, jnp.asarray([6, 2, 7, 3])))
    np.testing.assert_array_equal(pairs.reshape(4, 7), each.T)
    with pytest.raises(ValueError, match="one eigenfunction alone"):
        GridEigenfunctionBasis.build(KERNEL, [np.zeros(1), np.zeros(1)], 1).in_pairs()


def test_counts_and_names(table, tmp_path):
    """A likelihood of its own, a kernel by its name, an odd number of functions, and a file."""
    X, y = table
    rate = np.random.default_rng(4).poisson(np.exp(0.3 * y))
    model = vastgp.QSGPRegressor(
        "matern52", num_basis=25, basis="grief", likelihood="poisson", solver=Block(4)
    ).fit(X, rate)
    assert model.num_basis_ == 24
    assert "x0: Matern52" in str(model.kernel_)
    mean = model.predict(X)
    assert np.corrcoef(mean, np.exp(0.3 * y))[0, 1] > 0.8
    model.save(tmp_path / "model.vastgp")
    np.testing.assert_array_equal(vastgp.load(tmp_path / "model.vastgp").predict(X), mean)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "stochastic"}, "solver='stochastic' is not available with basis='grief'"),
        (
            {"hyperparameters": "learn"},
            "hyperparameters='learn' is not available with basis='grief'. Set hyperparameters='subset'",
        ),
        ({"kernel": vastgp.Matern32()}, "does not factor over the inputs"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_what_it_does_not_go_with_is_refused(table, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options).fit(*table)
