"""Random Fourier features of any stationary kernel, regenerated from (seed, index)."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vastgp._programs import program
from vastgp.bases.draws import KINDS, index_keys, standard_normals, typed_key
from vastgp.kernels import Kernel
from vastgp.linalg.sincos import LARGEST_ARGUMENT, sincos, sincos_of_moderate

Waves = Callable[[Array], tuple[Array, Array]]
Spectrum = tuple[Float[Array, "b d"], Float[Array, " b"]]  # frequencies and scales of some pairs
# Frequencies are stored up to this size: of half a million pairs with 31 inputs in float32.
MOST_STORED = 1 << 26
_AT_A_TIME = 512  # pairs whose frequencies are drawn together
_MIXTURE = 3  # stream of the seed for densities that need more than normals


class _Waves(eqx.Module):
    """What bases of waves share: their features, made of frequencies and scales."""

    @abc.abstractmethod
    def spectrum(self, pairs: Int[Array, " b"], num_features: int, dtype: Any) -> Spectrum:
        """Return the frequency (radians per unit of input) and the scale of each pair."""

    def features(self, X: Float[Array, "n d"], pairs: Int[Array, " b"]) -> Float[Array, "n 2 b"]:
        """Return the features of chosen pairs: ``[:, 0, :]`` cosines, ``[:, 1, :]`` sines.

        Parameters
        ----------
        X : Array of shape (n, d)
            Rows, in the units of the kernel's lengthscales.
        pairs : Array of shape (b,)
            Indices in ``0 .. num_pairs - 1``.
        """
        return features_of_spectrum(X, self.spectrum(pairs, X.shape[1], X.dtype))

    def features_by_pair(
        self, X: Float[Array, "n d"], pairs: Int[Array, " b"]
    ) -> Float[Array, "2 b n"]:
        """Return the same features with the rows last.

        Passes over many rows want this layout: each feature is one contiguous line, and
        products with a few vectors of length n run a fifth faster than in the other one.
        """
        return self.features_of_held(X, self.hold(pairs, X.shape[1], X.dtype))

    def hold(self, pairs: Int[Array, " b"], num_features: int, dtype: Any) -> Spectrum:
        """Return what the features of chosen pairs are made of, for many passes over rows: their spectrum."""
        return self.spectrum(pairs, num_features, dtype)

    def features_of_held(self, X: Float[Array, "n d"], held: Spectrum) -> Float[Array, "2 b n"]:
        """Return `features_by_pair` of what `hold` returned."""
        return features_by_pair_of_spectrum(X, held)


class RandomFourierBasis(_Waves):
    """Random Fourier features ``phi(x)`` with ``phi(x)^T phi(z) ~ k(x, z)``.

    The features come in pairs that share a frequency: ``cos(omega_p^T x)`` and ``sin(omega_p^T x)``
    (Rahimi and Recht 2007). They are scaled so that the prior of the weights is standard normal
    (``S = I``): with ``P`` pairs and kernel variance ``s0^2`` the scale is ``sqrt(s0^2 / P)``, which is the
    prior precision ``S = m / (2 s0^2) I`` of unscaled features (thesis eq. (5.12), as corrected), ``m = 2 P``.

    For a sum of kernels pair ``p`` belongs to term ``p mod (number of terms)``; for a product
    the frequencies of the factors add.

    Parameters
    ----------
    kernel : Kernel
        Its hyperparameters move the features smoothly: the underlying normals stay.
    key_data : uint32 array of shape (2,)
        From `seed_key`.
    num_basis : int
        Number of basis functions ``m``, even.
    frequencies : {"plain", "orthogonal", "qmc"}
        How the normals are drawn, see `vastgp.bases.draws.standard_normals`.
    """

    kernel: Kernel
    key_data: Any
    num_basis: int = eqx.field(static=True)
    frequencies: str = eqx.field(static=True)

    def __init__(
        self, kernel: Kernel, key_data: Any, num_basis: int, frequencies: str = "plain"
    ) -> None:
        if num_basis < 2 or num_basis % 2:
            raise ValueError(
                f"num_basis must be an even number of at least 2 (cosines and sines come in "
                f"pairs), received {num_basis}."
            )
        if frequencies not in KINDS:
            raise ValueError(f"frequencies must be one of {KINDS}, received {frequencies!r}.")
        terms = len(kernel.spectral_terms())
        if num_basis // 2 < terms:
            raise ValueError(
                f"num_basis must be at least {2 * terms} for a sum of {terms} kernels, "
                f"received {num_basis}."
            )
        self.kernel = kernel
        self.key_data = key_data
        self.num_basis = num_basis
        self.frequencies = frequencies

    @property
    def num_pairs(self) -> int:
        """Number of frequencies, half the number of basis functions."""
        return self.num_basis // 2

    def with_kernel(self, kernel: Kernel) -> RandomFourierBasis:
        """Return the same underlying draws under another kernel's hyperparameters."""
        return RandomFourierBasis(kernel, self.key_data, self.num_basis, self.frequencies)

    def stored(
        self, num_features: int, dtype: Any, most_bytes: int = MOST_STORED
    ) -> RandomFourierBasis | StoredFourierBasis:
        """Return the same features with all frequencies drawn once, or this basis where they take more memory.

        For many passes with one kernel. Programs of a pass are compiled in a quarter of the time then, as none of them
        draws; they are not differentiable by the kernel.
        """
        size = self.num_pairs * (num_features + 1) * np.dtype(dtype).itemsize
        if size > most_bytes:
            return self
        return StoredFourierBasis(self, *whole_spectrum(self, num_features, np.dtype(dtype)))

    def spectrum(
        self,
        pairs: Int[Array, " b"],
        num_features: int,
        dtype: Any,
        *,
        consecutive: bool = False,
    ) -> Spectrum:
        """Return the frequency and the scale of each pair.

        Parameters
        ----------
        pairs : Array of shape (b,)
        num_features : int
        dtype : dtype
        consecutive : bool, default False
            Whether each pair is the one after the pair before it, so that what they share is drawn once.
        """
        key = typed_key(self.key_data)
        terms = self.kernel.spectral_terms()
        span = (pairs.shape[0] - 1) // len(terms) + 1 if consecutive else None
        found = [
            self._term_spectrum(term, key, pairs, num_features, dtype, which, len(terms), span)
            for which, term in enumerate(terms)
        ]
        if len(found) == 1:
            return found[0]
        chosen = pairs % len(terms)
        frequencies = jnp.stack([frequency for frequency, _ in found])
        scales = jnp.stack([scale for _, scale in found])
        position = jnp.arange(pairs.shape[0])
        return frequencies[chosen, position], scales[chosen, position]

    def _term_spectrum(
        self,
        factors: tuple[Any, ...],
        key: Array,
        pairs: Int[Array, " b"],
        d: int,
        dtype: Any,
        which: int,
        num_terms: int,
        span: int | None,
    ) -> tuple[Array, Array]:
        count = len(range(which, self.num_pairs, num_terms))
        # Consecutive pairs of one term are consecutive indices, so that orthogonal runs and
        # low-discrepancy sequences stay whole.
        within = pairs // num_terms
        term_key = jax.random.fold_in(key, which)
        total, variance = jnp.zeros((pairs.shape[0], d), dtype=dtype), jnp.ones((), dtype=dtype)
        drawn = 0
        for number, factor in enumerate(factors):
            factor_key = jax.random.fold_in(term_key, number)
            directions, auxiliary = standard_normals(
                self.frequencies, factor_key, within, d, factor.num_auxiliary, dtype,
                span=span, first_dimension=drawn,
            )  # fmt: skip
            drawn += d + factor.num_auxiliary
            mixture = index_keys(jax.random.fold_in(factor_key, _MIXTURE), within)
            scale = factor.spectral_scale(auxiliary, mixture)
            lengthscales = jnp.asarray(factor.scales, dtype=dtype)
            total = total + directions * scale[:, None] / lengthscales
            variance = variance * jnp.asarray(factor.variance, dtype=dtype)
        return total, jnp.broadcast_to(jnp.sqrt(variance / count), (pairs.shape[0],))


