"""Fields on the Earth: longitudes that close, come round or cross a seam, kilometres, and kernels over the sphere."""

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import vastgp
from vastgp import RBF, Cyclic, GridGP, Matern32, Matern52, OnSphere
from vastgp._precision import precision
from vastgp.data.coordinates import EARTH_RADIUS, make_coordinate
from vastgp.kernels import Sum
from vastgp.options import Evidence, Fixed, VarianceSamples

EAST = {"units": "degrees_east"}
NORTH = {"standard_name": "latitude", "units": "degrees_north"}
OPTIONS = {"tol": 0.05, "criterion": Evidence(num_probes=0)}
HELD = {"hyperparameters": Fixed(noise_std=0.1), "criterion": Evidence(num_probes=0)}


def wave(lon, lat=0.0):
    return np.cos(np.radians(lat)) * (np.sin(np.radians(lon)) + 0.5 * np.cos(np.radians(2 * lon)))


def around(lon, attrs=EAST, name="lon"):
    """A field along a circle of latitude at six days."""
    lon = np.asarray(lon, dtype=float)
    days = np.arange(6.0)
    values = wave(lon) + 0.3 * np.sin(days / 2)[:, None]
    values = values + 0.1 * np.random.default_rng(0).normal(size=values.shape)
    _, first, of_each = np.unique(lon % 360.0, return_index=True, return_inverse=True)
    values = values[:, first[of_each]]  # one meridian has one value
    return xr.DataArray(
        values, dims=("day", name), coords={"day": days, name: (name, lon, attrs)}, name="u"
    )


LON = np.arange(0.0, 360.0, 15.0)


def test_longitudes_all_around_close():
    field = around(LON)
    model = GridGP(**OPTIONS).fit(field)
    part = model.kernel_.parts[1]
    assert isinstance(part, Cyclic) and part.period == 360.0
    assert isinstance(part.kernel, Matern52)
    assert isinstance(GridGP({"lon": "rbf"}, **OPTIONS).fit(field).kernel_.parts[1].kernel, RBF)
    of_sum = GridGP({"lon": "rbf + matern32 * constant"}, **OPTIONS).fit(field)
    assert str(of_sum.kernel_.parts[1]).count("Cyclic(") == 2
    seam = of_sum.predict({"lon": [-7.5, 352.5]}, return_std=False)["mean"]
    np.testing.assert_allclose(seam[:, 0], seam[:, 1], rtol=1e-9)
    # half a step beyond either end is between them
    ends = model.predict({"lon": [-7.5, 352.5, 712.5]}, return_std="latent", variance="exact")
    for name in ("mean", "std"):
        spread = ends[name].max("lon") - ends[name].min("lon")
        assert float(spread.max()) < 1e-9
        np.testing.assert_array_equal(ends["lon"], [-7.5, 352.5, 712.5])
    middle = model.predict({"lon": [172.5]}, return_std="latent", variance="exact")
    np.testing.assert_allclose(ends["std"].isel(lon=[1]), middle["std"].values, rtol=0.05)
    plane = GridGP({"lon": Matern52(40.0)}, **OPTIONS).fit(field)
    beyond = plane.predict({"lon": [352.5]}, return_std="latent", variance="exact")
    assert np.all(beyond["std"] > 1.2 * ends["std"].isel(lon=[1]))
    # a predicted field is as smooth across the seam as elsewhere
    fine = model.predict({"lon": np.arange(0.0, 360.0, 1.0)}, return_std=False)["mean"]
    steps = np.abs(np.diff(fine, axis=1, append=fine[:, :1]))
    assert np.all(steps[:, -1] < steps.max(axis=1))


