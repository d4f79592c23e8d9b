"""Several fields of a Dataset: a Dataset in, a Dataset out, each field as if it was fitted alone."""

import pickle

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import vastgp
from vastgp import RBF, GridGP, Matern32
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.linalg import kronecker
from vastgp.methods.grid.evidence import GridObjective
from vastgp.options import Evidence, Fixed, SaveTo

OPTIONS = {"tol": 0.05, "criterion": Evidence(num_probes=0)}
FIXED = {"kernels": {"time": RBF(3.0), "lat": Matern32(4.0)}, "hyperparameters": Fixed(0.2)}
pytestmark = pytest.mark.little_work


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    time, lat = pd.date_range("2024-01-01", periods=12), np.array([44.0, 43.0, 41.0, 40.0])
    wave = np.sin(np.arange(12) / 3)[:, None] * np.cos(lat / 2)
    hidden = rng.uniform(size=wave.shape) < 0.25
    noisy = [scale * wave + 0.1 * rng.normal(size=wave.shape) for scale in (1.0, 5.0, 2.0)]
    warm, deep, alone = (np.where(hidden, np.nan, values) for values in noisy)
    alone[rng.uniform(size=wave.shape) < 0.3] = np.nan
    grid = ("time", "lat")
    named = {"grid_mapping": "crs", "ancillary_variables": "flag", "valid_range": [-0.1, 0.1]}
    return xr.Dataset(
        {
            "warm": (grid, warm, {"units": "degC", "standard_name": "sea_surface_temperature"} | named),
            "deep": (grid, deep, {"units": "m", "long_name": "depth of mixing", "cell_methods": "time: mean"}),
            "alone": (("lat", "time"), alone.T, {"units": "m s-1"}),
            "flag": (grid, hidden.astype(np.int8), {"flag_meanings": "good bad"}),
            "time_bnds": (("time", "nv"), np.stack([time, time + pd.Timedelta("1D")], axis=1)),
            "crs": ((), 0, {"grid_mapping_name": "latitude_longitude"}),
        },
        coords={
            "time": ("time", time, {"bounds": "time_bnds", "axis": "T"}),
            "lat": ("lat", lat, {"units": "degrees_north"}),
            "season": ("time", ["cold"] * 6 + ["warm"] * 6),
            "height": ((), 2.0, {"units": "m"}),
        },
        attrs={"title": "three fields", "institution": "here"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def model(dataset):
    return GridGP(**OPTIONS).fit(dataset)


def test_each_field_is_to_the_bit_that_of_a_fit_of_it_alone(dataset, model):
    together = model.predict()
    for name in ("warm", "deep", "alone"):
        alone = GridGP(**OPTIONS).fit(dataset[name])
        expected = alone.predict()
        np.testing.assert_array_equal(together[name], expected["mean"])
        np.testing.assert_array_equal(together[f"{name}_std"], expected["std"])
        assert together[name].dims == dataset[name].dims
        assert model.noise_std_[name] == alone.noise_std_
        assert model.log_evidence_[name] == alone.log_evidence_
        assert model.n_iter_[name] == alone.n_iter_
    density = model.log_predictive_density(dataset)
    alone = model.outputs_["deep"].log_predictive_density(dataset["deep"])
    np.testing.assert_array_equal(density["deep"], alone)
    by_name = model.log_predictive_density(variance="auto", data_array=dataset)
    xr.testing.assert_identical(by_name, density)
    with pytest.raises(ValueError, match="must be a Dataset with the fields of the fit, 'warm'"):
        model.log_predictive_density(dataset["warm"])
    with pytest.raises(ValueError, match="received DataArray"):
        model.log_predictive_density(data_array=dataset["warm"])


def test_samples_of_fields_are_independent_of_each_other(model):
    drawn = model.sample_y(n_samples=400, random_state=5)
    xr.testing.assert_identical(drawn, model.sample_y(n_samples=400, random_state=5))
    warm, deep = (drawn[name] - drawn[name].mean("sample") for name in ("warm", "deep"))
    together = (warm * deep).mean("sample") / (warm.std("sample") * deep.std("sample"))
    assert float(np.abs(together).max()) < 5.0 / 400**0.5


def test_names_attributes_coordinates_and_bounds_come_back(dataset, model):
    filled = model.predict()
    kept = ["time_bnds", "crs"]
    fields = ["warm", "deep", "alone"]
    assert set(filled.data_vars) == {*fields, *(f"{name}_std" for name in fields), *kept}
    for name in [*kept, *dataset.coords]:
        assert filled[name].variable.identical(dataset[name].variable)
    assert filled.attrs == dataset.attrs | {"Conventions": "CF-1.11"}
    assert filled["warm"].attrs == {
        "units": "degC",
        "standard_name": "sea_surface_temperature",
        "grid_mapping": "crs",
        "ancillary_variables": "warm_std",
    }
    assert filled["warm_std"].attrs == {
        "units": "degC",
        "units_metadata": "temperature: difference",
        "standard_name": "sea_surface_temperature standard_error",
        "grid_mapping": "crs",
        "long_name": "standard deviation of a prediction of warm",
    }
    assert filled["deep_std"].attrs == {
        "units": "m",
        "cell_methods": "time: mean",
        "long_name": "standard deviation of a prediction of depth of mixing",
    }
    mean = model.predict(return_std=False)
    assert (
        set(mean.data_vars) == {*fields, *kept} and "ancillary_variables" not in mean["warm"].attrs
    )
    assert model.sample_y(n_samples=2)["alone"].dims == ("sample", "lat", "time")


def test_bounds_of_other_cells_stay_away(dataset, model):
    ahead = model.predict({"time": pd.date_range("2024-01-13", periods=2)})
    assert "time_bnds" not in ahead and "bounds" not in ahead["time"].attrs and "crs" in ahead
    other = model.predict(dataset[["time"]].isel(time=slice(2, 5)))
    assert "time_bnds" not in other and "bounds" not in other["time"].attrs
    points = {n: xr.DataArray(dataset[n].values[:3], dims="p") for n in ("time", "lat")}
    assert "time_bnds" not in model.predict(points) and "crs" in model.predict(points)
    # nor did the Dataset of the fit lose them
    assert model.predict()["time"].attrs["bounds"] == dataset["time"].attrs["bounds"] == "time_bnds"


def test_one_field_of_a_dataset_and_names_that_are_taken(dataset):
    one = dataset[["deep"]].rename(deep="x").assign(x_std=dataset["alone"])
    model = GridGP(**FIXED).fit(one)
    filled = model.predict()
    assert {"x", "x_standard_error", "x_std", "x_std_std"} <= set(filled.data_vars)
    np.testing.assert_array_equal(
        GridGP(**FIXED).fit(dataset[["deep"]]).predict()["deep_std"], filled["x_standard_error"]
    )
    with pytest.raises(ValueError, match=r"has variables 'x_std' and 'x_standard_error'.*Rename"):
        GridGP(**FIXED).fit(one.assign(x_standard_error=dataset["alone"]))
    beside = dataset[["deep"]].assign_coords(deep_std=("lat", np.arange(4.0)))
    assert {"deep_standard_error"} < set(GridGP(**FIXED).fit(beside).predict().data_vars)
    as_coordinates = dataset.set_coords(["time_bnds", "crs"])
    assert {"time_bnds", "crs"} <= set(GridGP(**FIXED).fit(as_coordinates).predict().coords)


def test_files_and_pickles_hold_all_fields(dataset, model, tmp_path):
    model.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    ahead = {"time": pd.date_range("2024-01-13", periods=2)}
    for other in (again, pickle.loads(pickle.dumps(model))):
        xr.testing.assert_identical(other.predict(), model.predict())
        xr.testing.assert_identical(other.predict(ahead), model.predict(ahead))
    assert again.fit_seconds_ == model.fit_seconds_ and list(again.outputs_) == list(model.outputs_)


def test_a_refit_forgets_the_other_kind_of_data(dataset):
    model = GridGP(**FIXED).fit(dataset)
    assert isinstance(model.noise_std_, dict)
    assert set(model.fit(dataset["warm"]).predict().data_vars) == {"mean", "std"}
    assert isinstance(model.noise_std_, float) and not hasattr(model, "outputs_")
    assert isinstance(model.fit(dataset).noise_std_, dict)


def test_an_interrupted_fit_goes_on_where_it_was(dataset, model, tmp_path, monkeypatch):
    evaluations, compute = [], GridObjective.objective

    def failing(self, params):
        evaluations.append(1)
        if len(evaluations) == stop:
            raise RuntimeError("killed")
        return compute(self, params)

    monkeypatch.setattr(GridObjective, "objective", failing)
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    place = SaveTo(tmp_path / "fit.checkpoint")
    stop = 0
    whole = GridGP(**OPTIONS).fit(dataset)
    stop = len(evaluations) - 2
    evaluations.clear()
    with pytest.raises(RuntimeError, match="killed"):
        GridGP(**OPTIONS, checkpoint=place).fit(dataset)
    evaluations.clear()
    resumed = GridGP(**OPTIONS, checkpoint=place).fit(dataset)
    assert len(evaluations) == 3  # all before are replayed, those of the first fields too
    xr.testing.assert_identical(resumed.predict(), whole.predict())
    assert not place.path.exists()


def test_a_budget_is_shared_and_what_did_not_converge_is_named(dataset):
    with pytest.warns(UserWarning, match=r"did not converge: warm: .*; deep: .*; alone: .*max_sec"):
        model = GridGP(max_seconds=1e-3, criterion=Evidence(num_probes=0)).fit(dataset)
    assert not any(model.converged_.values())
    assert np.isfinite(model.predict(return_std=False)["alone"]).all()


def test_programs_and_decompositions_serve_fields_of_one_mask(dataset, monkeypatch, caplog):
    made, decompose = [], kronecker._eigh
    monkeypatch.setattr(kronecker, "_eigh", lambda factor: made.append(1) or decompose(factor))
    two = dataset[["warm", "deep"]]
    GridGP(**FIXED).fit(two[["warm"]])
    for_one = len(made)
    GridGP(**FIXED).fit(two)
    assert len(made) == 2 * for_one == 4  # one of each dimension, for both fields
    # learning goes its own way from kernels that were given; from these both begin
    kernels = FIXED["kernels"]
    counts = {}
    for name in ("warm", "deep"):
        made.clear()
        GridGP(kernels, **OPTIONS).fit(two[[name]])
        counts[name] = len(made)
    made.clear()
    GridGP(kernels, **OPTIONS).fit(two)
    assert len(made) == counts["warm"] + counts["deep"] - 2
    # the second field compiles nothing
    GridGP(**OPTIONS).fit(two[["warm"]])
    with jax.log_compiles():
        caplog.clear()
        GridGP(**OPTIONS).fit(two)
        assert [each for each in caplog.messages if each.startswith("Compiling")] == []
        GridGP(**OPTIONS).fit(two.isel(time=slice(7)))
    assert any(each.startswith("Compiling") for each in caplog.messages)  # it is logged


def test_known_errors_are_by_field(dataset):
    errors = xr.full_like(dataset["warm"], 0.3)
    model = GridGP(**FIXED).fit(dataset[["warm", "deep"]], noise_std={"warm": errors})
    alone = GridGP(**FIXED).fit(dataset["warm"], noise_std=errors).predict()
    np.testing.assert_array_equal(model.predict()["warm"], alone["mean"])
    plain = GridGP(**FIXED).fit(dataset["deep"]).predict()
    np.testing.assert_array_equal(model.predict()["deep"], plain["mean"])
    for bad, found in ((errors, "DataArray"), ({"worm": errors}, "errors of 'worm'")):
        with pytest.raises(ValueError, match=f"by name .'warm', 'deep'.; received {found}"):
            GridGP(**FIXED).fit(dataset[["warm", "deep"]], noise_std=bad)


def test_what_others_name_is_no_field_and_what_they_only_mention_is():
    grid, values = ("time", "lat"), np.random.default_rng(0).normal(size=(5, 4))
    named = {"cell_measures": "area: cells", "grid_mapping": "crs: time lat"}
    bare = xr.Dataset(  # without coordinates
        {
            "area": (grid, values, named),
            "b": (grid, values + 1.0, {"cell_measures": "area: elsewhere volume: gone"}),
            "cells": (("lat",), np.ones(4)),
            "crs": ((), 0),
        },
        attrs={"external_variables": "elsewhere"},
    )
    model = GridGP(max_iter=2, tol=1.0, criterion="gcv").fit(bare)
    assert list(model.outputs_) == ["area", "b"]
    filled = model.predict()
    assert filled["area"].attrs["cell_measures"] == "area: cells"
    assert filled["area"].attrs["grid_mapping"] == "crs: time lat"
    assert {"cells", "crs"} <= set(filled) and "cell_measures" not in filled["b"].attrs
    fewer = model.predict({"lat": [0.5, 1.5]})
    assert "cells" not in fewer and "cell_measures" not in fewer["area"].attrs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda ds: ds.assign(depth=("lat", np.arange(4.0))),
            r"variable 'depth' of the Dataset is not on the grid of 'warm' \('time', 'lat'\): it has no dimension "
            r"'time'. Choose the variables that share a grid",
        ),
        (
            lambda ds: ds.assign(w=(("time", "level"), np.zeros((12, 2)))),
            "'w' of the Dataset is not on the grid of 'warm'.*no dimension 'lat' and has the dimension 'level' that",
        ),
        (lambda ds: ds[["crs"]], "'crs'"),
        (lambda ds: ds.drop_vars(ds.data_vars), "the Dataset has no field: its variables are none"),
        (
            lambda ds: ds.assign(deep=ds["deep"] * np.nan),
            "variable 'deep': data_array has 0 observed",
        ),
        (lambda ds: ds.assign(deep=ds["deep"] > 0), "variable 'deep': data_array must hold real"),
    ],
)
def test_what_is_no_field_is_named(dataset, change, message):
    with pytest.raises(ValueError, match=message):
        GridGP(**FIXED).fit(change(dataset))
