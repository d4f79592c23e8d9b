"""Scales of the target: maps and their slopes, and distributions taken back from them."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import lognorm, norm, t, yeojohnson_normmax

from vastgp.auto.calibration import Identity, Scale
from vastgp.auto.distribution import Distribution
from vastgp.auto.warps import Log, Own, YeoJohnson, warp_from_state, warps_to_try
from vastgp.data import Rows, Standardizer
from vastgp.estimators.predictive import Predictive
from vastgp.likelihoods import Gaussian, StudentT

WARPS = [
    Own(),
    Log(),
    Log(0.5),
    YeoJohnson(0.3, 2.0),
    YeoJohnson(-0.5, 1.0),
    YeoJohnson(2.6, 0.7),
    YeoJohnson(0.0, 1.0),
    YeoJohnson(0.3, 2.0, -1.5),
    YeoJohnson(1.7, 0.7, 2.0),
    YeoJohnson(0.0, 1.0, 0.0),
    YeoJohnson(2.0, 0.7, 2.0, True),
    YeoJohnson(0.3, 2.0, -1.5, True),
]


def _values(warp):
    values = np.random.default_rng(0).normal(size=200) * 3.0
    return np.abs(values) + 0.01 if isinstance(warp, Log) else values


@pytest.mark.parametrize("warp", WARPS, ids=str)
def test_there_and_back(warp):
    y = _values(warp)
    np.testing.assert_allclose(warp.back(warp.forward(y)), y, rtol=1e-9, atol=1e-9)
    assert warp_from_state(warp.to_state()) == warp


@pytest.mark.parametrize("warp", WARPS, ids=str)
def test_slopes_are_those_of_finite_differences(warp):
    y, h = _values(warp), 1e-6
    slope = (warp.forward(y + h) - warp.forward(y - h)) / (2 * h)
    np.testing.assert_allclose(np.exp(warp.log_slope(y)), slope, rtol=1e-5)
    assert np.all(np.diff(warp.forward(np.sort(y))) > 0.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_no_scale_grows_faster_than_a_line_beyond_the_farthest_target(sign):
    """Else a normal density of it falls as exp(-|y|^3.4), of which the rows have not spoken."""
    y = sign * np.append(np.random.default_rng(0).lognormal(size=200), -0.5)
    _, warp = warps_to_try(y)
    assert warp.farthest == -0.5 * sign
    beyond = sign * np.array([-0.5, -1.5, -100.0, -1e6])
    steps = np.diff(warp.forward(beyond)) / np.diff(beyond)
    np.testing.assert_allclose(steps, np.exp(warp.log_slope(warp.farthest)), rtol=1e-9)
    # on the other side it is what it was, far beyond all rows too
    plain = YeoJohnson(warp.power, warp.unit)
    other = sign * np.geomspace(0.01, 1e6, 20)
    np.testing.assert_array_equal(warp.forward(other), plain.forward(other))
    assert np.abs(plain.forward(beyond[-1])) > 100.0 * np.abs(warp.forward(beyond[-1]))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_scale_of_one_side_is_no_logarithm_on_the_other(sign):
    """Its power is 2 where all have one sign and lean to zero, and for the other sign 0, of which none has spoken."""
    y = sign * np.minimum(10.0, 11.0 - np.random.default_rng(0).lognormal(-3.0, 2.0, size=2000))
    y = y[sign * y >= 0.0]
    _, warp = warps_to_try(y)
    assert warp.power == (2.0 if sign > 0.0 else 0.0) and warp.one_sided
    below = -sign * np.array([0.0, 1.0, 50.0, 1e3])
    # of a slope of one in units of the deviation
    np.testing.assert_allclose(warp.forward(below), below / warp.unit, rtol=1e-12)
    assert not warps_to_try(np.append(y, -0.1 * sign))[1].one_sided


def test_which_scales_are_tried():
    generator = np.random.default_rng(1)
    assert warps_to_try(generator.normal(size=500)) == [Own()]
    assert warps_to_try(generator.lognormal(size=500)) == [Own(), Log()]
    kinds = [type(warp) for warp in warps_to_try(-generator.lognormal(size=500))]
    assert kinds == [Own, YeoJohnson]
    assert warps_to_try(np.ones(50)) == [Own()]
    assert warps_to_try(generator.integers(0, 3, size=500) ** 4) == [Own()]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("unit", [2.0**-480, 2.0**480])
def test_a_skewed_target_is_so_in_any_unit(unit):
    """Its third moment is 1e±430: an overflow, or nothing."""
    y = np.random.default_rng(0).gamma(2.0, size=200) - 1.0
    [_, there], [_, here] = warps_to_try(unit * y), warps_to_try(y)
    assert (there.power, there.unit) == (here.power, unit * here.unit)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_scales_that_are_tried_reach_all_that_a_normal_variable_may_be(sign):
    generator = np.random.default_rng(2)
    y = sign * np.concatenate([np.zeros(50), generator.lognormal(sigma=1.5, size=450)])
    power = yeojohnson_normmax(y / np.std(y))
    assert not 0.0 <= power <= 2.0  # by itself it would be a scale that ends
    warp = warps_to_try(y)[1]
    normal = np.linspace(-8.0, 8.0, 33)
    np.testing.assert_allclose(warp.forward(warp.back(normal)), normal, rtol=1e-9, atol=1e-9)


def _predictive(mean, std):
    """Normal distributions of the model's scale."""
    scaling = Standardizer().fit(Rows(np.zeros((2, 1)), np.array([-1.0, 1.0])))
    return Predictive(Gaussian(0.01), np.asarray(mean), np.asarray(std) ** 2 - 0.01, scaling)


