"""The slope of the bound of sparse variational Gaussian processes, without differentiating a factorisation.

Means and variances at rows are ``k_i^T alpha`` and ``k_ii - k_i^T W k_i`` with ``alpha = K^-1 m`` and
``W = K^-1 - K^-1 S K^-1`` (``K = K_uu``). What moves with ``K`` depends on what the M-step holds; in the coordinates
``v = L^-1 u`` every slope by ``K`` is ``L^-T G L^-1`` with a matrix ``G`` of a few products, given in `_by_prior`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vastgp.fitting.dual_evidence import LEAST_PRECISION
from vastgp.kernels import Kernel
from vastgp.likelihoods import Likelihood
from vastgp.methods.svgp.bound import (
    Coordinates,
    Rows,
    SiteSums,
    Whitened,
    expected_fit,
    prior_covariance,
    row_sums,
)


class Slope(NamedTuple):
    """Derivatives of the bound, by logarithms of the hyperparameters and by the inducing points."""

    kernel: Any
    likelihood: Any
    Z: Any


def bound_slope_and_sites(
    log_kernel: Kernel,
    log_likelihood: Likelihood,
    Z: Float[Array, "m d"],
    jitter: Any,
    hold: str,
    q: Whitened,
    here: Coordinates,
    rows: Rows,
    share: float = 1.0,
) -> tuple[Array, Slope, SiteSums]:
    """Return `moved_bound` where the sites are, its derivatives, and the sums of sites that they ask for.

    The sums are those of `vastgp.methods.svgp.bound.better_sums`: what an E-step needs is on the M-step's way.

    Parameters
    ----------
    log_kernel, log_likelihood
        Logarithms of the hyperparameters.
    Z, jitter, rows
        As in `moved_bound`.
    hold : {"sites", "whitened", "unwhitened"}
        What stays while hyperparameters move, see `vastgp.methods.svgp.bound.held`.
    q : Whitened
        What the sites give here.
    here : Coordinates
        Of these hyperparameters and inducing points.
    share : float, default 1.0
        Of what does not depend on the rows: where each of k processes has a part of them and 1 / k of this, all that is
        returned adds up to what one would have.
    """

    def covariances(log_kernel: Kernel, Z: Array) -> tuple[Array, Array, Array]:
        kernel = jax.tree.map(jnp.exp, log_kernel)
        return prior_covariance(kernel, Z, jitter), kernel(Z, rows.X), kernel.diag(rows.X)

    (_, cross, prior_variances), pull_back = jax.vjp(covariances, log_kernel, Z)
    psi = here.inverse @ cross
    covariance = q.covariance()
    explained = covariance @ psi
    Y = psi - explained
    mean = q.mean @ psi
    left = jnp.maximum(prior_variances - jnp.sum(psi**2, axis=0), 0.0)
    variance = left + jnp.sum(psi * explained, axis=1)

    def fit(logs: Likelihood, mean: Array, variance: Array) -> Array:
        likelihood = jax.tree.map(jnp.exp, logs)
        return expected_fit(likelihood, rows.y, rows.weights, mean, variance)

    value, (by_likelihood, g, h) = jax.value_and_grad(fit, argnums=(0, 1, 2))(
        log_likelihood, mean, variance
    )
    # beta_i = -2 h_i and lambda_1i = beta_i m_i + alpha_i, as in `local_sites`
    precision = jnp.maximum(-2.0 * h, LEAST_PRECISION * rows.weights)
    better = row_sums(psi, precision * mean + g, precision)
    # with alpha and W held: d mean_i / d k_i = alpha, d variance_i / d k_i = -2 W k_i = -2 L^-T Y_i
    by_psi = q.mean.T @ g - 2.0 * jnp.sum(Y * h[:, None, :], axis=0)
    G = _by_prior(hold, psi, Y, g, h, q.mean, covariance, by_psi, better.precision, share)
    by_K = here.inverse.T @ (0.5 * (G + G.T)) @ here.inverse
    by_kernel, by_Z = pull_back((by_K, here.inverse.T @ by_psi, jnp.sum(h, axis=0)))
    return value - share * q.divergence(), Slope(by_kernel, by_likelihood, by_Z), better


def _by_prior(
    hold: str,
    psi: Float[Array, "m n"],
    Y: Float[Array, "C m n"],
    g: Float[Array, "C n"],
    h: Float[Array, "C n"],
    v: Float[Array, "C m"],
    covariance: Float[Array, "C m m"],
    by_psi: Float[Array, "m n"],
    asked: Float[Array, "C m m"],
    share: float,
) -> Float[Array, "m m"]:
    """Return ``G``, summed over the functions; its symmetric part counts.

    With ``dK = L P L^T`` and ``Y = (I - S) psi``, ``S`` the covariance of ``v``:

    - sites: ``d alpha = -W dK alpha``, ``dW = -W dK W``, and of ``-KL`` what
      ``tr(I + Lambda K)^-1``, ``alpha^T K alpha`` and ``log |I + Lambda K|`` give. ``Y H Y^T`` is
      ``-1/2 (I - S) A (I - S)`` with the precision ``A`` that the rows ask for;
    - unwhitened: ``dv = -P v``, ``d(I - S) = -P + P S + S P``, and ``d tr K^-1 S_u``, ``d m^T K^-1 m``, ``d log |K|``;
    - whitened: nothing but ``psi = L^-1 k_u`` moves, ``dL = L Phi(P)`` with Phi the lower triangle with half the
      diagonal.
    """
    if hold == "whitened":
        inner = -by_psi @ psi.T
        inner = jnp.tril(inner)
        return inner - 0.5 * jnp.diag(jnp.diagonal(inner))
    eye = jnp.eye(len(psi), dtype=psi.dtype)
    if hold == "sites":
        slopes = (Y @ g[:, :, None] + share * (covariance @ v[:, :, None]))[:, :, 0]
        rest = eye - covariance
        by_function = rest @ (asked + share * eye) @ rest
        return (0.5 * share * v - slopes).T @ v - 0.5 * jnp.sum(by_function, axis=0)
    weighted = jnp.swapaxes(psi * h[:, None, :], 1, 2)
    by_function = (Y - covariance @ psi) @ weighted + 0.5 * share * (covariance - eye)
    return jnp.sum(by_function, axis=0) + (0.5 * share * v - g @ psi.T).T @ v
