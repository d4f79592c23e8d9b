"""The posterior from the nearest rows, on the scale that these have."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vastgp._precision import precision
from vastgp.data import observations
from vastgp.data.ranked_neighbours import RankedIndex
from vastgp.kernels import Kernel
from vastgp.kernels.metric import metric_lengthscales
from vastgp.likelihoods import Gaussian, LocallyScaled
from vastgp.linalg.threads import blas_threads
from vastgp.methods.swsgp.local_scale import LocalScale, Scattered
from vastgp.methods.swsgp.options import Nearest
from vastgp.solvers.neighbour_posterior import NeighbourPosterior
from vastgp.solvers.neighbour_weights import row_halves

_USE_OF_SEED = 122


@dataclass(frozen=True)
class NearestPosterior(NeighbourPosterior):
    """What the targets of the nearest rows say of the function, see `vastgp.methods.swsgp.nearest`.

    With a scale, means and variances have two functions as the first axis, as `vastgp.likelihoods.LocallyScaled` has.

    Attributes
    ----------
    scale : LocalScale, optional
        None: that of the process everywhere.
    noise_variance : float
        Of new observations, where the scale is one.
    """

    scale: LocalScale | None = None
    noise_variance: float = 0.0

    @classmethod
    def of_targets(
        cls,
        params: tuple[Kernel, Gaussian],
        X: np.ndarray,
        y: np.ndarray,
        neighbors: int,
        solver: Nearest,
    ) -> Any:
        """Return the posterior of rows in standardised units, with kernel and noise in these.

        Parameters
        ----------
        params : tuple of Kernel and Gaussian
        X, y : ndarray
            See `vastgp.data.observations`.
        neighbors : int
        solver : Nearest
        """
        variance = float(params[1].noise_variance)
        noise = np.broadcast_to(observations.noise_variances(y, variance), len(X)).copy()
        return cls(
            params[0], X, observations.targets(y)[:, None], np.zeros((len(X), 1)), neighbors, solver.jitter,
            search=solver.neighbor_search, noise=noise, noise_variance=variance,
        )  # fmt: skip

    def given_also(self, X: np.ndarray, y: np.ndarray) -> NearestPosterior:
        """Return what further rows say, too; kernel, noise, scale and the number of neighbours stay."""
        more = type(self).of_targets(
            (self.kernel, Gaussian(self.noise_variance)), X, y, self.num_neighbors, Nearest()
        )
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(more, name)])
            for name in ("Z", "mean_u", "spread", "noise")
        }
        return replace(self, **joined)

    @cached_property
    def index(self) -> RankedIndex:  # type: ignore[override]
        """Index of the rows, whose answers are in one order."""
        return RankedIndex(self.Z, metric_lengthscales(self.kernel, self.Z.shape[1]), self.search)

    @property
    def recall(self) -> float:
        """Share of the nearest rows that are found."""
        return float(self.index.recall)

    @property
    def likelihood(self) -> Gaussian | LocallyScaled:
        """How observations scatter around the function."""
        if self.scale is None:
            return Gaussian(self.noise_variance)
        return LocallyScaled(self.noise_variance, self.scale.degrees)

    def given_neighbours(
        self, X: np.ndarray, found: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the function at rows, (n,), or (2, n) with a scale.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        found : ndarray of int, shape (n, num_neighbors), optional
            None: the nearest.
        """
        if self.scale is None:
            return super().given_neighbours(X, found)
        mean, variance, squares = self._scattered(X, found)
        return self._on_scale(mean, variance, squares)

    def scattered(self, rows: np.ndarray, near: np.ndarray) -> Scattered:
        """Return what rows of the fit are off by, given others.

        Parameters
        ----------
        rows : ndarray of int, shape (J,)
        near : ndarray of int, shape (J, H)
            Not themselves.
        """
        mine = replace(self, num_neighbors=near.shape[1])
        mean, variance, squares = mine._scattered(self.Z[rows], near)
        assert self.noise is not None
        return Scattered(self.mean_u[rows, 0] - mean, variance, self.noise[rows], squares)

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function at the rows of ``X``: (n, num_samples), or (n, 2, num_samples).

        On the row's own scale, up to a factor that is not known and all rows of a sample have in common.
        """
        drawn = super().samples(X, num_samples, seed)
        if self.scale is None:
            return drawn
        plain, before = replace(self, scale=None).given_neighbours(np.asarray(X, np.float64))
        (mean, log_noise), (variance, _) = self.given_neighbours(np.asarray(X, np.float64))
        nu = self.scale.degrees
        generator = np.random.default_rng([seed, _USE_OF_SEED])
        factor = (nu - 2.0) / generator.chisquare(nu, num_samples)
        ratio = variance / np.maximum(before, np.finfo(float).tiny)
        drawn = mean[:, None] + np.sqrt(ratio[:, None] * factor) * (drawn - plain[:, None])
        return np.stack([drawn, np.broadcast_to(log_noise[:, None], drawn.shape)], axis=1)

    def _scattered(
        self, X: np.ndarray, found: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return means, variances, and squares of what the neighbours' targets are off by one after the other."""
        mean, variance = np.empty(len(X)), np.empty(len(X))
        squares = np.empty((len(X), self.num_neighbors))
        assert self.noise is not None
        total = float(self.kernel.total_variance())
        for here, rows, near, _ in self._tiles(X, found):
            added = self.jitter + self.noise[near] / total
            size = here.stop - here.start
            with precision("float64"), blas_threads(self.num_neighbors):
                given = (rows, self.Z[near], near >= 0, added, self.mean_u[near][..., 0])
                dealt, devices = self._dealt(given)
                # w = L^-1 y, h = L^-1 k:  k^T K^-1 y = h^T w,  k^T K^-1 k = h^T h
                w, h, prior = (
                    np.asarray(part)[:size]
                    for part in row_halves(self.kernel, *dealt, devices=devices)
                )
            mean[here], squares[here] = np.sum(h * w, axis=1), w**2
            variance[here] = np.maximum(prior - np.sum(h**2, axis=1), 0.0)
        return mean, variance, squares

    def _on_scale(
        self, mean: np.ndarray, variance: np.ndarray, squares: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        scale = self.scale
        assert scale is not None
        noise = np.full(len(mean), self.noise_variance)
        of_function, of_noise = scale.squares(variance, noise, squares)
        # variances of a Student distribution are  nu / (nu - 2)  of its width's square
        more = scale.degrees / (scale.degrees - 2.0)
        log_noise = np.log(more * of_noise / self.noise_variance)
        return np.stack([mean, log_noise]), np.stack([more * of_function, np.zeros(len(mean))])

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        state, arrays = super().to_state()
        scale = None if self.scale is None else self.scale.to_state()
        return state | {"noise_variance": float(self.noise_variance), "scale": scale}, arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> NearestPosterior:
        """Return the posterior that `to_state` wrote."""
        plain = NeighbourPosterior.from_state(state, arrays)
        scale = None if state["scale"] is None else LocalScale(**state["scale"])
        fields = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
        return cls(**fields, scale=scale, noise_variance=state["noise_variance"])
