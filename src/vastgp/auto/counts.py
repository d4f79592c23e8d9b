"""Which targets are counts, and whether these have a law of counts."""

from __future__ import annotations

import numpy as np
from scipy.stats import nbinom

from vastgp.auto.distribution import between
from vastgp.auto.each_other import given_each_other
from vastgp.auto.folds import some_rows
from vastgp.data import Rows, observations
from vastgp.linalg.cholesky import FactorizationError

# Counts are offered likelihoods of their own up to this mean: larger ones are as good as normal on some scale.
_LARGE = 50.0
# Rows that tell by which law counts scatter, those that the process is learned on, and its share of the time and most.
_TELLING, _LEARNED_ON, _SHARE, _MOST_SECONDS = 1000, 300, 0.1, 1.0
# Sizes of negative binomial laws that are tried, and their least means, in mean counts: a process is below zero, too.
_SIZES, _LEAST_MEANS = np.geomspace(0.1, 100.0, 13), (0.02, 0.1, 0.3)


def are_counts(y: np.ndarray) -> bool:
    """Whether targets look like counts: small whole numbers from zero on."""
    y = np.asarray(y)
    return bool(
        np.all(y >= 0.0)
        and np.all(y == np.round(y))
        and np.mean(y) <= _LARGE
        and len(np.unique(y)) >= 3
        and np.min(y) == 0.0
    )


def have_a_law(rows: Rows, seed: int, seconds: float | None) -> bool:
    """Whether counts are likelier by a law of counts than by normal noise, around the function that a process finds.

    Some rows are each given by all others; around their means are normal distributions, of which a number has the
    probability of the interval of one around it, and negative binomial ones of the size that suits all.

    Of seven tables of 1,700 to 12,000 counts, 15 s, this was right of all, by the loss of whole numbers of a law and of
    the nearest rows: where it said a law 0.61 and 0.71, 2.19 and 2.74, 2.32 and 2.43, where normal noise 4.33 and 2.79,
    2.91 and 2.88 (weeks of a year with a report, trips of taxis an hour).

    Parameters
    ----------
    rows : Rows
        Encoded.
    seed : int
        Chooses rows where there are many.
    seconds : float, optional
        Of the whole fit; None: no limit.

    Returns
    -------
    bool
        Also where these rows have no factor, and say nothing.
    """
    some = some_rows(rows, _TELLING, seed)
    y = np.asarray(observations.targets(some.y), np.float64)
    of_time = None if seconds is None else min(_SHARE * seconds, _MOST_SECONDS)
    try:
        mean, std = given_each_other(
            some.X, y, learned_on=_LEARNED_ON, seed=seed, max_seconds=of_time
        )
    except FactorizationError:
        return True  # nothing is known
    normal = np.mean(between((y - 0.5 - mean) / std, (y + 0.5 - mean) / std))
    of_laws = (
        np.mean(nbinom.logpmf(y, size, size / (size + np.maximum(mean, least * np.mean(y)))))
        for size in _SIZES
        for least in _LEAST_MEANS
    )
    return bool(max(of_laws) > normal)
