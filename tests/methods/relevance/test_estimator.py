"""`RelevanceVectorRegressor`: sparse models, the promises of every regressor."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import vastgp
from estimators.regressor_conformance import RegressorConformance
from estimators.sklearn_checks import checks_of_a_method
from hard_tables import random_table
from longer_fits import LONGER, moved
from vastgp import RBF, ExactGPRegressor, RelevanceVectorRegressor
from vastgp.fitting.run import Run
from vastgp.options import Fixed, Pruning, Subset


@checks_of_a_method([RelevanceVectorRegressor("rbf")])
def test_scikit_learn_check(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


class TestRelevanceVector(RegressorConformance):
    units_tolerance = 1e-4
    resumed_with = ({}, {"solver": Pruning(basis_batch=20, row_batch=30)})

    def make(self, **params):
        return RelevanceVectorRegressor(**({"kernel": "rbf"} | params))

    def test_pipelines_cross_validation_and_grid_search(self, data):
        """As for all, but for the choice: rough or smooth is open on 30 rows where the amplitudes are free."""
        X, y = data
        scores = cross_val_score(make_pipeline(StandardScaler(), self.make()), X, y, cv=2)
        assert np.all(scores > 0.6)
        grid = {"kernel": ["constant", "rbf"], "hyperparameters__rows": [20, 100]}
        search = GridSearchCV(self.make(hyperparameters=Subset()), grid, cv=2).fit(X, y)
        assert search.best_params_["kernel"] == "rbf"


@pytest.fixture(scope="module")
def sinc():
    rng = np.random.default_rng(0)
    X = rng.uniform(-10, 10, (500, 1))
    return X, np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=500)


GRID = np.linspace(-10, 10, 400)[:, None]


def error(model):
    return np.mean((model.predict(GRID) - np.sinc(GRID[:, 0] / np.pi)) ** 2) ** 0.5


@pytest.fixture(scope="module")
def whole(sinc):
    return RelevanceVectorRegressor("rbf").fit(*sinc)


def test_few_vectors_tell_a_noisy_sinc(sinc, whole):
    """n = m = 500; the paper finds 13."""
    assert whole.converged_
    assert len(whole.relevance_vectors_) <= 15
    assert error(whole) < 1.25 * error(ExactGPRegressor("rbf").fit(*sinc))
    assert abs(whole.likelihood_.noise_std - 0.1) < 0.01
    assert np.all(whole.relevance_ <= 1e4)
    gaps = np.abs(whole.relevance_vectors_ - sinc[0].T).min(axis=1)
    assert gaps.max() < 1e-9  # they are training inputs, in their units


def test_a_chevron_of_ten_columns_is_as_sparse_and_has_a_lower_bound(sinc, whole):
    model = RelevanceVectorRegressor("rbf", solver=Pruning(dense_columns=10)).fit(*sinc)
    assert len(model.relevance_) <= 15
    assert model.history_.last("objective") <= whole.history_.last("objective")
    assert error(model) < 0.03


def test_candidates_in_sets_of_sampled_rows_find_a_model_as_good(sinc):
    model = RelevanceVectorRegressor("rbf", solver=Pruning(basis_batch=100, row_batch=250)).fit(
        *sinc
    )
    assert model.converged_
    assert len(model.relevance_) <= 20
    assert error(model) < 0.03


def test_candidates_of_ones_own(sinc, tmp_path):
    Z = np.linspace(-9, 9, 30)[:, None]
    model = RelevanceVectorRegressor("rbf", inducing_inputs=Z).fit(*sinc)
    assert model.num_basis_ == 30 and len(model.relevance_vectors_) < 30
    assert np.abs(model.relevance_vectors_ - Z.T).min(axis=1).max() < 1e-9
    assert error(model) < 0.04
    model.save(tmp_path / "model.vastgp")
    loaded = vastgp.load(tmp_path / "model.vastgp")
    np.testing.assert_array_equal(loaded.relevance_, model.relevance_)
    np.testing.assert_array_equal(loaded.relevance_vectors_, model.relevance_vectors_)
    # compact: the file does not hold the training rows
    assert (tmp_path / "model.vastgp").stat().st_size < 60_000


def test_a_smaller_limit_leaves_fewer_vectors(sinc, whole):
    model = RelevanceVectorRegressor("rbf", solver=Pruning(max_precision=1.0)).fit(*sinc)
    assert np.all(model.relevance_ <= 1.0) and len(model.relevance_) < len(whole.relevance_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_iterations_end_when_time_is_up(sinc, monkeypatch):
    whole = RelevanceVectorRegressor(solver=Pruning(max_steps=24)).fit(*sinc)
    assert whole.history_.steps == [10, 20, 24]
    monkeypatch.setattr(Run, "out_of_time", property(lambda run: run.max_seconds is not None))
    cut = RelevanceVectorRegressor(solver=Pruning(max_steps=3), max_seconds=1000.0).fit(*sinc)
    assert cut.history_.steps == [1, 2, 3] and cut.n_iter_ == 3


def test_noise_alone_leaves_nothing_or_little():
    rng = np.random.default_rng(1)
    model = RelevanceVectorRegressor(RBF(0.3)).fit(rng.normal(size=(200, 1)), rng.normal(size=200))
    assert len(model.relevance_) <= 10
    assert model.predict(np.zeros((3, 1)), return_std=True)[1].shape == (3,)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"inducing_inputs": np.zeros((4, 3))}, r"inducing_inputs must have shape \(m, 1\).*\(4, 3\)"),
        ({"inducing_inputs": np.zeros((4, 1)), "num_basis": 3}, "num_basis=3 and inducing_inputs were both given"),
        ({"solver": "pruned"}, r"solver must be one of \('pruning',\) or Pruning\(...\)"),
        ({"hyperparameters": Fixed()}, r"hyperparameters must be one of \('subset',\)"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(sinc, params, message):
    with pytest.raises(ValueError, match=message):
        RelevanceVectorRegressor(**params).fit(*sinc)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"dense_columns": -1}, "dense_columns must be an integer of at least 0, or None"),
        ({"dense_columns": 1.5}, "dense_columns must be an integer of at least 0, or None"),
        ({"max_precision": 0}, "max_precision must be a positive number"),
        ({"basis_batch": 0}, "basis_batch must be a positive integer"),
    ],
)
def test_bad_options_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        Pruning(**params)
    # where the estimator had the argument before
    with pytest.raises(TypeError, match=r"write solver=Pruning\("):
        RelevanceVectorRegressor(**params)


@pytest.mark.parametrize("seed", [5, 9])
def test_converged_means_that_no_more_than_tol_is_left_to_gain(seed):
    """Beside a saddle ten iterations gained 0.007 nats, and those after them 0.06: predictions moved by 12 ``tol``."""
    X, y, new, _ = replace(random_table(seed), rows=40 + 10 * seed).draw(0)
    case = LONGER["RelevanceVectorRegressor"]
    short, long = case.fits(X, y)
    assert short.converged_
    assert moved(short, long, new[:200]) < case.allowed(len(y))
