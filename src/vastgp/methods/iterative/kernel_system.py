"""The linear system of the exact Gaussian process, by products with kernel matrices that are never formed."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp import _accelerator
from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import processes
from vastgp.data.devices import (
    devices_for,
    filled_over_devices,
    on_every_device,
    over_devices,
)
from vastgp.kernels import Kernel
from vastgp.kernels.matrices import kernel_matrix, prior_variances
from vastgp.kernels.products import KernelMatrix
from vastgp.kernels.shared_products import SharedKernelMatrix
from vastgp.linalg.cholesky import factorize
from vastgp.methods.iterative.kernel_factors import low_rank_factor
from vastgp.solvers.distinct_rows import ObservedRows
from vastgp.solvers.plan import operations_where_arrays_lie
from vastgp.solvers.preconditioners import (
    DensePreconditioner,
    LowRankPreconditioner,
    NoPreconditioner,
    dense_preconditioner,
    low_rank_preconditioner,
)
from vastgp.solvers.row_system import prior_draws, right_sides
from vastgp.solvers.shared_preconditioners import (
    SharedDensePreconditioner,
    SharedLowRankPreconditioner,
    shared_dense_preconditioner,
    shared_low_rank_preconditioner,
)
from vastgp.solvers.systems import LinearSystem

# Up to here the preconditioner is the matrix itself in float32: its factorisation takes seconds (n = 10,000: some 5 s
# on a core), and a solution by products often minutes where the noise is low.
_EXACT_ROWS = 8_000
# Most bytes of a preconditioner's factor otherwise, without an accelerator and with one; twice as much may be in use
# while it is made.
_MOST_BYTES, _MOST_BESIDE_DEVICE = 500_000_000, 2_000_000_000
# Operations of a product for each pair of rows and for each right-hand side beside it, in those of a large product of
# matrices (measured on one core, n = 8000: 50 ms with 8 right-hand sides, 129 ms with 65). Some 15 products follow.
_PER_PAIR, _PER_COLUMN, PRODUCTS = 50.0, 2.0, 15.0
# An accelerator's products with the kernel's matrix have this share of the rate of products of matrices there (an H200,
# 40,000 rows, 33 right-hand sides: 13 of 50 TFLOP/s in float32), and about this many times that of the host beside it,
# which makes the preconditioner.
_OF_RATE, _FASTER_THAN_HOST = 0.25, 10.0
# Rounding of float32 products, ``eps n variance``, beside the noise variance, from which on vectors are float64: at
# 1.4 (n = 1200) residuals stay at 3 standard deviations of the noise, and at a few hundredths below the default tol.
_MOST_ROUNDING = 0.05
# Rounding of float32 entries, relative to the matrix itself, from which on entries are float64: a hundredth moves the
# mean at the rows by no more than a hundredth of the noise. Measured on this many rows.
_MOST_ENTRY_ROUNDING, _MEASURED_ROWS = 0.01, 1000
_MEASURED = 13

Drawable = (
    NoPreconditioner
    | DensePreconditioner
    | LowRankPreconditioner
    | SharedDensePreconditioner
    | SharedLowRankPreconditioner
)


def devices_of(n: int) -> int:
    """Return over how many devices of this process rows and vectors lie: those that a product is worth."""
    return devices_for(0.5 * _PER_PAIR * float(n) ** 2 / processes.count())


def kernel_operator(
    kernel: Kernel, noise_variance: float, observed: ObservedRows, entries: str | None = None
) -> KernelMatrix:
    """Return ``S K S + sigma^2 I`` of the observed rows, ``S`` the roots of their weights.

    ``entries`` is the precision of the kernel's entries, by default that of the rows. Several processes, and the
    devices of each, share the tiles; over the devices lie the rows, filled up to equal parts by such of scale zero.
    """
    narrow = np.asarray(observed.X).dtype
    devices = devices_of(len(observed.X))
    with precision(entries or str(narrow)):
        kernel = as_dtype(as_dtype(kernel, narrow), entries or narrow)
        X = np.asarray(observed.X, entries or narrow)
        roots = np.sqrt(np.asarray(observed.weights, X.dtype))
        shares = observed.noise_shares
        if shares is not None:
            shares = np.asarray(shares, X.dtype)
        noise = np.asarray(noise_variance, X.dtype)
        if devices * processes.count() == 1:
            return KernelMatrix(kernel, *jax.device_put((noise, X, roots, shares)))
        kernel, noise = on_every_device((kernel, jax.device_put(noise)), devices)
        X, roots, shares = jax.tree.map(
            lambda part: filled_over_devices(part, devices), (X, roots, shares)
        )
        return SharedKernelMatrix(kernel, noise, X, roots, shares, devices)


def operations_of_product(n: int, columns: int) -> float:
    """Return the operations, in those of a product of matrices, of a product with so many right-hand sides."""
    return (_PER_PAIR + _PER_COLUMN * columns) * float(n) ** 2


def seconds_of_products(n: int, columns: int, products: float) -> float:
    """Return about what so many products take on this machine, now: on its accelerator, where it has one."""
    rate = (_OF_RATE if _accelerator.is_present() else 1.0) * operations_where_arrays_lie()
    return products * operations_of_product(n, columns) / rate


def choose_rank(n: int, columns: int, itemsize: int) -> int:
    """Return the rank of the preconditioner by time, or ``n`` where it is to be the matrix itself.

    A rank ``k`` costs ``2 n k^2``, and the iterations that follow fall about as ``k^-0.7`` (kin40k: 297, 59 and 27 with
    none, 200 and 600); the sum is least where ``4 n k^2 = 0.7 * iterations * n^2 c``, with ``c`` the operations of a
    product for each pair of rows.
    """
    if n <= _EXACT_ROWS:
        return n
    on_device = _accelerator.is_present()
    per_row = operations_of_product(n, columns) / n / (_FASTER_THAN_HOST if on_device else 1.0)
    best = (0.7 / 4.0 * PRODUCTS * per_row) ** 0.5
    most = _MOST_BESIDE_DEVICE if on_device else _MOST_BYTES
    return int(max(1, min(best, most / (itemsize * n), n)))


def kernel_preconditioner(
    kernel: Kernel,
    noise_variance: float,
    observed: ObservedRows,
    rank: int,
    seed: int,
    kind: str = "auto",
    vectors: str | None = None,
    *,
    draws: bool = True,
) -> Drawable:
    """Return an approximate inverse of `kernel_operator`, from a factor of low rank.

    Parameters
    ----------
    kernel, noise_variance, observed
        As in `kernel_operator`.
    rank : int
        Of the factor; 0 for no preconditioner, ``n`` or more for the matrix itself.
    seed, kind
        See `low_rank_factor`.
    vectors : str, optional
        Precision of what it will be applied to; None: that of the rows.
    draws : bool, default True
        Whether it will be drawn from.
    """
    devices = devices_of(len(observed.X))
    X, scale = np.asarray(observed.X), np.sqrt(np.asarray(observed.weights, dtype=np.float64))
    scale = scale.astype(X.dtype)
    if rank == 0:
        return NoPreconditioner(len(X))
    if rank >= len(X):
        gram = np.array(kernel_matrix(kernel, X, X))
        gram *= scale
        gram *= scale[:, None]
        # its transpose is in the order of LAPACK, without a copy
        if devices > 1:
            return shared_dense_preconditioner(gram.T, noise_variance, devices, draws=draws)
        return dense_preconditioner(gram.T, noise_variance)
    factor = low_rank_factor(kernel, X, rank, seed, kind)
    factor *= scale
    variances = (prior_variances(kernel, X) * scale**2).astype(scale.dtype)
    wide = vectors is not None and vectors != str(X.dtype)
    if devices > 1:
        return shared_low_rank_preconditioner(
            factor, variances, noise_variance, devices, wide_vectors=wide
        )
    return low_rank_preconditioner(factor, variances, noise_variance, wide_vectors=wide)


class KernelSystem(LinearSystem):
    """``(S K S + sigma^2 I) [a, u_1, ..., u_S] = S [y, f_s(X)] + [0, sigma eps_s]``.

    The first column is that of the mean, ``f = K(x, X) S a``; the others turn draws ``f_s`` of the prior into posterior
    samples, see `vastgp.methods.iterative.posterior`.

    Parameters
    ----------
    kernel : Kernel
    noise_variance : float
    observed : ObservedRows
    basis : RandomFourierBasis
        Of the prior draws.
    num_samples : int
    seed : int
        Of the prior draws, the noise and the pivots.
    rank, kind
        Of the preconditioner, see `kernel_preconditioner`.
    """

    def __init__(
        self,
        kernel: Kernel,
        noise_variance: float,
        observed: ObservedRows,
        basis: RandomFourierBasis,
        *,
        num_samples: int,
        seed: int,
        rank: int,
        kind: str = "auto",
    ) -> None:
        made = kernel, noise_variance, observed
        self.vector_dtype, self.entry_dtype = dtypes_of(*made, seed)
        self.operator = kernel_operator(*made, self.entry_dtype)
        self.precondition = kernel_preconditioner(
            *made, rank, seed, kind, self.vector_dtype, draws=False
        )
        self.X = jnp.asarray(observed.X)
        self.kernel = as_dtype(kernel, self.X.dtype)
        self.num_rows, self.noise_variance = observed.num_rows, float(noise_variance)
        self._devices = devices_of(len(observed.X))
        self.layout = _OverDevices(len(observed.X), self._devices) if self._devices > 1 else None
        self.right = self._right_sides(basis, observed, num_samples, seed)

    def _right_sides(
        self, basis: RandomFourierBasis, observed: ObservedRows, num_samples: int, seed: int
    ) -> Array:
        """Return ``S [y, f_s(X)] + [0, sigma eps_s]``."""
        dtype = self.X.dtype
        X, y, weights = (
            filled_over_devices(np.asarray(part).astype(dtype), self._devices)
            for part in (observed.X, observed.y, observed.weights)
        )
        draws = prior_draws(as_dtype(basis, dtype), X, num_samples, seed)
        noise = np.asarray(self.noise_variance, dtype)
        _, right = right_sides(y, draws, weights, noise, seed_key(seed))
        with precision(self.vector_dtype):
            vectors: Any = np.asarray(right, self.vector_dtype)
            return over_devices(vectors, self._devices, axis=1)

    def product(self, V: Float[Array, "C n"]) -> Float[Array, "C n"]:
        """Return ``A v``."""
        return self.operator.product(V)

    def weights(self, solution: Float[Array, "C n"]) -> Any:
        """Return ``S a`` and ``S u_s``, in the precision of the vectors."""
        with precision(self.vector_dtype):
            weights = np.asarray(solution) * np.asarray(self.operator.scale)
        return weights[:, : len(self.X)]


class _OverDevices(NamedTuple):
    """Vectors of rows over devices, with filling, and in a file, without: a fit may go on with other devices."""

    num_rows: int
    devices: int

    def to_file(self, state: Any) -> Any:
        """Return a state without the filling."""
        return jax.tree.map(
            lambda part: np.asarray(part)[:, : self.num_rows] if np.ndim(part) == 2 else part, state
        )

    def from_file(self, state: Any) -> Any:
        """Return a state over the devices."""
        return jax.tree.map(
            lambda part: (
                filled_over_devices(part, self.devices, axis=1)
                if np.ndim(part) == 2
                else on_every_device(part, self.devices)
            ),
            state,
        )


def dtypes_of(
    kernel: Kernel, noise_variance: float, observed: ObservedRows, seed: int
) -> tuple[str, str]:
    """Return the precision that the vectors and that the kernel's entries need.

    Float32 vectors are too coarse where the rounding of a product, ``eps n variance``, is above the noise; float32
    entries where `rounding_of_entries` is more than a tenth.
    """
    dtype = np.asarray(observed.X).dtype
    if dtype != np.float32:
        return str(dtype), str(dtype)
    if rounding_of_entries(kernel, noise_variance, observed, seed) > _MOST_ENTRY_ROUNDING:
        return "float64", "float64"
    largest = float(np.sum(observed.weights)) * float(kernel.total_variance())
    coarse = np.finfo(dtype).eps * largest > _MOST_ROUNDING * noise_variance
    return "float64" if coarse else "float32", "float32"


def rounding_of_entries(
    kernel: Kernel, noise_variance: float, observed: ObservedRows, seed: int
) -> float:
    """Return how large the rounding ``E`` of float32 entries is beside ``A = S K S + sigma^2 I``.

    That is the largest ``|v^T E v| / v^T A v``, measured on some rows. On all n of them eigenvalues of ``K`` and of
    ``E`` are ``n / k`` times those on ``k``, as far as they are smooth, and the noise the same: so it is divided here.
    From one on, what single precision holds may not even be positive definite.
    """
    X = np.asarray(observed.X)
    n, k = len(X), min(len(X), _MEASURED_ROWS)
    some = np.random.default_rng([seed, _MEASURED]).choice(n, k, replace=False)
    X, scale = X[some], np.sqrt(np.asarray(observed.weights, np.float64)[some])
    with precision("float32"):
        kernel = as_dtype(kernel, X.dtype)
        narrow = np.array(kernel_matrix(kernel, X, X), np.float64)
    with precision("float64"):
        kernel, X = as_dtype(kernel, "float64"), X.astype(np.float64)
        exact = np.array(kernel_matrix(kernel, X, X))
    error = (narrow - exact) * scale * scale[:, None]
    np.fill_diagonal(error, 0.0)  # products have an exact one
    factor = factorize(exact * scale * scale[:, None], noise_variance * k / n)
    relative = factor.half_solve(factor.half_solve(0.5 * (error + error.T)).T)
    return float(np.max(np.abs(np.linalg.eigvalsh(relative))))
