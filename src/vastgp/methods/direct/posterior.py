"""Posteriors over discrete weights: exact moments, and samples that are small integers."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from vastgp.fitting.sufficient_statistics import feature_matrix
from vastgp.methods.direct.model import codes_below
from vastgp.solvers.weight_space import basis_from_state, basis_to_state


class DiscretePosterior:
    """A mixture of independent weights, each with a few values.

    The function is ``phi(x)^T w``. Its moments are those of a sum of independent variables in each component, so they
    are exact at any order (Evans 2022, section 7.3.1). Several functions (of classes) have theirs as the first axis.

    Parameters
    ----------
    basis : RandomFourierBasis or GridEigenfunctionBasis
    values : ndarray of shape (b, k), or (C, b, k)
        What each weight can be.
    probabilities : ndarray of shape (r, b, k), or (C, r, b, k)
        Of the values in each component; rows sum to one.
    mixture : ndarray of shape (r,), or (C, r)
        Of the components.
    rows : ndarray of shape (s, d)
        Some standardised training inputs, at which integers prove that they are this model.
    """

    def __init__(
        self,
        basis: Any,
        values: Float[np.ndarray, "*c b k"],
        probabilities: Float[np.ndarray, "*c r b k"],
        mixture: Float[np.ndarray, "*c r"],
        rows: Float[np.ndarray, "s d"],
    ) -> None:
        self.basis = basis
        self.rows = rows
        self.values = values
        self.probabilities = probabilities
        self.mixture = mixture
        # (7.17): s_j = q_j^T w_j, and the variance of each weight
        self._means = np.sum(probabilities * values[..., None, :, :], axis=-1)
        deviations = values[..., None, :, :] - self._means[..., None]
        self._variances = np.sum(probabilities * deviations**2, axis=-1)

    @property
    def weight_mean(self) -> Float[np.ndarray, "*c b"]:
        """Posterior mean of the weights."""
        return np.einsum("...r,...rb->...b", self.mixture, self._means)

    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior mean of the function at the rows of ``X``, (n,) or (C, n): eq. (7.17)."""
        return self.weight_mean @ self.features(X).T

    def mean_and_latent_variance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior mean and variance of the function at the rows of ``X``, (n,) or (C, n), both exact.

        The variance is that within the components and that between their means.
        """
        phi = self.features(X)
        means = self._means @ phi.T
        mean = np.einsum("...r,...rn->...n", self.mixture, means)
        spread = self._variances @ (phi.T**2) + (means - mean[..., None, :]) ** 2
        return mean, np.einsum("...r,...rn->...n", self.mixture, spread)

    def central_moments(self, X: np.ndarray, order: int) -> np.ndarray:
        """Return ``E[(f - E f)^p]`` for ``p = 1 ... order``, (order, n) or (order, C, n), exact.

        Cumulants of independent variables add: ``kappa_p(f) = sum_j phi_j^p kappa_p(w_j)`` in each component; moments
        of the components mix.
        """
        phi = self.features(X)
        cumulants = _cumulants(self.values[..., None, :, :], self.probabilities, order)
        own = np.stack([kappa @ (phi.T ** (p + 1)) for p, kappa in enumerate(cumulants)])
        centre = np.einsum("...r,...rn->...n", self.mixture, own[0])
        own[0] -= centre[..., None, :]  # moments about the mean of the mixture
        raw = _moments_of_cumulants(own)
        return np.einsum("...r,p...rn->p...n", self.mixture, raw)

    def codes(
        self, num_samples: int, seed: int, stratified: bool = False
    ) -> Int[np.ndarray, "*c S b"]:
        """Return samples of the weights as numbers of their values: int8, of more than 128 values int16.

        Parameters
        ----------
        num_samples : int
        seed : int
        stratified : bool, default False
            Draw each weight's samples from equal shares of its distribution, in random order: every sample has the
            posterior's distribution, and their mean comes near the posterior's with few of them (latin hypercube,
            McKay et al. 1979).
        """
        generator = np.random.default_rng(seed)
        parts = self.probabilities.reshape(-1, *self.probabilities.shape[-3:])
        mixtures = self.mixture.reshape(-1, self.mixture.shape[-1])
        drawn = [
            _draw_codes(part, mixture, num_samples, generator, stratified)
            for part, mixture in zip(parts, mixtures, strict=True)
        ]
        return np.stack(drawn).reshape(*self.mixture.shape[:-1], num_samples, -1)

    def sample_weights(
        self, num_samples: int, seed: int, stratified: bool = False
    ) -> Float[np.ndarray, "*c S b"]:
        """Return samples of the weights."""
        codes = self.codes(num_samples, seed, stratified)
        values = np.broadcast_to(
            self.values[..., None, :, :], (*codes.shape, self.values.shape[-1])
        )
        return np.take_along_axis(values, codes[..., None].astype(np.int64), axis=-1)[..., 0]

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function, (n, num_samples) or (n, C, num_samples)."""
        values = self.sample_weights(num_samples, seed) @ self.features(X).T
        return np.moveaxis(values, -1, 0)

    def sparsity(self) -> float:
        """Return the expected share of zeros among the weights of a sample."""
        nothing = (self.values == 0.0)[..., None, :, :]
        by_part = np.mean(np.sum(self.probabilities * nothing, axis=-1), axis=-1)
        return float(np.mean(np.sum(self.mixture * by_part, axis=-1)))

    def features(self, X: np.ndarray) -> Float[np.ndarray, "n b"]:
        """Return the features of standardised inputs, in float64."""
        return np.asarray(feature_matrix(self.basis, X), np.float64)

    # ------------------------------------------------------------ files

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        state, arrays = basis_to_state(self.basis)
        return state, arrays | {
            "values": self.values, "probabilities": self.probabilities, "mixture": self.mixture, "rows": self.rows
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> DiscretePosterior:
        """Return the posterior that `to_state` described."""
        return cls(
            basis_from_state(state, arrays),
            np.asarray(arrays["values"]),
            np.asarray(arrays["probabilities"]),
            np.asarray(arrays["mixture"]),
            np.asarray(arrays["rows"]),
        )


def _draw_codes(
    probabilities: np.ndarray,
    mixture: np.ndarray,
    num_samples: int,
    generator: np.random.Generator,
    stratified: bool,
) -> np.ndarray:
    """Return codes (S, b) of one function."""
    size = probabilities.shape[1]
    if stratified:
        shares = (np.arange(num_samples) + generator.uniform(size=num_samples)) / num_samples
        ranks = np.argsort(generator.uniform(size=(size, num_samples)), axis=1).T
        uniform = (ranks + generator.uniform(size=(num_samples, size))) / num_samples
    else:
        shares = generator.uniform(size=num_samples)
        uniform = generator.uniform(size=(num_samples, size))
    part = np.sum(shares[:, None] > np.cumsum(mixture)[:-1], axis=1)
    of_parts = [codes_below(uniform[part == i], each) for i, each in enumerate(probabilities)]
    codes = np.concatenate(of_parts)
    # samples in the order in which they were drawn
    codes[np.argsort(part, kind="stable")] = codes.copy()
    return codes


def _cumulants(values: np.ndarray, probabilities: np.ndarray, order: int) -> list[np.ndarray]:
    """Return cumulants 1 ... order of discrete variables, over the last axis."""
    mean = np.sum(probabilities * values, axis=-1)
    central = [
        np.sum(probabilities * (values - mean[..., None]) ** p, axis=-1)
        for p in range(1, order + 1)
    ]
    # kappa_p = mu_p - sum_{i=1}^{p-1} C(p-1, i-1) kappa_i mu_{p-i}, about the mean (kappa_1 = 0)
    kappas: list[np.ndarray] = []
    for p in range(1, order + 1):
        value = central[p - 1].copy()
        for i in range(2, p):
            value -= comb(p - 1, i - 1) * kappas[i - 1] * central[p - i - 1]
        kappas.append(value)
    kappas[0] = mean
    return kappas


def _moments_of_cumulants(kappas: np.ndarray) -> np.ndarray:
    """Return raw moments 1 ... order from cumulants along the first axis."""
    moments: list[np.ndarray] = []
    for p in range(1, len(kappas) + 1):
        value = kappas[p - 1].copy()
        for i in range(1, p):
            value = value + comb(p - 1, i - 1) * kappas[i - 1] * moments[p - i - 1]
        moments.append(value)
    return np.stack(moments)
