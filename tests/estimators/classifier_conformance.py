"""What every classifier promises beyond `EstimatorConformance`."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import vastgp
from estimators.conformance import NAMES, EstimatorConformance, small_inputs

# The order of averaged probabilities is not that of the functions' means where the variances differ.
AVERAGED = {"check_decision_proba_consistency": "probabilities average over the function"}


def small_classes(n=120, seed=0):
    """Two classes of unequal size with a curved border, one label in twenty wrong."""
    rng = np.random.default_rng(seed)
    X = small_inputs(n, rng)
    f = np.sin((X[:, 0] - 10.0) / 4.0) + (X[:, 1] + 1000.0) / 200.0 - 0.5
    wrong = rng.uniform(size=n) < 0.05
    return X, np.where((f > 0.0) ^ wrong, "wet", "dry")


class ClassifierConformance(EstimatorConformance):
    """Inherit, and define `make`; ``link`` is the distribution function of the link."""

    # How many independent functions `sample_y` can draw.
    num_independent_samples: int | None = None
    asks = ("decision_function", "predict_proba", "latent")

    def answers(self, model, X):
        return (
            model.decision_function(X),
            model.predict_proba(X),
            model.predict_proba(X, method="median"),
            *model.latent(X),
        )

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls):
        return small_classes()

    # ------------------------------------------------------------ predictions

    def test_attributes_of_a_fit(self, model):
        assert model.classes_.tolist() == ["dry", "wet"]
        assert isinstance(model.likelihood_, vastgp.likelihoods.Bernoulli)
        assert model.n_features_in_ == 2
        assert model.stop_reason_ and model.fit_seconds_ > 0.0

    def test_predictions_find_the_border(self, model):
        X, y = small_classes(1000, seed=2)
        assert model.score(X, y) > 0.85
        assert model.score(X, y) == np.mean(model.predict(X) == y)
        # better than the share of the classes
        assert -model.log_predictive_density(X, y).mean() < 0.5

    def test_probabilities_average_over_the_latent_normal(self, model, new_X):
        mean, std = model.latent(new_X)
        np.testing.assert_allclose(mean, model.decision_function(new_X), atol=1e-4)
        found = model.predict_proba(new_X)
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
        link = model.likelihood_.link
        for m, s, p in zip(mean[:5], std[:5], found[:5, 1], strict=True):
            g = norm.cdf if link == "probit" else (lambda f: 1.0 / (1.0 + np.exp(-f)))
            right = quad(lambda f: g(f) * norm.pdf(f, m, s), m - 10 * s, m + 10 * s)[0]  # noqa: B023
            assert p == pytest.approx(right, abs=1e-5)
            median = model.predict_proba(new_X[:1], method="median")
        assert median[0, 1] == pytest.approx(g(mean[0]), abs=1e-6)

    def test_the_likelier_class_is_predicted(self, model, new_X):
        probable = model.classes_[np.argmax(model.predict_proba(new_X), axis=1)]
        np.testing.assert_array_equal(model.predict(new_X), probable)

    def test_log_predictive_density_is_that_of_the_label(self, model):
        X, y = small_classes(15, seed=3)
        column = (y == "wet").astype(int)
        right = np.log(model.predict_proba(X)[np.arange(15), column])
        np.testing.assert_allclose(model.log_predictive_density(X, y), right, atol=1e-5)

    def test_samples_are_joint_draws_of_the_function(self, model, new_X):
        drawn = model.sample_y(new_X, n_samples=500, random_state=1)
        mean, std = model.latent(new_X)
        count = min(500, self.num_independent_samples or 500)
        assert np.all(np.abs(drawn.mean(axis=1) - mean) < 5.0 * std / count**0.5 + 1e-6)
        assert np.all(np.abs(drawn.std(axis=1) / std - 1.0) < 5.0 / (2.0 * count) ** 0.5)

    # ------------------------------------------------------------ kinds of labels and data

    @pytest.mark.parametrize(
        "labels",
        [(0, 1), (-1, 1), (3, 17), (False, True), ("a", "b"), (1.0, 2.0)],
        ids=str,
    )
    def test_labels_of_any_type(self, model, data, new_X, labels, tmp_path):
        X, y = data
        other = self.make().fit(X, np.where(y == "wet", labels[1], labels[0]))
        assert other.classes_.tolist() == list(labels)
        np.testing.assert_array_equal(other.predict_proba(new_X), model.predict_proba(new_X))
        other.save(tmp_path / "model.vastgp")
        loaded = vastgp.load(tmp_path / "model.vastgp")
        assert loaded.classes_.dtype == other.classes_.dtype
        np.testing.assert_array_equal(loaded.predict(new_X), other.predict(new_X))

    def test_order_of_the_rows_and_of_the_labels(self, data, new_X):
        X, y = data
        swapped = self.make().fit(X, np.where(y == "wet", "a dry", "b wet"))
        model = self.make().fit(X, y)
        np.testing.assert_allclose(
            swapped.decision_function(new_X), -model.decision_function(new_X), atol=0.02
        )

    def test_tables_and_files_give_what_arrays_give(self, model, data, new_X, tmp_path):
        X, y = data
        frame = pd.DataFrame(X, columns=NAMES).assign(state=y)
        expected = model.predict_proba(new_X)
        table = pa.table({"state": y.tolist(), "depth": X[:, 0], "pressure": X[:, 1]})
        pq.write_table(table, tmp_path / "rows.parquet")
        pa_csv.write_csv(table, tmp_path / "rows.csv")
        for source in (
            frame,
            pl.DataFrame(table),
            tmp_path / "rows.parquet",
            str(tmp_path / "rows.csv"),
        ):
            named = self.make().fit(source, "state")
            assert list(named.feature_names_in_) == NAMES
            assert named.target_name_ == "state"
            found = named.predict_proba(pd.DataFrame(new_X, columns=NAMES))
            np.testing.assert_allclose(found, expected, atol=1e-6)
            assert named.score(source, "state") == model.score(X, y)
        np.savez(tmp_path / "rows.npz", X=X, y=y)
        from_file = self.make().fit(tmp_path / "rows.npz")
        np.testing.assert_array_equal(from_file.predict_proba(new_X), expected)

    # ------------------------------------------------------------ scikit-learn's tools

    def test_pipelines_and_cross_validation(self):
        X, y = small_classes(240)  # halves of as many rows as `data`: the same programs
        pipeline = make_pipeline(StandardScaler(), self.make())
        assert np.all(cross_val_score(pipeline, X, y, cv=2) > 0.7)

    # ------------------------------------------------------------ mistakes

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda X, y: (X, np.full(len(y), "wet")), "y holds one class only"),
            (lambda X, y: (X, X[:, 0]), "Unknown label type"),
            (lambda X, y: (X, np.where(y == y[0], np.nan, 1.0)), "y contains NaN"),
            (lambda X, y: (X, [None, *y[1:]]), "missing label in row 0"),
            (lambda X, y: (X, [3, *y[1:]]), "labels of several types"),
            (lambda X, y: (np.where(X[3, 1] == X, np.nan, X), y), "Input X contains NaN: at row 3"),
            (lambda X, y: (X, y[:-1]), "X has 120, y has 119"),
            (lambda X, y: (X, None), "requires y to be passed"),
            (lambda X, y: (X.astype(str), y), "X holds strings"),
        ],
    )
    def test_bad_data_are_named(self, data, change, message):
        with pytest.raises(ValueError, match=message):
            self.make().fit(*change(*data))

    def test_an_unseen_label_is_named(self, model, data):
        X, y = data
        y = y.copy()
        y[4] = "ice"
        for ask in (model.score, model.log_predictive_density):
            with pytest.raises(ValueError, match="label 'ice', which was not among the classes"):
                ask(X, y)

    def test_method_is_one_of_two(self, model, new_X):
        with pytest.raises(ValueError, match="method must be 'mean' or 'median'"):
            model.predict_proba(new_X, method="mode")

    def test_a_budget_that_is_gone_still_gives_a_model(self, data, new_X):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = self.make(max_seconds=1e-6).fit(*data)
        assert np.all(np.isfinite(model.predict_proba(new_X)))