class StoredFourierBasis(_Waves):
    """A `RandomFourierBasis` whose frequencies are drawn and kept, of the kernel that it was made with.

    Attributes
    ----------
    basis : RandomFourierBasis
    frequencies : Array of shape (num_pairs, d)
    scales : Array of shape (num_pairs,)
    """

    basis: RandomFourierBasis
    frequencies: Float[Array, "P d"]
    scales: Float[Array, " P"]

    @property
    def kernel(self) -> Kernel:
        """The kernel of the basis."""
        return self.basis.kernel

    @property
    def num_basis(self) -> int:
        """Number of basis functions."""
        return self.basis.num_basis

    @property
    def num_pairs(self) -> int:
        """Number of frequencies, half the number of basis functions."""
        return self.basis.num_pairs

    def with_kernel(self, kernel: Kernel) -> RandomFourierBasis:
        """Return the same underlying draws under another kernel's hyperparameters, not stored."""
        return self.basis.with_kernel(kernel)

    def stored(self, num_features: int, dtype: Any) -> StoredFourierBasis:
        """Return the basis itself."""
        del num_features, dtype
        return self

    def spectrum(self, pairs: Int[Array, " b"], num_features: int, dtype: Any) -> Spectrum:
        del num_features
        return self.frequencies[pairs].astype(dtype), self.scales[pairs].astype(dtype)


