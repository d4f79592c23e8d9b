"""The kernels of linear functions and of constants."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.kernels.base import (
    Kernel,
    check_for_each_feature,
    for_each_feature,
    positive,
    rows,
    rows_of_both,
)


class _Parametric(Kernel):
    """Kernel of functions of few parameters, which correlate however far apart two rows are."""

    def spectral_terms(self) -> tuple[tuple[Any, ...], ...]:
        raise ValueError(
            f"the {type(self).__name__} kernel does not fall with distance, so it has no spectrum to draw waves or "
            "grids from. Use it with ExactGPRegressor, SVGPRegressor, TSVGPRegressor, SWSGPRegressor or their "
            "classifiers."
        )


class Linear(_Parametric):
    """Kernel ``sum_j slope_variances_j x_j z_j`` of linear functions with independent normal slopes.

    Added to a stationary kernel it carries a trend beyond the data, where that kernel alone goes back to the mean.
    Inputs are measured from their training mean, where every such function is zero; the target's mean is the level
    there. The prior variance of the function grows with the distance from it, so methods that rely on a spectrum
    (random features, QSGP, grids) refuse it.

    Parameters
    ----------
    slope_variances : float or array of shape (d,), default 1.0
        Prior variance of the slope by each input, in squared units of the target over those of the input. One that
        learning makes tiny says that the input has no trend.
    """

    slope_variances: Any

    def __init__(self, slope_variances: Any = 1.0) -> None:
        self.slope_variances = positive("slope_variances", slope_variances)

    def __call__(self, X: Any, Z: Any) -> Float[Array, "n m"]:
        X, Z = rows_of_both(X, Z)
        return jnp.matmul(X * self._variances(X), Z.T, precision="highest")

    @property
    def constant_variance(self) -> bool:
        return False

    def diag(self, X: Any) -> Float[Array, " n"]:
        X = rows("X", X)
        return jnp.sum(self._variances(X) * X**2, axis=1)

    def _variances(self, X: Array) -> Array:
        check_for_each_feature(self.slope_variances, X.shape[1], "slope variance")
        return jnp.asarray(self.slope_variances, dtype=X.dtype)

    def total_variance(self) -> Any:
        """Return the mean variance at rows whose inputs have variance one: the sum over the inputs."""
        xp = np if isinstance(self.slope_variances, np.ndarray) else jnp
        return xp.sum(self.slope_variances)

    def with_ard(self, num_features: int) -> Linear:
        return Linear(for_each_feature(self.slope_variances, num_features, "slope variance"))

    def in_units(self, x_scale: Any, y_scale: float) -> Linear:
        # inputs of 1e-100 and targets of 1e100 are numbers, and the square of the slope between them is none
        with np.errstate(over="ignore", under="ignore"):
            values = (
                np.asarray(self.slope_variances)
                * (y_scale / np.asarray(x_scale, dtype=np.float64)) ** 2
            )
        limits = np.finfo(np.float64)
        return Linear(np.clip(values, limits.tiny, limits.max))


class Constant(_Parametric):
    """Kernel of functions that are the same everywhere: a level that is learned rather than the targets' mean.

    Added to another kernel it says where the function returns to far from the data. Targets are centred, so without it
    that is their mean; where most of them lie at one end of their range and few far above it, another level lets the
    rest of the kernel have a far smaller variance.

    Parameters
    ----------
    variance : float, default 1.0
        Prior variance of the level, in squared units of the target.
    """

    variance: Any

    def __init__(self, variance: Any = 1.0) -> None:
        self.variance = positive("variance", variance, one=True)

    def __call__(self, X: Any, Z: Any) -> Float[Array, "n m"]:
        X, Z = rows_of_both(X, Z)
        return jnp.full((X.shape[0], Z.shape[0]), self.variance, dtype=X.dtype)

    def total_variance(self) -> Any:
        return self.variance

    def with_ard(self, num_features: int) -> Constant:
        return self

    def in_units(self, x_scale: Any, y_scale: float) -> Constant:
        return Constant(np.asarray(self.variance, dtype=np.float64) * y_scale**2)
