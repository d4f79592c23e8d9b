"""Targets of which many rows have exactly one value: when they are seen, and what a model of two parts says of them."""

import dataclasses
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logsumexp, ndtr, ndtri
from scipy.stats import kstest, nbinom, norm
from sklearn.base import clone

import vastgp
from vastgp import ExactGPRegressor, GPRegressor
from vastgp.auto.calibration import Conformal, Identity, Scale
from vastgp.auto.class_candidates import classifier_of, classifiers, that_take_weights
from vastgp.auto.distribution import Distribution, interval_levels
from vastgp.auto.heaps import Heap, HeapedDistribution, interval_log_score
from vastgp.auto.heaps.distribution import nearest_scores
from vastgp.auto.heaps.rule import gain_over_law
from vastgp.auto.stacking.mixture import Mixture
from vastgp.auto.warps import Log, Own
from vastgp.kernels import RBF
from vastgp.likelihoods import StudentT

WORK = {"method": "qsgp", "likelihood": "two-part", "max_work": 6000}


def claims(n, seed=0, slope=2.0):
    """Targets that are 0 with a known probability, and log-normal otherwise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    zero, centre = expit(slope * X[:, 0] - 0.5), 7.0 + np.sin(2.0 * X[:, 1])
    y = np.where(rng.uniform(size=n) < zero, 0.0, np.exp(centre + 0.3 * rng.normal(size=n)))
    return X, y, zero, centre


def true_log_density(y, zero, centre):
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.log1p(-zero) + norm.logpdf(np.log(y), centre, 0.3) - np.log(y)
    return np.where(y == 0.0, np.log(zero), rest)


@pytest.fixture(scope="module")
def fitted():
    return GPRegressor(**WORK).fit(*claims(600)[:2])


# ---------------------------------------------------------------- which targets have heaps

RNG = np.random.default_rng(1)
SMOOTH = {
    "normal": RNG.normal(size=2000),
    "of one decimal": np.round(RNG.normal(size=2000), 1),
    "of whole deviations": np.round(RNG.normal(size=2000)),
    "whole numbers": np.round(RNG.lognormal(3.0, 1.0, 2000)),
    "thousands": np.round(RNG.lognormal(10.5, 0.7, 2000), -3),
    "rounded down": np.floor(RNG.exponential(12.0, 2000)) * 10.0,
    "from zero on": np.round(RNG.exponential(300.0, 2000), -1),
    "rates": RNG.binomial(20, 0.05, 2000) / 20.0,
    "marks": RNG.integers(1, 6, 2000).astype(float),
    "rare counts": RNG.poisson(0.05, 2000).astype(float),
    "counts": RNG.poisson(3.0, 2000).astype(float),
    "counts that scatter": RNG.negative_binomial(0.3, 0.3 / 20.3, 2000).astype(float),
    "few rows": np.round(RNG.normal(size=40), 1),
    "repeated": np.repeat(RNG.normal(size=40), 30),
    "constant": np.ones(50),
    "two values": np.repeat([0.0, 1.0], 50),
    "two peaks": np.round(RNG.normal(size=2000) + 5.0 * RNG.integers(2, size=2000), 1),
}


@pytest.mark.little_work
@pytest.mark.parametrize("name", SMOOTH)
def test_no_heap_is_seen_in_what_rounding_or_counting_makes(name):
    assert Heap.of(SMOOTH[name]) is None


@pytest.mark.little_work
def test_a_heap_is_five_times_what_rounding_makes_of_the_rest_and_a_twentieth_of_the_rows():
    rest = np.round(RNG.lognormal(10.0, 1.0, 900), -2)
    most = np.unique(rest, return_counts=True)[1].max()

    def heaps(count, value=0.0, others=rest):
        return Heap.of(np.concatenate([np.full(count, value), others]))

    least = max(5 * most, int(np.ceil(900 * 0.05 / 0.95)))
    assert heaps(least - 1) is None or 5 * most >= least > 48
    assert heaps(least).values == (0.0,) and heaps(least).counts == (least,)
    assert heaps(40) is None  # 4 % of the rows
    assert heaps(400, 55.5).values == (55.5,)
    both = heaps(400, 0.0, np.concatenate([rest, np.full(100, 5e4)]))
    assert both.values == (0.0, 5e4) and both.rest == 900 and both.rows == 1400
    assert both.labels.tolist() == ["at 0", "at 50000", "elsewhere"] == sorted(both.labels)
    y = np.array([5e4, 3.0, 0.0, -0.0])
    assert both.classes_of(y).tolist() == [1.0, 2.0, 0.0, 0.0]
    assert both.holds(y).tolist() == [True, False, True, True]
    assert Heap.from_dict(both.to_dict()) == both
    words = Heap((0.0,), (38,), 100).in_words("'income'")
    assert "'income' 38% of the 100 rows have exactly 0" in words and "62 rows" in words
    # the rest must be many values, or it is classes
    assert heaps(400, 0.0, np.repeat(np.arange(1.0, 11.0), 90)) is None
    assert heaps(1000, 0.0, np.repeat(np.arange(1.0, 10.0), 100)) is None
    # fewer of them where most rows are at the heap, and some frequent
    fewer = np.repeat(np.arange(12.0), [240, *[60] * 11])
    assert heaps(1200, 20.0, fewer).values == (20.0,) and heaps(800, 20.0, fewer) is None
    assert heaps(2400, 20.0, np.repeat(np.arange(12.0), [290, *[60] * 11])) is None


@pytest.mark.little_work
def test_whole_numbers_have_heaps_where_no_law_of_counts_has_so_many():
    """Hours of work, of which some have none and most have about forty; not visits, of which many have none."""
    rng = np.random.default_rng(8)
    hours = np.where(rng.random(2000) < 0.4, 0.0, np.rint(38.0 + 8.0 * rng.normal(size=2000)))
    assert Heap.of(hours, counts=True).values == (0.0,)
    weeks = np.where(
        hours == 0.0, 0.0, np.where(rng.random(2000) < 0.3, 52.0, rng.integers(1, 52, 2000))
    )
    assert Heap.of(weeks, counts=True).values == (0.0, 52.0)
    for size, mean in ((0.3, 3.0), (0.5, 20.0), (2.0, 10.0), (0.1, 1.0)):
        visits = rng.negative_binomial(size, size / (size + mean), 2000).astype(float)
        assert Heap.of(visits, counts=True) is None
    # of few values a law of counts says all
    assert Heap.of(np.where(hours == 0.0, 0.0, rng.integers(10, 20, 2000)), counts=True) is None


@pytest.mark.little_work
def test_what_two_parts_gain_over_a_law_is_the_difference_of_their_logarithms():
    rng = np.random.default_rng(9)
    y = np.where(rng.random(300) < 0.4, 0.0, np.rint(38.0 + 8.0 * rng.normal(size=300)))
    heap = Heap((0.0,), (int(np.sum(y == 0.0)),), 300)
    zero = np.mean(y == 0.0)
    rest = y[y != 0.0]
    density = norm(rest.mean(), rest.std()).logpdf(rest)
    two = zero * np.log(zero) + (1.0 - zero) * (np.log(1.0 - zero) + density.mean())
    sizes = np.exp(np.linspace(-6.0, 6.0, 4001))[:, None]
    law = nbinom(sizes, sizes / (sizes + y.mean())).logpmf(y).mean(axis=1).max()
    assert gain_over_law(y, heap) == pytest.approx(two - law, abs=1e-5)


def test_a_continuous_target_is_modelled_as_before():
    X, y, _, _ = claims(30)
    model = GPRegressor(max_seconds=2).fit(X, np.round(y + X[:, 0], 2))
    assert model.heap_ is None and model.at_heap_ is None and model.rest_calibration_ is None
    assert isinstance(model.distribution(X), Distribution)


# ---------------------------------------------------------------- the distribution

N = 6


def mixed(heaps=(0.0, 4.0), warp=None, calibration=None):
    """Two heaps in a normal or log-normal distribution that reaches over both, at six rows."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(20, 1))
    model = ExactGPRegressor("rbf", max_iter=2).fit(X, 1.0 + np.sin(X[:, 0]) + rng.normal(size=20))
    rest = Distribution(
        model.distribution(rng.normal(size=(N, 1))), warp or Own(), calibration or Identity(), (-3.0, 5.0)
    )  # fmt: skip
    p = rng.dirichlet(np.ones(len(heaps) + 1), N)
    return HeapedDistribution(rest, np.asarray(heaps), p)


