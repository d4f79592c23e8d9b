"""`DirectClassifier`: the promises of every classifier, both bounds, more than two classes."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import vastgp
from estimators.classifier_conformance import AVERAGED, ClassifierConformance, small_classes
from estimators.sklearn_checks import checks_of_a_method
from vastgp import RBF, DirectClassifier
from vastgp.likelihoods import OneVsRest
from vastgp.methods.direct import logistic_training
from vastgp.options import Fixed, MeanField, Mixture, Subset, Support

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

QUICK = {"kernel": "rbf", "num_basis": 60, "tol": 1e-3}


@checks_of_a_method(
    [
        DirectClassifier(
            "rbf", num_basis=16, hyperparameters=Subset(rows=40), dtype="float64", tol=1e-2
        )
    ],
    expected_failed_checks=lambda _: AVERAGED,
)
def test_scikit_learn_check(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


class TestDirectClassifier(ClassifierConformance):
    resumed_with = (
        {},
        {"family": MeanField(logistic_bound="exponential", max_iter=5), "num_basis": 20},
    )

    def make(self, **params):
        return DirectClassifier(**(QUICK | params))


def test_eigenfunctions_of_a_grid_separate_classes():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (400, 2))
    y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    given = {"hyperparameters": Fixed(), "basis": "grief"}
    model = DirectClassifier(RBF([1.0, 1.0], 4.0), 50, **given).fit(X[:300], y[:300])
    assert model.num_basis_ == 50
    assert model.score(X[300:], y[300:]) > 0.9


def test_passes_over_the_rows_never_lower_the_bound():
    model = DirectClassifier(**(QUICK | {"tol": 1e-5})).fit(*small_classes())
    bounds = np.asarray(model.history_.objective)
    assert len(bounds) > 3
    assert np.all(np.diff(bounds) > -1e-6)


def test_bounds_that_touch_farther_on_come_to_the_same_maximum_in_fewer_passes(monkeypatch):
    """Without noise what is left shrinks slowly: each bound that is best where the last one led is near to that."""
    X, _ = small_classes()
    y = X[:, 0] > 0.1
    given = {"kernel": "rbf", "num_basis": 20, "family": MeanField(max_iter=2000)}
    far = DirectClassifier(**given).fit(X, y)
    monkeypatch.setattr(logistic_training, "_FARTHER", 1.0)
    near = DirectClassifier(**given).fit(X, y)
    assert far.converged_ and near.converged_
    passes = [
        int(np.argmax(np.array(model.history_.objective) > near.elbo_ - 0.01))
        for model in (far, near)
    ]
    assert passes[0] < 0.7 * passes[1]
    assert far.elbo_ == pytest.approx(near.elbo_, abs=0.05)
    assert np.all(np.diff(far.history_.objective) > -1e-6)


def test_both_bounds_classify_and_the_quadratic_one_is_higher():
    """Both are lower bounds of one evidence; labels are wrong here and there."""
    X, y = small_classes()
    quadratic, exponential = (
        DirectClassifier(**QUICK, family=MeanField(logistic_bound=bound)).fit(X, y)
        for bound in ("quadratic", "exponential")
    )
    assert quadratic.elbo_ > exponential.elbo_
    new_X, new_y = small_classes(500, seed=2)
    scores = [
        -model.log_predictive_density(new_X, new_y).mean() for model in (quadratic, exponential)
    ]
    assert scores[0] < 0.5 and scores[0] < scores[1] + 0.02


def large_variance(variance):
    """Fit the exponential bound; return the model, its score, and the bound of weights that are zero."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (200, 2))
    y = np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=200) > 0.0
    family, kernel = MeanField(logistic_bound="exponential"), RBF([1.0, 1.0], variance)
    model = DirectClassifier(kernel, 20, hyperparameters=Fixed(), family=family).fit(X, y)
    # -n E[exp(0)] - KL
    of_zero = -200.0 + 20.0 * float(Support().masses().log_mass.max())
    return model, model.score(X, y), of_zero


@pytest.mark.parametrize("variance", [50.0, 1e3])
def test_the_exponential_bound_begins_where_it_is_finite(variance):
    """A start as wide as the prior was at -1e22, and ended at -4e5 and called that converged."""
    model, score, of_zero = large_variance(variance)
    assert model.elbo_ > of_zero + 50.0 and score > 0.75 and model.converged_


@pytest.mark.parametrize("variance", [1e5, 1e6])
def test_what_is_no_better_than_weights_that_are_zero_has_not_converged(variance):
    """One step of a weight moves the function by forty and more: no weight can be anything but zero."""
    message = "is no higher than that of weights that are all zero"
    with pytest.warns(ConvergenceWarning, match=message):
        model, _, of_zero = large_variance(variance)
    assert not model.converged_ and model.elbo_ == pytest.approx(of_zero)


def three(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.array(["a", "b", "c"])[
        (np.arctan2(X[:, 1], X[:, 0]) // (2 * np.pi / 3)).astype(int) + 1
    ]


def test_several_classes(tmp_path):
    X, y = three()
    # that the kernel is found on all rows is no part of what is tested
    model = DirectClassifier(**QUICK, hyperparameters=Subset(rows=60)).fit(X, y)
    assert isinstance(model.likelihood_, OneVsRest)
    new_X, new_y = three(300, seed=1)
    assert model.score(new_X, new_y) > 0.8
    probabilities = model.predict_proba(new_X)
    assert probabilities.shape == (300, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-9)
    column = np.searchsorted(model.classes_, new_y)
    np.testing.assert_allclose(
        model.log_predictive_density(new_X, new_y),
        np.log(probabilities[np.arange(300), column]),
        atol=1e-6,
    )
    model.save(tmp_path / "three.vastgp")
    loaded = vastgp.load(tmp_path / "three.vastgp")
    np.testing.assert_array_equal(loaded.predict_proba(new_X), probabilities)
    integers = model.to_integer(32)
    mean, _ = integers.predict_integers(integers.quantise(new_X))
    agreed = np.mean(model.classes_[np.argmax(mean, axis=1)] == model.predict(new_X))
    assert agreed > 0.95


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"family": Mixture(logistic_bound="exponential")},
            "logistic_bound='exponential' is for family=MeanField",
        ),
        ({"family": MeanField(learn_noise=True)}, "classes have no noise"),
        ({"hyperparameters": Fixed(noise_std=1.0), "kernel": RBF()}, "has no use for noise_std"),
        ({"support": 1}, "a weight needs at least two values"),
        ({"num_basis": 3}, "num_basis must be even"),
        (
            {"family": MeanField(logistic_bound="exponential"), "num_basis": 600_000},
            r"120 rows x 600000 weights x 15 values = 1.1e\+09 exponentials",
        ),
    ],
)
def test_bad_arguments_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        DirectClassifier(**(QUICK | params)).fit(*small_classes())
