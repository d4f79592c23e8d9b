"""Eigenfunctions of the Laplace operator on a box: a basis of every stationary kernel (Solin and Sarkka 2020)."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vastgp._precision import precision
from vastgp.bases.largest_products import largest_products
from vastgp.kernels import Kernel
from vastgp.kernels.spectral import log_spectral_density


class LaplaceEigenfunctionBasis(eqx.Module):
    """Sines on the box ``prod_l [c_l - h_l, c_l + h_l]``, which vanish at its walls.

    ``phi_j(x) = s(omega_j)^1/2 prod_l h_l^-1/2 sin(omega_jl (x_l - c_l + h_l))``, ``omega_jl = pi j_l / (2 h_l)``,
    with the kernel's spectral density ``s``: then ``sum_j phi_j(x) phi_j(z)`` approaches ``k(x, z)`` as functions are
    added, away from the walls, and the prior of the weights is standard normal. The sines do not depend on
    hyperparameters: other ones are other prior variances of the weights.

    Attributes
    ----------
    frequencies : ndarray of shape (m, d)
        ``omega_j``.
    centre, half_width : ndarray of shape (d,)
        The box, in the units of the kernel.
    log_density : ndarray of shape (m,)
        ``log s(omega_j)`` of the kernel that the basis was built for.
    """

    frequencies: Any
    centre: Any
    half_width: Any
    log_density: Any

    @classmethod
    def build(
        cls, kernel: Kernel, centre: np.ndarray, half_width: np.ndarray, num_basis: int
    ) -> LaplaceEigenfunctionBasis:
        """Return the functions of largest spectral density.

        Parameters
        ----------
        kernel : Kernel
            One with a spectral density in closed form.
        centre, half_width : ndarray of shape (d,)
        num_basis : int

        Raises
        ------
        ValueError
            For another kernel, or a box without width.
        """
        centre, half_width = np.asarray(centre, float), np.asarray(half_width, float)
        if not np.all(half_width > 0.0):
            raise ValueError(
                f"half_width must be positive, received {half_width!r}: a constant input has no eigenfunctions. Leave "
                "it out."
            )
        # densities of these kernels fall with sum_l (l_l omega_l)^2, whatever their form
        scales = np.broadcast_to(np.asarray(kernel.scales), centre.shape)  # type: ignore[attr-defined]
        # a function comes after all that have fewer half waves along one axis: of none more are needed than functions
        numbers = np.arange(1, num_basis + 1)
        waves = [np.pi * numbers / (2.0 * half) for half in half_width]
        logs = [-0.5 * (scale * wave) ** 2 for scale, wave in zip(scales, waves, strict=True)]
        chosen, _ = largest_products(logs, num_basis)
        frequencies = np.stack(
            [wave[which] for wave, which in zip(waves, chosen.T, strict=True)], axis=1
        )
        with precision("float64"):
            log_density = np.asarray(log_spectral_density(kernel, jnp.asarray(frequencies)))
        return cls(frequencies, centre, half_width, log_density)

    @property
    def num_basis(self) -> int:
        """Number of functions ``m``."""
        return int(self.frequencies.shape[0])

    def features(self, X: Float[Array, "n d"], indices: Int[Array, " b"]) -> Float[Array, "n b"]:
        """Return chosen functions at the rows of ``X``; outside the box they continue as the sines they are."""
        frequencies = jnp.asarray(self.frequencies, X.dtype)[indices]
        half = jnp.asarray(self.half_width, X.dtype)
        shifted = X - jnp.asarray(self.centre, X.dtype) + half

        def times(product: Array, axis: tuple[Array, Array]) -> tuple[Array, None]:
            x, omega = axis
            return product * jnp.sin(x[:, None] * omega), None

        scale = 0.5 * (jnp.asarray(self.log_density, X.dtype)[indices] - jnp.sum(jnp.log(half)))
        start = jnp.broadcast_to(jnp.exp(scale), (X.shape[0], indices.shape[0]))
        return jax.lax.scan(times, start, (shifted.T, frequencies.T))[0]
