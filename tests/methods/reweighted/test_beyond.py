"""Deviations beyond the data where functions of a basis vanish: those of the kernel."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import norm

import vastgp
from vastgp import (
    RBF,
    ExactGPRegressor,
    Matern32,
    ReweightedBasisClassifier,
    ReweightedBasisRegressor,
)
from vastgp._precision import precision
from vastgp.kernels.matrices import kernel_matrix
from vastgp.methods.reweighted.beyond import Beyond
from vastgp.options import MALA, NUTS

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (200, 1))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.normal(size=200)
# the walls are at 3
NEW = np.array([0.0, 2.0, 2.3, 2.6, 3.0, 4.0, 6.0, 12.0, -3.0, -4.0])[:, None]


@pytest.mark.parametrize("form", [RBF, Matern32])
def test_the_variance_is_that_of_a_line_of_observations(form):
    """Two inputs, beyond one of them and beyond both: against matrices of points on the line."""
    low, high = np.array([-1.0, 0.0]), np.array([1.0, 6.0])
    kernel = form([0.5, 2.0], 3.0)
    beyond = Beyond(kernel, 0.05, low, high)
    inside = np.array([[0.3, 2.0], [1.0, 6.0], [-1.0, 0.0]])
    np.testing.assert_array_equal(beyond.variances(inside), 0.0)
    for x, end in (([1.4, 3.0], [1.0, 3.0]), ([1.2, 7.0], [1.0, 6.0]), ([0.0, -40.0], [0.0, 0.0])):
        x, end = np.array(x), np.array(end)
        unit = (end - x) / np.linalg.norm((end - x) / [0.5, 2.0])
        # of four and three lengthscales beyond one another, and the shorter where the line is oblique
        room = min(np.divide(high - low, np.abs(unit), out=np.full(2, np.inf), where=unit != 0.0))
        line = end + unit * min(0.5, room / 11.0) * np.arange(12)[:, None]
        assert np.all(line > low - 1e-9) and np.all(line < high + 1e-9)
        with precision("float64"):
            K = np.asarray(kernel_matrix(kernel, line, line)) + 0.05 * np.eye(12)
            k = np.asarray(kernel_matrix(kernel, line, np.stack([end, x])))
        at_end, at_x = 3.0 - np.sum(k * np.linalg.solve(K, k), axis=0)
        assert beyond.variances(x[None])[0] == pytest.approx(at_x - at_end, abs=1e-7)
    # far away it is the kernel's, but for what observations leave at the end
    assert 2.9 < beyond.variances(np.array([[0.0, -40.0]]))[0] < 3.0


@pytest.mark.parametrize("prior", ["kernel", "diagonal", "orthogonal"])
def test_sines_are_as_uncertain_beyond_the_data_as_the_kernel(prior, tmp_path):
    model = ReweightedBasisRegressor("rbf", 60, basis="laplace", prior=prior).fit(X, Y)
    assert model.answer_ == "own"
    # by the exact process of the kernel that the functions have
    kernel = model._model.kernel.in_units(model.standardizer_.x_scale, model.standardizer_.y_scale)
    noise = float(np.sqrt(model._model.noise_variance) * model.standardizer_.y_scale)
    exact = ExactGPRegressor(kernel, hyperparameters=vastgp.options.Fixed(noise_std=noise)).fit(
        X, Y
    )
    mean, std = model.predict(NEW, return_std=True)
    _, right = exact.predict(NEW, return_std=True)
    assert np.all(std > 0.9 * right) and np.all(std < 1.9 * right)
    np.testing.assert_allclose(std[5:8], right[5:8], rtol=0.07)
    # the means are those of the functions, and densities and samples have the deviations
    np.testing.assert_array_equal(model._model.predictor.beyond.variances(X / 2.0), 0.0)
    draws = model.sample_y(NEW, 4000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=4.0 * std.max() / 4000**0.5)
    np.testing.assert_allclose(draws.std(axis=1)[2:], (std**2 - noise**2)[2:] ** 0.5, rtol=0.1)
    close = model.sample_y(np.array([[9.0], [9.01]]), 200, random_state=0)
    assert np.corrcoef(close)[0, 1] > 0.99
    model.save(tmp_path / "model")
    again = vastgp.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(NEW, return_std=True)[1], std)
    few = [each.sample_y(NEW, 3, random_state=0) for each in (model, again)]
    np.testing.assert_array_equal(*few)


@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_mixtures_and_classes_have_it_too():
    chains = NUTS(num_chains=1, num_warmup=30, num_steps=20, num_components=5)
    model = ReweightedBasisRegressor("rbf", 30, basis="laplace", inference=chains).fit(X, Y)
    mixture, scaling = model._model.predictor, model.standardizer_
    new = scaling.transform_X(NEW)
    with precision("float64"):
        mean, variance = mixture.mean_and_latent_variance(new)
        density = mixture.log_density(new, np.zeros(len(new)))
        alone = dataclasses.replace(model._model)
        alone.predictor.beyond = None
        without = alone.predictor.mean_and_latent_variance(new)
        before = alone.predictor.log_density(new, np.zeros(len(new)))
    np.testing.assert_array_equal(mean, without[0])
    np.testing.assert_allclose(variance - without[1], mixture.beyond.variances(new), atol=1e-12)
    np.testing.assert_array_equal(density[0], before[0])
    # far away each component is nearly the one normal
    far = norm.logpdf(0.0, mean[7], (variance[7] + mixture.noise_variances.mean()) ** 0.5)
    assert density[7] == pytest.approx(far, abs=0.1)
    labels = np.where(Y > 0.0, "above", "below")
    short = MALA(num_chains=1, num_warmup=50, num_steps=50)
    classes = ReweightedBasisClassifier("rbf", 30, basis="laplace", inference=short).fit(X, labels)
    predictor = classes._model.predictor
    new = classes.standardizer_.transform_X(NEW)
    with precision("float64"):
        found = predictor.mean_and_latent_variance(new)[1]
        added = predictor.beyond.variances(new)
        predictor.beyond = None
        without = predictor.mean_and_latent_variance(new)[1]
    assert added[0] == 0.0 and np.all(added[2:] > 0.0)
    np.testing.assert_allclose(found - without, added, atol=1e-12)
