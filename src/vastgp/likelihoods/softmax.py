"""More than two classes, one latent function for each."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import erfc, logsumexp, softmax

from vastgp.likelihoods.base import number_of_points
from vastgp.likelihoods.class_weights import checked_weights, weights_of
from vastgp.likelihoods.quadrature import array_module, evenly, floored_std
from vastgp.likelihoods.several_classes import SeveralClasses, number_of_classes, of_label

# Nodes over the largest of the disturbed values, half a unit apart where the standard deviations are about 1.
# Functions of very different variances ask for most: with 0.1 beside 100 a hundredth of the precisions is lost.
_OUTER_POINTS = 48
# A Gumbel variable is below -3 with probability 2e-9 and above 15 with 3e-7; a normal one lies within 6 deviations.
_BELOW, _ABOVE, _DEVIATIONS = 3.0, 15.0, 6.0
# Nodes for minibatches: with them precisions err by 1e-3 at most, at variances around 4.
_ROUGH_POINTS = 24
# Above this variance of a function the average over its Gumbel variable is the one that nodes resolve.
_WIDE, _GUMBEL_POINTS = 4.0, 24
_EULER_GAMMA = 0.5772156649015329
_SMALLEST = 1e-35
# Moments up to which NumPy is given the averages of NumPy's arrays. It takes 10 ms for 64 rows of three classes and
# 70 ms for 512, a program 2 and 22 ms, whose compilation takes 1.5 s: that is worth 200 calls of few rows, 30 of many.
_IN_NUMPY = 400

Numbers = Array | np.ndarray
Parts = tuple[Numbers, Numbers, Numbers]


class Softmax(SeveralClasses):
    """Labels ``y`` in {0, ..., C - 1} with ``p(y = c | f) = exp(f_c) / sum_k exp(f_k)``.

    There are C latent functions, independent under prior and approximate posterior. Arrays of latent values or moments
    have them as the *first* axis, ``(C, *s)`` where ``y`` is ``(*s)``; otherwise the methods are those of every
    likelihood. Predictive moments and the median are those of the C indicators of ``y = c``.

    Averages over all C functions are one-dimensional: with independent Gumbel variables ``G_c``

        softmax_c(f) = P(f_c + G_c is the largest),    log sum_c exp(f_c) = E[max_c (f_c + G_c)] - gamma

    (Gumbel 1954; Train 2009, section 3.10), and when the ``f_c`` are independent and normal so are their sums with
    ``G_c``, whose distribution functions ``F_c(u) = E[exp(-exp(f_c - u))]`` are averages of one variable:

        E[softmax_c] = int F_c'(u) prod_{k != c} F_k(u) du.

    Parameters
    ----------
    num_classes : int
        C >= 2.
    points : int
        Quadrature nodes for each distribution function; 48 keep the error of probabilities below 2e-6.
    class_weights : sequence of C positive numbers, optional
        What a row of each class counts in a fit; predictive quantities know nothing of them.
    """

    name: ClassVar[str] = "softmax"
    shift_invariant: ClassVar[bool] = True
    in_numpy = frozenset(
        {
            "expected_log_prob",
            "sites",
            "value_and_sites",
            "bound_and_sites",
            "predictive_mean",
            "predictive_variance",
            "log_density",
        }
    )
    most_in_numpy: ClassVar[float] = _IN_NUMPY
    # three averages at once, of as many nodes over a distribution function
    nodes_for_each: ClassVar[int] = 3 * _OUTER_POINTS**2
    num_classes: int = eqx.field(static=True)
    class_weights: tuple[float, ...] | None = eqx.field(static=True)
    points: int = eqx.field(static=True)

    def __init__(
        self, num_classes: Any = 3, points: Any = 48, *, class_weights: Any = None
    ) -> None:
        self.num_classes = number_of_classes(num_classes)
        self.class_weights = checked_weights(class_weights, self.num_classes)
        self.points = number_of_points(points)

    def rough(self) -> Softmax:
        """Return the likelihood with half the nodes."""
        points = min(self.points, _ROUGH_POINTS)
        return Softmax(self.num_classes, points, class_weights=self.class_weights)

    def log_prob(self, y: Any, f: Any) -> Any:
        """Return ``log p(y | f) = f_y - log sum_c exp(f_c)``."""
        return of_label(jax.nn.log_softmax(jnp.asarray(f), axis=0), y)

    def expected_log_prob(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return ``E[log p(y | f)]`` for independent ``f_c ~ N(mean_c, variance_c)``, times the weight of the class."""
        mean, variance = _moments(mean, variance)
        if isinstance(mean, np.ndarray):
            average = _averages(self.points, mean, variance)[2]
        else:
            average = _mean_of_logsumexp(self.points, mean, variance)
        value = of_label(mean, y) - average
        return value * weights_of(self.class_weights, y, mean.dtype)

    def sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return ``alpha_c = 1[y = c] - E[p_c]`` and ``beta_c = E[p_c (1 - p_c)]``, times the weight of the class.

        ``beta`` is the diagonal of minus the second derivative: all that independent functions see of it.
        """
        return self.value_and_sites(y, mean, variance)[1:]

    def value_and_sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
        """Return what `expected_log_prob` and `sites` do, from the same averages."""
        mean, variance = _moments(mean, variance)
        probability, bend, average = _averages(self.points, mean, variance)
        weight = weights_of(self.class_weights, y, mean.dtype)
        value = (of_label(mean, y) - average) * weight
        observed = self.is_label(y, mean.ndim)
        return value, (observed.astype(mean.dtype) - probability) * weight, bend * weight

    def plug_in_sites(self, y: Any, f: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ``log p_y``, ``1[y = c] - p_c`` and ``p_c (1 - p_c)`` at latent values, times the class's weight."""
        f = np.asarray(f, np.float64)
        probability, weight = softmax(f, axis=0), weights_of(self.class_weights, y, f.dtype)
        value = of_label(f, y) - logsumexp(f, axis=0)
        observed = self.is_label(y, f.ndim).astype(np.float64)
        bend = probability * (1.0 - probability)
        return value * weight, (observed - probability) * weight, bend * weight

    def curvature_along(self, y: Any, mean: Any, variance: Any, change: Any) -> Any:
        """Return ``E[sum_c p_c d_c^2 - (sum_c p_c d_c)^2]``, times the weight of the class.

        To first order in the functions' variances; covariances of the probabilities, which are of that order, are left
        out of the second term.
        """
        mean, variance = _moments(mean, variance)
        p, bend, _ = _averages(self.points, mean, variance)
        weight = weights_of(self.class_weights, y, mean.dtype)
        # E[p^2] = p - bend
        spread = jnp.maximum(p - bend - p**2, 0.0)
        second = jnp.sum(p * change, axis=0) ** 2 + jnp.sum(spread * change**2, axis=0)
        return (jnp.sum(p * change**2, axis=0) - second) * weight

    def most_curvature(self) -> float:
        """Return 1/2, the largest eigenvalue that ``diag(p) - p p^T`` can have (Boehning 1992), times the weights'."""
        return 0.5 * max(self.class_weights or (1.0,))

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``log E[p(y | f)]``."""
        probability = self.predictive_mean(mean, latent_variance)
        xp = array_module(probability)
        return of_label(xp.log(xp.maximum(probability, _SMALLEST)), y)

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return the probability of each class, ``(C, *s)``: they sum to one."""
        return _averages(self.points, *_moments(mean, latent_variance))[0]

    def median(self, mean: Any) -> Any:
        """Return the probabilities at the latent medians."""
        return jax.nn.softmax(jnp.asarray(mean), axis=0)


