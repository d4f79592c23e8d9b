"""Places as one input: chords of the sphere, conventions of longitudes, refusals, files, and every method knows it."""

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import cho_factor, cho_solve

import vastgp
from vastgp.auto import TableEncoder
from vastgp.auto.space import looks_like_latitude, looks_like_longitude
from vastgp.data.coordinates import EARTH_RADIUS, chord_points
from vastgp.options import Fixed

pytestmark = pytest.mark.little_work


def globe(n, seed=0):
    generator = np.random.default_rng(seed)
    lat = np.rad2deg(np.arcsin(generator.uniform(-1, 1, n)))
    lon = generator.uniform(-180, 180, n)
    y = np.sin(3 * np.deg2rad(lat)) + np.cos(np.deg2rad(lon)) * np.cos(np.deg2rad(lat))
    table = pd.DataFrame({"lat": lat, "height": generator.uniform(0, 2, n), "lon": lon})
    return table, y + 0.05 * generator.normal(size=n)


def test_chords_are_those_of_the_haversine_formula():
    generator = np.random.default_rng(0)
    lat, lon = generator.uniform(-90, 90, (2, 50)), generator.uniform(-180, 360, (2, 50))
    a, b = (np.deg2rad(x) for x in (lat, lon))
    half = np.sin((a[0] - a[1]) / 2) ** 2
    half += np.cos(a[0]) * np.cos(a[1]) * np.sin((b[0] - b[1]) / 2) ** 2
    chord = np.linalg.norm(chord_points(lat[0], lon[0]) - chord_points(lat[1], lon[1]), axis=1)
    np.testing.assert_allclose(chord, 2 * EARTH_RADIUS * np.sqrt(half), rtol=1e-9)


def test_a_fit_is_that_of_the_chord_kernel_by_hand():
    # Matern-3/2 of the chord, by Rasmussen & Williams (2006), eq. 2.25 and 2.26, about the targets' mean
    table, y = globe(60)
    places = table[["lat", "lon"]]
    X = TableEncoder(space=("lat", "lon")).fit_transform(places)
    kernel = vastgp.Matern32([1500.0], 0.8, inputs=(0, 0, 0))
    search = Fixed(noise_std=0.1, tied=[(0, 1, 2)])
    model = vastgp.ExactGPRegressor(kernel, hyperparameters=search).fit(X, y)
    new, _ = globe(20, seed=1)
    at = TableEncoder(space=("lat", "lon")).fit(places).transform(new)
    mean, std = model.predict(at, return_std=True)

    def correlation(one, other):
        a, b = (chord_points(t["lat"], t["lon"]) for t in (one, other))
        r = np.sqrt(3.0) * np.linalg.norm(a[:, None] - b[None], axis=2) / 1500.0
        return 0.8 * (1.0 + r) * np.exp(-r)

    factor = cho_factor(correlation(places, places) + 0.01 * np.eye(60))
    cross = correlation(new, places)
    np.testing.assert_allclose(mean, y.mean() + cross @ cho_solve(factor, y - y.mean()), atol=1e-8)
    variance = 0.8 + 0.01 - np.sum(cross * cho_solve(factor, cross.T).T, axis=1)
    np.testing.assert_allclose(std**2, variance, atol=1e-8)


def test_longitudes_have_no_seam_and_latitudes_no_poles():
    lat = np.array([10.0, 10.0, 90.0, 90.0, -90.0, 45.0])
    lon = np.array([359.9, -0.1, 10.0, 200.0, 0.0, 180.0])
    found = TableEncoder(space=("lat", "lon")).fit_transform(pd.DataFrame({"lat": lat, "lon": lon}))
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)
    np.testing.assert_allclose(found[2], found[3], atol=1e-9)
    np.testing.assert_allclose(
        found[5], EARTH_RADIUS * np.array([-(0.5**0.5), 0, 0.5**0.5]), atol=1e-9
    )
    assert np.linalg.norm(found[2] - found[4]) == pytest.approx(2 * EARTH_RADIUS)


def test_a_place_is_one_input_whatever_its_order_and_between_other_columns():
    table, _ = globe(30)
    encoder = TableEncoder(space=("lon", "lat")).fit(table)
    assert encoder.tied_ == ((0, 1, 2), (3,))
    assert [(c.name, c.kind) for c in encoder.columns_] == [
        ("lat, lon", "place"),
        ("height", "number"),
    ]
    assert "one place on the Earth" in encoder.summary()
    assert list(encoder.get_feature_names_out())[:2] == ["lat, lon x km", "lat, lon y km"]
    assert encoder.n_features_in_ == 3
    assert set(encoder.feature_names_in_) == {"lat", "lon", "height"}
    by_number = TableEncoder(space=(0, 2)).fit(table).transform(table)
    np.testing.assert_array_equal(encoder.transform(table[["lon", "height", "lat"]]), by_number)
    again = TableEncoder.from_state(encoder.to_state())
    np.testing.assert_array_equal(again.transform(table), encoder.transform(table))
    array = TableEncoder(space={"lat": 0, "lon": 2}).fit(table.to_numpy())
    np.testing.assert_array_equal(array.transform(table.to_numpy()), by_number)