def test_a_log_scale_gives_lognormal_distributions():
    mean, std = np.array([0.3, -1.0]), np.array([0.4, 0.2])
    found = Distribution(_predictive(mean, std), Log(), Identity(), (0.0, 1e9))
    truth = [lognorm(s, scale=np.exp(m)) for m, s in zip(mean, std, strict=True)]
    np.testing.assert_allclose(found.mean, [one.mean() for one in truth], rtol=1e-8)
    np.testing.assert_allclose(found.std, [one.std() for one in truth], rtol=1e-6)
    np.testing.assert_allclose(
        found.quantiles([0.05, 0.5, 0.99]),
        [[one.ppf(p) for one in truth] for p in (0.05, 0.5, 0.99)],
        rtol=1e-9,
    )
    y = np.array([1.2, 0.5])
    np.testing.assert_allclose(
        found.log_density(y), [one.logpdf(v) for one, v in zip(truth, y, strict=True)], rtol=1e-9
    )
    assert found.log_density(np.array([-1.0, 0.5]))[0] == -np.inf


def test_what_is_rounded_may_be_rounded_to_zero():
    """Of 144 hours without a zero in 433 others, one with one had a density of none, and the mean score no end."""
    generator = np.random.default_rng(3)
    values = generator.lognormal(1.0, 1.0, 400)
    whole = np.maximum(np.rint(values), 1.0)
    assert warps_to_try(whole) == [Own(), Log(0.5)]
    for unit in (2.54, 1e-30, 1e30):
        (_, warp) = warps_to_try(unit * whole)
        assert isinstance(warp, Log)
        assert warp.shift == pytest.approx(0.5 * unit)
    # not where they are not rounded, or the least are many units
    for other in (values, np.rint(1000.0 * values) + 100.0, np.rint(1e9 * values)):
        assert warps_to_try(other) == [Own(), Log()]
    assert warps_to_try(np.maximum(np.rint(values), 1.0), series=True) == [Log(0.5), Own()]
    found = Distribution(_predictive([0.5], [1.0]), Log(0.5), Identity(), (1.0, 40.0))
    assert found.log_density(np.array([0.0]))[0] == pytest.approx(
        lognorm(1.0, scale=np.exp(0.5)).logpdf(0.5), rel=1e-9
    )
    # the numbers that are rounded to zero are zero
    assert found.quantiles([0.01, 0.5]).ravel() == pytest.approx([0.0, np.exp(0.5) - 0.5])