def below_and_at(found, y):
    """P(Y < y) and P(Y <= y), by definition."""
    u = ndtr(found.rest.normal_scores(y)) * found.probabilities[:, -1]
    p = found.probabilities
    return tuple(
        u + sum(p[:, k] * compare(h, y) for k, h in enumerate(found.values))
        for compare in (np.less, np.less_equal)
    )


@pytest.mark.parametrize("warp", [Own(), Log()])
def test_quantiles_are_the_least_values_that_the_level_is_reached_at(warp):
    found = mixed((4.0, 0.0, 1.5), warp, Scale(1.2))
    levels = np.linspace(0.001, 0.999, 150)
    for level, quantile in zip(levels, found.quantiles(levels), strict=True):
        below, at = below_and_at(found, quantile)
        assert np.all(below <= level + 1e-6) and np.all(at >= level - 1e-6)
        on = np.isin(quantile, found.values)
        np.testing.assert_allclose(at[~on], level, atol=1e-6)
        # the mass of a heap covers the level exactly where the quantile sits on it
        covered = np.zeros(N, bool)
        for h in found.values:
            low, high = below_and_at(found, np.full(N, h))
            covered |= (low < level) & (level <= high)
        np.testing.assert_array_equal(on, covered)
    assert np.all(np.diff(found.quantiles(levels), axis=0) >= 0.0)


