"""Coordinates of a grid: whichever way they run, and what else runs along them."""

from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import vastgp
from vastgp import RBF, GridGP
from vastgp.options import Evidence, Fixed, VarianceSamples

OPTIONS = {"tol": 0.05, "criterion": Evidence(num_probes=0)}


@pytest.fixture(scope="module")
def field():
    rng = np.random.default_rng(0)
    time, lat = pd.date_range("2024-01-01", periods=10), np.array([40.0, 41.0, 43.0, 44.0])
    values = np.sin(np.arange(10) / 3)[:, None] * np.cos(lat / 2) + 0.1 * rng.normal(size=(10, 4))
    values[rng.uniform(size=values.shape) < 0.25] = np.nan
    coords = {"time": time, "lat": lat, "season": ("time", ["cold"] * 6 + ["warm"] * 4)}
    coords |= {"zone": ("lat", [1, 1, 2, 2])}
    return xr.DataArray(values, dims=("time", "lat"), coords=coords, name="t2m")


@pytest.fixture(scope="module")
def model(field):
    return GridGP(**OPTIONS).fit(field)


@pytest.mark.parametrize(
    "turn",
    [
        {"lat": [3, 2, 1, 0]},
        {"lat": [2, 0, 3, 1], "time": [*range(9, -1, -1)]},
    ],
    ids=["descending", "any"],
)
def test_results_stand_in_the_order_of_the_data_and_do_not_depend_on_it(
    field, model, turn, tmp_path
):
    turned = GridGP(**OPTIONS).fit(field.isel(turn))
    assert turned.n_iter_ == model.n_iter_
    ahead = {"time": pd.date_range("2024-01-12", periods=2)}
    for ask in (
        lambda m: m.predict(variance=VarianceSamples(4)),
        lambda m: m.predict(ahead, variance="exact"),
        lambda m: m.sample_y(),
    ):
        here = {dim: index for dim, index in turn.items() if ask(turned).sizes[dim] == len(index)}
        xr.testing.assert_allclose(ask(turned), ask(model).isel(here), rtol=1e-9, atol=1e-9)
        for name in ("time", "lat"):
            same = ask(model).isel(here)[name]
            np.testing.assert_array_equal(ask(turned)[name], same)
    turned.save(tmp_path / "m.vastgp")
    xr.testing.assert_identical(
        vastgp.load(tmp_path / "m.vastgp").predict(ahead), turned.predict(ahead)
    )


def test_other_coordinates_along_a_dimension_come_along(field, model):
    whole = model.predict(return_std=False)
    xr.testing.assert_allclose(model.predict(field, return_std=False), whole, rtol=1e-12)
    later = field[4:].assign_coords(time=field.time[4:] + np.timedelta64(12, "h"))
    predicted = model.predict(later)
    assert predicted["season"].variable.identical(later["season"].variable)
    assert predicted["zone"].variable.identical(field["zone"].variable)
    density = model.log_predictive_density(later)
    assert density.dims == later.dims and density.sizes == later.sizes
    # points along a dimension of their own keep what else is known of them
    ship = xr.Dataset(
        {"lat": ("hour", [40.5, 41.5]), "time": ("hour", field.time.values[[3, 4]])},
        coords={"hour": [3, 9], "name": ("hour", ["a", "b"])},
    )
    along = model.predict(ship, return_std=False)
    assert along["mean"].dims == ("hour",) and {"hour", "name"} <= set(along.coords)
    chart = model.predict({"lat": [40.5, 41.5], "time": field.time.values[3:5]}, return_std=False)
    np.testing.assert_allclose(along["mean"], np.diagonal(chart["mean"]), rtol=1e-9)
    # a single point of a dimension is no dimension of the result
    assert model.predict(field.isel(time=3), return_std=False)["mean"].dims == ("lat",)


def test_a_trajectory_backwards_in_time_goes_through_a_file(tmp_path):
    """Times of a group with a coordinate along them count from the first, also of a file."""
    rng = np.random.default_rng(0)
    time = pd.date_range("2024-01-01", periods=8)[::-1]
    coords = {"time": time, "depth": ("time", rng.uniform(0, 50, 8)), "x": np.arange(3.0)}
    path = xr.DataArray(rng.normal(size=(8, 3)), dims=("time", "x"), coords=coords)
    kernels = {("time", "depth"): RBF([3.0, 20.0]), "x": RBF(1.0)}
    model = GridGP(kernels, hyperparameters=Fixed(noise_std=0.1)).fit(path)
    model.save(tmp_path / "m.vastgp")
    asked = {"time": path.time[2:4] + np.timedelta64(6, "h"), "depth": path.depth[2:4]}
    xr.testing.assert_identical(
        vastgp.load(tmp_path / "m.vastgp").predict(asked), model.predict(asked)
    )


