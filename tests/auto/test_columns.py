"""What each kind of column becomes, against closed forms."""

from __future__ import annotations

import datetime
import decimal
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.preprocessing import TargetEncoder

from auto.tables import without_directions
from vastgp.auto import TableEncoder
from vastgp.auto.categories import TextFacts, code_vectors
from vastgp.auto.numeric import Sample
from vastgp.auto.values import text_of

_RNG = np.random.default_rng(0)


def _one(values: object, new: object = None, **options: object) -> np.ndarray:
    """Fit one column, beside one that is always kept, and return what it becomes."""
    frame = pd.DataFrame({"v": values, "other": np.arange(len(values)) + 0.5})  # type: ignore[arg-type]
    encoder = TableEncoder(**options).fit(frame)  # type: ignore[arg-type]
    if new is not None:
        frame = pd.DataFrame({"v": new, "other": 0.0})
    return without_directions(encoder, encoder.transform(frame))[:, :-1]


def _squared_distances(points: np.ndarray) -> np.ndarray:
    return ((points[:, None] - points[None]) ** 2).sum(-1)


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    "values",
    [
        [1234.0, 2.5, -3.0, 1e5],
        ["1,234", " 2.5", "-3", "1e5"],
        [decimal.Decimal("1234"), decimal.Decimal("2.5"), decimal.Decimal(-3), 10**5],
        pd.array([1234.0, 2.5, -3.0, 1e5], dtype="Float64"),
        np.array([1234, 2.5, -3, 1e5], dtype=np.float32),
        [1234, "2.5", -3, "100,000"],
    ],
)
def test_numbers_are_as_they_are(values):
    np.testing.assert_array_equal(_one(values, squash=False)[:, 0], [1234.0, 2.5, -3.0, 1e5])


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["$1,200.50", "-$5", "($3.00)", "$ 7"], [1200.5, -5, -3, 7]),
        (["15%", "2.5 %", "100%", "-3%"], [15, 2.5, 100, -3]),
        (["3.5 km/h", "12km/h", "0.25 km/h", "1 km/h"], [3.5, 12, 0.25, 1]),
        (["3.000,50 €", "-7 €", "1 234,5 €", "12,25€"], [3000.5, -7, 1234.5, 12.25]),
        (["US$ 3", "US$4.5", "US$-1", "US$1,000"], [3, 4.5, -1, 1000]),
        (["1'234.50 CHF", "7 CHF", ".5 CHF", "2e3 CHF"], [1234.5, 7, 0.5, 2000]),
        (["1\u202f234.5", "7", "2\u00a0000\u00a0000", "1"], [1234.5, 7, 2e6, 1]),
    ],
)
def test_numbers_with_a_unit_are_numbers(texts, numbers):
    np.testing.assert_array_equal(_one(texts, squash=False)[:, 0], numbers)
    # alone in a new row, as in the fit, whatever it says of itself
    np.testing.assert_array_equal(_one(texts, texts[::-1], squash=False)[:, 0], numbers[::-1])
    np.testing.assert_array_equal(_one(texts, numbers, squash=False)[:, 0], numbers)


@pytest.mark.parametrize(
    "texts",
    [
        ["500 g", "1 kg", "2 kg"],  # 500 of one are less than 1 of the other
        ["A12", "A13", "A7"],  # names
        ["18-24 years", "25-34 years", "35-44 years"],
        ["1st", "2nd", "3rd"],
        ["10-12-45", "11-02-33", "01-07-20"],  # could be a date in six ways
        ["1.2.34", "1.10.2", "2.0.1"],  # versions
    ],
)
def test_other_text_with_digits_is_text(texts):
    encoder = TableEncoder().fit(pd.DataFrame({"v": texts * 4, "x": range(12)}))
    assert encoder.columns_[0].kind == "category"


