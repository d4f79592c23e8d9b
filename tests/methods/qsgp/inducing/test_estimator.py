"""`QSGPRegressor` with inducing inputs: the promises of every regressor, and what is its own."""

import numpy as np
import pytest

import vastgp
from estimators.regressor_conformance import RegressorConformance
from vastgp import RBF, ExactGPRegressor, Periodic, QSGPRegressor
from vastgp.options import Fixed, Inducing

pytestmark = pytest.mark.little_work


class TestInducing(RegressorConformance):
    units_tolerance = 1e-4  # float32

    def make(self, **params):
        return QSGPRegressor(**({"kernel": "rbf", "basis": "inducing"} | params))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (200, 2)) * [1.0, 20.0]
    return X, 100.0 + 7.0 * np.sin(X[:, 0]) * np.cos(X[:, 1] / 20.0) + 0.7 * rng.normal(size=200)


@pytest.fixture(scope="module")
def kernel():
    return RBF([1.2, 25.0], 40.0)


def fixed(kernel, **params):
    known = {"basis": "inducing", "hyperparameters": Fixed(noise_std=0.7)}
    return QSGPRegressor(kernel, **(known | params))


def test_the_mean_is_that_of_the_exact_process_and_intervals_are_not_narrower(data, kernel):
    X, y = data
    model = fixed(kernel, tol=1e-3).fit(X, y)
    exact = ExactGPRegressor(kernel, hyperparameters=Fixed(noise_std=0.7)).fit(X, y)
    assert model.converged_ and model.num_basis_ == 200 and model.solver_ == "stochastic"
    new = np.random.default_rng(1).uniform(-3, 3, (100, 2)) * [1.0, 20.0]
    mean, latent = model.predict(new, return_std="latent")
    expected, narrow = exact.predict(new, return_std="latent")
    np.testing.assert_allclose(mean, expected, atol=0.01)
    # 128 of 200 rows tell less than all do
    assert np.all(latent >= narrow * (1.0 - 1e-4))
    assert np.median(latent / narrow) < 1.05
    # among the rows mean-field is too wide
    mean_field = fixed(kernel, tol=1e-3, basis=Inducing(variance="augmented")).fit(X, y)
    assert np.mean(mean_field.predict(new, return_std="latent")[1]) > np.mean(latent)


def test_far_from_the_rows_the_variance_is_the_priors_or_without_augmentation_zero(data, kernel):
    far = np.array([[60.0, -900.0]])
    for variance, expected in (("nearest", 40.0), ("augmented", 40.0), ("diagonal", 0.0)):
        model = fixed(kernel, basis=Inducing(variance=variance)).fit(*data)
        _, std = model.predict(far, return_std="latent")
        assert std[0] ** 2 == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("variance", ["nearest", "augmented"])
def test_inducing_inputs_are_in_the_units_of_x_and_saved_with_the_model(
    data, kernel, variance, tmp_path
):
    X, y = data
    Z = np.stack(
        [a.ravel() for a in np.meshgrid(np.linspace(-3, 3, 7), np.linspace(-60, 60, 7))], axis=1
    )
    model = fixed(kernel, basis=Inducing(Z, variance=variance)).fit(X, y)
    assert model.num_basis_ == 49
    kept = np.asarray(model.posterior_.basis.inputs, np.float64)
    np.testing.assert_allclose(
        kept * model.standardizer_.x_scale + model.standardizer_.x_mean, Z, atol=1e-4
    )
    exact = ExactGPRegressor(kernel, hyperparameters=Fixed(noise_std=0.7)).fit(X, y)
    assert np.mean((model.predict(X) - exact.predict(X)) ** 2) ** 0.5 < 0.2
    model.save(tmp_path / "model.vastgp")
    loaded = vastgp.load(tmp_path / "model.vastgp")
    for mine, theirs in zip(
        model.predict(X[:9], return_std=True), loaded.predict(X[:9], return_std=True), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(loaded.basis.inputs, Z)
    np.testing.assert_array_equal(loaded.sample_y(X[:3], 2), model.sample_y(X[:3], 2))


def test_num_basis_rows_are_chosen_at_random(data, kernel):
    X, y = data
    model = fixed(kernel, num_basis=51).fit(X, y)  # odd: there are no pairs
    assert model.num_basis_ == 51
    kept = np.asarray(model.posterior_.basis.inputs, np.float64)
    scaled = model.standardizer_.transform_X(X)
    nearest = np.abs(kept[:, None] - scaled[None]).max(axis=2).min(axis=1)
    assert nearest.max() < 1e-5
    assert fixed(kernel, num_basis=500).fit(X, y).num_basis_ == 200


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"basis": Inducing(np.zeros((4, 3)))}, r"inducing_inputs must have shape \(m, 2\).*received shape \(4, 3\)"),
        ({"basis": Inducing(np.zeros(4))}, r"inducing_inputs must have shape \(m, 2\).*received shape \(4,\)"),
        ({"basis": Inducing(np.zeros((0, 2)))}, r"inducing_inputs must have shape .*received shape \(0, 2\)"),
        ({"basis": Inducing([["a", "b"]])}, "inducing_inputs must be an array of numbers"),
        ({"basis": Inducing([[0.0, np.nan]])}, "inducing_inputs hold NaN or infinity, first at row 0"),
        ({"basis": Inducing(np.zeros((4, 2))), "num_basis": 4}, r"num_basis=4 and Inducing\(inputs=...\) were both"),
        ({"basis": "wavelets"}, "basis must be one of .*received 'wavelets'"),
        ({"solver": "block"}, "solver='block' is not available with basis='inducing'. Set solver='auto'"),
        ({"likelihood": "laplace"}, "likelihood='laplace' is not available with basis='inducing'"),
        ({"hyperparameters": "learn"}, "hyperparameters='learn' is not available with basis='inducing'"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_by_name(data, params, message):
    with pytest.raises(ValueError, match=message):
        QSGPRegressor(**({"kernel": "rbf", "basis": "inducing"} | params)).fit(*data)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"variance": "exact"}, "variance must be one of .*received 'exact'"),
        ({"neighbors": 0}, "neighbors must be a positive integer; received 0"),
        ({"basis_batch": 0}, "basis_batch must be a positive integer, or None"),
    ],
)
def test_options_that_cannot_be_are_refused_when_they_are_made(params, message):
    with pytest.raises(ValueError, match=message):
        Inducing(**params)


def test_a_kernel_without_a_density_of_frequencies_will_do():
    """Any kernel whose variance is the same everywhere: a wave goes on beyond the rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 6.0, (200, 1))
    y = np.sin(np.pi * X[:, 0]) + 0.1 * rng.normal(size=200)
    model = QSGPRegressor(
        Periodic(2.0), basis=Inducing(max_steps=200), hyperparameters=Fixed(noise_std=0.1)
    ).fit(X, y)
    new = np.linspace(6.0, 10.0, 30)[:, None]
    assert np.sqrt(np.mean((model.predict(new) - np.sin(np.pi * new[:, 0])) ** 2)) < 0.05