# ---------------------------------------------------------------- as files have them


@pytest.mark.parametrize(
    "calendar", ["360_day", "noleap", "all_leap", "julian", "proleptic_gregorian", "standard"]
)
def test_calendars_of_models_go_through_a_file_and_back(field, calendar, tmp_path):
    times = xr.date_range("2000-01-16", periods=10, freq="MS", calendar=calendar, use_cftime=True)
    dated = field.drop_vars("season").assign_coords(time=times)
    model = GridGP(**OPTIONS).fit(dated)
    filled = model.predict()
    filled.to_netcdf(tmp_path / "out.nc", engine="h5netcdf")
    coder = xr.coders.CFDatetimeCoder(use_cftime=True)
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf", decode_times=coder) as written:
        np.testing.assert_array_equal(written["time"], times)
        assert written["time"].dt.calendar in (calendar, {"standard": "gregorian"}.get(calendar))
    # days are those of the calendar
    numbers = model.groups_[0].points[:, 0]
    days = [(time - times[0]).days for time in times]
    np.testing.assert_array_equal(numbers, days)
    model.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    ahead = {"time": xr.date_range("2000-12-01", periods=2, freq="MS", calendar=calendar)}
    xr.testing.assert_identical(again.predict(ahead), model.predict(ahead))
    with pytest.raises(ValueError, match="'time' holds times, received float64"):
        model.predict({"time": [1.0]})


def test_dates_of_another_calendar_are_told_from_those_of_the_fit(field):
    def at(calendar, start="2000-01-16", use_cftime=True):
        return xr.date_range(start, periods=10, freq="D", calendar=calendar, use_cftime=use_cftime)

    def fitted(times):
        model = GridGP(**OPTIONS).fit(field.drop_vars("season").assign_coords(time=times))
        return lambda ask: model.predict({"time": ask}, return_std=False)["mean"].values

    numpy_times = at("standard", use_cftime=False).values
    plain = fitted(numpy_times)
    expected = plain(numpy_times[3:5] + np.timedelta64(6, "h"))
    # the real calendars are one another's after the reform, and what was asked for comes back
    for real in ("standard", "proleptic_gregorian"):
        times = at(real)
        dated, ask = fitted(times), times[3:5] + timedelta(hours=6)
        np.testing.assert_array_equal(dated(ask), expected)
        np.testing.assert_array_equal(plain(ask), expected)
        np.testing.assert_array_equal(dated(numpy_times[3:5] + np.timedelta64(6, "h")), expected)
    for ours, asked, message in [
        ("noleap", numpy_times, "dates of the calendar 'noleap', received dates of NumPy"),
        ("noleap", at("360_day"), "'noleap', received dates of the calendar '360_day'.*of the fit"),
        (
            "standard",
            at("proleptic_gregorian", "1500-01-01"),
            "received dates of the calendar 'prol",
        ),
        ("noleap", np.array([at("noleap")[0], at("julian")[0]]), "calendars 'noleap' and 'julian'"),
        ("noleap", np.array([None, at("noleap")[0]]), "has a missing date at position 0"),
        ("noleap", np.array([1, 2], "timedelta64[D]"), "received spans of time"),
    ]:
        with pytest.raises(ValueError, match=f"coordinate 'time' .*{message}"):
            fitted(at(ours))(asked)
    with pytest.raises(ValueError, match=r"'time' holds dates .*received spans of time .timedelta"):
        plain(np.array([1, 2], "timedelta64[D]"))