def _averages(
    points: int, mean: Float[Numbers, "C *s"], variance: Float[Numbers, "C *s"]
) -> tuple[Float[Numbers, "C *s"], Float[Numbers, "C *s"], Float[Numbers, "*s"]]:
    """Return ``E[p_c]``, ``E[p_c (1 - p_c)]`` and ``E[log sum_c exp f_c]``."""
    of = _integrals if isinstance(mean, np.ndarray) else _compiled_integrals
    return of(points, mean, variance)


def _integrals(points: int, mean: Any, variance: Any) -> Parts:
    xp = array_module(mean)
    low, high = _range(mean, variance)
    if xp is jnp:
        # the integrals are the same for any nodes
        low, high = jax.lax.stop_gradient((low, high))
    u, step = evenly(low, high, _OUTER_POINTS)
    F, density, slope = _sum_with_gumbel(points, u, mean, variance)
    others = xp.exp(xp.sum(xp.log(F), axis=0, keepdims=True) - xp.log(F))
    largest = density * others  # density of the maximum where it is that of class c
    total = xp.sum(largest, axis=(0, -1))  # one over the step, but for the error of the rule
    probability = xp.sum(largest, axis=-1) / total
    # d/dvariance_c of E[log sum exp] = -1/2 int F_c'' prod_{k != c} F_k
    bend = xp.maximum(-xp.sum(slope * others, axis=-1) * step, 0.0)
    value = xp.sum(xp.sum(largest, axis=0) * u, axis=-1) / total - _EULER_GAMMA
    return probability, bend, value


# a program of its own: a branch that is taken outside of one is compiled anew at every call
_compiled_integrals = jax.jit(_integrals, static_argnums=0)


def _sum_with_gumbel(
    points: int, u: Float[Numbers, "*s t"], mean: Any, variance: Float[Numbers, "C *s"]
) -> Parts:
    """Return distribution function, density and its slope of ``f_c + G_c`` at ``u``, each (C, *s, t)."""
    xp = array_module(mean)

    def both() -> Parts:
        wide = (variance > _WIDE)[..., None]
        narrow = xp.minimum(variance, _WIDE)
        parts = zip(
            _over_normal(points, u, mean, narrow), _over_gumbel(u, mean, variance), strict=True
        )
        F, density, slope = (xp.where(wide, b, a) for a, b in parts)
        return F, density, slope

    def narrow_alone() -> Parts:
        return _over_normal(points, u, mean, variance)

    any_wide = xp.any(variance > _WIDE)
    if xp is np:
        F, density, slope = both() if any_wide else narrow_alone()
    else:
        F, density, slope = jax.lax.cond(any_wide, both, narrow_alone)
    return xp.maximum(F, _SMALLEST), density, slope