def test_a_unit_is_told_of_and_kept():
    encoder = TableEncoder().fit(pd.DataFrame({"rate": ["5 %", "12.5 %", "7 %"], "x": range(3)}))
    assert encoder.columns_[0].done == "5 % to 12.5 %, as it is"
    again = TableEncoder.from_state(encoder.to_state())
    new = pd.DataFrame({"rate": ["8 %"], "x": 0})
    np.testing.assert_array_equal(again.transform(new), [[8.0, 0.0]])
    with pytest.raises(ValueError, match=r"text such as '8 kg' in row 0.* numbers such as '12 %'"):
        again.transform(pd.DataFrame({"rate": ["8 kg"], "x": 0}))


def test_a_few_words_among_numbers_with_a_unit_are_gaps():
    texts = [*(f"{k} %" for k in range(60)), "unknown", "n.d."]
    encoder = TableEncoder().fit(pd.DataFrame({"v": texts, "x": range(62)}))
    assert encoder.columns_[0].kind == "number"
    assert "2 values such as 'n.d.', 'unknown' could not be read" in encoder.columns_[0].done


def test_numbers_of_polars():
    frame = pl.DataFrame(
        {
            "wide": pl.Series([2**70, 1, 3], dtype=pl.Int128),
            "narrow": pl.Series([1, 2, 255], dtype=pl.UInt8),
            "exact": pl.Series(["1.5", "2", "3"]).cast(pl.Decimal(10, 2)),
            "gap": pl.Series([1.0, None, float("nan")]),
            "nothing": pl.Series([None] * 3),
        }
    )
    encoder = TableEncoder(squash=False)
    found = encoder.fit_transform(frame.with_columns(x=pl.lit(0.5)))
    found = without_directions(encoder, found)
    expected = [[2.0**70, 1, 1.5, 0], [1, 2, 2, 1], [3, 255, 3, 1]]
    np.testing.assert_array_equal(found, expected)


def test_gaps_become_the_median_and_an_indicator():
    for values in ([1.0, np.nan, 3.0, 7.0], ["1", None, "3", "7"], ["1", "NA", "3", "7"]):
        expected = [[1, 0], [3, 1], [3, 0], [7, 0]]
        np.testing.assert_array_equal(_one(values), expected)
    for values in ([True, None, False, True], pd.array([1, None, 0, 1], dtype="boolean")):
        np.testing.assert_array_equal(_one(values), [[1, 0], [1, 1], [0, 0], [1, 0]])


def test_a_gap_that_training_had_none_of_is_counted():
    frame = pd.DataFrame({"a": [1.0, 2.0, 9.0], "b": [1.0, 2.0, 3.0]})
    encoder = TableEncoder().fit(frame)
    with pytest.warns(UserWarning, match=r"gaps in columns that had none in the fit: 'a' \(2\)"):
        found = encoder.transform(frame.assign(a=[np.nan, 5.0, np.nan]))
    np.testing.assert_array_equal(found[:, 0], [2.0, 5.0, 2.0])


def test_long_tails_are_drawn_in():
    values = np.append(np.linspace(-1, 1, 101), 1000.0)
    median, spread = np.median(values), np.subtract(*np.quantile(values, [0.75, 0.25]))
    expected = np.arcsinh((values - median) / spread)
    np.testing.assert_allclose(_one(values)[:, 0], expected, rtol=1e-14)
    np.testing.assert_array_equal(_one(values, squash=False)[:, 0], values)
    # nine interquartile ranges are no long tail, eleven are
    for far, squashed in ((9.0, False), (11.0, True)):
        near = np.append(np.linspace(-1, 1, 1001), far * 1.0)
        assert (_one(near)[-1, 0] != near[-1]) == squashed


