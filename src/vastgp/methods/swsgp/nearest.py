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

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from vastgp.data import Rows, Standardizer, observations
from vastgp.data.minibatch import fixed_indices, standardised_rows
from vastgp.estimators.inducing_inputs import inducing_attributes
from vastgp.fitting.best_fit import fit_evidence
from vastgp.fitting.clock import now
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import LbfgsResult
from vastgp.fitting.run import Answer, Run
from vastgp.fitting.start import start_from_exact_gp
from vastgp.kernels import RBF, Kernel, Matern32, Matern52, Sum
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.swsgp.local_scale import LEAST_ROWS, LocalScale, local_scale_of
from vastgp.methods.swsgp.near_rows import LADDER, NEAR, WORTH, Judges, NearRows
from vastgp.methods.swsgp.nearest_posterior import NearestPosterior
from vastgp.methods.swsgp.neighbour_evidence import NeighbourEvidence
from vastgp.methods.swsgp.options import Nearest
from vastgp.methods.swsgp.ordered_evidence import learn_in_order

# Steps of learning with the same neighbours, and how often these are found anew.
_STEPS, _ROUNDS = 15, 16
_TOL = 1e-3
# What is left of the budget for that, of which a round has half; for a second search of all rows; and for scales of the
# rows' own. Seconds below which its program is not worth to be compiled, or there is one round, and one form of kernel.
_FOR_LEARNING, _OF_A_ROUND, _FOR_SEARCH, _FOR_SCALE = 0.6, 0.5, 0.1, 0.5
_LEAST_SECONDS, _SECONDS_OF_ROUNDS = 2.5, 6.0
# A round finds neighbours and compares scales first: it is worth that where there is so many times as long.
_ROUND_PAYS = 3.0
# With so much known of the scales of rows before, all have the same.
_ONE_SCALE = 1e8
# Standard errors by which a factor of all variances must differ from one that most rows agree with.
_DOUBT = 3.0
# Steps of each of two forms before they are compared, what share of the time for learning they have, and how many nats
# a row one that takes twice as long has to be better by.
_TRIAL, _OF_A_TRIAL, _CLEARLY = 8, 0.2, 0.02
# Rows that a kernel of one part is found on beside a sum, and what is left of the budget for that.
_SINGLE_ROWS, _FOR_SINGLE = 1000, 0.1
# Forms of kernel that are compared where none is given.
_FORMS = (RBF, Matern52, Matern32)
# A use of the seed, see `fixed_indices`.
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
        How many of the rows are kept, random ones where there are more.
    neighbors : int or None
        None: found.
    solver : Nearest
    floor : float or None
        Least noise variance; None: kernel and noise are the user's, and stay.
    free : bool
        Whether the kernel may have another form than the one that it begins with.
    inputs : sequence of int or None
        Which columns have one lengthscale, see `vastgp.fitting.candidates.candidate_kernels`.
    varies : bool
        Whether rows may have scales of their own, see `vastgp.methods.swsgp.local_scale`.
    """

    kept: int
    neighbors: int | None
    solver: Nearest
    floor: float | None
    free: bool
    inputs: Sequence[int] | None
    varies: bool


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
    kept = np.sort(fixed_indices(run.seed, _SEEN, rows.n, asked.kept))
    X, y = standardised_rows(rows, standardizer, kept)
    may_vary = asked.varies
    asked = asked._replace(varies=may_vary and len(X) >= LEAST_ROWS)
    near = NearRows(X, asked.solver, run.seed)
    judges = Judges(y, near, asked.varies)
    params, history, steps, learned = first, History(), 0, True
    if asked.floor is not None and len(X) > 1:
        params, history, steps, learned = _learn(first, y, near, judges, asked, run)
    posterior, ends = _settle(params, y, near, judges, asked, learned, run)
    scores = judges.scores(posterior)
    reason = f"each row is predicted from the {posterior.num_neighbors} nearest of {len(X)} rows"
    if not learned:
        reason = f"kernel and noise were not learned to the end; {reason}"
    diagnosis = {
        "objective": float(np.mean(scores)),
        "objective_se": float(np.std(scores) / np.sqrt(len(scores))),
        "searches": 1,
        "recall": float(posterior.index.recall),
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
        learned,
        history,
        advice=f"give more time (max_seconds); without a limit there are {_ROUNDS} rounds of {_STEPS} steps.",
        attributes={"diagnosis_": diagnosis, "solver_": "nearest"}
        | inducing_attributes(X, standardizer),
    )


def _settle(
    params: tuple[Kernel, Gaussian],
    y: np.ndarray,
    near: NearRows,
    judges: Judges,
    asked: Asked,
    learned: bool,
    run: Run,
) -> tuple[NearestPosterior, dict[str, Any]]:
    """Return the posterior with as many neighbours as are of use, and on the scale that rows have; and what it has."""
    kernel, noise = params
    first = _posterior(params, near.X, y, min(asked.neighbors or LADDER[0], len(y)), asked.solver)

    def settled() -> dict[str, Any]:
        # what the clock has a say in is kept in the file of the fit
        found, scale, gain = first, None, 0.0
        if not asked.neighbors:
            found = judges.with_neighbors(first, run)
        if asked.varies:
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

    ends = run.once("neighbours", settled)
    factor = float(ends["factor"])
    params = kernel.in_units(1.0, factor**0.5), Gaussian(factor * float(noise.noise_variance))
    posterior = _posterior(params, near.X, y, int(ends["neighbors"]), asked.solver)
    if ends["scale"] is not None:
        posterior = replace(posterior, scale=LocalScale(**ends["scale"]))
    posterior.__dict__["index"] = first.index  # of the same lengthscales
    return posterior, ends


def _learn(
    first: tuple[Kernel, Gaussian],
    y: np.ndarray,
    near: NearRows,
    judges: Judges,
    asked: Asked,
    run: Run,
) -> tuple[tuple[Kernel, Gaussian], History, int, bool]:
    """Return kernel and noise that are learned, the values on the way, the steps, and whether that came to an end."""
    firsts = [first]
    if asked.free:
        firsts = run.once("form of kernel", lambda: _forms(first, y, judges, near, asked, run))
    assert asked.floor is not None
    if asked.solver.evidence == "ordered":
        return learn_in_order(firsts[0], near.X, y, asked.solver, run, asked.floor, asked.free)
    return _by_nearest_others(firsts, y, near, judges, asked, run)


def _forms(
    first: tuple[Kernel, Gaussian],
    y: np.ndarray,
    judges: Judges,
    near: NearRows,
    asked: Asked,
    run: Run,
) -> list[tuple[Kernel, Gaussian]]:
    """Return kernels and noises that learning begins with: where the likeliest is a sum, one of one part too.

    A sum is mostly likelier, and to learn it takes twice as long, with twice the lengthscales (60 s: protein 0.07 nats
    a row with Matern-3/2, -0.03 with a sum; kin40k -1.62 with RBF, -1.46).
    """
    left = run.seconds_left(_FOR_LEARNING)
    if left is not None and left < _SECONDS_OF_ROUNDS:
        return [first]
    if not isinstance(first[0], Sum):
        return [_of_best_form(first, y, judges, near)]
    if asked.solver.evidence == "ordered":
        return [first]
    assert asked.floor is not None
    kernel, noise, _ = start_from_exact_gp(
        None, near.X, y,
        max_rows=_SINGLE_ROWS, seed=run.seed, noise_floor=asked.floor, inputs=asked.inputs,
        max_seconds=run.seconds_left(_FOR_SINGLE),
    )  # fmt: skip
    return [_of_best_form((kernel, Gaussian(noise)), y, judges, near), first]


def _of_best_form(
    first: tuple[Kernel, Gaussian], y: np.ndarray, judges: Judges, near: NearRows
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
    return max(tried, key=_density_of(y, judges, near, NEAR))


def _density_of(
    y: np.ndarray, judges: Judges, near: NearRows, size: int
) -> Callable[[tuple[Kernel, Gaussian]], float]:
    """Return what gives the mean log density of rows by a kernel and a noise, each given so many others."""
    size = min(size, len(y))
    return lambda params: judges.mean_density(_posterior(params, near.X, y, size, near.solver))


def _by_nearest_others(
    firsts: list[tuple[Kernel, Gaussian]],
    y: np.ndarray,
    near: NearRows,
    judges: Judges,
    asked: Asked,
    run: Run,
) -> tuple[tuple[Kernel, Gaussian], History, int, bool]:
    """Return kernel and noise by which some rows are likeliest given their nearest others, and how that ended.

    Of two to begin with each has some steps; the second goes on where rows are clearly likelier by it then.
    """
    first = firsts[0]
    steps, ended, history = 0, False, History()
    again, rounds, until = run.once("search of neighbours", lambda: _search(first[0], near, run))
    took = 0.0

    def has_time() -> bool:
        return run.elapsed() + _ROUND_PAYS * took < until

    def a_round(
        params: tuple[Kernel, Gaussian], name: str, part: float, most: int = _STEPS
    ) -> tuple[LbfgsResult, float]:
        began = now()
        evidence = _likeliest_of(near, y, params, asked.varies)
        prepared = now() - began
        left, share = run.seconds_left(), 1.0
        if left is not None:
            share = min(part * max(until - run.elapsed(), 0.0) / max(left, 1e-9), 1.0)
        assert asked.floor is not None
        return fit_evidence(
            evidence, params, noise_floor=asked.floor, max_iter=most, tol=_TOL,
            record=run.evaluations(name, share=share),
        ), prepared  # fmt: skip

    try:
        if len(firsts) > 1 and rounds > 1:
            tried = [
                a_round(params, f"form {number + 1}", _OF_A_ROUND / (len(firsts) - number))[0]
                for number, params in enumerate(firsts)
            ]
            first = max(
                (each.params for each in tried), key=_density_of(y, judges, near, LADDER[1])
            )
            steps = sum(each.num_iter for each in tried)
        for number in range(rounds):
            if number and not run.once(f"time for nearest others, {number + 1}", has_time):
                break
            if number == 1 and again:
                near.search(first[0])  # lengthscales have moved
            part = 1.0 if number == rounds - 1 else _OF_A_ROUND
            found, prepared = a_round(first, f"nearest others, {number + 1}", part)
            # the first time programs are compiled
            took = prepared if number else 0.0
            first, steps, history = found.params, steps + found.num_iter, found.history
            ended = found.converged
            if ended and found.num_iter < _STEPS // 3:
                break
    except FactorizationError:
        return first, history, steps, False  # those of the rows' evidence stand
    return first, history, steps, ended


def _score_of(
    params: tuple[Kernel, Gaussian], y: np.ndarray, near: NearRows, judges: Judges, asked: Asked
) -> float:
    """Return the mean log density of rows given few others, on scales of their own where they may have them."""
    posterior = _posterior(params, near.X, y, min(LADDER[0], len(y)), near.solver)
    if not asked.varies:
        return judges.mean_density(posterior)
    scale, _ = local_scale_of(judges.scattered(posterior, None))
    return float(np.mean(judges.scores(replace(posterior, scale=scale))))


def _likeliest_of(
    near: NearRows, y: np.ndarray, params: tuple[Kernel, Gaussian], varies: bool
) -> NeighbourEvidence:
    """Return what kernel and noise are learned by: with scales of the rows' own where these are likelier so."""
    rows = near.X, y, near.chosen, near.at_all_distances(params[0]), near.solver.jitter
    if not varies:
        return NeighbourEvidence(*rows)
    found = [NeighbourEvidence(*rows, worth) for worth in (_ONE_SCALE, WORTH)]
    return max(found, key=lambda each: each.objective(params)[0])


