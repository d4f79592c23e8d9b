"""What every estimator promises. A test class inherits a conformance class and says how to make the estimator.

The promises that scikit-learn checks by itself are in test_sklearn_checks.py.
"""

from __future__ import annotations

import pickle

import jax
import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import vastgp
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.kernels import RBF

NAMES = ["depth", "pressure"]


def small_inputs(n, rng):
    """Two inputs in units far from standard."""
    return rng.normal(size=(n, 2)) * [4.0, 200.0] + [10.0, -1000.0]


class Killed(BaseException):
    """Stands for the end of the process: nothing after it runs."""


class FitConformance:
    """What estimators of rows and of grids share.

    Inherit, and define `make`, `data`, `new_X`, `answers` and the three that say how they are asked. Data are small, so
    a fit should take well under a second.
    """

    # Attributes that a file keeps, beside those of all.
    keeps: tuple[str, ...] = ()
    # Arguments of the fits that are killed and resumed.
    resumed_with: tuple[dict, ...] = ({},)

    def answers(self, model, X):
        """Return a tuple of all that a fitted model says about `new_X`."""
        raise NotImplementedError

    def inputs(self, data):
        """Return the arguments of a prediction for the training data."""
        raise NotImplementedError

    def questions(self, data):
        """Return names of methods that need a fit, and their arguments."""
        raise NotImplementedError

    def with_kernel(self, kernel):
        """Return a constructor argument that holds a kernel: its name, its value, and how to find the kernel in it."""
        raise NotImplementedError

    @staticmethod
    def same(mine, theirs):
        """Compare two tuples of answers to the last bit."""
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls):
        """Return the arguments of ``fit``."""
        raise NotImplementedError

    def make(self, **params):
        """Return an estimator that fits `data` quickly."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, data):
        return cls().make().fit(*data)

    def test_before_the_fit_nothing_can_be_asked(self, data, tmp_path):
        model = self.make()
        for name, given in [*self.questions(data), ("save", (tmp_path / "model.vastgp",))]:
            with pytest.raises(NotFittedError, match="is not fitted yet"):
                getattr(model, name)(*given)

    def test_history_is_a_table_over_growing_steps_and_seconds(self, model):
        table = model.history_.to_dict()
        assert {len(column) for column in table.values()} == {len(table["steps"])}
        assert len(table["steps"]) >= 1
        assert np.all(np.diff(table["steps"]) > 0)
        assert np.all(np.diff(table["seconds"]) >= 0)
        assert any(
            np.any(np.isfinite(table[name])) for name in ("objective", "residual") if name in table
        )

    def test_the_same_seed_gives_the_same_fit_and_it_leaves_nothing_behind(
        self, model, data, new_X, capfd
    ):
        """Equal to the last bit; nothing is printed where there is no terminal, and no setting of JAX changes."""
        before = jax.config.jax_enable_x64
        again = clone(model).set_params(verbose=True).fit(*data)
        again.predict(*self.inputs(data))
        self.same(self.answers(model, new_X), self.answers(again, new_X))
        assert capfd.readouterr() == ("", "")
        assert jax.config.jax_enable_x64 == before

    def test_killed_at_a_record_and_resumed_it_is_the_fit_that_was_left_alone(
        self, model, data, new_X, tmp_path, monkeypatch
    ):
        if "checkpoint" not in model.get_params(deep=False):
            pytest.skip("has no checkpoint")
        path, written = tmp_path / "fit.checkpoint", []
        whole = Checkpoint.write

        def fit(params, dies_at):
            def write(file):
                whole(file)
                written.append(path.stat().st_size)
                if len(written) == dies_at:
                    raise Killed

            written.clear()
            with monkeypatch.context() as patched:
                patched.setattr(Checkpoint, "write", write)
                patched.setattr(Checkpoint, "due", lambda file: True)
                return self.make(checkpoint=path, **params).fit(*data)

        for params in self.resumed_with:
            alone = fit(params, dies_at=None)
            total = len(written)
            if not params:
                self.same(self.answers(alone, new_X), self.answers(model, new_X))
            assert not path.exists()  # the fit is complete
            # one fit that is killed at the first record, at that in the middle, and at the last
            before = 0
            for dies_at in sorted({1, (total + 1) // 2, total}) if total else ():
                with pytest.raises(Killed):
                    fit(params, dies_at - before)
                before = dies_at
            if total:
                again = fit(params, dies_at=None)
                self.same(self.answers(again, new_X), self.answers(alone, new_X))
                mine, theirs = alone.history_.to_dict(), again.history_.to_dict()
                for table in (mine, theirs):
                    del table["seconds"]
                np.testing.assert_equal(theirs, mine)

    def test_a_refit_that_fails_or_is_interrupted_leaves_the_model_as_it_was(
        self, model, data, new_X, monkeypatch
    ):
        model = pickle.loads(pickle.dumps(model))
        before, attributes = self.answers(model, new_X), dict(model.__dict__)

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(type(model), "_take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(*data)
        assert model.__dict__ == attributes
        self.same(self.answers(model, new_X), before)

    def test_samples_follow_their_seed(self, model, new_X):
        first = model.sample_y(new_X, 3, random_state=7)
        np.testing.assert_array_equal(first, model.sample_y(new_X, 3, random_state=7))
        assert not np.array_equal(first, model.sample_y(new_X, 3, random_state=8))

    def test_arguments_are_stored_untouched(self):
        kernel = RBF([1.0, 2.0])
        name, value, find = self.with_kernel(kernel)
        model = self.make(**{name: value, "max_seconds": 12.5})
        assert find(model.get_params()[name]) is kernel
        assert model.max_seconds == 12.5
        copy = clone(model)
        assert find(copy.get_params()[name]) is not kernel
        assert repr(copy.get_params()[name]) == repr(value)
        assert not hasattr(copy, "posterior_")

    def test_pickle_keeps_predictions(self, model, new_X):
        again = pickle.loads(pickle.dumps(model))
        self.same(self.answers(again, new_X), self.answers(model, new_X))

    @pytest.fixture(scope="class")
    @classmethod
    def saved(cls, model, tmp_path_factory):
        path = tmp_path_factory.mktemp("models") / "model.vastgp"
        model.save(path)
        return path

    def test_a_loaded_model_is_the_model_to_the_last_bit(self, model, saved, new_X):
        loaded = vastgp.load(saved)
        assert type(loaded) is type(model)
        self.same(self.answers(model, new_X), self.answers(loaded, new_X))
        np.testing.assert_array_equal(model.sample_y(new_X, 2), loaded.sample_y(new_X, 2))
        assert repr(loaded) == repr(model)
        assert repr(loaded.kernel_) == repr(model.kernel_)
        assert loaded.history_ == model.history_ or repr(loaded.history_) == repr(model.history_)
        for name in ("n_iter_", "converged_", "stop_reason_", "fit_seconds_", *self.keeps):
            assert getattr(loaded, name) == getattr(model, name)

    def test_a_loaded_model_can_be_saved_and_fitted_again(self, saved, data, new_X, tmp_path):
        loaded = vastgp.load(saved)
        loaded.save(tmp_path / "again.vastgp")
        again = vastgp.load(tmp_path / "again.vastgp")
        before = self.answers(again, new_X)
        self.same(self.answers(loaded, new_X), before)
        self.same(self.answers(loaded.fit(*data), new_X), before)

    def test_the_file_is_safetensors(self, saved):
        with safe_open(saved, framework="numpy") as file:
            assert "vastgp" in file.metadata()

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

    @pytest.mark.parametrize("bad", [0, -1, 1.5, None, "two"])
    def test_number_of_samples_is_a_positive_integer(self, model, data, bad):
        with pytest.raises(ValueError, match="n_samples must be a positive integer"):
            model.sample_y(*self.inputs(data), n_samples=bad)

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("dtype", "float16", r"dtype must be (one of \()?'float"),
            ("max_seconds", 0, "max_seconds must be a positive number"),
            ("max_iter", 2.5, "max_iter must be a positive integer"),
            ("tol", -1.0, "tol must be a positive number"),
            ("tol", "small", "tol must be a positive number"),
            ("random_state", "seed", "random_state must be an integer"),
            ("random_state", -1, "random_state must be an integer"),
        ],
    )
    def test_bad_arguments_that_all_have_are_named(self, data, name, value, message):
        if name not in self.make().get_params(deep=False):
            pytest.skip(f"has no {name}")
        with pytest.raises(ValueError, match=message):
            self.make(**{name: value}).fit(*data)


class EstimatorConformance(FitConformance):
    """What estimators of rows share. Inherit, and define `make`, `data` and `answers`."""

    # Methods that take rows, beside those that all estimators have.
    asks: tuple[str, ...] = ()
    keeps = ("n_features_in_", "target_name_")

    def inputs(self, data):
        return data[:1]

    def questions(self, data):
        of_rows = [(name, data[:1]) for name in ("predict", "sample_y", *self.asks)]
        return of_rows + [(name, data) for name in ("score", "log_predictive_density")]

    def with_kernel(self, kernel):
        return "kernel", kernel, lambda argument: argument

    @pytest.fixture(scope="class")
    @classmethod
    def new_X(cls):
        return small_inputs(25, np.random.default_rng(1))

    def test_tiles_make_no_difference(self, model, new_X, monkeypatch):
        whole = self.answers(model, new_X)
        monkeypatch.setattr(type(model), "_tile_rows", lambda self: 7)
        for mine, theirs in zip(whole, self.answers(model, new_X), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)  # float32

    def test_answers_are_numbers_however_far_the_inputs(self, model):
        far = np.array([[1e38, 1e38], [-1e38, 0.0], [1e308, -1e308]])
        for answer in self.answers(model, far):
            assert np.all(np.isfinite(answer))

    def test_columns_must_be_those_of_the_fit_and_a_refit_forgets_names(self, model, data):
        X, y = data
        named = self.make().fit(pd.DataFrame(X, columns=NAMES), y)
        with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
            named.predict(pd.DataFrame(X[:, ::-1], columns=NAMES[::-1]))
        with pytest.raises(ValueError, match="yet now missing:\n- pressure"):
            named.predict(pd.DataFrame(X[:, :1], columns=NAMES[:1]))
        with pytest.raises(ValueError, match=r"X has 1 features, but .* is expecting 2"):
            model.predict(X[:, :1])
        assert hasattr(named, "feature_names_in_")
        assert not hasattr(named.fit(X, y), "feature_names_in_")

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

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("kernel", "rbff", "kernel must be one of 'rbf'.*received 'rbff'"),
            ("kernel", 3, "kernel must be a Kernel .*received 3"),
            ("kernel", RBF([1.0, 2.0, 3.0]), "3 lengthscales but the data have 2 features"),
        ],
    )
    def test_bad_kernels_are_named(self, data, name, value, message):
        with pytest.raises(ValueError, match=message):
            self.make(**{name: value}).fit(*data)