def test_numbers_of_many_magnitudes_are_their_logarithms_where_the_target_says_so():
    rng = np.random.default_rng(1)
    weights = np.exp(2.0 * rng.normal(size=200))
    speeds = np.tanh(np.log(weights)) + 0.3 * rng.normal(size=200)
    encoder = TableEncoder()
    found = encoder.fit_transform(weights[:, None], speeds)[:, 0]
    np.testing.assert_array_equal(found, np.log(weights))
    assert "on the scale of its logarithm" in encoder.columns_[0].done
    # new ones below go on, however far they are
    low = weights.min()
    found = encoder.transform(np.array([[low], [0.0], [-low], [-1e300], [1e300]]))[:, 0]
    np.testing.assert_allclose(found[:3], np.log(low) - np.log([1.0, 2.0, 3.0]), rtol=1e-12)
    np.testing.assert_allclose(found[3:], [2.0 * np.log(low) - np.log(1e300), np.log(1e300)])
    # fewer rows have the scale of all, though their targets say nothing
    some = TableEncoder().fit_transform(weights[:60, None], rng.normal(size=60), like=encoder)
    np.testing.assert_array_equal(some[:, 0], np.log(weights[:60]))
    # without a target, by one of which it is as good as a line, or which says nothing of either
    line = weights + 0.01 * rng.normal(size=200)
    for options, y in (
        ({}, None),
        ({"target_mean": False}, speeds),
        ({}, line),
        ({}, rng.normal(size=200)),
    ):
        _is_asinh(TableEncoder(**options).fit_transform(weights[:, None], y)[:, 0], weights)
    plain = TableEncoder(squash=False).fit_transform(weights[:, None], speeds)
    np.testing.assert_array_equal(plain[:, 0], weights)
    # a power of them is one of their logarithms, with errors that are shares of it
    power = weights**0.75 * np.exp(0.5 * rng.normal(size=200))
    found = TableEncoder().fit_transform(weights[:, None], power)[:, 0]
    np.testing.assert_array_equal(found, np.log(weights))
    # nor where few are far out, some are zero, or logarithms have tails of their own
    outliers = np.append(np.linspace(1.0, 3.0, 199), 400.0)
    tiny = np.append(weights[:-2], [1e-30, 1e-30])
    for values in (outliers, np.append(weights[:-1], 0.0), tiny):
        _is_asinh(TableEncoder().fit_transform(values[:, None], speeds)[:, 0], values)


def _is_asinh(found, values):
    median, spread = np.median(values), np.subtract(*np.quantile(values, [0.75, 0.25]))
    np.testing.assert_allclose(found, np.arcsinh((values - median) / spread))


def test_what_differs_by_rounding_sets_no_scale():
    rng = np.random.default_rng(0)
    almost = 2.5 + 1e-8 * rng.normal(size=75)
    for rest in (rng.uniform(0.0, 1.0, 25), 0.3 + 1e-8 * rng.normal(size=25)):
        two_places = np.append(almost, rest)
        np.testing.assert_array_equal(_one(two_places)[:, 0], two_places)
    # what all of the others have stands for a gap; and a few of them, whatever they are, are outliers
    measured = rng.normal(size=195)
    for others in (np.full(5, -9.9e36), np.array([1e9]), np.array([-1e300, 1e300])):
        assert np.abs(_one(np.append(measured, others))[:195, 0]).max() > 1.0
        assert np.abs(_one(np.append(measured, others))[:, 0]).max() < 1000.0


def test_values_at_all_distances_are_no_rounding():
    """As they were, of a row in 1e50 nothing was told but by a line: means of 1e25 for targets of about ten."""
    rng = np.random.default_rng(4)
    constants = np.exp(30.0 * rng.normal(size=200)) * rng.choice([-1.0, 1.0], 200)
    assert np.abs(constants).max() > 1e20
    _is_asinh(_one(constants)[:, 0], constants)


def test_a_constant_with_gaps_is_its_gaps():
    np.testing.assert_array_equal(_one([3.0, np.nan, 3.0])[:, 0], [0, 1, 0])


def test_durations_are_seconds():
    values = pd.to_timedelta([90.5, 1.0, None], unit="s")
    np.testing.assert_array_equal(_one(values), [[90.5, 0], [1.0, 0], [45.75, 1]])
    text = ["0 days 00:01:30.500000", "-1 days +23:59:59", "2 days"]
    np.testing.assert_array_equal(_one(text)[:, 0], [90.5, -1.0, 2 * 86_400])


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps"])
def test_durations_of_any_unit_and_length_are_seconds(unit):
    """A cast to microseconds wrapped around beyond 292,000 years: 10^18 seconds became 2 x 10^12."""
    stored = np.array([3, -7, 10**17, -(10**18), 2**62])
    year = 365.2425 * 86_400
    second = {"Y": year, "M": year / 12, "W": 604_800, "D": 86_400, "h": 3600, "m": 60}
    second |= {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}
    vector = stored.astype(f"m8[{unit}]")
    for given in (vector, np.array([*vector, None], dtype=object)[:-1]):
        found = TableEncoder(squash=False).fit_transform(given[:, None])
        np.testing.assert_allclose(found[:, 0], stored * float(second[unit]), rtol=1e-15)


