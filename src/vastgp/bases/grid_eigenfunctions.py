"""Eigenfunctions of a product kernel, from a grid of more inducing points than could ever be stored (GRIEF).

With inducing points on a grid ``U`` of ``m_1 x ... x m_d`` points and a kernel that is a product over the inputs,
``K_UU`` is a Kronecker product, and so are its eigenvectors. An eigenfunction is therefore a product of one
eigenfunction of one input each, and the search for the largest eigenvalues goes input by input: neither costs more than
time linear in d (Evans and Nair 2018; chapter 4 of the thesis).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import eigh

from vastgp._precision import precision
from vastgp.bases.largest_products import check_num_basis, largest_products, most_functions
from vastgp.kernels import RBF, GridKernel, Kernel, Matern12, Matern32, Matern52, Product
from vastgp.kernels.base import check_for_each_feature

# Kernels whose form has no hyperparameter but the lengthscale.
_ALIKE = (RBF, Matern12, Matern32, Matern52)
# Added to the diagonal of the kernel matrix of every axis, relative to its variance.
_JITTER = 1e-12
# Eigenvalues of one axis below this share of its largest are rounding errors, and their functions are left out.
_NEGLIGIBLE = 1e-11
# Eigenvalues of one axis closer than this, relative to the largest, are taken as one where eigenvectors move.
_DEGENERATE = 1e-9
_NOTHING = 1e-30


class GridEigenfunctionBasis(eqx.Module):
    """The ``p`` leading eigenfunctions of a product kernel on a grid of inducing points.

    ``phi_i(x) = lambda_i^-1/2 K_xU q_i`` (eq. (4.1)), so that ``phi(x)^T phi(z)`` is the Nystrom approximation of
    the kernel and the weights have a standard normal prior (``S = I``). Each is a product over the inputs,

        phi_i(x) = prod_l psi_l,i(l) (x_l),     psi_l,j (x) = (lambda_j^(l))^-1/2 k_l(x, U_l) q_j^(l),

    which is Theorem 4.2 with (4.9). As ``sum_j psi_l,j(x)^2`` is at most ``k_l(x, x) = 1``, no factor exceeds one:
    dividing by the eigenvalue factor by factor is as stable as the logarithms of (4.9), and costs none.

    Make one with `build`. Hyperparameters move the functions smoothly while the selection is held (`with_kernel`).

    Attributes
    ----------
    kernel : Kernel
        A product over the inputs, see `axis_kernels`.
    grid : Array of shape (d, g)
        Points of every axis, in the units of the kernel; axes with fewer points repeat their last one.
    selection : Array of int, shape (p, d)
        Which eigenfunction of every axis, from the leading one: ``S_p`` of the thesis.
    transforms : Array of shape (d, g, g)
        ``Q^(l) (Lambda^(l))^-1/2`` of every axis, zero where there is no point.
    log_eigenvalues : Array of shape (p,)
        Of ``K_UU``, the kernel's variance included, in descending order.
    sizes : tuple of int
        Points of every axis.
    """

    kernel: Kernel
    grid: Any
    selection: Any
    transforms: Any
    log_eigenvalues: Any
    sizes: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def build(
        cls,
        kernel: Kernel,
        axes: Sequence[np.ndarray],
        num_basis: int,
        selection: np.ndarray | None = None,
    ) -> GridEigenfunctionBasis:
        """Return the eigenfunctions of the ``num_basis`` largest eigenvalues, or of those that were chosen before.

        Parameters
        ----------
        kernel : Kernel
        axes : sequence of ndarray of shape (m_l,)
            Points of every axis, distinct, in the units of the kernel: one axis for every input.
        num_basis : int
            ``p``. Eigenvalues that are rounding errors are left out, so there may be fewer.
        selection : ndarray of int, shape (num_basis, d), optional
            Which eigenfunction of every axis, see `GridEigenfunctionBasis`. None: those of the largest eigenvalues.

        Raises
        ------
        ValueError
            For a kernel that is no product over the inputs, an axis with repeated points, or more functions than the
            grid has points.
        """
        axes = [np.unique(np.asarray(axis, dtype=np.float64)) for axis in _checked_axes(axes)]
        axis_kernels(kernel, len(axes))  # refuses what does not factor
        sizes = tuple(len(axis) for axis in axes)
        check_num_basis(num_basis, sizes)
        grid = np.stack([np.pad(axis, (0, max(sizes) - len(axis)), mode="edge") for axis in axes])
        with precision("float64"):
            factors = np.asarray(_axis_matrices(kernel, grid, grid))
        transforms = np.zeros_like(factors)
        logs = []
        for position, size in enumerate(sizes):
            values, vectors = _eigen(factors[position, :size, :size])
            transforms[position, :size, :size] = vectors / np.sqrt(values)
            kept = values > _NEGLIGIBLE * values[0] if selection is None else slice(None)
            logs.append(np.log(values[kept]))
        if selection is None:
            selection, log_values = largest_products(logs, num_basis)
        else:
            log_values = np.sum(
                [log[of] for log, of in zip(logs, selection.T, strict=True)], axis=0
            )
            order = np.argsort(-log_values, kind="stable")
            selection, log_values = selection[order], log_values[order]
        log_values = log_values + float(np.log(np.asarray(kernel.total_variance())))
        return cls(kernel, grid, selection, transforms, log_values, sizes)

    @classmethod
    def build_most(
        cls, kernel: Kernel, axes: Sequence[np.ndarray], most: int
    ) -> GridEigenfunctionBasis:
        """Return what `build` does with ``most`` functions, or as many as the grid has points where that is less."""
        return cls.build(kernel, axes, most_functions(axes, most))

    @property
    def num_basis(self) -> int:
        """Number of eigenfunctions ``p``."""
        return int(self.selection.shape[0])

    def in_pairs(self) -> GridEigenfunctionBasis:
        """Return the basis without its last function where their number is odd.

        Raises
        ------
        ValueError
            When there is one alone.
        """
        if self.num_basis < 2:
            raise ValueError(
                "the grid has one eigenfunction alone, where at least two are needed: all inputs are constant, or the "
                "lengthscales are far beyond their range."
            )
        even = self.num_basis // 2 * 2
        parts = self.selection[:even], self.log_eigenvalues[:even]
        return eqx.tree_at(lambda basis: (basis.selection, basis.log_eigenvalues), self, parts)

    @property
    def num_pairs(self) -> int:
        """Half the number of eigenfunctions, which must be even where they are asked for in pairs."""
        return self.num_basis // 2

    def with_kernel(self, kernel: Kernel) -> GridEigenfunctionBasis:
        """Return the same selection of eigenfunctions under other hyperparameters, differentiable in them."""
        grid = jnp.asarray(self.grid)
        factors = _axis_matrices(kernel, grid, grid)
        inside = np.arange(grid.shape[1]) < np.asarray(self.sizes)[:, None]
        both = jnp.asarray(inside[:, :, None] & inside[:, None, :])
        # points that are none get eigenvalues that come last and eigenvectors of their own
        own = jnp.asarray(_JITTER * 1e-3 * np.eye(grid.shape[1]), grid.dtype)
        values, vectors = _smooth_eigen(jnp.where(both, factors, own))
        transforms = jnp.where(inside[:, None, :], vectors / jnp.sqrt(values)[:, None, :], 0.0)
        chosen = jnp.take_along_axis(jnp.log(values).T, jnp.asarray(self.selection), axis=0)
        log_values = jnp.sum(chosen, axis=1) + jnp.log(
            jnp.asarray(kernel.total_variance(), grid.dtype)
        )
        return GridEigenfunctionBasis(
            kernel, self.grid, self.selection, transforms, log_values, self.sizes
        )

    def stored(self, num_features: int, dtype: Any) -> GridEigenfunctionBasis:
        """Return the basis itself, which holds all that its features are made of."""
        del num_features, dtype
        return self

    def features(self, X: Float[Array, "n d"], indices: Int[Array, " b"]) -> Float[Array, "n b"]:
        """Return chosen eigenfunctions at the rows of ``X``."""
        return self._products(X, jnp.asarray(self.selection)[indices]).T

    def features_by_pair(
        self, X: Float[Array, "n d"], pairs: Int[Array, " b"]
    ) -> Float[Array, "2 b n"]:
        """Return functions ``2 p`` and ``2 p + 1`` of chosen pairs, the rows last."""
        return self.features_of_held(X, self.hold(pairs, X.shape[1], X.dtype))

    def hold(self, pairs: Int[Array, " b"], num_features: int, dtype: Any) -> Int[Array, "two_b d"]:
        """Return what the features of chosen pairs are made of: which function of every axis."""
        del num_features, dtype
        both = jnp.concatenate([2 * pairs, 2 * pairs + 1])
        return jnp.asarray(self.selection)[both]

    def features_of_held(
        self, X: Float[Array, "n d"], held: Int[Array, "two_b d"]
    ) -> Float[Array, "2 b n"]:
        """Return `features_by_pair` of what `hold` returned."""
        return self._products(X, held).reshape(2, -1, len(X))

    def _products(self, X: Float[Array, "n d"], chosen: Int[Array, "b d"]) -> Float[Array, "b n"]:
        """Return products of one function of every axis, rows last: a function of an axis is one contiguous line."""
        scale = jnp.sqrt(jnp.asarray(self.kernel.total_variance(), X.dtype))
        return scale * _products_over_axes(self._axis_functions(X), chosen)

    def _axis_functions(self, X: Float[Array, "n d"]) -> Float[Array, "d g n"]:
        """Return ``psi_l,j (x)`` of every axis."""
        transforms = jnp.asarray(self.transforms, X.dtype)
        cross = _axis_matrices(self.kernel, jnp.asarray(self.grid, X.dtype), X.T)
        return jnp.einsum("dgj,dgn->djn", transforms, cross, precision="highest")


# ---------------------------------------------------------------- products over the axes


@jax.custom_vjp
def _products_over_axes(
    functions: Float[Array, "d g n"], chosen: Int[Array, "b d"]
) -> Float[Array, "b n"]:
    """Return ``prod_l functions[l, chosen[:, l]]``."""

    def times(product: Array, axis: tuple[Array, Array]) -> tuple[Array, None]:
        values, which = axis
        return product * values[which], None

    start = jnp.ones((chosen.shape[0], functions.shape[2]), functions.dtype)
    return jax.lax.scan(times, start, (_off_zero(functions), chosen.T))[0]


def _products_forward(functions: Array, chosen: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    found = _products_over_axes(functions, chosen)
    return found, (functions, chosen, found)


def _products_backward(
    kept: tuple[Array, Array, Array], slope: Float[Array, "b n"]
) -> tuple[Float[Array, "d g n"], None]:
    # By a factor it is what all others give: the product over the factor, summed over the products it is in. One matrix
    # product for all axes; what is kept for the reverse of a scan, and its scattered sums, take five times as long.
    functions, chosen, found = kept
    size = functions.shape[1]
    belongs = (chosen.T[:, None, :] == jnp.arange(size)[:, None]).astype(functions.dtype)
    sums = jnp.matmul(belongs.reshape(-1, len(chosen)), slope * found, precision="highest")
    return sums.reshape(functions.shape) / _off_zero(functions), None


_products_over_axes.defvjp(_products_forward, _products_backward)


def _off_zero(values: Array) -> Array:
    """Return factors that may be divided by: what is nearer to zero than this counts as nothing in a product."""
    return jnp.where(jnp.abs(values) < _NOTHING, _NOTHING, values)


# ---------------------------------------------------------------- kernels of one input


def axis_kernels(kernel: Kernel, num_features: int) -> list[Kernel]:
    """Return the kernel of every input, of unit variance, whose product the kernel is.

    Raises
    ------
    ValueError
        When it does not factor over the inputs, or has another number of them.
    """
    if isinstance(kernel, RBF):
        check_for_each_feature(kernel.scales, num_features)
        each = jnp.broadcast_to(jnp.asarray(kernel.scales), (num_features,))
        return [RBF(each[i : i + 1], 1.0) for i in range(num_features)]
    if isinstance(kernel, GridKernel) and all(len(group) == 1 for group in kernel.groups):
        if len(kernel.parts) != num_features:
            raise ValueError(
                f"kernel has {len(kernel.parts)} parts but the data have {num_features} features; give one part for "
                "each feature."
            )
        return list(kernel.parts)
    if isinstance(kernel, Product) and all(isinstance(part, RBF) for part in kernel.parts):
        columns = [axis_kernels(part, num_features) for part in kernel.parts]
        return [Product(tuple(parts)) for parts in zip(*columns, strict=True)]
    raise ValueError(
        f"kernel={kernel!r} does not factor over the inputs, so its matrix on a grid is no Kronecker product: its "
        "eigenfunctions cannot be found input by input. Use RBF, whose product is one, a name such as 'matern32' (a "
        "product of one such kernel for each input), or a GridKernel with one part for each input."
    )


@eqx.filter_jit
def _axis_matrices(kernel: Kernel, A: Any, B: Any) -> Float[Array, "d a b"]:
    """Return ``k_l(a, b)`` of unit variance between the points of every axis: rows of A and of B."""
    A, B = jnp.asarray(A), jnp.asarray(B)
    parts: list[Any]
    parts = list(axis_kernels(kernel, A.shape[0]))
    if isinstance(kernel, RBF):
        parts = [kernel]
    if len({type(part) for part in parts}) == 1 and type(parts[0]) in _ALIKE:
        # all axes at once, whatever their number
        scales = jnp.stack([jnp.asarray(part.scales, A.dtype).ravel() for part in parts])
        left, right = A / scales.reshape(-1, 1), B / scales.reshape(-1, 1)
        return parts[0].correlation((left[:, :, None] - right[:, None, :]) ** 2)
    return jnp.stack(
        [
            part(a[:, None], b[:, None]) / jnp.asarray(part.total_variance(), A.dtype)
            for part, a, b in zip(parts, A, B, strict=True)
        ]
    )


def _eigen(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues of one axis, all positive and in descending order, and eigenvectors."""
    values, vectors = eigh(matrix + _JITTER * np.eye(len(matrix)))
    return np.maximum(values[::-1], _JITTER * 1e-3), vectors[:, ::-1]


