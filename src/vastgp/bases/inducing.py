"""Kernel functions at inducing inputs, evaluated block by block."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vastgp.kernels import Kernel


class InducingBasis(eqx.Module):
    """Basis functions ``phi_j(x) = k(x, z_j)`` with weights of prior precision ``S = K(Z, Z)``.

    The prior of the function is then ``K(x, Z) K(Z, Z)^-1 K(Z, x')``, which is the kernel itself where x or x' is one
    of the inducing inputs (appendix G of Evans and Nair 2020). Any kernel will do. Nothing but the inputs is
    stored: a block of features or of ``S`` is made where it is used.

    What methods ask of a basis whose prior is not whitened is `features`, `prior_block` and `prior_diagonal`, each for
    the indices that they want.

    Parameters
    ----------
    kernel : Kernel
        In the units of the inducing inputs.
    inputs : Array of shape (m, d)
        ``Z``. Inputs may repeat: the function that maximises the bound stays unique.
    """

    kernel: Kernel
    inputs: Float[Array, "m d"]

    def __init__(self, kernel: Kernel, inputs: Any) -> None:
        if inputs.ndim != 2 or inputs.shape[0] < 1:
            raise ValueError(
                f"inputs must have shape (m, d) with at least one row, received {inputs.shape}."
            )
        self.kernel = kernel
        self.inputs = inputs

    @property
    def num_basis(self) -> int:
        """Number of basis functions ``m``."""
        return int(self.inputs.shape[0])

    def with_kernel(self, kernel: Kernel) -> InducingBasis:
        """Return the basis of the same inputs under another kernel's hyperparameters."""
        return InducingBasis(kernel, self.inputs)

    def features(self, X: Float[Array, "n d"], indices: Int[Array, " b"]) -> Float[Array, "n b"]:
        """Return ``k(x, z_j)`` for chosen ``j``."""
        return self.kernel(X, self.inputs[indices])

    def prior_block(self, i: Int[Array, " i"], j: Int[Array, " j"]) -> Float[Array, "i j"]:
        """Return the block ``S[i, j]`` of the prior precision of the weights."""
        return self.kernel(self.inputs[i], self.inputs[j])

    def prior_diagonal(self, indices: Int[Array, " b"]) -> Float[Array, " b"]:
        """Return ``s_jj = k(z_j, z_j)``."""
        return jnp.full(indices.shape, jnp.asarray(self.kernel.total_variance(), self.inputs.dtype))
