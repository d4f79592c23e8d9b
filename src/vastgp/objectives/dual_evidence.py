"""Lower bound of the log evidence for any likelihood, its Gaussian approximation held as one site a row."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.kernels import Kernel
from vastgp.likelihoods import Likelihood
from vastgp.linalg.cholesky import Cholesky, factorize
from vastgp.objectives.evidence import RowEvidence

# Least precision of a site: the posterior at a row with less is the prior's to 1e-10.
LEAST_PRECISION = 1e-10
# The bound's gain per row at which sites have converged. It is quadratic in the sites' error, gradients linear.
_CONVERGED = 1e-8
_MOST_UPDATES, _LEAST_RATE = 100, 1.0 / 64.0


class Sites(NamedTuple):
    """Gaussian sites ``t_i(f_i) = exp(linear_i f_i - 1/2 precision_i f_i^2)`` in the place of the likelihood.

    Attributes
    ----------
    linear : Array of shape (n,)
        ``lambda_1`` of Chang et al. (t-SVGP).
    precision : Array of shape (n,)
        ``lambda_2 = beta >= 0`` (erratum 8).
    """

    linear: Any
    precision: Any

    def toward(self, other: Sites, rate: Any) -> Sites:
        """Return ``(1 - rate) self + rate other``: a natural-gradient step where ``other`` is `local_sites`."""
        return Sites(*((1.0 - rate) * a + rate * b for a, b in zip(self, other, strict=True)))

    def at_least(self, least: float, mean: Any) -> Sites:
        """Return sites of at least some precision whose slope at ``mean`` is the same."""
        raised = self.precision.clip(min=least)
        return Sites(self.linear + (raised - self.precision) * mean, raised)


@jax.jit
def local_sites(
    likelihood: Likelihood,
    y: Float[Array, " n"],
    mean: Float[Array, " n"],
    variance: Float[Array, " n"],
) -> tuple[Float[Array, " n"], Sites]:
    """Return each row's bound on ``E_q[log p(y | f)]`` and the sites that its derivatives ask for.

    With ``alpha = d/dmean`` and ``beta = -2 d/dvariance`` of the bound (Bonnet, Price), the natural gradient of the
    evidence bound has the fixed point ``lambda_2 = beta``, ``lambda_1 = beta mean + alpha`` (eqs. (12)-(13) of t-SVGP
    with the sign of erratum 7).
    """

    def total(mean: Array, variance: Array) -> tuple[Array, Array]:
        bound = likelihood.site_bound(y, mean, variance)
        return jnp.sum(bound), bound

    gradient = jax.grad(total, argnums=(0, 1), has_aux=True)
    (alpha, by_variance), bound = gradient(mean, variance)
    beta = jnp.maximum(-2.0 * by_variance, LEAST_PRECISION)
    return bound, Sites(beta * mean + alpha, beta)


class DualPosterior(NamedTuple):
    """Posterior that sites give at their rows.

    Attributes
    ----------
    sites : Sites
    mean, variance : ndarray of shape (n,)
        Of the function.
    factor : Cholesky
        Of ``I + S K S`` with ``S = precision^1/2``.
    bound : float
        Lower bound of the log evidence, in nats.
    better : Sites
        Sites of `local_sites` here.
    """

    sites: Sites
    mean: np.ndarray
    variance: np.ndarray
    factor: Cholesky
    bound: float
    better: Sites


class DualEvidence(RowEvidence):
    """The evidence lower bound of ``q(f) ~ N(f | 0, K) prod_i t_i(f_i)``, sites at their optimum, and its gradient.

    This is t-SVGP (Chang et al. 2020; Adam et al. 2021) with the inducing points at the rows. As the bound is
    stationary in ``q``, its derivative by a hyperparameter of the kernel is that of ``-KL(q || p)`` with ``q`` held,
    ``1/2 sum_ij (a a^T - (K + Lambda^-1)^-1)_ij dK_ij`` with ``a = K^-1 mean = lambda_1 - lambda_2 mean``: what
    Gaussian regression with noise variances ``1 / lambda_2`` has.

    Sites stay from one call to the next, so that few updates are needed where hyperparameters move little.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
        In the units of the likelihood.
    """

    def __init__(self, X: Any, y: Any) -> None:
        super().__init__(X, y)
        self._sites = Sites(np.zeros(self.num_rows), np.zeros(self.num_rows))
        self._padded_y = np.pad(self.y, (0, len(self._padded_X) - self.num_rows), mode="edge")

    def objective(self, params: tuple[Kernel, Likelihood]) -> tuple[float, tuple[Kernel, Any]]:
        """Return the bound and its derivatives by every hyperparameter of kernel and likelihood.

        Raises
        ------
        FactorizationError
            When the covariance matrix cannot be factorised with the largest jitter.
        """
        kernel, likelihood = params
        found = self.solve(kernel, likelihood)
        by_likelihood = self._by_likelihood(likelihood, found)
        root = np.sqrt(found.sites.precision)
        inverse = found.factor.into_inverse().T * root
        inverse *= root[:, None]  # S B^-1 S = (K + Lambda^-1)^-1
        weights = found.sites.linear - found.sites.precision * found.mean
        by_kernel = self._by_kernel(kernel, *self._pad(inverse, weights))
        return found.bound, (by_kernel, by_likelihood)

    def solve(self, kernel: Kernel, likelihood: Likelihood) -> DualPosterior:
        """Return the posterior at the best sites. The next call reuses the factor's memory."""
        K = self._covariance(kernel)[: self.num_rows, : self.num_rows]
        best = self._posterior(K, likelihood, self._sites)
        rate, settled = 1.0, False
        for _ in range(_MOST_UPDATES):
            found = self._posterior(K, likelihood, best.sites.toward(best.better, rate))
            gain = found.bound - best.bound
            if gain >= 0.0:
                best, rate = found, min(1.0, 2.0 * rate)
                settled = gain <= _CONVERGED * self.num_rows
            else:
                settled = -gain <= _CONVERGED * self.num_rows or rate <= _LEAST_RATE
                rate *= 0.5
            if settled:
                break
        self._sites = best.sites
        # the factor's memory holds the last trial's
        return best if found is best else self._posterior(K, likelihood, best.sites)

    def _posterior(self, K: np.ndarray, likelihood: Likelihood, sites: Sites) -> DualPosterior:
        linear, root = sites.linear, np.sqrt(sites.precision)
        # B = I + S K S
        factor = factorize(
            K * root * root[:, None],
            1.0,
            what="the covariance matrix of the sites (I + S K S)",
            advice="Choose a rougher kernel such as Matern32, or a smaller amplitude.",
            work=self._work,
        )
        # Sigma = K - H^T H with H = L^-1 S K
        H = factor.half_solve(np.asfortranarray(root[:, None] * K))
        mean = K @ linear - H.T @ (H @ linear)
        variance = np.maximum(np.diagonal(K) - np.einsum("ij,ij->j", H, H), 0.0)
        # log of the integral of N(f | 0, K) prod t_i: 1/2 lambda_1^T m - 1/2 log |B|
        log_normaliser = 0.5 * (float(linear @ mean) - factor.log_determinant)
        of_sites = linear * mean - 0.5 * sites.precision * (variance + mean**2)
        bound, better = self._local(likelihood, mean, variance)
        # ELBO = sum E_q[log p(y_i | f_i)] - KL,  KL = sum E_q[log t_i] - log Z
        total = float(np.sum(bound)) - float(np.sum(of_sites)) + log_normaliser
        return DualPosterior(sites, mean, variance, factor, total, better)

    def _local(
        self, likelihood: Likelihood, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, Sites]:
        n, extra = self.num_rows, len(self._padded_y) - self.num_rows
        padded = (np.pad(values, (0, extra), mode="edge") for values in (mean, variance))
        with precision("float64"):
            bound, sites = local_sites(_wide(likelihood), self._padded_y, *padded)
        linear, best = (np.asarray(part)[:n] for part in sites)
        return np.asarray(bound)[:n], Sites(linear, best)

    def _by_likelihood(self, likelihood: Likelihood, found: DualPosterior) -> Any:
        with precision("float64"):
            slope = _likelihood_slope(_wide(likelihood), self.y, found.mean, found.variance)
        return jax.tree.map(np.asarray, slope)


@jax.jit
def _likelihood_slope(likelihood: Likelihood, y: Array, mean: Array, variance: Array) -> Likelihood:
    return jax.grad(lambda given: jnp.sum(given.site_bound(y, mean, variance)))(likelihood)


def _wide(likelihood: Likelihood) -> Likelihood:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), likelihood)
