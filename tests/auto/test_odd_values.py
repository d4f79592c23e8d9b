"""Odd values of a table and of arguments: long whole numbers, time zones, missing targets, paths, wrong names."""

from __future__ import annotations

import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest

import vastgp
from vastgp.auto import TableEncoder
from vastgp.auto.values import level_text
from vastgp.auto.zones import SEVERAL, common_zone, moved, wall_clock, zone_of

_BIG = 2**53


def _regressor(**more: Any) -> Any:
    return vastgp.GPRegressor(max_seconds=2, random_state=0, **more)


def _line(n: int = 40) -> pd.DataFrame:
    x = np.linspace(0.0, 1.0, n)
    return pd.DataFrame({"x": x, "y": 2.0 * x + 0.01 * np.sin(40.0 * x)})


# ---------------------------------------------------------------- levels


def test_long_whole_numbers_are_levels_of_their_own():
    assert level_text(_BIG + 1) == str(_BIG + 1) and level_text(np.int64(_BIG + 1)) == str(_BIG + 1)
    assert level_text(10**400) == str(10**400) and level_text(1.0) == level_text(1) == "1"
    accounts = pd.Categorical([_BIG + k % 3 for k in range(30)])
    encoder = TableEncoder().fit(pd.DataFrame({"account": accounts}))
    assert encoder.columns_[0].facts["levels"] == tuple(str(_BIG + k) for k in range(3))
    endless = pd.DataFrame({"code": pd.Series([10**400, "a", 2] * 5, dtype=object)})
    with pytest.raises(
        ValueError, match="'code' of the pandas DataFrame X holds infinity or a number too"
    ):
        TableEncoder().fit(endless)


# ---------------------------------------------------------------- time zones


@pytest.mark.parametrize(
    ("name", "hours"), [("UTC", 0), ("Z", 0), ("+05:30", 5.5), ("-03", -3), ("UTC+01:00", 1)]
)
def test_zones_by_name_and_offset(name, hours):
    zone = zone_of(name)
    assert zone is not None
    offset = zone.utcoffset(datetime.datetime(2024, 7, 1))
    assert offset is not None and offset.total_seconds() == 3600 * hours


def test_clocks_are_set_by_the_zone_and_its_summer():
    noon = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.UTC)
    assert wall_clock(noon, "Europe/Berlin") == np.datetime64("2024-07-01T14:00")
    assert wall_clock(noon, None) == wall_clock(noon.replace(tzinfo=None), "Europe/Berlin")
    winter = np.datetime64("2024-01-01T12:00")
    assert moved(winter, "+03:00", "Europe/Berlin") == np.datetime64("2024-01-01T10:00")
    assert zone_of("nowhere/at-all") is None
    assert common_zone(["Etc/UTC", "Z", None, "+00:00", "Zulu", "GMT"]) == "UTC"
    assert common_zone(["Etc/GMT+5", "-05:00", "Z"]) == SEVERAL
    assert moved(winter, "Z", "nowhere/at-all") == winter


def test_one_moment_is_one_whatever_writes_it():
    when = pd.date_range("2024-03-01", periods=900, freq="7h", tz="Europe/Berlin")
    encoder = TableEncoder().fit(pd.DataFrame({"when": when}))
    there = when[[100, 500, 800]]  # winter and summer
    expected = encoder.transform(pd.DataFrame({"when": there}))
    universal = there.tz_convert("UTC")
    forms: list[Any] = [
        universal,
        pd.Series([one.to_pydatetime() for one in universal], dtype=object),
        pd.Series(
            [one.to_pydatetime().astimezone(ZoneInfo("Asia/Tokyo")) for one in there], dtype=object
        ),
        [one.isoformat() for one in universal],
        [one.strftime("%Y-%m-%dT%H:%M:%SZ") for one in universal],
        [one.isoformat() for one in there.tz_convert("America/New_York")],
        [
            one.strftime("%Y-%m-%d %H:%M:%S") for one in there
        ],  # a wall clock of no zone is that of the fit
    ]
    for form in forms:
        np.testing.assert_array_equal(encoder.transform(pd.DataFrame({"when": form})), expected)


_MOMENTS = pd.date_range("2024-03-01", periods=300, freq="7h", tz="UTC")
_FITTED = {
    "iso": lambda one: one.isoformat(),
    "z": lambda one: one.strftime("%Y-%m-%dT%H:%M:%SZ"),
    "compact": lambda one: one.strftime("%Y%m%dT%H%M%SZ"),
    "with strokes": lambda one: one.strftime("%Y/%m/%d %H:%M UTC"),
    "day first": lambda one: one.strftime("%d/%m/%Y %H:%M:%S +0000"),
    "an offset": lambda one: one.tz_convert("Asia/Tokyo").isoformat(),
    "objects": lambda one: one.to_pydatetime(),
    "objects of a place": lambda one: one.to_pydatetime().astimezone(ZoneInfo("Europe/Berlin")),
    "objects of an offset": lambda one: one.to_pydatetime().astimezone(
        datetime.timezone(datetime.timedelta(hours=-3.5))
    ),
}