def test_moments_are_those_of_the_quantiles_and_masses_and_density_sum_to_one():
    found = mixed()
    levels = (np.arange(20_000) + 0.5) / 20_000
    Q = found.quantiles(levels)
    np.testing.assert_allclose(found.mean, Q.mean(axis=0), atol=2e-3)
    np.testing.assert_allclose(found.std, Q.std(axis=0), rtol=2e-3)
    places = np.linspace(-15.0, 18.0, 8001) + 1e-4  # on no heap
    density = np.exp([found.log_density(np.full(N, y)) for y in places])
    masses = np.exp([found.log_density(np.full(N, h)) for h in found.values])
    whole = density.sum(axis=0) * (places[1] - places[0]) + masses.sum(axis=0)
    np.testing.assert_allclose(whole, 1.0, atol=1e-6)
    np.testing.assert_allclose(masses.T, found.probabilities[:, :2])


def test_normal_scores_of_its_own_draws_are_normal():
    found = mixed()
    rng = np.random.default_rng(0)
    draws = found.quantiles(rng.uniform(size=4000))  # (4000, 6), each column of one row
    scores = np.array([found.normal_scores(y, seed) for seed, y in enumerate(draws)])
    assert np.mean(np.isin(draws, found.values)) > 0.2
    for column in scores.T:
        assert kstest(column, "norm").pvalue > 1e-4
    # by the midpoint of the jump instead they would not be
    y = np.zeros(N)
    low, high = below_and_at(found, y)
    here = ndtr(np.array([found.normal_scores(y, seed) for seed in range(300)]))
    assert np.all(here >= low - 1e-12) and np.all(here <= high + 1e-12)
    np.testing.assert_allclose(here.mean(axis=0), 0.5 * (low + high), atol=4 * 0.29 / 300**0.5)


def test_the_score_of_rounded_targets_tells_the_truth_from_a_continuous_candidate():
    found = mixed()
    y, w = found.rest.mean + 0.3, 1e-4
    np.testing.assert_allclose(
        interval_log_score(found, y, w), found.log_density(y) + np.log(w), atol=1e-3
    )
    at = interval_log_score(found, np.zeros(N), 1e-9)
    np.testing.assert_allclose(at, np.log(found.probabilities[:, 0]), atol=1e-6)
    # proper: the distribution that drew them scores better than a normal of the same moments, and than its rest
    rng = np.random.default_rng(2)
    draws = np.round(found.quantiles(rng.uniform(size=400)), 2)

    class Normal:
        normal_scores = staticmethod(lambda y: (y - found.mean) / found.std)

    own, normal, rest = (
        np.mean([interval_log_score(one, y, 0.01) for y in draws])
        for one in (found, Normal, found.rest)
    )
    assert own > normal + 0.5 and own > rest + 0.5


