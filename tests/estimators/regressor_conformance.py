"""What every regressor promises beyond `EstimatorConformance`."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from estimators.conformance import NAMES, EstimatorConformance, small_inputs
from vastgp.kernels import RBF, Kernel

# noise of variance ``sigma^2 / w`` gives the posterior of repeated rows, but they choose other hyperparameters:
# repetitions say that there is no noise, and as many rows as they are weigh more than the prior
OTHER_EVIDENCE = {
    "check_sample_weight_equivalence_on_dense_data": "the evidence of weighted rows is not that of repeated ones",
}


def small_data(n=60, seed=0):
    """A smooth function of two inputs in units far from standard, with noise of standard deviation 3."""
    rng = np.random.default_rng(seed)
    X = small_inputs(n, rng)
    y = 70.0 + 30.0 * np.sin((X[:, 0] - 10.0) / 4.0) + 0.05 * (X[:, 1] + 1000.0)
    return X, y + 3.0 * rng.normal(size=n)


class RegressorConformance(EstimatorConformance):
    """Inherit, and define `make`."""

    # How many independent functions `sample_y` can draw; None for as many as asked for.
    num_independent_samples: int | None = None
    # How far predictions may move when units change: rounding of the arithmetic of the method.
    units_tolerance = 1e-6

    def answers(self, model, X):
        return (*model.predict(X, return_std=True), model.predict(X, return_std="latent")[1])

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls):
        return small_data()

    def test_attributes_of_a_fit(self, model):
        assert isinstance(model.kernel_, Kernel)
        assert model.n_features_in_ == 2
        assert not hasattr(model, "feature_names_in_")
        assert model.target_name_ is None
        assert isinstance(model.converged_, bool)
        assert isinstance(model.n_iter_, int) and model.n_iter_ >= 1
        assert isinstance(model.stop_reason_, str) and model.stop_reason_
        assert model.fit_seconds_ > 0.0
        assert 0.5 < model.likelihood_.noise_std < 10.0  # the truth is 3

    def test_lengthscales_are_in_the_units_of_the_inputs(self, data, new_X):
        X, y = data
        model = self.make().fit(X, y)
        other = self.make().fit(X * [1e3, 0.25], y * 16.0 - 5.0)
        for mine, theirs in zip(_parts(model.kernel_), _parts(other.kernel_), strict=True):
            np.testing.assert_allclose(
                np.asarray(theirs.lengthscales) / np.asarray(mine.lengthscales),
                [1e3, 0.25],
                rtol=1e3 * self.units_tolerance,
            )
        ratio = float(other.kernel_.total_variance()) / float(model.kernel_.total_variance())
        assert ratio == pytest.approx(256.0, rel=1e3 * self.units_tolerance)
        ratio = float(other.likelihood_.noise_std) / float(model.likelihood_.noise_std)
        assert ratio == pytest.approx(16.0, rel=1e3 * self.units_tolerance)
        for mine, theirs, shift in zip(
            model.predict(new_X, return_std=True),
            other.predict(new_X * [1e3, 0.25], return_std=True),
            (5.0, 0.0),
            strict=True,
        ):
            np.testing.assert_allclose(
                (theirs + shift) / 16.0, mine, atol=30.0 * 1e2 * self.units_tolerance
            )

    def test_a_budget_that_is_gone_still_gives_a_model(self, data, new_X):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = self.make(max_seconds=1e-6).fit(*data)
        assert not model.converged_
        assert "max_seconds" in model.stop_reason_
        mean, std = model.predict(new_X, return_std=True)
        assert np.all(np.isfinite(mean)) and np.all(std > 0.0)

    def test_predictions_explain_what_can_be_explained(self, model):
        X, y = small_data(n=400, seed=2)
        assert model.score(X, y) > 0.85

    def test_observations_vary_by_the_function_and_the_noise(self, model, new_X):
        mean, observed = model.predict(new_X, return_std=True)
        same_mean, latent = model.predict(new_X, return_std="latent")
        np.testing.assert_array_equal(mean, same_mean)
        np.testing.assert_allclose(mean, model.predict(new_X), rtol=1e-6)
        noise = float(model.likelihood_.noise_std)
        np.testing.assert_allclose(observed**2, latent**2 + noise**2, rtol=1e-6)
        assert mean.dtype == observed.dtype == np.float64

    def test_log_predictive_density_is_that_of_the_predicted_normal(self, model):
        X, y = small_data(n=15, seed=3)
        mean, std = model.predict(X, return_std=True)
        found = model.log_predictive_density(X, y)
        np.testing.assert_allclose(found, norm.logpdf(y, mean, std), rtol=1e-6, atol=1e-6)
        quantiles = model.predict_quantiles(X, [0.025, 0.9]).T
        wanted = norm.ppf([[0.025], [0.9]], mean, std)
        np.testing.assert_allclose(quantiles, wanted, rtol=1e-5, atol=1e-5)
        for wrong in (95, "abc", [[0.1], [0.2, 0.3]], {"low": 0.1}):
            said = f"probabilities must be numbers above 0 .* received {re.escape(repr(wrong))}"
            with pytest.raises(ValueError, match=said):
                model.predict_quantiles(X, wrong)

    def test_samples_are_joint_draws_of_the_function(self, model, new_X):
        drawn = model.sample_y(new_X, n_samples=2000, random_state=1)
        assert drawn.shape == (len(new_X), 2000)
        mean, std = model.predict(new_X, return_std="latent")
        count = min(2000, self.num_independent_samples or 2000)
        assert np.all(np.abs(drawn.mean(axis=1) - mean) < 5.0 * std / count**0.5 + 1e-6)
        assert np.all(np.abs(drawn.std(axis=1) / std - 1.0) < 5.0 / (2.0 * count) ** 0.5)
        # close inputs have close values in one draw, though draws differ
        close = model.sample_y(np.stack([new_X[0], new_X[0] + 1e-3]), n_samples=50)
        assert np.std(close[0] - close[1]) < 0.05 * np.std(close[0])

    def test_tables_and_files_give_what_arrays_give(self, model, data, new_X, tmp_path):
        X, y = data
        frame = pd.DataFrame(X, columns=NAMES).assign(temperature=y)
        named = self.make().fit(frame, "temperature")
        expected = model.predict(new_X)
        np.testing.assert_array_equal(named.predict(pd.DataFrame(new_X, columns=NAMES)), expected)
        np.testing.assert_array_equal(named.predict(pl.DataFrame(new_X, schema=NAMES)), expected)
        assert list(named.feature_names_in_) == NAMES
        assert named.target_name_ == "temperature"

        table = pa.table({"pressure": new_X[:, 1], "extra": new_X[:, 0], "depth": new_X[:, 0]})
        pq.write_table(table, tmp_path / "new.parquet")
        np.testing.assert_array_equal(named.predict(tmp_path / "new.parquet"), expected)
        np.save(tmp_path / "new.npy", new_X)
        np.testing.assert_array_equal(model.predict(str(tmp_path / "new.npy")), expected)
        np.savez(tmp_path / "train.npz", X=X, y=y)
        from_file = self.make().fit(tmp_path / "train.npz")
        np.testing.assert_array_equal(from_file.predict(new_X), expected)

    def test_pipelines_cross_validation_and_grid_search(self):
        X, y = small_data(n=120)  # halves of as many rows as `data`: the same programs
        pipeline = make_pipeline(StandardScaler(), self.make())
        scores = cross_val_score(pipeline, X, y, cv=2)
        assert np.all(scores > 0.6)
        kernels = {"kernel": ["matern12", RBF()]}
        search = GridSearchCV(self.make(), kernels, cv=2, refit=False).fit(X, y)
        assert repr(search.best_params_["kernel"]) == repr(RBF())

    @pytest.mark.parametrize("bad", ["function", None, 2, "Latent"])
    def test_return_std_is_one_of_three(self, model, data, bad):
        with pytest.raises(ValueError, match=r"return_std must be False, True .* or 'latent'"):
            model.predict(data[0], return_std=bad)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda X, y: (np.where(X[3, 1] == X, np.nan, X), y), "Input X contains NaN: at row 3"),
            (lambda X, y: (X, np.where(y == y[2], np.inf, y)), "Input y contains infinity"),
            (lambda X, y: (X, y[:-1]), "X has {rows}, y has {fewer}"),
            (lambda X, y: (X[:, 0], y), "Expected 2D array for X"),
            (lambda X, y: (X[:1], y[:1]), "Nothing can be learned from one row"),
            (lambda X, y: (X[:0], y[:0]), "0 sample"),
            (lambda X, y: (X, None), "requires y to be passed"),
            (lambda X, y: (X.astype(str), y), "X holds strings"),
            (lambda X, y: (X, np.stack([y, y], axis=1)), "y should be a 1d array"),
            (lambda X, y: (X + 0j, y), "Complex data not supported"),
        ],
    )
    def test_bad_data_are_named(self, data, change, message):
        rows = len(data[1])
        with pytest.raises(ValueError, match=message.format(rows=rows, fewer=rows - 1)):
            self.make().fit(*change(*data))

    def test_a_constant_target_is_predicted_with_a_warning(self, data):
        X, _ = data
        with pytest.warns(UserWarning, match="y is constant: every value is 4"):
            model = self.make().fit(X, np.full(len(X), 4.0))
        np.testing.assert_allclose(model.predict(X), 4.0, atol=1e-6)

    def test_a_constant_column_does_no_harm(self, model, data, new_X):
        X, y = data
        wider = self.make().fit(np.column_stack([X, np.full(len(X), 7.0)]), y)
        mean = wider.predict(np.column_stack([new_X, np.full(len(new_X), 7.0)]))
        assert np.max(np.abs(mean - model.predict(new_X))) < 3.0  # one standard deviation of noise


def _parts(kernel):
    return getattr(kernel, "parts", (kernel,))
