"""Stationary kernels with one lengthscale per input (ARD).

Each kernel knows its spectral density as a scale mixture of Gaussians: the frequency of a
random Fourier feature is ``normal / lengthscale * spectral_scale``.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.kernels.base import (
    Kernel,
    check_for_each_feature,
    check_same_columns,
    for_each_feature,
    numbers_of_inputs,
    positive,
    rows_of_both,
)
from vastgp.kernels.distance import squared_distance

_SQRT3 = 3.0**0.5
_SQRT5 = 5.0**0.5


class Stationary(Kernel):
    """A kernel of the distance between inputs divided by their lengthscales.

    Parameters
    ----------
    lengthscales : float or array of shape (d,), default 1.0
        In the units of the inputs (of the standardised inputs when given to an
        estimator, which reports them back in the inputs' own units as ``kernel_``).
    variance : float, default 1.0
        Prior variance of the function.
    inputs : sequence of int, optional
        For every column of the inputs, the number of its lengthscale: columns that together say one thing, as the
        indicators of the levels of a category do, then have one, and one unit: estimators scale them together. None:
        each column has its own, or all have one.
    """

    lengthscales: Any
    variance: Any
    inputs: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def __init__(self, lengthscales: Any = 1.0, variance: Any = 1.0, inputs: Any = None) -> None:
        self.lengthscales = positive("lengthscales", lengthscales)
        self.variance = positive("variance", variance, one=True)
        self.inputs = None if inputs is None else numbers_of_inputs(inputs)
        if self.inputs is not None and np.ndim(self.lengthscales):
            check_for_each_feature(self.lengthscales, max(self.inputs) + 1)

    @property
    def scales(self) -> Any:
        """Lengthscales of the columns: one for all of them, or of shape (d,)."""
        if self.inputs is None or np.size(self.lengthscales) == 1:
            return self.lengthscales
        return self.lengthscales[np.asarray(self.inputs)]

    @abc.abstractmethod
    def correlation(self, r2: Any) -> Any:
        """Return the correlation at squared scaled distance ``r2``: a NumPy array of a NumPy array."""

    def correlation_slope(self, r2: np.ndarray, correlation: np.ndarray) -> np.ndarray:
        """Return the derivative of the correlation by ``r2``, given both.

        A kernel that has it needs no compiled program for matrices of few rows (`vastgp.kernels.dense`).
        """
        raise NotImplementedError

    def shape_slopes(self, r2: np.ndarray, correlation: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the derivatives by hyperparameters other than lengthscales and variance, in their order."""
        return ()

    @abc.abstractmethod
    def spectral_scale(self, normals: Float[Array, "b a"], key: Array) -> Any:
        """Return the multiplier of each of ``b`` Gaussian frequencies.

        Parameters
        ----------
        normals : Array of shape (b, num_auxiliary)
            Independent standard normals.
        key : Array of shape (b,)
            PRNG keys, for densities that normals alone cannot give.
        """

    @property
    def num_auxiliary(self) -> int:
        """Number of standard normals that `spectral_scale` consumes per frequency."""
        return 0

    def __call__(self, X: Any, Z: Any) -> Float[Array, "n m"]:
        X, Z = rows_of_both(X, Z)
        self._check_columns(X.shape[1])
        # Hyperparameters follow the inputs' precision, so float64 defaults never promote.
        scales = jnp.asarray(self.scales, dtype=X.dtype)
        r2 = squared_distance(X / scales, Z / scales)
        return jnp.asarray(self.variance, dtype=X.dtype) * self.correlation(r2)

    def total_variance(self) -> Any:
        return self.variance

    def spectral_terms(self) -> tuple[tuple[Stationary, ...], ...]:
        return ((self,),)

    def _check_columns(self, num_features: int) -> None:
        if self.inputs is None:
            check_for_each_feature(self.lengthscales, num_features)
        else:
            check_same_columns(self.inputs, num_features)

    def _replace(self, lengthscales: Any, variance: Any) -> Stationary:
        return eqx.tree_at(lambda k: (k.lengthscales, k.variance), self, (lengthscales, variance))

    def with_ard(self, num_features: int) -> Stationary:
        if self.inputs is not None:
            check_same_columns(self.inputs, num_features)
            num_features = max(self.inputs) + 1
        scales = for_each_feature(self.lengthscales, num_features)
        return self._replace(scales, np.asarray(self.variance))

    def with_inputs(self, inputs: Sequence[int]) -> Stationary:
        if self.inputs == tuple(inputs):
            return self.with_ard(len(inputs))
        # those that were apart meet at their geometric mean
        logs = np.log(for_each_feature(self.scales, len(inputs)))
        means = np.bincount(inputs, logs) / np.bincount(inputs)
        return dataclasses.replace(self, lengthscales=np.exp(means), inputs=tuple(inputs))

    def in_units(self, x_scale: Any, y_scale: float) -> Stationary:
        # in float64 whatever the fit's precision: targets of 1e-25 have a variance that float32 has not
        x_scale = np.asarray(x_scale, dtype=np.float64)
        if self.inputs is not None and x_scale.size > 1:
            # those that share a lengthscale share a unit
            x_scale = x_scale[np.unique(self.inputs, return_index=True)[1]]
        return self._replace(
            np.asarray(self.lengthscales, dtype=np.float64) * x_scale,
            np.asarray(self.variance, dtype=np.float64) * y_scale**2,
        )


class RBF(Stationary):
    """Squared exponential kernel ``variance * exp(-r^2 / 2)``: very smooth functions."""

    def correlation(self, r2: Any) -> Any:
        return _numbers(r2).exp(-0.5 * r2)

    def correlation_slope(self, r2: np.ndarray, correlation: np.ndarray) -> np.ndarray:
        return -0.5 * correlation

    def spectral_scale(self, normals: Float[Array, "b a"], key: Array) -> Any:
        return jnp.ones(normals.shape[0], dtype=normals.dtype)


class _Matern(Stationary):
    """Matern kernel of half-integer order: spectral density multivariate Student-t, 2 nu dof."""

    @property
    def _twice_order(self) -> int:
        raise NotImplementedError

    @property
    def num_auxiliary(self) -> int:
        return self._twice_order

    def spectral_scale(self, normals: Float[Array, "b a"], key: Array) -> Any:
        # t with 2 nu degrees of freedom = normal / sqrt(chi^2_{2 nu} / (2 nu))
        return jnp.sqrt(self._twice_order / jnp.sum(normals**2, axis=1))


@jax.custom_jvp
def _traced_sqrt(r2: Array) -> Array:
    """Return the square root with derivative 0 at coincident rows, where every Matern is flat or a cusp.

    Not the usual ``where(r2 > 0, sqrt(where(r2 > 0, r2, 1)), 0)``: XLA's CPU backend (jaxlib 0.10.2) miscompiles it.
    Jitted together with its gradient, at some sizes up to 128 rows, coincident rows are given the distance 1
    (tests/kernels/test_compiled_gradients.py).
    """
    return jnp.sqrt(r2)


@_traced_sqrt.defjvp
def _traced_sqrt_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (r2,), (by_r2,) = primals, tangents
    r = jnp.sqrt(r2)
    # Rows that are the same may lie 1e-16 apart by rounding: a slope of 1e16 would leave nothing but cancellation.
    slope = jnp.where(r2 > 1e-24, 0.5 / jnp.maximum(r, 1e-12), 0.0)
    return r, slope * by_r2


def _safe_sqrt(r2: Any) -> Any:
    return np.sqrt(r2) if isinstance(r2, np.ndarray) else _traced_sqrt(r2)


def _numbers(values: Any) -> Any:
    """Return the library that an array is of."""
    return np if isinstance(values, np.ndarray) else jnp


class Matern12(_Matern):
    """Exponential kernel ``variance * exp(-r)``: continuous, nowhere smooth functions."""

    @property
    def _twice_order(self) -> int:
        return 1

    def correlation(self, r2: Any) -> Any:
        return _numbers(r2).exp(-_safe_sqrt(r2))

    def correlation_slope(self, r2: np.ndarray, correlation: np.ndarray) -> np.ndarray:
        # of rows nearer than this only cancellation would be left; the same row has no slope
        return np.where(r2 > 0.0, -0.5 * correlation / np.maximum(np.sqrt(r2), 1e-8), 0.0)


class Matern32(_Matern):
    """Matern-3/2 ``variance * (1 + sqrt(3) r) exp(-sqrt(3) r)``: once differentiable."""

    @property
    def _twice_order(self) -> int:
        return 3

    def correlation(self, r2: Any) -> Any:
        r = _SQRT3 * _safe_sqrt(r2)
        return (1.0 + r) * _numbers(r2).exp(-r)

    def correlation_slope(self, r2: np.ndarray, correlation: np.ndarray) -> np.ndarray:
        # -3/2 exp(-r)
        return -1.5 * correlation / (1.0 + _SQRT3 * np.sqrt(r2))


class Matern52(_Matern):
    """Matern-5/2 ``variance * (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)``: twice differentiable."""

    @property
    def _twice_order(self) -> int:
        return 5

    def correlation(self, r2: Any) -> Any:
        r = _SQRT5 * _safe_sqrt(r2)
        return (1.0 + r + (5.0 / 3.0) * r2) * _numbers(r2).exp(-r)

    def correlation_slope(self, r2: np.ndarray, correlation: np.ndarray) -> np.ndarray:
        # -5/6 (1 + r) exp(-r)
        r = 1.0 + _SQRT5 * np.sqrt(r2)
        return (-5.0 / 6.0) * correlation * r / (r + (5.0 / 3.0) * r2)


class RationalQuadratic(Stationary):
    """Rational quadratic ``variance * (1 + r^2 / (2 alpha))^-alpha``: RBFs of many lengthscales.

    Parameters
    ----------
    lengthscales, variance, inputs
        As in every stationary kernel.
    alpha : float, default 1.0
        Mixture of lengthscales: large values approach the RBF.
    """

    alpha: Any = 1.0

    def __init__(
        self, lengthscales: Any = 1.0, variance: Any = 1.0, alpha: Any = 1.0, inputs: Any = None
    ) -> None:
        super().__init__(lengthscales, variance, inputs)
        self.alpha = positive("alpha", alpha, one=True)

    def correlation(self, r2: Any) -> Any:
        xp = _numbers(r2)
        alpha = xp.asarray(self.alpha, dtype=r2.dtype)
        return xp.exp(-alpha * xp.log1p(r2 / (2.0 * alpha)))

    def correlation_slope(self, r2: np.ndarray, correlation: np.ndarray) -> np.ndarray:
        return -0.5 * correlation / (1.0 + r2 / (2.0 * np.asarray(self.alpha)))

    def shape_slopes(self, r2: np.ndarray, correlation: np.ndarray) -> tuple[np.ndarray, ...]:
        ratio = r2 / (2.0 * np.asarray(self.alpha))
        return (correlation * (ratio / (1.0 + ratio) - np.log1p(ratio)),)

    def spectral_scale(self, normals: Float[Array, "b a"], key: Array) -> Any:
        # (1 + r^2/(2 a))^-a = E[exp(-t r^2 / 2)] with t ~ Gamma(shape a, rate a)
        alpha = jnp.asarray(self.alpha, dtype=normals.dtype)
        draw = jax.vmap(lambda k: jax.random.gamma(k, alpha, dtype=normals.dtype))(key)
        return jnp.sqrt(draw / alpha)
