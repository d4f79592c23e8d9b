"""`GridGP`: an xarray.DataArray with gaps in, the same filled out."""

import cftime
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.exceptions import ConvergenceWarning

import vastgp
from grid_cases import CASES, NOISE
from vastgp import RBF, GridGP, Matern32, Matern52, Periodic
from vastgp._precision import precision
from vastgp.data.grid import make_group, ordered_values
from vastgp.kernels import Coregionalisation
from vastgp.options import (
    CrossValidation,
    Evidence,
    FillGaps,
    Fixed,
    IgnoreGaps,
    Learn,
    PenalizeGaps,
)


@pytest.fixture(scope="module")
def field():
    """Smooth in time and space, noise of 0.25, with coordinates of every kind, in units far from standard."""
    rng = np.random.default_rng(0)
    time = pd.date_range("2020-01-01", periods=25, freq="7D")
    lat, lon = np.array([40.0, 41.0, 43.0, 46.0, 50.0]), np.linspace(0.0, 20.0, 8)
    days = np.arange(25)[:, None, None] * 7
    values = np.sin(days / 40) + 0.5 * np.cos(lat / 3)[:, None] * np.sin(lon / 6 + days / 70)
    values = 280.0 + 5.0 * (values + 0.05 * rng.normal(size=values.shape))
    return xr.DataArray(
        values,
        dims=("time", "lat", "lon"),
        coords={
            "time": time,
            "lat": lat,
            "lon": lon,
            "height": 2.0,
            "land": (("lat", "lon"), np.ones((5, 8))),
        },
        name="tas",
        attrs={"units": "K", "levels": np.array([1, 2])},
    )


@pytest.fixture(scope="module")
def hidden(field):
    return np.random.default_rng(1).uniform(size=field.shape) < 0.3


@pytest.fixture(scope="module")
def model(field, hidden):
    return GridGP().fit(field.where(~hidden))


def small(values=None, **coords):
    """A grid of 6 times 4 numbers."""
    values = np.random.default_rng(0).normal(size=(6, 4)) if values is None else values
    coords = {"t": np.arange(6.0), "x": np.arange(4.0)} | coords
    return xr.DataArray(values, dims=("t", "x"), coords=coords)


# ---------------------------------------------------------------- results


