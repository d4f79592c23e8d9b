"""The posteriors of several functions with Gaussian sites in the place of a likelihood, each an exact one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.data.archive import above, below
from vastgp.fitting.dual_evidence import DualPosterior
from vastgp.kernels import Kernel
from vastgp.kernels.matrices import covariance
from vastgp.linalg.cholesky import factorize
from vastgp.solvers.exact_posterior import ExactPosterior

# Sites of less precision say nothing; beside this one the prior's variance keeps ten digits.
_LEAST_PRECISION = 1e-6


@dataclass(frozen=True)
class SeveralExact:
    """Posteriors of one or more functions with Gaussian sites in the place of a likelihood.

    A site ``exp(linear f - 1/2 precision f^2)`` is an observation ``linear / precision`` with noise of variance
    ``1 / precision`` (Chang et al. 2020).

    Attributes
    ----------
    parts : tuple of ExactPosterior
        Of each function; with one alone, values have no axis of functions.
    """

    parts: tuple[ExactPosterior, ...]

    @classmethod
    def of_sites(cls, kernel: Kernel, found: DualPosterior, X: Any) -> SeveralExact:
        """Return the posteriors at the rows ``X`` of the sites."""
        X = np.ascontiguousarray(X, dtype=np.float64)
        sites = found.sites.at_least(_LEAST_PRECISION, found.mean)
        K = covariance(kernel, X, X)
        parts = []
        for linear, precision in zip(*map(np.atleast_2d, sites), strict=True):
            # adding a diagonal of up to 1e6: ten digits are left to K
            factor = factorize(
                K + np.diag(1.0 / precision), 0.0, what="the covariance of the sites"
            )
            weights = factor.solve(linear / precision)
            # as targets with known errors
            y = np.column_stack([linear / precision, np.ones(len(X)), 1.0 / precision])
            parts.append(ExactPosterior(kernel, 0.0, X, weights, factor, y))
        return cls(tuple(parts))

    def mean(self, X: Any) -> np.ndarray:
        """Return posterior means at each row of ``X``: (n,), or (C, n)."""
        return self._each(lambda part: part.mean(X))

    def mean_and_latent_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return means and variances of the functions at each row of ``X``."""
        moments = self._each(lambda part: np.stack(part.mean_and_latent_variance(X)))
        return moments[..., 0, :], moments[..., 1, :]

    def covariance(self, X: Any) -> np.ndarray:
        """Return the posterior covariances between the rows of ``X``: (n, n), or (C, n, n)."""
        return self._each(lambda part: part.covariance(X))

    def samples(self, X: Any, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples: (n, num_samples), or (n, C, num_samples)."""
        seeds = np.random.SeedSequence(seed).generate_state(len(self.parts))
        drawn = [
            part.samples(X, num_samples, int(of_part))
            for part, of_part in zip(self.parts, seeds, strict=True)
        ]
        return drawn[0] if len(drawn) == 1 else np.stack(drawn, axis=1)

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posteriors as JSON-able data and arrays."""
        state: dict[str, Any] = {"parts": []}
        arrays: dict[str, np.ndarray] = {}
        for number, part in enumerate(self.parts):
            described, own = part.to_state()
            state["parts"].append(described)
            arrays |= above(f"{number}/", own)
        return state, arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> SeveralExact:
        """Return the posteriors that `to_state` described."""
        return cls(
            tuple(
                ExactPosterior.from_state(part, below(f"{number}/", arrays))
                for number, part in enumerate(state["parts"])
            )
        )

    def _each(self, value: Callable[[ExactPosterior], np.ndarray]) -> np.ndarray:
        found = [value(part) for part in self.parts]
        return found[0] if len(found) == 1 else np.stack(found)
