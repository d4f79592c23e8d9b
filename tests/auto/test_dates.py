"""Trend, season, weekday and time of day, against the calendar of Python's datetime."""

from __future__ import annotations

import calendar
import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from auto.tables import without_directions
from vastgp.auto import TableEncoder
from vastgp.auto.written import parse_date

_UTC = datetime.UTC
_RNG = np.random.default_rng(0)


def _encode(dates: object, new: object = None) -> tuple[np.ndarray, list[str]]:
    encoder = TableEncoder().fit(pd.DataFrame({"t": dates}))
    found = encoder.transform(pd.DataFrame({"t": dates if new is None else new}))
    return found, list(encoder.get_feature_names_out())


def test_parts_of_a_date_are_those_of_the_calendar():
    seconds = np.sort(_RNG.integers(-(10**9), 2 * 10**9, 500))
    dates = [datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=int(s)) for s in seconds]
    found, names = _encode(dates)
    assert names == [
        "t in years",
        "t season sin",
        "t season cos",
        *(f"t {day}" for day in calendar.day_abbr),
        "t time of day sin",
        "t time of day cos",
    ]
    for row, date in zip(found, dates, strict=True):
        years = (date - dates[0]).total_seconds() / (365.2425 * 86_400)
        begin, end = datetime.datetime(date.year, 1, 1), datetime.datetime(date.year + 1, 1, 1)
        season = 2 * np.pi * ((date - begin) / (end - begin))
        midnight = datetime.datetime.combine(date.date(), datetime.time())
        clock = 2 * np.pi * ((date - midnight) / datetime.timedelta(days=1))
        expected = [years, np.sin(season), np.cos(season), *np.eye(7)[date.weekday()]]
        expected += [np.sin(clock), np.cos(clock)]
        np.testing.assert_allclose(row, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("dates", "parts"),
    [
        (pd.date_range("2020-01-01", periods=20, freq="D"), 1),  # under three weeks
        (pd.date_range("2020-01-01", periods=23, freq="D"), 1 + 7),
        (pd.date_range("2020-01-01", periods=40, freq="7D"), 1),  # always a Wednesday
        (pd.date_range("2020-01-01", periods=3, freq="12h"), 1),  # one day
        (pd.date_range("2020-01-01", periods=6, freq="12h"), 1 + 2),
        (pd.date_range("2020-01-01", periods=430, freq="D"), 1 + 7),  # 1.17 years
        (pd.date_range("2020-01-01", periods=440, freq="D"), 1 + 2 + 7),
        # always the first of January, or of a month: no weekday of it is its own
        (pd.date_range("2000-01-01", periods=20, freq="YS"), 1),
        (pd.date_range("2000-01-01", periods=40, freq="MS"), 1 + 2),
        (pd.date_range("2000-01-01", periods=40, freq="ME"), 1 + 2),
    ],
)
def test_only_what_there_is_enough_of(dates, parts):
    assert _encode(dates)[0].shape[1] == parts


def test_text_is_read_as_dates():
    dates = pd.date_range("2020-02-27", periods=50, freq="31h")
    expected, _ = _encode(dates)
    for shape in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.000Z", "%Y-%m-%d %H:%M+02:00"):
        np.testing.assert_array_equal(_encode(dates.strftime(shape))[0], expected)
    np.testing.assert_array_equal(_encode(dates, dates.strftime("%Y-%m-%d %H:%M"))[0], expected)
    # the 31st of February is no date, hence all of it is text
    found = TableEncoder().fit(pd.DataFrame({"t": ["2021-02-31", "2021-02-01"]}))
    assert found.columns_[0].kind == "category"


def test_a_time_zone_is_its_wall_clock():
    utc = pd.date_range("2020-01-01", periods=1000, freq="23h", tz="UTC")
    oslo = utc.tz_convert("Europe/Oslo")
    expected, names = _encode(oslo.tz_localize(None))
    found, _ = _encode(oslo)
    np.testing.assert_array_equal(found, expected)
    # given in another zone, the moments are the same ones
    np.testing.assert_array_equal(_encode(oslo, utc)[0], expected)
    by_polars = TableEncoder().fit(pl.DataFrame({"t": pl.Series(oslo)}))
    np.testing.assert_array_equal(by_polars.transform(pl.DataFrame({"t": oslo})), expected)
    utc_clock = _encode(utc)[0][:, names.index("t time of day sin")]
    assert np.abs(utc_clock - expected[:, names.index("t time of day sin")]).max() > 0.2


