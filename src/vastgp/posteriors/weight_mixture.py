"""Posterior of a function in a fixed basis: one normal of the weights, or a mixture of one for each draw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import eigh
from scipy.special import logsumexp

from vastgp.objectives.reweighted_evidence import EvidenceData
from vastgp.objectives.sufficient_statistics import feature_matrix
from vastgp.objectives.weight_priors import WeightPrior

# Rows whose features are made at a time.
_TILE = 4096
# Covariances of components are kept while they hold no more numbers than this: 512 MB.
_MOST_KEPT = 1 << 26


class WeightMixture:
    """The function ``phi(x)^T w``, ``w`` from the mixture of ``N(mean_t, covariance_t)`` over draws t.

    A draw is one of the hyperparameters. Mean and variance of a mixture need its first two moments alone,
    ``E[mean_t]`` and ``E[covariance_t] + Cov[mean_t]``: one matrix whatever the number of draws. Densities and samples
    use the components.

    Parameters
    ----------
    basis : basis
    prior : WeightPrior
    data : EvidenceData
        What the components are made of.
    theta : ndarray of shape (T, D)
        Hyperparameters of the components, one for a fit of type II.
    prior_mean : ndarray of shape (m,)
        Of the weights.
    moments : (ndarray of shape (m,), ndarray of shape (m, k)), optional
        Mean and a factor of the covariance of the mixture, where they are known.
    coordinates : ndarray of shape (T, rank), optional
        ``U^T z`` of the latent values of every component, where each has its own.
    """

    def __init__(
        self,
        basis: Any,
        prior: WeightPrior,
        data: EvidenceData,
        theta: np.ndarray,
        prior_mean: np.ndarray,
        moments: tuple[np.ndarray, np.ndarray] | None = None,
        coordinates: np.ndarray | None = None,
    ) -> None:
        self.basis, self.prior, self.data = basis, prior, data
        self.coordinates = coordinates
        self.theta, self.prior_mean = theta, prior_mean
        self._kept: list[tuple[np.ndarray, np.ndarray] | None] = [None] * len(theta)
        self.mean_weights, self.factor = moments or self._moments()

    @property
    def num_components(self) -> int:
        """Number of draws T."""
        return len(self.theta)

    @property
    def noise_variances(self) -> np.ndarray:
        """Noise variance of every component, shape (T,)."""
        return np.exp(self.theta[:, 0])

    def component(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the weights given one draw of the hyperparameters."""
        found = self._kept[number]
        if found is None:
            mean, covariance = self.prior.weights(self._data_of(number), self.theta[number])
            found = (mean + self.prior_mean, covariance)
            if covariance.size * self.num_components <= _MOST_KEPT:
                self._kept[number] = found
        return found

    def _data_of(self, number: int) -> EvidenceData:
        if self.coordinates is None:
            return self.data
        q = self.coordinates[number]
        # weights do not depend on what no weights explain
        target = np.asarray(self.data.factor) @ q
        return replace(self.data, projected=q, target=target)

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        means, total = [], np.zeros(())
        for number in range(self.num_components):
            mean, covariance = self.component(number)
            means.append(mean)
            total = total + covariance / self.num_components
        every = np.stack(means)
        centre = every.mean(axis=0)
        if self.num_components > 1:
            deviations = every - centre
            total = total + deviations.T @ deviations / self.num_components
        return centre, _root(np.asarray(total))

    # ------------------------------------------------------------ predictions

    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior mean of the function at the rows of ``X``."""
        return np.concatenate([phi @ self.mean_weights for phi in self._features(X)])

    def mean_and_latent_variance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior mean and variance of the function at the rows of ``X``."""
        parts = [
            (phi @ self.mean_weights, np.sum((phi @ self.factor) ** 2, axis=1))
            for phi in self._features(X)
        ]
        means, variances = zip(*parts, strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the log density of observations: that of the mixture, ``log mean_t N(y; mean_t, variance_t)``."""
        found, start = [], 0
        for phi in self._features(X):
            target = y[start : start + len(phi)]
            start += len(phi)
            logs = np.empty((self.num_components, len(phi)))
            for number, noise in enumerate(self.noise_variances):
                mean, covariance = self.component(number)
                latent = np.maximum(np.einsum("ij,ij->i", phi @ covariance, phi), 0.0)
                variance = latent + noise
                logs[number] = -0.5 * (
                    (target - phi @ mean) ** 2 / variance + np.log(2.0 * np.pi * variance)
                )
            found.append(logsumexp(logs, axis=0) - np.log(self.num_components))
        return np.concatenate(found)

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function, shape (n, num_samples), each from a component drawn at random."""
        generator = np.random.default_rng(seed)
        weights = np.empty((len(self.mean_weights), num_samples))
        if self.num_components == 1:
            normals = generator.standard_normal((self.factor.shape[1], num_samples))
            weights[:] = self.mean_weights[:, None] + self.factor @ normals
        else:
            which = generator.integers(self.num_components, size=num_samples)
            for number in np.unique(which):
                mean, covariance = self.component(int(number))
                root = _root(covariance)
                chosen = np.flatnonzero(which == number)
                normals = generator.standard_normal((root.shape[1], len(chosen)))
                weights[:, chosen] = mean[:, None] + root @ normals
        return np.concatenate([phi @ weights for phi in self._features(X)])

    def _features(self, X: np.ndarray) -> Any:
        """Yield features of tiles of rows, float64; tiles have few sizes, so that few programs are compiled."""
        for start in range(0, max(len(X), 1), _TILE):
            tile = X[start : start + _TILE]
            size = min(_TILE, 1 << max(len(tile) - 1, 1).bit_length())
            padded = np.pad(tile, ((0, size - len(tile)), (0, 0)), mode="edge")
            basis = jax.tree.map(lambda leaf: _as(leaf, X.dtype), self.basis)
            phi = np.asarray(feature_matrix(basis, jnp.asarray(padded)), dtype=np.float64)
            yield phi[: len(tile)]


def _as(leaf: Any, dtype: Any) -> Any:
    floating = hasattr(leaf, "dtype") and np.issubdtype(leaf.dtype, np.floating)
    return jnp.asarray(leaf, dtype) if floating else leaf


def _root(covariance: np.ndarray) -> np.ndarray:
    """Return ``F`` with ``F F^T`` the covariance; directions of no variance are left out."""
    values, vectors = eigh(0.5 * (covariance + covariance.T), driver="evd")
    kept = values > 1e-15 * max(float(values[-1]), np.finfo(float).tiny)
    return np.ascontiguousarray(vectors[:, kept] * np.sqrt(values[kept]))
