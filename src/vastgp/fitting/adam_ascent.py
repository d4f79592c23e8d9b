"""Adam on noisy gradients of the log evidence, over the logarithms of kernel and noise variance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from vastgp.fitting.candidates import Params, bounds_of
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import ravel
from vastgp.fitting.loop import LoopResult, Stop
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel

# Steps between two anchors, and the share of the last steps whose average is the result.
_REFRESH, _AVERAGED = 8, 1.0 / 3.0
_MOMENTUM, _SECOND_MOMENTUM, _TINY, _LAST_RATE = 0.8, 0.999, 1e-8, 0.1
# Nats for each row that converged learning may leave, where nobody says; and how far a logarithm may go where the
# slopes do not say how it ends.
_LEFT, _FARTHEST = 5e-3, 1.0


class Estimate(NamedTuple):
    """An estimate of the log evidence and its slope.

    Attributes
    ----------
    by_kernel : Kernel
        Derivatives by the hyperparameters themselves.
    by_noise : float
        By the noise variance.
    diagnostics : dict of str to float
        For the record; ``objective`` and ``objective_se`` where they are known.
    carried : pytree of arrays
        What the next estimate is given, as solutions to start from.
    """

    by_kernel: Any
    by_noise: Any
    diagnostics: dict[str, float]
    carried: Any = ()


@runtime_checkable
class Estimator(Protocol):
    """Estimates the slope at a step; what is random is a function of the step's number."""

    def __call__(self, params: Any, anchor: Any, step: int, carried: Any, /) -> Estimate:
        """Return an estimate at ``(kernel, likelihood)``; ``anchor`` are those of a few steps before."""


class _State(NamedTuple):
    """Logarithms of kernel and noise, where they were at the last anchor, and Adam's moments.

    ``late`` and ``slope`` are the averages of logarithms and slopes over the last third of the steps, ``middle`` and
    ``mean_slope`` over all so far; ``squares`` and ``products`` are the sums of the squares of logarithms about their
    mean, and of the products of these with slopes.
    """

    logs: np.ndarray
    anchor: np.ndarray
    first: np.ndarray
    second: np.ndarray
    late: np.ndarray
    slope: np.ndarray
    middle: np.ndarray
    mean_slope: np.ndarray
    squares: np.ndarray
    products: np.ndarray
    carried: Any


def climb_evidence(
    estimate: Estimator,
    start: Params,
    run: Run,
    *,
    steps: int,
    rate: float,
    noise_floor: float,
    num_rows: int,
    tol: float | None = None,
    share: float = 1.0,
    carried: Any = (),
) -> tuple[Kernel, float, LoopResult]:
    """Climb, and return the average of the logarithms over the last third of the steps.

    The rate falls along a cosine to a tenth, and the average takes out what is left of the noise of the slopes. It has
    converged when next to nothing is left to gain, by the mean slope of that third and curvatures, see `_left`.

    Parameters
    ----------
    estimate : callable
        See `Estimator`.
    start : (Kernel, Gaussian)
        In standardised units.
    run : Run
        Its phase is called "learning".
    steps : int
    rate : float
        Of Adam at the start: about the change of a logarithm in one step.
    noise_floor : float
        Least noise variance.
    num_rows : int
        By which slopes are divided.
    tol : float, optional
        Nats for each row that may be left to gain where it has converged. None: 5e-3.
    share : float, default 1.0
        Most of what is left of the budget.
    carried : pytree of arrays
        What the first estimate is given.
    """
    logs, rebuild = _logarithms(start)
    low, high = (_logarithms(bound)[0] for bound in bounds_of(start, noise_floor))
    window = max(1, round(_AVERAGED * steps))

    def step_chunk(state: _State, first: int, count: int) -> tuple[_State, dict[str, float]]:
        for number in range(first, first + count):
            if number % _REFRESH == 0:
                state = state._replace(anchor=state.logs)
            found = estimate(rebuild(state.logs), rebuild(state.anchor), number, state.carried)
            slopes = np.append(ravel(found.by_kernel)[0], float(found.by_noise))
            # d/d log h = h d/dh
            slope = slopes * np.exp(state.logs) / num_rows
            if not np.all(np.isfinite(slope)):
                break
            state = _noted(state, slope, number)
            state = _moved(state, slope, number, _rate(rate, number, steps), (low, high))
            state = _averaged(state, slope, steps - 1 - number, window)._replace(
                carried=found.carried
            )
        now = {
            "slope": float(np.linalg.norm(slope)),
            "noise_variance": float(np.exp(state.logs[-1])),
            # what counts is the last of them
            "left": _left(state, low, high),
        }
        return state, found.diagnostics | now

    zeros = np.zeros_like(logs)
    begin = _State(logs, logs, zeros, zeros, logs, zeros, logs, zeros, zeros, zeros, carried)
    state, loop = run.steps(
        "learning", step_chunk, begin,
        max_iter=steps + 1, chunk=1, should_stop=_rule(steps, _LEFT if tol is None else tol), share=share,
        label="hyperparameters",
    )  # fmt: skip
    done = loop.num_iter
    kernel, likelihood = rebuild(state.late if done > steps - window else state.logs)
    return kernel, float(likelihood.noise_variance), loop


