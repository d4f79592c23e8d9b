"""Steps of Newton's method within a region of trust, by conjugate gradients: for bounds that are not concave.

Where slopes are small and a curvature is not negative, L-BFGS gains nothing for hundreds of iterations: the matrix that
it keeps knows only negative ones. Conjugate gradients that meet such a direction follow it to the border of the region
(Steihaug 1983; Nocedal and Wright, Numerical Optimization, 2006, algorithm 7.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# The first radius and the largest, and what part of the expected gain widens or narrows the region.
FIRST_RADIUS, _MOST_RADIUS = 1.0, 1e3
_WELL, _BADLY = 0.75, 0.25
# Products with the second derivatives in a step, at most. Conjugate gradients end before where as many products like
# the last one gain less than this part of what all have gained (Nash and Sofer 1990; with a half, as there, steps left
# plateaus late).
_MOST_PRODUCTS, _SLOW = 200, 0.02


class TrustStep(NamedTuple):
    """Where a step led.

    Attributes
    ----------
    point : Array of shape (n,)
    radius : Array of shape ()
        Of the region about it.
    value, gain, expected : Array of shape ()
        The objective there, what the step gained, and what it was expected to gain.
    inside : Array of shape ()
        Whether the maximum of the quadratic model was reached: no border, no curvature that is not negative.
    """

    point: Float[Array, " n"]
    radius: Float[Array, ""]
    value: Float[Array, ""]
    gain: Float[Array, ""]
    expected: Float[Array, ""]
    inside: Array


def trust_step(
    objective: Callable[[Any], Float[Array, ""]], point: Float[Any, " n"], radius: Float[Any, ""]
) -> TrustStep:
    """Take a step uphill, or none where the one within the radius would lead down, which then is a quarter of it."""
    value, slope = jax.value_and_grad(objective)(point)
    moved, expected, inside = _towards_maximum(
        slope, lambda direction: jax.jvp(jax.grad(objective), (point,), (direction,))[1], radius
    )
    there = objective(point + moved)
    gain = jnp.where(jnp.isnan(there), -jnp.inf, there - value)
    well, badly = gain > _WELL * expected, ~(gain > _BADLY * expected)
    wider = jnp.where(well & ~inside, jnp.minimum(2.0 * radius, _MOST_RADIUS), radius)
    length = jnp.linalg.norm(moved)
    shorter = jnp.where(length < radius, length, radius)  # of no number the radius
    radius = jnp.where(badly, 0.25 * shorter, wider)
    up = gain > 0.0
    return TrustStep(
        jnp.where(up, point + moved, point),
        radius,
        jnp.where(up, there, value),
        jnp.where(up, gain, 0.0),
        expected,
        inside,
    )


class _Search(NamedTuple):
    """Conjugate gradients: a step, the slope of the quadratic model there, a direction, and what the model gained."""

    moved: Array
    slope: Array
    direction: Array
    gained: Array
    products: Array
    ended: Array
    inside: Array


def _towards_maximum(
    slope: Float[Array, " n"], curvature: Callable[[Array], Array], radius: Float[Any, ""]
) -> tuple[Float[Array, " n"], Float[Array, ""], Array]:
    """Return a step of a length of at most ``radius`` towards the maximum of ``g^T p + p^T B p / 2``, and its gain.

    Third, whether conjugate gradients came near to the maximum itself: to where the slope of the model is a part of
    ``min(1/2, sqrt(|g|))`` of the first, or products gain little.
    """
    size = jnp.linalg.norm(slope)
    enough = jnp.minimum(0.5, jnp.sqrt(size)) * size

    def goes_on(state: _Search) -> Array:
        return ~state.ended & (state.products < _MOST_PRODUCTS)

    def follow(state: _Search) -> _Search:
        moved, rest, direction = state.moved, state.slope, state.direction
        bent = curvature(direction)
        bend = -(direction @ bent)
        squared = rest @ rest
        length = squared / jnp.where(bend > 0.0, bend, 1.0)
        leaves = ~(bend > 0.0) | ~(jnp.linalg.norm(moved + length * direction) < radius)
        length = jnp.where(leaves, _to_border(moved, direction, radius), length)
        moved = moved + length * direction
        # g^T p + p^T B p / 2 along d:  t r^T d - t^2 bend / 2
        gained = state.gained + length * (rest @ direction) - 0.5 * length**2 * bend
        rest = rest + length * bent
        small = jnp.linalg.norm(rest) < enough
        slow = (state.products + 1) * (gained - state.gained) < _SLOW * gained
        arrived = small | slow
        direction = rest + (rest @ rest) / squared * direction
        return _Search(
            moved, rest, direction, gained, state.products + 1, leaves | arrived, arrived & ~leaves
        )

    nothing = jnp.zeros((), bool)
    start = _Search(
        jnp.zeros_like(slope), slope, slope, jnp.zeros(()), jnp.zeros((), int), size == 0.0, nothing
    )
    found = jax.lax.while_loop(goes_on, follow, start)
    return found.moved, found.gained, found.inside


def _to_border(
    moved: Float[Array, " n"], direction: Float[Array, " n"], radius: Float[Any, ""]
) -> Float[Array, ""]:
    """Return the positive length along a direction at which a step has a length of ``radius``."""
    # |p + t d|^2 = radius^2, without cancellation
    a, half = direction @ direction, moved @ direction
    room = jnp.maximum(radius**2 - moved @ moved, 0.0)
    root = jnp.sqrt(half**2 + a * room)
    return jnp.where(half > 0.0, room / jnp.maximum(half + root, 1e-300), (root - half) / a)
