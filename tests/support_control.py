"""Control variates as objectives, which steps have in closed form: eq. (3) with F.1, and F.2 as corrected."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vastgp.methods.qsgp.stochastic.control_variates import running_product
from vastgp.methods.qsgp.stochastic.sampled_elbo import Factor, Scalar, sampled_product, weighted


def sparse_gradient(value: Float[Array, "*s"], factor: Scalar) -> Float[Array, "*s"]:
    """Return ``value`` with ``factor`` times its gradient (appendix F.1).

    The expectation of a control variate depends on all of ``v``, but a step wants a gradient at the
    sampled entries alone. Those entries of the dense gradient, times ``m / |i u j|``, are an unbiased estimate
    of it while the value stays exact.
    """
    return factor * value + jax.lax.stop_gradient((1.0 - factor) * value)


def support_expectation(
    a: Float[Array, "p r"],
    phi: Float[Array, "p b"],
    v: Float[Array, "b r"],
    *,
    gradient_factor: Scalar,
) -> Float[Array, " r"]:
    """Return ``a^T a`` for every column, with a sparse unbiased gradient by ``v`` (Proposition 3, F.1).

    Parameters
    ----------
    a : Array of shape (p, r)
        ``Phi_p v`` at the present ``v``, a constant to differentiation.
    phi, v : Array of shape (p, b) and (b, r)
        Features of the entries that the gradient is wanted for, and these entries.
    gradient_factor : float
        ``m / |i u j|`` for the union of both index sets; or ``m / (2 m~)`` for the two sets one after the other,
        where an index in both counts twice. The latter cancels term by term against eq. (3)'s first term.
    """
    now = running_product(a, phi, v - jax.lax.stop_gradient(v))
    return sparse_gradient(jnp.sum(now**2, axis=0), gradient_factor)


def support_control(
    phi_pi: Float[Array, "p i"],
    phi_pj: Float[Array, "p j"],
    v_i: Float[Array, "i r"],
    v_j: Float[Array, "j r"],
    expectation: Float[Array, " r"],
    *,
    factor_i: Factor,
    factor_j: Factor,
    row_factor: Scalar,
) -> Float[Array, " r"]:
    """Return eq. (3), to be added (over ``sigma^2``) to the objective: mean zero, correlated with its noise.

    Parameters
    ----------
    phi_pi, phi_pj : Array of shape (p, m~)
        Features of the two sets at the support rows.
    v_i, v_j : Array of shape (m~, r)
        Entries of the mean, or of dense columns of the Cholesky factor.
    expectation : Array of shape (r,)
        From `support_expectation`.
    factor_i, factor_j : float or Array of shape (m~,)
        ``m / m~``.
    row_factor : float
        ``n / p``: all rows over support rows.
    """
    f_i = sampled_product(phi_pi, v_i, factor_i)
    f_j = sampled_product(phi_pj, v_j, factor_j)
    return row_factor * (expectation - jnp.sum(f_i * f_j, axis=0))


def nystrom_prior_control(
    cross_i: Float[Array, "i p"],
    cross_j: Float[Array, "j p"],
    inverse: Float[Array, "p p"],
    v_i: Float[Array, "i r"],
    v_j: Float[Array, "j r"],
    a: Float[Array, "p r"],
    *,
    factor_i: Factor,
    factor_j: Factor,
) -> Float[Array, " r"]:
    """Return the control variate of ``v^T S v`` for ``S = K(Z, Z)`` (appendix F.2 as corrected), to be added to it.

    ``v^T N v - (m / m~)^2 v_j^T N_ji v_i`` with Nystrom's approximation ``N = K(Z, U) K(U, U)^-1 K(U, Z)``: mean
    zero, and as much smaller in variance together with `DensePrior` as N is close to S.

    Parameters
    ----------
    cross_i, cross_j : Array of shape (m~, p)
        ``K(Z_i, U)``, ``K(Z_j, U)`` for the inducing inputs of two independent sets.
    inverse : Array of shape (p, p)
        ``K(U, U)^-1``, or with a nugget.
    v_i, v_j : Array of shape (m~, r)
        Entries of the mean, or of dense columns of the Cholesky factor.
    a : Array of shape (p, r)
        ``K(U, Z) v``, kept running as in Proposition 3.
    factor_i, factor_j : float or Array of shape (m~,)
        ``m / m~``.

    Notes
    -----
    As printed, weights of one set meet the inputs of the other, and the mean is not zero. Its gradient by ``v_i``,
    scaled as in F.1, is that of estimating ``S v`` at ``z_i`` with the `interpolated_error` taken off.
    """
    at_i = cross_i.T @ weighted(v_i, factor_i)
    at_j = cross_j.T @ weighted(v_j, factor_j)
    return jnp.sum(a * (inverse @ a) - at_j * (inverse @ at_i), axis=0)
