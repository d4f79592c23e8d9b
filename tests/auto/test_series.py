"""Rows that follow each other in time: how they are told, what is held out of them, and that forecasts hold."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import vastgp
from vastgp import GPClassifier, GPRegressor
from vastgp.auto import TableEncoder
from vastgp.auto.candidates import alone, regressors
from vastgp.auto.folds import size_out
from vastgp.auto.inputs import Inputs
from vastgp.auto.report.forecast import times_after
from vastgp.auto.report.of_model import report_data
from vastgp.auto.series import Times, folds_in_time, kernel_of_series, stretches, to_go_on_from
from vastgp.auto.trees import Grove
from vastgp.auto.warps import Log, Own, warps_to_try
from vastgp.kernels import Matern12, Matern32

_RNG = np.random.default_rng(0)


def _times(dates: object, **columns: object) -> Times | None:
    frame = pd.DataFrame({"when": dates, **columns})
    encoder = TableEncoder()
    return Times.of(encoder, encoder.fit_transform(frame))


def _days(count: int) -> pd.DatetimeIndex:
    return pd.date_range("2020-01-01", periods=count)


@pytest.mark.parametrize(
    "dates",
    [
        _days(100),
        _days(100)[_RNG.permutation(100)],
        _days(100).strftime("%d.%m.%Y"),
        np.delete(_days(200), [20, 50, 51, 120]),  # a few days are missing
        pd.date_range("2000-01-01", periods=40, freq="MS"),
        pd.date_range("2000-01-31", periods=40, freq="ME"),
        pd.date_range("1900-01-01", periods=100, freq="YS"),
        pd.date_range("2020-01-01", periods=300, freq="h"),
        pd.bdate_range("2020-01-01", periods=300),
        np.append(_days(100), _days(2)),  # two of them twice
    ],
)
def test_rows_of_moments_without_gaps_are_a_series(dates):
    times = _times(dates)
    assert times is not None and times.are_series
    assert to_go_on_from(times, "auto") is times
    assert to_go_on_from(times, "random") is None


@pytest.mark.parametrize(
    "dates",
    [
        _days(100)[np.sort(_RNG.permutation(100)[:80])],  # as after train_test_split
        _days(1000)[np.sort(_RNG.integers(0, 1000, 300))],
        np.repeat(_days(50), 3),
        _days(12),
    ],
)
def test_other_rows_are_none_unless_that_is_asked_for(dates):
    times = _times(dates)
    assert times is not None and not times.are_series and to_go_on_from(times, "auto") is None
    assert to_go_on_from(times, "last") is times


def test_years_are_times_under_their_name():
    years = np.arange(1900, 1960)
    for name in ("year", "Year", "fiscal_year"):
        encoder = TableEncoder()
        found = Times.of(encoder, encoder.fit_transform(pd.DataFrame({name: years})))
        assert found is not None and found.are_series and found.alone
        assert found.first == np.datetime64("1900-01-01")
        np.testing.assert_array_equal(found.years, years - 1900.0)
    for frame in (
        {"level": years},
        {"year": years - 1899},
        {"year": years + 0.5},
        {"yearly": years},
    ):
        assert Times.of(encoder, encoder.fit_transform(pd.DataFrame(frame))) is None
    some = pd.DataFrame({"year": np.repeat(years, 2)})
    assert not Times.of(encoder, encoder.fit_transform(some)).are_series


def test_without_dates_nothing_is_the_last():
    encoder = TableEncoder()
    assert Times.of(encoder, encoder.fit_transform(np.arange(40.0)[:, None])) is None
    gaps = _days(40).to_series().where(np.arange(40) != 7).to_numpy()
    assert _times(gaps, x=np.arange(40.0)) is None
    assert to_go_on_from(None, "auto") is None and to_go_on_from(None, "random") is None
    X, y = pd.DataFrame({"a": np.arange(40.0)}), np.arange(40.0) % 7
    with pytest.raises(ValueError, match=r"hold_out='last'.*no column of X holds dates"):
        GPRegressor(hold_out="last", max_seconds=2).fit(X, y)
    with pytest.raises(ValueError, match=r"hold_out must be one of .*'last'.*, received 'late'"):
        GPRegressor(hold_out="late").fit(X, y)


@pytest.mark.parametrize(
    ("n", "seconds", "parts"), [(20, 60, 3), (100, 60, 3), (100, 1, 1), (5000, None, 1)]
)
def test_what_is_held_out_comes_after_all_that_a_model_sees(n, seconds, parts):
    times = _RNG.permutation(n) // 2 / 365.0  # two rows a moment
    found = folds_in_time(times, seconds)
    assert len(found) == parts
    for fold in found:
        assert times[fold.training].max() < times[fold.held_out].min()
        # nothing before is left out, and rows of one moment are on one side
        np.testing.assert_array_equal(
            fold.training, np.flatnonzero(times < times[fold.held_out].min())
        )
        assert np.all(np.diff(fold.training) > 0) and np.all(np.diff(fold.held_out) > 0)
    last = np.concatenate([fold.held_out for fold in found])
    assert len(np.unique(last)) == len(last) and times[last].max() == times.max()
    wanted = 0.45 * n if parts == 3 else size_out(n, seconds)
    assert abs(len(last) - wanted) <= 2


@pytest.mark.parametrize(("n", "seconds"), [(300, 60), (5000, 60)])
def test_rows_of_a_stretch_of_time_count_as_one(n, seconds):
    times = _RNG.permutation(n) / 365.0
    folds = folds_in_time(times, seconds)
    held_out = np.concatenate([fold.held_out for fold in folds])
    found = stretches(times, folds)
    sizes = np.bincount(found[held_out])
    assert len(sizes) == 24 and sizes.max() - sizes.min() <= 2
    # stretches are intervals of time, and no other row is of one
    firsts, lasts = (
        np.array([pick(times[held_out][found[held_out] == k]) for k in range(24)])
        for pick in (np.min, np.max)
    )
    assert np.all(lasts[:-1] < firsts[1:])
    assert not np.isin(np.delete(found, held_out), found[held_out]).any()


@pytest.mark.parametrize("rough", [Matern12, Matern32])
def test_the_kernel_is_a_line_and_two_sizes_of_structure(rough):
    X, Z = _RNG.normal(size=(7, 4)), _RNG.normal(size=(5, 4))
    found = np.asarray(
        kernel_of_series(rough, [(1,), (0, 2), (3,)])(jnp.asarray(X), jnp.asarray(Z))
    )
    squares = ((X[:, None] - Z[None]) ** 2).sum(-1)
    far = np.sqrt(squares) / 3.0
    wild = np.exp(-far) if rough is Matern12 else (1 + np.sqrt(3) * far) * np.exp(-np.sqrt(3) * far)
    expected = 0.3 * X @ Z.T + 0.5 * np.exp(-squares / 2) + 0.5 * wild
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    # columns of one input have one lengthscale
    assert all(
        len(part.lengthscales) == 3
        for part in kernel_of_series(rough, [(1,), (0, 2), (3,)]).parts[1:]
    )


def test_what_grows_is_tried_by_logarithms():
    level = 100.0 * np.exp(np.linspace(0.0, 1.0, 200))
    assert [type(each) for each in warps_to_try(level, series=True)] == [Log, Own]
    assert len(warps_to_try(level)) == 1  # it is hardly skewed
    assert len(warps_to_try(level - 150.0, series=True)) == 1
    assert len(warps_to_try(1000.0 + _RNG.normal(size=200), series=True)) == 1


def test_candidates_of_a_series_begin_with_a_trend():
    common = {"tied": True, "counts": False, "likelihood": "auto"}
    found = regressors(2000, 10, series=True, **common)
    assert [one.name for one in found[:3]] == ["exact, trend", "exact, walk", "exact"]
    assert alone(found, 20.0).name == "exact, trend"
    assert not any(one.begins_at for one in regressors(2000, 10, **common))
    # trees know nothing of days that come
    names = [one.name for one in regressors(2000, 10, series=True, dates_alone=True, **common)]
    assert not any("trees" in name for name in names)
    assert any("trees" in one.name for one in found)
    assert _times(_days(40)).alone and not _times(_days(40), x=np.arange(40.0)).alone
    tied = [(0,), (1, 2)]
    made = found[0].make(seed=0, seconds=1.0, tied=tied)
    assert made.kernel == kernel_of_series(Matern32, tied)
    again = found[0].make(seed=0, seconds=1.0, tied=tied, kernel=Matern12())
    assert again.kernel == Matern12()  # a last fit goes on from the race's


@pytest.mark.parametrize("in_time", [True, False])
def test_trees_are_not_told_of_time_that_goes_on(in_time):
    frame = pd.DataFrame({"x": _RNG.normal(size=600), "day": _days(600)})
    y = 5.0 * (np.arange(600) > 300) + (frame["x"].to_numpy() > 0)
    inputs = Inputs.of(frame, None, None, np.arange(600), None, 600)
    rows, _, _ = inputs.fold(0, np.arange(500), np.arange(500, 600), y)
    grown, X = Grove(inputs, 0, seed=0, in_time=in_time).of_fold(0, rows, Own()), np.asarray(rows.X)
    early, late = X.copy(), X.copy()
    early[:, 1], late[:, 1] = X[0, 1], X[-1, 1]
    same = np.array_equal(grown.trees.predict(early), grown.trees.predict(late))
    assert same == in_time
    # of what else is there they are
    assert np.ptp(grown.trees.predict(late)) > 0.5


def _monthly(n: int) -> pd.DataFrame:
    """Monthly sales that grow by 1 % a month, with a season of 20 % and noise of 5 %."""
    months = pd.date_range("2000-01-01", periods=n, freq="MS")
    rng, k = np.random.default_rng(3), np.arange(n)
    level = 100.0 * np.exp(0.01 * k + 0.2 * np.sin(2 * np.pi * k / 12) + 0.05 * rng.normal(size=n))
    return pd.DataFrame({"month": months.strftime("%Y-%m"), "sales": level})


def test_a_series_goes_on_beyond_its_end(tmp_path):
    frame = _monthly(150)
    seen, coming = frame[:120], frame[120:]
    model = GPRegressor(max_seconds=12, random_state=0).fit(seen, "sales")
    assert "the last rows in time" in str(model.leaderboard_)
    mean, std = model.predict(coming, return_std=True)
    truth = coming["sales"].to_numpy()
    low, high = np.asarray(model.predict_interval(coming, level=0.95)).T
    assert np.mean((low <= truth) & (truth <= high)) >= 0.9
    assert np.sqrt(np.mean(((mean - truth) / truth) ** 2)) < 0.1
    # what is far is less certain than what is near
    assert np.mean(std[-6:]) > np.mean(std[:6])
    model.save(tmp_path / "sales.vastgp")
    again = vastgp.load(tmp_path / "sales.vastgp")
    assert again.hold_out == "auto" and str(again.leaderboard_) == str(model.leaderboard_)
    np.testing.assert_array_equal(again.predict(coming), mean)
    _check_forecast(again, seen, coming)
    again.report(tmp_path / "sales.html")
    page = (tmp_path / "sales.html").read_text()
    assert 'id="forecast"' in page and "what comes next" in page


def _check_forecast(model: GPRegressor, seen: pd.DataFrame, coming: pd.DataFrame) -> None:
    """A report's picture has the held-out rows, three spans of them, and what `predict` says of the months to come."""
    shown = report_data(model).forecast
    held = seen.iloc[model.held_out_["row"]]
    assert shown.name == "month" and np.array_equal(shown.y, held["sales"])
    np.testing.assert_array_equal(shown.times, held["month"].to_numpy("M8[us]"))
    assert np.bincount(shown.span).tolist() == [18] * 3
    # each is all of what comes between two moments
    assert np.all(np.diff(shown.span[np.argsort(shown.times)]) >= 0)
    times, mean, low, high = shown.ahead
    ahead = coming[: len(times)]
    assert len(times) == 18
    np.testing.assert_array_equal(times, ahead["month"].to_numpy("M8[us]"))
    np.testing.assert_array_equal(mean, model.predict(ahead))
    interval = np.asarray(model.predict_interval(ahead, level=0.95))
    np.testing.assert_allclose(np.column_stack([low, high]), interval)
    given = report_data(model, coming, "sales").forecast
    np.testing.assert_array_equal(given.mean, model.predict(coming))
    assert given.ahead is None and given.span is None
    interval = np.asarray(model.predict_interval(coming, level=0.95))
    assert type(model.warp_) is Log and type(model.model_).__name__ == "ExactGPRegressor"
    np.testing.assert_array_equal(np.column_stack([given.low, given.high]), interval)


