"""What runs next in a race without time for all: what trees alone say of rows tells whether they belong in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vastgp.auto.candidates import Candidate
from vastgp.auto.folds import some_rows
from vastgp.auto.track import Ran, Track
from vastgp.auto.trees import columns_of, probabilities_of, seconds_to_grow, squared_error
from vastgp.data import Rows, observations

# Growing trees may take this share of what is left of the race. A candidate with them is next where they alone err by
# so much less than what has run: a process that has them among its inputs is better still.
_LOOK, _NEARER = 0.4, 0.9


def trees_next(
    track: Track, first: Ran, waiting: Sequence[Candidate], left: float, longer: float = 0.0
) -> Candidate | None:
    """Return the first with trees of those that wait where trees alone beat what has run; None: all keep their turn.

    A process takes long to learn steps along an axis: of 2000 rows of them a race of 15 s ended with the exact process
    (NLPD 0.53) where trees have 0.02, before any of its candidates with trees had its turn; with it -0.07. Of 950 rows
    of four classes it ended with a process at 0.37 nats where one on trees has 0.04.

    Parameters
    ----------
    track : Track
    first : Ran
        What has run.
    waiting : sequence of Candidate
    left : float
        Seconds of the race. Where they suffice for those before the trees, too, all keep their turn.
    longer : float
        By how much the race may last longer with trees next.
    """
    number = next((number for number, one in enumerate(waiting) if one.on_trees), None)
    if number is None or track.grown is None or first.judged is None:
        return None
    on_trees = waiting[number]
    if sum(one.needs for one in waiting[: number + 1] if not one.quick) <= left:
        return None
    training = track.encoded(0)[0]
    rows = some_rows(training, on_trees.most_rows, track.seed, track.classes)
    of_their_own = observations.has_own_noise(rows.y) or observations.has_exposure(rows.y)
    columns = columns_of(first.judged.scores.shape[1]) if track.classes else 1
    if of_their_own or seconds_to_grow(rows.n, rows.d, columns) > _LOOK * (left + longer):
        return None
    of_trees, of_first = (_of_classes if track.classes else _of_numbers)(track, first, rows)
    if not of_trees < _NEARER * of_first:
        return None
    return on_trees


def _of_numbers(track: Track, first: Ran, rows: Rows) -> tuple[float, float]:
    """Return the mean absolute errors of trees, each row by others, and of what has run, on the scale of its model."""
    assert track.grown is not None
    assert first.judged is not None
    held_out, forward = track.encoded(0)[1], first.warp.forward
    of_trees = np.abs(track.grown(0, rows, first.warp).of_training[:, 0] - forward(rows.y))
    of_first = np.abs(forward(first.judged.mean[: held_out.n]) - forward(held_out.y))
    return float(np.mean(of_trees)), float(np.mean(of_first))


def _of_classes(track: Track, first: Ran, rows: Rows) -> tuple[float, float]:
    """Return mean squared errors of probabilities by trees, without end where rows lack a class, and by the first."""
    assert track.grown is not None
    assert first.judged is not None
    held_out, scores = track.encoded(0)[1], first.judged.scores
    labels = np.asarray(rows.y, np.int64)
    if not np.array_equal(np.unique(labels), np.arange(scores.shape[1])):
        return np.inf, 0.0
    proba = probabilities_of(track.grown(0, rows, first.warp).of_training)
    of_first = squared_error(scores[: held_out.n], np.asarray(held_out.y, np.int64))
    return squared_error(proba, labels), of_first
