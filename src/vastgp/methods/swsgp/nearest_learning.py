"""How kernel and noise are learned by rows given their nearest others, see `vastgp.methods.swsgp.nearest`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vastgp.fitting.best_fit import fit_evidence
from vastgp.fitting.clock import now
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import LbfgsResult
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Run
from vastgp.kernels import RBF, Kernel, Matern32, Matern52
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.swsgp.near_rows import LADDER, NEAR, WORTH, Judges, NearRows
from vastgp.methods.swsgp.neighbour_evidence import NeighbourEvidence
from vastgp.methods.swsgp.options import Nearest
from vastgp.methods.swsgp.ordered_evidence import LATE, UNSETTLED, learn_in_order

# Steps of learning with the same neighbours, and how often these are found anew.
STEPS, ROUNDS = 15, 16
_TOL = 1e-3
# Rounds on end by which rows are no likelier: then those are left out that only move kernel and neighbours along what
# rows do not tell. 2000 rows of Friedman's function had 248.8 nats after the first round, and from 240.8 to 250.2 after
# ten more, whose lengthscales went to and fro by a tenth.
_IDLE = 2
# What is left of the budget for that, of which a round has half; of that for another search of all rows. Seconds below
# which its program is not worth to be compiled, or there is one round, and one form of kernel.
_FOR_LEARNING, _OF_A_ROUND, _FOR_SEARCH = 0.6, 0.5, 0.1
_LEAST_SECONDS, _SECONDS_OF_ROUNDS = 2.5, 6.0
# A round finds neighbours and compares scales first: it is worth that where there is so many times as long.
_ROUND_PAYS = 3.0
# Where what some rows are off by has a mean square of so many times that of the start, learning went astray (pol, whose
# targets are eleven numbers, 15 s: RMSE 0.10 deviations at the start, 0.44 by what it learned).
_ASTRAY = 2.0
# With so much known of the scales of rows before, all have the same.
_ONE_SCALE = 1e8
# Forms of kernel that are compared where none is given.
_FORMS = (RBF, Matern52, Matern32)


class Asked(NamedTuple):
    """What is asked of a fit from the nearest rows.

    Attributes
    ----------
    kept : int
        How many of the rows are kept, spread over all where there are more.
    neighbors : int or None
        None: found.
    solver : Nearest
    floor : float or None
        Least noise variance; None: kernel and noise are the user's, and stay.
    free : bool
        Whether the kernel may have another form than the one that it begins with.
    varies : bool
        Whether rows may have scales of their own, see `vastgp.methods.swsgp.local_scale`.
    least : float
        Noise variance that the user asked for at least, whatever the amplitude is corrected by; 0: none.
    """

    kept: int
    neighbors: int | None
    solver: Nearest
    floor: float | None
    free: bool
    varies: bool
    least: float = 0.0


def learn_near(
    first: tuple[Kernel, Gaussian],
    near: NearRows,
    judges: Judges,
    asked: Asked,
    run: Run,
) -> tuple[tuple[Kernel, Gaussian], History, int, str]:
    """Return kernel and noise that are learned, the values on the way, the steps, and why these are not all, if so."""
    if asked.free:
        left = run.seconds_left(_FOR_LEARNING)
        late = left is not None and left < _SECONDS_OF_ROUNDS
        first = run.once(
            "form of kernel",
            lambda: first if late else _of_best_form(first, judges, near),
            is_cut=lambda _: late,
        )
    assert asked.floor is not None
    if asked.solver.evidence == "ordered":
        return learn_in_order(first, near.X, near.y, asked.solver, run, asked.floor, asked.free)
    return _by_nearest_others(first, near, judges, run, asked.floor, asked.varies)


def _of_best_form(
    first: tuple[Kernel, Gaussian], judges: Judges, near: NearRows
) -> tuple[Kernel, Gaussian]:
    """Return the kernel in the form by which rows are likeliest given their nearest others, and the noise.

    Rows that are far from each other do not tell how smooth a function is (houseelectric: RBF has the highest evidence
    of 1000 rows, and 0.6 nats a row less than Matern-3/2 between near ones).
    """
    kernel, noise = first
    if type(kernel) not in _FORMS:
        return first
    scales, variance = np.asarray(kernel.lengthscales), np.asarray(kernel.variance)  # type: ignore[attr-defined]
    tried = [(kernel, noise)]
    for form in _FORMS:
        if form is not type(kernel):
            # a rougher function of the same slopes has longer lengthscales
            grouped = kernel.inputs  # type: ignore[attr-defined]
            tried += [(form(factor * scales, variance, grouped), noise) for factor in (1.0, 2.0)]
    size = min(NEAR, near.num_rows)

    def density(params: tuple[Kernel, Gaussian]) -> float:
        return judges.mean_density(near.posterior(params, size))

    return max(tried, key=density)


def _by_nearest_others(
    first: tuple[Kernel, Gaussian],
    near: NearRows,
    judges: Judges,
    run: Run,
    floor: float,
    varies: bool,
) -> tuple[tuple[Kernel, Gaussian], History, int, str]:
    """Return kernel and noise by which some rows are likeliest given their nearest others, and how that ended.

    Neighbours are found anew in the metric that was learned, and learning goes on from there: until it has few steps
    to go, or rows are no likelier than they were.

    Where rows have scales of their own those among equal targets, which some kernel makes ever likelier, may have all
    the say; the others are then farther from what their neighbours say than they were at the start, and what is learned
    from there on is learned with one scale.
    """
    steps, ended, history, start = 0, False, History(), first
    rounds, since, searched = run.once(
        "search of neighbours",
        lambda: _search(first[0], near, run),
        is_cut=lambda found: found[0] < ROUNDS,
    )
    until, took, late = _until(since, searched, run), 0.0, rounds < ROUNDS

    def has_time() -> bool:
        return run.elapsed() + _ROUND_PAYS * took < until

    def for_search() -> float:
        return _FOR_SEARCH * (until - run.elapsed())

    def square(params: tuple[Kernel, Gaussian], when: str) -> float:
        posterior = near.posterior(params, min(LADDER[0], near.num_rows))
        return float(run.once(f"mean square, {when}", lambda: judges.mean_square(posterior)))

    at_start = square(start, "start") if varies and rounds else np.inf
    seen = _Rounds()
    for number in range(rounds):
        time_for = f"time for nearest others, {number + 1}"
        if number and not run.once(time_for, has_time, is_cut=lambda more: not more):
            late = True
            break
        search_again(first[0], near, run, f"time to search again, {number + 1}", for_search)
        began = now()
        try:
            evidence = _likeliest_of(near, first, varies)
            # the first time programs are compiled
            took = now() - began if number else 0.0
            share = 1.0 if number == rounds - 1 else _OF_A_ROUND
            found = fit_evidence(
                evidence, first, noise_floor=floor, max_iter=STEPS, tol=_TOL,
                record=run.evaluations(f"nearest others, {number + 1}", share=share, until=until),
            )  # fmt: skip
        except FactorizationError:
            return first, history, steps, UNSETTLED  # those of the rows' evidence stand
        first, steps, history = found.params, steps + found.num_iter, found.history
        ended, late = found.converged, rounds < ROUNDS or found.message == OUT_OF_TIME
        if varies and square(first, f"{number + 1}") > _ASTRAY * at_start:
            first, varies, ended, seen = start, False, False, _Rounds()
            continue
        seen.note(found, _TOL * evidence.num_rows)
        ended |= seen.idle
        if seen.idle or (ended and found.num_iter < STEPS // 3):
            break
    return first, history, steps, "" if ended else LATE if late else UNSETTLED


class _Rounds:
    """How likely rows are by the likeliest round, and how many have come since.

    That round does not stand for it: among some neighbours rows are likelier by chance than among those of its kernel.
    """

    def __init__(self) -> None:
        self._most, self._since = -np.inf, 0

    def note(self, found: LbfgsResult, least: float) -> None:
        """Note how a round ended; it counts where it gained more than ``least`` nats."""
        if found.value > self._most + least:
            self._most, self._since = found.value, 0
        elif found.message != OUT_OF_TIME:
            self._since += 1

    @property
    def idle(self) -> bool:
        """Whether no other is expected to be likelier."""
        return self._since >= _IDLE


def _likeliest_of(
    near: NearRows, params: tuple[Kernel, Gaussian], varies: bool
) -> NeighbourEvidence:
    """Return what kernel and noise are learned by: with scales of the rows' own where these are likelier so."""
    if not varies:
        return near.evidence(params[0])
    found = [near.evidence(params[0], worth) for worth in (_ONE_SCALE, WORTH)]
    return max(found, key=lambda each: each.objective(params)[0])