def _over_normal(points: int, u: Any, mean: Any, variance: Any) -> Parts:
    """Return averages over ``f`` of ``exp(-g)``, ``g exp(-g)`` and ``(g^2 - g) exp(-g)`` with ``g = exp(f - u)``.

    The nodes do not depend on ``u``, so that ``g`` is a product of two factors and one exponential a node is all that
    it takes. They are too far apart where ``f`` varies much more than a Gumbel variable.
    """
    xp = array_module(mean)
    z = np.linspace(-_DEVIATIONS, _DEVIATIONS, points, dtype=mean.dtype)
    weights = _shares(xp, -0.5 * z**2)
    rise = floored_std(variance) * z.reshape(-1, *[1] * mean.ndim) + mean - u[..., 0]
    rise, fall = xp.exp(xp.minimum(rise, 80.0)), xp.exp(u[..., :1] - u)

    def add(k: Any, parts: Parts) -> Parts:
        g = rise[k][..., None] * fall
        # from here on it is zero, which NumPy's exponential takes twice as long to find
        E = weights[k] * xp.exp(-xp.minimum(g, 745.0))
        first = g * E
        return parts[0] + E, parts[1] + first, parts[2] + (g - 1.0) * first

    return _summed(xp, points, add, (*mean.shape, u.shape[-1]), mean.dtype)


def _over_gumbel(u: Any, mean: Any, variance: Any) -> Parts:
    """Return averages over the Gumbel variable of the normal distribution function, its density and its slope."""
    xp = array_module(mean)
    # ndtr takes seven times as long in float64
    tail = erfc if xp is np else jax.lax.erfc
    G = np.linspace(-_BELOW, _ABOVE, _GUMBEL_POINTS, dtype=mean.dtype)
    weights = _shares(xp, -G - np.exp(-G))
    std = floored_std(variance)[..., None]
    G = xp.asarray(G)

    def add(k: Any, parts: Parts) -> Parts:
        z = (u - mean[..., None] - G[k]) / std
        density = xp.exp(-0.5 * z**2) * (weights[k] / (2.0 * np.pi) ** 0.5) / std
        below = 0.5 * tail(-z * 0.5**0.5)
        return parts[0] + weights[k] * below, parts[1] + density, parts[2] - z / std * density

    return _summed(xp, _GUMBEL_POINTS, add, (*mean.shape, u.shape[-1]), mean.dtype)


def _shares(xp: Any, exponent: np.ndarray) -> Any:
    weights = np.exp(exponent - np.max(exponent))
    return xp.asarray(weights / np.sum(weights))


def _summed(xp: Any, count: int, add: Any, shape: tuple[int, ...], dtype: Any) -> Parts:
    """Return three sums of ``count`` arrays, which ``add`` adds one after another."""
    parts = (xp.zeros(shape, dtype),) * 3
    if xp is jnp:
        return jax.lax.fori_loop(0, count, add, parts)
    for k in range(count):
        parts = add(k, parts)
    return parts


def _range(mean: Any, variance: Any) -> tuple[Any, Any]:
    """Return where the largest of ``f_c + G_c`` lies."""
    xp = array_module(mean)
    reach = _DEVIATIONS * floored_std(variance)
    low = xp.max(mean - reach, axis=0) - _BELOW
    return low, xp.max(mean + reach, axis=0) + _ABOVE + np.log(mean.shape[0])


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _mean_of_logsumexp(
    points: int, mean: Float[Array, "C *s"], variance: Float[Array, "C *s"]
) -> Any:
    return _averages(points, mean, variance)[2]


@_mean_of_logsumexp.defjvp
def _mean_of_logsumexp_jvp(points: int, primals: Any, tangents: Any) -> tuple[Array, Array]:
    # Bonnet (1964) and Price (1958), see `vastgp.likelihoods.quadrature.expectation`
    probability, bend, value = _compiled_integrals(points, *primals)
    mean_change, variance_change = tangents
    return value, jnp.sum(probability * mean_change + 0.5 * bend * variance_change, axis=0)


def _moments(mean: Any, variance: Any) -> tuple[Any, Any]:
    """Return both as floating point arrays of one shape: few of NumPy stay NumPy's."""
    xp = array_module(mean, variance)
    if xp is np:
        mean, variance = np.broadcast_arrays(
            *(np.asarray(part, float) for part in (mean, variance))
        )
        if mean.size <= _IN_NUMPY:
            return mean, variance
    mean, variance = jnp.asarray(mean), jnp.asarray(variance)
    dtype = jnp.result_type(float, mean, variance)
    mean, variance = jnp.broadcast_arrays(mean.astype(dtype), variance.astype(dtype))
    return mean, variance
