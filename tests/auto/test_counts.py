"""Counts: which targets are some, how they scatter, and that laws and densities are judged by the same measure."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import vastgp
from vastgp import GPRegressor
from vastgp.auto.calibration import Identity
from vastgp.auto.candidates import alone, regressors
from vastgp.auto.counts import are_counts, have_a_law
from vastgp.auto.distribution import Distribution
from vastgp.auto.warps import Own
from vastgp.data import Rows, Standardizer
from vastgp.estimators.predictive import Predictive
from vastgp.likelihoods import NegativeBinomial


def _counts(n: int, seed: int = 0, size: float = 2.0) -> pd.DataFrame:
    """Counts with a mean of one to ten, and more variance than it: negative binomial."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, (n, 2))
    mean = np.exp(1.0 + np.sin(2.0 * x[:, 0]) + 0.3 * x[:, 1])
    y = rng.negative_binomial(size, size / (size + mean))
    return pd.DataFrame({"x": x[:, 0], "z": x[:, 1], "visits": y.astype(float)})


@pytest.mark.parametrize(
    ("y", "so"),
    [
        ([0, 1, 2, 5], True),
        ([0.0, 3.0, 3.0, 1.0], True),
        ([1, 2, 3], False),  # no zeros: ages, marks
        ([0, 1, 1, 0], False),
        ([0.0, 1.5, 2.0], False),
        ([-1, 0, 4, 2], False),
        ([0, 200, 100], False),
    ],
)
def test_counts_are_small_whole_numbers_from_zero_on(y, so):
    assert are_counts(np.asarray(y)) is so


def test_how_counts_scatter_is_told_around_what_goes_with_the_inputs():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2))
    mean = np.exp(0.5 + 0.1 * X[:, 0])
    assert have_a_law(Rows(X, 3.0 * rng.poisson(mean)), 0, None)
    # most of what they scatter is the line's
    line = np.rint(np.maximum(5.0 + 2.0 * X[:, 0] + 0.3 * rng.normal(size=3000), 0.0))
    assert np.var(line) > 0.7 * np.mean(line)
    assert not have_a_law(Rows(X, line), 0, None)
    # or a function's: around a line they scatter by more than their mean
    wave = np.rint(np.maximum(9.0 + 9.0 * np.sin(3.0 * X[:, 0]) + 0.3 * rng.normal(size=3000), 0.0))
    slope = np.polyfit(X[:, 0], wave, 1)
    assert np.var(wave - np.polyval(slope, X[:, 0])) > 3.0 * np.mean(wave)
    assert not have_a_law(Rows(X, wave), 0, None)
    # of many rows some tell, whichever these are
    assert all(have_a_law(Rows(X, rng.poisson(2.0 * mean) * 2.0), seed, None) for seed in (1, 2))


def test_the_law_of_counts_runs_first_where_they_scatter_as_it_says():
    common = {"tied": False, "counts": True, "likelihood": "auto"}
    for n in (300, 900, 4000, 100_000):
        first = regressors(n, 3, **common, lawful=True)
        other = regressors(n, 3, **common)
        assert first[0].name == "tsvgp, negative-binomial" == alone(first, 15.0).name
        assert sorted(one.name for one in first) == sorted(one.name for one in other)
        assert other[0].name == "exact" and alone(other, 15.0).name in ("exact", "nearest")
        assert regressors(n, 3, **common, lawful=True, series=True)[0].name == "exact, trend"
    # what is asked for is not changed by it
    asked = regressors(300, 3, **common | {"likelihood": "poisson"}, lawful=True)
    assert [one.name for one in asked] == ["tsvgp", "svgp", "swsgp"]


