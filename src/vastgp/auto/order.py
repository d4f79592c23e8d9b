"""What runs next in a race without time for all: what trees alone say of rows tells whether they belong in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vastgp.auto.candidates import Candidate
from vastgp.auto.folds import some_rows
from vastgp.auto.track import Ran, Track
from vastgp.auto.trees import seconds_to_grow
from vastgp.data import observations

# Growing trees may take this share of what is left of the race. A candidate with them is next where they alone err by
# so much less than what has run: a process that has them among its inputs is better still.
_LOOK, _NEARER = 0.4, 0.9


def trees_next(
    track: Track, first: Ran, waiting: Sequence[Candidate], left: float, longer: float = 0.0
) -> list[Candidate]:
    """Return those that wait, the first of them with trees before all others where trees alone beat what has run.

    A process takes long to learn steps along an axis: of 2000 rows of them a race of 15 s ended with the exact process
    (NLPD 0.53) where trees have 0.02, before any of its candidates with trees had its turn; with it -0.07.

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
    if number is None or track.grown is None or track.classes or first.judged is None:
        return list(waiting)
    on_trees = waiting[number]
    if sum(one.needs for one in waiting[: number + 1] if not one.quick) <= left:
        return list(waiting)
    training, held_out, _ = track.encoded(0)
    rows = some_rows(training, on_trees.most_rows, track.seed)
    of_their_own = observations.has_own_noise(rows.y) or observations.has_exposure(rows.y)
    if of_their_own or seconds_to_grow(rows.n, rows.d, 1) > _LOOK * (left + longer):
        return list(waiting)
    forward = first.warp.forward
    of_trees = np.abs(track.grown(0, rows, first.warp).of_training[:, 0] - forward(rows.y))
    of_first = np.abs(forward(first.judged.mean[: held_out.n]) - forward(held_out.y))
    if not np.mean(of_trees) < _NEARER * np.mean(of_first):
        return list(waiting)
    return [on_trees, *(one for one in waiting if one is not on_trees)]
