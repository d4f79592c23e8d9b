"""Averages of a likelihood over a Gaussian latent value, accurate at any latent variance.

Gauss-Hermite nodes are placed by the latent's own width. Where the likelihood changes within a small part of that
width (a Student-t of scale 0.05 under a latent standard deviation of 5) few of them meet the change: with 20 nodes the
error of ``E[(log p)'']`` is of its own size, with 64 hardly less. The rule here places its nodes by both widths,

    z(u) = z_c + delta sinh(u),    u evenly spaced,    f = mean + sqrt(variance) z,

closely around the place ``z_c`` where the likelihood changes and in a geometric progression away from it. The
trapezoid rule converges geometrically for such smooth integrands (Trefethen and Weideman 2014, "The exponentially
convergent trapezoidal rule", SIAM Review 56). Measured over means from -12 to 20 and variances from 1e-6 to 100:
32 nodes reach 2e-6 for both Bernoulli links (20 Gauss-Hermite nodes: 0.5), 48 reach 6e-5 for Student-t with scales
down to 0.05.

A likelihood used here has ``points`` (number of nodes) and ``feature(y)``: centre and width, in units of ``f``, of
the place where its logarithm is not a low polynomial; the width is about the distance from the real axis to the
nearest singularity in the complex plane, which is what limits the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

Values = Float[Array, "*s"]
Nodes = Float[Array, "*s k"]
# Of either array module.
Moments = Float[Array, "*s"] | Float[np.ndarray, "*s"]

_REACH = 7.5  # standard deviations on either side: what is left out is below 1e-13
_FARTHEST = 5.0  # a centre farther out than this is met by almost no mass, and nodes are better spent nearer
_WIDEST = 1.5  # in standard deviations: from here on the Gaussian is the narrower of both
_BISECTIONS = 40


def spread(
    centre: Moments, width: Moments, low: Moments, high: Moments, points: int
) -> tuple[Any, Any]:
    """Return nodes between two ends, closest together around a centre, and their spacing.

    Parameters
    ----------
    centre, width : Array of shape (*s,)
        Half the nodes of one unit of ``u`` lie within about ``width`` of ``centre``.
    low, high : Array of shape (*s,)
        First and last node.
    points : int
        Number of nodes ``k``.
    """
    xp = array_module(centre, width)
    first, last = xp.arcsinh((low - centre) / width), xp.arcsinh((high - centre) / width)
    u, step = evenly(first, last, points)
    # z = z_c + delta sinh(u),  dz/du = delta cosh(u), both from one exponential
    up = 0.5 * xp.exp(u)
    down = 0.25 / up
    nodes = centre[..., None] + width[..., None] * (up - down)
    return nodes, (width * step)[..., None] * (up + down)


def evenly(first: Any, last: Any, points: int) -> tuple[Any, Any]:
    """Return evenly spaced nodes along a new last axis, of the array module that the ends are of, and their spacing."""
    xp = array_module(first)
    step = (last - first) / (points - 1)
    return first[..., None] + step[..., None] * xp.arange(points, dtype=first.dtype), step


def array_module(*values: Any) -> Any:
    """Return `jax.numpy` where one of the values is an array of JAX, else NumPy."""
    return jnp if any(isinstance(value, jax.Array) for value in values) else np


def floored_std(variance: Any) -> Any:
    """Return the square root with a finite gradient: a variance below ``eps^2`` counts as that."""
    xp = array_module(variance)
    return xp.sqrt(xp.maximum(variance, jnp.finfo(variance.dtype).eps ** 2))


def together(*values: Any) -> tuple[Array, ...]:
    """Return values as floating point arrays of one shape and precision."""
    arrays = [jnp.asarray(value) for value in values]
    dtype = jnp.result_type(float, *arrays)
    return tuple(jnp.broadcast_arrays(*(array.astype(dtype) for array in arrays)))


def expectation(
    likelihood: Any, function: str, y: Any, mean: Any, variance: Any, order: int = 0
) -> Values:
    """Return ``E[d^order/df^order function(y, f)]`` for ``f ~ N(mean, variance)``, elementwise.

    Parameters
    ----------
    likelihood : Likelihood
        With ``points`` and ``feature``.
    function : str
        Name of its method of ``(y, f)``; a name, so that hyperparameters stay arguments that can be differentiated.
    y, mean, variance : Array of shape (*s,), or shapes that broadcast
        Targets; moments of the latent value, ``variance >= 0``.
    order : int
        How often the function is differentiated by ``f``.

    Notes
    -----
    Derivatives by the moments are averages of derivatives (Bonnet 1964, Price 1958),

        d/dmean E[g] = E[g'],    d/dvariance E[g] = 1/2 E[g''].

    Differentiating the rule itself would give ``E[g' z] / (2 sqrt(variance))`` for the second: 0/0 without variance,
    and rounding errors over a standard deviation before that.
    """
    return _expectation((function, order), likelihood, *together(y, mean, variance))


def _rule(what: tuple[str, int], likelihood: Any, y: Values, mean: Values, variance: Values) -> Any:
    function, order = what
    g: Callable[[Array], Array] = lambda f: getattr(likelihood, function)(y[..., None], f)  # noqa: E731
    for _ in range(order):
        g = partial(_derivative, g)
    f, weights = nodes_over(likelihood, y, mean, variance)
    return jnp.sum(weights * g(f), axis=-1)


def nodes_over(likelihood: Any, y: Moments, mean: Moments, variance: Moments) -> tuple[Any, Any]:
    """Return values of ``f ~ N(mean, variance)``, closest where ``log p`` bends, and weights that sum to one.

    They are of the array module that the moments are of.
    """
    xp = array_module(mean)
    # any nodes give the same average: nothing is to be learnt from moving them
    held: Callable[[Any], Any] = jax.lax.stop_gradient if xp is jnp else lambda values: values
    std = floored_std(variance)
    centre, width = likelihood.feature(y)
    centre = xp.clip(held((centre - mean) / std), -_FARTHEST, _FARTHEST)
    width = xp.minimum(held(width / std), _WIDEST) + xp.zeros_like(mean)
    end = xp.full_like(mean, _REACH)
    z, spacing = spread(centre, width, -end, end, likelihood.points)
    weights = spacing * xp.exp(-0.5 * z**2)
    return mean[..., None] + std[..., None] * z, weights / xp.sum(weights, axis=-1, keepdims=True)


def averaged(
    likelihood: Any, parts: Callable[[Any, Any], Any], y: Any, mean: Any, variance: Any
) -> tuple[np.ndarray, ...]:
    """Return averages of several functions of a target and a latent value, in NumPy: nodes are the same for all.

    No program is compiled, and of up to 20,000 rows they take a tenth to a half of the time.

    Parameters
    ----------
    likelihood : Likelihood
        With ``points`` and ``feature``.
    parts : callable
        ``parts(y, f)`` gives them.
    y, mean, variance : ndarray of shape (n,)
    """
    f, weights = nodes_over(likelihood, y, mean, variance)
    return tuple(np.einsum("ij,ij->i", weights, part) for part in parts(y[:, None], f))


def _derivative(g: Callable[[Array], Array], f: Array) -> Array:
    return jax.jvp(g, (f,), (jnp.ones_like(f),))[1]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _expectation(
    what: tuple[str, int], likelihood: Any, y: Values, mean: Values, variance: Values
) -> Any:
    return _rule(what, likelihood, y, mean, variance)


@_expectation.defjvp
def _expectation_jvp(what: tuple[str, int], primals: Any, tangents: Any) -> tuple[Array, Array]:
    likelihood, y, mean, variance = primals
    likelihood_change, y_change, mean_change, variance_change = tangents
    value, change = jax.jvp(
        lambda likelihood, y: _rule(what, likelihood, y, mean, variance),
        (likelihood, y),
        (likelihood_change, y_change),
    )
    function, order = what
    slope = _expectation((function, order + 1), *primals)
    bend = _expectation((function, order + 2), *primals)
    return value, change + slope * mean_change + 0.5 * bend * variance_change


def log_average(likelihood: Any, y: Values, mean: Values, variance: Values, mode: Values) -> Values:
    """Return ``log E[p(y | f)]`` of a log-concave likelihood, in relative precision also far out in a tail.

    Parameters
    ----------
    likelihood : Likelihood
        With ``points`` and ``feature``.
    y, mean, variance : Array of shape (*s,)
    mode : Array of shape (*s,)
        Mode of ``log p(y | mean + sqrt(variance) z) - z^2 / 2`` by ``z``, from `mode_between`.

    Notes
    -----
    The logarithm of the integrand has curvature -1 or below everywhere, so its mass lies within a few units of its
    mode, wherever that is: nodes around the prior's own centre would miss it.
    """
    std = floored_std(variance)
    centre, width = (jax.lax.stop_gradient(part / std) for part in likelihood.feature(y))
    centre = centre - jax.lax.stop_gradient(mean / std)
    curvature = -_derivative(
        partial(_derivative, lambda z: likelihood.log_prob(y, mean + std * z)), mode
    )
    narrow = jax.lax.stop_gradient(1.0 / jnp.sqrt(1.0 + jnp.maximum(curvature, 0.0)))
    centre = jnp.clip(centre, mode - _FARTHEST * narrow, mode + _FARTHEST * narrow)
    width = jnp.minimum(jnp.minimum(width, 3.0 * narrow), _WIDEST)
    z, spacing = spread(centre, width, mode - _REACH, mode + _REACH, likelihood.points)
    # log p(y) = log int p(y | m + s z) N(z | 0, 1) dz
    inside = likelihood.log_prob(y[..., None], mean[..., None] + std[..., None] * z)
    return logsumexp(inside - 0.5 * z**2, axis=-1, b=spacing) - 0.5 * jnp.log(2.0 * jnp.pi)


def mode_between(
    likelihood: Any, y: Values, mean: Values, variance: Values, low: Values, high: Values
) -> Values:
    """Return the mode that `log_average` wants by bisection of its slope, which falls monotonically."""
    likelihood, y, mean, variance, low, high = jax.lax.stop_gradient(
        (likelihood, y, mean, variance, low, high)
    )
    std = floored_std(variance)

    def halve(_: Any, ends: tuple[Values, Values]) -> tuple[Values, Values]:
        low, high = ends
        middle = 0.5 * (low + high)
        slope = std * _derivative(lambda f: likelihood.log_prob(y, f), mean + std * middle) - middle
        return jnp.where(slope > 0, middle, low), jnp.where(slope > 0, high, middle)

    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (low, high))
    return 0.5 * (low + high)
