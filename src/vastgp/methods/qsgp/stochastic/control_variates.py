"""Control variates: quantities of known mean that carry the noise of sampling basis functions.

A set of *support rows* ``p`` is chosen once. There, ``a = Phi_p v`` is known exactly at any time, because a step
that changes some entries of ``v`` changes ``a`` by the same few columns (Proposition 3). The error of the
sampled estimate, ``m / m~ Phi_p,i v_i - a``, is therefore observed, and has mean zero.

Two ways to use it:

- eq. (3) subtracts ``n / n_ ||Phi_p v||^2`` (``n_`` support rows) estimated with the same basis functions; a step has
  its gradient in closed form;
- *interpolation* predicts the error at other rows from that at the support rows, which lowers the variance
  more because the error is a smooth function with (nearly) the kernel's own covariance.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from vastgp.methods.qsgp.stochastic.sampled_elbo import Factor, Scalar


def running_product(
    a: Float[Array, "p r"], phi: Float[Array, "p b"], change: Float[Array, "b r"]
) -> Float[Array, "p r"]:
    """Return ``Phi_p v`` after some entries of ``v`` changed (Proposition 3), in O(p b)."""
    return a + phi @ change


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
