"""`GridGP` keeps the promises of every estimator, on a grid with gaps of numbers, times and outputs."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from estimators.conformance import FitConformance
from vastgp import RBF, GridGP
from vastgp.options import Average, Evidence


class TestGrid(FitConformance):
    resumed_with = (
        {},
        {"criterion": Evidence("probes", 2), "solver": "ignore-gaps"},
        {"hyperparameters": Average(num_components=8)},
    )
    keeps = (
        "log_evidence_",
        "log_evidence_unbiased_",
        "log_evidence_se_",
        "residual_",
        "gap_share_",
        "solver_",
        "name_",
        "dims_",
        "attrs_",
    )

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls):
        rng = np.random.default_rng(0)
        day, x = np.arange(10.0), np.array([0.0, 1.0, 3.0, 4.0])
        field = np.sin(day / 3)[:, None] * np.cos(x / 2)
        values = np.stack([10.0 + 3.0 * field, 500.0 - 90.0 * field], axis=2)
        values += rng.normal(size=values.shape) * [0.2, 15.0]
        array = xr.DataArray(
            np.where(rng.uniform(size=values.shape) < 0.25, np.nan, values),
            dims=("time", "x", "output"),
            coords={
                "time": pd.date_range("2024-01-01", periods=10),
                "x": x,
                "output": ["warm", "cold"],
            },
            name="both",
            attrs={"units": "mixed"},
        )
        return (array,)

    @pytest.fixture(scope="class")
    @classmethod
    def new_X(cls):
        return {"time": pd.date_range("2024-01-04T12", periods=8, freq="D"), "x": [0.5, 3.0]}

    def make(self, **params):
        return GridGP(
            **(
                {"kernels": {"time": "rbf", "x": "rbf"}, "criterion": Evidence(num_probes=2)}
                | params
            )
        )

    def answers(self, model, X):
        whole, new = model.predict(), model.predict(X, return_std="latent")
        return (whole["mean"], whole["std"], new["mean"], new["std"], model.noise_std_)

    def inputs(self, data):
        return ()

    def questions(self, data):
        return [("predict", ()), ("sample_y", ()), ("log_predictive_density", data)]

    def with_kernel(self, kernel):
        return "kernels", {("x", "time"): kernel}, lambda argument: argument["x", "time"]

    def test_attributes_of_a_fit(self, model):
        assert isinstance(model.converged_, bool) and model.converged_
        assert isinstance(model.n_iter_, int) and model.n_iter_ >= 1
        assert isinstance(model.stop_reason_, str) and model.stop_reason_
        assert model.fit_seconds_ > 0.0

    def test_a_refit_forgets_the_last_data(self, data, new_X):
        (array,) = data
        model = self.make().fit(array.isel(x=slice(0, 3), output=0, drop=True))
        assert np.ndim(model.noise_std_) == 0
        assert self.answers(model.fit(array), new_X)[0].shape == array.shape
        self.same(self.answers(model, new_X), self.answers(self.make().fit(array), new_X))

    def test_kernels_among_the_arguments_survive_a_file(self, data, tmp_path):
        import vastgp

        model = self.make(kernels={"time": RBF(3.0) + RBF(0.5), "x": RBF(2.0)}).fit(*data)
        model.save(tmp_path / "model.vastgp")
        assert repr(vastgp.load(tmp_path / "model.vastgp").kernels) == repr(model.kernels)

    def test_a_budget_of_time_ends_learning_and_says_so(self, data):
        with pytest.warns(UserWarning, match="max_seconds"):
            model = self.make(max_seconds=1e-3).fit(*data)
        assert not model.converged_ and "max_seconds" in model.stop_reason_
