"""Which model of classes runs where there is time for one: with what trees say as an input, or without."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vastgp.auto.candidates import ON_TREES, Candidate, alone
from vastgp.auto.firsts import Shape
from vastgp.auto.folds import some_rows
from vastgp.auto.race import FAILURES
from vastgp.auto.track import Track
from vastgp.auto.trees import columns_of, probabilities_of, squared_error
from vastgp.auto.warps import Own
from vastgp.data import Rows, Standardizer, observations, repeated
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.run import First
from vastgp.fitting.start import start_from_exact_gp
from vastgp.likelihoods import Gaussian

# Rows on which a process and trees are compared, those that the process is learned on, and its seconds.
_ROWS, _LEARNED_ON, _SECONDS = 1500, 500, 1.5
# Seconds of the comparison, and for each class. Where that is more than this share of what there is, whoever is first
# runs (15 s, five classes: kin40k 1.03 and 0.86, but protein 1.01 and 1.04, kegg 0.13 and 0.18, naval 0.17 and 0.26).
_FIRST_SECONDS, _OF_CLASS, _SHARE = 0.5, 0.35, 0.1
# Trees gain more from further rows than the process does, and a process that reads them is better than they are alone:
# it runs unless they err by so much more. 20 tables in two and five classes, 15 s: where they err by less, a process
# with trees has the lower log loss, by 0.06 in the mean of 13; where by more, one without them, by 0.04 in that of 7.
_FARTHER = 1.15


def likelier_alone(track: Track, found: Sequence[Candidate], seconds: float) -> Candidate:
    """Return the candidate that runs where there is time for one.

    On some rows, each predicted by others, trees are compared with a process that takes labels for numbers.

    Parameters
    ----------
    track : Track
    found : sequence of Candidate
        In their order.
    seconds : float
        That are left.
    """
    on_trees = next((one for one in found if one.on_trees), None)
    if on_trees is None or track.grown is None:
        return alone(found, seconds)
    plain = next((one for one in found if one.name == on_trees.name.removesuffix(ON_TREES)), None)
    if plain is None:
        return alone(found, seconds)
    training, _, tied = track.encoded(0)
    classes = len(np.unique(observations.targets(training.y)))
    if _FIRST_SECONDS + _OF_CLASS * classes > _SHARE * seconds:
        return alone(found, seconds)
    rows = _of_different_places(some_rows(training, _ROWS, track.seed, classes=True))
    labels = np.asarray(observations.targets(rows.y), np.int64)
    if classes < 2 or not np.array_equal(np.unique(labels), np.arange(classes)):
        return on_trees
    try:
        said = track.grown(0, rows, Own()).of_training
        first, of_process = _of_process(rows, labels, classes, track.seed)
    except FAILURES:
        return on_trees  # nothing is known of either: trees find more in most tables
    trees = probabilities_of(said)
    if squared_error(trees, labels) <= _FARTHER * squared_error(of_process, labels):
        return on_trees
    if columns_of(classes) > 1:
        # what was learned serves the model, too, whose own search has few rows of several classes (naval in fifths,
        # 15 s: log loss 0.62, a line, and 0.26); that of two finds more by itself (kin8nm in two: 0.215 and 0.231)
        track.firsts.begin_at(first, plain, Shape.of(training, tied))
    return plain


def _of_different_places(rows: Rows) -> Rows:
    """Return the first of the rows that repeat each other: by a copy whoever follows rows knows their class."""
    groups = repeated(np.asarray(rows.X))
    if groups is None:
        return rows
    first = np.sort(np.unique(groups, return_index=True)[1])
    return Rows(rows.X[first], rows.y[first], checked=True)


def _of_process(
    rows: Rows, labels: np.ndarray, classes: int, seed: int
) -> tuple[First, np.ndarray]:
    """Return what a process learned, and the probabilities of classes, (n, C), that it gives each row by all others.

    It is that of least squares on labels (Rasmussen & Williams 2006, section 6.5): one kernel, of highest evidence for
    the class that is nearest to half of the rows, and one factor for all of them.
    """
    X = (
        Standardizer()
        .fit(Rows(rows.X, labels.astype(np.float64), checked=True))
        .transform_X(rows.X)
    )
    indicators = np.eye(classes)[labels][:, 1:] if classes == 2 else np.eye(classes)[labels]
    mean, std = indicators.mean(axis=0), indicators.std(axis=0)
    targets = (indicators - mean) / std
    start = start_from_exact_gp(
        None, X, targets[:, np.argmin(np.abs(mean - 0.5))],
        max_rows=_LEARNED_ON, seed=seed, max_seconds=_SECONDS,
    )  # fmt: skip
    factor = ExactEvidence(X, targets[:, 0]).solve(start.kernel, start.noise_variance)[1]
    # mu_i = y_i - [A^-1 y]_i / [A^-1]_ii (Rasmussen & Williams 2006, eq. 5.12), by one factor for all classes
    found = targets - factor.solve(targets) / factor.inverse_diagonal()[:, None]
    proba = np.clip(mean + std * found, 0.0, 1.0)
    first = First(start.kernel, Gaussian(start.noise_variance), complete=False)
    return first, np.stack([1.0 - proba[:, 0], proba[:, 0]], axis=1) if classes == 2 else proba