def search_again(
    kernel: Kernel, near: NearRows, run: Run, name: str, left: Callable[[], float | None]
) -> None:
    """Look through all rows again where others may be nearest and there is time, which the file keeps by a name."""

    def may() -> bool:
        seconds = left()
        return seconds is None or near.seconds < seconds

    if near.may_be_others(kernel) and run.once(name, may, is_cut=lambda more: not more):
        near.search(kernel)


def _search(kernel: Kernel, near: NearRows, run: Run) -> list[float]:
    """Look through all rows; return how many rounds there are, when they begin, and the seconds of the search.

    There is one round where its program takes most of the time, and none where it takes more.
    """
    began = run.elapsed()
    if _until(began, near.seconds, run) - began < _LEAST_SECONDS:
        return [0, began, near.seconds]
    near.search(kernel)
    began = run.elapsed()
    learning = _until(began, near.seconds, run) - began
    short = 0 if learning < _LEAST_SECONDS else 1
    return [ROUNDS if learning >= _SECONDS_OF_ROUNDS else short, began, near.seconds]


def _until(began: float, seconds: float, run: Run) -> float:
    """Return until when there are rounds that begin after a search of so many seconds, infinity without a budget.

    What comes after takes as long as this search: the posterior has an index of its own, in the metric that was
    learned.
    """
    if run.max_seconds is None:
        return np.inf
    left = run.max_seconds - began
    return began + min(_FOR_LEARNING * left, left - seconds)
