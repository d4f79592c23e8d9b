"""L-BFGS over positive hyperparameters, or over real parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np
from scipy.optimize import minimize

from vastgp.data.processes import from_first
from vastgp.fitting.climb_ends import Level, NearMaximum, Rule, SmallGains
from vastgp.fitting.clock import now
from vastgp.fitting.evaluations import Evaluations
from vastgp.fitting.history import History
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.newton_decrement import MEMORY
from vastgp.fitting.progress import Progress
from vastgp.linalg.cholesky import FactorizationError
from vastgp.linalg.leaves import from_vector
from vastgp.linalg.threads import one_blas_thread

# What L-BFGS itself ends by: where slopes are nothing, or an iteration gains nothing. A gain of ``tol^2 / 100`` ended
# five of thirty fits of re-weighted bases, and predictions of three of these moved later by 6 to 23 times ``tol``.
_NO_SLOPE = 1e-14
_OUT_OF_ITERATIONS = 1  # how it numbers that


@dataclass(frozen=True)
class LbfgsResult:
    """Where L-BFGS ended.

    Attributes
    ----------
    params : pytree
        Positive hyperparameters, float64 NumPy leaves.
    value : float
        The objective there.
    num_iter : int
    converged : bool
    message : str
        Why it stopped.
    history : History
        The objective at every iteration.
    cut : bool
        Of a search of several climbs, whether the clock ended one of them or left one out.
    """

    params: Any
    value: float
    num_iter: int
    converged: bool
    message: str
    history: History = field(repr=False)
    cut: bool = False

    @classmethod
    def unneeded(cls, params: Any, why: str) -> LbfgsResult:
        """Return the result where no search was needed."""
        return cls(params, float("nan"), 0, True, why, History())


def maximise(
    value_and_gradient: Callable[[Any], tuple[float, Any]],
    start: Any,
    *,
    lower: Any,
    upper: Any,
    max_iter: int,
    tol: float,
    scale: float = 1.0,
    max_seconds: float | None = None,
    record: Evaluations | None = None,
) -> LbfgsResult:
    """Maximise a function of positive numbers by L-BFGS-B on their logarithms.

    Parameters
    ----------
    value_and_gradient : callable
        ``value_and_gradient(params) -> (float, pytree)``, derivatives by the positive numbers themselves. It may raise
        `FactorizationError` at a trial point: the line search then shortens its step.
    start, lower, upper : pytree of positive numbers
        Same structure and shapes; the start is moved inside the bounds.
    max_iter : int
    tol : float
        Converged when no derivative ``g`` by a logarithm exceeds ``tol * scale``, bounds aside, and the Newton
        decrement, ``sqrt(g^T H^-1 g / scale)`` by the curvatures ``H`` that L-BFGS has seen, does not exceed ``tol``
        either: ``tol^2 scale / 2`` is left to gain. Or when no step gains anything, slopes are below ``tol`` and no
        more than ``tol * scale`` is left to gain.
    scale : float, default 1.0
        Natural size of the objective; the number of rows for a log evidence, so that ``tol`` is per row.
    max_seconds : float, optional
        Wall-clock budget, checked after every evaluation; the best point of all is then where it ends.
    record : Evaluations, optional
        Of the phase of a fit, `Run.evaluations`: a resumed fit replays it, its budget holds, its progress is shown.
    """
    flat, rebuild = ravel(start)
    bounds = np.log(np.stack([ravel(lower)[0], ravel(upper)[0]], axis=1))
    return _climb(
        value_and_gradient,
        np.clip(np.log(flat), *bounds.T),
        lambda point: rebuild(np.exp(point)),
        lambda gradient, point: ravel(gradient)[0] * np.exp(point),
        bounds,
        max_iter,
        (scale, max_seconds),
        record,
        NearMaximum(bounds, tol),
    )


def maximise_real(
    value_and_gradient: Callable[[Any], tuple[float, Any]],
    start: Any,
    *,
    max_iter: int,
    tol: float,
    scale: float = 1.0,
    record: Evaluations | None = None,
) -> LbfgsResult:
    """Maximise a function of real numbers by L-BFGS, without bounds.

    Parameters
    ----------
    value_and_gradient : callable
        ``value_and_gradient(params) -> (float, pytree)``.
    start : pytree of real numbers
    max_iter, scale, record
        As in `maximise`.
    tol : float
        Converged when twenty iterations in a row gain less than ``tol`` of ``max(|objective|, scale)`` each, on
        average, and half the square of the Newton decrement (see `maximise`) is no more; where no step gains anything,
        that alone. Single derivatives say little where there are very many parameters, and are not looked at.
    """
    flat, rebuild = ravel(start)
    found = _climb(
        value_and_gradient,
        flat,
        rebuild,
        lambda gradient, point: ravel(gradient)[0],
        None,
        max_iter,
        (scale, None),
        record,
        SmallGains(tol, scale),
    )
    return _with_a_record(found)


def maximise_inside(
    value_and_gradient: Callable[[Any], tuple[float, Any]],
    start: Any,
    *,
    lower: Any,
    upper: Any,
    max_iter: int,
    tol: float,
    scale: float = 1.0,
    max_seconds: float | None = None,
) -> LbfgsResult:
    """Maximise a function of many real numbers, some of them within bounds, by L-BFGS.

    Parameters
    ----------
    value_and_gradient : callable
        As in `maximise_real`; it may raise `FactorizationError` as in `maximise`.
    start, lower, upper : pytree of real numbers
        Same structure and shapes; the start is moved inside the bounds, which may be infinite.
    max_iter, scale, max_seconds
        As in `maximise`.
    tol : float
        Converged when the slope's length, bounds aside, is at most ``tol * scale`` and the last twenty iterations, or
        the last tenth of them, gained less than ``tol / 100`` of ``scale``. A step that finds nothing more to gain
        while the slope is longer has not converged.
    """
    flat, rebuild = ravel(start)
    bounds = np.stack([ravel(lower)[0], ravel(upper)[0]], axis=1)
    found = _climb(
        value_and_gradient,
        np.clip(flat, *bounds.T),
        rebuild,
        lambda gradient, point: ravel(gradient)[0],
        bounds,
        max_iter,
        (scale, max_seconds),
        None,
        Level(bounds, tol, scale),
    )
    return _with_a_record(found)


def _climb(
    value_and_gradient: Callable[[Any], tuple[float, Any]],
    start: np.ndarray,
    params_at: Callable[[np.ndarray], Any],
    slope_at: Callable[[Any, np.ndarray], np.ndarray],
    bounds: np.ndarray | None,
    max_iter: int,
    limits: tuple[float, float | None],
    record: Evaluations | None,
    rule: Rule,
) -> LbfgsResult:
    """Run L-BFGS-B over a vector that stands for parameters, until a rule ends it."""
    scale, max_seconds = limits
    if record is not None and max_seconds is None:
        max_seconds = record.max_seconds
    began = now()
    history = History()
    seen = _Seen()
    settled: str | None = None

    def negated(point: np.ndarray) -> tuple[float, np.ndarray]:
        error: ArithmeticError | ValueError | None = None

        def compute() -> tuple[float, np.ndarray]:
            nonlocal error
            try:
                with all_threads():
                    value, gradient = value_and_gradient(params_at(point))
            except FactorizationError as caught:
                error = caught
                return np.nan, np.zeros_like(point)
            return float(value), slope_at(gradient, point)

        def told() -> tuple[float, np.ndarray]:
            """Return what process 0 computed: where several fit one model, all go its way."""
            value, slope = compute()
            both = from_first(np.append(slope, value))
            return float(both[-1]), both[:-1]

        value, slope = told() if record is None else record(point, told)
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            error = error or FloatingPointError(f"objective {value}, gradient {slope}")
            found = seen.instead_of(error)
        else:
            if seen.last is None:
                rule.begins(point, -slope / scale)
            found = seen.note(point, -value / scale, -slope / scale)
        if max_seconds is not None and seconds() > max_seconds:
            raise _OutOfTime  # a search along a line may take twenty evaluations
        return found

    def seconds() -> float:
        return now() - began if record is None else record.seconds

    def note(value: float) -> None:
        history.append(len(history) + 1, seconds(), {"objective": value})
        shown.update(len(history) / max_iter, f"objective {value:.6g}")

    def after(intermediate_result: Any) -> None:
        nonlocal settled
        note(-float(intermediate_result.fun) * scale)
        assert seen.last is not None
        settled = rule.settled(intermediate_result.x, seen.last, history)
        if settled is not None:
            raise StopIteration

    progress = Progress("", False) if record is None else record.progress()
    with progress as shown, one_blas_thread() as all_threads:
        try:
            found = minimize(
                negated,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                callback=after,
                options={"maxiter": max_iter, "gtol": _NO_SLOPE, "ftol": 0.0, "maxcor": MEMORY},
            )
            end = found.x, -float(found.fun) * scale
            converged, message = True, settled or ""
            if found.status == _OUT_OF_ITERATIONS:
                converged, message = False, f"stopped after {max_iter} iterations"
            elif settled is None:
                converged, message = rule.ended(flat=bool(found.success))
        except _OutOfTime:
            end = seen.best, -seen.least * scale
            converged, message = False, OUT_OF_TIME
            if not len(history) or end[1] > history.last("objective"):
                note(end[1])
    if record is not None:
        record.end(history)
    return LbfgsResult(params_at(end[0]), end[1], len(history), converged, message, history)


def _with_a_record(found: LbfgsResult) -> LbfgsResult:
    """Return a result whose history tells the objective also where the start was the maximum."""
    if not len(found.history):
        found.history.append(1, 0.0, {"objective": found.value})
    return found


def best_of(results: Iterable[LbfgsResult]) -> LbfgsResult:
    """Return the result with the largest objective."""
    return max(results, key=lambda result: result.value)


class _OutOfTime(Exception):
    """The budget is used up, in the middle of an iteration perhaps."""


class _Seen:
    """The best point so far, and a value worse than any: after a failed evaluation the line search steps back."""

    def __init__(self) -> None:
        self.best, self.least = np.zeros(0), np.inf
        self._worst: float | None = None
        self.last: np.ndarray | None = None  # slope

    def note(self, point: np.ndarray, value: float, slope: np.ndarray) -> tuple[float, np.ndarray]:
        if value < self.least:
            self.best, self.least = point.copy(), value
        self._worst = value if self._worst is None else max(self._worst, value)
        self.last = slope
        return value, slope

    def instead_of(self, error: ArithmeticError | ValueError) -> tuple[float, np.ndarray]:
        if self._worst is None or self.last is None:
            raise error  # the start itself fails: nothing to step back to
        return self._worst + 10.0 + abs(self._worst), np.zeros_like(self.last)


def ravel(tree: Any) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
    """Return the leaves as one float64 vector, and the way back."""
    arrays = [np.asarray(leaf, dtype=np.float64) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([array.ravel() for array in arrays]), partial(from_vector, like=tree)
