"""Random truncations of sums: Russian roulette for conjugate gradients, a single term for random features.

A sum ``sum_j t_j`` that is stopped early is biased. Stopped at a random ``J``, with every term divided by the
probability of getting so far, it is not: ``E sum_{j<=J} t_j / P(J >= j) = sum_j t_j`` (Kahn 1955); nor is one term
alone, drawn with probability ``p_J`` and divided by it (Lyne et al. 2015). Both hold whatever the terms are, if ``J``
is independent of them.

The weights stay where the terms vanish early. Leaving them off as soon as a residual has converged before the
truncation would average ``sum_j t_j`` with truncated sums that compensate for weights, and be biased: only where all
terms have ``P(J >= j) = 1``, that is where the sum ends by ``minimum``, are they one by themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Roulette(NamedTuple):
    """The law ``P(J = j) ~ exp(-t (j - minimum))`` for ``minimum <= j <= most``.

    Attributes
    ----------
    minimum, most : int
        Terms that are always kept, and all there are.
    temperature : float
        ``t``: the mean is about ``minimum + 1 / t``.
    """

    minimum: int
    most: int
    temperature: float

    @property
    def span(self) -> int:
        """Number of values that ``J`` can take."""
        return self.most - self.minimum + 1

    def survival(self, terms: Int[np.ndarray, " j"]) -> Float[np.ndarray, " j"]:
        """Return ``P(J >= j)``.

        ``(exp(-t k) - exp(-t M)) / (1 - exp(-t M))`` with ``k = j - minimum`` of ``M = span``, written so that the tail
        keeps its digits: one minus a sum of probabilities would lose them.
        """
        t, span = self.temperature, self.span
        k = np.clip(np.asarray(terms) - self.minimum, 0, span)
        return np.exp(-t * k) * np.expm1(-t * (span - k)) / np.expm1(-t * span)

    def draw(self, uniform: Float[np.ndarray, "*s"]) -> Int[np.ndarray, "*s"]:
        """Return truncations from numbers uniform on (0, 1]: the largest ``j`` with ``P(J >= j) >= u``."""
        t, span = self.temperature, self.span
        u = np.asarray(uniform, dtype=np.float64)
        k = np.floor(-np.log(u + (1.0 - u) * np.exp(-t * span)) / t)
        return self.minimum + np.clip(k, 0, span - 1).astype(np.int64)

    def mean(self) -> float:
        """Return ``E[J]``."""
        later = np.arange(self.minimum + 1, self.most + 1)
        return self.minimum + float(np.sum(self.survival(later)))

    def mean_of_later(self) -> float:
        """Return ``E[max(J, J')]`` of two independent truncations: the iterations that a run with both takes."""
        survival = self.survival(np.arange(self.minimum + 1, self.most + 1))
        return self.minimum + float(np.sum(survival * (2.0 - survival)))

    def weights(self, truncation: int) -> Float[np.ndarray, " j"]:
        """Return what each of the terms 1 to ``most`` is multiplied by."""
        return _kept(truncation, self.survival(np.arange(1, self.most + 1)))

    def weights_of_later(self, truncation: int) -> Float[np.ndarray, " j"]:
        """Return the same for the later of two truncations, which survives with ``S (2 - S)``."""
        survival = self.survival(np.arange(1, self.most + 1))
        return _kept(truncation, survival * (2.0 - survival))


def roulette(expected: int, temperature: float, most: int) -> Roulette:
    """Return the law under which a run with two truncations takes ``expected`` iterations on average.

    At least a quarter of the iterations are certain: where they are few, the temperature is raised.
    """
    most = max(most, 1)
    expected = min(expected, most)
    if expected <= 1:
        return Roulette(1, 1, temperature)
    # two exponential excesses have the maximum 1.5 / t
    temperature = max(temperature, 1.5 / (0.75 * expected))
    law = Roulette(1, most, temperature)
    for minimum in range(1, expected + 1):
        law = Roulette(minimum, most, temperature)
        if law.mean_of_later() >= expected:
            break
    return law


class SingleTerm(NamedTuple):
    """The law ``P(J) ~ J^-2`` over a list of sizes, which minimises the variance of random features (their theorem 4).

    Attributes
    ----------
    sizes : tuple of int
        The sizes that end a term of the telescoping sum, increasing.
    """

    sizes: tuple[int, ...]

    def probabilities(self) -> Float[np.ndarray, " j"]:
        """Return the probability of every size."""
        masses = np.asarray(self.sizes, dtype=np.float64) ** -2
        return masses / np.sum(masses)

    def draw(self, uniform: float) -> int:
        """Return the position of a size from a number uniform on [0, 1)."""
        ends = np.cumsum(self.probabilities())
        return int(min(np.searchsorted(ends, uniform * ends[-1], side="right"), len(ends) - 1))

    def mean(self) -> float:
        """Return the expected size."""
        return float(self.probabilities() @ np.asarray(self.sizes))


def _kept(truncation: int, survival: np.ndarray) -> np.ndarray:
    terms = np.arange(1, len(survival) + 1)
    kept = terms <= truncation
    return np.where(kept, 1.0 / np.where(kept, survival, 1.0), 0.0)
