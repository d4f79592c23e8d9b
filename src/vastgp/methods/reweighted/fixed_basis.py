"""Bases that stay fixed while the prior of their weights moves: the choice of one, and of the prior."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.bases.kernel_columns import KernelColumnBasis
from vastgp.bases.laplace_eigenfunctions import LaplaceEigenfunctionBasis
from vastgp.bases.random_fourier import whole_spectrum
from vastgp.data import Rows, Standardizer
from vastgp.estimators.grid_basis import check_kernel_of, grid_eigenfunctions
from vastgp.kernels import Kernel, from_name
from vastgp.kernels.spectral import check_spectral_density
from vastgp.methods.reweighted.evidence import EvidenceData
from vastgp.methods.reweighted.kernel_weight_prior import KernelPrior
from vastgp.methods.reweighted.model import Features
from vastgp.methods.reweighted.options import (
    DiagonalWeights,
    KernelWeights,
    LaplaceBasis,
    OrthogonalWeights,
    SpectralWeights,
    WeightsPrior,
)
from vastgp.methods.reweighted.weight_priors import (
    DiagonalPrior,
    OrthogonalPrior,
    SpectralPrior,
    WeightPrior,
)

DEFAULT_FUNCTIONS = 500
_INPUTS = 4  # purpose of random numbers
# Least half width of a box of sines, in lengthscales: in its middle the kernel's variance is then too low by 0.1 %
# (RBF) or 2 % (Matern 3/2). With one lengthscale that is 27 %, and of an input that hardly matters, whose lengthscale
# is far beyond its range, walls near the data leave nothing.
_LEAST_HALF_WIDTH = 2.0


class FixedBasis(NamedTuple):
    """The choice of a basis and of the prior of its weights.

    Attributes
    ----------
    basis : LaplaceBasis or str
        As `BASES` resolves it.
    prior : WeightsPrior
    num_basis : int or None
        Functions. None: 500.
    """

    basis: Any
    prior: WeightsPrior
    num_basis: int | None

    @property
    def name(self) -> str:
        """Name of the basis."""
        return "laplace" if isinstance(self.basis, LaplaceBasis) else self.basis

    def check(self) -> None:
        """Raise ``ValueError`` where basis, prior and number of functions do not go together."""
        if isinstance(self.prior, KernelWeights) and self.basis in ("relevance", "grief"):
            raise ValueError(
                f"prior='kernel' and basis={self.basis!r}: other hyperparameters are other functions there, and not "
                "other weights. Use prior='diagonal' or 'orthogonal', or another basis."
            )
        if self.basis == "random-fourier" and self.num_basis is not None and self.num_basis % 2:
            raise ValueError(
                f"num_basis must be an even number where basis='random-fourier' (cosines and sines come in pairs), "
                f"received {self.num_basis}."
            )

    def check_inputs(self, kernel: Any, num_features: int) -> None:
        """Raise ``ValueError`` for a kernel that the basis cannot have with so many inputs and functions."""
        check_kernel_of(self.name, kernel, num_features, self.num_basis)
        if isinstance(kernel, str):
            kernel = from_name(kernel)
        under_kernel = self.basis == "random-fourier" and isinstance(self.prior, KernelWeights)
        if self.name == "laplace" and isinstance(kernel, Kernel):
            check_spectral_density(kernel, ", or another basis")
        elif under_kernel and isinstance(kernel, Kernel):
            check_spectral_density(kernel, ", or another prior than 'kernel'")
        if self.num_basis is not None and self.name in ("random-fourier", "laplace"):
            self.prior.mean_of(self.num_basis)  # others may have fewer functions than are asked for

    # ------------------------------------------------------------ the basis

    def make(
        self, kernel: Kernel, noise_variance: float, rows: Rows, scaling: Standardizer, seed: int, dtype: str
    ) -> Features:  # fmt: skip
        """Return the functions for a kernel, in standardised units, whose features are made in ``dtype``."""
        count = int(self.num_basis or DEFAULT_FUNCTIONS)
        basis: Any
        limits = None
        if self.basis == "random-fourier":
            basis = RandomFourierBasis(kernel, seed_key(seed), count, "orthogonal")
        elif isinstance(self.basis, LaplaceBasis):
            limits = scaling.transform_X(np.stack(scaling.x_range))
            basis = _laplace(kernel, limits, self.basis.box_margin, count)
        elif self.basis == "grief":
            basis = grid_eigenfunctions(kernel, rows, scaling, count)
            kernel = basis.kernel
        else:
            inputs = _some_inputs(rows, scaling, count, seed)
            if self.basis == "interpolation":
                basis = KernelColumnBasis.interpolation(kernel, inputs, dtype)
            else:
                basis = KernelColumnBasis.relevance(kernel, inputs)
        self.prior.mean_of(
            basis.num_basis
        )  # refuses one of another length before the rows are summed
        return Features(basis, kernel, noise_variance, limits)

    # ------------------------------------------------------------ the prior

    def make_prior(
        self, features: Features, data: EvidenceData, num_inputs: int, dtype: str
    ) -> WeightPrior:
        """Return the family of priors of the weights; ``dtype`` is that of the features."""
        basis = features.basis
        if isinstance(self.prior, KernelWeights):
            return _kernel_prior(features, num_inputs, dtype)
        pairs = isinstance(basis, RandomFourierBasis)
        groups = np.arange(basis.num_basis) // 2 if pairs else None
        return weight_prior(self.prior, data, features.noise_variance, groups)


def weight_prior(
    prior: WeightsPrior, data: EvidenceData, noise: float, groups: np.ndarray | None = None
) -> WeightPrior:
    """Return a family of priors with a variance for each function.

    Parameters
    ----------
    prior : DiagonalWeights, OrthogonalWeights or SpectralWeights
    data : EvidenceData
    noise : float
        Mode of the noise variance.
    groups : ndarray of int, shape (m,), optional
        Of weights that share a variance.
    """
    if isinstance(prior, OrthogonalWeights):
        return OrthogonalPrior.make(data.rank, noise)
    if isinstance(prior, SpectralWeights):
        return SpectralPrior.make(data.rank, noise, int(prior.num_reflections))
    assert isinstance(prior, DiagonalWeights)
    return DiagonalPrior.make(data.num_basis, noise, groups=groups)


def _kernel_prior(features: Features, num_inputs: int, dtype: str) -> WeightPrior:
    basis, kernel, noise = features.basis, features.kernel, features.noise_variance
    if isinstance(basis, KernelColumnBasis):
        return KernelPrior.make(kernel, noise, basis.inputs, np.asarray(basis.transform))
    if isinstance(basis, LaplaceEigenfunctionBasis):
        return KernelPrior.make(kernel, noise, basis.frequencies)
    # features are made in `dtype`, and their frequencies are drawn in it
    with precision(dtype):
        frequencies, _ = whole_spectrum(basis, num_inputs, np.dtype(dtype))
    waves = np.repeat(np.asarray(frequencies, dtype=np.float64), 2, axis=0)
    return KernelPrior.make(kernel, noise, waves)


def _laplace(
    kernel: Any, limits: np.ndarray, margin: float, count: int
) -> LaplaceEigenfunctionBasis:
    """Return sines on a box around the data, where they are near enough to the kernel."""
    low, high = limits
    # a constant input: a box of the width of one standard deviation
    half = np.where(high > low, 0.5 * (high - low), 0.5) * (1.0 + margin)
    half = np.maximum(half, _LEAST_HALF_WIDTH * np.asarray(kernel.scales))
    return LaplaceEigenfunctionBasis.build(kernel, 0.5 * (low + high), half, count)


def _some_inputs(rows: Rows, scaling: Standardizer, count: int, seed: int) -> np.ndarray:
    """Return distinct random training inputs, standardised."""
    generator = np.random.default_rng([seed, _INPUTS])
    chosen = np.sort(generator.choice(rows.n, min(count, rows.n), replace=False))
    return np.unique(scaling.transform_X(rows.take(chosen)[0]), axis=0)
