"""The posterior of an exact Gaussian process with Gaussian noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.data.archive import above, below
from vastgp.fitting.dual_evidence import DualPosterior
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.kernels import Kernel, from_spec, to_spec
from vastgp.kernels.matrices import covariance, prior_variances
from vastgp.linalg.cholesky import Cholesky, factorize

# A joint sample factorises the covariance of its rows.
_MOST_SAMPLED_ROWS = 10_000
# Added to the diagonal of that covariance, relative to the prior variance: where the data leave nothing open, rounding
# leaves this much.
_SAMPLE_JITTER = 1e-10


@dataclass(frozen=True)
class ExactPosterior:
    """Posterior of ``f ~ GP(0, kernel)`` given ``y = f(X) + e``, ``e ~ N(0, noise_variance)``, in float64.

    All in the units of ``X`` and ``y``: standardised ones inside an estimator.

    Attributes
    ----------
    kernel : Kernel
    noise_variance : float
    X : ndarray of shape (n, d)
        Training inputs.
    weights : ndarray of shape (n,)
        ``A^-1 y`` with ``A = K + noise_variance I``.
    factor : Cholesky
        Of ``A``.
    """

    kernel: Kernel
    noise_variance: float
    X: np.ndarray
    weights: np.ndarray
    factor: Cholesky

    @classmethod
    def condition(
        cls, kernel: Kernel, noise_variance: float, X: Any, y: Any
    ) -> tuple[ExactPosterior, float]:
        """Return the posterior given data, and the log evidence.

        Raises
        ------
        FactorizationError
            When the covariance matrix cannot be factorised.
        """
        evidence = ExactEvidence(X, y)
        value, factor, weights = evidence.solve(kernel, noise_variance)
        return cls(kernel, float(noise_variance), evidence.X, weights, factor), value

    def mean(self, X: Any) -> np.ndarray:
        """Return the posterior mean at each row of ``X``."""
        return self._cross(X) @ self.weights

    def mean_and_latent_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the function at each row of ``X``.

        ``k(x, x) - k(x, X) A^-1 k(X, x)`` (Rasmussen & Williams 2006, eq. 2.26).
        """
        cross = self._cross(X)
        explained = self.factor.half_solve(cross.T)
        variance = prior_variances(self.kernel, X) - np.einsum("ij,ij->j", explained, explained)
        return cross @ self.weights, np.maximum(variance, 0.0)

    def samples(self, X: Any, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function at the rows of ``X``, shape (rows, num_samples).

        Raises
        ------
        ValueError
            When there are more rows than the dense covariance of a joint sample is made for.
        """
        if len(X) > _MOST_SAMPLED_ROWS:
            raise ValueError(
                f"X has {len(X)} rows; joint samples of an exact Gaussian process are made for at most "
                f"{_MOST_SAMPLED_ROWS}. Sample fewer rows, or use QSGPRegressor, whose samples are functions."
            )
        left = self.covariance(X)
        prior = float(self.kernel.total_variance())
        root = factorize(
            left,
            _SAMPLE_JITTER * prior,
            what="the posterior covariance of the rows to sample",
        )
        normals = np.random.default_rng(seed).standard_normal((len(X), num_samples))
        return self.mean(X)[:, None] + np.tril(root.lower) @ normals

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays.

        The factor is kept, not made again on loading: its last bits depend on machine and threads.
        """
        spec, arrays = to_spec(self.kernel)
        state = {
            "kernel": spec,
            "noise_variance": self.noise_variance,
            "jitter": self.factor.jitter,
        }
        packed = self.factor.lower[np.tril_indices(len(self.X))]
        return state, arrays | {"X": self.X, "weights": self.weights, "factor": packed}

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> ExactPosterior:
        """Return the posterior that `to_state` wrote."""
        n = len(arrays["X"])
        lower = np.zeros((n, n), order="F")
        lower[np.tril_indices(n)] = arrays["factor"]
        return cls(
            from_spec(state["kernel"], arrays),
            state["noise_variance"],
            arrays["X"],
            arrays["weights"],
            Cholesky(lower, state["jitter"]),
        )

    def covariance(self, X: Any) -> np.ndarray:
        """Return the posterior covariance of the function between the rows of ``X``."""
        explained = self.factor.half_solve(self._cross(X).T)
        return covariance(self.kernel, X, X) - explained.T @ explained

    def _cross(self, X: Any) -> np.ndarray:
        return covariance(self.kernel, X, self.X)


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
            parts.append(ExactPosterior(kernel, 0.0, X, weights, factor))
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
