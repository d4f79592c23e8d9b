"""Calibrations recover known distortions, are distributions, and invert themselves."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import ndtr, ndtri

from vastgp.auto.calibration import (
    Conformal,
    Identity,
    Isotonic,
    Scale,
    Tails,
    calibration_from_state,
    fit_calibration,
    normal_scores,
)
from vastgp.auto.monotone import through
from vastgp.data import Places

METHODS = ["scale", "student", "isotonic", "conformal", None]


def distorted(n, seed=0, factor=1.7, shift=0.0):
    """PIT values of a model that states a deviation that is too small by a factor, and a wrong mean."""
    return ndtr(shift + factor * np.random.default_rng(seed).standard_normal(n))


def skewed(n, seed=0):
    """PIT values of a normal model of log-gamma targets, with mean and deviation right."""
    y = stats.loggamma(0.5).rvs(n, random_state=seed)
    mean, variance = stats.loggamma(0.5).stats()
    return ndtr((y - mean) / np.sqrt(variance))


def of_pit(u, method="auto", seed=0):
    return fit_calibration(normal_scores(u), method, seed)


def test_scale_recovers_a_known_factor():
    n = 4000
    found = of_pit(distorted(n), "scale").factor
    # the estimator of a normal deviation has a standard error of s / sqrt(2 n)
    assert abs(found - 1.7) < 4 * 1.7 / np.sqrt(2 * n)


def test_scale_of_few_rows_is_drawn_to_one_by_its_ten_rows():
    z = np.array([3.0, -3.0])
    assert fit_calibration(z, "scale").factor == pytest.approx(np.sqrt((18 + 10) / 12))
    # widened alike, whatever the rows that were not held out; narrowed against what these have said, 200 at most
    of_two = Places(np.arange(len(z)), others=150)
    assert fit_calibration(z, "scale", 0, of_two).factor == pytest.approx(np.sqrt((18 + 10) / 12))
    for others, imagined in ((150, 160.0), (5000, 210.0)):
        found = fit_calibration(z / 10.0, "scale", 0, replace(of_two, others=others))
        assert found.factor == pytest.approx(np.sqrt((0.18 + imagined) / (len(z) + imagined)))
    assert of_pit(np.array([]), "scale") == Identity()


def test_tails_are_those_of_a_student_distribution_with_a_scale():
    for degrees, scale in ((2.5, 0.3), (4.0, 0.8), (30.0, 1.5)):
        found, truth = Tails(degrees, scale), stats.t(degrees, 0.0, scale)
        z = np.array([-300.0, -8.0, -1.0, -0.1, 0.0, 0.3, 2.0, 30.0])
        density = found.log_density_change(z) + stats.norm.logpdf(z)
        np.testing.assert_allclose(density, truth.logpdf(z), rtol=1e-9)
        np.testing.assert_allclose(found.base_scores(found.scores(z)), z, rtol=1e-9, atol=1e-12)
        p = np.array([1e-12, 0.025, 0.5, 0.8, 0.975])
        np.testing.assert_allclose(found.base_scores(ndtri(p)), truth.ppf(p), rtol=1e-7, atol=1e-12)
        assert found.std_factor == pytest.approx(truth.std())


def test_tails_are_found_where_rows_have_outliers():
    """A map through few quantiles is straight beyond the last, and has outliers stand for the width of a tail."""
    rng = np.random.default_rng(0)
    z = 0.6 * rng.standard_t(3.0, 5000)
    found = fit_calibration(z)
    assert isinstance(found, Tails)
    # standard errors by repetition: 0.16 and 0.010
    assert abs(found.degrees - 3.0) < 0.6 and abs(found.scale - 0.6) < 0.04
    mistyped = np.where(rng.random(136) < 0.03, 12.0, 0.5) * rng.normal(size=136)
    new = np.where(rng.random(20_000) < 0.03, 12.0, 0.5) * rng.normal(size=20_000)
    change = fit_calibration(mistyped).log_density_change(new).mean()
    others = (fit_calibration(mistyped, name) for name in ("scale", "isotonic", None))
    assert change > 0.5 + max(each.log_density_change(new).mean() for each in others)
    # and nothing is made of normal scores
    assert fit_calibration(rng.normal(size=1000)) == Identity()
    # rows that say little are drawn to what the model says
    few = Tails.fit(np.array([0.5, -0.5]))
    assert few.degrees > 20.0 and 0.85 < few.scale < 1.0


@pytest.mark.parametrize("make", [distorted, skewed])
def test_pit_values_of_other_rows_are_uniform_after_isotonic(make):
    found = of_pit(make(20_000, seed=1), "isotonic")
    other = make(1000, seed=2)
    assert stats.kstest(other, "uniform").pvalue < 1e-6
    assert stats.kstest(found.pit(other), "uniform").pvalue > 0.01


def test_isotonic_gains_the_density_that_the_truth_would():
    truth = stats.loggamma(0.5)
    mean, variance = truth.stats()
    model = stats.norm(mean, np.sqrt(variance))
    found = of_pit(skewed(20_000, seed=3), "isotonic")
    y = truth.rvs(4000, random_state=4)
    left = truth.logpdf(y) - model.logpdf(y) - found.log_density_change(normal_scores(model.cdf(y)))
    gap = np.mean(truth.logpdf(y) - model.logpdf(y))
    # the divergence that is left is a small part of that of the normal model
    assert np.mean(left) + 4 * np.std(left) / np.sqrt(len(y)) > 0.0
    assert np.mean(left) < 0.1 * gap + 4 * np.std(left) / np.sqrt(len(y))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [7, 60, 3000])
def test_the_calibrated_density_integrates_to_one(method, n):
    found = of_pit(skewed(n, seed=5), method)

    def density(z):
        return np.exp(stats.norm.logpdf(z) + found.log_density_change(z))

    spline = getattr(getattr(found, "smooth", found), "spline", None)
    knots = [] if spline is None else spline.x.tolist()
    ends = [-60.0, *knots, 0.0, 60.0]
    pieces = zip(sorted(ends)[:-1], sorted(ends)[1:], strict=True)
    total = sum(quad(density, a, b, epsabs=1e-8, epsrel=1e-6, limit=400)[0] for a, b in pieces)
    assert total == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("method", ["scale", "isotonic", None])
def test_levels_invert_the_calibrated_distribution(method):
    found = of_pit(skewed(900, seed=6), method)
    p = np.concatenate([[1e-9, 1e-6, 1e-3], np.linspace(0.01, 0.99, 99), [0.999, 1.0 - 1e-6]])
    np.testing.assert_allclose(found.pit(found.levels(p)), p, rtol=1e-7)
    z = np.linspace(-9.0, 9.0, 400)
    np.testing.assert_allclose(found.base_scores(found.scores(z)), z, atol=1e-10)
    assert found.levels([0.0, 1.0]).tolist() == [0.0, 1.0]
    assert found.levels(np.full((2, 3), 0.5)).shape == (2, 3)


@pytest.mark.parametrize("method", ["scale", "isotonic", "conformal", None])
def test_the_change_of_density_is_the_slope_of_the_calibrated_distribution(method):
    found = of_pit(distorted(700, seed=7), method)
    u, step = np.linspace(0.02, 0.98, 41), 1e-6
    slope = (found.pit(u + step) - found.pit(u - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(found.log_density_change(normal_scores(u))), slope, rtol=1e-5)


def test_extreme_levels_go_beyond_the_sample():
    u = distorted(300, seed=8)
    for method in ("scale", "isotonic"):
        found = of_pit(u, method)
        ends = found.base_scores(ndtri([1e-6, 1.0 - 1e-6]))
        # true: 1.7 x 4.75; three hundred rows end at about 1.7 x 2.9
        assert ends[0] < ndtri(u.min()) and ends[1] > ndtri(u.max())
        assert np.all(np.abs(np.abs(ends) - 1.7 * 4.753) < 2.5)


def test_deviations_grow_by_the_factor():
    assert of_pit(distorted(4000), "scale").std_factor == pytest.approx(1.7, abs=0.08)
    for method in ("isotonic", "conformal"):
        assert of_pit(distorted(4000), method).std_factor == pytest.approx(1.7, abs=0.12)
    assert Identity().std_factor == 1.0


@pytest.mark.parametrize("n", [19, 50, 137])
def test_conformal_intervals_hold_at_least_what_they_say(n):
    rng, repetitions = np.random.default_rng(9), 2000
    for level in (0.5, 0.9, 0.95):
        held = 0
        for _ in range(repetitions):
            z = 0.3 + rng.standard_t(3, n + 1)  # neither normal nor centred
            low, high = Conformal(np.sort(np.abs(z[:-1]))).base_scores(
                ndtri([0.5 - level / 2, 0.5 + level / 2])
            )
            held += low <= z[-1] <= high
        error = np.sqrt(level * (1 - level) / repetitions)
        assert held / repetitions > level - 4 * error
        assert held / repetitions < level + 1 / (n + 1) + 4 * error


def test_conformal_takes_the_rank_of_the_formula_and_is_infinite_beyond():
    z = np.arange(1.0, 20.0)  # 19 rows: 95 % is the largest, (19 + 1) x 0.95 = 19
    found = fit_calibration(z, "conformal")
    assert found.base_scores(ndtri([0.025, 0.975])).tolist() == [-19.0, 19.0]
    assert found.levels([0.02, 0.5, 0.98]).tolist() == [0.0, 0.5, 1.0]
    assert found.base_scores(ndtri(0.75)) == 10.0


@pytest.mark.parametrize("n", [60, 400])
def test_weighted_conformal_intervals_hold_new_rows_that_are_distributed_otherwise(n):
    """Held-out inputs are uniform, new ones have the density 2 x: ratios 2 x, of which two is the largest.

    Scores are wide where x is large, so that intervals that know nothing of it hold too few.
    """
    rng, repetitions, level = np.random.default_rng(4), 3000, 0.9
    ends = ndtri([0.5 - level / 2, 0.5 + level / 2])
    held = {"plain": 0, "own ratio": 0, "largest ratio": 0}
    for _ in range(repetitions):
        x, new = rng.uniform(size=n), np.sqrt(rng.uniform())
        z, z_new = (
            (1.0 + 6.0 * x**3) * rng.standard_t(5, n),
            (1.0 + 6.0 * new**3) * rng.standard_t(5),
        )
        for name, weight, own in (
            ("plain", None, 1.0),
            ("own ratio", 2.0 * x, 2.0 * new),
            ("largest ratio", 2.0 * x, 2.0),
        ):
            low, high = Conformal.fit(z, weight, own).base_scores(ends)
            held[name] += low <= z_new <= high
    share = {name: count / repetitions for name, count in held.items()}
    error = np.sqrt(level * (1 - level) / repetitions)
    assert share["plain"] < level - 4 * error
    assert share["own ratio"] > level - 4 * error
    assert share["largest ratio"] > level - 4 * error
    # no wider than it must be: one more row of the largest weight, beside a total of about n
    for name in ("own ratio", "largest ratio"):
        assert share[name] < level + 2.0 / (n + 2.0) + 4 * error


def test_conformal_intervals_of_places_hold_new_places():
    """Half of the places have one row, half 30 that have nearly all in common: counted as rows they hold too few."""
    rng, repetitions, level = np.random.default_rng(5), 2000, 0.9
    ends = ndtri([0.5 - level / 2, 0.5 + level / 2])
    sizes = np.repeat([1, 30], 20)
    places = Places(np.repeat(np.arange(40), sizes))
    held = {"rows": 0, "places": 0}
    for _ in range(repetitions):
        # places of many rows are the easy ones
        wide = np.append(np.where(sizes == 1, 3.0, 1.0), rng.choice([3.0, 1.0]))
        common = wide * rng.normal(size=41)
        z = common[places.of_row] + 0.1 * rng.normal(size=len(places.of_row))
        new = common[-1] + 0.1 * rng.normal()
        for name, given in (("rows", None), ("places", places)):
            low, high = fit_calibration(z, "conformal", 0, given).base_scores(ends)
            held[name] += low <= new <= high
    error = np.sqrt(level * (1 - level) / repetitions)
    assert held["places"] / repetitions > level - 4 * error
    assert held["places"] / repetitions < level + 1 / 41 + 4 * error
    assert held["rows"] / repetitions < level - 4 * error


@pytest.mark.parametrize("method", ["scale", "isotonic", "conformal"])
def test_repeated_scores_give_the_calibration_of_their_places(method):
    z = normal_scores(skewed(151))  # of no quantile whose place is a whole number
    row = np.random.default_rng(0).permutation(np.repeat(np.arange(151), 20))
    places = Places.of(row, np.arange(len(row)))
    at, once, many = np.linspace(-4.0, 4.0, 101), fit_calibration(z, method), None
    many = fit_calibration(z[row], method, 0, places)
    if method == "isotonic":  # a quantile between two rows is one of them where rows have weights
        here = 0.4 * at
        np.testing.assert_allclose(many.scores(here), once.scores(here), atol=0.15)
        once = Isotonic.fit(z, np.ones(151))
    np.testing.assert_allclose(many.base_scores(at), once.base_scores(at), rtol=1e-9)
    again = calibration_from_state(json.loads(json.dumps(many.to_state())))
    np.testing.assert_array_equal(again.base_scores(at), many.base_scores(at))


def test_the_choice_of_places_leaves_them_out_together():
    """A few places, each many times, say nothing of the shape of a distribution."""
    z = np.random.default_rng(0).normal(size=60)
    many = np.repeat(z, 50)
    places = Places(np.repeat(np.arange(60), 50))
    assert fit_calibration(many, "auto").name == "isotonic"
    of_places = fit_calibration(many, "auto", 0, places)
    assert of_places.name == fit_calibration(z, "auto").name == "none"
    assert fit_calibration(many[:900], "auto", 0, places.some(np.arange(900))).name == "none"


def test_places_of_a_design_narrow_nothing():
    """What is said of the places that a model has seen tells nothing of its deviations at others."""
    wide, narrow = distorted(1000, factor=0.6), distorted(1000, factor=1.5)
    for u, name in ((wide, "none"), (narrow, "scale")):
        z = normal_scores(u)
        assert fit_calibration(z, "auto").name == "scale"
        places = Places(np.arange(1000), design=True)
        assert fit_calibration(z, "auto", 0, places).name == name
        assert fit_calibration(z, "auto", 0, places.some(z < 9.0)).name == name
    # nor of their shape
    z = normal_scores(skewed(5000))
    assert fit_calibration(z, "auto").name == "isotonic"
    assert fit_calibration(z, "auto", 0, Places(np.arange(5000), design=True)).name != "isotonic"


def test_the_choice_is_none_where_nothing_is_wrong_and_the_right_one_elsewhere():
    uniform = [of_pit(np.random.default_rng(k).uniform(size=500), seed=k) for k in range(20)]
    # the one that gains anything by chance must also gain more than its standard error
    assert sum(found.name == "none" for found in uniform) >= 17
    assert of_pit(distorted(1000, factor=1.5)).name == "scale"
    assert of_pit(skewed(5000)).name == "isotonic"
    assert of_pit(distorted(19, factor=3.0)).name == "none"


@pytest.mark.parametrize("method", METHODS)
def test_states_come_back_exactly(method):
    found = of_pit(skewed(100), method)
    again = calibration_from_state(json.loads(json.dumps(found.to_state())))
    assert type(again) is type(found) and again == found and hash(again) == hash(found)
    p = np.linspace(0.0, 1.0, 101)
    np.testing.assert_array_equal(again.levels(p), found.levels(p))
    z = normal_scores(p)
    np.testing.assert_array_equal(again.log_density_change(z), found.log_density_change(z))


def test_ties_and_single_rows_leave_a_distribution():
    for u in ([0.5], [0.9] * 40, [0.0, 1.0], [0.1, 0.1, 0.9, 0.9] * 10):
        for method in ("scale", "isotonic", "conformal"):
            found = of_pit(u, method)
            z = np.linspace(-5, 5, 201)
            assert np.all(np.diff(found.scores(z)) > 0) and np.all(np.isfinite(found.log_slope(z)))


def test_splines_pass_through_their_knots_with_their_slopes():
    x, y = np.array([-1.0, 0.5, 0.7, 3.0]), np.array([-4.0, -3.9, 2.0, 2.5])
    spline = through(x, y, 0.3, 5.0)
    np.testing.assert_allclose(spline(x), y, atol=1e-14)
    np.testing.assert_allclose(spline.inverse(y), x, atol=1e-14)
    at = np.linspace(-3, 5, 900)
    np.testing.assert_allclose(spline.inverse(spline(at)), at, atol=1e-9)
    assert np.all(spline.derivative(at) > 0)
    off = np.abs(at[:, None] - x).min(axis=1) > 1e-4
    slope = (spline(at + 1e-6) - spline(at - 1e-6)) / 2e-6
    np.testing.assert_allclose(spline.derivative(at)[off], slope[off], rtol=1e-5)
    np.testing.assert_allclose(spline.derivative(x + 1e-9), spline.derivative(x - 1e-9), rtol=1e-5)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="u: expected PIT values from 0 to 1"):
        of_pit([0.2, 1.5])
    with pytest.raises(ValueError, match="z: expected finite normal scores, got 1"):
        fit_calibration([0.2, np.inf])
    for weight in ([1.0, -1.0], [0.0, 0.0], [1.0], [1.0, np.nan]):
        with pytest.raises(ValueError, match="weight: expected 2 finite numbers that are not neg"):
            Conformal.fit(np.array([0.2, 0.4]), np.array(weight))
    with pytest.raises(ValueError, match="calibrate: expected 'auto', 'scale'"):
        of_pit([0.2], "platt")
    with pytest.raises(ValueError, match="p: expected probabilities"):
        Identity().levels(95)
    with pytest.raises(ValueError, match="calibration: expected one of"):
        calibration_from_state({"name": "other"})
    assert isinstance(of_pit([0.2, 0.4], "isotonic"), Isotonic)
    assert isinstance(of_pit([0.2, 0.4], "scale"), Scale)


def test_the_deviation_of_heavy_tails_is_that_of_the_distribution():
    z = np.random.default_rng(3).standard_t(4, size=20_000) / np.sqrt(2.0)
    found = fit_calibration(z, "isotonic").std_factor
    # tails are straight in normal scores, so that some of those of Student's t are missing
    assert 0.85 * np.std(z) < found < 1.1 * np.std(z)
    assert Scale(1.7).std_factor == pytest.approx(1.7)