@pytest.mark.parametrize(
    ("attrs", "name", "lon", "closes"),
    [
        ({"units": "degree_E"}, "x", LON, True),
        ({"units": "degrees", "standard_name": "longitude"}, "x", LON - 180.0, True),
        ({}, "longitude", LON - 180.0, True),
        ({}, "lon", np.append(LON, 360.0), True),
        ({}, "lon", LON[3:20], False),
        ({}, "x", LON, False),
        ({"units": "m"}, "lon", LON, False),
        ({"units": "degrees"}, "lon", 2 * LON, False),
    ],
)
def test_which_longitudes_close(attrs, name, lon, closes):
    field = around(lon, attrs, name)
    model = GridGP({"day": RBF(2.0)}, max_iter=1, tol=10.0, criterion=Evidence(num_probes=0))
    assert isinstance(model.fit(field).kernel_.parts[1], Cyclic) is closes


@pytest.mark.parametrize("lon", [LON, LON - 180.0])
def test_a_column_that_comes_again_at_the_end_counts_once(lon):
    """Fields of either convention that end with the meridian that they begin with."""
    field = around(lon)
    field[2:4, 0] = np.nan
    error = xr.full_like(field, 0.05) + 0.01 * np.arange(len(lon))
    again = xr.concat([field, field.isel(lon=0).assign_coords(lon=lon[0] + 360.0)], "lon")
    again[5, 0] = np.nan  # the last column has it
    errors = error.reindex_like(again).fillna(error.isel(lon=0))
    # not to the end: of a kernel a thousand times the noise exact variances keep four digits
    few = OPTIONS | {"max_iter": 4}
    for given, more in ((HELD, {}), (few, {"noise_std": (error, errors)})):
        kernels = {"day": RBF(2.0), "lon": Cyclic(360.0, Matern32(50.0))}
        plain, doubled = (GridGP(kernels, **given) for _ in range(2))
        one, other = more.get("noise_std", (None, None))
        plain.fit(field, noise_std=one)
        found = doubled.fit(again, noise_std=other).predict(variance="exact")
        assert doubled.log_evidence_ == pytest.approx(plain.log_evidence_, abs=1e-9)
        expected = plain.predict({"lon": again["lon"].values}, variance="exact")
        xr.testing.assert_allclose(found, expected, rtol=1e-9)  # the same systems
        np.testing.assert_allclose(found["std"][:, 0], found["std"][:, -1], rtol=1e-5)
    with pytest.raises(
        ValueError, match=r"'lon' has .* \(positions 0 and 24\), which are one meridian.*in 1 cells"
    ):
        GridGP(**OPTIONS).fit(again.where((again.day != 0) | (again.lon != lon[0]), 9.0))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("start", "step"), [(0.1, 15.0), (-179.9, 15.0), (0.1, 120.0), (1.0 / 3.0, 0.25)]
)
def test_a_meridian_comes_again_whatever_its_degrees_round_to(dtype, start, step):
    turns = round(360.0 / step)
    lon = (start + step * np.arange(turns + 1)).astype(dtype)
    for values, twice in ((lon, (0, turns)), (lon[::-1], (0, turns)), (lon[:-1], None)):
        found = make_coordinate("lon", values, "days", EAST, on_axis=True)
        assert found.meridian_twice() == twice
        assert found.closes == (turns > 3)
    # columns that are near each other are no circle apart
    near = np.array([10.0, 10.0001, 20.0, 30.0])
    assert make_coordinate("lon", near, "days", EAST, on_axis=True).meridian_twice() is None


def test_a_column_that_comes_again_inexactly_counts_once():
    lon = 0.1 + np.arange(0.0, 361.0, 30.0)
    field = around(np.arange(0.0, 361.0, 30.0)).assign_coords(lon=("lon", lon, EAST))
    model = GridGP(**OPTIONS).fit(field)
    assert model.posterior_.axes[1].shape == (12, 1)
    field[0, -1] += 3.0
    with pytest.raises(ValueError, match=r"positions 0 and 12\), which are one meridian"):
        GridGP(**OPTIONS).fit(field)


