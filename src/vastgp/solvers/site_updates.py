"""One update of the sites that a mean and samples ask for: pure functions of arrays, by tiles of rows.

The mean goes up ``L(u) = sum_i E[log p(y_i | f_i)] - 1/2 u^T K u`` with ``f_i ~ N(m_i, v_i)``, ``m = K u`` and
variances that are held: the evidence bound as a function of the mean (Opper and Archambeau 2009). Sites of precision
``beta`` and linear part ``beta m + u`` have the mean ``m`` exactly, and the slope of L there is ``alpha - u`` with
``alpha = d E[log p] / dm``. So conjugate gradients on the next sites' system that begin at ``u`` go uphill, wherever
they are stopped: as ``K u`` is known of both ends, how far is found without a further product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vastgp._programs import program
from vastgp.fitting.damped_updates import next_rate, toward
from vastgp.fitting.dual_evidence import Sites, local_sites
from vastgp.likelihoods import Likelihood

# Precisions in float32: the root of the least one still leaves digits. A site of less says nothing, and as it is the
# residual ``alpha`` that holds the mean in place, raising its precision does not move the mean.
LEAST_PRECISION = 1e-6
_LEAST_RATE = 0.125
# Halvings of a step, and by what share of its terms L may fall: they are sums in the precision of the rows.
_MOST_HALVINGS, _ROUNDING = 10, 1e-5
_TILE = 8192


class State(NamedTuple):
    """Sites of C functions at n rows, the mean and samples that they have, and the length of the next update.

    Attributes
    ----------
    linear, precision : Array of shape (C, n)
    dual : Array of shape (k, n)
        ``u`` of the mean and of the S samples of each function, k = C (1 + S).
    image : Array of shape (k, n)
        ``Phi Phi^T dual``.
    rate : Array of shape ()
    change : Array of shape ()
        How far the whole last step would have moved the mean, in posterior standard deviations.
    step : Array of shape ()
        Share of it that was taken.
    """

    linear: Float[Array, "C n"]
    precision: Float[Array, "C n"]
    dual: Float[Array, "k n"]
    image: Float[Array, "k n"]
    rate: Float[Array, ""]
    change: Float[Array, ""]
    step: Float[Array, ""]


# What an update does beside its products is one program each: operation by operation, there would be fifty.
@program
def next_sites(
    likelihood: Likelihood, y: Array, draws: tuple[Array, ...], state: State
) -> tuple[Sites, Array]:
    """Return the sites that mean and samples ask for, and the fit to the data."""
    mean, variance = _moments(draws, state.image)
    fit, better = _by_tiles(likelihood, y, mean, variance, local_sites)
    sites = toward(Sites(state.linear, state.precision), better, state.rate)
    return sites.at_least(LEAST_PRECISION, mean), jnp.sum(fit)


@program
def scaled_start(state: State, scale: Array) -> tuple[Array, Array]:
    """Return the last solution in the units of a system, and its product with the matrix."""
    solution = state.dual / scale
    return solution, scale * state.image + solution


@program
def unscaled(solution: Array, scale: Array) -> Array:
    """Return a solution in the units of `State.dual`."""
    return solution * scale


@program(static_argnums=0)
def moved(
    most: float,
    likelihood: Likelihood,
    y: Array,
    draws: tuple[Array, ...],
    state: State,
    fit: Array,
    precision: Array,
    dual: Array,
    image: Array,
) -> State:
    """Return the state after an update: the samples of the new precisions, and a mean that is higher up.

    Parameters
    ----------
    most : float
        Longest rate.
    fit : Array of shape ()
        Of the state, from `next_sites`.
    precision, dual, image
        Of the new sites, and what solves their system as far as it was solved.
    """
    functions = len(draws)
    if functions > 1:
        dual, image = (_centred(part, functions) for part in (dual, image))
    old, new = (
        tuple(_by_function(part, functions) for part in pair)
        for pair in ((state.dual, state.image), (dual, image))
    )
    weights, mean = (part[:, 0] for part in old)
    weights_step, mean_step = (b[:, 0] - a[:, 0] for a, b in zip(old, new, strict=True))
    _, variance = _moments(draws, state.image)

    def height(step: Array) -> Array:
        u, m = weights + step * weights_step, mean + step * mean_step
        return jnp.sum(_by_tiles(likelihood, y, m, variance, _bounds)) - 0.5 * jnp.sum(u * m)

    penalty = 0.5 * jnp.sum(weights * mean)
    least = fit - penalty - _ROUNDING * (jnp.abs(fit) + jnp.abs(penalty))

    def is_low(carry: tuple[Array, Array]) -> Array:
        step, here = carry
        return ~(here >= least) & (step > 0.5**_MOST_HALVINGS)

    whole = jnp.ones((), dual.dtype)
    step, here = jax.lax.while_loop(
        is_low, lambda carry: (0.5 * carry[0], height(0.5 * carry[0])), (whole, height(whole))
    )
    # not finite wherever it was tried: the mean stays
    step = jnp.where(jnp.isfinite(here), step, 0.0)
    # in posterior standard deviations, and as a whole step would move it
    change = jnp.sqrt(jnp.mean(mean_step**2 / variance)) / state.rate
    # updates that grow go too far with the precisions, whose samples are what they are
    good = (step == 1.0) & (change <= state.change)
    rate = next_rate(state.rate, good, most, least=_LEAST_RATE, growth=1.5, where=jnp)
    u, m = weights + step * weights_step, mean + step * mean_step
    dual, image = (
        part.at[:, 0].set(first).reshape(dual.shape)
        for part, first in zip(new, (u, m), strict=True)
    )
    return State(precision * m + u, precision, dual, image, rate, change, step)


def _by_tiles(
    likelihood: Likelihood,
    y: Array,
    mean: Array,
    variance: Array,
    function: Callable[..., Any],
) -> Any:
    """Return what a function makes of rows' targets, means and variances, by tiles of rows.

    Averages over several functions hold large arrays.
    """
    n, one = len(y), likelihood.num_latent == 1
    tile = min(_TILE, n)
    count = -(-n // tile)

    def cut(part: Array) -> Array:
        rest = [(0, 0)] * (part.ndim - 1) + [(0, count * tile - n)]
        padded = jnp.pad(part, rest, mode="edge")
        return jnp.moveaxis(padded.reshape(*part.shape[:-1], count, tile), -2, 0)

    def whole(parts: Array) -> Array:
        joined = jnp.moveaxis(parts, 0, -2)
        return joined.reshape(*joined.shape[:-2], count * tile)[..., :n]

    tiles = cut(y), cut(mean[0] if one else mean), cut(variance[0] if one else variance)
    found = jax.lax.map(lambda each: function(likelihood, *each), tiles)
    return jax.tree.map(lambda part: jnp.atleast_2d(whole(part)), found)


def _bounds(likelihood: Likelihood, y: Array, mean: Array, variance: Array) -> Array:
    return likelihood.site_bound(y, mean, variance)


def _by_function(columns: Array, functions: int) -> Array:
    """Return columns as (C, 1 + S, n)."""
    return columns.reshape(functions, -1, columns.shape[-1])


def _moments(draws: tuple[Array, ...], image: Array) -> tuple[Array, Array]:
    """Return mean and variance of each function at the rows, (C, n)."""
    parts = _by_function(image, len(draws))
    return parts[:, 0], jnp.mean((jnp.stack(draws) - parts[:, 1:]) ** 2, axis=1)


def _centred(columns: Array, functions: int) -> Array:
    """Return columns whose means sum to zero over the functions, see `Sites.centred`."""
    parts = _by_function(columns, functions)
    return parts.at[:, 0].add(-jnp.mean(parts[:, 0], axis=0)).reshape(columns.shape)
