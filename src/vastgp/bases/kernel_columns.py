"""Kernel functions at chosen inputs, and linear combinations of them, as a basis that stays fixed."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import solve_triangular

from vastgp.kernels import Kernel
from vastgp.kernels.matrices import covariance
from vastgp.linalg.cholesky import factorize


class KernelColumnBasis(eqx.Module):
    """``phi(x) = T^T k(Z, x)`` with a fixed kernel, inputs ``Z`` and matrix ``T``.

    `relevance` makes the columns of a relevance vector machine, one hump at each input; `interpolation` the
    interpolant of the kernel between the inputs, whitened.

    Attributes
    ----------
    kernel : Kernel
    inputs : ndarray of shape (m, d)
        ``Z``.
    transform : ndarray of shape (m, m), or scalar
        ``T``.
    """

    kernel: Kernel
    inputs: Any
    transform: Any

    @classmethod
    def relevance(cls, kernel: Kernel, inputs: np.ndarray) -> KernelColumnBasis:
        """Return kernel functions, scaled so that independent standard normal weights give the kernel's variance.

        The prior variance ``scale^2 sum_j k(x, z_j)^2``, averaged over the inputs themselves, is ``k(x, x)``.
        """
        matrix = covariance(kernel, inputs, inputs)
        variance = float(np.mean(np.diagonal(matrix)))
        scale = (variance / float(np.mean(np.sum(matrix**2, axis=1)))) ** 0.5
        return cls(kernel, inputs, np.float64(scale))

    @classmethod
    def interpolation(
        cls, kernel: Kernel, inputs: np.ndarray, dtype: str = "float64"
    ) -> KernelColumnBasis:
        """Return ``phi(x) = L^-1 k(Z, x)`` with ``K(Z, Z) = L L^T``: weights ``w`` stand for values ``L w`` at Z.

        ``K`` has the rounding errors of features on its diagonal. ``k(Z, x)`` errs by them, and what L^-1 makes of the
        errors is as large as the functions where an eigenvalue of ``K`` is no larger.

        Parameters
        ----------
        kernel : Kernel
        inputs : ndarray of shape (m, d)
        dtype : {"float64", "float32"}, default "float64"
            The precision that features will be made in.

        Raises
        ------
        FactorizationError
            When inputs coincide to rounding.
        """
        matrix = covariance(kernel, inputs, inputs)
        # norm of a symmetric matrix of m independent errors: twice sqrt(m) of their deviation, half a unit or less
        rounding = (
            float(np.finfo(dtype).eps) * len(matrix) ** 0.5 * float(np.mean(np.diagonal(matrix)))
        )
        lower = np.tril(
            factorize(
                matrix,
                rounding,
                what="the kernel matrix of the interpolation points",
                advice="Remove points that are almost the same, or take fewer.",
            ).lower
        )
        inverse = solve_triangular(lower, np.eye(len(lower)), lower=True)
        return cls(kernel, inputs, np.ascontiguousarray(inverse.T))

    @property
    def num_basis(self) -> int:
        """Number of functions ``m``."""
        return int(self.inputs.shape[0])

    def features(self, X: Float[Array, "n d"], indices: Int[Array, " b"]) -> Float[Array, "n b"]:
        """Return chosen functions at the rows of ``X``."""
        inputs = jnp.asarray(self.inputs, X.dtype)
        transform = jnp.asarray(self.transform, X.dtype)
        if transform.ndim == 0:
            return transform * self.kernel(X, inputs[indices])
        return jnp.matmul(self.kernel(X, inputs), transform[:, indices], precision="highest")