@pytest.mark.parametrize("form", _FITTED)
def test_the_zone_of_text_and_of_objects_is_kept(form):
    write = _FITTED[form]

    def by_day(one):
        return one.strftime("%d/%m/%Y %H:%M:%S %z")

    def column(moments, write):
        return pd.DataFrame({"when": pd.Series([write(one) for one in moments], dtype=object)})

    encoder = TableEncoder().fit(column(_MOMENTS, write))
    encoder = TableEncoder.from_state(encoder.to_state())
    there = _MOMENTS[[10, 100, 290]]
    expected = encoder.transform(column(there, write))
    assert expected[:, 0] == pytest.approx(
        (there - _MOMENTS[0]) / pd.Timedelta(days=365.2425), abs=1e-3
    )
    for zone in ("UTC", "America/New_York", "Etc/GMT+5", "Asia/Tokyo"):
        moved = there.tz_convert(zone)
        for new in (
            pd.DataFrame({"when": moved}),
            pl.DataFrame({"when": pl.Series(moved)}),
            column(moved, by_day if form == "day first" else lambda one: one.isoformat()),
            column(moved, lambda one: one.to_pydatetime()),
        ):
            np.testing.assert_array_equal(encoder.transform(new), expected)


@pytest.mark.parametrize("zone", ["America/New_York", "America/Port-au-Prince", "Etc/GMT+5"])
def test_a_zone_of_any_name_is_one(zone):
    when = _MOMENTS.tz_convert(zone)
    frame = pd.DataFrame({"when": when, "x": 1.0 * np.arange(300)})
    frame.loc[3, "when"] = pd.NaT
    encoder = TableEncoder().fit(frame)
    found = encoder.transform(frame)
    walls = frame.assign(when=frame["when"].dt.tz_localize(None))
    np.testing.assert_array_equal(found, TableEncoder().fit(walls).transform(walls))
    moved = frame.assign(when=frame["when"].dt.tz_convert("Europe/Oslo"))
    np.testing.assert_array_equal(encoder.transform(moved), found)
    with pytest.raises(ValueError, match=r"'when'.*dates or times"):
        vastgp.ExactGPRegressor().fit(frame, frame["x"])


def test_clocks_of_summer_and_winter_stay_those_of_the_wall():
    when = pd.date_range("2024-03-20", periods=300, freq="h", tz="Europe/Oslo")
    text = [one.isoformat() for one in when]
    assert len({one[-6:] for one in text}) == 2
    found = TableEncoder().fit_transform(pd.DataFrame({"when": text}))
    walls = pd.DataFrame({"when": when.tz_localize(None)})
    np.testing.assert_array_equal(found, TableEncoder().fit_transform(walls))


# ---------------------------------------------------------------- targets


def test_whole_labels_with_gaps_stay_whole():
    frame = pd.DataFrame({"x": np.tile([0.0, 1.0, 9.0, 2.0], 10)})
    y = pd.array([_BIG, _BIG, None, _BIG + 1] * 10, dtype="Int64")
    model = vastgp.GPClassifier(max_seconds=2, random_state=0).fit(frame, y)
    assert model.classes_.tolist() == [_BIG, _BIG + 1] and model.n_rows_dropped_ == 10
    assert model.predict(frame).dtype.kind == "i"


def test_a_page_leaves_out_rows_without_a_label_and_a_score_refuses_them(tmp_path):
    frame = pd.DataFrame({"x": np.linspace(-1.0, 1.0, 40)})
    y = pd.Series(np.where(frame["x"] > 0.0, "up", "down"), dtype=object).mask(frame.index % 7 == 3)
    model = vastgp.GPClassifier(max_seconds=2, random_state=0).fit(frame, y)
    page = model.report(tmp_path / "page.html", frame, y)
    assert "6 rows without a target were left out" in page.read_text()
    for compare in (model.score, model.log_predictive_density):
        with pytest.raises(ValueError, match="no target in 6 of 40 rows, the first in row 3"):
            compare(frame, y)
    line = _line().assign(y=lambda frame: frame["y"].mask(frame.index == 5))
    numbers = _regressor().fit(line, "y")
    with pytest.raises(ValueError, match="no target in 1 of 40 rows, the first in row 5"):
        numbers.score(line)