def test_gaps_are_filled_with_honest_uncertainty(field, hidden, model):
    assert model.converged_ and model.n_iter_ > 3 and model.residual_ <= 1e-6
    assert model.gap_share_ == pytest.approx(hidden.mean())
    # 300 gaps: iterations end soon, so that nothing is factorised, in no evaluation
    solver = model.posterior_.solver
    assert solver.factorisations == 0 and solver.iterations < 30 * solver.solves
    assert 0.2 < model.likelihood_.noise_std < 0.3
    filled = model.predict()
    error = (field - filled["mean"]).values[hidden]
    assert np.sqrt(np.mean(error**2)) < 0.31
    assert 0.91 < np.mean(np.abs(error) < 1.96 * filled["std"].values[hidden]) < 0.985
    density = model.log_predictive_density(field.where(hidden))
    assert density.dims == field.dims
    z = error / filled["std"].values[hidden]
    by_hand = -0.5 * z**2 - np.log(filled["std"].values[hidden] * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(density.values[hidden], by_hand, rtol=1e-10)
    assert np.isnan(density.values[~hidden]).all()


def test_the_evidence_is_that_of_the_dense_one_in_units_of_the_values(field, hidden, model):
    assert model.log_evidence_se_ > 0
    rows = np.stack(
        [g.ravel() for g in np.meshgrid(*[g.points[:, 0] for g in model.groups_], indexing="ij")],
        axis=1,
    )[~hidden.ravel()]
    with precision("float64"):
        A = np.asarray(model.kernel_(jnp.asarray(rows), jnp.asarray(rows)))
    A = A + float(model.likelihood_.noise_variance) * np.eye(len(A))
    y = field.values[~hidden] - field.values[~hidden].mean()
    exact = -0.5 * (y @ np.linalg.solve(A, y) + np.linalg.slogdet(A)[1])
    exact -= 0.5 * len(y) * np.log(2 * np.pi)
    assert abs(model.log_evidence_unbiased_ - exact) < 4.5 * model.log_evidence_se_
    assert model.log_evidence_ == pytest.approx(exact, abs=15.0)


def test_dimensions_coordinates_and_attributes_stay(field, model):
    filled = model.predict()
    assert list(filled.data_vars) == ["mean", "std"]
    for name in filled.data_vars:
        assert filled[name].dims == field.dims
        assert filled[name].attrs["units"] == "K"
        assert filled[name].dtype == np.float64
    assert set(filled.coords) == set(field.coords)
    for name in field.coords:
        assert filled[name].variable.identical(field[name].variable)


def test_dimensions_may_come_in_any_order(field, hidden, model):
    turned = field.where(~hidden).transpose("lon", "time", "lat")
    filled = GridGP(
        kernels=dict(zip(("time", "lat", "lon"), model.kernel_.parts, strict=True)), max_iter=1
    )
    with pytest.warns(ConvergenceWarning, match=r"GridGP did not converge.*raise max_iter \(now 1"):
        filled = filled.fit(turned).predict(return_std=False)
    assert filled["mean"].dims == ("lon", "time", "lat")


def test_forecasts_new_grids_and_scattered_points_agree(field, model):
    whole = model.predict(variance="exact")
    ahead = model.predict({"time": pd.date_range("2020-06-17", periods=4, freq="7D")})
    assert ahead.sizes == {"time": 4, "lat": 5, "lon": 8}
    assert float(ahead["height"]) == 2.0 and "land" in ahead.coords
    # the first of these times belongs to the data, the later ones to the future
    np.testing.assert_allclose(
        ahead["mean"].isel(time=0), whole["mean"].sel(time="2020-06-17"), atol=1e-6
    )
    assert np.all(ahead["std"].isel(time=3) > 1.2 * ahead["std"].isel(time=0))
    at = {
        name: field[name][[1, 3, 4]].drop_vars(name).rename({name: "where"}) for name in field.dims
    }
    points = model.predict(
        xr.Dataset(coords={k: ("where", v.values) for k, v in at.items()}).coords
    )
    assert points.sizes == {"where": 3}
    expected = [(whole["mean"].values[i, i, i], whole["std"].values[i, i, i]) for i in (1, 3, 4)]
    np.testing.assert_allclose(np.c_[points["mean"], points["std"]], expected, rtol=1e-6)
    table = pd.DataFrame({name: values.values for name, values in at.items()})
    np.testing.assert_allclose(model.predict(table)["mean"], points["mean"], rtol=1e-12)
    one = model.predict({"lat": 44.0})
    assert one.sizes["lat"] == 1 and "land" not in one.coords


def test_latent_std_leaves_the_noise_out(model):
    both = model.predict(variance="exact"), model.predict(return_std="latent", variance="exact")
    np.testing.assert_allclose(
        both[0]["std"] ** 2 - both[1]["std"] ** 2,
        float(model.likelihood_.noise_variance),
        rtol=1e-9,
    )
    assert list(model.predict(return_std=False).data_vars) == ["mean"]


def test_variances_by_samples_and_low_rank_are_near_the_exact_ones(model):
    exact = model.predict(return_std="latent", variance="exact")["std"]
    sampled = model.predict(return_std="latent")["std"]
    assert np.sqrt(np.mean((sampled / exact - 1.0) ** 2)) < 0.09
    low_rank = model.predict(return_std="latent", variance="low-rank")["std"]
    np.testing.assert_allclose(low_rank, exact, rtol=0.02)


def test_samples_are_fields_of_the_same_grid(field, model):
    samples = model.sample_y(n_samples=40, random_state=3)
    assert samples.dims == ("sample", *field.dims) and samples.sizes["sample"] == 40
    xr.testing.assert_identical(samples, model.sample_y(n_samples=40, random_state=3))
    filled = model.predict(return_std="latent")
    z = (samples - filled["mean"]) / filled["std"]
    assert abs(float((z**2).mean()) - 1.0) < 0.15
    ahead = model.sample_y({"time": pd.date_range("2020-07-01", periods=2, freq="7D")})
    assert ahead.sizes == {"sample": 1, "time": 2, "lat": 5, "lon": 8}


def test_a_file_brings_back_every_bit(model, tmp_path):
    model.save(tmp_path / "grid.vastgp")
    again = vastgp.load(tmp_path / "grid.vastgp")
    xr.testing.assert_identical(again.predict(), model.predict())
    ahead = {"time": pd.date_range("2020-07-01", periods=2, freq="7D")}
    xr.testing.assert_identical(again.predict(ahead), model.predict(ahead))
    assert again.get_params() == model.get_params()
    assert str(again.kernel_) == str(model.kernel_)
    assert again.log_evidence_ == model.log_evidence_ and again.stop_reason_ == model.stop_reason_
    assert again.history_.to_dict() == model.history_.to_dict()


def test_criteria_solvers_and_precisions_meet(field, hidden, model):
    reference = model.predict(return_std=False)["mean"]
    fixed = model_kernels(model)
    fixed["time"] = fixed["time"].in_units(1.0, float(model.kernel_.variance) ** 0.5)
    noise = float(model.likelihood_.noise_std)
    given = {"hyperparameters": Fixed(noise), "criterion": Evidence(num_probes=0)}
    for solver in ("auto", "ignore-gaps", PenalizeGaps(penalty=1e7)):
        other = GridGP(fixed, solver=solver, **given)
        other.fit(field.where(~hidden))
        np.testing.assert_allclose(other.predict(return_std=False)["mean"], reference, atol=1e-4)
        assert other.n_iter_ == 0 and other.converged_
        assert str(other.kernel_) == str(model.kernel_)
    single = GridGP(fixed, dtype="float32", **given)
    single.fit(field.where(~hidden))
    np.testing.assert_allclose(single.predict(return_std=False)["mean"], reference, atol=0.02)


@pytest.mark.parametrize("criterion", [CrossValidation(num_probes=0), Evidence("probes", 4)])
def test_other_criteria_learn_much_the_same(field, hidden, model, criterion):
    other = GridGP(model_kernels(model), tol=1e-3, criterion=criterion)
    other.fit(field.where(~hidden))
    assert other.converged_
    mean = other.predict(return_std=False)["mean"]
    assert float(np.sqrt(((mean - model.predict(return_std=False)["mean"]) ** 2).mean())) < 0.1
    assert 0.8 < other.likelihood_.noise_std / model.likelihood_.noise_std < 1.25


def model_kernels(model):
    return {
        group if len(group) > 1 else group[0]: part
        for group, part in zip(model.kernel_.groups, model.kernel_.parts, strict=True)
    }


def test_stations_outputs_and_dask(tmp_path):
    """A group of coordinates along one dimension, and two outputs in units of their own that know of each other."""
    rng = np.random.default_rng(2)
    where = rng.uniform(0.0, 5.0, size=(12, 2))
    t = np.arange(15.0)
    shared = np.sin(t / 3)[:, None] + np.cos(where @ [0.5, 0.7])
    values = np.stack([10 + 3 * shared, 1000 - 200 * shared], axis=2)
    values = values + rng.normal(size=values.shape) * [0.1, 7.0]
    data = xr.DataArray(
        values,
        dims=("t", "station", "output"),
        coords={
            "t": t,
            "lat": ("station", where[:, 0]),
            "lon": ("station", where[:, 1]),
            "output": ["temperature", "pressure"],
        },
    )
    gaps = data.copy()
    gaps[5:9, :, 0] = np.nan  # only the other output tells of these
    model = GridGP({("lat", "lon"): "rbf", "t": "rbf"}).fit(gaps.chunk({"t": 5}))
    assert model.kernel_.groups == (("t",), ("lat", "lon"), ("output",))
    B = np.asarray(model.kernel_.parts[2].matrix()) * float(model.kernel_.variance)
    assert B[0, 1] / np.sqrt(B[0, 0] * B[1, 1]) < -0.9
    filled = model.predict()
    error = (filled["mean"] - data)[5:9, :, 0]
    assert float(np.sqrt((error**2).mean())) < 0.35
    assert 50 < filled["std"][0, 0, 1] / filled["std"][0, 0, 0] < 100
    np.testing.assert_allclose(model.noise_std_, [0.1, 7.0], rtol=0.15)
    # lists run along dimensions of their own, as in xarray: a map; what shares a dimension are points
    asked = {"lat": [1.0, 2.0], "lon": [2.0, 3.0, 4.0]}
    chart = model.predict(asked, variance="exact")
    assert chart.sizes == {"t": 15, "lat": 2, "lon": 3, "output": 2}
    diagonal = {name: xr.DataArray(each[:2], dims="station") for name, each in asked.items()}
    stations = model.predict(diagonal, variance="exact")
    assert stations.sizes == {"t": 15, "station": 2, "output": 2}
    of_chart = chart.isel({name: xr.DataArray([0, 1], dims="station") for name in asked})
    xr.testing.assert_allclose(stations, of_chart.transpose(*stations.dims), rtol=1e-9)
    pick = {"t": xr.DataArray([1.0, 2.0, 3.0], dims="p")} | {
        name: xr.DataArray(where[:3, i], dims="p") for i, name in enumerate(("lat", "lon"))
    }
    points = model.predict(pick, variance="exact")
    assert points["mean"].dims == ("p", "output")
    for i in range(3):
        np.testing.assert_allclose(points["mean"][i], filled["mean"][i + 1, i], rtol=1e-8)
    assert model.sample_y(pick, n_samples=2).dims == ("sample", "p", "output")
    model.save(tmp_path / "m.vastgp")
    xr.testing.assert_identical(vastgp.load(tmp_path / "m.vastgp").predict(), filled)
    with pytest.raises(
        ValueError, match="coords lacks 'lon': the coordinates 'lat', 'lon' go together"
    ):
        model.predict({"lat": [1.0]})
    with pytest.raises(ValueError, match="'output' has no 'wind': the fit has seen 'temperature'"):
        model.predict({"output": ["wind"]})


def test_every_output_has_noise_of_its_own():
    """One output is nearly noiseless and one nearly noise: each gets its own, and the good one tells of the bad one."""
    rng = np.random.default_rng(3)
    t, x = np.arange(25.0), np.linspace(0.0, 1.0, 8)
    f = np.sin(t / 4)[:, None] * np.cos(3 * x)
    truth = np.stack([5.0 + 2.0 * f, -70.0 * f], axis=2)
    noise = np.array([0.02, 60.0])
    data = xr.DataArray(
        truth + rng.normal(size=truth.shape) * noise,
        dims=("t", "x", "output"),
        coords={"t": t, "x": x, "output": ["good", "bad"]},
    )
    gaps = data.where(rng.uniform(size=data.shape) > 0.2)
    model = GridGP({"t": "rbf", "x": "rbf"}).fit(gaps)
    np.testing.assert_allclose(model.noise_std_, noise, rtol=0.2)
    off = abs(model.log_evidence_ - model.log_evidence_unbiased_)
    assert off < 1.0 + 4.0 * model.log_evidence_se_
    filled = model.predict(return_std="latent")
    error = np.sqrt(np.mean((filled["mean"].values - truth)[..., 1] ** 2))
    # 160 values with noise of 60 leave a mean and a slope open, each by 60 / sqrt(160) = 5
    assert error < 15.0
    observed = model.predict()
    np.testing.assert_allclose(
        np.sqrt(observed["std"] ** 2 - filled["std"] ** 2).mean(("t", "x")),
        model.noise_std_,
        rtol=1e-3,
    )
    # given back as fixed hyperparameters it is the same model
    kernels = dict(zip(("t", "x", "output"), model.kernel_.parts, strict=True))
    kernels["t"] = kernels["t"].in_units(1.0, float(model.kernel_.variance) ** 0.5)
    fixed = GridGP(kernels, hyperparameters=Fixed(model.noise_std_)).fit(gaps)
    np.testing.assert_allclose(fixed.predict(return_std=False)["mean"], filled["mean"], atol=1e-6)
    assert fixed.log_evidence_ == pytest.approx(model.log_evidence_, abs=1e-6)
    with pytest.raises(ValueError, match="noise_std has 3 values, and the data have 2 outputs"):
        GridGP(kernels, hyperparameters=Fixed([1.0, 2.0, 3.0])).fit(gaps)
    # cross validation cannot tell one noise from another: proportional to the outputs' scales
    gcv = GridGP({"t": "rbf", "x": "rbf"}, criterion="gcv", max_iter=20, tol=1e-2).fit(gaps)
    scales = gaps.std(("t", "x")).values
    assert gcv.noise_std_[1] / gcv.noise_std_[0] == pytest.approx(scales[1] / scales[0], rel=1e-6)


def test_a_log_evidence_that_is_off_is_warned_of():
    """Gaps in one block: the eigenvalues of the whole grid say little of what was observed."""
    t, x = np.arange(40.0), np.arange(12.0)
    values = np.sin(t / 2)[:, None] * np.cos(x / 2)
    values = values + 0.02 * np.random.default_rng(0).normal(size=values.shape)
    data = xr.DataArray(values, dims=("t", "x"), coords={"t": t, "x": x})
    blocks = data.where((data.t < 14) | (data.x < 2))
    with pytest.warns(UserWarning, match=r"nats from the unbiased one .*spectrum='probes'"):
        GridGP({"t": "matern32", "x": "matern32"}, criterion=Evidence(num_probes=32)).fit(blocks)


def test_a_period_is_stated_and_kept():
    t = np.arange(120.0)
    rng = np.random.default_rng(0)
    values = np.sin(2 * np.pi * t / 12) + 0.1 * rng.normal(size=120)
    data = xr.DataArray(values, dims="month", coords={"month": t})
    model = GridGP({"month": Periodic(12.0) * RBF(100.0)}).fit(data[:84])
    part = model.kernel_.parts[0]
    assert part.parts[0].period == 12.0
    ahead = model.predict({"month": t[84:]})
    assert float(np.sqrt(((ahead["mean"] - data[84:]) ** 2).mean())) < 0.15


def test_dates_of_other_calendars_and_units_of_time(tmp_path):
    cftime = pytest.importorskip("cftime")
    dates = [cftime.Datetime360Day(2000 + i // 12, 1 + i % 12, 1) for i in range(30)]
    values = np.sin(np.arange(30) / 3.0)
    data = xr.DataArray(values, dims="time", coords={"time": dates})
    model = GridGP({"time": RBF(0.5)}, time_unit="years").fit(data)
    assert model.groups_[0].points[12, 0] == pytest.approx(360 / 365.25)
    model.save(tmp_path / "m.vastgp")
    xr.testing.assert_identical(vastgp.load(tmp_path / "m.vastgp").predict(), model.predict())


def test_a_constant_field_is_predicted_with_a_warning():
    with pytest.warns(UserWarning, match="constant"):
        model = GridGP().fit(small(np.full((6, 4), 3.0)))
    filled = model.predict()
    np.testing.assert_allclose(filled["mean"], 3.0)


def test_points_where_nothing_was_observed_are_left_out_of_the_system(tmp_path):
    rng = np.random.default_rng(0)
    t, lat, lon = np.arange(6.0), np.arange(5.0), np.arange(4.0)
    values = rng.normal(size=(6, 5, 4))
    values[2] = np.nan  # a time without any value
    values[:, 1:3, 1:] = np.nan  # land
    values[4, 0, 0] = np.nan
    field = xr.DataArray(values, dims=("t", "lat", "lon"), coords={"t": t, "lat": lat, "lon": lon})
    kernels = {"t": Matern52(2.0), ("lat", "lon"): RBF([2.0, 3.0], 0.8)}
    model = GridGP(kernels, hyperparameters=Fixed(0.3), solver=FillGaps(tol=1e-12)).fit(field)
    assert [len(axis) for axis in model.posterior_.axes] == [5, 14]
    assert model.gap_share_ == pytest.approx(1.0 - np.isfinite(values).mean())
    found = model.predict(variance="exact")
    # the dense process, over all points
    inputs = np.stack([g.ravel() for g in np.meshgrid(t, lat, lon, indexing="ij")], axis=1)
    seen = np.isfinite(values).ravel()
    with precision("float64"):
        time = np.asarray(kernels["t"](*2 * (jnp.asarray(inputs[:, :1]),)))
        K = time * np.asarray(kernels["lat", "lon"](*2 * (jnp.asarray(inputs[:, 1:]),)))
    A = K[np.ix_(seen, seen)] + 0.09 * np.eye(seen.sum())
    target = values.ravel()[seen]
    mean = target.mean() + K[:, seen] @ np.linalg.solve(A, target - target.mean())
    variance = np.diag(K - K[:, seen] @ np.linalg.solve(A, K[seen])) + 0.09
    np.testing.assert_allclose(found["mean"].values.ravel(), mean, atol=1e-8)
    np.testing.assert_allclose(found["std"].values.ravel() ** 2, variance, atol=1e-8)
    model.save(tmp_path / "model.vastgp")
    again = vastgp.load(tmp_path / "model.vastgp").predict(variance="exact")
    xr.testing.assert_identical(again, found)


def test_fixed_hyperparameters_are_the_model_in_the_units_of_the_data():
    case = CASES["two dimensions"]
    observed = case.observed(0.3)
    values = 100.0 + 7.0 * case.values
    data = xr.DataArray(
        np.where(observed, values, np.nan).reshape(12, 9),
        dims=("t", "x"),
        coords={"t": case.axes[0][:, 0], "x": case.axes[1][:, 0]},
    )
    kernels = {"t": RBF(0.8, 2.0 * 49.0), "x": Matern32(1.5)}
    model = GridGP(
        kernels, hyperparameters=Fixed(7.0 * NOISE**0.5), solver=FillGaps(tol=1e-12)
    ).fit(data)
    A, *_ = case.dense(observed)
    y = values[observed]
    cross = 49.0 * case.covariance(case.rows, case.rows[observed])
    exact = y.mean() + cross @ np.linalg.solve(49.0 * A, y - y.mean())
    variance = 98.0 - np.einsum("ij,ji->i", cross, np.linalg.solve(49.0 * A, cross.T))
    filled = model.predict(return_std="latent", variance="exact")
    np.testing.assert_allclose(filled["mean"].values.ravel(), exact, atol=1e-7)
    np.testing.assert_allclose(filled["std"].values.ravel() ** 2, variance, atol=1e-6)


# ---------------------------------------------------------------- errors

NAN = np.full((6, 4), np.nan)
ONE = NAN.copy()
ONE[0, 0] = 1.0
INFINITE = np.zeros((6, 4))
INFINITE[2, 3] = np.inf

DATES = [cftime.DatetimeNoLeap(2000, 1, day) for day in range(1, 5)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            np.zeros((6, 4)),
            "must be an xarray.DataArray or Dataset, received ndarray.*Name the dimensions",
        ),
        (small().astype(complex), "real numbers, received dtype complex128"),
        (xr.DataArray(1.0), "at least one dimension, received a single value"),
        (small(NAN), "has 0 observed values of 24 .t: 6, x: 4.: all others are NaN"),
        (small(ONE), "has 1 observed value of 24.*A fit needs two at least"),
        (small(INFINITE), "has 1 infinite values, the first at t=2, x=3.*array.where"),
        (small(t=[0.0, 1, 1, 2, 3, 4]), "'t' has the value 1.0 more than once .positions 1 and 2."),
        (small(t=[0.0, 4, 3, 2, 0, 1]), "'t' has the value 0.0 more than once .positions 0 and 4."),
        (
            small(1e200 * small()),
            r"data_array holds values up to 2\.\de\+200, whose variance float64",
        ),
        (small(1e-200 * small()), r"up to 2\.\de-200.*Give them in other units: fit data_array / "),
        (small(x=[0.0, np.nan, 2, 3]), "coordinate 'x' is not finite at position 1"),
        (small(x=["a", "b", "b", "c"]), "coordinate 'x' has the label 'b' more than once"),
        (
            small(x=["60.0", "50.0", "40.0", "30.0"]).rename(x="lat"),
            r"'lat' is text, such as '60.0'.*astype",
        ),
        (
            small(x=["2024-01", "2024-02", "2024-03", "2024-04"]),
            r"'x' holds dates as text.*astype\('datetime64",
        ),
        (
            small(x=np.array(["NaT", "2024-02", "2024-03", "NaT"], "datetime64[ns]")),
            "first at position 0",
        ),
        (small(x=np.array([None, *DATES[1:]])), "coordinate 'x' has a missing date at position 0"),
        (
            small(x=np.array([*DATES[:3], np.nan], object)),
            "coordinate 'x' has a missing date at position 3",
        ),
        (small()[:0], r"dimension 't' is empty \(t: 0, x: 4\): there are no values"),
        (small()[:1, :1], r"dimension 't' has 1 point: nothing can be learned.*array.isel\(t=0"),
    ],
)
def test_bad_data_are_named(data, message):
    with pytest.raises(ValueError, match=message):
        GridGP().fit(data)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"kernels": {"y": "rbf"}},
            "has 'y', and the array has no dimension or coordinate 'y'. It",
        ),
        ({"kernels": ["rbf"]}, r"kernels must be a dictionary.*received \['rbf'\]"),
        ({"kernels": {"t": "rbg"}}, r"kernels\['t'\] must be a Kernel or the name.*'rbg'"),
        ({"kernels": {1: "rbf"}}, "keys of kernels must be a name or a tuple of names, received 1"),
        ({"kernels": {("t", "t"): "rbf"}}, "has the group .* with a name twice"),
        (
            {"kernels": {"t": "rbf", ("t", "x"): "rbf"}},
            "has 't' and .'t', 'x'., both about dimension 't'",
        ),
        (
            {"kernels": {"x": "coregionalisation"}},
            "coregionalisation for 'x', whose coordinate holds",
        ),
        ({"solver": "fill"}, r"solver must be one of \('auto', 'fill-gaps'.*or FillGaps"),
        ({"criterion": "loo"}, r"criterion must be one of \('evidence', 'gcv'\) or Evidence"),
        ({"time_unit": "weeks"}, "time_unit must be one of"),
        ({"hyperparameters": "fixed"}, r"'fixed' needs noise_std.*Write hyperparameters=Fixed"),
        ({"hyperparameters": Learn(rows=5)}, r"Learn\(rows=5\) has no effect here: leave it out"),
        ({"hyperparameters": Learn(steps=5)}, "has no effect here: set max_iter instead"),
        (
            {"hyperparameters": Learn(isotropic=True)},
            r"Learn\(isotropic=True\) has no effect here: give the dimensions that",
        ),
        (
            {"hyperparameters": Fixed(1.0), "kernels": {"t": RBF()}},
            "kernels needs a Kernel for 'x' with hyperparameters='fixed', received None",
        ),
        ({"kernels": {"t": Matern52([1.0, 2.0])}}, "2 lengthscales but the data have 1 features"),
    ],
)
def test_bad_arguments_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        GridGP(**params).fit(small())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Evidence("exact"),
            "spectrum must be one of .'free-compression', 'nystrom'",
        ),
        (
            lambda: Evidence("probes", 1),
            "num_probes must be at least 2 with spectrum='probes",
        ),
        (
            lambda: CrossValidation("probes", 1),
            "num_probes must be at least 2 with spectrum='probes'",
        ),
        (
            lambda: Evidence(num_probes=-1),
            "num_probes must be an integer of at least 0; received -1",
        ),
        (lambda: FillGaps(tol=0.0), "tol must be a positive number, or None"),
        (lambda: IgnoreGaps(rank=-1), "rank must be an integer of at least 0, or None"),
        (lambda: Fixed([1.0, 0.0]), "noise_std must be a positive number; received 0.0"),
    ],
)
def test_bad_options_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", sorted(GridGP._moved))
def test_old_names_say_where_they_went(name):
    with pytest.raises(TypeError, match=f"no argument '{name}' any more: write .*"):
        GridGP(**{name: 1})