def _rule(steps: int, tol: float) -> Callable[..., Stop | None]:
    """Return the rule that ends the climb."""

    def ended(now: Any, history: History) -> Stop | None:
        if not np.isfinite(now["slope"]):
            return Stop("the slope of the log evidence is not finite", converged=False)
        if history.steps[-1] < steps:
            return None
        left, converged = now["left"], now["left"] <= tol
        said = f"{steps} steps of learning left about {left:.2g} nats for each row to gain"
        return Stop(f"converged: {said}" if converged else f"{said} > {tol:.2g}", converged)

    return ended


def _noted(state: _State, slope: np.ndarray, number: int) -> _State:
    """Return the state with one more slope in its moments, those of where it was taken."""
    away, share = state.logs - state.middle, 1.0 / (number + 1.0)
    middle = state.middle + share * away
    mean_slope = state.mean_slope + share * (slope - state.mean_slope)
    return state._replace(
        middle=middle,
        mean_slope=mean_slope,
        squares=state.squares + away * (state.logs - middle),
        products=state.products + away * (slope - mean_slope),
    )


def _left(state: _State, low: np.ndarray, high: np.ndarray) -> float:
    """Return about how many nats for each row are left to gain.

    Newton's decrement ``g^2 / (2 c)`` of each logarithm, with the mean slope g of the last third of the steps and the
    curvature c by regression of all slopes on where they were taken: Adam moves every logarithm, whatever its slope.
    The noise of g adds to it. Where slopes do not fall, as of an input that goes out of the model, it is what the slope
    is worth over a factor of e.
    """
    outward = ((state.late <= low) & (state.slope < 0.0)) | (
        (state.late >= high) & (state.slope > 0.0)
    )
    g = np.where(outward, 0.0, np.abs(state.slope))
    curvature = np.maximum(-state.products, 0.0) / np.maximum(state.squares, np.finfo(float).tiny)
    way = g / np.maximum(2.0 * curvature, g / _FARTHEST + np.finfo(float).tiny)
    return float(g @ way)


def _moved(
    state: _State, slope: np.ndarray, number: int, rate: float, bounds: tuple[np.ndarray, ...]
) -> _State:
    """Return the state after a step of Adam (Kingma and Ba 2015, algorithm 1), upwards and inside the bounds."""
    first = _MOMENTUM * state.first + (1.0 - _MOMENTUM) * slope
    second = _SECOND_MOMENTUM * state.second + (1.0 - _SECOND_MOMENTUM) * slope**2
    done = number + 1
    mean, square = first / (1.0 - _MOMENTUM**done), second / (1.0 - _SECOND_MOMENTUM**done)
    logs = np.clip(state.logs + rate * mean / (np.sqrt(square) + _TINY), *bounds)
    return state._replace(logs=logs, first=first, second=second)


def _rate(rate: float, number: int, steps: int) -> float:
    """Return the rate of a step, on a cosine."""
    falling = 0.5 * (1.0 + np.cos(np.pi * min(number, steps) / steps))
    return float(rate * ((1.0 - _LAST_RATE) * falling + _LAST_RATE))


def _averaged(state: _State, slope: np.ndarray, left: int, window: int) -> _State:
    """Return the state with its averages; ``left`` steps follow."""

    def mean(before: np.ndarray, value: np.ndarray, first: int) -> np.ndarray:
        return before + (value - before) / (first - left)

    if left >= window:
        return state
    late = mean(state.late, state.logs, window)
    return state._replace(late=late, slope=mean(state.slope, slope, window))


def _logarithms(params: Any) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
    """Return the logarithms of positive numbers as a vector, and the way back."""
    flat, rebuild = ravel(params)
    return np.log(flat), lambda logs: rebuild(np.exp(logs))