@pytest.mark.parametrize("settings", [{"likelihood": "student-t"}, {"calibrate": "isotonic"}])
def test_intervals_of_forecasts_are_the_calibrated_ones(settings, tmp_path):
    rng = np.random.default_rng(4)
    days = pd.date_range("2023-01-01", periods=90)
    y = np.sin(np.arange(90) / 9.0) + 0.1 * rng.standard_t(1.5, 90)
    frame = pd.DataFrame({"day": days, "y": y})
    method = "tsvgp" if "likelihood" in settings else "exact"
    model = GPRegressor(method=method, max_work=1000, **settings).fit(frame, "y")
    model.save(tmp_path / "model.vastgp")
    shown = report_data(vastgp.load(tmp_path / "model.vastgp"))
    inside = (shown.forecast.low <= shown.y) & (shown.y <= shown.forecast.high)
    # an interval from one level to another holds what has a level between them
    np.testing.assert_array_equal(inside, np.abs(shown.u - 0.5) <= 0.475)
    assert np.mean(inside) > 0.8
    np.testing.assert_array_equal(
        [shown.low, shown.high], [shown.forecast.low, shown.forecast.high]
    )
    given = report_data(model, frame, "y")
    np.testing.assert_array_equal(
        np.column_stack([given.low, given.high]), model.predict_interval(frame)
    )


