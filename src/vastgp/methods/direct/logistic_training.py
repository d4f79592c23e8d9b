"""Classes by discrete weights: quadratic bounds of the logistic likelihood, renewed between fits of the weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from vastgp._precision import precision
from vastgp.data import Rows, Standardizer
from vastgp.fitting.lbfgs import maximise_real
from vastgp.fitting.sufficient_statistics import block_rows_of, features_of_tile
from vastgp.methods.direct.elbo import value_and_slope
from vastgp.methods.direct.logistic_bound import (
    best_contact,
    exponential_value_and_slope,
    quadratic_sites,
)
from vastgp.methods.direct.model import (
    DiscreteLogits,
    DiscreteModel,
    QuadraticLikelihood,
    moments_of,
    values_and_prior,
)
from vastgp.methods.direct.training import DiscreteFit, coordinate_sweep, fit_at_end

# Features are kept between passes up to this many numbers, made again beyond.
_KEPT_ENTRIES = 20_000_000
_SWEEPS = 5


class LabelledFeatures:
    """Features of labelled rows, block after block, as often as asked for.

    Parameters
    ----------
    rows : Rows
        Targets -1 and 1 of two classes, else the numbers of classes.
    standardizer : Standardizer
    basis : basis
    dtype : {"float32", "float64"}
    """

    def __init__(self, rows: Rows, standardizer: Standardizer, basis: Any, dtype: str) -> None:
        self.num_rows = rows.n
        self.num_basis = int(basis.num_basis)
        self._rows, self._standardizer = rows, standardizer
        self._basis, self._dtype = basis, dtype
        self._kept: list[tuple[np.ndarray, np.ndarray]] | None = None

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield features (s, b) in float64 and targets (s,)."""
        if self._kept is not None:
            yield from self._kept
            return
        keep = self.num_rows * self.num_basis <= _KEPT_ENTRIES
        kept = []
        size = min(block_rows_of(self.num_basis), self.num_rows)
        for X, y in self._rows.batches(size):
            scaled = self._standardizer.transform_X(X, dtype=np.dtype(self._dtype))
            with precision(self._dtype):
                made = features_of_tile(self._basis, scaled, size)
            block = (made.astype(np.float64), np.asarray(y, np.float64))
            if keep:
                kept.append(block)
            yield block
        if keep:
            self._kept = kept


class Weights(NamedTuple):
    """Mean and variance of the weights of one function."""

    mean: Float[np.ndarray, " b"]
    variance: Float[np.ndarray, " b"]


def labels_of(targets: np.ndarray, which: int | None) -> np.ndarray:
    """Return -1 and 1: the targets themselves, or whether they are class ``which``."""
    return targets if which is None else np.where(targets == which, 1.0, -1.0)


def quadratic_likelihood(
    features: LabelledFeatures, which: int | None, weights: Weights
) -> tuple[QuadraticLikelihood, float]:
    """Return the quadratic bound of all rows that is best at a posterior of the weights, and its constant."""
    size = features.num_basis
    target, gram, constant = np.zeros(size), np.zeros((size, size)), 0.0
    for phi, y in features.blocks():
        # E[f^2] = (phi^T s)^2 + sum_j phi_j^2 Var[w_j]
        contact = best_contact(phi @ weights.mean, phi**2 @ weights.variance)
        sites = quadratic_sites(labels_of(y, which), contact)
        root = np.sqrt(np.asarray(sites.precision))[:, None] * phi
        gram += root.T @ root
        target += phi.T @ np.asarray(sites.linear)
        constant += float(np.sum(np.asarray(sites.constant)))
    return QuadraticLikelihood(0.0, 0.0, target, gram), constant


def weights_moments(logits: DiscreteLogits, model: DiscreteModel) -> Weights:
    """Return mean and variance of the weights under a mixture of components."""
    values, _ = values_and_prior(logits, model)
    means, variances = moments_of(jax.nn.softmax(logits.weights), values)
    alpha = jax.nn.softmax(logits.mixture)
    mean = alpha @ means
    return Weights(np.asarray(mean), np.asarray(alpha @ (variances + (means - mean) ** 2)))


def sweep(logits: DiscreteLogits, model: DiscreteModel) -> tuple[DiscreteLogits, float]:
    """Return logits after some coordinate sweeps, and the bound without the constant."""
    for _ in range(_SWEEPS):
        logits = coordinate_sweep(logits, model)
    return logits, float(value_and_slope(logits, model)[0])


def fit_exponential(
    features: LabelledFeatures,
    which: int | None,
    model: DiscreteModel,
    logits: DiscreteLogits,
    *,
    max_iter: int,
    tol: float,
    max_seconds: float | None,
) -> DiscreteFit:
    """Maximise the bound of Theorem 7.2 by L-BFGS over all rows."""
    blocks = list(features.blocks())
    phi = jnp.asarray(np.concatenate([block for block, _ in blocks]))
    labels = jnp.asarray(labels_of(np.concatenate([y for _, y in blocks]), which))

    def objective(point: DiscreteLogits) -> tuple[float, DiscreteLogits]:
        value, slope = exponential_value_and_slope(
            jax.tree.map(jnp.asarray, point), model, phi, labels
        )
        return float(value), slope

    found = maximise_real(
        objective, logits, max_iter=max_iter, tol=0.1 * tol, scale=features.num_rows, max_seconds=max_seconds
    )  # fmt: skip
    return fit_at_end(found, found.params)