def test_the_same_duration_is_the_same_number_in_any_unit_and_type():
    micro = _RNG.integers(-(10**14), 10**14, 50)
    wanted = micro / 1e6
    for given in (
        micro.astype("m8[us]"),
        (1000 * micro).astype("m8[ns]"),
        np.array([datetime.timedelta(microseconds=int(one)) for one in micro]),
        pd.Series((1000 * micro).astype("m8[ns]")),
    ):
        np.testing.assert_array_equal(_one(given, squash=False)[:, 0], wanted)
    longest = np.array([[datetime.timedelta.max], [datetime.timedelta.min]])
    found = TableEncoder(squash=False).fit_transform(longest)
    np.testing.assert_allclose(found[:, 0], [86_400e9, -86_399_999_913_600.0])


def test_the_sample_does_not_depend_on_blocks():
    values = _RNG.normal(size=5000)
    whole, parts = Sample(300), Sample(300)
    whole.add(values, np.arange(5000))
    for start in range(0, 5000, 37):
        rows = np.arange(start, min(5000, start + 37))
        parts.add(values[rows], rows)
    np.testing.assert_array_equal(whole.values(), parts.values())
    assert len(whole.values()) == 300
    # a sample of 300 places a median within four standard errors, 4 / (2 f(0) sqrt(300))
    assert abs(np.median(whole.values()) - np.median(values)) < 4 * 0.5 / 0.3989 / np.sqrt(300)


def test_the_sample_of_sorted_rows_is_uniform():
    sample = Sample(10_000)
    for start in range(0, 200_000, 10_000):
        rows = np.arange(start, start + 10_000)
        sample.add(rows / 200_000, rows)
    # mean of 10,000 uniform numbers, four standard errors
    assert abs(sample.values().mean() - 0.5) < 4 / np.sqrt(12 * 10_000)


# ---------------------------------------------------------------- categories


@pytest.mark.parametrize("gap", [False, True])
def test_levels_seen_or_not_are_all_equally_far_apart(gap):
    values = ["a", "b", "c", None if gap else "a"] * 3
    found = _one(values, ["a", "b", "c", "never", None])
    distances = _squared_distances(found)
    other = 2.0 * (1 - np.eye(5))
    if not gap:  # a gap is a level never seen, and so are two of these the same
        other[3, 4] = other[4, 3] = 0.0
    np.testing.assert_array_equal(distances, other)
    assert not _one(values)[:, -1].any()


def test_objects_that_begin_as_text():
    values = pd.Series(["a", "b"] * 150 + [1, 2.0, True, np.nan], dtype=object)
    found = _one(values)
    np.testing.assert_array_equal(found[-4:].argmax(1), [0, 1, 2, 5])  # 1, 2, True, a, b, missing
    assert found.shape == (304, 7)


def test_many_levels_are_nearly_equally_far_apart():
    vectors = code_vectors([f"level {i}" for i in range(1500)])
    np.testing.assert_allclose((vectors**2).sum(1), 1.0, rtol=1e-12)
    products = (vectors @ vectors.T)[np.triu_indices(1500, 1)]
    # u.v has mean 0 and variance 1/16; the pairs are uncorrelated, and so are their squares nearly (fourth moment 3 /
    # (16 x 18))
    pairs = len(products)
    assert abs(products.mean()) < 4 * 0.25 / np.sqrt(pairs)
    error = np.sqrt((3 / (16 * 18) - 1 / 256) / pairs)
    assert abs((products**2).mean() - 1 / 16) < 4 * error