@pytest.mark.parametrize(
    ("freq", "start"),
    [("D", "2024-02-20"), ("MS", "2024-01-01"), ("ME", "2024-01-31"), ("QS", "2024-01-01"), ("YS", "2000-01-01"),
     ("h", "2024-01-01 05:00"), ("B", "2024-01-02"), ("W", "2024-01-07"), ("15min", "2024-01-01")],
)  # fmt: skip
def test_moments_go_on_as_they_did(freq, start):
    dates = pd.date_range(start, periods=60, freq=freq).to_numpy("M8[us]")
    np.testing.assert_array_equal(times_after(dates[:40], 20), dates[40:])


def test_years_go_on_and_other_inputs_leave_nothing_to_say_of_what_comes():
    np.testing.assert_array_equal(
        times_after(np.arange(1990.0, 2000.0), 3), [2000.0, 2001.0, 2002.0]
    )
    frame = pd.DataFrame({"year": np.arange(1900, 1960), "x": _RNG.normal(size=60)})
    frame["y"] = frame["x"] + 0.02 * frame["year"] + 0.1 * _RNG.normal(size=60)
    model = GPRegressor(max_seconds=3, random_state=0).fit(frame, "y")
    shown = report_data(model).forecast
    assert shown.ahead is None and shown.times.min() > 1920
    np.testing.assert_array_equal(shown.times, frame["year"][model.held_out_["row"]])
    by_random_rows = GPRegressor(max_seconds=2, random_state=0, hold_out="random").fit(frame, "y")
    assert report_data(by_random_rows).forecast is None


