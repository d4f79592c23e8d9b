"""Damped updates of sites: natural-gradient steps toward better ones, how long they are, and why they end.

Sites, as natural parameters, move to ``(1 - rate) old + rate better``: a natural-gradient step of length ``rate`` on
the lower bound of the evidence (Khan and Lin 2017; eqs. (18), (22) and (23) of t-SVGP, Adam et al. 2021), where
``better`` are the sites that the bound's derivatives ask for at the old ones. With rate one these are Newton's steps.
A step that does not raise the bound is not taken, and the next one is half as long. Near the maximum whole steps gain
a share each of what the one before did, which tells what all those to come would gain: that ends them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from vastgp._programs import program
from vastgp.fitting.loop import Stop

# Steps shorter than this are not tried: as the direction is one of ascent, what remains is rounding. A Fisher step of a
# count ten thousand times its rate asks for a thousandth.
_LEAST_RATE = 2.0**-10
# How much longer a step is after one that was good. Doubled at once, every second step from a far start is too long
# again: sites of 2000 labels under a process of large variance took 18 passes over all rows, and 13 so.
_GROWTH = 2.0**0.5
# A step that gains less than this share of the least is the last one, whatever the one before gained: that is rounding.
_ROUNDING = 1e-3
# Share that is at least expected: the first steps of a long way gain thousands of times as much as the next.
_LEAST_SHARE = 0.1

GOES_ON, SETTLED, STUCK = 0, 1, 2


def toward(sites: Any, better: Any, rate: Any) -> Any:
    """Return ``(1 - rate) sites + rate better`` of every array."""
    return jax.tree.map(lambda a, b: (1.0 - rate) * a + rate * b, sites, better)


_compiled_toward = program(toward)


def _moved(sites: Any, better: Any, rate: float) -> Any:
    """Do `toward` in one program where arrays are JAX's, and in NumPy otherwise."""
    compiled = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves((sites, better)))
    return (_compiled_toward if compiled else toward)(sites, better, rate)


def next_rate(
    rate: Any, good: Any, most: Any, *, least: float = 0.0, growth: float = _GROWTH, where: Any = np
) -> Any:
    """Return the length of the next step: longer after one that was good, half as long after one that was not."""
    return where.where(good, where.minimum(most, growth * rate), where.maximum(least, 0.5 * rate))


class Found(NamedTuple):
    """Sites, the bound there, and the sites that its derivatives ask for.

    Attributes
    ----------
    sites, better : pytree of arrays
    bound : float
    """

    sites: Any
    bound: Any
    better: Any


class Ascent(NamedTuple):
    """All that decides the next step.

    Attributes
    ----------
    found : Found, or what has its attributes
        The best so far.
    rate : float
        Length of the next step.
    shortened : int
        Steps that were not taken.
    end : int
        `GOES_ON`, `SETTLED` (converged) or `STUCK` (no step raises the bound, or none leaves it finite).
    gain : float
        Of the last step, where that was a whole one; NaN elsewhere.
    """

    found: Any
    rate: Any
    shortened: Any
    end: Any
    gain: Any


class DampedUpdates:
    """Steps that raise the bound until a whole one would gain next to nothing.

    Parameters
    ----------
    evaluate : callable
        ``evaluate(sites) -> Found``, or what has its attributes.
    most : float
        Length of a step at most.
    least_gain : float
        What is left to gain at a maximum, in nats, where whole steps gain a share each of what the one before did;
        else what one of length ``most`` gains, and shorter ones as much less as they are shorter.
    prepare : callable, optional
        ``prepare(found) -> found`` of what a step is to start from, where ``better`` costs more than the bound.
    """

    def __init__(
        self,
        evaluate: Callable[[Any], Any],
        *,
        most: float,
        least_gain: float,
        prepare: Callable[[Any], Any] = lambda found: found,
    ) -> None:
        self._evaluate, self._prepare = evaluate, prepare
        self._most, self._least_gain = most, least_gain

    def start(self, sites: Any) -> Ascent:
        """Return the state at given sites."""
        found = self._prepare(self._evaluate(sites))
        return Ascent(
            found, np.float64(self._most), np.int64(0), np.int64(GOES_ON), np.float64(np.nan)
        )  # fmt: skip

    def step(self, state: Ascent) -> Ascent:
        """Try one step: take it, or make the next one shorter."""
        here, rate = state.found, float(state.rate)
        trial = self._evaluate(_moved(here.sites, here.better, rate))
        before, after = float(here.bound), float(trial.bound)
        gain = after - before if np.isfinite(before) else np.inf
        # NaN is no gain
        good = bool(np.isfinite(after) and gain >= 0.0)
        settled = bool(np.isfinite(after) and self._is_near(gain, rate, float(state.gain)))
        following = float(next_rate(rate, good, self._most))
        end = SETTLED if settled else STUCK if following < _LEAST_RATE else GOES_ON
        if good:
            here = trial if end else self._prepare(trial)
        whole = gain if good and rate == self._most else np.nan
        return Ascent(
            here, np.float64(following), state.shortened + int(not good), np.int64(end), np.float64(whole)
        )  # fmt: skip

    def _is_near(self, gain: float, rate: float, before: float) -> bool:
        """Return whether next to nothing is left after a step that gained so much, and the whole one before it."""
        least, share = self._least_gain, gain / before if before > 0.0 else np.nan
        if rate < self._most or not 0.0 < share < 1.0 or gain <= _ROUNDING * least:
            return abs(gain) <= least * rate / self._most
        # gains of a geometric series: share + share^2 + ... of this one
        share = max(share, _LEAST_SHARE)
        return gain * share <= least * (1.0 - share)

    def run(self, state: Ascent, max_steps: int) -> Ascent:
        """Do steps until they end, ``max_steps`` at most."""
        for _ in range(max_steps):
            state = self.step(state)
            if state.end:
                break
        return state


def decide(end: float, bound: float) -> Stop | None:
    """Return why updates ended, None while they go on."""
    if end == SETTLED:
        return Stop("the sites settled: a whole step gains less than tol", converged=True)
    if end == STUCK and np.isfinite(bound):
        return Stop("no step of the sites raises the bound, however short it is", converged=False)
    if end == STUCK:
        return Stop(
            f"the bound of the evidence is {bound:g}, however short a step of the sites is: check the targets for "
            "extreme values, or start from a kernel of smaller variance",
            converged=False,
        )
    return None
