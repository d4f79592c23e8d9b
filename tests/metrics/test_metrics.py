"""Scores against independent references: scipy.stats, numerical integration, simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn import metrics as sk

from vastgp import metrics


@pytest.fixture(scope="module")
def predictions():
    """Predictions of every kind at once: sharp, wide, biased, far out in both tails."""
    rng = np.random.default_rng(7)
    std = np.exp(rng.uniform(-2.0, 2.0, 60))
    mean = 5.0 * rng.standard_normal(60)
    y = mean + std * np.concatenate([rng.standard_normal(54), [-9.0, 9.0, 0.0, 30.0, -30.0, 1e-9]])
    return y, mean, std


def calibrated(n, seed):
    """Observations that are drawn from their own predictive distribution."""
    rng = np.random.default_rng(seed)
    mean, std = rng.standard_normal(n), np.exp(rng.uniform(-1.0, 1.0, n))
    return mean + std * rng.standard_normal(n), mean, std


def test_point_scores_equal_scikit_learn(predictions):
    y, mean, _ = predictions
    assert metrics.rmse(y, mean) == pytest.approx(sk.root_mean_squared_error(y, mean), rel=1e-13)
    assert metrics.mae(y, mean) == pytest.approx(sk.mean_absolute_error(y, mean), rel=1e-13)
    assert metrics.r2(y, mean) == pytest.approx(sk.r2_score(y, mean), rel=1e-13)


@pytest.mark.parametrize("unit", [1e-305, 1e-200, 1e-170, 1.0, 1e170, 1e300])
def test_point_scores_in_any_unit(unit, predictions):
    """Squares of errors of 1e-170 are zero, and those of 1e170 infinite."""
    y, mean = predictions[0] / 100.0, predictions[1] / 100.0
    found = metrics.rmse(y * unit, mean * unit) / unit
    assert found == pytest.approx(metrics.rmse(y, mean))
    assert metrics.r2(y * unit, mean * unit) == pytest.approx(metrics.r2(y, mean))
    report = metrics.regression_report(
        y * unit, mean * unit, unit, y_train_mean=0.0, y_train_scale=unit
    )
    assert report["r2"] == pytest.approx(metrics.r2(y, mean))
    assert report["standardised"]["rmse"] == pytest.approx(metrics.rmse(y, mean))


def test_point_scores_of_errors_in_another_unit_than_the_targets():
    y = np.array([0.0, 1e-170, 2e-170])
    assert metrics.rmse([0.0, 1e-170], [0.0, 0.0]) / 1e-170 == pytest.approx(0.5**0.5)
    assert metrics.r2(y, y) == 1.0 and metrics.rmse(y, y) == 0.0
    assert metrics.r2(y, [1e170, 0.0, 0.0]) == -np.inf
    assert metrics.r2([0.0, 1e170], [1.0, 1e170]) == 1.0


def test_nlpd_equals_the_normal_density_of_scipy(predictions):
    y, mean, std = predictions
    reference = -stats.norm.logpdf(y, loc=mean, scale=std)
    np.testing.assert_allclose(metrics.nlpd(y, mean, std, average=False), reference, rtol=1e-12)
    assert metrics.nlpd(y, mean, std) == pytest.approx(reference.mean(), rel=1e-13)


def test_crps_equals_its_defining_integral(predictions):
    y, mean, std = predictions

    def score(target, loc, scale):
        """Integrate (F(t) - 1[t >= y])^2 on both sides of the jump at y."""

        def below(t):
            return stats.norm.cdf(t, loc, scale) ** 2

        def above(t):
            return stats.norm.sf(t, loc, scale) ** 2

        # Beyond twelve standard deviations either integrand is 0 or 1 to 1e-32.
        low, high = loc - 12.0 * scale, loc + 12.0 * scale
        inside = min(max(target, low), high)
        options = {"epsabs": 1e-12, "epsrel": 1e-12, "limit": 200}
        area = integrate.quad(below, low, inside, **options)[0]
        area += integrate.quad(above, inside, high, **options)[0]
        return area + max(target - high, 0.0) + max(low - target, 0.0)

    reference = [score(*row) for row in zip(y, mean, std, strict=True)]
    np.testing.assert_allclose(
        metrics.crps_gaussian(y, mean, std, average=False), reference, rtol=1e-9, atol=1e-10
    )


@pytest.mark.statistical
def test_crps_equals_its_energy_form_by_simulation():
    """CRPS = E|X - y| - E|X - X'| / 2 with X, X' from the prediction: 4 s.e. of 400,000 draws."""
    rng = np.random.default_rng(3)
    y, mean, std = 1.3, 0.4, 0.7
    first, second = mean + std * rng.standard_normal((2, 400_000))
    draws = np.abs(first - y) - 0.5 * np.abs(first - second)
    error = draws.std(ddof=1) / np.sqrt(draws.size)
    assert abs(metrics.crps_gaussian([y], [mean], [std]) - draws.mean()) < 4.0 * error


def test_crps_of_a_sharp_prediction_is_the_absolute_error(predictions):
    y, mean, _ = predictions
    far = np.abs(y - mean) > 1e-3
    sharp = metrics.crps_gaussian(y[far], mean[far], 1e-9)
    assert sharp == pytest.approx(metrics.mae(y[far], mean[far]), rel=1e-6)


@pytest.mark.statistical
@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.99])
def test_coverage_of_calibrated_predictions_is_the_level(level):
    """Within 4 binomial standard errors of 50,000 simulated observations."""
    y, mean, std = calibrated(50_000, seed=11)
    error = np.sqrt(level * (1.0 - level) / y.size)
    assert abs(metrics.coverage(y, mean, std, level) - level) < 4.0 * error


@pytest.mark.statistical
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_coverage_of_wrong_widths_is_that_of_the_normal_distribution(factor):
    y, mean, std = calibrated(50_000, seed=12)
    expected = 1.0 - 2.0 * stats.norm.sf(factor * stats.norm.ppf(0.975))
    error = np.sqrt(expected * (1.0 - expected) / y.size)
    assert abs(metrics.coverage(y, mean, factor * std) - expected) < 4.0 * error


def test_coverage_counts_by_hand():
    # Halves of the 95 % interval are 1.96 wide: the second and the fourth observation are outside.
    y = [0.0, 2.0, -1.9, -3.0, 1.95]
    assert metrics.coverage(y, np.zeros(5), np.ones(5)) == pytest.approx(0.6)


def test_interval_width_equals_scipy_intervals(predictions):
    _, mean, std = predictions
    low, high = stats.norm.interval(0.8, loc=mean, scale=std)
    assert metrics.interval_width(std, 0.8) == pytest.approx((high - low).mean(), rel=1e-12)


@pytest.mark.statistical
def test_pit_of_calibrated_predictions_is_uniform_and_of_wrong_ones_is_not():
    y, mean, std = calibrated(5_000, seed=13)
    assert stats.kstest(metrics.pit_values(y, mean, std), "uniform").pvalue > 0.01
    assert stats.kstest(metrics.pit_values(y, mean, 1.3 * std), "uniform").pvalue < 1e-6
    assert stats.kstest(metrics.pit_values(y, mean + 0.2 * std, std), "uniform").pvalue < 1e-6


def test_pit_equals_the_distribution_function_of_scipy(predictions):
    y, mean, std = predictions
    reference = stats.norm.cdf(y, mean, std)
    np.testing.assert_allclose(metrics.pit_values(y, mean, std), reference, rtol=1e-10)


def test_calibration_curve_is_coverage_at_every_level(predictions):
    y, mean, std = predictions
    nominal, observed = metrics.calibration_curve(y, mean, std)
    assert nominal.size == 99
    for level, fraction in zip(nominal, observed, strict=True):
        assert fraction == metrics.coverage(y, mean, std, float(level))


def test_calibration_error_equals_numerical_integration():
    y, mean, std = calibrated(40, seed=14)
    pit = np.sort(metrics.pit_values(y, mean, 0.8 * std))
    grid = (np.arange(2_000_000) + 0.5) / 2_000_000
    distribution = np.searchsorted(pit, grid, side="right") / pit.size
    reference = np.abs(distribution - grid).mean()
    assert metrics.calibration_error(y, mean, 0.8 * std) == pytest.approx(reference, abs=1e-6)
    assert stats.wasserstein_distance(pit, grid[::200]) == pytest.approx(reference, abs=1e-4)


@pytest.mark.statistical
def test_calibration_error_of_perfect_predictions_is_that_of_a_brownian_bridge():
    """The documented floor sqrt(2 / pi) (pi / 8) / sqrt(n), in 4 s.e. of 400 repetitions."""
    n = 1_000
    errors = np.array([metrics.calibration_error(*calibrated(n, seed)) for seed in range(400)])
    expected = np.sqrt(2.0 / np.pi) * np.pi / 8.0 / np.sqrt(n)
    assert abs(errors.mean() - expected) < 4.0 * errors.std(ddof=1) / np.sqrt(errors.size)


def test_calibration_error_of_useless_certainty_is_one_half():
    assert metrics.calibration_error(np.ones(10), np.zeros(10), 1e-6) == pytest.approx(0.5)


def test_msll_of_the_training_gaussian_is_zero():
    y = np.random.default_rng(5).normal(3.0, 2.0, 100)
    score = metrics.msll(y, np.full(100, 3.0), 2.0, y_train_mean=3.0, y_train_scale=2.0)
    assert score == pytest.approx(0.0, abs=1e-14)


def test_report_in_standardised_units_equals_scores_of_standardised_numbers(predictions):
    """Two roads: convert the scores, or score the converted predictions."""
    y, mean, std = predictions
    centre, scale = 4.0, 2.5
    report = metrics.regression_report(y, mean, std, y_train_mean=centre, y_train_scale=scale)
    z = ((y - centre) / scale, (mean - centre) / scale, std / scale)
    standardised, own = report["standardised"], report["target"]
    assert standardised["rmse"] == pytest.approx(metrics.rmse(*z[:2]), rel=1e-12)
    assert standardised["mae"] == pytest.approx(metrics.mae(*z[:2]), rel=1e-12)
    assert standardised["nlpd"] == pytest.approx(metrics.nlpd(*z), rel=1e-12)
    assert standardised["crps"] == pytest.approx(metrics.crps_gaussian(*z), rel=1e-12)
    assert standardised["interval_width"] == pytest.approx(metrics.interval_width(z[2]), rel=1e-12)
    assert own["rmse"] == metrics.rmse(y, mean)
    assert own["nlpd"] == metrics.nlpd(y, mean, std)
    assert report["coverage"] == metrics.coverage(*z)
    trivial = stats.norm(centre, scale)
    assert report["msll"] == pytest.approx(own["nlpd"] + trivial.logpdf(y).mean(), rel=1e-12)
    assert report["rows"] == 60
    assert report["coverage_se"] == pytest.approx(np.sqrt(0.95 * 0.05 / 60))


def test_report_of_one_observation_has_no_r2():
    report = metrics.regression_report([1.0], [0.5], [1.0], y_train_mean=0.0, y_train_scale=1.0)
    assert report["r2"] is None
    assert report["target"]["rmse"] == 0.5


ONES = np.ones(3)
BAD_INPUT = {
    "not numbers": (metrics.rmse, (["a", "b"], ONES), {}, r"y: expected real numbers, got .*<U1"),
    "complex": (metrics.rmse, (ONES, ONES * 1j), {}, r"mean: expected real numbers"),
    "a matrix": (
        metrics.rmse,
        (np.ones((3, 1)), ONES),
        {},
        r"y: .*shape \(n,\), got shape \(3, 1\)",
    ),
    "empty": (metrics.rmse, ([], []), {}, r"y: expected at least one value"),
    "NaN": (
        metrics.rmse,
        (ONES, [1.0, np.nan, 0.0]),
        {},
        r"mean: 1 of 3 values are NaN or infinite \(the first at index 1\)",
    ),
    "infinite": (metrics.nlpd, (ONES, ONES, [1.0, np.inf, np.inf]), {}, r"std: 2 of 3 values"),
    "lengths": (
        metrics.rmse,
        (ONES, np.ones(2)),
        {},
        r"mean: expected as many values as y, 3, got 2",
    ),
    "length of std": (
        metrics.nlpd,
        (ONES, ONES, np.ones(2)),
        {},
        r"std: expected as many values as y",
    ),
    "zero std": (
        metrics.nlpd,
        (ONES, ONES, [1.0, 0.0, 2.0]),
        {},
        r"std: expected positive .* from 0 to 2",
    ),
    "negative std": (metrics.crps_gaussian, (ONES, ONES, -1.0), {}, r"std: expected positive"),
    "densities": (
        metrics.distribution_report,
        (ONES, ONES),
        {"log_density": [np.nan] * 3, "normal_scores": ONES, "interval": (ONES, ONES)},
        r"log_density: 3 of 3 values are NaN",
    ),
    "number of densities": (
        metrics.distribution_report,
        (ONES, ONES),
        {"log_density": [0.0], "normal_scores": ONES, "interval": (ONES, ONES)},
        r"log_density: expected as many values as y, 3, got 1",
    ),
    "number of scores": (
        metrics.distribution_report,
        (ONES, ONES),
        {"log_density": ONES, "normal_scores": np.ones(4), "interval": (ONES, ONES)},
        r"normal_scores: expected as many values as y, 3, got 4",
    ),
    "infinite scores": (
        metrics.distribution_report,
        (ONES, ONES),
        {"log_density": ONES, "normal_scores": [0.0, -np.inf, 0.0], "interval": (ONES, ONES)},
        r"normal_scores: 1 of 3 values are NaN or infinite \(the first at index 1\)",
    ),
    "one interval for all": (
        metrics.distribution_report,
        (ONES, ONES),
        {"log_density": ONES, "normal_scores": ONES, "interval": (ONES, [1.0])},
        r"interval\[1\]: expected as many values as y, 3, got 1",
    ),
    "ends that are exchanged": (
        metrics.distribution_report,
        (ONES, ONES),
        {"log_density": ONES, "normal_scores": ONES, "interval": (ONES + 1.0, ONES)},
        r"interval: .*got 2 above 1 at index 0 and in 3 of 3 rows",
    ),
    "one end": (
        metrics.distribution_report,
        (ONES, ONES),
        {"log_density": ONES, "normal_scores": ONES, "interval": (ONES,)},
        r"interval: expected the lower and the upper ends",
    ),
    "level in per cent": (
        metrics.distribution_report,
        (ONES, ONES),
        {"log_density": ONES, "normal_scores": ONES, "interval": (ONES, ONES), "level": 95},
        r"level: .*got 95; 95 % is 0\.95",
    ),
    "no level": (metrics.coverage, (ONES, ONES, ONES, None), {}, r"level: .*got None"),
    "level as text": (
        metrics.regression_report,
        (ONES, ONES, ONES),
        {"y_train_mean": 0.0, "y_train_scale": 1.0, "level": "0.95"},
        r"level: .*got '0\.95'",
    ),
    "masked": (
        metrics.rmse,
        (np.ma.masked_array([1.0, 2.0, 3.0], [0, 0, 1]), [1.0, 2.0, 99.0]),
        {},
        r"y: 1 of 3 values are masked; drop these rows",
    ),
    "masked std": (
        metrics.nlpd,
        (ONES, ONES, np.ma.masked_array(ONES, [1, 0, 1])),
        {},
        r"std: 2 of 3 values are masked",
    ),
    "no training mean": (
        metrics.msll,
        (ONES, ONES, ONES),
        {"y_train_mean": None, "y_train_scale": 1.0},
        r"y_train_mean: expected a finite number, got None",
    ),
    "percent": (metrics.coverage, (ONES, ONES, ONES, 95), {}, r"level: .*got 95; 95 % is 0\.95"),
    "levels": (
        metrics.calibration_curve,
        (ONES, ONES, ONES, [0.5, 1.0]),
        {},
        r"levels: .*from 0\.5 to 1",
    ),
    "constant y": (metrics.r2, (ONES, ONES), {}, r"y: all 3 values are equal, so R2 is undefined"),
    "training scale": (
        metrics.msll,
        (ONES, ONES, ONES),
        {"y_train_mean": 0.0, "y_train_scale": 0.0},
        r"y_train_scale: expected the positive standard deviation",
    ),
    "training mean": (
        metrics.msll,
        (ONES, ONES, ONES),
        {"y_train_mean": np.nan, "y_train_scale": 1.0},
        r"y_train_mean: expected a finite number, got nan",
    ),
}


def test_scores_of_counts_have_no_standardised_units():
    rng = np.random.default_rng(0)
    rate = rng.gamma(3.0, 2.0, 4000)
    y = rng.poisson(rate).astype(float)
    below, reached = stats.poisson.cdf([y - 1.0, y], rate)
    found = metrics.distribution_report(
        y,
        rate,
        log_density=stats.poisson.logpmf(y, rate),
        normal_scores=stats.norm.ppf(rng.uniform(below, reached)),
        interval=stats.poisson.interval(0.95, rate),
    )
    assert found["standardised"] is None and found["msll"] is None
    assert found["target"]["nlpd"] == pytest.approx(-stats.poisson.logpmf(y, rate).mean())
    assert found["calibration_error"] < 3 * 0.313 / len(y) ** 0.5
    assert 0.95 < found["coverage"] < 0.98


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_names_the_argument(case):
    score, args, kwargs, message = BAD_INPUT[case]
    with pytest.raises(ValueError, match=message):
        score(*args, **kwargs)