def test_random_rows_judge_a_series_where_that_is_asked_for():
    frame = _monthly(60)
    model = GPRegressor(max_seconds=3, random_state=0, hold_out="random").fit(frame, "sales")
    assert model.leaderboard_.note == ""
    assert not any("trend" in entry.method for entry in model.leaderboard_)


def test_a_table_with_dates_says_how_it_was_judged(tmp_path):
    frame = pd.DataFrame({"day": np.repeat(_days(20), 3), "x": _RNG.normal(size=60)})
    frame["y"] = frame["x"] + 0.1 * _RNG.normal(size=60)
    model = GPRegressor(max_seconds=2, random_state=0).fit(frame, "y")
    assert "random rows; for forecasts, hold_out='last'" in model.leaderboard_.note
    model.save(tmp_path / "sales.vastgp")
    assert vastgp.load(tmp_path / "sales.vastgp").leaderboard_.note == model.leaderboard_.note
    for other in ({"hold_out": "random"}, {}):
        rows = frame if other else frame.drop(columns="day")
        assert (
            GPRegressor(max_seconds=2, random_state=0, **other).fit(rows, "y").leaderboard_.note
            == ""
        )


def test_classes_of_rows_in_time_are_judged_by_the_last(tmp_path):
    frame = pd.DataFrame({"day": np.repeat(_days(60), 4), "x": _RNG.normal(size=240)})
    frame["warm"] = np.where(frame["x"] + 0.3 * _RNG.normal(size=240) > 0, "yes", "no")
    model = GPClassifier(max_seconds=4, random_state=0, hold_out="last").fit(frame, "warm")
    assert "the last rows in time" in str(model.leaderboard_)
    first = frame["day"].to_numpy()[model.held_out_["row"]].min()
    assert len(model.held_out_["row"]) == np.sum(frame["day"] >= first)
