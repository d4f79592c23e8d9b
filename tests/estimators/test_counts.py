"""Counts whose rates vary by more than the function, by every way of fitting that has them."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy.stats import nbinom, norm, poisson

import vastgp
from vastgp import QSGPRegressor, ReweightedBasisRegressor, SWSGPRegressor, TSVGPRegressor
from vastgp.likelihoods import NegativeBinomial, PoissonLogNormal
from vastgp.options import MALA, Block, OrthogonalWeights

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SPREAD = 0.3


def counts(n, seed, level=30.0):
    """Counts around a smooth rate, each with a factor of its own; and the logarithm of the smooth rate."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 10.0, (n, 1))
    log_rate = np.log(level) + 1.2 * np.sin(X[:, 0])
    return X, rng.poisson(np.exp(log_rate + SPREAD * rng.normal(size=n))).astype(float), log_rate


def best(y, log_rate):
    """The negative log predictive density of who knows the law."""
    eps = np.linspace(-8.0, 8.0, 801)
    each = poisson.pmf(y[:, None], np.exp(log_rate[:, None] + SPREAD * eps))
    return -np.log(each @ norm.pdf(eps) * (eps[1] - eps[0])).mean()


NAME = {"likelihood": "poisson-log-normal"}
CHAINS = {"inference": "mala", "basis": "interpolation", "prior": "orthogonal"}
MODELS = {
    "block": lambda: QSGPRegressor("rbf", 400, solver=Block(64), **NAME),
    "sites": lambda: TSVGPRegressor("rbf", 25, **NAME),
    "sparse": lambda: SWSGPRegressor("rbf", 40, 10, **NAME),
    "chains": lambda: ReweightedBasisRegressor(
        "rbf", 30, **NAME, **CHAINS | {"inference": MALA(num_steps=5000)}
    ),
}


@functools.cache
def fitted_by(name):
    X, y, _ = counts(400, 0)
    return MODELS[name]().fit(X, y)


@pytest.fixture(params=list(MODELS))
def fitted(request):
    return fitted_by(request.param)


def test_scatter_is_told_from_the_function(fitted):
    X, y, log_rate = counts(2000, 1)
    likelihood = fitted.likelihood_
    assert isinstance(likelihood, PoissonLogNormal)
    assert float(likelihood.variance) == pytest.approx(SPREAD**2, rel=0.3)
    mean, std = fitted.predict(X, return_std=True)
    expected = np.exp(log_rate + 0.5 * SPREAD**2)
    assert np.sqrt(np.mean((mean / expected - 1.0) ** 2)) < 0.12
    assert np.mean((y - mean) ** 2 / std**2) == pytest.approx(1.0, abs=0.15)
    assert -fitted.log_predictive_density(X, y).mean() < best(y, log_rate) + 0.03
    # intervals of counts are counts, and hold what they should
    low, median, high = fitted.predict_quantiles(X).T
    for quantile in (low, median, high):
        assert np.all(quantile == np.floor(quantile)) and np.all(quantile >= 0.0)
    assert np.mean((low <= y) & (y <= high)) == pytest.approx(0.955, abs=0.025)
    scores = fitted.distribution(X).normal_scores(y)
    assert abs(scores.mean()) < 0.12 and scores.std() == pytest.approx(1.0, abs=0.08)
    # of the function alone
    latent, latent_std = fitted.predict(X, return_std="latent")
    np.testing.assert_array_equal(latent, mean)
    assert np.all(latent_std < 0.3)
    if not isinstance(
        fitted, SWSGPRegressor
    ):  # its inducing values are independent, and too sure together
        assert np.mean(latent_std) > 0.01