def test_many_levels_have_a_code_each_and_unseen_ones_too():
    values = [f"k{i}" for i in _RNG.integers(0, 50, 400)]
    found = _one(values, ["k1", "k2", "new", None, "k1"])
    assert found.shape[1] == 16
    np.testing.assert_array_equal(found[[0, 1, 2]], code_vectors(["k1", "k2", "new"]))
    np.testing.assert_array_equal(found[0], found[4])
    assert _squared_distances(found[:4])[np.triu_indices(4, 1)].min() > 0.2


def test_the_mean_of_the_target_is_that_of_other_rows():
    codes = _RNG.integers(0, 40, 600)
    values = np.array([f"k{i:02d}" for i in codes])
    y = codes + _RNG.normal(size=600)
    frame = pd.DataFrame({"k": values})
    encoder = TableEncoder()
    training = encoder.fit_transform(frame, y)
    reference = TargetEncoder(target_type="continuous").fit(values[:, None], y)
    new = encoder.transform(pd.DataFrame({"k": [*values, "never", None]}))[:, -1]
    np.testing.assert_allclose(new[:600], reference.transform(values[:, None])[:, 0], rtol=1e-12)
    np.testing.assert_allclose(new[600:], y.mean(), rtol=1e-12)
    # of a target that is pure noise, the mean of other rows says nothing: correlation 0 within four standard errors,
    # where the mean with the row's own target correlates
    noise = np.random.default_rng(5).normal(size=600)
    cross = TableEncoder().fit_transform(frame, noise)[:, -1]
    assert np.corrcoef(cross, noise)[0, 1] < 4 / np.sqrt(600)
    assert np.corrcoef(TableEncoder().fit(frame, noise).transform(frame)[:, -1], noise)[0, 1] > 0.2
    assert training.shape == (600, 17) and not np.array_equal(training[:, -1], new[:600])


def test_the_mean_of_the_target_only_of_numbers():
    frame = pd.DataFrame({"k": [f"k{i}" for i in _RNG.integers(0, 40, 200)]})
    labels = np.where(_RNG.random(200) < 0.5, "yes", "no")
    for y, options in ((labels, {}), (None, {}), (_RNG.normal(size=200), {"target_mean": False})):
        assert TableEncoder(**options).fit(frame, y).transform(frame).shape == (200, 16)
    # rows without a target count nowhere
    y = _RNG.normal(size=200)
    gaps = np.where(np.arange(200) < 50, np.nan, y)
    found = TableEncoder().fit(frame, gaps).transform(frame)[:, -1]
    there = TableEncoder().fit(frame[50:], y[50:])
    seen = frame["k"].isin(set(frame["k"][50:])).to_numpy()
    np.testing.assert_allclose(found[seen], there.transform(frame)[seen, -1], rtol=1e-12)


def test_levels_have_the_share_of_each_of_several_classes():
    rng = np.random.default_rng(6)
    codes = rng.integers(0, 40, 600)
    frame = pd.DataFrame({"k": [f"k{i:02d}" for i in codes], "x": rng.normal(size=600)})
    labels = (codes + rng.integers(0, 2, 600)) % 3
    of_each = np.eye(3)[labels]
    encoder = TableEncoder()
    rows = encoder.fit_transform(frame, None, classes=of_each)
    assert encoder.tied_ == (tuple(range(16)), (16, 17, 18), (19,))
    names = encoder.get_feature_names_out()[16:19].tolist()
    assert names == ["k mean target 1", "k mean target 2", "k mean target 3"]
    assert "beside it the shares of the classes in each level" in encoder.columns_[0].done
    new = encoder.transform(frame)
    for number in range(3):
        one = TableEncoder()
        np.testing.assert_array_equal(
            rows[:, 16 + number], one.fit_transform(frame, of_each[:, number])[:, 16]
        )
        np.testing.assert_array_equal(new[:, 16 + number], one.transform(frame)[:, 16])
    again = TableEncoder.from_state(encoder.to_state())
    np.testing.assert_array_equal(again.transform(frame), new)
    # rows without a class count nowhere
    gaps = np.where(np.arange(600)[:, None] < 100, np.nan, of_each)
    some = TableEncoder()
    some.fit_transform(frame, None, classes=gaps)
    there = TableEncoder()
    there.fit_transform(frame[100:], None, classes=of_each[100:])
    np.testing.assert_allclose(
        some.transform(frame)[:, 16:19], there.transform(frame)[:, 16:19], rtol=1e-12
    )