def _numbers_drawn(basis: RandomFourierBasis, num_features: int, dtype: Any) -> int:
    del dtype
    return basis.num_pairs * (num_features + 1)


@program(work=_numbers_drawn, static_argnames=("num_features", "dtype"))
def whole_spectrum(basis: RandomFourierBasis, num_features: int, dtype: Any) -> Spectrum:
    """Return the spectrum of all pairs, some at a time: what draws need beside them is many times as large."""
    count = -(-basis.num_pairs // _AT_A_TIME)
    pairs = jnp.arange(count * _AT_A_TIME).reshape(count, _AT_A_TIME)
    frequencies, scales = jax.lax.map(
        lambda some: basis.spectrum(some, num_features, dtype, consecutive=True), pairs
    )
    return (
        frequencies.reshape(-1, num_features)[: basis.num_pairs],
        scales.reshape(-1)[: basis.num_pairs],
    )


def features_of_spectrum(X: Float[Array, "n d"], spectrum: Spectrum) -> Float[Array, "n 2 b"]:
    """Return the features of pairs whose spectrum is known: `RandomFourierBasis.features`."""
    frequencies, scales = spectrum

    def build(waves: Waves) -> Array:
        sine, cosine = waves(jnp.matmul(X, frequencies.T, precision="highest"))
        return jnp.stack([cosine * scales, sine * scales], axis=1)

    return _with_fitting_waves(build, X, frequencies)


def features_by_pair_of_spectrum(
    X: Float[Array, "n d"], spectrum: Spectrum
) -> Float[Array, "2 b n"]:
    """Return the features of pairs whose spectrum is known: `RandomFourierBasis.features_by_pair`."""
    frequencies, scales = spectrum

    def build(waves: Waves) -> Array:
        sine, cosine = waves(jnp.matmul(frequencies, X.T, precision="highest"))
        return jnp.stack([cosine * scales[:, None], sine * scales[:, None]])

    return _with_fitting_waves(build, X, frequencies)


def _with_fitting_waves(build: Callable[[Waves], Array], X: Array, frequencies: Array) -> Array:
    """Return features built with the fast sine and cosine where ``|x| |omega|`` bounds every angle."""
    if X.dtype != jnp.float32:
        return build(sincos)
    reach = jnp.max(jnp.sum(X**2, axis=1), initial=0.0) * jnp.max(
        jnp.sum(frequencies**2, axis=1), initial=0.0
    )
    return jax.lax.cond(
        reach <= LARGEST_ARGUMENT**2, lambda: build(sincos_of_moderate), lambda: build(sincos)
    )


def seed_key(seed: int) -> np.ndarray:
    """Return the key data of an integer seed (0 <= seed < 2**64)."""
    return np.array([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], dtype=np.uint32)