def test_a_gap_is_in_the_middle_of_all_cycles():
    dates = pd.Series(pd.date_range("2020-01-01", periods=1001, freq="11h"))
    dates[1000] = pd.NaT
    found, names = _encode(dates)
    gap = dict(zip(names, found[-1], strict=True))
    assert gap["t is missing"] == 1 and not found[:-1, -1].any()
    assert gap["t season sin"] == gap["t season cos"] == gap["t time of day sin"] == 0
    assert gap["t Mon"] == gap["t Sun"] == 1 / 7
    middle = 500 * 11 / 24 / 365.2425
    assert gap["t in years"] == pytest.approx(middle, rel=1e-12)


def test_times_of_day_are_places_on_a_circle():
    times = [datetime.time(h, 15) for h in range(24)]
    expected = 2 * np.pi * (np.arange(24) + 0.25) / 24
    for values in (times, [f"{h}:15" for h in range(24)], [f"{h:02d}:15:00.0" for h in range(24)]):
        found, names = _encode(values)
        assert names == ["t sin", "t cos"]
        circle = np.stack([np.sin(expected), np.cos(expected)], axis=1)
        np.testing.assert_allclose(found, circle, atol=1e-14)
    encoder = TableEncoder()
    by_polars = encoder.fit_transform(pl.DataFrame({"t": [*times, None]}))
    by_polars = without_directions(encoder, by_polars)
    np.testing.assert_array_equal(by_polars[-1], [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(by_polars[:-1, :2], found)


# ---------------------------------------------------------------- as people write them

_DAYS = [datetime.datetime(2019, 3, 1) + datetime.timedelta(days=41 * k) for k in range(40)]


@pytest.mark.parametrize(
    "form",
    [
        "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m/%d/%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y", "%Y/%m/%d", "%Y.%m.%d",
        "%d %b %Y", "%d-%b-%y", "%d. %B %Y", "%b %d, %Y", "%B %d %Y", "%a, %d %b %Y", "%A %d %B %Y", "%Y%m%dT%H%M%S",
        "%Y%m%dT%H%MZ",
    ],
)  # fmt: skip
def test_dates_as_people_write_them_are_dates(form):
    texts = [day.strftime(form) for day in _DAYS]
    np.testing.assert_array_equal(_encode(texts)[0], _encode(_DAYS)[0])
    # one new row, which alone could be read in two ways, is read as those of the fit
    at = next(k for k, day in enumerate(_DAYS) if day.day <= 12 and day.day != day.month)
    np.testing.assert_array_equal(_encode(texts, texts[at : at + 1])[0], _encode(_DAYS)[0][[at]])


@pytest.mark.parametrize(
    "clock", ["%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S%p", "%H:%M:%S.%f", "%H:%M UTC"]
)
@pytest.mark.parametrize("day", ["%d/%m/%Y", "%m/%d/%y", "%b %d, %Y", "%Y/%m/%d"])
def test_times_behind_dates_as_people_write_them(day, clock):
    moments = [one.replace(hour=k % 24, minute=(7 * k) % 60) for k, one in enumerate(_DAYS)]
    texts = [one.strftime(f"{day} {clock}") for one in moments]
    np.testing.assert_array_equal(_encode(texts)[0], _encode(moments)[0])


def test_months_and_quarters_are_their_first_day():
    months = pd.date_range("1949-01-01", periods=40, freq="MS")
    for form in ("%Y-%m", "%Y/%m", "%b %Y", "%B %Y", "%B-%Y"):
        np.testing.assert_array_equal(_encode(months.strftime(form))[0], _encode(months)[0])
    quarters = pd.date_range("2001-01-01", periods=40, freq="QS")
    for form in ("{0.year}Q{0.quarter}", "{0.year}-Q{0.quarter}", "Q{0.quarter} {0.year}"):
        texts = [form.format(one) for one in quarters]
        np.testing.assert_array_equal(_encode(texts)[0], _encode(quarters)[0])


def test_weeks_and_half_years_are_their_first_day():
    """Weeks are those of ISO 8601, which begin on a Monday: in some years the first one has days of December."""
    weeks = pd.date_range("2001-01-01", periods=400, freq="W-MON")
    for form in ("{0:%G}-W{0:%V}", "{0:%G} W{0:%V}", "{0:%G}W{0:%V}", "{0:%G}-W{0:%V}-1"):
        texts = [form.format(one) for one in weeks]
        np.testing.assert_array_equal(_encode(texts)[0], _encode(weeks)[0])
    halves = pd.date_range("1981-01-01", periods=60, freq="6MS")
    for form in ("{year}H{half}", "{year}-S{half}", "{year} H{half}"):
        texts = [form.format(year=one.year, half=1 + (one.month > 6)) for one in halves]
        np.testing.assert_array_equal(_encode(texts)[0], _encode(halves)[0])
    months = pd.date_range("2001-01-01", periods=40, freq="MS")
    for form in ("{0:%Y} {0:%b}", "{0:%Y}-{0:%B}", "{0:%Y}M{0:%m}", "{0:%Y} {0:%b} 01"):
        texts = [form.format(one) for one in months]
        np.testing.assert_array_equal(_encode(texts)[0], _encode(months)[0])


@pytest.mark.parametrize(
    "text", ["2001-W00", "2001-W54", "2001M13", "2001H3", "4711M12", "0815-W12"]
)
def test_what_only_looks_like_a_part_of_a_year_is_no_date(text):
    assert parse_date(text) is None


@pytest.mark.parametrize("kind", [int, float, str, "gaps"])
def test_whole_numbers_of_eight_digits_that_are_all_dates_are_dates(kind):
    numbers = [int(day.strftime("%Y%m%d")) for day in _DAYS]
    given: list[object] = (
        [float(v) for v in numbers] if kind == "gaps" else [kind(v) for v in numbers]
    )
    dates: list[object] = list(_DAYS)
    if kind == "gaps":
        given[3], dates[3] = np.nan, pd.NaT
    np.testing.assert_array_equal(_encode(given)[0], _encode(dates)[0])
    np.testing.assert_array_equal(_encode(given, given[7:9])[0], _encode(dates, dates[7:9])[0])
    encoder = TableEncoder().fit(pd.DataFrame({"t": given, "x": range(40)}))
    assert "numbers read as year, month and day" in encoder.columns_[0].done
    again = TableEncoder.from_state(encoder.to_state())
    for new in (20230229, 20241301, 12, 20240101.5):
        with pytest.raises(ValueError, match="expected dates such as 20241231"):
            again.transform(pd.DataFrame({"t": [new], "x": 0}))


def test_other_numbers_of_eight_digits_are_numbers():
    kinds = {
        "one is no day": [*range(20240101, 20240130), 20240199],
        "few": [20240101, 20240203, 20240401],
        "amounts": _RNG.integers(18_000_000, 21_000_000, 50).tolist(),
    }
    for values in kinds.values():
        frame = pd.DataFrame({"t": values, "x": range(len(values))})
        assert TableEncoder().fit(frame).columns_[0].kind == "number"
    named = pd.DataFrame({"row id": range(20240101, 20240129), "x": range(28)})
    assert "only number the rows" in TableEncoder().fit(named).dropped_["row id"]


def test_times_of_day_of_twelve_hours():
    times = [datetime.time(hour, 7 * hour % 60) for hour in range(24)]
    texts = [time.strftime("%I:%M %p") for time in times]
    np.testing.assert_allclose(_encode(texts)[0], _encode(times)[0], atol=1e-15)


def test_whether_the_day_or_the_month_is_first_the_other_rows_say():
    def done(texts: list[str]) -> str:
        frame = pd.DataFrame({"t": texts, "x": range(len(texts))})
        return TableEncoder().fit(frame).columns_[0].done

    months = [f"{month:02d}/01/{year}" for year in (2020, 2021, 2022) for month in range(1, 13)]
    assert "2020-01-01 to 2022-12-01" in done(months) and "read with the month first" in done(
        months
    )
    turned = [f"01/{text[:2]}/{text[-4:]}" for text in months]
    assert "2020-01-01 to 2022-12-01" in done(turned) and "read with the day first" in done(turned)
    # no row tells
    either = [f"{k % 11 + 2:02d}/{k % 10 + 3:02d}/20{k:02d}" for k in range(10, 60)]
    assert "either the day or the month may be first: write them as 2024-12-31" in done(either)
    # one does, beside a word and a day that is none
    told = done([*either, "31/12/2020", "unknown", "32/01/2021"])
    assert "read with the day first" in told and "2 values such as '32/01/2021', 'unknown'" in told
    told = done([*either, "12/31/2020", "unknown", "01/32/2021"])
    assert "read with the month first" in told and "2 values such as '01/32/2021'" in told


def test_no_such_day_is_no_date():
    frame = pd.DataFrame({"t": [day.strftime("%d/%m/%Y") for day in _DAYS], "x": range(40)})
    encoder = TableEncoder().fit(frame)
    for text in ("29/02/2023", "12/31/2024", "01/01/2024 25:00", "01/01/2024 13:00 PM"):
        with pytest.raises(ValueError, match="expected dates such as 31/12/2024"):
            encoder.transform(pd.DataFrame({"t": [text], "x": 0}))
