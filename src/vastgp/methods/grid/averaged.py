"""Posteriors of a grid at several hyperparameters, averaged over: a mixture, and its moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.data.archive import above, below
from vastgp.kernels import GridKernel
from vastgp.methods.grid.posterior import GridPosterior
from vastgp.methods.grid.solver import GridSolver

# Numbers in eigenvectors of all parts that are kept from one prediction to the next.
_MOST_KEPT = 1 << 26
# What the parts of a file have each their own of; the rest is the first one's.
_OWN = ("kernel", "noise_variance")
_SHARED_ARRAYS = ("observed", "excess")


@dataclass
class AveragedGridPosterior:
    """The mixture ``sum_k w_k p_k(f)`` of posteriors on one grid, each with its kernel and noise variance.

    Attributes
    ----------
    parts : tuple of GridPosterior
        Of one solver, in the same standardised values.
    mixture : ndarray of shape (K,)
        Their weights; they sum to one.
    """

    parts: tuple[GridPosterior, ...]
    mixture: np.ndarray

    @property
    def kernel(self) -> GridKernel:
        """The kernel of the part of most weight."""
        return self.parts[int(np.argmax(self.mixture))].kernel

    @property
    def solver(self) -> GridSolver:
        """How systems are solved, by all parts."""
        return self.parts[0].solver

    @property
    def noise_variance(self) -> float:
        """The noise variance, averaged: a new observation's variance is the function's and this."""
        return float(self.mixture @ [part.noise_variance for part in self.parts])

    def mean(self, points: Sequence[np.ndarray], scattered: bool = False) -> np.ndarray:
        """Return the mean, as `GridPosterior.mean` does."""
        total = 0.0
        for weight, part in zip(self.mixture, self.parts, strict=True):
            total = total + weight * part.mean(points, scattered)
            self._forget(part)
        return np.asarray(total)

    def mean_and_variance(
        self, points: Sequence[np.ndarray], how: Any = "auto", scattered: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the function: ``sum_k w_k (v_k + (m_k - m)^2)``, where parts differ it grows."""
        mean, variance, total = np.zeros(()), np.zeros(()), 0.0
        # part by part: all of them together are many times the field
        for weight, part in zip(self.mixture, self.parts, strict=True):
            of_part, spread = part.mean_and_variance(points, how, scattered)
            self._forget(part)
            total += weight
            # with m_k' the mean of the first k: sum_i w_i (m_i - m_k')^2 grows by w_k (m_k - m_k-1') (m_k - m_k')
            away = of_part - mean
            mean = mean + (weight / total) * away
            variance = variance + weight * (spread + away * (of_part - mean))
        return mean, variance

    def _forget(self, part: GridPosterior) -> None:
        """Let go of what a part can compute again, where all parts together would hold too much of it."""
        if len(self.parts) * sum(len(axis) ** 2 for axis in part.axes) > _MOST_KEPT:
            part.forget()

    # ------------------------------------------------------------ files

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the mixture as JSON-able data and arrays; grid and solver once."""
        state, arrays = self.parts[0].to_state()
        state["parts"], arrays["mixture"] = [], self.mixture
        for number, part in enumerate(self.parts[1:], 1):
            described, own = part.to_state()
            state["parts"].append({name: described[name] for name in _OWN})
            arrays |= above(f"{number}/", {n: a for n, a in own.items() if not _is_shared(n)})
        return state, arrays

    @classmethod
    def from_state(
        cls, state: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> AveragedGridPosterior:
        """Return the mixture that `to_state` wrote."""
        first = GridPosterior.from_state(state, arrays)
        shared = {name: array for name, array in arrays.items() if _is_shared(name)}
        parts = [first]
        for number, own in enumerate(state["parts"], 1):
            part = GridPosterior.from_state(state | own, shared | below(f"{number}/", arrays))
            part.solver = first.solver
            parts.append(part)
        return cls(tuple(parts), arrays["mixture"])


def _is_shared(name: str) -> bool:
    return name in _SHARED_ARRAYS or name.startswith("axis.")


def posterior_from_state(
    state: dict[str, Any], arrays: dict[str, np.ndarray]
) -> GridPosterior | AveragedGridPosterior:
    """Return the posterior of a file, of one kernel or of several."""
    kind = AveragedGridPosterior if "parts" in state else GridPosterior
    return kind.from_state(state, arrays)
