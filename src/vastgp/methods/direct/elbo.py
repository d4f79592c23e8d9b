"""The evidence lower bound of discrete weights: exact, or bounded or estimated without bias where q is a mixture.

Theorems 7.1, 7.3 and 7.4 and equation (7.27) of Evans (2022). Nothing here knows the rows: after the statistics have
been gathered a value and its gradient cost O(r (b^2 + b k)) for ``r`` components, ``b`` weights and ``k`` values.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vastgp.methods.direct.model import (
    DiscreteLogits,
    DiscreteModel,
    DiscretePrior,
    QuadraticLikelihood,
    moments_of,
    spacing_density,
    values_and_prior,
    with_slopes,
)


def expected_square(
    mean: Float[Any, "r b"], variance: Float[Any, "r b"], likelihood: QuadraticLikelihood
) -> Float[Array, " r"]:
    """Return ``E|y - Phi w|^2`` of independent weights of these moments, for each component.

    (7.11), (7.15):  y^T y - 2 s^T Phi^T y + s^T Phi^T Phi s + sum_j |phi_j|^2 Var[w_j],

    as ``q_j^T h_j - |phi_j|^2 s_j^2`` is ``|phi_j|^2`` times the variance of ``w_j``.
    """
    gram = jnp.asarray(likelihood.gram)
    return (
        likelihood.square
        - 2.0 * mean @ likelihood.target
        + _bowl(mean, gram)
        + variance @ jnp.diagonal(gram)
    )  # fmt: skip


@jax.custom_jvp
def _bowl(mean: Float[Any, "r b"], gram: Float[Any, "b b"]) -> Float[Array, " r"]:
    """Return ``s^T G s`` of each component."""
    return jnp.sum((mean @ gram) * mean, axis=-1)


@_bowl.defjvp
def _slope_of_bowl(given: Any, moved: Any) -> tuple[Array, Array]:
    """The gradient is 2 G s: one product with the large matrix, where differentiation of the formula would make two.

    The matrix is what the data say, and does not move.
    """
    mean, gram = given
    along = mean @ gram
    return jnp.sum(along * mean, axis=-1), 2.0 * jnp.sum(along * moved[0], axis=-1)


def expected_log_prior(
    probabilities: Float[Any, "r b k"], prior: DiscretePrior, tight: bool = True
) -> Float[Array, " r"]:
    """Return ``q^T log p`` of each component: exact for a factorised prior, else a lower bound.

    Theorem 7.4:  q^T log p >= sum_i weight_i E_q[log p^(i)].

    With ``tight`` the shares of the parts are those that maximise the bound instead of the prior's own,
    ``log sum_i weight_i exp(E_q[log p^(i)])``, which is never lower (Jensen's inequality in the other direction).
    """
    by_part = _expected_by_part(probabilities, prior)
    if tight:
        return jax.nn.logsumexp(by_part + prior.log_weights, axis=1)
    return by_part @ jnp.exp(prior.log_weights)


def shares_of_parts(
    probabilities: Float[Any, "r b k"], prior: DiscretePrior
) -> Float[Array, "r p"]:
    """Return the shares of the parts of a prior at which the bound of `expected_log_prior` is tight."""
    return jax.nn.softmax(_expected_by_part(probabilities, prior) + prior.log_weights, axis=1)


def _expected_by_part(
    probabilities: Float[Any, "r b k"], prior: DiscretePrior
) -> Float[Array, "r p"]:
    shape = (*prior.log_mass.shape[:1], *probabilities.shape[1:])
    return jnp.einsum("rbk,pbk->rp", probabilities, jnp.broadcast_to(prior.log_mass, shape))


def _without_entropy(
    logits: DiscreteLogits, model: DiscreteModel, tight_prior: bool
) -> tuple[Array, Array, Array]:
    """Return the bound but for the entropy of the weights, and their log probabilities and those of the components."""
    values, prior = values_and_prior(logits, model)
    log_q, log_alpha = jax.nn.log_softmax(logits.weights), jax.nn.log_softmax(logits.mixture)
    q, alpha, likelihood = jnp.exp(log_q), jnp.exp(log_alpha), model.likelihood
    # the expectation of anything under a mixture is the mixture of expectations
    square = alpha @ expected_square(*moments_of(q, values), likelihood)
    # (7.16), with the constant -n/2 log(2 pi) that the theorem leaves out
    log_noise_q = jax.nn.log_softmax(logits.noise)
    noise_q = jnp.exp(log_noise_q)
    fit = (
        -0.5 * likelihood.count * (noise_q @ jnp.log(2.0 * jnp.pi * model.noise))
        - 0.5 * (noise_q @ (1.0 / model.noise)) * square
    )
    if logits.spacing is not None:
        fit += jnp.sum(spacing_density(logits.spacing))
    return (
        fit
        + alpha @ expected_log_prior(q, prior, tight_prior)
        + noise_q @ (model.log_noise_prior - log_noise_q),
        log_q,
        log_alpha,
    )


def mean_field_elbo(
    logits: DiscreteLogits, model: DiscreteModel, tight_prior: bool = True
) -> Float[Array, ""]:
    """Return the evidence lower bound of one component (Theorem 7.1), exact for a factorised prior.

    Of learned spacings it is that of the evidence times their density, as of all bounds here.
    """
    rest, log_q, _ = _without_entropy(logits, model, tight_prior)
    return rest - jnp.sum(jnp.exp(log_q) * log_q)


def best_noise(logits: DiscreteLogits, model: DiscreteModel) -> Float[Array, " s"]:
    """Return the logits of the noise that maximise the bound given the weights: of one value, any."""

    def fit_of(noise: Array) -> Array:
        # the bound is linear in q of the noise but for its entropy, so its slope by q are the logits
        single = eqx.tree_at(
            lambda m: (m.noise, m.log_noise_prior), model, (noise[None], jnp.zeros(1))
        )
        return mean_field_elbo(logits._replace(noise=jnp.zeros(1)), single)

    logit = jax.vmap(fit_of)(jnp.asarray(model.noise)) + model.log_noise_prior
    return with_slopes(logit)


# ---------------------------------------------------------------- mixtures, by a bound of the entropy


def entropy_bound(
    log_q: Float[Any, "r b k"],
    log_alpha: Float[Any, " r"],
    log_center: Float[Any, "b k"],
    logarithmic: bool = False,
) -> Float[Array, ""]:
    """Return a lower bound of the entropy of a mixture, for any positive expansion point ``a``.

    Theorem 7.3, from ``-log q >= 1 - log a - q / a``:

        1 - sum_j alpha_j ( sum_i q_i^(j)T log a_i + sum_l alpha_l prod_i q_i^(j)T (q_i^(l) / a_i) ).

    With ``logarithmic`` Jensen's inequality takes the place of the expansion, ``E_j[log(q / a)] <= log E_j[q / a]``:

        - sum_j alpha_j ( sum_i q_i^(j)T log a_i + log sum_l alpha_l prod_i q_i^(j)T (q_i^(l) / a_i) ),

    which is never lower, as ``log x <= x - 1``, and does not overflow. Products are sums of logarithms.
    """
    alpha = jnp.exp(log_alpha)
    toward = jnp.einsum("rbk,bk->r", jnp.exp(log_q), log_center)
    # log q_i^(j)T (q_i^(l) / a_i), summed over the weights i
    log_overlap = jnp.sum(
        jax.nn.logsumexp(log_q[:, None] + log_q[None, :] - log_center, axis=-1), axis=-1
    )
    log_ratio = jax.nn.logsumexp(log_overlap + log_alpha, axis=1)
    if logarithmic:
        return -alpha @ (toward + log_ratio)
    return 1.0 - alpha @ (toward + jnp.exp(log_ratio))


def mixture_elbo_bound(
    logits: DiscreteLogits,
    log_center: Float[Any, "b k"],
    model: DiscreteModel,
    logarithmic: bool = False,
    tight_prior: bool = True,
) -> Float[Array, ""]:
    """Return a lower bound of the evidence lower bound of a mixture, exact but for `entropy_bound`."""
    rest, log_q, log_alpha = _without_entropy(logits, model, tight_prior)
    return rest + entropy_bound(log_q, log_alpha, log_center, logarithmic)


# ---------------------------------------------------------------- mixtures, by draws


def draw_codes(key: Array, log_q: Float[Any, "r b k"], draws: int) -> Any:
    """Return independent draws of all weights from every component, as numbers of values: (r, draws, b) integers."""
    r, b, _ = log_q.shape
    below = jnp.cumsum(jnp.exp(log_q), axis=-1)[:, None, :, :-1]
    uniform = jax.random.uniform(key, (r, draws, b), dtype=log_q.dtype)
    return jnp.sum(uniform[..., None] > below, axis=-1, dtype=jnp.int32)


def log_probabilities(log_q: Float[Any, "r b k"], codes: Any) -> Float[Array, "r *s"]:
    """Return ``log q^(l)(w)`` of each component ``l`` for draws of shape (*s, b)."""
    chosen = jnp.arange(log_q.shape[1])
    return jax.vmap(lambda of_part: jnp.sum(of_part[chosen, codes], axis=-1))(log_q)


def entropy_surrogate(
    log_q: Float[Any, "r b k"], log_alpha: Float[Any, " r"], codes: Any
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return a function whose gradient is an unbiased estimate of the entropy's, and an unbiased estimate of that.

    The same estimator as (7.27) after what is known exactly has been taken out:

        -q^T log q = sum_j alpha_j ( H[q^(j)] - E_j[g_j] ),     g_j(w) = log q(w) - log q^(j)(w),

    of which only the expectations of ``g_j`` under each component are sampled, with the others' mean as a baseline.
    Where components are apart ``g_j`` is the constant ``log alpha_j``, and where they agree it is zero: either way
    its gradient has no variance, while that of (7.27) grows with the number of weights.

    Parameters
    ----------
    codes : integer array of shape (r, t, b)
        Draws from every component, ``t >= 2``.
    """
    alpha, q = jnp.exp(log_alpha), jnp.exp(log_q)
    exact = -jnp.sum(q * log_q, axis=(1, 2))
    by_part = log_probabilities(log_q, codes)  # (l, j, t)
    own = jnp.einsum("jjt->jt", by_part)
    ratio = jax.nn.logsumexp(by_part + log_alpha[:, None, None], axis=0) - own
    t = codes.shape[1]
    # mean of the other draws: independent of this one, so that the estimate stays unbiased
    others = (jnp.sum(ratio, axis=1, keepdims=True) - ratio) / (t - 1)
    score = jax.lax.stop_gradient(ratio - others) * own
    fixed = jax.lax.stop_gradient(score)
    sampled = jnp.mean(ratio + score - fixed, axis=1)
    value = alpha @ (exact - sampled)
    return value, jax.lax.stop_gradient(value)


@partial(jax.jit, static_argnames="draws")
def sampled_mixture_elbo(
    logits: DiscreteLogits, model: DiscreteModel, key: Array, draws: int
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return a function whose gradient is unbiased for that of a mixture's bound, and an unbiased estimate of it."""
    rest, log_q, log_alpha = _without_entropy(logits, model, True)
    codes = draw_codes(key, jax.lax.stop_gradient(log_q), draws)
    surrogate, value = entropy_surrogate(log_q, log_alpha, codes)
    return rest + surrogate, jax.lax.stop_gradient(rest) + value


value_and_slope = jax.jit(jax.value_and_grad(mean_field_elbo), static_argnames="tight_prior")
sampled_value_and_slope = jax.jit(
    jax.value_and_grad(sampled_mixture_elbo, has_aux=True), static_argnames="draws"
)