def test_levels_of_each_row_are_as_good_as_levels_of_all():
    rng = np.random.default_rng(3)
    X, levels = rng.normal(size=(30, 1)), np.array([0.05, 0.4, 0.93])
    y, new = np.sin(X[:, 0]) + 0.1 * rng.normal(size=30), rng.normal(size=(4, 1))
    plain = ExactGPRegressor("rbf", max_iter=2).fit(X, y).distribution(new)
    tails = dataclasses.replace(plain, likelihood=StudentT(5.0, 0.3))
    own = np.tile(levels[:, None], 4)
    for one in (plain, tails, Mixture((plain, tails), np.array([0.3, 0.7]))):
        of_all = Distribution(one, Own(), Scale(0.9), (0.0, 1.0))
        np.testing.assert_allclose(of_all.quantiles(own), of_all.quantiles(levels), atol=1e-6)
    mix = Distribution(Mixture((plain, tails), np.array([0.3, 0.7])), Own(), Identity(), (0.0, 1.0))
    own = ndtr(rng.normal(size=(2, 4)))
    reached = np.array([ndtr(mix.normal_scores(q)) for q in mix.quantiles(own)])
    np.testing.assert_allclose(reached, own, atol=1e-6)


# ---------------------------------------------------------------- a known truth


def test_a_known_truth_is_found(fitted):
    X, y, zero, centre = claims(3000, 9)
    behind = true_log_density(y, zero, centre) - fitted.log_predictive_density(X, y)
    # nats a row that 600 rows leave open, and no more
    assert -0.02 < behind.mean() < 0.08
    assert fitted.warp_ == Log() and fitted.heap_.values == (0.0,)
    found = fitted.distribution(X)
    assert np.sqrt(np.mean((found.probabilities[:, 0] - zero) ** 2)) < 0.06
    mean = (1.0 - zero) * np.exp(centre + 0.5 * 0.3**2)
    np.testing.assert_allclose(found.mean.mean(), mean.mean(), rtol=0.05)
    assert np.corrcoef(found.mean, mean)[0, 1] > 0.98
    # levels: exact with places drawn within the jump, and no less with closed intervals
    scores = found.normal_scores(y)
    for level in (0.5, 0.8, 0.95):
        inside = np.mean(np.abs(scores) < -ndtri(0.5 - 0.5 * level))
        assert abs(inside - level) < 4 * (level * (1 - level) / 3000) ** 0.5 + 0.02
        low, high = fitted.predict_interval(X, level).T
        assert np.mean((low <= y) & (y <= high)) > inside - 0.01
    median = fitted.predict_quantiles(X, [0.5])[:, 0]
    np.testing.assert_array_equal(median == 0.0, found.probabilities[:, 0] >= 0.5)
    # scored by the intervals of cents, which both have, one density for all rows is far behind
    normal = GPRegressor(method="exact", max_work=3000).fit(*claims(600)[:2])
    unit = 0.01
    ours = np.mean(interval_log_score(found, y, unit))
    assert ours > np.mean(interval_log_score(normal.distribution(X), y, unit)) + 1.0


def test_the_board_shows_the_sum_of_both_parts_scores(fitted):
    held, heap = fitted.held_out_, fitted.heap_
    best = fitted.leaderboard_[0]
    assert best.kept and best.target == "log" and "log mass at 0" in str(fitted.leaderboard_)
    which = fitted.at_heap_.held_out_
    np.testing.assert_array_equal(which["row"], held["row"])
    part = heap.classes_of(held["y"]).astype(int)
    proba = fitted.at_heap_.calibration_.transform(which["scores"])
    of_which = np.log(proba[np.arange(len(part)), part])
    np.testing.assert_allclose(held["log_density"][part == 0], of_which[part == 0])
    rest = held["log_density"] - of_which
    # what is left is a density of the rest: that of the true one, but for what few rows leave open
    _, y, zero, centre = claims(600)
    true = (true_log_density(y, zero, centre) - np.log1p(-zero))[held["row"]]
    assert abs(np.mean((rest - true)[part == 1])) < 0.15
    record = fitted.calibration_record_
    assert record.rows == len(part) and not record.overall[-1].differs
    names = [one[0] for one in fitted.importance_]
    assert sorted(names) == ["x0", "x1"] and min(one[1] for one in fitted.importance_) > 0.1