@pytest.mark.parametrize("unit", ["ns", "us", "s", "D"])
def test_times_are_of_any_century_and_unit(field, unit):
    """Nanoseconds hold 292 years before and after an origin."""
    centuries = np.datetime64("1690-01-01", unit) + 60 * np.arange(10) * np.timedelta64(365, "D")
    dated = field.drop_vars("season").assign_coords(time=centuries)
    model = GridGP({"time": RBF(9e4), "lat": RBF(2.0)}, hyperparameters=Fixed(0.1)).fit(dated)
    days = 60.0 * 365.0 * np.arange(10)
    np.testing.assert_array_equal(model.groups_[0].points[:, 0], days)
    later = np.array(["1582-11-01", "1690-01-02", "2300-01-01"], "datetime64[s]")
    ahead = model.groups_[0].coordinates[0].numbers(later)
    np.testing.assert_array_equal(
        ahead, (later - np.datetime64("1690-01-01")) / np.timedelta64(1, "D")
    )
    real = xr.date_range("1690-01-01", periods=1, use_cftime=True).values
    assert model.groups_[0].coordinates[0].numbers(real) == 0.0
    # what is less than a second stays
    fine = np.datetime64("1690-01-01", "ns") + np.array([1, 1500], "timedelta64[ns]")
    seconds = 86400.0 * model.groups_[0].coordinates[0].numbers(fine)
    np.testing.assert_allclose(seconds, [1e-9, 1.5e-6], rtol=1e-12)


def test_numbers_that_count_since_a_date_are_times(field, tmp_path):
    def counted(units, numbers, **attrs):
        time = ("time", numbers, {"units": units} | attrs)
        return field.drop_vars("season").assign_coords(time=time)

    days = np.array([0.0, 31, 59, 90, 120, 151, 181, 212, 243, 273])
    noleap = xr.date_range("1850-01-01", periods=10, freq="MS", calendar="noleap", use_cftime=True)
    model = GridGP(**OPTIONS).fit(field.drop_vars("season").assign_coords(time=noleap))
    expected = model.predict()["mean"].values
    for units, numbers in [
        ("days since 1850-01-01", days),
        ("days since 1850-01-01", days.astype(int)),
        ("hours since 1849-12-01 12:00", 24.0 * days + 732.0),
        ("minutes since 1850-01-01", 1440.0 * days),
    ]:
        data = counted(units, numbers, calendar="noleap")
        same = GridGP(**OPTIONS).fit(data)
        np.testing.assert_allclose(same.groups_[0].points[:, 0], days, rtol=1e-12)
        np.testing.assert_allclose(same.predict()["mean"], expected, rtol=1e-9)
        assert same.predict()["time"].variable.identical(data["time"].variable)
        same.save(tmp_path / "m.vastgp")
        ahead = {"time": numbers[:2] + numbers[1] / 2}
        found = vastgp.load(tmp_path / "m.vastgp").predict(ahead)
        xr.testing.assert_identical(found, same.predict(ahead))
        assert found["time"].attrs["units"] == units
    # months are spans in one calendar only
    months = counted("months since 1850-01-01", np.arange(10), calendar="360_day")
    points = GridGP(**OPTIONS).fit(months).groups_[0].points[:, 0]
    np.testing.assert_array_equal(points, 30.0 * np.arange(10))
    for units, attrs, message in [
        (
            "months since 1850-01-01",
            {},
            "months are not all of one length in the calendar 'standard'",
        ),
        (
            "months since 1850-01-01",
            {"calendar": "noleap"},
            "months .*calendar 'noleap', so they",
        ),
        (
            "years since 1850-01-01",
            {},
            "years are not all of one length.*Give dates, such as xarray",
        ),
        ("moons since 1850-01-01", {}, "moons are unknown in the calendar"),
    ]:
        with pytest.raises(ValueError, match=f"coordinate 'time' counts '{units}', and {message}"):
            GridGP(**OPTIONS).fit(counted(units, np.arange(10.0), **attrs))


