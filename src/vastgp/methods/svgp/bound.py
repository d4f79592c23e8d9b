"""Gaussian approximations at inducing points, and the lower bounds of the log evidence that they give.

Everything is in whitened coordinates. With ``K_uu = L L^T`` the variables ``v = L^-1 u`` are independent under the
prior, a row has the features ``psi_i = L^-1 k_ui``, and the sites of t-SVGP (Adam et al. 2021, eqs. (20)-(24)) sum to

    b = sum_i lambda_1i psi_i = L^-1 lambda_1,    A = sum_i lambda_2i psi_i psi_i^T = L^-1 Lambda_2 L^-T,

which give ``q(v) = N(R^-1 b, R^-1)`` with ``R = I + A`` (erratum 11). ``R`` has no eigenvalue below one, whatever the
kernel's variance is and however close inducing points are, which ``K_uu + Lambda_2`` cannot say.

Several functions (`Softmax`) share kernel and inducing points; arrays of theirs have them as the first axis, of length
one where there is one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from vastgp.fitting.dual_evidence import local_sites
from vastgp.kernels import Kernel
from vastgp.likelihoods import Likelihood
from vastgp.likelihoods.quadrature import array_module

# A Cholesky factorisation errs by some roundings of the trace: less than this cannot be told from zero.
_ROUNDINGS = 4.0

# What stays as it is while hyperparameters and inducing points move, see `held`.
HOLDS = ("sites", "whitened", "unwhitened")


class SiteSums(NamedTuple):
    """Sums of all sites, "tied" in O(m^2) memory, in the whitened coordinates of some ``L``.

    Attributes
    ----------
    linear : Array of shape (C, m)
        ``b``.
    precision : Array of shape (C, m, m)
        ``A``.
    """

    linear: Any
    precision: Any

    @classmethod
    def none(cls, functions: int, m: int, dtype: Any) -> SiteSums:
        """Return the sums over no rows: the posterior is the prior."""
        return cls(np.zeros((functions, m), dtype), np.zeros((functions, m, m), dtype))


class Coordinates(NamedTuple):
    """Whitened coordinates: ``K_uu = L L^T``.

    Attributes
    ----------
    lower : Array of shape (m, m)
        ``L``.
    inverse : Array of shape (m, m)
        ``L^-1``. Products with it take half the time of solves on CPUs, and a tenth where there are derivatives.
    """

    lower: Any
    inverse: Any


@jax.custom_vjp
def whitener(K: Float[Array, "m m"]) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
    """Return the lower Cholesky factor of a matrix and its inverse."""
    lower = jnp.linalg.cholesky(K)
    return lower, solve_triangular(lower, _eye(K), lower=True)


def _whitener_forward(K: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    found = whitener(K)
    return found, found


def _whitener_backward(
    found: tuple[Array, Array], slopes: tuple[Array, Array]
) -> tuple[Float[Array, "m m"]]:
    # dL = L Phi(L^-1 dK L^-T), dL^-1 = -Phi(L^-1 dK L^-T) L^-1; Phi: lower triangle with half the diagonal
    lower, inverse = found
    by_lower, by_inverse = slopes
    inner = jnp.tril(lower.T @ by_lower - jnp.tril(by_inverse) @ inverse.T)
    inner = inner - 0.5 * jnp.diag(jnp.diagonal(inner))
    by_K = inverse.T @ inner @ inverse
    return (0.5 * (by_K + by_K.T),)


whitener.defvjp(_whitener_forward, _whitener_backward)


class Whitened(NamedTuple):
    """``q(v) = N(mean, root^T root)``: ``root`` is triangular.

    Attributes
    ----------
    mean : Array of shape (C, m)
    root : Array of shape (C, m, m)
        ``F^-1`` where the precision is ``R = F F^T``.
    """

    mean: Any
    root: Any

    def divergence(self) -> Any:
        """Return ``KL(q(v) || N(0, I))``, summed over the functions."""
        # 1/2 (tr R^-1 + m^T m - m + log |R|)
        xp = array_module(self.root)
        log_det = -2.0 * xp.sum(xp.log(xp.diagonal(self.root, axis1=1, axis2=2)))
        total = xp.sum(self.root**2) + xp.sum(self.mean**2)
        return 0.5 * (total - self.mean.size + log_det)

    def moments(self, psi: Any, prior_variance: Any) -> tuple[Any, Any]:
        """Return mean and variance of each function, (C, n), at rows with features ``psi``, (m, n): eq. (7).

        ``k_ii - |psi|^2 + |F^-1 psi|^2``: the last term is ``a_i^T S_u a_i``, without a difference of ``K_uu`` and
        ``S_u``.
        """
        xp = array_module(psi)
        left = xp.maximum(prior_variance - xp.sum(psi**2, axis=0), 0.0)
        return self.mean @ psi, left + xp.sum((self.root @ psi) ** 2, axis=1)

    def covariance(self) -> Float[Array, "C m m"]:
        """Return ``R^-1``."""
        return jnp.swapaxes(self.root, 1, 2) @ self.root


def least_jitter(m: int, dtype: Any) -> float:
    """Return what rounding asks for on the diagonal of ``K_uu``, relative to the prior variance."""
    return _ROUNDINGS * float(jnp.finfo(dtype).eps) * m


def prior_covariance(kernel: Kernel, Z: Float[Array, "m d"], jitter: Any) -> Float[Array, "m m"]:
    """Return ``K_uu``.

    Parameters
    ----------
    kernel : Kernel
    Z : Array of shape (m, d)
        Inducing points.
    jitter : float
        Added to the diagonal, relative to the prior variance; at least what rounding asks for is (`least_jitter`).
    """
    K = kernel(Z, Z)
    m = Z.shape[0]
    least = least_jitter(m, K.dtype)
    added = jnp.maximum(jnp.asarray(jitter, K.dtype), least) * kernel.total_variance()
    return K + added * jnp.eye(m, dtype=K.dtype)


def coordinates(kernel: Kernel, Z: Float[Array, "m d"], jitter: Any) -> Coordinates:
    """Return the whitened coordinates of some inducing points."""
    return Coordinates(*whitener(prior_covariance(kernel, Z, jitter)))


def whitened_features(
    kernel: Kernel, Z: Float[Array, "m d"], inverse: Float[Array, "m m"], X: Float[Array, "n d"]
) -> Float[Array, "m n"]:
    """Return ``psi = L^-1 k_u(x)`` of every row, one a column."""
    return inverse @ kernel(Z, X)


def roundings_of(diagonal: Any) -> Any:
    """Return what is added to a diagonal, (C, m), for what rounding may leave of a matrix below zero."""
    return _ROUNDINGS * jnp.finfo(diagonal.dtype).eps * diagonal.shape[-1] ** 0.5 * diagonal


def posterior_of(sums: SiteSums) -> Whitened:
    """Return the approximation that sites give: eq. (24)."""
    # R = I + A, b = R m. Of rows and columns scaled to one on the diagonal, what rounding leaves of A may lie below
    # zero by some eps.
    A = sums.precision
    diagonal = jnp.diagonal(A, axis1=1, axis2=2)
    least = roundings_of(diagonal)
    # one after the other: XLA's CPU executor can wait for itself within a batch of factorisations
    _, root = jax.lax.map(whitener, A + (1.0 + least)[:, :, None] * _eye(A))
    half = root @ sums.linear[:, :, None]
    return Whitened((jnp.swapaxes(root, 1, 2) @ half)[:, :, 0], root)


def centred(sums: SiteSums, q: Whitened) -> tuple[SiteSums, Whitened]:
    """Return sites and what they give with means that sum to zero over the functions, covariances as they are.

    Where the likelihood does not see what all functions have in common, their optimum is zero there: ``v_c`` is the sum
    over i of ``alpha_ic psi_i``, and the ``alpha_ic`` sum to zero over c. Steps get there slowly.
    """
    mean = q.mean - q.mean.mean(axis=0)
    linear = mean + (sums.precision @ mean[:, :, None])[:, :, 0]
    return sums._replace(linear=linear), q._replace(mean=mean)


def posterior_under(likelihood: Likelihood, sums: SiteSums) -> tuple[SiteSums, Whitened]:
    """Return sites and what they give, `centred` where the likelihood asks for it."""
    q = posterior_of(sums)
    return centred(sums, q) if likelihood.shift_invariant else (sums, q)


def expected_fit(
    likelihood: Likelihood,
    y: Float[Array, "n *k"],
    weights: Float[Array, " n"],
    mean: Float[Array, "C n"],
    variance: Float[Array, "C n"],
) -> Array:
    """Return ``sum_i weights_i E_q[log p(y_i | f_i)]``, or its bound where the likelihood is not log-concave."""
    bound = likelihood.site_bound(y, as_wanted(likelihood, mean), as_wanted(likelihood, variance))
    return jnp.sum(weights * bound)


def better_sums(
    likelihood: Likelihood,
    y: Float[Array, "n *k"],
    weights: Float[Array, " n"],
    psi: Float[Array, "m n"],
    mean: Float[Array, "C n"],
    variance: Float[Array, "C n"],
) -> tuple[Array, SiteSums]:
    """Return the weighted sum of the expected log-likelihood, and the sums of sites that its derivatives ask for.

    ``g_i = (beta_i m_i + alpha_i, beta_i)`` summed as in eqs. (22)-(23) with the factor ``n / |M|`` that these miss
    (erratum 10): it is in the weights.
    """
    bound, sites = local_sites(
        likelihood, y, as_wanted(likelihood, mean), as_wanted(likelihood, variance)
    )
    linear, precision = (weights * part.reshape(mean.shape) for part in sites)
    # symmetric also in its last bits, as the square of one matrix
    root = jnp.sqrt(jnp.maximum(precision, 0.0))[:, None, :] * psi
    return jnp.sum(weights * bound), SiteSums(linear @ psi.T, root @ jnp.swapaxes(root, 1, 2))


def row_sums(psi: Any, linear: Any, precision: Any) -> SiteSums:
    """Return the sums of sites that are held one a row ("untied"): arrays of shape (C, n), ``psi`` of (m, n)."""
    xp = array_module(psi)
    root = xp.sqrt(precision)[:, None, :] * psi
    return SiteSums(linear @ psi.T, root @ xp.swapaxes(root, 1, 2))


def held(hold: str, sums: SiteSums, before: Coordinates, after: Coordinates) -> SiteSums:
    """Return the sums in the coordinates of another ``L`` when something about ``q`` stays as it is.

    Parameters
    ----------
    hold : {"sites", "whitened", "unwhitened"}
        ``"sites"``: the sites as functions of ``u``, so that the natural parameters ``eta_0(theta) + lambda`` of
        eq. (15) follow the prior. ``"whitened"``, ``"unwhitened"``: mean and covariance of ``v`` or of ``u``, as in
        SVGP (eq. (14)).
    sums : SiteSums
        In the coordinates of ``before``.
    before, after : Coordinates
    """
    if hold == "whitened":
        return sums
    # v_before = T v_after with T = L^-1 L'; sites t(v_before) have T^T A T and T^T b
    T = before.inverse @ after.lower
    linear, precision = sums.linear @ T, T.T @ sums.precision @ T
    if hold == "unwhitened":
        # the whole of q, I + A, is what keeps its place
        precision = precision + (T.T @ T - jnp.eye(len(T), dtype=T.dtype))
    return SiteSums(linear, 0.5 * (precision + jnp.swapaxes(precision, 1, 2)))


class Rows(NamedTuple):
    """Rows that a bound is computed from, with what each counts: ``n / |M|``, or 0 for padding.

    Targets may come with noise of their own, see `vastgp.data.observations`.
    """

    X: Any
    y: Any
    weights: Any


def bound_of(
    kernel: Kernel,
    likelihood: Likelihood,
    Z: Float[Array, "m d"],
    inverse: Float[Array, "m m"],
    q: Whitened,
    rows: Rows,
    share: float = 1.0,
) -> Array:
    """Return the lower bound of the log evidence, eq. (8), or what some rows and a share of the divergence add."""
    psi = whitened_features(kernel, Z, inverse, rows.X)
    mean, variance = q.moments(psi, kernel.diag(rows.X))
    return expected_fit(likelihood, rows.y, rows.weights, mean, variance) - share * q.divergence()


def moved_bound(
    kernel: Kernel,
    likelihood: Likelihood,
    Z: Float[Array, "m d"],
    jitter: Any,
    hold: str,
    sums: SiteSums,
    before: Coordinates,
    rows: Rows,
) -> Array:
    """Return the bound at other hyperparameters than those of the sites: eq. (15), or (14) by what is held.

    As ``-KL = log Z - sum_i E_q[log t_i]``, with ``"sites"`` this is eq. (16), ``log Z(theta) + c(theta)``.
    """
    after = coordinates(kernel, Z, jitter)
    q = posterior_of(held(hold, sums, before, after))
    return bound_of(kernel, likelihood, Z, after.inverse, q, rows)


def untied_bound(
    kernel: Kernel,
    likelihood: Likelihood,
    Z: Float[Array, "m d"],
    jitter: Any,
    sites: tuple[Float[Array, "C n"], Float[Array, "C n"]],
    rows: Rows,
) -> Array:
    """Return the bound of eq. (15) with one site a row: ``psi_i`` follows the hyperparameters too (eq. (20))."""
    psi = whitened_features(kernel, Z, coordinates(kernel, Z, jitter).inverse, rows.X)
    q = posterior_of(row_sums(psi, *sites))
    mean, variance = q.moments(psi, kernel.diag(rows.X))
    return expected_fit(likelihood, rows.y, rows.weights, mean, variance) - q.divergence()


def quadratic_fit(sums: SiteSums, q: Whitened) -> Array:
    """Return ``E_q[b^T v - 1/2 v^T A v]``: what sites add to the bound, but for terms without ``q``."""
    spread = jnp.sum(sums.precision * q.covariance())
    return jnp.sum(sums.linear * q.mean) - 0.5 * (
        jnp.einsum("ci,cij,cj->", q.mean, sums.precision, q.mean) + spread
    )


def _eye(like: Array) -> Array:
    return jnp.eye(like.shape[-1], dtype=like.dtype)


def as_wanted(likelihood: Likelihood, moments: Any) -> Any:
    """Return moments as the likelihood takes them: without the first axis where there is one function."""
    return moments[0] if likelihood.num_latent == 1 else moments
