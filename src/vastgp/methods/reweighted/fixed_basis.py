"""Bases that stay fixed while the prior of their weights moves: the choice of one, and of the prior."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.bases.kernel_columns import KernelColumnBasis
from vastgp.bases.laplace_eigenfunctions import LaplaceEigenfunctionBasis
from vastgp.data import Rows
from vastgp.estimators.arguments import check_choice, check_positive
from vastgp.estimators.grid_basis import check_kernel_of, grid_eigenfunctions
from vastgp.kernels import Kernel, from_name
from vastgp.kernels.spectral import log_spectral_density
from vastgp.methods.reweighted.fit import Features, ReweightedFits
from vastgp.methods.reweighted.kernel_weight_prior import KernelPrior
from vastgp.methods.reweighted.weight_priors import (
    DiagonalPrior,
    OrthogonalPrior,
    SpectralPrior,
    WeightPrior,
)

BASES = ("random-fourier", "laplace", "interpolation", "relevance", "grief")
PRIORS = ("kernel", "diagonal", "orthogonal", "spectral")
_DEFAULT_FUNCTIONS = 500


class FixedBasis(ReweightedFits):
    """Arguments ``kernel``, ``num_basis``, ``basis``, ``prior`` and what goes with them."""

    # constructor arguments
    num_basis: Any
    basis: Any
    prior: Any
    num_reflections: Any
    box_margin: Any

    def _check_basis(self) -> None:
        check_choice("basis", self.basis, BASES)
        check_choice("prior", self.prior, PRIORS)
        check_positive(
            "num_basis", self.num_basis, integer=True, none=f"at most {_DEFAULT_FUNCTIONS}"
        )
        check_positive("num_reflections", self.num_reflections, integer=True)
        check_positive("box_margin", self.box_margin)
        if self.prior == "kernel" and self.basis in ("relevance", "grief"):
            raise ValueError(
                f"prior='kernel' and basis={self.basis!r}: other hyperparameters are other functions there, and not "
                "other weights. Use prior='diagonal' or 'orthogonal', or another basis."
            )
        if isinstance(self.kernel, str):
            from_name(self.kernel)

    # ------------------------------------------------------------ the basis

    def _wanted_kernel(self) -> Any:
        return "rbf" if self.kernel is None else self.kernel

    def _check_inputs(self, num_features: int) -> None:
        check_kernel_of(self.basis, self.kernel, num_features)

    def _make_basis(self, kernel: Kernel, rows: Rows) -> tuple[Any, Kernel]:
        """Return the basis, and the kernel that it is of."""
        if self.basis == "laplace" or (self.basis == "random-fourier" and self.prior == "kernel"):
            with precision("float64"):  # refuses kernels without a density
                log_spectral_density(kernel, jnp.zeros((1, rows.d)))
        return getattr(self, f"_{self.basis.replace('-', '_')}")(kernel, rows)

    def _count(self) -> int:
        return int(self.num_basis or _DEFAULT_FUNCTIONS)

    def _random_fourier(self, kernel: Kernel, rows: Rows) -> tuple[Any, Kernel]:
        return RandomFourierBasis(kernel, seed_key(self._seed), self._count(), "orthogonal"), kernel

    def _laplace(self, kernel: Kernel, rows: Rows) -> tuple[Any, Kernel]:
        scaling = self.standardizer_
        low, high = scaling.transform_X(np.stack(scaling.x_range))
        # a constant input: a box of the width of one standard deviation
        half = np.where(high > low, 0.5 * (high - low), 0.5) * (1.0 + self.box_margin)
        basis = LaplaceEigenfunctionBasis.build(kernel, 0.5 * (low + high), half, self._count())
        return basis, kernel

    def _interpolation(self, kernel: Kernel, rows: Rows) -> tuple[Any, Kernel]:
        return KernelColumnBasis.interpolation(kernel, self._some_inputs(rows)), kernel

    def _relevance(self, kernel: Kernel, rows: Rows) -> tuple[Any, Kernel]:
        return KernelColumnBasis.relevance(kernel, self._some_inputs(rows)), kernel

    def _grief(self, kernel: Kernel, rows: Rows) -> tuple[Any, Kernel]:
        basis = grid_eigenfunctions(kernel, rows, self.standardizer_, self._count())
        return basis, basis.kernel

    def _some_inputs(self, rows: Rows) -> np.ndarray:
        """Return distinct random training inputs, standardised."""
        count = min(self._count(), rows.n)
        generator = np.random.default_rng(self._seed)
        chosen = np.sort(generator.choice(rows.n, count, replace=False))
        return np.unique(self.standardizer_.transform_X(rows.take(chosen)[0]), axis=0)

    # ------------------------------------------------------------ the prior

    def _make_prior(self, features: Features, data: Any) -> WeightPrior:
        basis, noise = features.basis, features.noise_variance
        if self.prior == "kernel":
            return self._kernel_prior(features)
        if self.prior == "orthogonal":
            return OrthogonalPrior.make(data.rank, noise)
        if self.prior == "spectral":
            return SpectralPrior.make(data.rank, noise, int(self.num_reflections))
        pairs = isinstance(basis, RandomFourierBasis)
        groups = np.arange(basis.num_basis) // 2 if pairs else None
        return DiagonalPrior.make(basis.num_basis, noise, groups=groups)

    def _kernel_prior(self, features: Features) -> WeightPrior:
        basis, kernel, noise = features.basis, features.kernel, features.noise_variance
        if isinstance(basis, KernelColumnBasis):
            return KernelPrior.make(kernel, noise, basis.inputs, np.asarray(basis.transform))
        if isinstance(basis, LaplaceEigenfunctionBasis):
            return KernelPrior.make(kernel, noise, basis.frequencies)
        # features are made in `dtype`, and their frequencies are drawn in it
        with precision(self.dtype):
            frequencies, _ = basis.spectrum(
                jnp.arange(basis.num_pairs), self.standardizer_.d, np.dtype(self.dtype)
            )
        waves = np.repeat(np.asarray(frequencies, dtype=np.float64), 2, axis=0)
        return KernelPrior.make(kernel, noise, waves)
