"""Kernels of the straight line between points that are put on a circle or on a sphere first.

A kernel of the distance in a space of two or three dimensions is one on any curve or surface in it. Along the curve
itself it need not be: of the Matern kernels only the roughest keeps positive eigenvalues with the distance around a
circle or over a sphere (Gneiting 2013, "Strictly and non-strictly positive definite functions on spheres").
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.data.coordinates import chord_points
from vastgp.kernels.base import Kernel, positive, rows_of_both
from vastgp.kernels.stationary import Matern52, Stationary


class Embedded(Kernel):
    """A stationary kernel of points that inputs are put to; it has one lengthscale."""

    kernel: Stationary

    @abc.abstractmethod
    def embed(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the points of the rows."""

    @abc.abstractmethod
    def check_columns(self, num_features: int) -> None:
        """Refuse another number of inputs than the kernel has."""

    def __call__(self, X: Any, Z: Any) -> Float[Array, "n m"]:
        X, Z = rows_of_both(X, Z)
        self.check_columns(X.shape[1])
        return self.kernel(self.embed(X), self.embed(Z))

    def total_variance(self) -> Any:
        return self.kernel.total_variance()

    def spectral_terms(self) -> tuple[tuple[Any, ...], ...]:
        raise ValueError(
            f"the {type(self).__name__} kernel has no spectral density over its inputs, so random features cannot draw "
            "from it. Use it with GridGP."
        )

    def with_ard(self, num_features: int) -> Kernel:
        self.check_columns(num_features)
        return dataclasses.replace(self, kernel=self.kernel.with_ard(1))


def _with_one_lengthscale(kernel: Any, default: Any, what: str) -> Stationary:
    found = default if kernel is None else kernel
    if not isinstance(found, Stationary) or np.size(found.lengthscales) != 1 or found.inputs:
        raise ValueError(
            f"kernel of {what} must be a stationary kernel with one lengthscale, such as Matern52(20.0); received "
            f"{kernel!r}. Sums and products are made of whole kernels: {what}(...) + {what}(...)."
        )
    return found


class Cyclic(Embedded):
    """A kernel around a circle: an input that closes after a period, such as longitude or the hour of the day.

    ``kernel`` of the distance between points of a circle of circumference ``period``, straight through it:
    ``period / pi |sin(pi (x - z) / period)|``. That is the difference of the inputs where it is small, so that a
    lengthscale is in the units of the input. With an RBF it is the `Periodic` kernel in other units.

    Parameters
    ----------
    period : float, default 360.0
        In the units of the input: degrees of longitude.
    kernel : Stationary, optional
        With one lengthscale, in the units of the input, and the variance. Matern-5/2 with a lengthscale of a tenth of
        the period by default.
    """

    kernel: Stationary
    period: float = eqx.field(static=True)

    def __init__(self, period: Any = 360.0, kernel: Any = None) -> None:
        self.period = float(np.asarray(positive("period", period, one=True)))
        self.kernel = _with_one_lengthscale(kernel, Matern52(0.1 * self.period, 1.0), "Cyclic")

    def embed(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        radius, angle = self.period / (2.0 * jnp.pi), 2.0 * jnp.pi / self.period * X[:, 0]
        return radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)

    def check_columns(self, num_features: int) -> None:
        if num_features != 1:
            raise ValueError(
                f"a Cyclic kernel is of one input, and received {num_features}. Give each input a kernel of its own, "
                "or latitude and longitude together an OnSphere kernel."
            )

    def in_units(self, x_scale: Any, y_scale: float) -> Cyclic:
        scale = float(np.ravel(np.asarray(x_scale, dtype=np.float64))[0])
        return Cyclic(
            np.asarray(self.period, dtype=np.float64) * scale, self.kernel.in_units(scale, y_scale)
        )


class OnSphere(Embedded):
    """A kernel over the Earth, of latitude and longitude in degrees, in this order.

    ``kernel`` of the distance in kilometres between two points of the surface, straight through the Earth: 1 % shorter
    than over the ground at 3,100 km, and 36 % from pole to pole. It knows no seam and no poles.

    Parameters
    ----------
    kernel : Stationary, optional
        With one lengthscale, in kilometres, and the variance. Matern-5/2 with a lengthscale of 1,000 km by default.
    """

    kernel: Stationary

    def __init__(self, kernel: Any = None) -> None:
        self.kernel = _with_one_lengthscale(kernel, Matern52(1000.0, 1.0), "OnSphere")

    def embed(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        points: Array = chord_points(X[:, 0], X[:, 1], jnp)
        return points

    def check_columns(self, num_features: int) -> None:
        if num_features != 2:
            raise ValueError(
                f"an OnSphere kernel is of latitude and longitude, and received {num_features} inputs. Give it to the "
                "group of both: kernels={('lat', 'lon'): OnSphere()}."
            )

    def in_units(self, x_scale: Any, y_scale: float) -> OnSphere:
        if np.any(np.asarray(x_scale, dtype=np.float64) != 1.0):
            raise ValueError(
                "an OnSphere kernel takes latitude and longitude in degrees, and these inputs are scaled. Use it with "
                "GridGP, which leaves coordinates in their units."
            )
        return OnSphere(self.kernel.in_units(1.0, y_scale))