def test_outputs_are_checked():
    labelled = small(x=["a", "b", "c", "d"])
    with pytest.raises(ValueError, match="the coordinate holds labels, between which there is no"):
        GridGP({"x": "rbf"}).fit(labelled)
    with pytest.raises(ValueError, match="is a matrix of 3 outputs, and the data have 4"):
        GridGP({"x": Coregionalisation(3)}).fit(labelled)
    values = np.random.default_rng(0).normal(size=(6, 4))
    values[:, 1] = np.nan
    with pytest.raises(ValueError, match="no observed value with x='b': all are NaN"):
        GridGP().fit(small(values, x=["a", "b", "c", "d"]))
    with pytest.raises(ValueError, match="mixes labels with other coordinates"):
        GridGP({("t", "x"): "rbf"}).fit(labelled)


def test_what_memory_cannot_hold_is_refused_before_anything_is_read():
    import dask.array as da

    huge = xr.DataArray(da.zeros((200_000, 300, 300), chunks=1000), dims=("t", "y", "x"))
    with pytest.raises(
        ValueError,
        match=r"18,000,000,000 points .t: 200000, y: 300, x: 300.*needs about \d{4}\.\d GB of memory; .* are free",
    ):
        GridGP().fit(huge)


def test_chunks_are_read_into_their_place_and_not_held_twice():
    """Gathered by dask they would take twice the memory: all chunks, and what they are joined to."""
    import tracemalloc

    import dask.array as da

    def chunk(block_info=None):
        first, last = block_info[None]["array-location"][0]
        shape = block_info[None]["chunk-shape"]
        return np.broadcast_to(np.arange(first, last)[:, None, None], shape).astype(np.float32)

    sizes = ((32,) * 16, (64, 64), (64,))
    lazy = xr.DataArray(da.map_blocks(chunk, dtype=np.float32, chunks=sizes), dims=("t", "y", "x"))
    groups = [make_group(lazy, (dim,)) for dim in ("y", "t", "x")]
    tracemalloc.start()
    values = ordered_values(lazy, groups)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values.shape == (128, 512, 64) and np.all(values == np.arange(512)[:, None])
    assert peak < 1.6 * values.nbytes


