"""Posterior of a network of discrete weights: exact mean and variance, samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from vastgp.methods.direct.model import codes_below
from vastgp.methods.direct.network_polynomial import (
    NetworkProducts,
    NetworkTerms,
    network_products,
    network_terms,
)


class DiscreteNetworkPosterior:
    """Independent discrete weights of a network with quadratic activations.

    Parameters
    ----------
    num_inputs : int
    hidden : tuple of int
        Units of each hidden layer.
    values, probabilities : ndarray of shape (b, k)
    tables : tuple of NetworkTerms and NetworkProducts, optional
        Those of the network, where they have been made.
    """

    def __init__(
        self,
        num_inputs: int,
        hidden: tuple[int, ...],
        values: Float[np.ndarray, "b k"],
        probabilities: Float[np.ndarray, "b k"],
        tables: tuple[NetworkTerms, NetworkProducts] | None = None,
    ) -> None:
        self.num_inputs, self.hidden = num_inputs, hidden
        self.values, self.probabilities = values, probabilities
        if tables is None:
            terms = network_terms(num_inputs, hidden)
            tables = terms, network_products(terms)
        self.terms, products = tables
        order = int(products.powers.max())
        moments = np.stack([np.sum(probabilities * values**p, axis=1) for p in range(order + 1)], 1)
        mean = _monomials(moments, self.terms.factors, self.terms.powers)
        second = _monomials(moments, products.factors, products.powers)[products.of_pair]
        B = self.terms.coefficients
        # f = psi^T B^T m, so its mean is psi^T B^T E[m] and its variance psi^T (B^T Cov[m] B) psi
        self._mean = B.T @ mean
        self._covariance = B.T @ (second - np.outer(mean, mean)) @ B

    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior mean of the function, exact."""
        return self.terms.input_features(np.asarray(X, np.float64)) @ self._mean

    def mean_and_latent_variance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior mean and variance of the function, both exact."""
        psi = self.terms.input_features(np.asarray(X, np.float64))
        variance = np.einsum("nk,nk->n", psi @ self._covariance, psi)
        return psi @ self._mean, np.maximum(variance, 0.0)

    def codes(self, num_samples: int, seed: int) -> np.ndarray:
        """Return samples of the weights as numbers of their values, integers of shape (S, b)."""
        uniform = np.random.default_rng(seed).uniform(size=(num_samples, len(self.values)))
        return codes_below(uniform, self.probabilities)

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function, (n, S)."""
        codes = self.codes(num_samples, seed).astype(np.int64)
        weights = np.take_along_axis(self.values.T, codes, axis=0)
        chosen = weights[:, self.terms.factors] ** self.terms.powers
        functions = np.prod(chosen, axis=2) @ self.terms.coefficients
        return self.terms.input_features(np.asarray(X, np.float64)) @ functions.T

    def sparsity(self) -> float:
        """Return the expected share of zeros among the weights of a sample."""
        return float(np.mean(np.sum(self.probabilities * (self.values == 0.0), axis=1)))

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        state = {"num_inputs": self.num_inputs, "hidden": list(self.hidden)}
        return state, {"values": self.values, "probabilities": self.probabilities}

    @classmethod
    def from_state(
        cls, state: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> DiscreteNetworkPosterior:
        """Return the posterior that `to_state` described."""
        return cls(
            int(state["num_inputs"]),
            tuple(state["hidden"]),
            np.asarray(arrays["values"]),
            np.asarray(arrays["probabilities"]),
        )


def _monomials(moments: np.ndarray, factors: np.ndarray, powers: np.ndarray) -> np.ndarray:
    return np.prod(moments[factors, powers], axis=1)