@jax.custom_jvp
def _smooth_eigen(matrices: Float[Array, "d g g"]) -> tuple[Array, Array]:
    """Return eigenvalues (descending, positive) and eigenvectors, with derivatives that stay finite.

    ``dq_i = sum_j q_j q_j^T dK q_i / (lambda_i - lambda_j)``; where two eigenvalues agree to rounding the vectors may
    turn into each other freely, the span of the two does not move by that, and the term is left out.
    """
    jitter = _JITTER * jnp.eye(matrices.shape[-1], dtype=matrices.dtype)
    values, vectors = jnp.linalg.eigh(matrices + jitter)
    return jnp.maximum(values[:, ::-1], _JITTER * 1e-3), vectors[:, :, ::-1]


@_smooth_eigen.defjvp
def _smooth_eigen_jvp(primals: tuple, tangents: tuple) -> tuple:
    ((matrices,), (moved,)) = primals, tangents
    values, vectors = _smooth_eigen(matrices)
    turned = jnp.einsum("dai,dab,dbj->dij", vectors, moved, vectors, precision="highest")
    gaps = values[:, None, :] - values[:, :, None]  # lambda_j - lambda_i for column j
    near = jnp.abs(gaps) <= _DEGENERATE * values[:, :1, None]
    mixing = jnp.where(near, 0.0, turned / jnp.where(near, 1.0, gaps))
    by_values = jnp.diagonal(turned, axis1=1, axis2=2)
    by_vectors = jnp.einsum("dai,dij->daj", vectors, mixing, precision="highest")
    return (values, vectors), (by_values, by_vectors)


def _checked_axes(axes: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    for position, axis in enumerate(axes):
        axis = np.asarray(axis)
        if axis.ndim != 1 or axis.size == 0 or not np.all(np.isfinite(axis)):
            raise ValueError(
                f"axes[{position}] has shape {axis.shape}. Expected at least one finite point, in one dimension."
            )
        if len(np.unique(axis)) < axis.size:
            raise ValueError(
                f"axes[{position}] repeats points ({len(np.unique(axis))} of {axis.size} are distinct): its kernel "
                "matrix would be singular. Give each point once; a constant input has one point."
            )
    return axes
