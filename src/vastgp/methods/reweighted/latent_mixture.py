"""Posterior of functions in a fixed basis from chains with latent values: those of each draw belong to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from vastgp.methods.reweighted.evidence import EvidenceData
from vastgp.methods.reweighted.weight_mixture import ComponentMixture, root_of
from vastgp.methods.reweighted.weight_priors import WeightPrior


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
        data = replace(self.data, projected=q, target=q @ np.asarray(self.data.factor).T)
        return self.prior.weights(data, self.theta[number])

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        means, covariance = self._components()
        return means, root_of(covariance)

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
        return np.concatenate(means, axis=-1), np.concatenate(within)


def _squeezed(values: np.ndarray) -> np.ndarray:
    """Return values without their axis of functions where there is one function."""
    return values[0] if len(values) == 1 else values
