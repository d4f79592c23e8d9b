"""Each row is predicted from the training rows nearest to it: every row is an inducing input, and nothing is solved.

With inducing inputs at all rows the sparse-within-sparse posterior of a row needs no variational distribution: what is
known there are the targets, whose noise is known. Given the H rows nearest to ``x`` (Vecchia 1988; Allison, Stephenson
and others 2023, "Leveraging locality and robustness to achieve massively scalable Gaussian process regression"),

    f(x) | y  ~  N(k^T (K + N)^-1 y,  k(x, x) - k^T (K + N)^-1 k),      N the noise variances of these rows.

Kernel and noise are those by which some rows are likeliest, each given its nearest others: the evidence of few rows,
which are far from each other, says little of what the function does between near ones. Or by which they are likeliest
each given the nearest before it, see `vastgp.methods.swsgp.ordered_evidence`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from vastgp.data import Rows, Standardizer, processes
from vastgp.data.minibatch import spread_indices, standardised_rows
from vastgp.data.shared_rows import SharedArray
from vastgp.estimators.inducing_inputs import inducing_attributes
from vastgp.fitting.best_fit import fit_evidence
from vastgp.fitting.clock import now
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import LbfgsResult
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Answer, Run
from vastgp.kernels import RBF, Kernel, Matern32, Matern52
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.swsgp.local_scale import LEAST_ROWS, LocalScale, local_scale_of
from vastgp.methods.swsgp.near_rows import LADDER, NEAR, WORTH, Judges, NearRows
from vastgp.methods.swsgp.nearest_posterior import NearestPosterior
from vastgp.methods.swsgp.neighbour_evidence import NeighbourEvidence
from vastgp.methods.swsgp.options import Nearest
from vastgp.methods.swsgp.ordered_evidence import LATE, UNSETTLED, learn_in_order
from vastgp.methods.swsgp.shared_near_rows import SharedNearRows

# Steps of learning with the same neighbours, and how often these are found anew.
_STEPS, _ROUNDS = 15, 16
_TOL = 1e-3
# Rounds on end by which rows are no likelier: then those are left out that only move kernel and neighbours along what
# rows do not tell. 2000 rows of Friedman's function had 248.8 nats after the first round, and from 240.8 to 250.2 after
# ten more, whose lengthscales went to and fro by a tenth.
_IDLE = 2
# What is left of the budget for that, of which a round has half; of that for another search of all rows; of what is
# left then for a last one, and for scales of the rows' own. Seconds below which its program is not worth to be
# compiled, or there is one round, and one form of kernel.
_FOR_LEARNING, _OF_A_ROUND, _FOR_SEARCH, _FOR_LAST_SEARCH, _FOR_SCALE = 0.6, 0.5, 0.1, 0.5, 0.5
_LEAST_SECONDS, _SECONDS_OF_ROUNDS = 2.5, 6.0
# A round finds neighbours and compares scales first: it is worth that where there is so many times as long.
_ROUND_PAYS = 3.0
# Where what some rows are off by has a mean square of so many times that of the start, learning went astray (pol, whose
# targets are eleven numbers, 15 s: RMSE 0.10 deviations at the start, 0.44 by what it learned).
_ASTRAY = 2.0
# With so much known of the scales of rows before, all have the same.
_ONE_SCALE = 1e8
# Standard errors by which a factor of all variances must differ from one that most rows agree with.
_DOUBT = 3.0
# Forms of kernel that are compared where none is given.
_FORMS = (RBF, Matern52, Matern32)
# A use of the seed, see `spread_indices`.
_SEEN = 120


def check_nearest(likelihood: Any, inducing_inputs: Any, normal: bool) -> None:
    """Refuse what ``solver="nearest"`` is not for.

    Parameters
    ----------
    likelihood, inducing_inputs
        Of the estimator.
    normal : bool
        Whether noise is normal, with one variance or with one that varies.
    """
    if not normal:
        raise ValueError(
            "solver='nearest' takes the targets of neighbouring rows for the function with normal noise, and "
            f"likelihood={likelihood!r} is another. Set solver='sparse', or leave it out."
        )
    if not (isinstance(inducing_inputs, str) and inducing_inputs == "auto"):
        raise ValueError(
            "inducing_inputs has no effect with solver='nearest', whose inducing inputs are the rows: leave it out, or "
            "set solver='sparse'."
        )


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


def fit_nearest(
    rows: Rows, standardizer: Standardizer, first: tuple[Kernel, Gaussian], asked: Asked, run: Run
) -> Answer:
    """Keep the rows that predictions are made from, and find kernel, noise and the number of neighbours.

    Parameters
    ----------
    rows, standardizer
    first : tuple of Kernel and Gaussian
        In standardised units.
    asked : Asked
    run : Run
    """
    near, may_vary = near_rows(rows, standardizer, asked, run.seed), asked.varies
    asked = asked._replace(varies=may_vary and near.num_rows >= LEAST_ROWS)
    judges = Judges(near, asked.varies)
    params, history, steps, unfinished = first, History(), 0, ""
    if asked.floor is not None and near.num_rows > 1:
        params, history, steps, unfinished = _learn(first, near, judges, asked, run)
    posterior, ends = _settle(params, near, judges, asked, not unfinished, run)
    # a thousand rows, each given 512 others, take 5 s
    scores = judges.scores(posterior, few=posterior.num_neighbors > LADDER[1])
    reason = f"each row is predicted from the {posterior.num_neighbors} rows nearest to it"
    if unfinished:
        reason = f"{unfinished}; {reason}"
    diagnosis = {
        "objective": float(np.mean(scores)),
        "objective_se": float(np.std(scores) / np.sqrt(len(scores))),
        "searches": 1,
        "recall": posterior.recall,
        "stale": 0.0,
        "neighbors": posterior.num_neighbors,
        "factor": float(ends["factor"]),
    }
    if may_vary:
        diagnosis |= {"noise_varies": posterior.scale is not None, "noise_gain": ends["gain"]}
    return Answer(
        posterior.kernel,
        posterior.likelihood,
        lambda: posterior,
        steps,
        reason,
        not unfinished,
        history,
        advice=f"give more time (max_seconds); without a limit there are {_ROUNDS} rounds of {_STEPS} steps.",
        attributes={"diagnosis_": diagnosis, "solver_": "nearest"}
        | inducing_attributes(near.inputs, standardizer)
        | {"num_inducing_": near.num_rows},
    )


def near_rows(rows: Rows, standardizer: Standardizer, asked: Asked, seed: int) -> NearRows:
    """Return the rows that are kept: of several processes each keeps those that it has."""
    local, first = rows.local, rows.first
    kept = spread_indices(seed, _SEEN, rows.n, asked.kept, first, first + local.n)
    X, y = standardised_rows(local, standardizer, kept - first)
    if local is rows:
        return NearRows(X, y, asked.solver, seed)
    counts = [int(n) for n in processes.gathered(np.int64(len(X)))]
    shared = SharedArray(X, counts), SharedArray(y, counts)
    return SharedNearRows(*shared, asked.solver, seed)


def _settle(
    params: tuple[Kernel, Gaussian],
    near: NearRows,
    judges: Judges,
    asked: Asked,
    learned: bool,
    run: Run,
) -> tuple[NearestPosterior, dict[str, Any]]:
    """Return the posterior with as many neighbours as are of use, and on the scale that rows have; and what it has."""
    kernel, noise = params
    first = near.posterior(params, min(asked.neighbors or LADDER[0], near.num_rows))

    # what judges is to be as near as what new rows are predicted from: 1.8 million rows of houseelectric, given the
    # nearest in the metric of the start, were off by 0.41 of their deviations (the median), new ones by 0.44 and
    # intervals of 95 % held 91 %
    _search_again(
        kernel, near, run, "time for a last search", lambda: run.seconds_left(_FOR_LAST_SEARCH)
    )

    def settled() -> dict[str, Any]:
        # what the clock has a say in is kept in the file of the fit
        found, scale, gain = first, None, 0.0
        # when time is up the first number of neighbours stands, and one scale
        if not (asked.neighbors or run.out_of_time):
            found = judges.with_neighbors(first, run)
        if asked.varies and not run.out_of_time:
            scale, gain = local_scale_of(judges.scattered(found, run.seconds_left(_FOR_SCALE)))
        # what most rows say in order of the amplitude is doubted by few rows where these are sure
        doubt = _DOUBT if asked.solver.evidence == "ordered" and learned else 0.0
        known = asked.floor is None or scale is not None
        return {
            "neighbors": found.num_neighbors,
            "factor": 1.0 if known else judges.factor(found, doubt),
            "scale": None if scale is None else scale.to_state(),
            "gain": gain,
        }

    ends = run.once("neighbours", settled, is_cut=lambda _: run.out_of_time)
    # no smaller than leaves the noise that was asked for
    factor = max(float(ends["factor"]), asked.least / float(noise.noise_variance))
    ends = ends | {"factor": factor}
    params = kernel.in_units(1.0, factor**0.5), Gaussian(factor * float(noise.noise_variance))
    posterior = near.posterior(params, int(ends["neighbors"]))
    if ends["scale"] is not None:
        posterior = replace(posterior, scale=LocalScale(**ends["scale"]))
    return posterior, ends


def _learn(
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
        is_cut=lambda found: found[0] < _ROUNDS,
    )
    until, took, late = _until(since, searched, run), 0.0, rounds < _ROUNDS

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
        _search_again(first[0], near, run, f"time to search again, {number + 1}", for_search)
        began = now()
        try:
            evidence = _likeliest_of(near, first, varies)
            # the first time programs are compiled
            took = now() - began if number else 0.0
            share = 1.0 if number == rounds - 1 else _OF_A_ROUND
            found = fit_evidence(
                evidence, first, noise_floor=floor, max_iter=_STEPS, tol=_TOL,
                record=run.evaluations(f"nearest others, {number + 1}", share=share, until=until),
            )  # fmt: skip
        except FactorizationError:
            return first, history, steps, UNSETTLED  # those of the rows' evidence stand
        first, steps, history = found.params, steps + found.num_iter, found.history
        ended, late = found.converged, rounds < _ROUNDS or found.message == OUT_OF_TIME
        if varies and square(first, f"{number + 1}") > _ASTRAY * at_start:
            first, varies, ended, seen = start, False, False, _Rounds()
            continue
        seen.note(found, _TOL * evidence.num_rows)
        ended |= seen.idle
        if seen.idle or (ended and found.num_iter < _STEPS // 3):
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


def _search_again(
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
    return [_ROUNDS if learning >= _SECONDS_OF_ROUNDS else short, began, near.seconds]


def _until(began: float, seconds: float, run: Run) -> float:
    """Return until when there are rounds that begin after a search of so many seconds, infinity without a budget.

    What comes after takes as long as this search: the posterior has an index of its own, in the metric that was
    learned.
    """
    if run.max_seconds is None:
        return np.inf
    left = run.max_seconds - began
    return began + min(_FOR_LEARNING * left, left - seconds)