def test_the_rest_is_what_a_fit_to_it_alone_gives(fitted):
    X, y, _, _ = claims(600)
    new, rest = claims(9, 4)[0], y > 0.0
    encode = fitted.encoder_.transform
    alone = clone(fitted.model_).fit(encode(X[rest]), np.log(y[rest]))
    found = fitted.distribution(new)
    np.testing.assert_allclose(found.rest.model.mean, alone.predict(encode(new)), rtol=1e-6)
    np.testing.assert_allclose(found.probabilities, fitted.at_heap_.predict_proba(new))
    np.testing.assert_allclose(
        fitted.predict(new), found.probabilities[:, 1] * found.rest.mean, rtol=1e-12
    )


def test_a_heap_that_no_input_tells_of_has_its_share_everywhere():
    X, y, zero, _ = claims(520, 2, slope=0.0)
    model = GPRegressor(**WORK).fit(X, y)
    at = model.distribution(claims(300, 3)[0]).probabilities[:, 0]
    assert abs(at.mean() - zero[0]) < 4 * (0.25 / 520) ** 0.5
    assert at.std() < 0.06


# ---------------------------------------------------------------- conformal intervals


def wrong(X, constant=False):
    """What a bad model says of rows: heaps at 0 and 8 that are too likely, and a rest off by half a deviation."""
    n = len(X)
    proba = np.stack([0.5 * expit(X[:, 0]), np.full(n, 0.1), np.ones(n)], axis=1)
    proba = np.tile([0.3, 0.1, 0.6], (n, 1)) if constant else proba
    proba[:, 2] = 1.0 - proba[:, :2].sum(axis=1)
    mean, scale = NORMAL.scaling.y_mean, NORMAL.scaling.y_scale
    rest = dataclasses.replace(
        NORMAL, latent_mean=(3.0 + X[:, 1] - mean) / scale, latent_variance=np.ones(n)
    )
    return np.array([0.0, 8.0]), proba, Distribution(rest, Own(), Identity(), (-3.0, 9.0))


FIXED = vastgp.options.Fixed(noise_std=0.3)
NORMAL = (
    ExactGPRegressor(RBF(1.0), hyperparameters=FIXED)
    .fit(np.arange(9.0)[:, None], np.sin(np.arange(9.0)))
    .distribution(np.zeros((1, 1)))
)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("n", [19, 60])
def test_conformal_intervals_hold_what_they_say_of_targets_with_heaps(n, constant):
    rng, repetitions, levels = np.random.default_rng(n), 1000, (0.5, 0.8, 0.9)
    total = repetitions * (n + 1)
    X = rng.normal(size=(total, 2))
    y = 3.5 + X[:, 1] + rng.standard_t(4, total)
    y = np.where(rng.uniform(size=total) < expit(X[:, 0] - 1.0), 0.0, np.minimum(y, 8.0))
    values, proba, rest = wrong(X, constant)
    nearest = nearest_scores(values, proba, y, rest.normal_scores(y)).reshape(repetitions, n + 1)
    held = np.zeros(len(levels))
    ends = [end for level in levels for end in interval_levels(level)]
    for row, scores in zip(range(n, total, n + 1), nearest, strict=True):
        one = dataclasses.replace(
            rest.model, latent_mean=rest.model.latent_mean[[row]], latent_variance=np.ones(1)
        )
        one = dataclasses.replace(rest, model=one)
        found = HeapedDistribution(one, values, proba[[row]], Conformal.fit(scores[:-1]))
        low, high = found.quantiles(ends).reshape(len(levels), 2).T
        held += (low <= y[row]) & (y[row] <= high)
    for share, level in zip(held / repetitions, levels, strict=True):
        error = np.sqrt(level * (1 - level) / repetitions)
        assert share > level - 4 * error
        # no more than one rank above, but where all rows of a heap are one tie
        assert constant or share < level + 1 / (n + 1) + 4 * error


