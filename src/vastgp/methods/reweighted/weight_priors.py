"""Priors of the weights of a fixed basis, their hyperparameters, and the hyper-priors on these.

Hyperparameters are one vector ``theta`` whose entries have independent normal hyper-priors: logarithms of positive
numbers (log-normal hyper-priors: the normal density of the logarithm holds the Jacobian) and mirrors, which have
standard normals. Entry 0 is the logarithm of the noise variance (section 5.2.4). Units are standardised.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.kernels import Kernel
from vastgp.methods.reweighted.evidence import (
    EvidenceData,
    diagonal_evidence,
    orthogonal_evidence,
    reflect,
    spectral_evidence,
)
from vastgp.methods.reweighted.weight_posteriors import (
    diagonal_weights,
    orthonormal_weights,
)

# Largest noise variance of a search, for a target of unit variance.
_MOST_NOISE = 10.0
_HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)


def log_normal(mode: Any, variance: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the logarithm of a log-normal variable, from its mode and variance.

    With ``x = exp(s^2)`` mode and variance are ``exp(mu) / x`` and ``(x - 1) x exp(2 mu)``: ``x^4 - x^3 = variance /
    mode^2``, whose root above 1 is found by Newton steps from above.

    Parameters
    ----------
    mode, variance : float or ndarray
        Positive.
    """
    mode = np.asarray(mode, dtype=np.float64)
    ratio = np.asarray(variance, dtype=np.float64) / mode**2
    x = 1.0 + np.minimum(ratio, ratio**0.25)
    for _ in range(60):
        x = x - (x**4 - x**3 - ratio) / (4.0 * x**3 - 3.0 * x**2)
    # near 1 the difference from it is what counts: (x - 1) x^3 = ratio
    squared = np.log1p(ratio / x**3)
    return np.asarray(np.log(mode) + squared), np.asarray(np.sqrt(squared))


class OnData(NamedTuple):
    """Prior covariance ``E diag(variances) E^T`` of the coordinates ``U^T f``, ``U`` the left singular vectors.

    Attributes
    ----------
    variances : Array of shape (rank,)
    into, back : callable
        ``E^T v`` and ``E v`` of a vector.
    """

    variances: Any
    into: Callable[[Array], Array]
    back: Callable[[Array], Array]


def turned_by(covariance: Float[Array, "k k"]) -> OnData:
    """Return what a covariance matrix of the coordinates says, in O(rank^3)."""
    variances, E = jnp.linalg.eigh(0.5 * (covariance + covariance.T))
    return OnData(jnp.maximum(variances, 0.0), lambda v: E.T @ v, lambda v: E @ v)


def _as_they_are(variances: Array) -> OnData:
    return OnData(variances, lambda v: v, lambda v: v)