def test_other_names_are_a_plane():
    table = pd.DataFrame({"x": [0.0, 5e5, 1e5], "y": [0.0, 4e6, 1e6], "z": [1.0, 2.0, 4.0]})
    encoder = TableEncoder(space=("x", "y")).fit(table)
    assert encoder.tied_ == ((0, 1), (2,))
    assert "in a plane" in encoder.columns_[0].done
    np.testing.assert_array_equal(encoder.transform(table), table.to_numpy())


@pytest.mark.parametrize(
    ("name", "latitude", "longitude"),
    [
        ("lat", True, False), ("Latitude", True, False), ("station_lat", True, False),
        ("decimalLongitude", False, True), ("LON", False, True), ("platform", False, False),
        ("x", False, False),
    ],
)  # fmt: skip
def test_names_of_coordinates_are_known(name, latitude, longitude):
    assert (looks_like_latitude(name), looks_like_longitude(name)) == (latitude, longitude)


def test_what_is_no_place_is_refused_by_column_and_row():
    table, y = globe(30)
    for value, said in (
        (95.0, "'lat' of the pandas DataFrame X holds 95 in row 7"),
        (np.nan, "no number in row 7"),
    ):
        bad = table.copy()
        bad.loc[7, "lat"] = value
        with pytest.raises(ValueError, match=said):
            TableEncoder(space=("lat", "lon")).fit(bad)
        with pytest.raises(ValueError, match=said):
            vastgp.GPRegressor(space=("lat", "lon"), max_seconds=1).fit(bad, y)
    encoder = TableEncoder(space=("lat", "lon")).fit(table)
    with pytest.raises(ValueError, match="'lon' of the pandas DataFrame X holds 400"):
        encoder.transform(table.assign(lon=400.0))
    with pytest.raises(ValueError, match="yet now missing:\n- lon"):
        encoder.transform(table[["lat", "height"]])
    with pytest.raises(ValueError, match="names the column 'latt', which the table has not"):
        TableEncoder(space=("latt", "lon")).fit(table)
    with pytest.raises(
        ValueError, match="one is called latitude or longitude and the other is not"
    ):
        TableEncoder(space=("lat", "height")).fit(table)
    with pytest.raises(ValueError, match="space must name two columns"):
        TableEncoder(space="lat").fit(table)
    twice = vastgp.GPRegressor(space=("lat", "lon"), encoder=TableEncoder(space=(0, 1)))
    with pytest.raises(ValueError, match="Leave space out"):
        twice.fit(table, y)


def test_the_front_door_fits_places_tells_kilometres_and_saves_them(tmp_path):
    table, y = globe(60)
    model = vastgp.GPRegressor("exact", max_work=60, space=("lat", "lon")).fit(table, y)
    assert [column.kind for column in model.encoding_] == ["place", "number"]
    assert list(model.feature_names_in_) == ["lat", "height", "lon"]
    ((name, km),) = model.lengthscales_km_.items()
    assert name == "lat, lon" and 300 < km < 30_000
    shifted = table.assign(lon=np.mod(table["lon"], 360.0))
    np.testing.assert_allclose(model.predict(shifted), model.predict(table), atol=1e-7)
    model.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    assert again.lengthscales_km_ == model.lengthscales_km_ and tuple(again.space) == ("lat", "lon")
    model.report(tmp_path / "page.html")


def test_a_place_is_found_by_position_where_columns_have_no_names(tmp_path):
    # between its two columns stands another: names of the fit are in the order of the table, before and after a file
    table, y = globe(60)
    encoder = TableEncoder(space=("lon", "lat")).fit(table)
    assert list(encoder.feature_names_in_) == list(table.columns)
    by_name = encoder.transform(table)
    with pytest.warns(UserWarning, match="in the order of the fit"):
        np.testing.assert_array_equal(encoder.transform(table.to_numpy()), by_name)
    with pytest.raises(ValueError, match="X has 2 features, but TableEncoder is expecting 3"):
        encoder.transform(table.to_numpy()[:, :2])
    with pytest.raises(ValueError, match="- lat"):
        encoder.transform(table.drop(columns="lat"))
    of_array = TableEncoder(space={"lat": 0, "lon": 2}).fit(table.to_numpy())
    np.testing.assert_array_equal(of_array.transform(table), by_name)
    numbered = table.set_axis([7, 8, 9], axis=1)
    of_numbers = TableEncoder(space={"lat": 0, "lon": 2}).fit(numbered)
    np.testing.assert_array_equal(of_numbers.transform(numbered[[9, 8, 7]]), by_name)
    np.testing.assert_array_equal(of_numbers.transform(table.to_numpy()), by_name)

    model = vastgp.GPRegressor("exact", max_work=60, space=("lat", "lon")).fit(table, y)
    model.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    assert list(again.feature_names_in_) == list(model.feature_names_in_) == list(table.columns)
    for one in (model, again):
        with pytest.warns(UserWarning, match="in the order of the fit"):
            np.testing.assert_array_equal(one.predict(table.to_numpy()), model.predict(table))