def test_counts_of_other_units_are_the_same_times(field):
    """What is asked for in hours is answered of the same moments, and told in hours."""
    days = {"units": "days since 2000-01-01", "calendar": "standard"}
    counted = field.drop_vars("season").assign_coords(time=("time", np.arange(10.0), days))
    kernels = {"time": RBF(2.0), "lat": RBF(2.0)}
    model = GridGP(kernels, hyperparameters=Fixed(noise_std=0.1)).fit(counted)
    expected = model.predict({"time": [2.0, 3.25]})
    for units, numbers, calendar in [
        ("hours since 2000-01-01", [48.0, 78.0], "gregorian"),
        ("days since 2000-01-01", [2.0, 3.25], "proleptic_gregorian"),
        ("minutes since 1999-12-31 12:00", [3600, 5400], "standard"),
        ("seconds since 2000-01-01 02:00 +02:00", [172800, 280800], None),
        ("days since 1582-10-04", [152387.0, 152388.25], "standard"),  # the day before the 15th
        ("days since 1582-10-14", [152387.0, 152388.25], "proleptic_gregorian"),
    ]:
        attrs = {"units": units} | ({"calendar": calendar} if calendar else {})
        asked = xr.DataArray(numbers, dims="time", attrs=attrs)
        found = model.predict({"time": asked})
        np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-9)
        np.testing.assert_array_equal(found["time"], numbers)
        assert found["time"].attrs == attrs
    hours = counted.assign_coords(
        time=("time", 24.0 * np.arange(10), {"units": "hours since 2000-01-01"})
    )
    np.testing.assert_allclose(
        model.log_predictive_density(hours), model.log_predictive_density(counted), rtol=1e-7
    )
    # numbers of the fit that are other times
    early = counted.assign_coords(time=counted.time.assign_attrs(units="hours since 2000-01-01"))
    other = model.log_predictive_density(counted.assign_coords(time=np.arange(10) / 24.0))
    np.testing.assert_allclose(model.log_predictive_density(early), other, rtol=1e-7)
    for attrs, message in [
        ({"units": "m"}, "has the units 'm', and that of the fit counts 'days since 2000-01-01'"),
        (days | {"calendar": "noleap"}, "counts 'days since 2000-01-01' in the calendar 'noleap', and .* 'standard'"),
        ({"units": "months since 2000-01-01"}, "counts 'months since .* not all of one length"),
        ({"units": "days since 1500-01-01", "calendar": "proleptic_gregorian"}, "counts .* no span"),
        ({"units": "days since ever"}, "counts 'days since ever' in the calendar 'standard': "),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=f"coordinate 'time' {message}"):
            model.predict({"time": xr.DataArray([1.0], dims="time", attrs=attrs)})


def test_latitudes_end_at_the_poles(field, model):
    for named in ({"lat": [40.0, 41.0, 43.0, 95.0]}, {"lat": ("lat", [-91.0, 41, 43, 95])}):
        with pytest.raises(
            ValueError, match=r"coordinate 'lat' has latitude \S+ at position \d, bey"
        ):
            GridGP(**OPTIONS).fit(field.drop_vars("zone").assign_coords(named))
    with pytest.raises(ValueError, match=r"coordinate 'lat' has latitude 90.5 at position 1"):
        model.predict({"lat": [90.0, 90.5]})
    # what is not said to be latitude may be called so
    plane = ("lat", [400.0, 410, 430, 440], {"units": "km"})
    assert GridGP(**OPTIONS).fit(field.drop_vars("zone").assign_coords(lat=plane)).converged_


def test_packed_values_are_read_as_xarray_decodes_them_and_refused_as_they_are(field, tmp_path):
    packing = {"dtype": "int16", "scale_factor": 0.001, "add_offset": 0.5, "_FillValue": -32768}
    field.to_netcdf(tmp_path / "in.nc", engine="h5netcdf", encoding={"t2m": packing})
    options = {"engine": "h5netcdf"}
    with xr.open_dataset(tmp_path / "in.nc", **options) as dataset:
        model = GridGP(**OPTIONS).fit(dataset["t2m"])
        assert model.gap_share_ == pytest.approx(float(field.isnull().mean()))
        filled = model.predict()
        # the output is not packed: it holds values that the packing of the input may not
        assert filled["mean"].encoding == {} and filled["mean"].dtype == np.float64
    with (
        xr.open_dataset(tmp_path / "in.nc", mask_and_scale=False, **options) as dataset,
        pytest.raises(ValueError, match=r"scale_factor, add_offset, _FillValue=-32768.*decode_cf"),
    ):
        GridGP(**OPTIONS).fit(dataset["t2m"])
    marked = field.fillna(-999.0).assign_attrs(missing_value=-999.0)
    with pytest.raises(ValueError, match=r"data_array.attrs has missing_value=-999.*Decode"):
        GridGP(**OPTIONS).fit(marked)
    # what decoding left behind says nothing of the values
    left = field.assign_attrs(missing_value=-999.0, scale_factor=1.0)
    np.testing.assert_array_equal(GridGP(**OPTIONS).fit(left).predict()["mean"], model_mean(field))


def model_mean(field):
    return GridGP(**OPTIONS).fit(field).predict()["mean"]


