"""Hyperparameters of more and more rows: each stage begins where the one before ended, and costs 16 times as much."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from vastgp._memory import available_bytes
from vastgp.fitting.best_fit import fit_best, fit_evidence
from vastgp.fitting.candidates import candidate_kernels
from vastgp.fitting.device_evidence import (
    exact_evidence,
    is_on_device,
    rows_learnable_on_device,
    seconds_of_device_evaluation,
)
from vastgp.fitting.evaluations import Evaluations
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.lbfgs import LbfgsResult
from vastgp.fitting.run import Run
from vastgp.fitting.start import start_from_exact_gp
from vastgp.fitting.sums import evidence_of_trials, or_sum
from vastgp.kernels import Kernel, Product, Sum
from vastgp.likelihoods import Gaussian
from vastgp.solvers.plan import operations_a_second

# Least noise variance that is learned, relative to the variance of the target: 1e-4 of its deviation. Of simulators,
# which have no noise, 1e-3 left intervals ten times too wide, and errors up to eight times as large (700 rows of
# Branin's function: NLPD -5.95 and -8.25).
NOISE_FLOOR = 1e-8
# Up to here all rows are used from the first iteration; beyond, this many give the starting values.
START_ROWS = 1000
# Of how many rows hyperparameters are learned where nothing else is said: an evaluation of the evidence of so many, and
# of its gradient, takes a few seconds of two cores; a quarter of one on an H200.
_LEARNED_ROWS, _LEARNED_ON_DEVICE = 5000, 20_000
# Where there are so many, and such a budget, those are the best of several fits that are compared on them: the evidence
# of 1000 rows can have several optima, and looking at three takes ten seconds.
_COMPARED_ROWS, _COMPARED_SECONDS = 2000, 30.0
# A first stage of at most so many times the rows of the start does what the start would do last: it refines the fit,
# and tries a sum. With both 2000 rows took 32 evaluations in place of 23, to see that nothing was left to gain.
_SOON = 1.5
# A sum is tried on fewer rows first, of these numbers the largest where there are so many times as many: its trials on
# 1900 rows took a minute.
_SUM_ROWS, _MORE_ROWS = (_COMPARED_ROWS, START_ROWS), 1.25
# Each stage has so many times the rows of the one before, and an evaluation costs the cube of that.
_GROWTH = 2.5
# Slopes of the evidence of some rows differ from those of all by far more than this, per row: no stage but that of all
# rows is climbed further.
_STAGE_TOL = 1e-3
# What the first of them may use of the budget; on an accelerator more rows take little, once compiled.
_START_SHARE, _START_BESIDE_DEVICE = 0.5, 0.25
# Of an evaluation of the evidence and its gradient: the posterior after it, and an iteration, which may take two. Some
# share of what is left has to remain, or the hyperparameters of some rows stay.
OF_POSTERIOR, _OF_ITERATION, _LEAST_SHARE = 0.5, 1.5, 0.25
# Numbers of a kernel matrix take so many operations to make and to differentiate, and for each input.
_PER_ENTRY, _PER_INPUT = 2400.0, 10.0
# What compiling the programs of a part of a kernel takes on an accelerator, of an evaluation as there are some ten.
_OF_PARTS_ON_DEVICE = 0.3
# Matrices that an evaluation holds at a time, of the share of the memory that is available.
_MATRICES, _MEMORY_SHARE = 5, 0.5
_STAGE_ROWS = 41  # a use of the seed


class Search(NamedTuple):
    """What hyperparameters are looked for with.

    Attributes
    ----------
    kernel : Kernel, str or None
        As the estimator was given it.
    learn : Learn
        With ``noise_floor`` and ``rows`` set.
    restarts, max_iter, tol
        Of the estimator.
    """

    kernel: Any
    learn: Any
    restarts: int
    max_iter: int
    tol: float


def learn_by_stages(
    search: Search, X: np.ndarray, y: np.ndarray, run: Run, reserve: float | None
) -> tuple[LbfgsResult, int]:
    """Return the hyperparameters of highest evidence, of as many rows as the search and the budget hold, and how many.

    Parameters
    ----------
    search : Search
    X, y : ndarray
        All standardised rows.
    run : Run
    reserve : float or None
        Seconds of the budget that the posterior of all rows takes afterwards; None: half an evaluation of them, below
        which there is no answer of the method's own.
    """
    learn, n = search.learn, len(y)
    noise_floor = learn.noise_floor
    known = run.known_for(Gaussian(1.0))
    if known is not None and not isinstance(known.likelihood, Gaussian):
        known = None
    form = search.kernel
    if known is not None and not known.complete:
        # another search, of other rows or shorter, says which kernel to begin with
        form, known = known.kernel if form is None else form, None
    if n <= min(START_ROWS, learn.rows):
        if known is not None:
            # another fit's search had all kernels and starts
            return fit_evidence(
                ExactEvidence(X, y), (known.kernel, known.likelihood),
                noise_floor=noise_floor, max_iter=search.max_iter, tol=search.tol, max_seconds=run.seconds_left(),
            ), n  # fmt: skip
        draws = np.random.default_rng(run.seed)
        best = fit_best(
            candidate_kernels(form, X.shape[1], learn.inputs(X.shape[1])),
            X, y,
            noise_floor=noise_floor, restarts=search.restarts, generator=draws,
            deadline=run.deadline, max_iter=search.max_iter, tol=search.tol,
        )  # fmt: skip
        if form is None:
            best = or_sum(
                ExactEvidence(X, y), best, trials=evidence_of_trials(X, y, draws),
                noise_floor=noise_floor, max_iter=search.max_iter, tol=search.tol, deadline=run.deadline,
            )  # fmt: skip
        return best, n

    def begin() -> tuple[Kernel, float, int, bool]:
        if known is not None:
            return known.kernel, float(known.likelihood.noise_variance), 0, False  # type: ignore[attr-defined]
        left, most, share = run.seconds_left(), min(START_ROWS, learn.rows), _START_SHARE
        if is_on_device(min(n, learn.rows)):
            share = _START_BESIDE_DEVICE
        elif min(n, learn.rows) >= _COMPARED_ROWS and (left is None or left >= _COMPARED_SECONDS):
            most = _COMPARED_ROWS
        coming = stages(min(n, learn.rows))
        goes_on = bool(coming) and coming[0] <= _SOON * most
        began, seconds = run.elapsed(), run.seconds_left(share)
        found = start_from_exact_gp(
            form, X, y,
            max_rows=most, seed=run.seed, noise_floor=noise_floor, restarts=search.restarts,
            inputs=learn.inputs(X.shape[1]), max_seconds=seconds,
            sums=not goes_on, refined=not goes_on,
        )  # fmt: skip
        ended = seconds is None or run.elapsed() < began + seconds
        seen = most if ended and not goes_on else 0
        return found.kernel, found.noise_variance, seen, found.cut or not ended

    kernel, noise_variance, seen, _ = run.once(
        "first hyperparameters", begin, is_cut=lambda found: bool(found[-1])
    )
    first = run.first = kernel, Gaussian(noise_variance)
    draws = np.random.default_rng([run.seed, _STAGE_ROWS])
    order = draws.permutation(n)
    learned, steps = min(START_ROWS, learn.rows), 0
    result = LbfgsResult.unneeded(first, f"kernel and noise are those of {learned} rows")
    for rows in stages(min(n, learn.rows)):
        share = _share(rows, X.shape, parts_of(result.params[0]), run, reserve)
        if share < _LEAST_SHARE:
            where = "all rows" if rows == n else f"{rows} rows"
            message = (
                f"max_seconds leaves no time to learn on {where}: kernel and noise are those of "
                f"{learned} of them"
            )
            return replace(result, num_iter=steps, converged=False, message=message), learned
        chosen = np.sort(order[:rows])
        evidence = exact_evidence(X[chosen], y[chosen])
        name = "exact GP" if rows == n else f"exact GP, {rows} rows"
        how: dict[str, Any] = {
            "noise_floor": noise_floor,
            "max_iter": search.max_iter,
            "tol": search.tol if rows == n else max(search.tol, _STAGE_TOL),
        }
        result = fit_evidence(
            evidence, result.params, record=run.evaluations(name, share=share), **how
        )
        if form is None and rows > seen:
            # more rows can tell two parts of what was one of fewer; where there are many, those of the stage before
            # say whether it is worth their time
            share = _share(rows, X.shape, 2, run, reserve)
            if share >= _LEAST_SHARE:
                few = None
                if fewer := next((k for k in _SUM_ROWS if rows > _MORE_ROWS * k), None):
                    some = np.sort(order[:fewer])
                    few = exact_evidence(X[some], y[some])
                result = or_sum(
                    evidence, result, few=few, trials=evidence_of_trials(X[chosen], y[chosen], draws),
                    record=partial(_record, run, name, share), **how,
                )  # fmt: skip
        run.first = result.params
        learned, steps = rows, steps + result.num_iter
    return replace(result, num_iter=steps), learned


def _record(run: Run, name: str, share: float, what: str) -> Evaluations:
    return run.evaluations(f"{name}, {what}", share=share)


def parts_of(kernel: Kernel) -> int:
    """Return how many matrices are made for that of a kernel."""
    return len(kernel.parts) if isinstance(kernel, (Sum, Product)) else 1


def stages(rows: int) -> list[int]:
    """Return the numbers of rows that are learned on after the first, the last being ``rows``."""
    if rows <= START_ROWS:
        return []
    found = [rows]
    while found[0] >= 2 * _GROWTH * START_ROWS:
        found.insert(0, int(found[0] / _GROWTH))
    return found


def learnable_rows() -> int | None:
    """Return the most rows whose evidence and gradient the memory holds, None where that is not known.

    That of an accelerator, where there is one and it holds more than the host.
    """
    available = available_bytes()
    if available is None:
        return None
    on_host = int((_MEMORY_SHARE * available / (8 * _MATRICES)) ** 0.5)
    return max(on_host, rows_learnable_on_device() or 0)


def learned_rows() -> int:
    """Return of how many rows hyperparameters are learned where nothing else is said."""
    return _LEARNED_ON_DEVICE if is_on_device(_LEARNED_ON_DEVICE) else _LEARNED_ROWS


def _share(rows: int, shape: tuple[int, int], parts: int, run: Run, reserve: float | None) -> float:
    """Return the share of the budget that is left which a stage may use; little where it had better not begin."""
    if run.max_seconds is None:
        return 1.0
    # an iteration that has begun is not left in the middle
    n, d = shape
    one = run.once(
        f"seconds of an evaluation of {rows} rows, {parts} parts",
        lambda: seconds_of_evaluation(rows, d, parts),
    )
    if reserve is None:
        reserve = OF_POSTERIOR * (one if rows == n else seconds_of_evaluation(n, d, parts))
        run.needs = max(run.needs or 0.0, reserve)
        run.check_time()
    return 1.0 - (reserve + _OF_ITERATION * one) / max(run.seconds_left() or 0.0, 1e-9)


def seconds_of_evaluation(n: int, d: int, parts: int = 1) -> float:
    """Return about what the evidence of n rows with d inputs and its gradient take on this machine.

    A factorisation and an inverse, ``n^3`` operations in float64, and matrices of each part of the kernel and its
    slopes; on an accelerator less.
    """
    if is_on_device(n):
        return parts * _OF_PARTS_ON_DEVICE + seconds_of_device_evaluation(n)
    entries = parts * (_PER_ENTRY + _PER_INPUT * d)
    return (n**3 + entries * n**2) / (0.5 * operations_a_second())