@pytest.mark.little_work
def test_the_nearest_score_is_of_the_least_interval_that_holds_a_row():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(N, 2))
    values, proba, rest = wrong(X)
    for y in (np.zeros(N), np.full(N, 8.0), 3.0 + rng.normal(size=N)):
        nearest = nearest_scores(values, proba, y, rest.normal_scores(y))
        for wider, inside in ((1.001, True), (0.999, False)):
            radii = np.abs(nearest) * wider
            for row in np.flatnonzero(radii > 0.0):
                found = HeapedDistribution(rest, values, proba)
                low, high = found.quantiles(ndtr([-radii[row], radii[row]]))[:, row]
                assert (low <= y[row] <= high) == inside


def test_conformal_intervals_of_a_fit_hold_new_rows(tmp_path):
    level = 0.8
    X, y, _, _ = claims(150, 20)
    model = GPRegressor(**WORK | {"method": "exact", "calibrate": "conformal", "max_work": 9000})
    rows = len(model.fit(X, y).interval_calibration_.radii)
    new, truth, _, _ = claims(4000, 40)
    low, high = model.predict_interval(new, level).T
    share = np.mean((low <= truth) & (truth <= high))
    # of r held-out rows the coverage of one fit is Beta distributed, with this deviation
    error = np.sqrt(level * (1 - level) / rows)
    assert level - 3.5 * error < share < level + 1 / (rows + 1) + 3.5 * error
    assert model.rest_calibration_ == Identity() == model.calibration_
    assert model.at_heap_.calibration_.name == "none"
    assert np.isinf(model.predict_interval(new[:3], 0.9999)).all()
    held = model.held_out_
    np.testing.assert_array_equal(np.sort(held["row"]), np.arange(150))
    # the intervals of the rows that the radii are of hold the share of them that is asked for, and no more
    inside = np.sum((held["low"] <= held["y"]) & (held["y"] <= held["high"]))
    assert 0.95 * 151 <= inside <= 0.95 * 151 + 3.0
    assert "split-conformal ones of" in model.report(tmp_path / "page.html").read_text()
    model.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    np.testing.assert_array_equal(again.predict_interval(new), model.predict_interval(new))


# ---------------------------------------------------------------- weights


def test_weights_undo_a_sample_with_too_many_zeros(tmp_path):
    """Zeros are four times as likely to be in the sample, and count a fourth."""
    X, y, _, _ = claims(780, 30)
    rng = np.random.default_rng(31)
    there = (y == 0.0) | (rng.uniform(size=780) < 0.25)
    X, y = X[there], y[there]
    weight = np.where(y == 0.0, 0.25, 1.0)
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "paid": y, "stands_for": 100.0 * weight})
    asked = {"method": "exact", "likelihood": "two-part", "max_work": 6000}
    model = GPRegressor(**asked).fit(table, "paid", sample_weight="stands_for")
    new, _, zero, _ = claims(2000, 32)
    found = model.distribution(pd.DataFrame(new, columns=["a", "b"])).probabilities[:, 0]
    # of the share of zeros some 500 rows leave open, and the odds without weights are four times as large
    error = np.sqrt(np.mean(zero * (1 - zero)) / len(y) * np.mean(weight**2) / np.mean(weight) ** 2)
    assert abs(np.mean(found - zero)) < 4 * error
    assert np.mean(expit(2.0 * new[:, 0] - 0.5 + np.log(4.0)) - zero) > 8 * error
    assert np.sqrt(np.mean((found - zero) ** 2)) < 0.12
    assert model.warp_ == Log()
    # the score is the weighted one, of which two rows of one place (there is such a pair) count as one
    which = model.at_heap_
    own = weight[which.held_out_["row"]]
    scores = which.held_out_["log_density"]
    np.testing.assert_allclose(
        which.leaderboard_[0].nlpd, -np.average(scores, weights=own), rtol=0.005
    )
    assert abs(np.average(scores, weights=own) - np.mean(scores)) > 0.02
    model.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    np.testing.assert_array_equal(again.predict(table), model.predict(table))


