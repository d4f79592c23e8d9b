"""A kernel that repeats with a stated period."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.kernels.base import (
    Kernel,
    check_for_each_feature,
    for_each_feature,
    positive,
    rows_of_both,
)


class Periodic(Kernel):
    """Periodic kernel ``variance * exp(-2 sum_j sin^2(pi (x_j - z_j) / period) / lengthscale_j^2)``.

    The RBF of points on a circle (Rasmussen & Williams 2006, eq. 4.31). The period is stated, not learned: a year in
    the units of the input, say. Times a kernel with a long lengthscale it changes slowly from one period to the next.

    Parameters
    ----------
    period : float
        In the units of the input.
    lengthscales : float or array of shape (d,), default 1.0
        A pure number: below 1 the function has several humps in a period.
    variance : float, default 1.0
        Prior variance of the function.
    """

    lengthscales: Any
    variance: Any
    period: float = eqx.field(static=True)

    def __init__(self, period: Any, lengthscales: Any = 1.0, variance: Any = 1.0) -> None:
        self.lengthscales = positive("lengthscales", lengthscales)
        self.variance = positive("variance", variance, one=True)
        self.period = float(np.asarray(positive("period", period, one=True)))

    def __call__(self, X: Any, Z: Any) -> Float[Array, "n m"]:
        X, Z = rows_of_both(X, Z)
        check_for_each_feature(self.lengthscales, X.shape[1])
        scales = jnp.broadcast_to(jnp.asarray(self.lengthscales, dtype=X.dtype), (X.shape[1],))
        exponent = jnp.zeros((X.shape[0], Z.shape[0]), dtype=X.dtype)
        for j in range(X.shape[1]):
            sine = jnp.sin(jnp.pi * (X[:, j, None] - Z[None, :, j]) / self.period)
            exponent = exponent + (sine / scales[j]) ** 2
        return jnp.asarray(self.variance, dtype=X.dtype) * jnp.exp(-2.0 * exponent)

    def total_variance(self) -> Any:
        return self.variance

    def spectral_terms(self) -> tuple[tuple[Any, ...], ...]:
        raise ValueError(
            "the Periodic kernel has a spectrum of lines, not a density, so random features cannot draw from it. Use "
            "it with GridGP or ExactGPRegressor."
        )

    def with_ard(self, num_features: int) -> Periodic:
        scales = for_each_feature(self.lengthscales, num_features)
        return Periodic(self.period, scales, self.variance)

    def in_units(self, x_scale: Any, y_scale: float) -> Periodic:
        scale = np.unique(np.asarray(x_scale, dtype=np.float64))
        if scale.size != 1:
            raise ValueError(
                f"a Periodic kernel has one period for all inputs, and these have scales {scale.tolist()}. Use a "
                "product of kernels of single inputs (GridGP), or inputs of one scale."
            )
        variance = np.asarray(self.variance, dtype=np.float64) * y_scale**2
        return Periodic(
            np.asarray(self.period, dtype=np.float64) * scale[0], self.lengthscales, variance
        )