def test_all_models_of_counts_are_judged_by_probabilities(tmp_path):
    """Nine of ten targets are zero: a density there is as high as one likes, and its logarithm was the score."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"x": rng.normal(size=240), "z": rng.normal(size=240)})
    frame["hits"] = np.where(rng.random(240) < 0.1, rng.integers(1, 6, 240), 0).astype(float)
    model = GPRegressor(max_seconds=12, random_state=0).fit(frame, "hits")
    tried = [entry for entry in model.leaderboard_ if np.isfinite(entry.nlpd)]
    laws = [entry.method.startswith("tsvgp, ") for entry in tried]
    # of both kinds, however many there was time for
    assert any(laws) and not all(laws)
    assert all(entry.nlpd > 0.0 for entry in tried)  # of a probability
    assert "probability of each whole number" in model.leaderboard_.note
    share = np.bincount(frame["hits"].astype(int)) / 240
    share = share[share > 0.0]
    assert model.leaderboard_[0].nlpd < -share @ np.log(share) + 0.1
    model.save(tmp_path / "hits.vastgp")
    assert vastgp.load(tmp_path / "hits.vastgp").leaderboard_.note == model.leaderboard_.note


def test_counts_that_grow_have_one_mean_and_it_is_within_their_interval():
    rng = np.random.default_rng(0)
    t = np.arange(80.0)
    y = rng.poisson(np.exp(0.04 * t)).astype(float)
    model = GPRegressor(max_seconds=2, random_state=0, method="tsvgp", likelihood="poisson")
    model.fit(pd.DataFrame({"t": t, "y": y}), "y")
    later = pd.DataFrame({"t": [40.0, 100.0, 130.0]})
    mean, std = model.predict(later, return_std=True)
    low, high = model.predict_interval(later).T
    np.testing.assert_array_equal(model.predict(later), mean)
    assert np.all((low <= mean) & (mean <= high)), (low, mean, high)
    assert np.all(std >= np.sqrt(mean)) and np.all(mean >= 0.0)


def test_counts_count_as_little_more_than_the_largest_that_was_seen():
    """What says zero and some hundreds is so wide that its mean is that of what was never seen."""
    law = NegativeBinomial(0.9, 0.3)
    mean, variance = np.array([4.0, -3.0, 12.0]), np.array([5.0, 9.0, 0.01])
    ones = np.array([-1.0, 1.0])
    unit = Standardizer().fit(Rows(ones[:, None], ones))
    found = Distribution(Predictive(law, mean, variance, unit), Own(), Identity(), (0.0, 365.0))
    expected, square = law.moments_below(mean[:2], variance[:2], 456.0)
    np.testing.assert_allclose(found.mean[:2], expected, rtol=1e-9)
    np.testing.assert_allclose(found.std[:2], np.sqrt(square), rtol=1e-9)
    of_all = np.asarray(law.predictive_mean(mean, variance))
    assert np.all(found.mean[:2] < 0.6 * of_all[:2])
    # what has grown beyond all of them is as sure of that as its law
    assert of_all[2] > 1e5 and found.mean[2] == pytest.approx(of_all[2], rel=0.05)


def test_a_short_fit_of_many_counts_has_their_law():
    frame = _counts(3000)
    seen, new = frame[:2500], frame[2500:]
    model = GPRegressor(max_seconds=12, random_state=0).fit(seen, "visits")
    assert model.likelihood_.counts
    y = new["visits"].to_numpy()
    score = -np.mean(model.log_predictive_density(new, y))
    # of all counts alike, by what they are among themselves
    share = np.bincount(y.astype(int)) / len(y)
    alike = -np.sum(share[share > 0] * np.log(share[share > 0]))
    assert score < alike - 0.1
    low, high = np.asarray(model.predict_interval(new, level=0.95)).T
    assert 0.93 <= np.mean((low <= y) & (y <= high)) <= 1.0


def test_what_scatters_less_than_its_mean_keeps_normal_noise():
    rng = np.random.default_rng(3)
    x = rng.uniform(0.0, 8.0, 1200)
    y = np.maximum(np.rint(x + 0.3 * rng.normal(size=1200)), 0.0)
    frame = pd.DataFrame({"x": x, "z": rng.normal(size=1200), "children": y})
    model = GPRegressor(max_seconds=6, random_state=0).fit(frame, "children")
    assert not model.likelihood_.counts
    _check_law_of_whole_numbers(model, frame[:9])


def _check_law_of_whole_numbers(model: GPRegressor, rows: pd.DataFrame) -> None:
    """Masses sum to one, quantiles are the least numbers that reach a level, and scores fill the jumps."""
    found = model.distribution(rows)
    numbers = np.arange(0.0, 60.0)
    mass = np.exp([found.log_density(np.full(len(rows), k)) for k in np.arange(-40.0, 60.0)])
    np.testing.assert_allclose(mass.sum(axis=0), 1.0, atol=1e-8)
    # what lies below zero is no count, and its little mass counts as zero's
    reached = np.cumsum(mass, axis=0)[40:]
    for level in (0.025, 0.5, 0.975):
        least = numbers[np.argmax(reached >= level, axis=0)]
        np.testing.assert_array_equal(found.quantiles([level])[0], least)
    low, high = np.asarray(model.predict_interval(rows, level=0.95)).T
    assert np.all(low == np.rint(low)) and np.all(low >= 0.0) and np.all(low < high)
    y = rows["children"].to_numpy()
    scores = np.concatenate([found.normal_scores(y, seed) for seed in range(300)])
    assert np.all(np.diff(np.sort(norm.cdf(scores))) < 0.2)
    assert np.mean(model.log_predictive_density(rows, y)) <= 0.0
