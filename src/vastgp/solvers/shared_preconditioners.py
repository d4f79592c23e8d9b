"""Preconditioners of which each device has the rows that it has of the vectors."""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.data.devices import filled_over_devices, mesh, on_every_device
from vastgp.solvers.preconditioners import (
    LowRankPreconditioner,
    low_rank_parts,
    lower_factor,
    normals_of_rows,
)

_ROWS, _COLUMNS = jax.sharding.PartitionSpec("parts"), jax.sharding.PartitionSpec(None, "parts")
_WHOLE = jax.sharding.PartitionSpec()


class SharedLowRankPreconditioner(eqx.Module):
    """`LowRankPreconditioner` with a diagonal ``D``, over several devices: these tell each other k numbers a vector.

    Attributes
    ----------
    parts : LowRankPreconditioner
        With rows of ``scaled`` and ``root`` on each device, filled up to as many; ``inner`` is whole on each.
    num_rows : int
        Without the filling.
    devices : int
    """

    parts: LowRankPreconditioner
    num_rows: int = eqx.field(static=True)
    devices: int = eqx.field(static=True)

    def draw(self, key: Array, count: int, like: Float[Array, " n"]) -> Float[Array, "C n"]:
        """Return the draws of `LowRankPreconditioner`, zero at the filling."""
        return _low_rank_draws(self, key, count, like)

    def log_determinant(self) -> float:
        """``log |D + U^T U|`` of the rows."""
        root: Any = np.asarray(self.parts.root)[: self.num_rows]
        own = LowRankPreconditioner(self.parts.scaled, root, self.parts.inner)
        return own.log_determinant()

    def __call__(self, V: Float[Array, "C n"]) -> Float[Array, "C n"]:
        return _low_rank_solved(self, V)


@jax.jit
def _low_rank_solved(shared: SharedLowRankPreconditioner, V: Array) -> Array:
    layouts = LowRankPreconditioner(_ROWS, _ROWS, _WHOLE)  # type: ignore[arg-type]
    return jax.shard_map(
        lambda parts, V: parts.solve(V, partial(jax.lax.psum, axis_name="parts")),
        mesh=mesh(shared.devices),
        in_specs=(layouts, _COLUMNS),
        out_specs=_COLUMNS,
        check_vma=False,
    )(shared.parts, V)


@partial(jax.jit, static_argnames="count")
def _low_rank_draws(
    shared: SharedLowRankPreconditioner, key: Array, count: int, like: Array
) -> Array:
    of_rows, of_rank = jax.random.split(key)
    normals = normals_of_rows(of_rows, count, shared.num_rows, like)
    parts = shared.parts.scaled, shared.parts.diagonal
    scaled, root = (part.astype(like.dtype) for part in parts)
    loads = jax.random.normal(of_rank, (count, scaled.shape[1]), like.dtype)
    return (normals + loads @ scaled.T) * root


class SharedDensePreconditioner(eqx.Module):
    """`DensePreconditioner` over several devices: ``P^-1 = W^T W``, with rows of ``W = L^-1`` on each.

    A triangular solution goes from row to row; products with its inverse do not, at as many operations by two devices
    as that has by one. ``W^T W`` is symmetric and positive whatever its rounding, which is that of ``L``. Whole vectors
    pass through each device meanwhile.

    Attributes
    ----------
    inverse : Array of shape (n, n)
        ``W``, filled up with zeros.
    factor : Array of shape (n, n), or None
        ``L``, where there will be draws.
    log_of_matrix : float
        ``log |P|``.
    num_rows : int
        Without the filling.
    devices : int
    """

    inverse: Float[Array, "n n"]
    factor: Float[Array, "n n"] | None
    log_of_matrix: float = eqx.field(static=True)
    num_rows: int = eqx.field(static=True)
    devices: int = eqx.field(static=True)

    def draw(self, key: Array, count: int, like: Float[Array, " n"]) -> Float[Array, "C n"]:
        """Return the draws of `DensePreconditioner`, zero at the filling."""
        assert self.factor is not None
        return _dense_draws(self, key, count, like)

    def log_determinant(self) -> float:
        """``log |P|``."""
        return self.log_of_matrix

    def __call__(self, V: Float[Array, "C n"]) -> Float[Array, "C n"]:
        return _dense_solved(self.devices, self.inverse, V)


@partial(jax.jit, static_argnums=0)
def _dense_solved(devices: int, inverse: Array, V: Array) -> Array:
    def part(W: Array, V: Array) -> Array:
        right = jax.lax.all_gather(V.astype(W.dtype), "parts", axis=1, tiled=True)
        solved = (right @ W.T) @ W
        own = jax.lax.psum_scatter(solved, "parts", scatter_dimension=1, tiled=True)
        return own.astype(V.dtype)

    return jax.shard_map(
        part, mesh=mesh(devices), in_specs=(_ROWS, _COLUMNS), out_specs=_COLUMNS, check_vma=False
    )(inverse, V)


@partial(jax.jit, static_argnames="count")
def _dense_draws(shared: SharedDensePreconditioner, key: Array, count: int, like: Array) -> Array:
    assert shared.factor is not None
    normals = normals_of_rows(key, count, shared.num_rows, like)
    return normals @ shared.factor.T.astype(like.dtype)


def shared_dense_preconditioner(
    matrix: np.ndarray, noise_variance: float, devices: int, *, draws: bool
) -> SharedDensePreconditioner:
    """Return `dense_preconditioner` over several devices (``matrix`` is overwritten).

    ``draws`` says whether there will be some: these need a second matrix.
    """
    lower = lower_factor(matrix, noise_variance)
    size = len(lower)
    log_of_matrix = 2.0 * float(np.sum(np.log(np.diagonal(lower).astype(np.float64))))
    factor = _both_filled(lower, devices) if draws else None
    (trtri,) = scipy.linalg.get_lapack_funcs(("trtri",), (lower,))
    inverse, failed = trtri(np.asfortranarray(lower), lower=1, overwrite_c=1)
    assert failed == 0, "a factor of a positive matrix has no zero on its diagonal"
    return SharedDensePreconditioner(
        _both_filled(inverse, devices), factor, log_of_matrix, size, devices
    )


def _both_filled(matrix: np.ndarray, devices: int) -> Any:
    """Return a square matrix over devices by its rows, filled up with zeros in both directions."""
    extra = -len(matrix) % devices
    return filled_over_devices(np.pad(matrix, (0, extra)) if extra else matrix, devices)


def shared_low_rank_preconditioner(
    factor: np.ndarray,
    variances: np.ndarray,
    noise_variance: float,
    devices: int,
    *,
    wide_vectors: bool = False,
) -> SharedLowRankPreconditioner:
    """Return `low_rank_preconditioner` over several devices (``factor``, of shape (k, n), is overwritten)."""
    rows = factor.shape[1]
    scaled, root, inner = low_rank_parts(factor, variances, noise_variance, wide_vectors)
    with precision(str(inner.dtype)):
        parts = LowRankPreconditioner(
            filled_over_devices(scaled, devices),
            filled_over_devices(root, devices, fill=1.0),
            on_every_device(inner, devices),  # type: ignore[arg-type]
        )
    return SharedLowRankPreconditioner(parts, rows, devices)