def test_values_of_a_meridian_have_the_errors_of_their_own_cells():
    """A gap that is filled from the last column has the error that is known there."""
    field = around(np.append(LON, 360.0))
    field[1, 0] = field[2, -1] = np.nan
    errors = xr.full_like(field, 0.2)
    errors[1, -1], errors[2, 0] = 0.7, 0.4
    errors[1, 0] = errors[2, -1] = np.nan
    kernels = {"day": RBF(2.0), "lon": Cyclic(360.0, Matern32(50.0))}
    found = GridGP(kernels, **HELD).fit(field, noise_std=errors)
    plain = field[:, :-1].copy()
    plain[1, 0] = field[1, -1]
    by_hand = errors[:, :-1].copy()
    by_hand[1, 0] = 0.7
    expected = GridGP(kernels, **HELD).fit(plain, noise_std=by_hand)
    assert found.log_evidence_ == pytest.approx(expected.log_evidence_, abs=1e-9)
    at = {"lon": LON}
    xr.testing.assert_allclose(found.predict(at), expected.predict(at), rtol=1e-9)
    errors[1, -1] = np.nan
    with pytest.raises(ValueError, match="the first nan at day=1, lon=24"):
        GridGP(kernels, **HELD).fit(field, noise_std=errors)


def test_either_convention_is_the_same_field():
    field = around(LON)
    west = field.assign_coords(lon=("lon", (LON + 180.0) % 360.0 - 180.0, EAST)).sortby("lon")
    kernels = {"day": RBF(2.0, 0.5), "lon": Cyclic(360.0, Matern32(50.0))}
    asked = {"variance": "exact"}
    first, second = (GridGP(kernels, **HELD).fit(each) for each in (field, west))
    turned = second.predict(**asked)
    turned = turned.assign_coords(lon=turned["lon"] % 360.0).sortby("lon")
    xr.testing.assert_allclose(turned, first.predict(**asked), rtol=1e-7)
    xr.testing.assert_allclose(
        second.predict(field, **asked), first.predict(west, **asked).sortby("lon").pipe(
            lambda d: d.assign_coords(lon=d["lon"] % 360.0)
        ).sortby("lon"), rtol=1e-7,
    )  # fmt: skip


def test_a_field_across_greenwich_is_one_field(tmp_path):
    lon = np.array([340.0, 345.0, 350.0, 355.0, 0.0, 5.0, 10.0, 20.0])
    kernels = {"day": RBF(2.0, 0.5), "lon": Matern32(12.0)}
    crossing = GridGP(kernels, **HELD).fit(around(lon))
    west = np.where(lon > 180.0, lon - 360.0, lon)
    plain = GridGP(kernels, **HELD).fit(around(lon).assign_coords(lon=("lon", west, EAST)))
    got, expected = crossing.predict(variance="exact"), plain.predict(variance="exact")
    np.testing.assert_array_equal(got["lon"], lon)
    for name in ("mean", "std"):
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-8)
    assert crossing.log_evidence_ == pytest.approx(plain.log_evidence_, rel=1e-10)
    # the same place by any of its longitudes
    places = {"lon": [-15.0, 345.0, 705.0, -12.0, 348.0]}
    for model in (crossing, plain):
        mean = model.predict(places, return_std=False)["mean"].values
        np.testing.assert_allclose(mean[:, 1:3], mean[:, [0, 0]], rtol=1e-9)
        np.testing.assert_allclose(mean[:, 4], mean[:, 3], rtol=1e-9)
    crossing.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    xr.testing.assert_identical(again.predict(places), crossing.predict(places))