def test_new_coordinates_keep_what_is_said_of_them(field):
    described = field.assign_coords(
        time=("time", field.time.values, {"standard_name": "time", "bounds": "time_bnds"}),
        lat=("lat", field.lat.values, {"units": "degrees_north", "axis": "Y"}),
        height=((), 2.0, {"units": "m"}),
    )
    model = GridGP(**OPTIONS).fit(described)
    whole = model.predict(return_std=False)
    for name in described.coords:
        assert whole[name].variable.identical(described[name].variable)
    ahead = model.predict({"time": field.time[:2] + np.timedelta64(90, "D"), "lat": [41.5]})
    assert ahead["lat"].attrs == {"units": "degrees_north", "axis": "Y"}
    # the bounds were of other times
    assert ahead["time"].attrs == {"standard_name": "time"}
    assert float(ahead["height"]) == 2.0 and ahead["height"].attrs == {"units": "m"}
    other = field[:2].assign_coords(lat=("lat", field.lat.values, {"long_name": "y"}))
    assert model.predict(other)["lat"].attrs == {"long_name": "y"}


def test_dimensions_of_one_point_come_back(field, model, tmp_path):
    deep = field.expand_dims(depth=[0.5], member=1).transpose("time", "depth", "lat", "member")
    deep = deep.assign_coords(depth=("depth", [0.5], {"units": "m"}))
    single = GridGP(**OPTIONS).fit(deep, noise_std=xr.zeros_like(deep))
    filled = single.predict(variance="exact")
    assert filled["mean"].dims == deep.dims and filled["depth"].attrs == {"units": "m"}
    assert "member" not in filled.coords
    expected = model.predict(variance="exact")
    np.testing.assert_allclose(filled["std"].squeeze(), expected["std"], rtol=1e-9)
    ahead = {"time": pd.date_range("2024-01-12", periods=2)}
    assert single.predict(ahead)["mean"].dims == deep.dims
    assert single.sample_y(n_samples=2).dims == ("sample", *deep.dims)
    density = single.log_predictive_density(deep[:3], variance="exact")
    assert density.dims == deep.dims
    plain = model.log_predictive_density(field[:3], variance="exact")
    np.testing.assert_allclose(density.squeeze(), plain, rtol=1e-8)
    single.save(tmp_path / "m.vastgp")
    xr.testing.assert_allclose(
        vastgp.load(tmp_path / "m.vastgp").predict(ahead), single.predict(ahead)
    )
    by_array = GridGP(**OPTIONS).fit(deep, noise_std=np.full(deep.shape, 0.1))
    by_field = GridGP(**OPTIONS).fit(field, noise_std=np.full(field.shape, 0.1))
    np.testing.assert_allclose(
        by_array.predict()["mean"].squeeze(), by_field.predict()["mean"], rtol=1e-9
    )


def test_objects_are_no_outputs(field):
    plain = field.drop_vars(["season", "zone"])
    stacked = plain.stack(cell=("time", "lat"))
    with pytest.raises(
        ValueError, match=r"coordinate 'cell' holds tuple objects.*array.unstack\(\)"
    ):
        GridGP(**OPTIONS).fit(stacked)
    months = plain.assign_coords(time=pd.period_range("2000-01", periods=10, freq="M"))
    with pytest.raises(ValueError, match=r"'time' holds Period objects.*index.to_timestamp\(\)"):
        GridGP(**OPTIONS).fit(months)
    moments = plain.assign_coords(time=pd.date_range("2000", periods=10, tz="Europe/Oslo"))
    with pytest.raises(
        ValueError, match=r"'time' holds datetime objects.*index.tz_convert\(None\)"
    ):
        GridGP(**OPTIONS).fit(moments)
    universal = moments.assign_coords(time=moments.indexes["time"].tz_convert(None))
    assert GridGP(**OPTIONS).fit(universal).predict()["mean"].sizes == plain.sizes
    # coordinates along a stacked dimension are a group
    points = plain.stack(cell=("time", "lat")).reset_index("cell")
    points = points.assign_coords(day=("cell", points.time.dt.dayofyear.values)).drop_vars("time")
    with_group = xr.concat([points, points + 1.0], "copy").assign_coords(copy=["a", "b"])
    both = GridGP({("day", "lat"): "rbf"}, **OPTIONS).fit(with_group)
    assert both.predict(return_std=False)["mean"].dims == ("copy", "cell")
