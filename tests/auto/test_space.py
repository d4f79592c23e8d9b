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


def test_columns_of_a_place_are_all_found_by_position_or_all_by_name():
    table, y = globe(60)
    rows = table.to_numpy()
    place = {"lat": list(table).index("lat"), "lon": list(table).index("lon")}
    of_array = TableEncoder(space=place).fit(rows)
    expected = of_array.transform(rows)
    # names that an array's columns have here as well, in another order: the other columns go by position too
    for names in (["x2", "x1", "x0"], [2, 1, 0], ["x1", "x0", "x2"]):
        called = pd.DataFrame(rows, columns=names)
        np.testing.assert_array_equal(of_array.transform(called), expected)
    wide = np.column_stack([y, rows])
    of_rest = TableEncoder(space={key: 1 + j for key, j in place.items()}).fit(wide, exclude=["x0"])
    np.testing.assert_array_equal(of_rest.transform(rows), expected)


def test_a_place_among_columns_called_by_numbers_or_levels_beside_the_target(tmp_path):
    # `by_position` counted the two columns of a table in which they were one already, and ended the fit
    table, y = globe(60)
    table = table.assign(y=y)
    lat, lon = list(table).index("lat"), list(table).index("lon")
    named = vastgp.GPRegressor("exact", max_work=60, space=("lat", "lon")).fit(table, "y")
    levels = table.set_axis(pd.MultiIndex.from_product([["a"], table.columns]), axis=1)
    for other, target, space in (
        (table.set_axis(range(4), axis=1), 3, {"lat": lat, "lon": lon}),
        (levels, ("a", "y"), {"lat": ("a", "lat"), "lon": ("a", "lon")}),
    ):
        model = vastgp.GPRegressor("exact", max_work=60, space=space).fit(other, target)
        inputs = other.drop(columns=[target])
        for rows in (other, inputs, inputs.iloc[:, ::-1], inputs.to_numpy()):
            np.testing.assert_array_equal(model.predict(rows), named.predict(table))
        model.save(tmp_path / "m.vastgp")
        again = vastgp.load(tmp_path / "m.vastgp")
        np.testing.assert_array_equal(again.predict(other), named.predict(table))
        np.testing.assert_array_equal(again.fit(other, target).predict(other), named.predict(table))


def test_numbers_of_columns_count_the_table_as_it_was_given():
    table, y = globe(60)
    table = pd.DataFrame({"w": np.linspace(1.0, 2.0, 60), "z": -y}).join(table).assign(y=y)
    lat, lon = list(table).index("lat"), list(table).index("lon")
    for target, more in (
        ("y", {}),
        ("y", {"sample_weight": "w"}),
        (["y", "z"], {"noise_std": "w"}),
    ):
        found = [
            vastgp.GPRegressor("exact", max_work=60, space=space).fit(table, target, **more)
            for space in (("lat", "lon"), (lat, lon), (lat - 6, lon - 6))
        ]
        for other in found[1:]:
            np.testing.assert_array_equal(other.predict(table), found[0].predict(table))
    model = vastgp.GPRegressor("exact", max_work=60, space=("w", "x"))
    with pytest.raises(ValueError, match="'w', which the table has not, or not as an input"):
        model.fit(table.rename(columns={"lat": "x"}), "y", sample_weight="w")
    with pytest.raises(
        ValueError, match=r"space=.* names the target column 'lat', which is no input"
    ):
        vastgp.GPRegressor("exact", max_work=60, space=("lat", "lon")).fit(table, "lat")


def test_names_of_a_place_that_could_be_others_are_refused():
    table, _ = globe(60)
    numbers = table.set_axis([2, 0, 1], axis=1)
    with pytest.raises(ValueError, match="0 is the column '2' by its number and '0' by its name"):
        TableEncoder(space=(0, 1)).fit(numbers)
    years = table.set_axis([2001, 2002, 2003], axis=1)
    by_name = TableEncoder(space={"lat": 2001, "lon": 2003}).fit(years)
    by_number = TableEncoder(space={"lat": "2001", "lon": 2}).fit(years)
    np.testing.assert_array_equal(by_name.transform(years), by_number.transform(years))
    with pytest.raises(ValueError, match="has a column 'lat, lon', which is what the place of"):
        TableEncoder(space=("lat", "lon")).fit(table.assign(**{"lat, lon": 1.0}))
    with pytest.raises(ValueError, match="names column 7, and the table has 3"):
        TableEncoder(space=(0, 7)).fit(table)
