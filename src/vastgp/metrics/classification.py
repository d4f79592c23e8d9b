"""Scores of predicted class probabilities: accuracy, density and calibration.

Every score takes the observed ``labels``, shape ``(n,)`` and of any sortable type, the predicted
``probabilities`` and the ``classes`` of their columns. Probabilities have shape ``(n, K)``, or for
two classes ``(n,)``: then they are those of the second class. Without ``classes`` the columns are
the sorted distinct labels, as in scikit-learn; a test set that lacks a class needs them given. All
functions raise ``ValueError`` when labels are missing or not among the classes, when lengths
differ, and when probabilities are not finite, leave [0, 1], or do not sum to one.
Lower is better for every score but the accuracy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from vastgp.metrics._probabilities import CheckedProbabilities, check_probabilities
from vastgp.metrics._vectors import FloatArray, half_width, whole_number


class ReliabilityCurve(NamedTuple):
    """Bins that hold at least one prediction, in increasing order; every field has shape (b,)."""

    confidence: FloatArray  #: mean predicted probability in the bin
    frequency: FloatArray  #: fraction of its predictions that came true
    counts: NDArray[np.int64]  #: number of predictions in the bin
    low: FloatArray  #: lower end of the interval of the frequency
    high: FloatArray  #: upper end


def error_rate(labels: ArrayLike, probabilities: ArrayLike, classes: Any = None) -> float:
    """Fraction of observations whose most probable class is not the observed one.

    Parameters
    ----------
    labels : array_like, shape (n,)
        Observed classes.
    probabilities : array_like, shape (n, K) or (n,)
        Predicted probabilities of the classes, or of the second of two.
    classes : array_like, shape (K,), optional
        The class of each column. Default: the sorted distinct labels.

    Returns
    -------
    float
        In [0, 1]. Of equally probable classes the one of the earlier column is predicted.
    """
    checked = check_probabilities(labels, probabilities, classes)
    return _errors(checked)


def nlpd_of_probabilities(
    labels: ArrayLike, probabilities: ArrayLike, classes: Any = None
) -> float:
    """Negative log probability of the observed class, in nats for one observation (log loss).

    Parameters
    ----------
    labels, probabilities, classes
        As for `error_rate`.

    Returns
    -------
    float
        At least 0; a uniform guess scores ``log(K)``. Probabilities below the machine epsilon of
        their dtype count as that epsilon, as in `sklearn.metrics.log_loss`: a class that was held
        impossible and happened costs 36.04 nats in 64 bits, 15.94 in 32 bits, instead of infinity.
        `classification_report` counts the rows where this matters.
    """
    return _nlpd(check_probabilities(labels, probabilities, classes))


def brier_score(labels: ArrayLike, probabilities: ArrayLike, classes: Any = None) -> float:
    """Mean squared difference between the probabilities and what happened.

    Parameters
    ----------
    labels, probabilities, classes
        As for `error_rate`.

    Returns
    -------
    float
        Three classes and more: the sum over the classes, in [0, 2]. Two classes: half of that sum,
        in [0, 1], which is the squared error of the probability of either class. These are the
        usual conventions and those of `sklearn.metrics.brier_score_loss`.

    References
    ----------
    Brier (1950), Verification of forecasts expressed in terms of probability, eq. (2).
    """
    return _brier(check_probabilities(labels, probabilities, classes))


def reliability_curve(
    labels: ArrayLike,
    probabilities: ArrayLike,
    classes: Any = None,
    *,
    bins: Any = 10,
    strategy: Any = "uniform",
    level: Any = 0.95,
) -> ReliabilityCurve:
    """Observed frequencies of predictions that were made with about the same probability.

    With two classes a prediction is "the second class, with probability p"; with more it is the
    most probable class with its probability, and comes true when that class is observed.

    Parameters
    ----------
    labels, probabilities, classes
        As for `error_rate`.
    bins : int, default 10
        Number of bins, each closed at its upper end.
    strategy : {"uniform", "quantile"}, default "uniform"
        Bins of equal width in [0, 1], or of about equal counts (equal probabilities stay together).
    level : float, default 0.95
        Probability of the intervals, in (0, 1).

    Returns
    -------
    ReliabilityCurve
        Named tuple ``(confidence, frequency, counts, low, high)``; bins without any prediction are
        left out. The intervals are those of Clopper and Pearson: of calibrated predictions at least
        about a fraction `level` of them holds ``confidence``, however small the counts.

    References
    ----------
    Clopper and Pearson (1934), The use of confidence or fiducial limits illustrated in the case of
    the binomial. Probabilities that vary within a bin only widen the margin: Hoeffding (1956), On
    the distribution of the number of successes in independent trials, theorem 5.
    """
    half_width(level)  # refuses a level outside (0, 1)
    p, happened = predicted_events(check_probabilities(labels, probabilities, classes))
    number = bin_numbers(p, bins, strategy)
    count = np.bincount(number)
    filled = np.flatnonzero(count)
    n = count[filled]
    k = np.bincount(number, weights=happened)[filled]
    # P(Binomial(n, low) >= k) = P(Binomial(n, high) <= k) = (1 - level) / 2, as beta quantiles.
    tail = 0.5 * (1.0 - level)
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, tail), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), 1.0 - tail), 1.0)
    return ReliabilityCurve(np.bincount(number, weights=p)[filled] / n, k / n, n, low, high)


def expected_calibration_error(
    labels: ArrayLike,
    probabilities: ArrayLike,
    classes: Any = None,
    *,
    bins: Any = 10,
    strategy: Any = "uniform",
) -> float:
    r"""Mean distance between predicted probability and observed frequency, over bins.

    .. math:: \sum_b \frac{n_b}{n} | \bar p_b - f_b |

    Parameters
    ----------
    labels, probabilities, classes, bins, strategy
        As for `reliability_curve`, whose bins and predictions these are: the second of two classes,
        the most probable one of more.

    Returns
    -------
    float
        In [0, 1]. Even calibrated predictions do not reach 0: chance alone gives about
        :math:`\sum_b \sqrt{(2 / \pi) \sum_{i \in b} p_i (1 - p_i)} / n`, which grows with the
        number of bins. `classification_report` states it. Compare models at equal bins only.

    References
    ----------
    Naeini, Cooper and Hauskrecht (2015), Obtaining well calibrated probabilities using Bayesian
    binning; Guo et al. (2017), On calibration of modern neural networks, eq. (3).
    """
    checked = check_probabilities(labels, probabilities, classes)
    return _calibration(checked, bins, strategy)[0]


def classification_report(
    labels: ArrayLike, probabilities: ArrayLike, classes: Any = None, *, bins: Any = 10
) -> dict[str, Any]:
    """All scores of one test set.

    Parameters
    ----------
    labels, probabilities, classes
        As for `error_rate`.
    bins : int, default 10
        Bins of equal width of the calibration error.

    Returns
    -------
    dict
        ``rows``, ``classes``, ``bins``; ``accuracy``; ``nlpd`` in nats and ``nlpd_clipped``, the
        number of rows whose observed class had a probability below machine epsilon; ``brier``;
        ``ece`` and ``ece_by_chance``, what calibrated predictions reach on average.
    """
    checked = check_probabilities(labels, probabilities, classes)
    ece, chance = _calibration(checked, bins, "uniform")
    return {
        "rows": int(checked.column.size),
        "classes": checked.classes,
        "bins": int(bins),
        "accuracy": 1.0 - _errors(checked),
        "nlpd": _nlpd(checked),
        "nlpd_clipped": int(np.sum(_observed(checked) < checked.epsilon)),
        "brier": _brier(checked),
        "ece": ece,
        "ece_by_chance": chance,
    }


def predicted_events(checked: CheckedProbabilities) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The probability that is held against the frequency, and whether its event happened, (n,) each."""
    if len(checked.classes) == 2:
        return checked.probabilities[:, 1], checked.column == 1
    top = checked.probabilities.argmax(axis=1)
    return _at(checked.probabilities, top), top == checked.column