class WeightPrior(eqx.Module):
    """A family of priors ``w ~ N(0, C(theta))`` of the weights.

    Attributes
    ----------
    centre, spread : ndarray of shape (D,)
        Means and standard deviations of the hyper-prior of ``theta``.
    """

    centre: Any
    spread: Any

    @property
    def size(self) -> int:
        """Number of hyperparameters."""
        return int(self.centre.shape[0])

    @property
    def factorises(self) -> bool:
        """Whether an evaluation factorises a matrix; chains then run one by one and not as one batch."""
        return True

    def work(self, data: EvidenceData) -> float:
        """Return about how many floating-point operations a value and its gradient take."""
        m, k = data.num_basis, data.rank
        return 4.0 * k * k * m if data.low_rank else 3.0 * m**3

    @abc.abstractmethod
    def log_evidence(self, data: EvidenceData, theta: Float[Array, " D"]) -> Float[Array, ""]:
        """Return ``log p(y | theta)``."""

    @abc.abstractmethod
    def on_data(self, data: EvidenceData, theta: Float[Array, " D"]) -> OnData:
        """Return the prior of the function at the rows: that of its coordinates in the left singular vectors."""

    @abc.abstractmethod
    def weights(self, data: EvidenceData, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior mean of the weights given ``theta``, and the covariance of their coordinates.

        Both on the host. Coordinates are the weights themselves unless there is a `lift`.
        """

    @property
    def lift(self) -> np.ndarray | None:
        """``B`` with the weights ``w = B v`` of coordinates ``v``; None where these are the weights themselves."""
        return None

    @abc.abstractmethod
    def named(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Return hyperparameters by name from vectors of shape (..., D), positive ones as they are."""

    def units(self, x_scale: np.ndarray, y_scale: float) -> dict[str, Any]:
        """Return what `named` ones are multiplied by in the units of inputs and target; others have no unit."""
        return {"noise_variance": y_scale**2}

    def log_hyper_prior(self, theta: Float[Array, " D"]) -> Float[Array, ""]:
        """Return the log density of ``theta``."""
        scaled = (theta - jnp.asarray(self.centre)) / jnp.asarray(self.spread)
        constant = jnp.sum(jnp.log(jnp.asarray(self.spread))) + self.size * _HALF_LOG_2PI
        return -0.5 * jnp.sum(scaled**2) - constant

    def start(self) -> np.ndarray:
        """Return where the hyper-prior of the positive numbers, and not of their logarithms, is highest."""
        centre = np.array(self.centre)
        positive = self.positive
        centre[positive] -= np.asarray(self.spread)[positive] ** 2
        return centre

    @property
    def positive(self) -> np.ndarray:
        """Which entries are logarithms, shape (D,)."""
        return np.ones(self.size, dtype=bool)

    def scale(self, data: EvidenceData) -> np.ndarray:
        """Return roughly how far entries of ``theta`` may move given the data: where adaptation begins."""
        precision_of_noise = 1.0 / self.spread[0] ** 2 + 0.5 * float(data.num_rows)
        return np.concatenate([[precision_of_noise**-0.5], self.spread[1:]])

    def bounds(self, noise_floor: float) -> tuple[np.ndarray, np.ndarray]:
        """Return least and largest ``theta`` of a search: out of the way of what data determine, and finite."""
        room = np.where(self.positive, 14.0, 10.0)
        lower, upper = np.asarray(self.centre) - room, np.asarray(self.centre) + room
        lower[0], upper[0] = np.log(noise_floor), np.log(max(_MOST_NOISE, 2.0 * noise_floor))
        return lower, upper

    def kernel_at(self, theta: np.ndarray) -> Kernel | None:
        """Return the kernel at these hyperparameters, for priors that have one."""
        return None


class DiagonalPrior(WeightPrior):
    """``C = diag(gamma)``, one variance for each weight or for each group of them; O(m^3).

    Attributes
    ----------
    groups : ndarray of int, shape (m,)
        Which variance a weight has.
    """

    groups: Any

    @classmethod
    def make(
        cls,
        num_basis: int,
        noise: float,
        *,
        noise_variance: float = 0.04,
        mode: float = 1.0,
        variance: float = 100.0,
        groups: np.ndarray | None = None,
    ) -> DiagonalPrior:
        """Return the prior whose log-normal hyper-priors have these modes and variances (section 5.4.2)."""
        groups = np.arange(num_basis) if groups is None else np.asarray(groups)
        centre, spread = _noise_and(noise, noise_variance, mode, variance, int(groups.max()) + 1)
        return cls(centre, spread, groups)

    def log_evidence(self, data: EvidenceData, theta: Float[Array, " D"]) -> Float[Array, ""]:
        return diagonal_evidence(data, theta[1:][jnp.asarray(self.groups)], theta[0])

    def on_data(self, data: EvidenceData, theta: Float[Array, " D"]) -> OnData:
        half = data.factor * jnp.exp(0.5 * theta[1:][jnp.asarray(self.groups)])[:, None]
        return turned_by(half.T @ half)

    def weights(self, data: EvidenceData, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return diagonal_weights(data, theta[1:][np.asarray(self.groups)], theta[0])

    def named(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "noise_variance": np.exp(theta[..., 0]),
            "weight_variances": np.exp(theta[..., 1:]),
        }


class _PriorOnData(WeightPrior):
    """A prior of functions that were made orthogonal on the data: no matrix is factorised."""

    @property
    def factorises(self) -> bool:
        return False

    def work(self, data: EvidenceData) -> float:
        return 50.0 * self.size


class OrthogonalPrior(_PriorOnData):
    """Independent weights of the functions that are orthogonal on the data; O(m).

    Variance ``s_i^2 g_i`` of the weight of an orthonormal function, ``s_i`` its singular value: with ``g = 1`` that is
    the prior of the basis itself. Weights of what is orthogonal to the data keep that prior.
    """

    @classmethod
    def make(
        cls,
        rank: int,
        noise: float,
        *,
        noise_variance: float = 0.04,
        mode: float = 1.0,
        variance: float = 100.0,
    ) -> OrthogonalPrior:
        """Return the prior whose log-normal hyper-priors have these modes and variances."""
        return cls(*_noise_and(noise, noise_variance, mode, variance, rank))

    def log_evidence(self, data: EvidenceData, theta: Float[Array, " D"]) -> Float[Array, ""]:
        return orthogonal_evidence(data, theta[1:], theta[0])

    def on_data(self, data: EvidenceData, theta: Float[Array, " D"]) -> OnData:
        return _as_they_are(data.values**2 * jnp.exp(theta[1:]))

    def weights(self, data: EvidenceData, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return orthonormal_weights(data, theta[1:], theta[0], np.zeros((0, data.rank)))

    def named(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "noise_variance": np.exp(theta[..., 0]),
            "relative_variances": np.exp(theta[..., 1:]),
        }


class ScalePrior(_PriorOnData):
    """``C = g I``: the basis's own prior up to one amplitude; O(m)."""

    @classmethod
    def make(
        cls, noise: float, *, noise_variance: float = 0.04, variance: float = 4.0
    ) -> ScalePrior:
        """Return the prior whose log-normal hyper-priors have these modes and variances."""
        return cls(*_noise_and(noise, noise_variance, 1.0, variance, 1))

    def log_evidence(self, data: EvidenceData, theta: Float[Array, " D"]) -> Float[Array, ""]:
        return orthogonal_evidence(data, jnp.broadcast_to(theta[1], (data.rank,)), theta[0])

    def on_data(self, data: EvidenceData, theta: Float[Array, " D"]) -> OnData:
        return _as_they_are(data.values**2 * jnp.exp(theta[1]))

    def weights(self, data: EvidenceData, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mirrors = np.zeros((0, data.rank))
        scales = np.full(data.rank, theta[1])
        return orthonormal_weights(data, scales, theta[0], mirrors, outside=float(np.exp(theta[1])))

    def named(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        return {"noise_variance": np.exp(theta[..., 0]), "relative_variance": np.exp(theta[..., 1])}


class SpectralPrior(_PriorOnData):
    """Any covariance of the orthogonal functions' weights: variances, turned by Householder reflections; O(h m).

    Attributes
    ----------
    num_reflections : int
        ``h``. All ``h = rank`` reach every covariance, in O(m^2).
    """

    num_reflections: int = eqx.field(static=True)

    @classmethod
    def make(
        cls,
        rank: int,
        noise: float,
        num_reflections: int,
        *,
        noise_variance: float = 0.04,
        mode: float = 1.0,
        variance: float = 100.0,
    ) -> SpectralPrior:
        """Return the prior with log-normal variances and mirrors that face any way with equal probability."""
        centre, spread = _noise_and(noise, noise_variance, mode, variance, rank)
        count = num_reflections * rank
        centre = np.concatenate([centre, np.zeros(count)])
        return cls(centre, np.concatenate([spread, np.ones(count)]), num_reflections)

    def _split(self, theta: Any) -> tuple[Any, Any]:
        rank = (self.size - 1) // (1 + self.num_reflections)
        mirrors = theta[..., 1 + rank :]
        return theta[..., 1 : 1 + rank], mirrors.reshape(
            *theta.shape[:-1], self.num_reflections, rank
        )

    def log_evidence(self, data: EvidenceData, theta: Float[Array, " D"]) -> Float[Array, ""]:
        scales, mirrors = self._split(theta)
        return spectral_evidence(data, mirrors, scales, theta[0])

    def on_data(self, data: EvidenceData, theta: Float[Array, " D"]) -> OnData:
        scales, mirrors = self._split(theta)
        variances = data.values**2 * jnp.exp(scales)
        return OnData(variances, lambda v: reflect(mirrors, v), lambda v: reflect(mirrors[::-1], v))

    def weights(self, data: EvidenceData, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scales, mirrors = self._split(theta)
        return orthonormal_weights(data, scales, theta[0], mirrors)

    def named(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        scales, mirrors = self._split(theta)
        return {
            "noise_variance": np.exp(theta[..., 0]),
            "relative_variances": np.exp(scales),
            "reflections": mirrors,
        }

    @property
    def positive(self) -> np.ndarray:
        mirrors = self.num_reflections * ((self.size - 1) // (1 + self.num_reflections))
        return np.arange(self.size) < self.size - mirrors

    def start(self) -> np.ndarray:
        """Return the mode, with mirrors in pairs that undo each other."""
        theta = super().start()
        rank = (self.size - 1) // (1 + self.num_reflections)
        pairs = -(-self.num_reflections // 2)
        mirrors = np.random.default_rng(0).standard_normal((pairs, rank)).repeat(2, axis=0)
        theta[1 + rank :] = mirrors[: self.num_reflections].ravel()
        return theta


def _noise_and(
    noise: float, noise_variance: float, mode: float, variance: float, count: int
) -> tuple[np.ndarray, np.ndarray]:
    noise_centre, noise_spread = log_normal(noise, noise_variance)
    centre, spread = log_normal(mode, variance)
    return (
        np.concatenate([[noise_centre], np.full(count, centre)]),
        np.concatenate([[noise_spread], np.full(count, spread)]),
    )
