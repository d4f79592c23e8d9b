"""Posterior of functions in a fixed basis: one normal of the weights, or a mixture of one for each draw."""

from __future__ import annotations

import abc
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from vastgp._precision import as_dtype
from vastgp.data.tiles import over_tiles
from vastgp.fitting.sufficient_statistics import feature_matrix
from vastgp.linalg.eigen import symmetric_eigen
from vastgp.methods.reweighted.beyond import Beyond
from vastgp.methods.reweighted.evidence import EvidenceData, factor_of
from vastgp.methods.reweighted.weight_priors import WeightPrior

# Rows whose features are made at a time.
_TILE = 4096
# Covariances of components are kept while they hold no more numbers than this: 512 MB.
_MOST_KEPT = 1 << 26


class ComponentMixture(abc.ABC):
    """Functions ``phi(x)^T w_c``, weights from a mixture of normals over draws of the hyperparameters.

    The C functions are independent given a draw, and share its covariance.

    Parameters
    ----------
    basis : basis
    prior : WeightPrior
    data : EvidenceData
        What the components are made of.
    theta : ndarray of shape (T, D)
        Hyperparameters of the components, one for a fit of type II.

    Attributes
    ----------
    beyond : Beyond or None
        What the functions have beside those of the basis.
    """

    beyond: Beyond | None = None
    # names in files and here of what the constructor takes after basis, prior and data; the last two are its moments
    _stored: ClassVar[dict[str, str]]

    def __init__(
        self, basis: Any, prior: WeightPrior, data: EvidenceData, theta: np.ndarray
    ) -> None:
        self.basis, self.prior, self.data, self.theta = basis, prior, data, theta
        self._kept: list[tuple[np.ndarray, np.ndarray] | None] = [None] * len(theta)

    @property
    def num_components(self) -> int:
        """Number of draws T."""
        return len(self.theta)

    @property
    def noise_variances(self) -> np.ndarray:
        """Noise variance of every component, shape (T,)."""
        return np.exp(self.theta[:, 0])

    @abc.abstractmethod
    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior mean at the rows of ``X``, (n,) or (C, n) for more than one function."""

    @abc.abstractmethod
    def mean_and_latent_variance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior mean and variance at the rows of ``X``, each (n,) or (C, n)."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return what a file needs beside basis, prior and data."""
        return {name: getattr(self, attribute) for name, attribute in self._stored.items()}

    @classmethod
    def from_arrays(
        cls, basis: Any, prior: WeightPrior, data: EvidenceData, arrays: dict[str, np.ndarray]
    ) -> Any:
        """Return the mixture that `to_arrays` is of."""
        theta, own, *moments = (arrays[name] for name in cls._stored)
        return cls(basis, prior, data, theta, own, tuple(moments))  # type: ignore[call-arg]

    @abc.abstractmethod
    def _made(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return what `component` does."""

    def component(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean of the weights, (m,) or (C, m), and the covariance of their coordinates given one draw.

        The draw is of the hyperparameters. Coordinates are the weights themselves, or those of `WeightPrior.lift`.
        """
        found = self._kept[number]
        if found is None:
            found = self._made(number)
            if found[1].size * self.num_components <= _MOST_KEPT:
                self._kept[number] = found
        return found

    def _components(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the means of all components, (T, ..., m), and the average of their covariances."""
        means, total = [], np.zeros(())
        for number in range(self.num_components):
            mean, covariance = self.component(number)
            means.append(mean)
            total = total + covariance / self.num_components
        return np.stack(means), np.asarray(total)

    def _root(self, covariance: np.ndarray) -> np.ndarray:
        """Return ``F`` with ``F F^T`` the covariance of the weights, from that of their coordinates."""
        lift, root = self.prior.lift, root_of(covariance)
        return root if lift is None else lift @ root

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the functions, each from a component drawn at random.

        Of shape (n, num_samples), or (n, C, num_samples) where there is more than one function.
        """
        generator = np.random.default_rng(seed)
        weights = self._sampled_weights(num_samples, generator)
        found = np.concatenate([phi @ weights for phi in self._features(X)], axis=1)
        if self.beyond is not None:
            found += self.beyond.samples(X, (len(found), num_samples), generator)
        return found[0] if len(found) == 1 else np.moveaxis(found, 0, 1)

    def _sampled_weights(
        self, num_samples: int, generator: np.random.Generator
    ) -> Float[np.ndarray, "C m s"]:
        which = generator.integers(self.num_components, size=num_samples)
        weights = np.empty(())
        for number in np.unique(which):
            mean, covariance = self.component(int(number))
            mean, root = np.atleast_2d(mean), self._root(covariance)
            chosen = np.flatnonzero(which == number)
            normals = generator.standard_normal((len(mean), root.shape[1], len(chosen)))
            if not weights.ndim:
                weights = np.empty((*mean.shape, num_samples))
            weights[:, :, chosen] = mean[:, :, None] + root @ normals
        return weights

    def _variances_beyond(self, X: np.ndarray) -> np.ndarray:
        return np.zeros(len(X)) if self.beyond is None else self.beyond.variances(X)

    def _features(self, X: np.ndarray) -> Any:
        """Yield features of tiles of rows, float64."""
        basis = as_dtype(self.basis, X.dtype)
        for phi in over_tiles(partial(feature_matrix, basis), X, most=_TILE):
            yield phi.astype(np.float64)


class WeightMixture(ComponentMixture):
    """The function ``phi(x)^T w``, ``w`` from the mixture of ``N(mean_t, covariance_t)`` over draws t.

    A draw is one of the hyperparameters. Mean and variance of a mixture need its first two moments alone,
    ``E[mean_t]`` and ``E[covariance_t] + Cov[mean_t]``: one matrix whatever the number of draws. Densities and samples
    use the components.

    Parameters
    ----------
    basis, prior, data, theta
        See `ComponentMixture`.
    prior_mean : ndarray of shape (m,)
        Of the weights.
    moments : (ndarray of shape (m,), ndarray of shape (m, k)), optional
        Mean and a factor of the covariance of the mixture, where they are known.
    """

    _stored: ClassVar[dict[str, str]] = {
        "theta": "theta",
        "prior_mean": "prior_mean",
        "mean": "mean_weights",
        "factor": "factor",
    }

    def __init__(
        self,
        basis: Any,
        prior: WeightPrior,
        data: EvidenceData,
        theta: np.ndarray,
        prior_mean: np.ndarray,
        moments: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        super().__init__(basis, prior, data, theta)
        self.prior_mean = prior_mean
        self.mean_weights, self.factor = moments or self._moments()

    def _made(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        mean, covariance = self.prior.weights(self.data, self.theta[number])
        return mean + self.prior_mean, covariance

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        every, within = self._components()
        centre, root = every.mean(axis=0), self._root(within)
        if self.num_components > 1:
            root = np.hstack([root, (every - centre).T / self.num_components**0.5])
        return centre, root

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
        return np.concatenate(means), np.concatenate(variances) + self._variances_beyond(X)

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the log density of observations: that of the mixture, ``log mean_t N(y; mean_t, variance_t)``."""
        found, start, lift, beyond = [], 0, self.prior.lift, self._variances_beyond(X)
        for phi in self._features(X):
            target, outside = (part[start : start + len(phi)] for part in (y, beyond))
            start += len(phi)
            logs = np.empty((self.num_components, len(phi)))
            own = phi if lift is None else phi @ lift
            for number, noise in enumerate(self.noise_variances):
                mean, covariance = self.component(number)
                latent = np.maximum(np.einsum("ij,ij->i", own @ covariance, own), 0.0)
                variance = latent + outside + noise
                logs[number] = -0.5 * (
                    (target - phi @ mean) ** 2 / variance + np.log(2.0 * np.pi * variance)
                )
            found.append(logsumexp(logs, axis=0) - np.log(self.num_components))
        return np.concatenate(found)

    def _sampled_weights(
        self, num_samples: int, generator: np.random.Generator
    ) -> Float[np.ndarray, "C m s"]:
        if self.num_components > 1:
            return super()._sampled_weights(num_samples, generator)
        normals = generator.standard_normal((self.factor.shape[1], num_samples))
        return (self.mean_weights[:, None] + self.factor @ normals)[None]


class LatentMixture(ComponentMixture):
    """One function or several, given draws of hyperparameters and latent values.

    Parameters
    ----------
    basis, prior, data, theta
        See `ComponentMixture`.
    coordinates : ndarray of shape (T, C, rank)
        ``U^T z`` of the latent values of every draw and function.
    moments : (ndarray of shape (T, C, m), ndarray of shape (m, k)), optional
        Means of all components, and a factor of the average of their covariances, where they are known.
    """

    _stored: ClassVar[dict[str, str]] = {
        name: name for name in ("theta", "coordinates", "means", "within")
    }

    def __init__(
        self,
        basis: Any,
        prior: WeightPrior,
        data: EvidenceData,
        theta: np.ndarray,
        coordinates: np.ndarray,
        moments: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        super().__init__(basis, prior, data, theta)
        self.coordinates = coordinates
        self.means, self.within = moments or self._moments()

    def _made(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        q = self.coordinates[number]
        # weights do not depend on what no weights explain
        data = replace(self.data, projected=q, target=q @ factor_of(self.data).T)
        return self.prior.weights(data, self.theta[number])

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        means, covariance = self._components()
        return means, self._root(covariance)

    # ------------------------------------------------------------ predictions

    @property
    def mean_weights(self) -> np.ndarray:
        """Posterior mean of the weights, (m,) or (C, m)."""
        return _squeezed(self.means.mean(axis=0))

    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior means of the functions at the rows of ``X``, (n,) or (C, n)."""
        return np.concatenate([phi @ self.mean_weights.T for phi in self._features(X)]).T

    def mean_and_latent_variance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior means and variances of the functions at the rows of ``X``, (n,) or (C, n)."""
        means, within = self.by_component(X)
        return _squeezed(means.mean(axis=0)), _squeezed(within + means.var(axis=0))

    def by_component(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the means given each draw, (T, C, n), and the variance given a draw, averaged over them, (n,)."""
        means, within = [], []
        for phi in self._features(X):
            means.append(self.means @ phi.T)
            within.append(np.sum((phi @ self.within) ** 2, axis=1))
        return np.concatenate(means, axis=-1), np.concatenate(within) + self._variances_beyond(X)


def _squeezed(values: np.ndarray) -> np.ndarray:
    """Return values without their axis of functions where there is one function."""
    return values[0] if len(values) == 1 else values


def root_of(covariance: np.ndarray) -> np.ndarray:
    """Return ``F`` with ``F F^T`` the covariance; directions of no variance are left out.

    Functions that are next to nothing may have weights of any variance, e^40 times that of others: eigenvalues are
    those of the correlations, so that what is rounded of a weight is relative to its own deviation.
    """
    deviations = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    inverse = np.divide(1.0, deviations, out=np.zeros_like(deviations), where=deviations > 0.0)
    values, vectors = symmetric_eigen(
        inverse[:, None] * (0.5 * (covariance + covariance.T)) * inverse
    )
    kept = values > 1e-15 * max(float(values[-1]), np.finfo(float).tiny)
    return np.ascontiguousarray(deviations[:, None] * vectors[:, kept] * np.sqrt(values[kept]))