def _search(kernel: Kernel, near: NearRows, run: Run) -> list[Any]:
    """Look through all rows; return whether there is time for that again, how many rounds there are, and until when.

    There is one round where its program takes most of the time, and none where it takes more.
    """
    learning = run.seconds_left(_FOR_LEARNING)
    if learning is not None and learning < _LEAST_SECONDS:
        return [False, 0, 0.0]
    began = now()
    near.search(kernel)
    took = now() - began
    another, learning = run.seconds_left(_FOR_SEARCH), run.seconds_left(_FOR_LEARNING)
    short = learning is not None and learning < _SECONDS_OF_ROUNDS
    until = np.inf if learning is None else run.elapsed() + learning
    return [another is None or took < another, 1 if short else _ROUNDS, until]


def _posterior(
    params: tuple[Kernel, Gaussian], X: np.ndarray, y: np.ndarray, neighbors: int, solver: Nearest
) -> NearestPosterior:
    noise = observations.noise_variances(y, float(params[1].noise_variance))
    return NearestPosterior(
        params[0], X, observations.targets(y)[:, None], np.zeros((len(X), 1)), neighbors, solver.jitter,
        search=solver.neighbor_search, noise=np.broadcast_to(noise, len(X)).copy(),
        noise_variance=float(params[1].noise_variance),
    )  # fmt: skip