@pytest.mark.little_work
def test_which_rows_are_at_a_heap_is_told_by_a_method_that_takes_their_weights():
    assert [classifier_of("qsgp", weighted) for weighted in (False, True)] == ["qsgp", "tsvgp"]
    assert classifier_of("qsgp on trees", True) == "tsvgp on trees"
    assert classifier_of("svgp", True) == "svgp" and classifier_of("auto", True) == "auto"
    names = [one.name for one in that_take_weights(classifiers(100_000, 3, 3))]
    assert names == ["tsvgp on trees", "tsvgp", "linear"]


# ---------------------------------------------------------------- all that a model is asked for


def test_samples_are_at_the_heap_with_its_probability(fitted):
    X = claims(40, 5)[0]
    drawn, found = fitted.sample_y(X, 500, 0), fitted.distribution(X)
    share = found.probabilities[:, 0]
    off = np.abs(np.mean(drawn == 0.0, axis=1) - share)
    assert np.all(off < 4.5 * np.sqrt(share * (1 - share) / 500) + 1e-3)
    assert np.all(drawn[drawn != 0.0] > 1.0)
    np.testing.assert_array_equal(drawn, fitted.sample_y(X, 500, 0))


def test_a_file_and_a_pickle_say_the_same_bit_by_bit(fitted, tmp_path):
    X, y = claims(50, 6)[:2]
    fitted.save(tmp_path / "m.vastgp")
    for other in (vastgp.load(tmp_path / "m.vastgp"), pickle.loads(pickle.dumps(fitted))):
        assert other.heap_ == fitted.heap_ and str(other.leaderboard_) == str(fitted.leaderboard_)
        for ask in ("predict", "predict_quantiles", "sample_y", "outside"):
            np.testing.assert_array_equal(getattr(other, ask)(X), getattr(fitted, ask)(X))
        np.testing.assert_array_equal(
            other.log_predictive_density(X, y), fitted.log_predictive_density(X, y)
        )
        assert other.score(X, y) == fitted.score(X, y)
        assert other.calibration_record_ == fitted.calibration_record_
        other.save(tmp_path / "again.vastgp")
    fresh = clone(fitted)
    assert fresh.likelihood == "two-part" and not hasattr(fresh, "heap_")


def test_the_report_says_it_in_words(fitted, tmp_path):
    share = re.escape(f"{fitted.heap_.counts[0] / 600:.0%} of the 600 rows have exactly 0")
    for name, rows in (("held.html", ()), ("new.html", claims(60, 8)[:2])):
        page = fitted.report(tmp_path / name, *rows).read_text()
        assert re.search(share, page) and "A model of two parts" in page
        assert "shares, mean and deviation alone" in page


def test_several_targets_have_heaps_of_their_own():
    X, y, _, _ = claims(60, 11)
    both = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "paid": y, "other": X[:, 0] + 0.1 * X[:, 1]})
    params = {"method": "exact", "max_seconds": 6}
    model = GPRegressor(**params, likelihood="two-part")
    with pytest.raises(ValueError, match=r"target 'other'.*at least 10 and 20 rows"):
        model.fit(both, ["paid", "other"])
    both["other"] = np.where(both.b > 0.5, 3.5, both.other)
    model.fit(both, ["paid", "other"])
    assert {name: one.values for name, one in model.heap_.items()} == {
        "paid": (0.0,),
        "other": (3.5,),
    }
    assert model.predict_interval(both.head(5)).shape == (5, 2, 2)
    alone = [model.outputs_[name].log_predictive_density(both) for name in ("paid", "other")]
    np.testing.assert_allclose(model.log_predictive_density(both), sum(alone))