def test_models_of_counts_come_back_from_a_file(fitted, tmp_path):
    X, y, _ = counts(50, 2)
    fitted.save(tmp_path / "model.vastgp")
    again = vastgp.load(tmp_path / "model.vastgp")
    assert repr(again.likelihood_) == repr(fitted.likelihood_)
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(
        again.log_predictive_density(X, y), fitted.log_predictive_density(X, y)
    )
    np.testing.assert_array_equal(
        again.sample_y(X[:5], 4, random_state=1), fitted.sample_y(X[:5], 4, random_state=1)
    )


@pytest.mark.parametrize("name", ["block", "sites", "sparse"])
def test_gamma_rates_are_told_from_the_function(name):
    """Negative binomial counts: the size, the mean, and the density are those of who knows the law."""
    rng = np.random.default_rng(3)
    size, X = 3.0, rng.uniform(0.0, 10.0, (2400, 1))
    mean = np.exp(2.0 + np.sin(X[:, 0]))
    y = rng.negative_binomial(size, size / (size + mean)).astype(float)
    model = MODELS[name]().set_params(likelihood="negative-binomial").fit(X[:400], y[:400])
    new, seen, truth = X[400:], y[400:], mean[400:]
    assert isinstance(model.likelihood_, NegativeBinomial)
    assert float(model.likelihood_.size) == pytest.approx(size, rel=0.3)
    found, std = model.predict(new, return_std=True)
    assert np.sqrt(np.mean((found / truth - 1.0) ** 2)) < 0.15
    assert np.mean((seen - found) ** 2 / std**2) == pytest.approx(1.0, abs=0.2)
    law = nbinom(size, size / (size + truth))
    assert -model.log_predictive_density(new, seen).mean() < -law.logpmf(seen).mean() + 0.03
    low, high = model.predict_quantiles(new)[:, [0, 2]].T
    assert np.mean((low <= seen) & (seen <= high)) == pytest.approx(0.955, abs=0.025)


def test_a_poisson_law_takes_scatter_for_a_function():
    X, y, _ = counts(400, 0)
    new, seen, _ = counts(1000, 1)
    without = TSVGPRegressor("rbf", 25, likelihood="poisson").fit(X, y)
    with_scatter, without = (
        model.log_predictive_density(new, seen).mean() for model in (fitted_by("sites"), without)
    )
    assert with_scatter > without + 0.5


def test_draws_of_the_spread_are_around_it():
    model = fitted_by("chains")
    draws = np.exp(model._model.draws["theta"][..., 0])
    assert abs(draws.mean() - SPREAD**2) < 4.0 * draws.std()
    assert draws.std() < 0.02 and model.weights_.shape == (30,)
    assert "noise_variance" in model.posterior_.posterior


def test_what_chains_cannot_do_is_named():
    X, y, _ = counts(60, 0)
    with pytest.raises(
        ValueError, match=r"likelihood='poisson-log-normal' and inference='type-ii'"
    ):
        ReweightedBasisRegressor("rbf", 10, **NAME).fit(X, y)
    with pytest.raises(ValueError, match=r"likelihood must be one of .*received 'poisson'"):
        ReweightedBasisRegressor("rbf", 10, likelihood="poisson").fit(X, y)
    prior = OrthogonalWeights(mean=np.zeros(10))
    with pytest.raises(ValueError, match=r"OrthogonalWeights\(mean=.* has no effect here"):
        ReweightedBasisRegressor("rbf", 10, **NAME, **CHAINS | {"prior": prior}).fit(X, y)
    with pytest.raises(ValueError, match=r"counts 0, 1, 2, .*the first -1.0"):
        ReweightedBasisRegressor("rbf", 10, **NAME, **CHAINS).fit(X, np.where(y == y[0], -1.0, y))
    short = CHAINS | {"inference": MALA(2, 50, 50)}
    model = ReweightedBasisRegressor("rbf", 10, **NAME, **short).fit(X, y)
    for add in (lambda: model.partial_fit(X, y), lambda: model.update(model.statistics_)):
        with pytest.raises(ValueError, match="sums over the rows do not tell of counts"):
            add()
