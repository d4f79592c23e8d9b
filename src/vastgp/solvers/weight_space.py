"""Posteriors over the weights of a finite basis, evaluated in passes over blocks of basis functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp import _accelerator
from vastgp._programs import program
from vastgp.bases import PairedBasis, RandomFourierBasis
from vastgp.bases.random_fourier import StoredFourierBasis
from vastgp.data.archive import above, below
from vastgp.fitting.module_state import module_from_state, module_to_state
from vastgp.kernels import from_spec, to_spec
from vastgp.solvers.least_squares import BlockedBasis, evaluate, features_made

# Features up to which functions of stored frequencies are summed up in NumPy: some milliseconds, where a program takes
# 150 to compile before a process has its first prediction.
_FEW_FEATURES = 1 << 17


class SampledPosterior:
    """Mean weights and weights of posterior samples.

    The function is ``phi(x)^T w``; its posterior variance at ``x`` is estimated by the mean square of the samples'
    deviations from the mean, which is unbiased with relative standard error ``sqrt(2 / S)``.

    Several functions (of classes) have theirs as the first axis of all arrays, of weights and of values.

    Parameters
    ----------
    basis : PairedBasis
    mean : Array of shape (2, P), or (C, 2, P)
        Weights of the cosines and sines of each pair.
    deviations : Array of shape (S, 2, P), or (C, S, 2, P)
        Samples minus mean.
    """

    def __init__(
        self,
        basis: PairedBasis,
        mean: Float[Array, "*c 2 P"],
        deviations: Float[Array, "*c S 2 P"],
    ) -> None:
        self.basis = basis
        self.mean_weights = mean
        self.deviations = deviations
        self._cut: BlockedBasis | None = None

    @property
    def num_samples(self) -> int:
        """Number of posterior samples S."""
        return int(self.deviations.shape[-3])

    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior mean of the function at the rows of ``X``, shape (n,) or (C, n)."""
        return self._evaluate(X, self.mean_weights)

    def mean_and_latent_variance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior mean and variance of the function at the rows of ``X``, shape (n,) or (C, n)."""
        values = self._mean_and_deviations(X)
        return values[..., 0, :], np.mean(values[..., 1:, :] ** 2, axis=-2)

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function, shape (n, num_samples) or (n, C, num_samples).

        Up to S of them are the posterior samples of the fit, in random order. Beyond, Gaussian mixtures
        ``sum_s g_s deviation_s / sqrt(S)`` are added: they have the samples' own covariance, whose rank is S.
        """
        generator = np.random.default_rng(seed)
        values = self._mean_and_deviations(X)
        mean, deviations = values[..., :1, :], values[..., 1:, :]
        order = generator.permutation(self.num_samples)[:num_samples]
        chosen = deviations[..., order, :]
        extra = num_samples - len(order)
        if extra > 0:
            shape = (*deviations.shape[:-2], extra, self.num_samples)
            mix = generator.standard_normal(shape) / self.num_samples**0.5
            chosen = np.concatenate([chosen, mix @ deviations], axis=-2)
        return np.moveaxis(mean + chosen, -1, 0)

    def _mean_and_deviations(self, X: np.ndarray) -> np.ndarray:
        """Return the values of mean and deviations, the mean first: (*c, 1 + S, n)."""
        return self._evaluate(X, self.mean_weights, self.deviations)

    def _evaluate(self, X: np.ndarray, *weights: Any) -> np.ndarray:
        """Return functions of given weights at the rows of ``X``, float64."""
        rows = np.asarray(X, self.mean_weights.dtype)
        blocks = self._blocks(rows.shape[1])
        basis, few = blocks.basis, features_made(blocks, rows) <= _FEW_FEATURES
        if few and isinstance(basis, StoredFourierBasis) and not _accelerator.is_present():
            return _values_of_few(basis, rows, *weights)
        return np.asarray(_values(blocks, jax.device_put(rows), *weights), np.float64)

    def _blocks(self, num_features: int) -> BlockedBasis:
        """Return the basis in blocks, its frequencies drawn at the first prediction."""
        if self._cut is None:
            self._cut = BlockedBasis.cut(self.basis.stored(num_features, self.mean_weights.dtype))
        return self._cut

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        state, arrays = basis_to_state(self.basis)
        arrays |= {
            "mean": np.asarray(self.mean_weights), "deviations": np.asarray(self.deviations)
        }  # fmt: skip
        return state, arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> SampledPosterior:
        """Return the posterior that `to_state` described."""
        return cls(
            basis_from_state(state, arrays),
            jnp.asarray(arrays["mean"]),
            jnp.asarray(arrays["deviations"]),
        )


@program(work=features_made)
def _values(
    blocks: BlockedBasis, X: Array, weights: Array, deviations: Array | None = None
) -> Array:
    """Return functions of weights, and of those that deviate from them beside these, at some rows."""
    if deviations is not None:
        weights = jnp.concatenate([weights[..., None, :, :], deviations], axis=-3)
    flat = weights.reshape(-1, *weights.shape[-2:])
    return evaluate(blocks, X, blocks.pad(flat)).reshape(*weights.shape[:-2], len(X))


def _values_of_few(
    basis: StoredFourierBasis, X: np.ndarray, weights: Any, deviations: Any = None
) -> np.ndarray:
    """Return `_values` at few rows, float64, without a program."""
    angles = np.asarray(basis.frequencies) @ X.T
    phi = np.stack([np.cos(angles), np.sin(angles)]) * np.asarray(basis.scales)[:, None]
    parts = [np.asarray(weights)[..., None, :, :]]
    parts += [] if deviations is None else [np.asarray(deviations)]
    flat = phi.reshape(-1, len(X))
    found = [part.reshape(*part.shape[:-2], -1) @ flat for part in parts]
    values = found[0][..., 0, :] if deviations is None else np.concatenate(found, axis=-2)
    return np.asarray(values, np.float64)


def basis_to_state(basis: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a basis as JSON-able data and arrays; random features by seed and kernel, whatever their number."""
    if not isinstance(basis, RandomFourierBasis):
        described, own = module_to_state(basis)
        return {"basis": described}, above("basis/", own)
    kernel, arrays = to_spec(basis.kernel)
    arrays = above("basis/", arrays)
    arrays["basis/key"] = np.asarray(basis.key_data)
    state = {
        "kernel": kernel, "num_basis": basis.num_basis, "frequencies": basis.frequencies
    }  # fmt: skip
    return {"basis": state}, arrays


def basis_from_state(state: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Return the basis that `basis_to_state` described."""
    described = state["basis"]
    own = below("basis/", arrays)
    if "class" in described:
        return jax.tree.map(jnp.asarray, module_from_state(described, own))
    kernel: Any = jax.tree.map(jnp.asarray, from_spec(described["kernel"], own))
    return RandomFourierBasis(kernel, own["key"], described["num_basis"], described["frequencies"])
