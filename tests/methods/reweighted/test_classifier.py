"""`ReweightedBasisClassifier`: promises of every classifier, beside other methods, latent values in the file."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import vastgp
from estimators.classifier_conformance import AVERAGED, ClassifierConformance, small_classes
from estimators.sklearn_checks import checks_of_a_method
from vastgp import ReweightedBasisClassifier, TSVGPClassifier
from vastgp.options import MALA, OrthogonalWeights, Subset

# few functions, a draw in ten kept, many of them averaged over: an answer of a second or two that has mixed
CHAINS = MALA(num_warmup=300, num_steps=2500, thin=10, num_components=200)
QUICK = {"kernel": "rbf", "num_basis": 15, "inference": CHAINS}
# promises that do not depend on it, nor on which rows the first hyperparameters are from
FEW = {"inference": MALA(2, num_warmup=100, num_steps=500, thin=5), "hyperparameters": Subset(40)}


@checks_of_a_method(
    # whole chunks of 25 steps: one program for all; few rows for the start, whose averages over a softmax take longest
    [
        ReweightedBasisClassifier(
            "rbf", 10, inference=MALA(2, 25, 50, 5, num_components=10), hyperparameters=Subset(15)
        )
    ],
    expected_failed_checks=lambda _: AVERAGED,
)
def test_scikit_learn_check(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


@pytest.fixture(scope="module")
def mixed():
    """A model of the rows that every classifier is tested on, whose chains have mixed."""
    return ReweightedBasisClassifier(**QUICK).fit(*small_classes())


class TestReweightedClassifier(ClassifierConformance):
    # chains end after so many steps

    def make(self, **params):
        return ReweightedBasisClassifier(**(QUICK | FEW | params))

    def test_order_of_the_rows_and_of_the_labels(self, data, new_X, mixed):
        # chains see other random numbers then: equal within their error
        X, y = data
        swapped = self.make(inference=CHAINS, hyperparameters="subset").fit(
            X, np.where(y == "wet", "a dry", "b wet")
        )
        error = mixed.predict_proba(new_X)[:, 1] - swapped.predict_proba(new_X)[:, 0]
        assert np.max(np.abs(error)) < 0.05


@pytest.fixture(scope="module")
def variational():
    """The other method, for each prior to be compared with."""
    search = TSVGPClassifier("rbf", 25, likelihood="probit", hyperparameters="subset")
    return search.fit(*small_classes(150))


@pytest.mark.parametrize("prior", ["orthogonal", "spectral", "diagonal", "kernel"])
def test_probabilities_are_near_those_of_the_variational_approximation(prior, variational):
    X, y = small_classes(150)
    params = QUICK | {"inference": replace(CHAINS, num_steps=1000, thin=5, num_components=50)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ReweightedBasisClassifier(**params, prior=prior).fit(X, y)
    new_X, new_y = small_classes(400, seed=5)
    difference = model.predict_proba(new_X) - variational.predict_proba(new_X)
    assert np.mean(np.abs(difference)) < 0.07
    ours, theirs = (
        -each.log_predictive_density(new_X, new_y).mean() for each in (model, variational)
    )
    assert ours < theirs + 0.05


def test_draws_come_back_from_a_file_with_their_latent_values(tmp_path):
    X, y = small_classes(80)
    model = ReweightedBasisClassifier(**(QUICK | FEW), basis="laplace").fit(X, y)
    assert model._model.coordinates.shape == (50, 1, model._model.data.rank)
    assert np.all(model._model.draws["theta"][..., 0] == 0.0)
    model.save(tmp_path / "model.vastgp")
    again = vastgp.load(tmp_path / "model.vastgp")
    np.testing.assert_array_equal(
        again.sample_y(X, 20, random_state=3), model.sample_y(X, 20, random_state=3)
    )
    assert again.r_hat_ == model.r_hat_ and again.ess_ == model.ess_


@pytest.fixture(scope="module")
def of_three():
    """A model of three classes, and rows it has not seen."""
    X, y = _three_classes(200, seed=1)
    # more components than by default, as chains are short
    chains = MALA(2, num_warmup=200, num_steps=1000, thin=5, num_components=100)
    model = ReweightedBasisClassifier(**(QUICK | {"num_basis": 25, "inference": chains})).fit(X, y)
    return model, *_three_classes(400, seed=6)


def _three_classes(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(n, 2))
    f = np.stack([np.sin(X[:, 0]), np.cos(X[:, 0] + X[:, 1]), 0.4 * X[:, 1]])
    labels = np.argmax(2.5 * f + rng.normal(size=f.shape), axis=0)
    return X, np.array(["sand", "clay", "rock"])[labels]


def test_three_classes_are_near_the_variational_approximation(of_three):
    model, X, y = of_three
    train, labels = _three_classes(200, seed=1)
    other = TSVGPClassifier("rbf", 25, hyperparameters="subset").fit(train, labels)
    assert model.classes_.tolist() == ["clay", "rock", "sand"]
    found = model.predict_proba(X)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)
    assert np.mean(np.abs(found - other.predict_proba(X))) < 0.07
    ours, theirs = (-each.log_predictive_density(X, y).mean() for each in (model, other))
    assert ours < theirs + 0.03 and model.score(X, y) > other.score(X, y) - 0.03
    column = np.searchsorted(model.classes_, y)
    logs = np.log(found[np.arange(len(y)), column])
    np.testing.assert_allclose(model.log_predictive_density(X, y), logs, atol=1e-6)


def test_probabilities_of_three_classes_are_those_of_sampled_functions(of_three):
    model, X, _ = of_three
    few = X[:8]
    f = model.sample_y(few, 20_000, random_state=1)
    assert f.shape == (8, 3, 20_000)
    mean, std = model.latent(few)
    assert np.all(np.abs(f.mean(axis=2) - mean) < 5.0 * std / 20_000**0.5)
    np.testing.assert_allclose(f.std(axis=2), std, rtol=0.05)
    largest = np.argmax(f + np.random.default_rng(0).normal(size=f.shape), axis=1)
    share = np.stack([np.mean(largest == c, axis=1) for c in range(3)], axis=1)
    # the variance given a draw is averaged over the draws
    np.testing.assert_allclose(model.predict_proba(few), share, atol=0.02)


def test_the_likeliest_of_three_classes_is_predicted(of_three):
    model, X, _ = of_three
    line = np.linspace(X.min(axis=0), X.max(axis=0), 250)
    likeliest = np.argmax(model.predict_proba(line), axis=1)
    assert len(set(likeliest)) > 1
    np.testing.assert_array_equal(model.predict(line), model.classes_[likeliest])
    np.testing.assert_array_equal(np.argmax(model.decision_function(line), axis=1), likeliest)


def test_three_classes_come_back_from_a_file(of_three, tmp_path):
    model, X, y = of_three
    X, y = X[:100], y[:100]
    model.save(tmp_path / "model.vastgp")
    again = vastgp.load(tmp_path / "model.vastgp")
    for ask in ("predict_proba", "decision_function", "predict"):
        np.testing.assert_array_equal(getattr(again, ask)(X), getattr(model, ask)(X))
    np.testing.assert_array_equal(
        again.sample_y(X[:5], 3, random_state=2), model.sample_y(X[:5], 3, random_state=2)
    )
    assert (
        again.log_predictive_density(X, y).tolist() == model.log_predictive_density(X, y).tolist()
    )


def test_few_rows_a_step_reach_the_same_posterior(mixed):
    in_turn = replace(CHAINS, num_steps=4000, rows_per_step=20)
    few = ReweightedBasisClassifier(**QUICK | {"inference": in_turn}).fit(*small_classes())
    new_X, _ = small_classes(100, seed=5)
    assert np.mean(np.abs(few.predict_proba(new_X) - mixed.predict_proba(new_X))) < 0.02


def test_bad_requests_are_named(monkeypatch):
    X, y = small_classes(30)
    with pytest.raises(ValueError, match=r"rows_per_step must be .*received 0"):
        MALA(rows_per_step=0)
    with pytest.raises(ValueError, match=r"inference must be one of .*received 'type-ii'"):
        ReweightedBasisClassifier(inference="type-ii").fit(X, y)
    with pytest.raises(ValueError, match=r"OrthogonalWeights\(mean=.*has no effect here"):
        ReweightedBasisClassifier(prior=OrthogonalWeights(np.zeros(500))).fit(X, y)
    with pytest.raises(ValueError, match=r"prior='kernel' and basis='relevance'"):
        ReweightedBasisClassifier(basis="relevance", prior="kernel").fit(X, y)
    monkeypatch.setitem(sys.modules, "blackjax", None)
    with pytest.raises(ImportError, match=r"pip install vastgp\[mcmc\]"):
        ReweightedBasisClassifier().fit(X, y)
