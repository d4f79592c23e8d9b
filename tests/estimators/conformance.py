"""What every regressor promises. A test class of an estimator inherits `RegressorConformance` and says how to make one.

The promises that scikit-learn checks by itself are in test_sklearn_checks.py.
"""

from __future__ import annotations

import pickle
import warnings

import jax
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import vastgp
from vastgp.kernels import RBF, Kernel

NAMES = ["depth", "pressure"]


def small_data(n=60, seed=0):
    """A smooth function of two inputs in units far from standard, with noise of standard deviation 3."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * [4.0, 200.0] + [10.0, -1000.0]
    y = 70.0 + 30.0 * np.sin((X[:, 0] - 10.0) / 4.0) + 0.05 * (X[:, 1] + 1000.0)
    return X, y + 3.0 * rng.normal(size=n)


class RegressorConformance:
    """Inherit, and define `make`. Every test uses small data, so a fit should take well under a second."""

    # How many independent functions `sample_y` can draw; None for as many as asked for.
    num_independent_samples: int | None = None
    # How far predictions may move when units change: rounding of the arithmetic of the method.
    units_tolerance = 1e-6

    def make(self, **params):
        """Return an estimator that fits `small_data` quickly."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls):
        return small_data()

    @pytest.fixture(scope="class")
    @classmethod
    def new_X(cls):
        return small_data(n=25, seed=1)[0]

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, data):
        return cls().make().fit(*data)

    # ------------------------------------------------------------ what a fit leaves

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

    def test_history_is_a_table_over_growing_steps_and_seconds(self, model):
        table = model.history_.to_dict()
        assert {len(column) for column in table.values()} == {len(table["steps"])}
        assert len(table["steps"]) >= 1
        assert np.all(np.diff(table["steps"]) > 0)
        assert np.all(np.diff(table["seconds"]) >= 0)
        assert any(
            np.any(np.isfinite(table[name])) for name in ("objective", "residual") if name in table
        )

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

    def test_the_same_seed_gives_the_same_fit_to_the_last_bit(self, model, data, new_X):
        again = clone(model).fit(*data)
        for mine, theirs in zip(
            model.predict(new_X, return_std=True),
            again.predict(new_X, return_std=True),
            strict=True,
        ):
            np.testing.assert_array_equal(mine, theirs)

    def test_no_setting_of_jax_changes(self, data):
        before = jax.config.jax_enable_x64
        self.make().fit(*data).predict(data[0])
        assert jax.config.jax_enable_x64 == before

    def test_a_budget_that_is_gone_still_gives_a_model(self, data, new_X):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = self.make(max_seconds=1e-6).fit(*data)
        assert not model.converged_
        assert "max_seconds" in model.stop_reason_
        mean, std = model.predict(new_X, return_std=True)
        assert np.all(np.isfinite(mean)) and np.all(std > 0.0)

    # ------------------------------------------------------------ predictions

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

    def test_samples_follow_their_seed(self, model, new_X):
        first = model.sample_y(new_X, 3, random_state=7)
        np.testing.assert_array_equal(first, model.sample_y(new_X, 3, random_state=7))
        assert not np.array_equal(first, model.sample_y(new_X, 3, random_state=8))

    def test_tiles_make_no_difference(self, model, new_X, monkeypatch):
        whole = model.predict(new_X, return_std=True)
        monkeypatch.setattr(type(model), "_tile_rows", lambda self: 7)
        for mine, theirs in zip(whole, model.predict(new_X, return_std=True), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)

    def test_nothing_is_printed(self, data, capfd):
        self.make(verbose=True).fit(*data).predict(data[0])
        assert capfd.readouterr() == ("", "")

    # ------------------------------------------------------------ kinds of data

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

    def test_a_refit_forgets_names(self, data):
        X, y = data
        model = self.make().fit(pd.DataFrame(X, columns=NAMES), y)
        assert hasattr(model, "feature_names_in_")
        assert not hasattr(model.fit(X, y), "feature_names_in_")

    def test_columns_must_be_those_of_the_fit(self, data):
        X, y = data
        model = self.make().fit(pd.DataFrame(X, columns=NAMES), y)
        with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
            model.predict(pd.DataFrame(X[:, ::-1], columns=NAMES[::-1]))
        with pytest.raises(ValueError, match="yet now missing:\n- pressure"):
            model.predict(pd.DataFrame(X[:, :1], columns=NAMES[:1]))
        with pytest.raises(ValueError, match=r"X has 1 features, but .* is expecting 2"):
            self.make().fit(X, y).predict(X[:, :1])

    # ------------------------------------------------------------ scikit-learn's tools

    def test_arguments_are_stored_untouched(self):
        kernel = RBF([1.0, 2.0])
        model = self.make(kernel=kernel, max_seconds=12.5)
        assert model.get_params()["kernel"] is kernel
        assert model.max_seconds == 12.5
        copy = clone(model)
        assert copy.kernel is not kernel and repr(copy.kernel) == repr(kernel)
        assert not hasattr(copy, "posterior_")

    def test_pipelines_cross_validation_and_grid_search(self, data):
        X, y = data
        pipeline = make_pipeline(StandardScaler(), self.make())
        scores = cross_val_score(pipeline, X, y, cv=2)
        assert np.all(scores > 0.6)
        search = GridSearchCV(self.make(), {"kernel": ["matern12", RBF()]}, cv=2).fit(X, y)
        assert repr(search.best_params_["kernel"]) == repr(RBF())

    def test_pickle_keeps_predictions(self, model, new_X):
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict(new_X), model.predict(new_X))

    # ------------------------------------------------------------ files

    @pytest.fixture(scope="class")
    @classmethod
    def saved(cls, model, tmp_path_factory):
        path = tmp_path_factory.mktemp("models") / "model.vastgp"
        model.save(path)
        return path

    def test_a_loaded_model_is_the_model_to_the_last_bit(self, model, saved, new_X):
        loaded = vastgp.load(saved)
        assert type(loaded) is type(model)
        for kind in (True, "latent"):
            for mine, theirs in zip(
                model.predict(new_X, return_std=kind),
                loaded.predict(new_X, return_std=kind),
                strict=True,
            ):
                np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(model.sample_y(new_X, 2), loaded.sample_y(new_X, 2))
        assert repr(loaded) == repr(model)
        assert repr(loaded.kernel_) == repr(model.kernel_)
        assert loaded.history_ == model.history_ or repr(loaded.history_) == repr(model.history_)
        for name in ("n_iter_", "converged_", "stop_reason_", "n_features_in_", "target_name_"):
            assert getattr(loaded, name) == getattr(model, name)

    def test_a_loaded_model_can_be_saved_and_fitted_again(self, saved, data, new_X, tmp_path):
        loaded = vastgp.load(saved)
        loaded.save(tmp_path / "again.vastgp")
        again = vastgp.load(tmp_path / "again.vastgp")
        np.testing.assert_array_equal(again.predict(new_X), loaded.predict(new_X))
        np.testing.assert_array_equal(loaded.fit(*data).predict(new_X), again.predict(new_X))

    def test_the_file_is_safetensors(self, saved):
        with safe_open(saved, framework="numpy") as file:
            assert "vastgp" in file.metadata()

    def test_names_and_kernels_among_the_arguments_survive_a_file(self, data, tmp_path):
        X, y = data
        model = self.make(kernel=RBF([1.0, 2.0]) + RBF(0.5)).fit(pd.DataFrame(X, columns=NAMES), y)
        model.save(tmp_path / "model.vastgp")
        loaded = vastgp.load(tmp_path / "model.vastgp")
        assert repr(loaded.kernel) == repr(model.kernel)
        assert list(loaded.feature_names_in_) == NAMES
        np.testing.assert_array_equal(
            loaded.kernel.parts[0].lengthscales, model.kernel.parts[0].lengthscales
        )

    def test_a_damaged_file_is_refused(self, saved, tmp_path):
        damaged = tmp_path / "half.vastgp"
        damaged.write_bytes(saved.read_bytes()[:-100])
        with pytest.raises(ValueError, match="is not a complete file of vastgp"):
            vastgp.load(damaged)

    def test_a_generator_cannot_be_saved(self, data, tmp_path):
        model = self.make(random_state=np.random.RandomState(0)).fit(*data)
        with pytest.raises(ValueError, match=r"random_state=.* cannot be stored in a file"):
            model.save(tmp_path / "model.vastgp")
        assert list(tmp_path.iterdir()) == []

    # ------------------------------------------------------------ mistakes

    def test_before_the_fit_nothing_can_be_asked(self, data, tmp_path):
        X, y = data
        model = self.make()
        for ask in (
            lambda: model.predict(X),
            lambda: model.sample_y(X),
            lambda: model.score(X, y),
            lambda: model.log_predictive_density(X, y),
            lambda: model.save(tmp_path / "model.vastgp"),
        ):
            with pytest.raises(NotFittedError, match="is not fitted yet"):
                ask()

    @pytest.mark.parametrize("bad", ["function", None, 2, "Latent"])
    def test_return_std_is_one_of_three(self, model, data, bad):
        with pytest.raises(ValueError, match=r"return_std must be False, True .* or 'latent'"):
            model.predict(data[0], return_std=bad)

    @pytest.mark.parametrize("bad", [0, -1, 1.5, None, "two"])
    def test_number_of_samples_is_a_positive_integer(self, model, data, bad):
        with pytest.raises(ValueError, match="n_samples must be a positive integer"):
            model.sample_y(data[0], n_samples=bad)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda X, y: (np.where(X[3, 1] == X, np.nan, X), y), "Input X contains NaN: at row 3"),
            (lambda X, y: (X, np.where(y == y[2], np.inf, y)), "Input y contains infinity"),
            (lambda X, y: (X, y[:-1]), "X has 60, y has 59"),
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
        with pytest.raises(ValueError, match=message):
            self.make().fit(*change(*data))

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("kernel", "rbff", "kernel must be one of 'rbf'.*received 'rbff'"),
            ("kernel", 3, "kernel must be a Kernel .*received 3"),
            ("kernel", RBF([1.0, 2.0, 3.0]), "3 lengthscales but the data have 2 features"),
            ("dtype", "float16", "dtype must be 'float"),
            ("max_seconds", 0, "max_seconds must be a positive number"),
            ("max_iter", 2.5, "max_iter must be a positive integer"),
            ("tol", -1.0, "tol must be a positive number"),
            ("tol", "small", "tol must be a positive number"),
            ("noise_floor", float("nan"), "noise_floor must be a positive number"),
            ("random_state", "seed", "random_state must be an integer"),
            ("random_state", -1, "random_state must be an integer"),
        ],
    )
    def test_bad_arguments_are_named(self, data, name, value, message):
        with pytest.raises(ValueError, match=message):
            self.make(**{name: value}).fit(*data)

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
