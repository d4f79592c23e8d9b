"""Control variates: quantities of known mean that carry the noise of sampling basis functions.

A set of *support rows* ``p`` is chosen once. There, ``a = Phi_p v`` is known exactly at any time, because a step
that changes some entries of ``v`` changes ``a`` by the same few columns (Proposition 3). The error of the
sampled estimate, ``m / m~ Phi_p,i v_i - a``, is therefore observed, and has mean zero.

Two ways to use it:

- eq. (3) subtracts ``n / n_ ||Phi_p v||^2`` (``n_`` support rows) estimated with the same basis functions;
- *interpolation* predicts the error at other rows from that at the support rows, which lowers the variance
  more because the error is a smooth function with (nearly) the kernel's own covariance.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vastgp.methods.qsgp.stochastic.sampled_elbo import Factor, Scalar, sampled_product, weighted


def running_product(
    a: Float[Array, "p r"], phi: Float[Array, "p b"], change: Float[Array, "b r"]
) -> Float[Array, "p r"]:
    """Return ``Phi_p v`` after some entries of ``v`` changed (Proposition 3), in O(p b)."""
    return a + phi @ change


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


def interpolated_error(
    cross: Float[Array, "n p"], inverse: Float[Array, "p p"], error: Float[Array, "p r"]
) -> Float[Array, "n r"]:
    """Return the prediction at other rows of a sampling error observed at the support rows.

    ``K(x, X_p) (K(X_p, X_p) + nugget I)^-1 (m / m~ Phi_p,i v_i - a)``: the best linear prediction of the error if
    it were a draw of the Gaussian process. Whatever it is, the prediction is linear in a quantity of mean zero, so
    the sampled product minus it stays unbiased, and so do products with an independent one.
    A departure from the paper (which uses Nystrom's approximation for ``S`` alone, F.2).
    """
    return cross @ (inverse @ error)


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


def target_control(
    b_i: Float[Array, " i"],
    mu_i: Float[Array, " i"],
    expectation: Scalar,
    *,
    basis_factor: Factor,
    noise_variance: Scalar,
) -> Float[Array, ""]:
    """Return the control variate of the term in ``y`` (appendix F.2), to be added to ``L_mu``.

    Parameters
    ----------
    b_i : Array of shape (m~,)
        Entries of ``b = Phi^T y``, computed once over all rows, O(n m).
    mu_i : Array of shape (m~,)
    expectation : float
        ``b^T mu``, kept running like ``a`` in Proposition 3.
    basis_factor : float or Array of shape (m~,)
        ``m / m~``.
    noise_variance : float

    Notes
    -----
    It lowers the variance of the objective's *value* only. With the sparse gradient of F.1 at the same indices, the
    gradients of its two parts are ``+ m / m~ b_i`` and ``- m / m~ b_i``, which cancel exactly.
    """
    # 2 m / (sigma^2 m~) b_i^T mu_i - 2 / sigma^2 b^T mu
    sampled = jnp.sum(basis_factor * b_i * mu_i)
    return 2.0 / noise_variance * (sampled - expectation)


class FittedCoefficient(NamedTuple):
    """Running second moments that give a control variate its coefficient.

    For an estimate ``g`` and a control ``c`` of mean zero, ``g - alpha c`` varies least for
    ``alpha = E[<g, c>] / E[<c, c>]``. The moments come from earlier steps, so that ``alpha`` is
    independent of the present sample and ``g - alpha c`` stays unbiased.
    """

    covariance: Float[Array, ""]
    variance: Float[Array, ""]

    @classmethod
    def start(cls, dtype: jnp.dtype | type) -> FittedCoefficient:
        """Return the coefficient 1 that eq. (3) has, before anything is observed."""
        return cls(jnp.zeros((), dtype), jnp.zeros((), dtype))

    @property
    def value(self) -> Float[Array, ""]:
        """The coefficient, between 0 and 2: where nothing varies (full batch) the moments are rounding."""
        known = self.variance > 0
        ratio = self.covariance / jnp.where(known, self.variance, 1.0)
        return jnp.where(known, jnp.clip(ratio, 0.0, 2.0), 1.0)

    def update(
        self, estimate: Float[Array, "*s"], control: Float[Array, "*s"], memory: float = 0.99
    ) -> FittedCoefficient:
        """Return the moments with one more observation; older ones fade by ``memory`` a step."""
        return FittedCoefficient(
            memory * self.covariance + (1.0 - memory) * jnp.sum(estimate * control),
            memory * self.variance + (1.0 - memory) * jnp.sum(control**2),
        )