def test_text_of_pairs_is_an_input_where_these_are_alike():
    """Two thirds of the values differ: a state of two senators, or a page with two names."""
    rng = np.random.default_rng(0)
    codes = np.concatenate([np.repeat(np.arange(30), 2), np.arange(30, 60)])
    frame = pd.DataFrame({"k": [f"k{i}" for i in codes], "x": rng.normal(size=90)})
    alike = rng.normal(size=60)[codes] + 0.3 * rng.normal(size=90)
    encoder = TableEncoder().fit(frame, np.exp(alike))
    (column, _) = encoder.columns_
    assert column.kind == "codes" and column.kept and not column.reason
    assert encoder.transform(frame).shape == (90, 18)
    # fewer rows keep it, though they are of one name each
    assert TableEncoder()._fit(frame[60:], alike[60:], (), encoder.columns_)[1].keys() == {(16,)}
    chance = 0
    for seed in range(40):
        found = TableEncoder().fit(frame, np.random.default_rng(seed).normal(size=90))
        chance += found.columns_[0].kept
    assert chance <= 3
    for y, options in ((None, {}), (alike, {"target_mean": False})):
        (column, _) = TableEncoder(**options).fit(frame, y).columns_
        assert not column.kept and column.kind == "text" and "tells rows apart" in column.reason
    # of more different values nobody looks
    frame["k"] = [f"k{i}" for i in np.concatenate([np.repeat(np.arange(20), 2), np.arange(50)])]
    assert not TableEncoder().fit(frame, codes.astype(float)).columns_[0].kept


def test_text_that_is_all_distinct_is_left_out():
    frame = pd.DataFrame({"v": np.arange(40.0) / 7, "t": [f"text {i}" for i in range(40)]})
    encoder = TableEncoder().fit(frame)
    assert "text such as 'text 0', 40 different ones in 40 rows" in encoder.dropped_["t"]
    short = TableEncoder().fit(frame[:20])  # no more than max_levels, but one each
    assert "t" in short.dropped_


def test_the_number_of_very_many_levels_is_estimated(monkeypatch):
    monkeypatch.setattr("vastgp.auto.categories.MOST_LEVELS", 2000)
    monkeypatch.setattr("vastgp.auto.categories._SKETCH", 1000)
    found = []
    for size in (500, 1300):
        facts = TextFacts(declared=True)
        for start in range(0, 20_000, size):
            rows = range(start, min(20_000, start + size))
            facts.update(start, text_of(np.array([f"t{i % 10_000}" for i in rows])))
        assert facts.levels is None
        found.append(facts.distinct)
    # of the k-th smallest of n uniform numbers: standard error 1 / sqrt(k)
    assert abs(found[0] / 10_000 - 1) < 4 / np.sqrt(1000)
    assert found[0] == found[1]


def test_words_for_nothing_are_gaps():
    values = ["a", "b", None, "NA", "a", ""] * 3
    assert _one(values).shape == (18, 4)
    np.testing.assert_array_equal(_one(values)[:6].argmax(1), [0, 1, 2, 2, 0, 2])
    np.testing.assert_array_equal(_one(["a", "b", "a"], ["NA", None, "a"])[:, 2], [1, 1, 0])
    np.testing.assert_array_equal(_one(["a", "NA"] * 2, ordered={"v": ["NA", "a"]})[:2, 0], [1, 0])
    coded = [f"k{i}" for i in range(60)] * 3
    found = _one([*coded, "NA", None])
    np.testing.assert_array_equal(found[-1], found[-2])