def bin_numbers(p: FloatArray, bins: Any, strategy: Any) -> NDArray[np.int64]:
    """The bin of each probability, shape (n,), from 0; closed at the upper end."""
    whole_number("bins", bins, 1)
    if not isinstance(strategy, str) or strategy not in ("uniform", "quantile"):
        raise ValueError(
            "strategy: expected 'uniform' (bins of equal width) or 'quantile' (of equal counts), "
            f"got {strategy!r}"
        )
    if strategy == "uniform":
        edges = np.linspace(0.0, 1.0, bins + 1)[1:-1]
    else:
        # The first k bins hold the ceil(k n / bins) smallest, and what equals the largest of them.
        edges = np.sort(p)[[-(-k * p.size // bins) - 1 for k in range(1, bins)]]
    return np.searchsorted(edges, p, side="left")


def _errors(checked: CheckedProbabilities) -> float:
    return float(np.mean(checked.probabilities.argmax(axis=1) != checked.column))


def _nlpd(checked: CheckedProbabilities) -> float:
    # -(1/n) sum_i log p_{i, y_i}
    return float(-np.mean(np.log(np.maximum(_observed(checked), checked.epsilon))))


def _brier(checked: CheckedProbabilities) -> float:
    # (1/n) sum_i sum_c (p_ic - 1[y_i = c])^2, halved for two classes
    total = np.square(checked.probabilities - np.eye(len(checked.classes))[checked.column]).sum()
    return float(total / checked.column.size / (2.0 if len(checked.classes) == 2 else 1.0))


def _calibration(checked: CheckedProbabilities, bins: Any, strategy: Any) -> tuple[float, float]:
    """Expected calibration error, and about what chance alone makes of it."""
    p, happened = predicted_events(checked)
    number = bin_numbers(p, bins, strategy)
    # sum_b (n_b / n) |mean of p - frequency| = (1/n) sum_b |sum_{i in b} (p_i - happened_i)|
    ece = np.abs(np.bincount(number, weights=p - happened)).sum() / p.size
    # Each of these sums has mean 0 and variance v when calibrated; near normal, E|sum| is
    # sqrt(2 v / pi). When v is small it is at most the sum of E|p_i - happened_i|, that is 2 v.
    variance = np.bincount(number, weights=p * (1.0 - p))
    chance = np.minimum(np.sqrt(2.0 * variance / np.pi), 2.0 * variance).sum() / p.size
    return float(ece), float(chance)


def _observed(checked: CheckedProbabilities) -> FloatArray:
    """The probability of the observed class."""
    return _at(checked.probabilities, checked.column)


def _at(values: FloatArray, column: NDArray[np.int64]) -> FloatArray:
    return np.take_along_axis(values, column[:, None], axis=1)[:, 0]