@pytest.mark.parametrize(
    ("coords", "message"),
    [
        ({"depth": [1.0]}, "coords has 'depth', and the model knows 'time', 'lat', 'lon'"),
        ([1.0, 2.0], "coords must be a mapping of names to values.*received list"),
        ({"time": [1.0]}, "coordinate 'time' holds times, received float64"),
        ({"lat": ["a"]}, "coordinate 'lat' holds numbers, received"),
        ({"lat": [np.nan]}, "coordinate 'lat' is not finite at position 0"),
        ({"lat": [[1.0]]}, r"coords\['lat'\] must be a number or one-dimensional.*\(1, 1\)"),
        ({"lat": []}, "coords has no points along 'lat': it is empty"),
        (
            {"lat": xr.DataArray([1.0, 2.0], dims="p"), "lon": xr.DataArray([1.0], dims="p")},
            "coords has 2 and 1 points along 'p'. Points need as many values of each",
        ),
        (
            xr.DataArray(np.zeros((25, 2)), dims=("time", "depth")),
            "coords has 'depth', and the model",
        ),
    ],
)
def test_bad_coordinates_of_predictions_are_named(model, coords, message):
    with pytest.raises(ValueError, match=message):
        model.predict(coords)


def test_other_bad_requests_are_named(model):
    with pytest.raises(ValueError, match="return_std must be False, True"):
        model.predict(return_std="yes")
    with pytest.raises(ValueError, match="variance must be one of"):
        model.predict(variance="fast")
    with pytest.raises(ValueError, match="n_samples must be a positive integer"):
        model.sample_y(n_samples=0)
