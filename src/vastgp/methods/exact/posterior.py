"""The posterior of an exact Gaussian process with Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

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
        cross = self._cross(X)
        explained = self.factor.half_solve(cross.T)
        left = covariance(self.kernel, X, X) - explained.T @ explained
        prior = float(self.kernel.total_variance())
        root = factorize(
            left,
            _SAMPLE_JITTER * prior,
            what="the posterior covariance of the rows to sample",
        )
        normals = np.random.default_rng(seed).standard_normal((len(X), num_samples))
        return (cross @ self.weights)[:, None] + np.tril(root.lower) @ normals

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

    def _cross(self, X: Any) -> np.ndarray:
        return covariance(self.kernel, X, self.X)
