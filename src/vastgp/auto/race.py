"""The race: candidates are fitted to some rows and judged by what they say of others."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning

from vastgp.auto.candidates import Candidate
from vastgp.auto.firsts import Shape
from vastgp.auto.folds import some_rows
from vastgp.auto.leaderboard import NO_TIME_LEFT, Entry, Leaderboard
from vastgp.auto.order import trees_next
from vastgp.auto.track import Judged, Ran, Track, scores_of
from vastgp.auto.trees import Grown, process_of
from vastgp.auto.warps import Own
from vastgp.data import Rows, observations
from vastgp.fitting.progress import Progress

# Of a run that only compares scales of the target.
_SECONDS_OF_SCALE = 5.0
# Of those that cost next to nothing, compiling included; and with less than this they are not begun either.
_SECONDS_QUICK, _LEAST_QUICK = 3.0, 0.5
# Where one model has the time of all, scales of the target are compared on so many rows, in a share of it (15 s, NLPD
# of test rows, the exact process in a race of scales and the nearest rows so: pol -1.2 and -3.5, bike -5.2 and -8.6).
_ROWS_OF_SCALES, _SHARE_OF_SCALES = 1000, 0.3
# A race of less time runs what is quick before what is preferred, where it leaves that its least time and as much more
# (HSAUR's 43 rows of counts, 5 s: NLPD 1.05, and a line 0.70).
_SHORT, _ONE_MORE = 6.0, 1.0
# Where one model has the time of all and says no more of held-out rows than their mean and deviation would, log of
# sqrt(2 pi e) nats in deviations, what takes next to no time is compared with it.
_OF_A_CONSTANT = 0.5 * (1.0 + math.log(2.0 * math.pi))
# So much longer a race is where trees are next, see `trees_next`.
_LONGER = 0.4
# A later candidate takes the place of an earlier one only where it is better by so many standard errors.
_DOUBT = 1.0
# Of a candidate's time, for the first of several folds.
_OF_FIRST_FOLD = 0.4
# What ends one model, not the race.
FAILURES = (ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryError)


def run_one(
    track: Track,
    candidate: Candidate,
    warp: Own,
    seconds: float | None,
    y_scale: float,
    deadline: float | None = None,
) -> Ran:
    """Fit a candidate to the training rows of every fold, and judge it. A failure is an entry like any other.

    It has so many ``seconds`` beside the growing of trees, and none after the ``deadline`` of the race.
    """
    began = time.perf_counter()
    parts: list[Judged] = []
    rows, model, growing = 0, None, 0.0
    for number in range(len(track.folds)):
        training, held_out, tied = track.encoded(number)
        training = some_rows(training, candidate.most_rows, track.seed, track.classes)
        rows = training.n
        try:
            before = time.perf_counter()
            grown = _grown(track, candidate, number, training, warp)
            # trees serve several candidates: their time is the race's, not the share of the first that asks
            growing += time.perf_counter() - before
            left = None if seconds is None else seconds - (time.perf_counter() - began - growing)
            if left is not None and deadline is not None:
                left = min(left, deadline - time.perf_counter())
            share = None if left is None else max(left * _share_of_fold(track, number), 0.5)
            model = candidate.make(seed=track.seed, seconds=share, tied=tied, grown=grown)
            with track.firsts.shared(model, candidate, number, Shape.of(training, tied), warp):
                fit_one(model, training, warp)
            rows = rows_seen(model, training.n)
            parts.append(track.judge(model, warp, held_out))
            track.tell((number + 1) / len(track.folds))
        except FAILURES as error:
            seconds_used = time.perf_counter() - began
            entry = Entry(candidate.name, warp.name, rows, seconds_used, note=f"failed: {error}")
            return Ran(candidate, warp, entry)
    judged = replace(Judged.joined(parts), of_places=track.places)
    entry = Entry(
        candidate.name, warp.name, rows, time.perf_counter() - began, note=model.stop_reason_,  # type: ignore[union-attr]
        **scores_of(judged, track.classes, y_scale),
    )  # fmt: skip
    return Ran(candidate, warp, entry, judged, model)


def _share_of_fold(track: Track, number: int) -> float:
    """Return what share of the time that is left a fold has: the first searches for what the others begin with."""
    equal = 1.0 / (len(track.folds) - number)
    return equal if number else max(_OF_FIRST_FOLD, equal)


def _grown(track: Track, candidate: Candidate, number: int, rows: Rows, warp: Own) -> Grown | None:
    """Return trees for the rows that a candidate is fitted to, where it has some."""
    if not candidate.on_trees:
        return None
    assert track.grown is not None
    return track.grown(number, rows, warp)


def rows_seen(model: Any, given: int) -> int:
    """Return how many of the rows that a model was given its posterior has seen; of a stack the most of any member."""
    members = getattr(model, "members", (model,))
    seen = [getattr(process_of(one), "conditioned_rows_", None) for one in members]
    return max(given if one is None else len(one) for one in seen)


def fit_one(model: Any, rows: Rows, warp: Own) -> None:
    """Fit a model to encoded rows, their targets on another scale."""
    with warnings.catch_warnings():
        # that it has not converged is known by its score, and what the target is has been told by its name
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "y is constant", UserWarning)
        if observations.has_own_noise(rows.y):
            y, inverse_weight, variance = rows.y.T
            error = np.sqrt(variance) if np.any(variance) else None
            y = y if type(warp) is Own else warp.forward(y)
            model.fit(rows.X, y, noise_std=error, sample_weight=1.0 / inverse_weight)
        elif observations.has_exposure(rows.y) and is_classifier(getattr(model, "process", model)):
            weight = observations.exposures(rows.y)
            model.fit(rows.X, observations.targets(rows.y), sample_weight=weight)
        elif observations.has_exposure(rows.y):
            model.fit(rows.X, observations.targets(rows.y), exposure=observations.exposures(rows.y))
        else:
            model.fit(rows.X, rows.y if type(warp) is Own else warp.forward(rows.y))


def best_of(ran: Sequence[Ran]) -> int | None:
    """Return the number of the winner: the first that the best one beats by no more than a standard error.

    None where none has a score.
    """
    scored = [(i, one) for i, one in enumerate(ran) if one.judged and np.isfinite(one.entry.nlpd)]
    if not scored:
        return None
    best = min(scored, key=lambda pair: pair[1].entry.nlpd)[1]
    assert best.judged is not None
    for number, one in scored:
        assert one.judged is not None
        if len(one.judged.log_density) != len(best.judged.log_density):
            continue
        behind = best.judged.by_place(best.judged.log_density - one.judged.log_density)
        if np.mean(behind) <= _DOUBT * np.std(behind) / np.sqrt(len(behind)):
            return number
    return next(i for i, one in scored if one is best)


def run_race(
    track: Track,
    candidates: Sequence[Candidate],
    warps: Sequence[Own],
    *,
    deadline: float | None,
    y_scale: float,
    verbose: bool,
    least: float = 0.0,
) -> tuple[list[Ran], int | None]:
    """Run candidates one after the other; return what they did, and the winner's number.

    The first candidate compares the scales of the target; the others run on the one that it did best on. Those last in
    the list do not run where there is too little time for all; where there is very little, what is quick runs first.

    Parameters
    ----------
    deadline : float, optional
        Time of ``time.perf_counter`` at which to end; the time left is shared by those that have not run, see `_share`.
    y_scale : float
        Deviation of the targets.
    verbose : bool
    least : float, default 0.0
        Seconds without which no further candidate begins, but for those that cost next to nothing.
    """
    ran: list[Ran] = []
    warps, waiting = list(warps), list(candidates)
    late: list[Candidate] = []
    longer = 0.0 if deadline is None else _LONGER * (deadline - time.perf_counter())
    order: dict[str, float] = {one.name: place for place, one in enumerate(candidates)}
    looked = False
    if (
        deadline is not None
        and len(warps) == 1
        and least + _ONE_MORE < deadline - time.perf_counter() < _SHORT
    ):
        # whoever is preferred may take all of the time, and would be compared with nobody
        waiting.sort(key=lambda one: not one.quick)
    with Progress("race", verbose) as progress:
        while waiting:
            candidate, number = waiting.pop(0), len(candidates) - len(waiting) - 1
            share = None
            if deadline is not None:
                left = deadline - time.perf_counter()
                if ran and left < (_LEAST_QUICK if candidate.quick else least):
                    late.append(candidate)
                    continue
                share = _share(candidate, left, len(waiting) + 1, len(warps))
            here = []
            for scale, warp in enumerate(warps):
                width = 1.0 / len(warps) / len(candidates)
                tell = _teller(
                    progress, candidate.name, number / len(candidates) + scale * width, width
                )
                here.append(
                    run_one(replace(track, tell=tell), candidate, warp, share, y_scale, deadline)
                )
            ran += here
            best = best_of(here) or 0
            warps = [warps[best]]
            if not looked and not candidate.quick and deadline is not None and waiting:
                looked = True
                left = deadline - time.perf_counter()
                on_trees = trees_next(track, here[best], waiting, left, longer)
                if on_trees is not None:
                    waiting = [on_trees, *(one for one in waiting if one is not on_trees)]
                    order[on_trees.name] = order[candidate.name] + 0.5  # and preferred to those
                    # they are worth some of the time of the winner, which is likely to have them
                    deadline += longer
    # in the order of preference, by which the winner is told
    ran.sort(key=lambda one: order[one.candidate.name])
    ran += [Ran(one, Own(), Entry(one.name, "", 0, 0.0, note=NO_TIME_LEFT)) for one in late]
    return ran, best_of(ran)


def run_alone(
    track: Track,
    candidate: Candidate,
    of_scales: Candidate | None,
    quick: Candidate | None,
    warps: Sequence[Own],
    left: float,
    **common: Any,
) -> tuple[list[Ran], int | None]:
    """Run one candidate in all of the time but for what a choice among scales of the target takes.

    Parameters
    ----------
    track, candidate, warps
        As in `run_race`.
    of_scales : Candidate, optional
        Chooses the scale, on some rows, where there are several; None: the first of them stands.
    quick : Candidate, optional
        Takes next to no time: it runs as well where the other, cut short by the clock, says nothing.
    left : float
        Seconds that are left.
    **common
        ``y_scale`` and ``verbose`` of `run_race`.
    """
    deadline = time.perf_counter() + left
    ran: list[Ran] = []
    if of_scales is not None and len(warps) > 1:
        until = deadline - (1.0 - _SHARE_OF_SCALES) * left
        some = of_scales.with_at_most(_ROWS_OF_SCALES)
        ran, best = run_race(track, [some], warps, deadline=until, **common)
        ran, warps = [replace(one, stacks=False) for one in ran], [ran[best or 0].warp]
    found, best = run_race(track, [candidate], warps[:1], deadline=deadline, **common)
    ran += found
    if quick is not None and not (
        best is not None and found[best].entry.nlpd_standardised < _OF_A_CONSTANT
    ):
        deadline = time.perf_counter() + _SECONDS_QUICK
        ran += run_race(track, [quick], warps[:1], deadline=deadline, **common)[0]
    return ran, best_of(ran)


def _teller(progress: Progress, name: str, before: float, width: float) -> Callable[[float], None]:
    """Return what shows how much of a candidate's run is done, and that it has begun."""
    progress.update(before, name)
    return lambda done: progress.update(before + width * done, name)


def _share(candidate: Candidate, left: float, waiting: int, scales: int) -> float:
    """Return the seconds of one run of a candidate, of those left to it and to others that wait.

    An equal share, or as much as a run needs where that is more: with less, most would end before their own answer, and
    the race would compare what they all begin with. Then those that come last do not run.
    """
    if candidate.quick:
        return min(left / waiting, _SECONDS_QUICK)
    least = min(candidate.needs if scales == 1 else _SECONDS_OF_SCALE, left / scales)
    if scales > 1 and waiting > 1:
        least = min(least, 0.5 * left / scales)  # several scales leave time for another model
    return max(left / waiting / scales, least)


def board_of(ran: Sequence[Ran], winner: int | None, classes: bool) -> Leaderboard:
    """Return the leaderboard of a race."""
    return Leaderboard(tuple(one.entry for one in ran), classes).sorted_with(winner)
