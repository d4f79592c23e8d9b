"""Scores of class probabilities against hand counts, loops over the rows, scikit-learn and simulation."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from vastgp import metrics

NAMES = np.array(["ant", "bee", "cat", "dog"])


@pytest.fixture(scope="module")
def several():
    """Four classes, 300 rows: labels as strings, and over-confident probabilities."""
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.full(4, 0.7), size=300)
    labels = NAMES[[rng.choice(4, p=0.6 * row + 0.1) for row in p]]
    return labels, p


@pytest.fixture(scope="module")
def two():
    """Two classes, 400 rows: the probability of the second one."""
    rng = np.random.default_rng(2)
    p = rng.beta(0.8, 1.2, 400)
    return (rng.random(400) < p**1.5).astype(int), p


def calibrated(n, seed):
    """Labels that are drawn with their own predicted probability."""
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return rng.random(n) < p, p


# ------------------------------------------------------------------------------- by hand
HAND = (["no", "yes", "yes", "no"], [0.1, 0.8, 0.4, 0.3], ["no", "yes"])


def test_scores_of_four_rows_by_hand():
    assert metrics.error_rate(*HAND) == 0.25  # "yes" at 0.4 is the only wrong one
    # (0.1^2 + 0.2^2 + 0.6^2 + 0.3^2) / 4
    assert metrics.brier_score(*HAND) == pytest.approx(0.125, rel=1e-14)
    # The observed classes had probabilities 0.9, 0.8, 0.4 and 0.7.
    assert metrics.nlpd_of_probabilities(*HAND) == pytest.approx(-np.log(0.2016) / 4, rel=1e-14)
    # Bins [0, 1/2] and (1/2, 1]: |0.8 - 1| of three rows, then |0.8 - 1| of one.
    assert metrics.expected_calibration_error(*HAND, bins=2) == pytest.approx(0.4 / 4, rel=1e-14)


def test_scores_of_three_classes_by_hand():
    labels, p = [2, 0, 1], [[0.2, 0.2, 0.6], [0.3, 0.3, 0.4], [0.0, 1.0, 0.0]]
    assert metrics.error_rate(labels, p) == pytest.approx(1 / 3)
    squares = (0.04 + 0.04 + 0.16) + (0.49 + 0.09 + 0.16) + 0.0
    assert metrics.brier_score(labels, p) == pytest.approx(squares / 3, rel=1e-14)
    assert metrics.nlpd_of_probabilities(labels, p) == pytest.approx(-np.log(0.18) / 3, rel=1e-14)
    # Confidences 0.6 (right), 0.4 (wrong) and 1 (right), each alone in one of five bins.
    ece = metrics.expected_calibration_error(labels, p, bins=5)
    assert ece == pytest.approx((0.4 + 0.4 + 0.0) / 3, rel=1e-14)


def test_reliability_curve_by_hand():
    curve = metrics.reliability_curve([0, 1, 1, 1, 0], [0.25, 0.05, 0.9, 0.7, 0.8], bins=4)
    # 0.25 closes the first bin, the second and third are (0.25, 0.5] and (0.5, 0.75].
    np.testing.assert_allclose(curve.confidence, [0.15, 0.7, 0.85], rtol=1e-14)
    assert curve.frequency.tolist() == [0.5, 1.0, 0.5]
    assert curve.counts.tolist() == [2, 1, 2]
    assert curve.low[1] == pytest.approx(0.025, rel=1e-12)  # one of one: p = 0.025
    assert curve.high[1] == 1.0


def test_equal_probabilities_stay_in_one_bin_of_equal_counts():
    p = np.array([0.2] * 6 + [0.5, 0.6, 0.7, 0.9])
    curve = metrics.reliability_curve(np.arange(10) % 2, p, bins=5, strategy="quantile")
    assert curve.counts.tolist() == [6, 2, 2]


def test_bins_of_equal_counts_differ_by_at_most_one_row_and_may_outnumber_the_rows():
    labels, p = np.arange(23) % 2, np.random.default_rng(5).random(23)
    for bins in (3, 7, 22, 23):
        counts = metrics.reliability_curve(labels, p, bins=bins, strategy="quantile").counts
        assert counts.size == bins
        assert set(counts) <= {23 // bins, 23 // bins + 1}
    curve = metrics.reliability_curve(labels, p, bins=50, strategy="quantile")
    assert curve.confidence.tolist() == sorted(p)


def test_of_equally_probable_classes_the_earlier_one_is_predicted():
    assert metrics.error_rate(["a", "b"], [0.5, 0.5], ["b", "a"]) == 0.5
    assert metrics.error_rate(["b", "b"], [0.5, 0.5], ["b", "a"]) == 0.0


# ------------------------------------------------------------------ against other roads
def loop_over_bins(p, happened, edges):
    """ECE by its definition: each bin (a, b] in turn."""
    total = 0.0
    for a, b in itertools.pairwise(edges):
        inside = [i for i in range(len(p)) if a < p[i] <= b]
        if inside:
            gap = np.mean([p[i] for i in inside]) - np.mean([happened[i] for i in inside])
            total += len(inside) / len(p) * abs(gap)
    return total


@pytest.mark.parametrize("bins", [1, 7, 10, 40])
def test_calibration_error_equals_a_loop_over_the_bins(several, two, bins):
    edges = np.linspace(0.0, 1.0, bins + 1)
    labels, p = two
    ece = metrics.expected_calibration_error(labels, p, bins=bins)
    assert ece == pytest.approx(loop_over_bins(p, labels == 1, edges), rel=1e-12)
    labels, p = several
    ece = metrics.expected_calibration_error(labels, p, bins=bins)
    right = [NAMES[np.argmax(row)] == label for row, label in zip(p, labels, strict=True)]
    assert ece == pytest.approx(loop_over_bins(p.max(axis=1), right, edges), rel=1e-12)


@pytest.mark.parametrize("bins", [4, 8, 10])
def test_bins_of_equal_mass_hold_consecutive_probabilities_in_equal_number(two, bins):
    labels, p = two
    parts = np.split(np.argsort(p), bins)
    reference = sum(abs(np.sum(p[part] - labels[part])) for part in parts) / p.size
    ece = metrics.expected_calibration_error(labels, p, bins=bins, strategy="quantile")
    assert ece == pytest.approx(reference, rel=1e-12)
    curve = metrics.reliability_curve(labels, p, bins=bins, strategy="quantile")
    assert curve.counts.tolist() == [p.size // bins] * bins


@pytest.mark.parametrize(("bins", "strategy"), [(9, "uniform"), (8, "quantile")])
def test_reliability_curve_equals_scikit_learn(two, bins, strategy):
    curve = metrics.reliability_curve(*two, bins=bins, strategy=strategy)
    frequency, confidence = calibration_curve(*two, n_bins=bins, strategy=strategy)
    np.testing.assert_allclose(curve.frequency, frequency, rtol=1e-12)
    np.testing.assert_allclose(curve.confidence, confidence, rtol=1e-12)
    assert curve.counts.sum() == 400


def test_intervals_equal_the_exact_binomial_ones_of_scipy(two):
    curve = metrics.reliability_curve(*two, bins=60, level=0.9)
    assert {0.0, 1.0} < set(curve.frequency)  # the closed ends are among them
    for frequency, n, low, high in zip(*curve[1:], strict=True):
        test = stats.binomtest(round(frequency * n), int(n))
        reference = test.proportion_ci(0.9, method="exact")
        assert (low, high) == pytest.approx((reference.low, reference.high), rel=1e-9)


def test_nlpd_brier_and_errors_equal_scikit_learn(several, two):
    labels, p = several
    nlpd = metrics.nlpd_of_probabilities(labels, p)
    assert nlpd == pytest.approx(sk.log_loss(labels, p), rel=1e-12)
    wrong = 1.0 - sk.accuracy_score(labels, NAMES[p.argmax(axis=1)])
    assert metrics.error_rate(labels, p) == pytest.approx(wrong, rel=1e-12)
    labels, p = two
    nlpd = metrics.nlpd_of_probabilities(labels, p)
    assert nlpd == pytest.approx(sk.log_loss(labels, p), rel=1e-12)
    brier = metrics.brier_score(labels, p)
    assert brier == pytest.approx(sk.brier_score_loss(labels, p), rel=1e-12)


def test_brier_score_of_many_classes_is_that_of_each_column_added(several):
    labels, p = several
    columns = [sk.brier_score_loss(labels == name, p[:, i]) for i, name in enumerate(NAMES)]
    assert metrics.brier_score(labels, p) == pytest.approx(sum(columns), rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_impossible_class_that_happened_costs_what_scikit_learn_says(dtype):
    labels, p = [1, 0, 1], np.array([0.0, 0.25, 0.5], dtype)
    reference = -(np.log(float(np.finfo(dtype).eps)) + np.log(0.75) + np.log(0.5)) / 3
    assert metrics.nlpd_of_probabilities(labels, p) == pytest.approx(reference, rel=1e-12)
    assert sk.log_loss(labels, p) == pytest.approx(reference, rel=1e-6)
    report = metrics.classification_report(labels, p)
    assert report["nlpd_clipped"] == 1
    assert report["nlpd"] == metrics.nlpd_of_probabilities(labels, p)


def test_certain_and_right_scores_zero():
    p = np.eye(3)[[2, 0, 1, 1]]
    labels = [2, 0, 1, 1]
    for score in (metrics.nlpd_of_probabilities, metrics.brier_score, metrics.error_rate):
        assert score(labels, p) == 0.0
    assert metrics.expected_calibration_error(labels, p) == 0.0


# ------------------------------------------------------------------------- invariances
def scores(labels, p, classes=None):
    report = metrics.classification_report(labels, p, classes)
    return [report[name] for name in ("accuracy", "nlpd", "brier", "ece", "ece_by_chance")]


def test_the_order_of_the_classes_does_not_matter(several, two):
    labels, p = several
    for order in itertools.permutations(range(4)):
        permuted = scores(labels, p[:, order], NAMES[list(order)])
        assert permuted == pytest.approx(scores(labels, p), rel=1e-12)
    labels, p = two  # no probability lies on an edge, where the bins are not symmetric
    assert scores(labels, 1.0 - p, [1, 0]) == pytest.approx(scores(labels, p), rel=1e-12)


def test_the_order_of_the_rows_does_not_matter(several):
    labels, p = several
    order = np.random.default_rng(3).permutation(300)
    assert scores(labels[order], p[order]) == pytest.approx(scores(labels, p), rel=1e-12)


def test_both_columns_or_the_second_alone_are_the_same_prediction(two):
    labels, p = two
    both = np.column_stack([1.0 - p, p])
    assert scores(labels, both) == pytest.approx(scores(labels, p), rel=1e-12)


@pytest.mark.parametrize(
    "rename",
    [
        lambda labels: labels == 1,
        lambda labels: np.where(labels == 1, "yes", "no"),
        lambda labels: np.where(labels == 1, 2.5, -1.0),
        lambda labels: np.where(labels == 1, "yes", "no").astype(object),
        lambda labels: np.where(labels == 1, "yes", "no").tolist(),
    ],
)
def test_labels_of_any_type_give_the_same_scores(two, rename):
    labels, p = two
    assert scores(rename(labels), p) == scores(labels, p)


def test_a_class_without_observations_counts_when_it_is_named(several):
    labels, p = several
    kept = labels != "bee"
    report = metrics.classification_report(labels[kept], p[kept], NAMES)
    assert report["classes"] == ["ant", "bee", "cat", "dog"]
    right = NAMES[p[kept].argmax(axis=1)] == labels[kept]
    assert report["accuracy"] == pytest.approx(right.mean(), rel=1e-12)


def test_report_holds_the_scores_and_can_be_written_as_json(several):
    report = metrics.classification_report(*several, bins=8)
    assert report["nlpd"] == metrics.nlpd_of_probabilities(*several)
    assert report["brier"] == metrics.brier_score(*several)
    assert report["ece"] == metrics.expected_calibration_error(*several, bins=8)
    assert report["accuracy"] == 1.0 - metrics.error_rate(*several)
    assert (report["rows"], report["bins"], report["nlpd_clipped"]) == (300, 8, 0)
    assert json.loads(json.dumps(report)) == report


def test_sums_within_the_rounding_of_the_precision_are_accepted(several):
    labels, p = several
    assert scores(labels, p.astype(np.float32)) == pytest.approx(scores(labels, p), rel=1e-5)
    assert scores(labels, p * (1.0 + 9e-7)) == pytest.approx(scores(labels, p), rel=1e-5)
    assert metrics.brier_score([1, 0], np.array([1.0 + 1.2e-7, 0.0], np.float32)) == 0.0


# -------------------------------------------------------------------------- simulation
@pytest.mark.statistical
@pytest.mark.parametrize(("n", "bins"), [(300, 10), (2_000, 10), (2_000, 40)])
def test_calibration_error_of_calibrated_probabilities_is_what_chance_makes_of_it(n, bins):
    """Uniform p in bins of about n / bins rows each: 4 s.e. of 400 draws, and 1 % for the normal approximation."""
    drawn = [metrics.classification_report(*calibrated(n, seed), bins=bins) for seed in range(400)]
    ece = np.array([report["ece"] for report in drawn])
    # The sum of p (1 - p) in a bin is about (n / bins) times its mean over the bin.
    edges = np.linspace(0.0, 1.0, bins + 1)
    mean = np.diff(edges**2 / 2 - edges**3 / 3) * bins
    expected = np.sqrt(2.0 / np.pi * mean * n / bins).sum() / n
    error = ece.std(ddof=1) / np.sqrt(ece.size)
    assert abs(ece.mean() - expected) < 4.0 * error + 0.01 * expected
    assert np.mean([r["ece_by_chance"] for r in drawn]) == pytest.approx(expected, rel=0.02)


def test_chance_of_very_sure_predictions_is_bounded_by_the_sum_of_their_deviations():
    """100 rows with p = 1e-4: E|S - n p| = 2 n p (1 - p)^n for a binomial S with n p < 1, divided by n."""
    p = np.full(100, 1e-4)
    chance = metrics.classification_report(np.arange(100) < 1, p)["ece_by_chance"]
    assert chance == pytest.approx(2.0 * 1e-4 * (1.0 - 1e-4) ** 100, rel=0.02)


@pytest.mark.statistical
@pytest.mark.parametrize("n", [200, 20_000])
def test_intervals_of_calibrated_probabilities_hold_the_diagonal(n):
    """Ten bins, 300 repetitions: at least 95 % up to 4 binomial s.e., and not much more when bins are large."""
    held = []
    for seed in range(300):
        curve = metrics.reliability_curve(*calibrated(n, 1_000 + seed))
        held.append((curve.low <= curve.confidence) & (curve.confidence <= curve.high))
    held = np.concatenate(held)
    error = np.sqrt(0.95 * 0.05 / held.size)
    assert held.mean() > 0.95 - 4.0 * error
    # With 2,000 rows a bin the counts are nearly continuous; with 20 exact intervals are wide.
    assert held.mean() < (0.96 if n == 20_000 else 0.99) + 4.0 * error


@pytest.mark.statistical
def test_intervals_of_over_confident_probabilities_miss_the_diagonal():
    rng = np.random.default_rng(4)
    p = rng.random(20_000)
    curve = metrics.reliability_curve(rng.random(p.size) < 0.5 + 0.6 * (p - 0.5), p)
    outside = (curve.confidence < curve.low) | (curve.confidence > curve.high)
    assert outside[[0, 1, 2, 7, 8, 9]].all()
    # and hold the frequency that the labels were drawn with
    truth = 0.5 + 0.6 * (curve.confidence - 0.5)
    assert np.mean((curve.low <= truth) & (truth <= curve.high)) >= 0.8


# ------------------------------------------------------------------------------- errors
P3 = np.full((3, 3), 1 / 3)
BAD_INPUT = {
    "words": (([0, 1], ["a", "b"]), {}, r"probabilities: expected real numbers, got .*<U1"),
    "one column": (([0, 1], [[0.1], [0.9]]), {}, r"probabilities: .*got shape \(2, 1\)"),
    "empty": (([], []), {}, r"probabilities: expected shape .*got shape \(0,\)"),
    "NaN": (
        ([0, 1], [0.1, np.nan]),
        {},
        r"probabilities: 1 of 2 rows hold NaN or infinite values \(the first at index 1\)",
    ),
    "latent": (([0, 1], [-2.0, 0.5]), {}, r"in \[0, 1\], got -2 to 0\.5; give prob.*not values of"),
    "percent": (([0, 1], [20, 90]), {}, r"in \[0, 1\], got 20 to 90; .* or percentages"),
    "sum": (
        ([0, 1], [[0.5, 0.5], [0.5, 0.49]]),
        {},
        r"probabilities: expected rows that sum to 1, got 0\.99 in row 1",
    ),
    "sum in 64 bits": (([0, 1], [[0.5, 0.5], [0.5, 0.500002]]), {}, r"sum to 1, got 1\.000002 in"),
    "lengths": (([0, 1, 1], [0.1, 0.9]), {}, r"probabilities: expected as many rows as labels, 3"),
    "label matrix": ((P3, P3), {}, r"labels: expected one value an entry.*got shape \(3, 3\)"),
    "unknown label": (
        (["a", "c"], [0.1, 0.9], ["a", "b"]),
        {},
        r"labels: 'c' not among the classes 'a', 'b'",
    ),
    "label of another type": (
        (["0", "1"], [0.1, 0.9], [0, 1]),
        {},
        r"labels: '0', '1' not among the classes 0, 1; .* the same type",
    ),
    "missing label": (
        (["a", None], [0.1, 0.9], ["a", "b"]),
        {},
        r"labels: expected values of one type.*\['NoneType', 'str'\]; drop rows without a label",
    ),
    "NaN label": (([1.0, np.nan], [0.1, 0.9]), {}, r"labels: 1 of 2 values are NaN; drop these"),
    "absent class": (
        ([0, 1, 1], P3),
        {},
        r"classes: the probabilities are of 3 classes, but the labels hold 2 \(0, 1\); give classes",
    ),
    "too many labels": (
        ([0, 1, 2], [0.1, 0.2, 0.3]),
        {},
        r"classes: the .* of 2 classes, but .* 3",
    ),
    "number of classes": (
        ([0, 1, 1], P3, [0, 1]),
        {},
        r"classes: expected 3, one for each column of probabilities, got 2 \(0, 1\)",
    ),
    "repeated class": (([0, 1], [0.1, 0.9], [1, 1]), {}, r"classes: expected distinct.*got 1, 1"),
    "no bins": (([0, 1], [0.1, 0.9]), {"bins": 0}, r"bins: expected a whole number.*got 0"),
    "half a bin": (([0, 1], [0.1, 0.9]), {"bins": 2.5}, r"bins: expected a whole number.*got 2\.5"),
    "strategy": (([0, 1], [0.1, 0.9]), {"strategy": "mass"}, r"strategy: .*'quantile'.*got 'mass'"),
    "strategies": (([0, 1], [0.1, 0.9]), {"strategy": np.array(["uniform"] * 2)}, r"strategy: exp"),
    "missing date": (
        (np.array(["2020-01-01", "NaT"], "M8[D]"), [0.9, 0.2]),
        {},
        r"labels: 1 .* NaT",
    ),
    "masked labels": (
        (np.ma.array([0, 1], mask=[0, 1]), [0.1, 0.9]),
        {},
        r"labels: 1 of 2 .*masked",
    ),
    "masked": (
        ([0, 1], np.ma.array([0.1, 0.9], mask=[1, 0])),
        {},
        r"probabilities: 1 of 2 .*masked",
    ),
    "level": (([0, 1], [0.1, 0.9]), {"level": 95}, r"level: .*got 95; 95 % is 0\.95"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_names_the_argument(case):
    args, options, message = BAD_INPUT[case]
    with pytest.raises(ValueError, match=message):
        metrics.reliability_curve(*args, **options)


@pytest.mark.parametrize(
    "score",
    [
        metrics.error_rate,
        metrics.nlpd_of_probabilities,
        metrics.brier_score,
        metrics.expected_calibration_error,
        metrics.classification_report,
    ],
)
def test_every_score_checks_its_probabilities(score):
    with pytest.raises(ValueError, match=r"probabilities: expected rows that sum to 1, got 0\.9"):
        score([0, 1], [[0.4, 0.5], [0.5, 0.5]])