def test_stations_have_longitudes_too():
    rng = np.random.default_rng(0)
    lat, lon = rng.uniform(40, 50, 12), np.append(rng.uniform(350, 360, 6), rng.uniform(0, 10, 6))
    values = rng.normal(size=(5, 12))
    coords = {"day": np.arange(5.0), "lat": ("station", lat), "lon": ("station", lon)}
    field = xr.DataArray(values, dims=("day", "station"), coords=coords)
    kernels = {"day": RBF(2.0), ("lat", "lon"): Matern32([3.0, 4.0])}
    one = GridGP(kernels, **HELD).fit(field)
    west = xr.where(field.lon > 180, field.lon - 360, field.lon)
    other = GridGP(kernels, **HELD).fit(field.assign_coords(lon=west))
    np.testing.assert_allclose(one.predict()["mean"], other.predict()["mean"], rtol=1e-8)
    place = {"lat": [45.0], "lon": [-3.0]}
    np.testing.assert_allclose(one.predict(place)["mean"], other.predict(place)["mean"], rtol=1e-8)


# ---------------------------------------------------------------- the sphere


@pytest.fixture(scope="module")
def globe():
    lat, lon = np.array([80.0, 40.0, 0.0, -60.0, -90.0]), np.arange(-180.0, 180.0, 45.0)
    values = wave(lon, lat[:, None]) + np.arange(3.0)[:, None, None]
    values = values + 0.1 * np.random.default_rng(0).normal(size=values.shape)
    values[np.random.default_rng(1).uniform(size=values.shape) < 0.2] = np.nan
    coords = {"day": np.arange(3.0), "lat": ("lat", lat, NORTH), "lon": ("lon", lon, EAST)}
    return xr.DataArray(values, dims=("day", "lat", "lon"), coords=coords)


def test_a_group_over_the_sphere_is_the_dense_process(globe, tmp_path):
    part = Sum((OnSphere(Matern32(2000.0)), OnSphere(RBF(6000.0, 0.5))))
    model = GridGP({"day": RBF(2.0, 2.0), ("lat", "lon"): part}, **HELD).fit(globe)
    day, lat, lon = (g.ravel() for g in np.meshgrid(globe.day, globe.lat, globe.lon, indexing="ij"))
    seen = np.isfinite(globe.values.ravel())
    points = [EARTH_RADIUS * p for p in (
        np.cos(np.radians(lat)) * np.cos(np.radians(lon)),
        np.cos(np.radians(lat)) * np.sin(np.radians(lon)),
        np.sin(np.radians(lat)),
    )]  # fmt: skip
    distance = np.sqrt(sum((p[:, None] - p) ** 2 for p in points))
    ratio = np.sqrt(3) * distance / 2000.0
    K = (1 + ratio) * np.exp(-ratio) + 0.5 * np.exp(-0.5 * (distance / 6000.0) ** 2)
    K = 2.0 * np.exp(-0.5 * ((day[:, None] - day) / 2.0) ** 2) * K
    y = globe.values.ravel()[seen]
    A = K[np.ix_(seen, seen)] + 0.1**2 * np.eye(seen.sum())
    mean = y.mean() + K[:, seen] @ np.linalg.solve(A, y - y.mean())
    got = model.predict(return_std=False)["mean"]
    np.testing.assert_allclose(got.values.ravel(), mean, atol=1e-6)
    # the south pole is one place, and so is the date line
    np.testing.assert_allclose(got.sel(lat=-90.0), got.sel(lat=-90.0)[:, [0] * 8], atol=1e-9)
    ends = model.predict({"lat": [10.0], "lon": [-180.0, 180.0, 540.0]}, return_std=False)["mean"]
    np.testing.assert_allclose(ends, ends[:, :, [0] * 3], atol=1e-9)
    model.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp").predict({"lat": [10.0, 20.0]})
    xr.testing.assert_identical(again, model.predict({"lat": [10.0, 20.0]}))


