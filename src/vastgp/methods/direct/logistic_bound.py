"""Lower bounds of the logistic log-likelihood that discrete weights can be averaged over.

With labels ``y`` in {-1, +1} and ``p(y | f) = sigmoid(y f)``. Theorem 7.2 of Evans (2022) codes the classes 0 and 1
with ``p(y = 0 | f) = sigmoid(f)``: its two cases are one, ``log sigmoid(y f) >= -exp(-y f)``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vastgp._programs import program
from vastgp.methods.direct.model import DiscreteLogits, DiscreteModel, values_and_prior

# Numbers of a block of rows, weights and values in the exponential bound.
_BLOCK_ENTRIES = 1 << 22


def exponential_bound(
    log_q: Float[Any, "r b k"],
    log_alpha: Float[Any, " r"],
    values: Float[Any, "b k"],
    features: Float[Any, "n b"],
    labels: Float[Any, " n"],
) -> Float[Array, ""]:
    """Return the lower bound of ``E[log p(y | w)]`` of Theorem 7.2.

    (7.18):  - sum_i prod_j q_j^T exp(-y_i phi_ij w_j),

    each product as the exponential of a sum of ``log sum exp``, so that no factor overflows. It is tight for rows that
    are on the right side with certainty and falls exponentially on the wrong one.
    """
    n, b = features.shape
    size = max(1, min(n, _BLOCK_ENTRIES // (b * log_q.shape[-1])))
    blocks = -(-n // size)
    padded = jnp.pad(labels[:, None] * features, ((0, blocks * size - n), (0, 0)))
    weight = jnp.pad(jnp.ones(n), (0, blocks * size - n)).reshape(blocks, size)

    @jax.checkpoint
    def of_block(signed: Float[Any, "s b"]) -> Float[Array, " s"]:
        exponents = log_q[:, None] - signed[None, :, :, None] * values
        products = jnp.sum(jax.nn.logsumexp(exponents, axis=-1), axis=-1)
        return jnp.exp(jax.nn.logsumexp(products + log_alpha[:, None], axis=0))

    lost = jax.lax.map(of_block, padded.reshape(blocks, size, b))
    return -jnp.sum(weight * lost)


def exponential_elbo(
    logits: DiscreteLogits,
    model: DiscreteModel,
    features: Float[Any, "n b"],
    labels: Float[Any, " n"],
    of_prior: Any = 1.0,
) -> Float[Array, ""]:
    """Return the bound of the evidence by Theorem 7.2, mean-field; the model's own likelihood is not used.

    Where several sum over rows, one has ``of_prior=1``, which counts what the prior says, and the others have 0.
    """
    values, prior = values_and_prior(logits, model)
    log_q = jax.nn.log_softmax(logits.weights)
    log_mass = jnp.broadcast_to(prior.log_mass[0], log_q.shape[1:])
    fit = exponential_bound(log_q, jax.nn.log_softmax(logits.mixture), values, features, labels)
    return fit + of_prior * jnp.sum(jnp.exp(log_q) * (log_mass - log_q))


exponential_value_and_slope = jax.jit(jax.value_and_grad(exponential_elbo))


# ---------------------------------------------------------------- a quadratic bound


class QuadraticSites(NamedTuple):
    """``log sigmoid(y f) >= linear f - precision f^2 / 2 + constant``, touching at ``f = -xi`` and ``f = xi``."""

    linear: Any
    precision: Any
    constant: Any


def quadratic_sites(labels: Any, contact: Any) -> QuadraticSites:
    """Return the quadratic bound of Jaakkola and Jordan (2000) at the points of contact ``xi >= 0``.

    log sigmoid(y f) >= log sigmoid(xi) + (y f - xi) / 2 - lambda(xi) (f^2 - xi^2),
    lambda(xi) = tanh(xi / 2) / (4 xi).
    """
    contact = jnp.asarray(contact)
    small = contact < 1e-4
    safe = jnp.where(small, 1.0, contact)
    # its limit at zero is 1/8, with a relative error below 1e-9 here
    bend = jnp.where(small, 0.125, jnp.tanh(0.5 * safe) / (4.0 * safe))
    constant = jax.nn.log_sigmoid(contact) - 0.5 * contact + bend * contact**2
    return QuadraticSites(0.5 * jnp.asarray(labels), 2.0 * bend, constant)


def best_contact(mean: Any, variance: Any) -> Any:
    """Return the points of contact that maximise the average of the bound: ``xi^2 = E[f^2]``."""
    return jnp.sqrt(jnp.asarray(mean) ** 2 + variance)


@program
def best_sites(labels: Any, mean: Any, variance: Any) -> QuadraticSites:
    """Return the bound of each row that is best where its function has some mean and variance."""
    return quadratic_sites(labels, best_contact(mean, variance))