def test_ordered_categories_are_ranks():
    order = ["S", "M", "L", "XL"]
    values = ["M", "S", "L", "M", None]
    expected = [[1, 0], [0, 0], [2, 0], [1, 0], [1, 1]]
    series = pd.Categorical(values, categories=order, ordered=True)
    np.testing.assert_array_equal(_one(series), expected)
    np.testing.assert_array_equal(_one(values, ordered={"v": order}), expected)
    enum = pl.DataFrame({"v": pl.Series(values, dtype=pl.Enum(order))})
    for table in (enum, enum.to_arrow()):
        encoder = TableEncoder()
        found = without_directions(encoder, encoder.fit_transform(table))
        np.testing.assert_array_equal(found, expected)
    numbers = [2, 1, 3, 2, None]
    np.testing.assert_array_equal(_one(numbers, ordered={"v": [1, 2, 3]}), expected)
    # the order can be taken away
    assert _one(series, ordered={"v": []}).shape == (5, 5)
    bins = pd.cut([1.0, 5.0, 9.0, 5.0], 3)
    np.testing.assert_array_equal(_one(bins)[:, 0], [0, 1, 2, 1])


def test_ordered_categories_of_files(tmp_path):
    order = ["S", "M", "L", "XL"]
    values = np.repeat(["L", "S", "M"], 4)  # each row group has one level
    frame = pd.DataFrame({"v": pd.Categorical(values, categories=order, ordered=True)})
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_pandas(frame), path, row_group_size=4)
    found = TableEncoder().fit_transform(path)
    np.testing.assert_array_equal(found[:, 0], np.repeat([2, 0, 1], 4))


def test_a_level_without_a_rank_is_a_gap():
    frame = pd.DataFrame({"v": ["S", "M", "L"]})
    encoder = TableEncoder(ordered={"v": ["S", "M", "L"]}).fit(frame)
    with pytest.warns(UserWarning, match=r"'v' \(1\)"):
        found = encoder.transform(pd.DataFrame({"v": ["S", "XXL"]}))
    np.testing.assert_array_equal(found, [[0.0], [1.0]])


def test_categories_of_numbers_stay_categories():
    found = _one(pd.Categorical([1, 2, 1, 3]), [1, 3, 7, 2])
    np.testing.assert_array_equal(found, np.eye(4)[[0, 2, 3, 1]])
    codes = pl.DataFrame({"v": pl.Series(["1", "2", "1", "3"], dtype=pl.Categorical)})
    np.testing.assert_array_equal(TableEncoder().fit_transform(codes), np.eye(4)[[0, 1, 0, 2]])


# ---------------------------------------------------------------- identifiers


@pytest.mark.parametrize("name", ["id", "user_id", "userId", "Unnamed: 0", "", "Index", "row"])
def test_identifiers_are_left_out(name):
    frame = pd.DataFrame({name: np.arange(30), "x": np.arange(30) / 7})
    assert TableEncoder().fit(frame).dropped_.keys() == {name}
    # not if they repeat, or are measurements
    frame[name] = np.arange(30) // 2
    assert not TableEncoder().fit(frame).dropped_
    frame[name] = np.arange(30) / 7
    assert not TableEncoder().fit(frame).dropped_


@pytest.mark.parametrize("name", ["year", "humidity", "refractive_index", "Madrid", "grid", "x"])
def test_other_whole_numbers_stay(name):
    frame = pd.DataFrame({name: np.arange(30), "other": np.arange(30) / 7})
    assert not TableEncoder().fit(frame).dropped_


def test_an_unusual_empty_row_is_as_any_gap():
    frame = pd.DataFrame({"k": ["a", "b", None] * 4, "x": [1.0, 2.0, np.nan] * 4})
    encoder = TableEncoder().fit(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = encoder.transform(pd.DataFrame({"k": [None], "x": [None]}))
    np.testing.assert_array_equal(without_directions(encoder, found), [[0, 0, 1, 0, 1.5, 1]])
    np.testing.assert_array_equal(
        found.sum(), 2 + 1.5 + 2
    )  # each gap has the direction of new rows


def test_objects_of_python():
    values = [datetime.date(2020, 1, 1), None, datetime.date(2021, 1, 1), datetime.date(2020, 1, 2)]
    found = _one(values)
    day = 1 / 365.2425
    np.testing.assert_allclose(found[:, 0], [0, day, 366 * day, day], rtol=1e-14)
    np.testing.assert_array_equal(found[:, -1], [0, 1, 0, 0])