def test_a_lengthscale_over_the_sphere_is_learned():
    rng = np.random.default_rng(0)
    lat, lon = np.linspace(-80.0, 80.0, 13), np.arange(0.0, 360.0, 20.0)
    rows = np.stack([g.ravel() for g in np.meshgrid(lat, lon, indexing="ij")], axis=1)
    with precision("float64"):
        K = np.asarray(OnSphere(Matern52(2500.0))(jnp.asarray(rows), jnp.asarray(rows)))
    draws = np.linalg.cholesky(K + 1e-9 * np.eye(len(K))) @ rng.normal(size=(len(K), 12))
    values = draws.T.reshape(12, 13, 18) + 0.1 * rng.normal(size=(12, 13, 18))
    coords = {"draw": np.arange(12.0) * 100.0, "lat": lat, "lon": lon}
    field = xr.DataArray(values, dims=("draw", "lat", "lon"), coords=coords)
    kernels = {"draw": RBF(1.0), ("lat", "lon"): OnSphere(Matern52(800.0))}
    model = GridGP(kernels, criterion=Evidence(num_probes=0)).fit(field)
    assert model.converged_
    assert model.lengthscales_km_["lat, lon"] == pytest.approx(2500.0, rel=0.1)
    assert model.noise_std_ == pytest.approx(0.1, rel=0.2)


def test_what_is_no_latitude_and_longitude_is_refused(globe):
    for kernels, field in (
        ({("lon", "lat"): OnSphere()}, globe),
        ({("day", "lat"): OnSphere()}, globe.assign_coords(day=[100.0, 200.0, 300.0])),
    ):
        with pytest.raises(
            ValueError, match=r"not latitude and longitude in degrees.*latitude.*first"
        ):
            GridGP(kernels).fit(field)
    with pytest.raises(
        ValueError, match="OnSphere kernel for 'lat', which are not latitude and lon"
    ):
        GridGP({"lat": OnSphere()}).fit(globe)


def test_lengthscales_are_told_in_kilometres(globe):
    kernels = {"day": RBF(2.0), "lat": RBF(10.0), "lon": Cyclic(360.0, RBF(20.0))}
    model = GridGP(kernels, **HELD).fit(globe)
    degree = np.pi / 180.0 * EARTH_RADIUS
    assert model.lengthscales_km_["lat"] == pytest.approx(10.0 * degree)
    mean = np.mean(np.abs(globe.lat.values))
    assert model.lengthscales_km_["lon"] == pytest.approx(20.0 * degree * np.cos(np.radians(mean)))
    assert set(model.lengthscales_km_) == {"lat", "lon"}
    both = GridGP({"day": RBF(2.0), ("lat", "lon"): RBF([10.0, 20.0])}, **HELD).fit(globe)
    assert both.lengthscales_km_ == pytest.approx(model.lengthscales_km_)
    # the parallel of a field along one, as a dimension of one point or beside the inputs
    parts = {"day": RBF(2.0), "lon": RBF(4.0)}
    at_sixty = around(LON[:8], EAST).expand_dims(lat=[60.0])
    for field in (
        at_sixty,
        at_sixty.isel(lat=0),
        at_sixty.isel(lat=0).rename(lat="north").assign_coords(north=((), -60, NORTH)),
    ):
        found = GridGP(parts, **HELD).fit(field)
        assert found.lengthscales_km_ == pytest.approx({"lon": 2.0 * degree})
    plain = globe.rename(lat="y", lon="x").drop_attrs()
    parts = {"day": RBF(2.0), "y": RBF(10.0), "x": RBF(20.0)}
    assert GridGP(parts, **HELD).fit(plain).lengthscales_km_ == {}


def test_samples_close_too(globe):
    kernels = {"day": RBF(2.0), "lat": RBF(30.0), "lon": Cyclic(360.0, RBF(60.0))}
    model = GridGP(kernels, **HELD).fit(globe)
    draws = model.sample_y({"lon": [-180.0, 180.0]}, n_samples=5)
    np.testing.assert_allclose(draws.isel(lon=0), draws.isel(lon=1), atol=1e-5)
    spread = model.predict({"lon": [-180.0, 180.0]}, variance=VarianceSamples(8))["std"]
    np.testing.assert_allclose(spread.isel(lon=0), spread.isel(lon=1), rtol=1e-9)