def test_moments_far_from_all_rows_stay_within_reach_of_them():
    wide = Distribution(_predictive([1.0], [6.0]), Log(), Identity(), (1.0, 50.0))
    assert wide.mean[0] < 99.0 and wide.std[0] < 99.0
    # its quantiles are what they are
    np.testing.assert_allclose(wide.quantiles([0.999])[0], lognorm(6.0, scale=np.e).ppf(0.999))
    # up to five times as far as the targets are apart on that scale
    mad = Distribution(_predictive([1.0], [300.0]), Log(), Identity(), (1.0, 50.0))
    ends = mad.quantiles([0.001, 0.5, 0.999])[:, 0]
    np.testing.assert_allclose(ends, np.exp(1.0) * 50.0 ** np.array([-5.0, 0.0, 5.0]), rtol=1e-9)
    plain = Distribution(_predictive([1.0], [300.0]), Own(), Identity(), (1.0, 50.0))
    np.testing.assert_allclose(plain.quantiles([0.999])[0], norm(1.0, 300.0).ppf(0.999))
    # what has grown counts as no more than twice as many orders of magnitude beyond them as they span
    grown = Distribution(_predictive([128.0, -128.0], [1.0, 1.0]), Log(), Identity(), (1.0, 50.0))
    np.testing.assert_allclose(grown.mean, [2 * 50.0**3 - 1.0, np.exp(-127.5)], rtol=1e-6)


@pytest.mark.parametrize("warp", [Own(), YeoJohnson(0.4, 1.0)], ids=str)
def test_calibrated_densities_integrate_to_one_and_agree_with_quantiles(warp):
    found = Distribution(_predictive([0.5], [0.8]), warp, Scale(1.7), (-10.0, 10.0))

    def density(y):
        return float(np.exp(found.log_density(np.array([y]))[0]))

    low, middle = found.quantiles([1e-9, 0.3])[:, 0]
    np.testing.assert_allclose(quad(density, low, middle, limit=200)[0], 0.3, atol=1e-6)
    np.testing.assert_allclose(found.normal_scores(np.array([middle])), norm.ppf(0.3), atol=1e-8)


def test_a_scale_of_deviations_scales_them():
    plain = Distribution(_predictive([0.5], [0.8]), Own(), Identity(), (-1.0, 1.0))
    wider = Distribution(_predictive([0.5], [0.8]), Own(), Scale(1.7), (-1.0, 1.0))
    np.testing.assert_allclose(wider.std, 1.7 * plain.std)
    np.testing.assert_array_equal(wider.mean, plain.mean)


def test_tails_without_a_deviation_have_that_of_their_middle():
    scaling = Standardizer().fit(Rows(np.zeros((2, 1)), np.array([-1.0, 1.0])))
    of_model = Predictive(StudentT(0.5, 1.5), np.array([0.2]), np.array([1e-12]), scaling)
    found = Distribution(of_model, Own(), Identity(), (-1.0, 1.0))
    assert of_model.std[0] == np.inf
    truth = 0.5 * (t(1.5).ppf(norm.cdf(1.0)) - t(1.5).ppf(norm.cdf(-1.0))) * 0.5
    np.testing.assert_allclose(found.std, truth, rtol=1e-3)


def test_what_grows_beyond_its_rows_has_a_mean_and_a_deviation_there():
    # medians of 2.5, 12 and 60 of targets up to 6, of lognormal variables of a deviation of 5 %
    medians = np.array([2.5, 12.0, 60.0])
    found = Distribution(_predictive(np.log(medians), [0.05] * 3), Log(), Identity(), (1.0, 6.0))
    truth = lognorm(0.05, scale=medians)
    np.testing.assert_allclose(found.mean, truth.mean(), rtol=1e-6)
    np.testing.assert_allclose(found.std, truth.std(), rtol=1e-4)
