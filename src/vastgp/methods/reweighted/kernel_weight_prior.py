"""The prior of weights that a kernel has, whose hyperparameters are inferred while the functions stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp._programs import program
from vastgp.kernels import Kernel
from vastgp.kernels.spectral import check_spectral_density, log_spectral_density
from vastgp.linalg.leaves import from_vector
from vastgp.methods.reweighted.evidence import (
    EvidenceData,
    covariance_evidence,
    diagonal_evidence,
)
from vastgp.methods.reweighted.weight_posteriors import covariance_weights, diagonal_weights
from vastgp.methods.reweighted.weight_priors import OnData, WeightPrior, log_normal, turned_by

# Hyper-prior variance of a kernel's hyperparameters, relative to their squared mode: within a factor of two or so.
_KERNEL_VARIANCE = 4.0
# Logarithms of a kernel's hyperparameters may move so far: a factor of about a thousand.
_KERNEL_ROOM = 7.0


class KernelPrior(WeightPrior):
    """The weights' prior is a kernel's: its hyperparameters are learned, and the functions stay.

    For waves (random Fourier features, Laplace eigenfunctions) made for a kernel ``k_1``, weights of variance
    ``s_2(omega_i) / s_1(omega_i)`` make the kernel ``k_2`` instead (Theorem 5.1): ``C`` is diagonal. For an
    interpolant between points, ``C = L^-1 K_2(Z, Z) L^-T`` (section 5.3.3). Either is O(m^3).

    Attributes
    ----------
    kernel : Kernel
        ``k_1``, for which ``C = I``.
    places : ndarray
        Frequencies of shape (m, d), or points ``Z`` of shape (m, d).
    whitening : ndarray of shape (m, m), or None
        ``L^-T`` for an interpolant; None for waves.
    """

    kernel: Kernel
    places: Any
    whitening: Any

    @classmethod
    def make(
        cls,
        kernel: Kernel,
        noise: float,
        places: np.ndarray,
        whitening: np.ndarray | None = None,
        *,
        noise_variance: float = 0.04,
    ) -> KernelPrior:
        """Return the prior whose hyper-priors have their modes at the kernel's own hyperparameters."""
        leaves = _flat_logs(kernel)
        noise_centre, noise_spread = log_normal(noise, noise_variance)
        _, spread = log_normal(1.0, _KERNEL_VARIANCE)
        centre = np.concatenate([[noise_centre], leaves + spread**2])
        spreads = np.concatenate([[noise_spread], np.full(len(leaves), spread)])
        if whitening is None:
            check_spectral_density(kernel)
        kernel = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), kernel)
        return cls(centre, spreads, kernel, places, whitening)

    def _kernel(self, theta: Any) -> Kernel:
        return from_vector(jnp.exp(theta[1:]), self.kernel)

    def _log_variances(self, theta: Any) -> Array:
        places = jnp.asarray(self.places)
        own = log_spectral_density(self.kernel, places)
        # beyond e^100 a function had no place in the first prior, and its features say nothing: more would overflow
        return jnp.minimum(log_spectral_density(self._kernel(theta), places) - own, 100.0)

    def _covariance(self, theta: Any) -> Array:
        """Return the prior covariance of the coordinates of an interpolant's weights, its values at ``Z``."""
        places = jnp.asarray(self.places)
        return self._kernel(theta)(places, places)

    def _by_values(self, data: EvidenceData) -> EvidenceData:
        """Return the data with a factor for values at ``Z`` in the place of weights, as `covariance_evidence` reads it.

        ``F^T C F = H^T K_2(Z, Z) H`` with ``H = L^-T F``, whose entries are those of interpolation weights and of
        order one, where those of ``L^-1`` may be a million: rounding errors of ``C`` would be as large as ``C``.
        """
        factor = jnp.asarray(self.whitening) @ data.factor
        return replace(data, vectors=factor, values=jnp.ones_like(data.values))

    def log_evidence(self, data: EvidenceData, theta: Float[Array, " D"]) -> Float[Array, ""]:
        if self.whitening is None:
            return diagonal_evidence(data, self._log_variances(theta), theta[0])
        return covariance_evidence(self._by_values(data), self._covariance(theta), theta[0])

    def on_data(self, data: EvidenceData, theta: Float[Array, " D"]) -> OnData:
        if self.whitening is None:
            half = data.factor * jnp.exp(0.5 * self._log_variances(theta))[:, None]
            return turned_by(half.T @ half)
        factor = self._by_values(data).factor
        return turned_by(factor.T @ self._covariance(theta) @ factor)

    def weights(self, data: EvidenceData, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with precision("float64"):
            given = np.asarray(theta)
            if self.whitening is None:
                log_variances = np.asarray(_log_variances(self, given))
                return diagonal_weights(data, log_variances, theta[0])
            covariance = np.asarray(_covariance(self, given))
            mean, left = covariance_weights(self._by_values(data), covariance, theta[0])
            return mean @ np.asarray(self.whitening), left

    @property
    def lift(self) -> np.ndarray | None:
        """``L^-1`` of an interpolant: the coordinates of its weights are its values at ``Z``."""
        return None if self.whitening is None else np.asarray(self.whitening).T

    def named(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        names = _leaf_names(self.kernel)
        found = {"noise_variance": np.exp(theta[..., 0])}
        first = 1
        for name, leaf in zip(names, jax.tree.leaves(self.kernel), strict=True):
            values = np.exp(theta[..., first : first + leaf.size])
            found[name] = values.reshape(*theta.shape[:-1], *leaf.shape)
            first += leaf.size
        return found

    def units(self, x_scale: np.ndarray, y_scale: float) -> dict[str, Any]:
        # other units multiply each hyperparameter by a number of its own, which does not depend on its value
        kernels = self.kernel, self.kernel.in_units(x_scale, y_scale)
        own, other = (map(np.asarray, jax.tree.leaves(kernel)) for kernel in kernels)
        factors = (new / old for new, old in zip(other, own, strict=True))
        of_kernel = dict(zip(_leaf_names(self.kernel), factors, strict=True))
        return super().units(x_scale, y_scale) | of_kernel

    def scale(self, data: EvidenceData) -> np.ndarray:
        rough = super().scale(data)
        return np.concatenate([rough[:1], 0.3 * rough[1:]])

    def bounds(self, noise_floor: float) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = super().bounds(noise_floor)
        own = np.asarray(self.centre)[1:] - np.asarray(self.spread)[1:] ** 2
        lower[1:], upper[1:] = own - _KERNEL_ROOM, own + _KERNEL_ROOM
        return lower, upper

    def kernel_at(self, theta: np.ndarray) -> Kernel:
        with precision("float64"):
            return jax.tree.map(np.asarray, _kernel(self, np.asarray(theta)))


# What is asked for after a fit, in one program each.
_log_variances = program(KernelPrior._log_variances, filtered=True)
_covariance = program(KernelPrior._covariance, filtered=True)
_kernel = program(KernelPrior._kernel, filtered=True)


def _flat_logs(kernel: Kernel) -> np.ndarray:
    return np.concatenate(
        [np.log(np.asarray(leaf, np.float64)).ravel() for leaf in jax.tree.leaves(kernel)]
    )


def _leaf_names(kernel: Kernel) -> list[str]:
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(kernel)]
    return [jax.tree_util.keystr(path).lstrip(".") for path in paths]