def test_errors_and_weights_of_rows_without_a_target_may_be_missing():
    line = _line().assign(y=lambda frame: frame["y"].mask(frame.index == 5))
    error = np.where(line["y"].isna(), np.nan, 0.1)
    for given in ({"noise_std": error}, {"sample_weight": 1.0 + error}):
        assert _regressor().fit(line[["x"]], line["y"], **given).n_rows_dropped_ == 1
    error[7] = np.nan
    with pytest.raises(ValueError, match=r"noise_std must hold finite numbers .* at row 7"):
        _regressor().fit(line[["x"]], line["y"], noise_std=error)


def test_a_file_to_score_may_be_a_path(tmp_path):
    path = tmp_path / "line.csv"
    _line().to_csv(path, index=False)
    model = _regressor().fit(path, "y")
    assert model.score(path) == model.score(str(path)) > 0.9


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize("n", [15, 60])
def test_a_wrong_calibration_is_refused_before_anything_is_fitted(n, monkeypatch):
    line = _line(n)
    monkeypatch.setattr(vastgp.GPRegressor, "_find", None)
    for wrong in ("isotnic", 3, ["scale"]):
        with pytest.raises(
            ValueError, match="calibrate: expected 'auto', 'scale', 'student', 'isotonic'"
        ):
            _regressor(calibrate=wrong).fit(line, "y")
    monkeypatch.setattr(vastgp.GPClassifier, "_find", None)
    labels = np.arange(n) % 3
    for wrong, message in (
        ("conformal", "expected 'auto', 'temperature'"),
        ("isotonic", "two classes"),
    ):
        with pytest.raises(ValueError, match=f"calibrate: .*{message}"):
            vastgp.GPClassifier(calibrate=wrong).fit(line[["x"]], labels)


@pytest.mark.parametrize("door", [vastgp.GPRegressor, vastgp.GPClassifier])
def test_what_is_no_encoder_is_refused_by_its_name(door):
    line = _line()
    for wrong, message in (
        (
            "passthrough",
            "encoder must be None, a TableEncoder .* received str 'passthrough', which",
        ),
        (3, "received int 3, which has no fit_transform and no transform and no get_params"),
        (TableEncoder, r"encoder is the class TableEncoder, .* write encoder=TableEncoder\(\)"),
    ):
        for y in (line["y"] > 0.0, line[["y", "x"]]):
            with pytest.raises(ValueError, match=message):
                door(encoder=wrong).fit(line[["x"]], y)


def test_an_order_of_levels_as_any_sequence_can_be_saved(tmp_path):
    sizes = np.array(["S", "M", "L"])
    frame = pd.DataFrame({"size": np.tile(sizes, 10), "y": np.tile([1.0, 2.0, 3.0], 10)})
    model = _regressor(encoder=TableEncoder(ordered={"size": sizes})).fit(frame, "y")
    model.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    assert again.encoder.ordered == {"size": ["S", "M", "L"]}
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))


def test_intervals_of_pandas_in_polars_are_refused_by_name_and_left_out_as_advised():
    x = np.linspace(-1.0, 1.0, 40)
    frame = pl.from_pandas(pd.DataFrame({"x": x, "part": pd.cut(x, 4)}))
    with pytest.raises(
        ValueError, match=r"Column 'part' .* of which no input can be made"
    ) as error:
        _regressor().fit(frame, 2.0 * x)
    assert "TableEncoder.fit as exclude" in str(error.value)
    found = TableEncoder().fit(frame, exclude=["part"]).transform(frame)
    np.testing.assert_array_equal(found, x[:, None])


@pytest.mark.parametrize("known", ["float32", "float64"])
@pytest.mark.parametrize("new", ["float32", "float64"])
@pytest.mark.parametrize("plain", [False, True], ids=["category", "numbers"])
def test_categories_are_the_same_in_either_precision(known, new, plain):
    """A level 0.1 of single precision was known as 0.10000000149011612, and new rows with 0.1 as never seen."""
    levels = np.tile([0.1, 0.25, 0.7], 20)
    given = pd.DataFrame({"level": pd.Categorical(levels.astype(known))})
    fitted = TableEncoder().fit(given, np.arange(60.0))
    values = levels.astype(new)
    asked = pd.DataFrame({"level": values if plain else pd.Categorical(values)})
    np.testing.assert_array_equal(fitted.transform(asked), fitted.transform(given))
    assert any("0.7" in name and len(name) < 12 for name in fitted.get_feature_names_out())


def test_numbers_have_the_shortest_text_that_is_theirs():
    for value in (0.1, 1e-10, 1.0 / 3.0, 1e200 / 3.0, 2.0**-1074):
        assert float(level_text(value)) == value
        assert level_text(np.float32(0.3)) == "0.3" == level_text(0.3)