@pytest.mark.little_work
def test_what_two_parts_cannot_have_is_refused_by_name():
    X, y, _, _ = claims(60)
    model = GPRegressor(likelihood="two-part", max_work=100)
    for given, words in (
        ({"exposure": np.ones(60)}, "exposure.*zeros have a law of their own"),
        ({"noise_std": np.ones(60)}, "noise_std leaves open which rows are at the repeated value"),
    ):
        with pytest.raises(ValueError, match=f"two-part.*{words}"):
            model.fit(X, np.round(y), **given)
    with pytest.raises(ValueError, match=r"the target y the most frequent value, .* in 1 of 60"):
        model.fit(X, X[:, 0])


def test_where_two_parts_are_not_possible_a_warning_says_so():
    X, y, _, _ = claims(80)
    with pytest.warns(
        UserWarning, match="of the 80 rows have exactly 0, but known errors cannot be had"
    ):
        model = GPRegressor(max_seconds=2).fit(X, y, noise_std=np.linspace(1.0, 2.0, 80))
    assert model.heap_ is None
    # what is asked for by name is what is fitted, without a word
    for asked in ({"likelihood": "gaussian"}, {"likelihood": "student-t"}, {"method": "exact"}):
        model = GPRegressor(**asked)
        model.target_name_ = None
        assert model._heap_of(y, False) is None


@pytest.mark.little_work
def test_the_part_of_a_row_is_worth_the_log_of_its_probability():
    found = mixed((0.0,))
    p = np.log(found.probabilities)
    np.testing.assert_allclose(found.log_density(np.zeros(N)), p[:, 0])
    y = found.rest.mean
    np.testing.assert_allclose(found.log_density(y), p[:, 1] + found.rest.log_density(y))
    np.testing.assert_allclose(logsumexp(p, axis=1), 0.0, atol=1e-12)


def test_zero_and_a_cap_are_two_heaps(tmp_path):
    X, y, _, _ = claims(200, 12)
    y = np.minimum(y, np.quantile(y, 0.8))
    model = GPRegressor(max_seconds=8).fit(X, y)  # seen without being asked for
    assert model.heap_.values == (0.0, y.max()) and model.heap_.counts[1] == np.sum(y == y.max())
    found = model.distribution(X)
    assert found.probabilities.shape == (200, 3)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0)
    density = model.log_predictive_density(X, y)
    for k, value in enumerate(model.heap_.values):
        np.testing.assert_allclose(
            np.exp(density[y == value]), found.probabilities[y == value, k], rtol=1e-9
        )
    assert np.isfinite(density).all() and np.isin(model.predict_quantiles(X), found.values).any()
    model.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    np.testing.assert_array_equal(again.log_predictive_density(X, y), density)


def test_where_a_heap_is_says_nothing_of_the_rest(tmp_path):
    rng = np.random.default_rng(0)
    X, at_heap = rng.normal(size=(160, 1)), rng.uniform(size=160) < 0.4
    rest = np.exp(1.5 * np.sin(2.0 * X[:, 0]) + 0.8 * rng.normal(size=160))
    new = np.array([[0.0], [1.0], [4.0], [8.0]])  # far off quantiles are many times all targets
    found = []
    for value in (0.0, -999.0, 1e6):
        model = GPRegressor(method="exact", likelihood="two-part", max_work=3000)
        model.fit(X, np.where(at_heap, value, rest)).save(tmp_path / "m.vastgp")
        for one in (model, vastgp.load(tmp_path / "m.vastgp")):
            of_rest = one.distribution(new).rest
            assert type(of_rest.warp) is Log
            found.append([of_rest.mean, of_rest.std])
    np.testing.assert_allclose(found, np.broadcast_to(found[0], np.shape(found)), rtol=1e-9)


@pytest.mark.parametrize("in_time", [None, False, True])
def test_all_that_is_said_of_scores_survives_a_file(fitted, tmp_path, in_time):
    model = pickle.loads(pickle.dumps(fitted))
    model._in_time = in_time
    model.leaderboard_ = dataclasses.replace(model.leaderboard_, note=model._notes_of_leaderboard)
    model.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    assert str(again.leaderboard_) == str(model.leaderboard_)
    assert ("hold_out" in again.leaderboard_.note) == (in_time is False)
