"""Lower bound of the log evidence for any likelihood, its Gaussian approximation held as one site a row."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg.blas import dgemv

from vastgp._precision import as_dtype, precision
from vastgp._programs import program
from vastgp.data.padding import padded_size, repeat_last
from vastgp.fitting.damped_updates import SETTLED, DampedUpdates
from vastgp.fitting.exact_evidence import RowEvidence
from vastgp.kernels import Kernel
from vastgp.likelihoods import Likelihood
from vastgp.likelihoods.rowwise import nodes_made
from vastgp.linalg.cholesky import Cholesky, factorize

# Least precision of a site: the posterior at a row with less is the prior's to 1e-10.
LEAST_PRECISION = 1e-10
# What sites that have converged leave to gain, in nats a row. It is quadratic in the sites' error, gradients linear.
_CONVERGED = 1e-9
_MOST_UPDATES = 100
# Of sites with at least this precision rounding leaves variances with errors below 1e-8.
_RESOLVED = 1e-8
# Of so many rows and more, sites start from what a quarter of the rows say of all, at a sixty-fourth of the cost an
# update: from none 2000 labels took twenty updates, seven so. How near the sites of the quarter come, in nats a row.
_MANY_ROWS, _SHARE, _NEAR = 400, 4, 1e-4
# Variance at most that first sites are asked for: from a prior's of 30 the averages of a count's rate are e^15, and so
# are its sites. Steps from there ended in what rounding left, a "bound" of +7446 nats.
_TAME = 4.0
# Of a bound whose terms cancel to less than this many nats nothing is known.
_LOST = 0.01


class Sites(NamedTuple):
    """Gaussian sites ``t_i(f_i) = exp(linear_i f_i - 1/2 precision_i f_i^2)`` in the place of the likelihood.

    Attributes
    ----------
    linear : Array of shape (n,), or (C, n) for a likelihood of C functions
        ``lambda_1`` of Chang et al. (t-SVGP).
    precision : Array of the same shape
        ``lambda_2 = beta >= 0`` (erratum 11).
    """

    linear: Any
    precision: Any

    def centred(self, mean: Any) -> tuple[Sites, Any]:
        """Return sites whose posterior means sum to zero over the functions, and these means.

        Where the likelihood does not see what all C functions have in common (softmax), their optimum is zero there:
        as ``K^-1 m_c = alpha_c`` and the ``alpha_c`` sum to zero, so do the ``m_c``. Iterations get there slowly.

        Parameters
        ----------
        mean : Array of shape (C, n)
            That the sites give, so that ``K^-1 mean = linear - precision mean``.
        """
        weights = self.linear - self.precision * mean
        weights, mean = (part - part.mean(axis=0) for part in (weights, mean))
        return Sites(weights + self.precision * mean, self.precision), mean

    def at_least(self, least: float, mean: Any) -> Sites:
        """Return sites of at least some precision whose slope at ``mean`` is the same."""
        raised = self.precision.clip(min=least)
        return Sites(self.linear + (raised - self.precision) * mean, raised)


def most_rate(likelihood: Likelihood) -> float:
    """Return the step of the sites that converges fastest in the worst case.

    One function's site has the likelihood's own curvature, and steps are Newton's. The sites of several functions have
    its diagonal ``D`` alone, and ``diag(p) - p p^T`` lies between 0 and ``2 D``: on the functions that differ it is
    from about D to 2 D, and a step of 2/3 leaves a third of the error at either end.
    """
    return 1.0 if likelihood.num_latent == 1 else 2.0 / 3.0


@program(work=nodes_made)
def local_sites(
    likelihood: Likelihood,
    y: Float[Array, "n *k"],
    mean: Float[Array, "*c n"],
    variance: Float[Array, "*c n"],
) -> tuple[Float[Array, " n"], Sites]:
    """Return each row's bound on ``E_q[log p(y | f)]`` and the sites that its derivatives ask for.

    With ``alpha = d/dmean`` and ``beta = -2 d/dvariance`` of the bound (Bonnet, Price), the natural gradient of the
    evidence bound has the fixed point ``lambda_2 = beta``, ``lambda_1 = beta mean + alpha`` (eqs. (12)-(13) of t-SVGP
    with the sign of erratum 11).
    """

    def total(mean: Array, variance: Array) -> tuple[Array, Array]:
        bound = likelihood.site_bound(y, mean, variance)
        return jnp.sum(bound), bound

    gradient = jax.grad(total, argnums=(0, 1), has_aux=True)
    (alpha, by_variance), bound = gradient(mean, variance)
    beta = jnp.maximum(-2.0 * by_variance, LEAST_PRECISION)
    return bound, Sites(beta * mean + alpha, beta)


def sites_in_numpy(
    likelihood: Likelihood, y: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, Sites]:
    """Return what `local_sites` does, of a likelihood that has it in NumPy."""
    bound, alpha, beta = likelihood.bound_and_sites(y, mean, variance)
    beta = np.maximum(beta, LEAST_PRECISION)
    return bound, Sites(beta * mean + alpha, beta)


class DualPosterior(NamedTuple):
    """Posterior that sites give at their rows.

    Attributes
    ----------
    sites : Sites
    mean, variance : ndarray of shape (n,), or (C, n)
        Of the function, or of each of them.
    bound : float
        Lower bound of the log evidence, in nats.
    better : Sites
        Sites of `local_sites` here.
    settled : bool
        Whether the sites are at their optimum.
    """

    sites: Sites
    mean: np.ndarray
    variance: np.ndarray
    bound: float
    better: Sites
    settled: bool = False


class DualEvidence(RowEvidence):
    """The evidence lower bound of ``q(f) ~ N(f | 0, K) prod_i t_i(f_i)``, sites at their optimum, and its gradient.

    This is t-SVGP (Chang et al. 2020; Adam et al. 2021) with the inducing points at the rows. As the bound is
    stationary in ``q``, its derivative by a hyperparameter of the kernel is that of ``-KL(q || p)`` with ``q`` held,
    ``1/2 sum_ij (a a^T - (K + Lambda^-1)^-1)_ij dK_ij`` with ``a = K^-1 mean = lambda_1 - lambda_2 mean``: what
    Gaussian regression with noise variances ``1 / lambda_2`` has.

    Several functions (`Softmax`) are independent under ``q``, with one kernel and sites of their own; the sums are
    over all of them.

    Sites stay from one call to the next, so that few updates are needed where hyperparameters move little.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
        In the units of the likelihood.
    least_gain : float, default 1e-9
        Sites have converged where no more is left to gain, in nats a row.
    padded : int, optional
        Rows that compiled code is for, in the place of the least that many evidences share.
    """

    def __init__(
        self, X: Any, y: Any, least_gain: float = _CONVERGED, padded: int | None = None
    ) -> None:
        super().__init__(X, y)
        self._least_gain = least_gain
        self._sites: Sites | None = None
        self._padded_y = repeat_last(self.y, padded or padded_size(self.num_rows))

    def objective(self, params: tuple[Kernel, Likelihood]) -> tuple[float, tuple[Kernel, Any]]:
        """Return the bound and its derivatives by every hyperparameter of kernel and likelihood.

        Raises
        ------
        FactorizationError
            When the covariance matrix cannot be factorised with the largest jitter.
        """
        kernel, likelihood = params
        K = self._covariance(kernel, _least_noise(likelihood))
        found = self._solve(K, likelihood)
        by_likelihood = self._by_likelihood(likelihood, found)
        total, *rest = (
            self._by_covariance(K, sites, mean)
            for sites, mean in zip(_each(found.sites), np.atleast_2d(found.mean), strict=True)
        )
        # the derivative by the kernel is linear in these, and takes as long as they do: one of their sum
        inverse, weights = total
        for other, own in rest:
            inverse += other
            inverse -= np.outer(own, own)
        return found.bound, (self._by_kernel(kernel, inverse, weights), by_likelihood)

    def _by_covariance(
        self, K: np.ndarray, sites: Sites, mean: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ``(K + Lambda^-1)^-1``, its upper triangle, and ``K^-1 mean`` of one function."""
        root = np.sqrt(sites.precision)
        inverse = self._factor(K, root).into_inverse().T * root
        inverse *= root[:, None]  # S B^-1 S = (K + Lambda^-1)^-1
        return inverse, sites.linear - sites.precision * mean

    def solve(self, kernel: Kernel, likelihood: Likelihood) -> DualPosterior:
        """Return the posterior at the best sites."""
        return self._solve(self._covariance(kernel, _least_noise(likelihood)), likelihood)

    def _solve(self, K: np.ndarray, likelihood: Likelihood) -> DualPosterior:
        updates = DampedUpdates(
            lambda sites: self._posterior(K, likelihood, sites),
            most=most_rate(likelihood),
            least_gain=self._least_gain * self.num_rows,
        )
        if self._sites is None:
            self._sites = self._by_some_rows(K, likelihood)
        state = updates.start(self._sites)
        if not np.isfinite(state.found.bound):
            state = updates.start(self._none(likelihood))
        state = updates.run(state, _MOST_UPDATES)
        self._sites = state.found.sites
        settled: DualPosterior = state.found._replace(settled=state.end == SETTLED)
        return settled

    def _none(self, likelihood: Likelihood) -> Sites:
        functions = () if likelihood.num_latent == 1 else (likelihood.num_latent,)
        nothing = np.zeros((*functions, self.num_rows))
        return Sites(nothing, nothing)

    def _by_some_rows(self, K: np.ndarray, likelihood: Likelihood) -> Sites:
        """Return the sites that the posterior of a quarter of the rows asks for at all of them, of few the prior."""
        n = self.num_rows
        if n < _MANY_ROWS:
            prior = np.minimum(np.diagonal(K), _TAME)
            nothing = self._none(likelihood).linear
            return self._local(likelihood, nothing, np.broadcast_to(prior, nothing.shape))[1]
        rows = np.sort(np.random.default_rng(0).permutation(n)[: n // _SHARE])
        some = DualEvidence(self.X[rows], self.y[rows], _NEAR, len(self._padded_y))
        part = np.asfortranarray(K[np.ix_(rows, rows)])
        found = some._solve(part, likelihood)
        moments = [
            some._elsewhere(part, K[rows], np.diagonal(K), *of_one)
            for of_one in zip(_each(found.sites), np.atleast_2d(found.mean), strict=True)
        ]
        shape = (*np.shape(found.mean)[:-1], n)
        mean, variance = (np.reshape([each[k] for each in moments], shape) for k in (0, 1))
        return self._local(likelihood, mean, np.minimum(variance, _TAME))[1]

    def _elsewhere(
        self, K: np.ndarray, across: np.ndarray, prior: np.ndarray, sites: Sites, mean: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of one function at other rows, ``across`` being covariances of these with them."""
        root = np.sqrt(sites.precision)
        H = self._factor(K, root).half_solve(np.asfortranarray(root[:, None] * across))
        # K^-1 mean = lambda_1 - lambda_2 mean, and (K + Lambda^-1)^-1 = S B^-1 S
        return across.T @ (sites.linear - sites.precision * mean), np.maximum(
            prior - np.einsum("ij,ij->j", H, H), 0.0
        )

    def _posterior(self, K: np.ndarray, likelihood: Likelihood, sites: Sites) -> DualPosterior:
        parts = [self._function(K, of_one) for of_one in _each(sites)]
        shape = np.shape(sites.linear)
        mean, variance = (np.reshape([part[k] for part in parts], shape) for k in (0, 1))
        if likelihood.shift_invariant:
            sites, mean = sites.centred(mean)
        # log Z = 1/2 lambda_1^T m - 1/2 log |B|, Z the integral of N(f | 0, K) prod t_i
        log_normaliser = 0.5 * (float(np.sum(sites.linear * mean)) - sum(part[2] for part in parts))
        of_sites = sites.linear * mean - 0.5 * sites.precision * (variance + mean**2)
        bound, better = self._local(likelihood, mean, variance)
        # ELBO = sum E_q[log p(y_i | f_i)] - KL,  KL = sum E_q[log t_i] - log Z
        terms = np.array([np.sum(bound), -np.sum(of_sites), log_normaliser])
        total = float(np.sum(terms))
        if np.finfo(float).eps * np.max(np.abs(terms)) > _LOST:
            total = -np.inf
        return DualPosterior(sites, mean, variance, total, better)

    def _function(self, K: np.ndarray, sites: Sites) -> tuple[np.ndarray, np.ndarray, float]:
        """Return mean and variance of one function, and ``log |B|``."""
        linear, precision = sites
        root = np.sqrt(precision)
        factor = self._factor(K, root)
        log_det = factor.log_determinant
        # Sigma = K - K S B^-1 S K
        mean = _times(K, linear - root * factor.solve(root * _times(K, linear)))
        # Sigma = S^-1 (I - B^-1) S^-1, as S K S = B - I: half of the operations
        variance = (1.0 - factor.inverse_diagonal()) / np.maximum(precision, _RESOLVED)
        faint = np.flatnonzero(precision < _RESOLVED)
        if len(faint):
            H = factor.half_solve(np.asfortranarray(root[:, None] * K[:, faint]))
            variance[faint] = np.diagonal(K)[faint] - np.einsum("ij,ij->j", H, H)
        return mean, np.maximum(variance, 0.0), log_det

    def _factor(self, K: np.ndarray, root: np.ndarray) -> Cholesky:
        """Factorise ``B = I + S K S`` with ``S = precision^1/2``, in the same memory every time."""

        def write(upper: np.ndarray) -> None:
            np.multiply(K, root, out=upper)
            upper *= root[:, None]

        return factorize(
            write,
            1.0,
            what="the covariance matrix of the sites (I + S K S)",
            advice="Choose a rougher kernel such as Matern32, or a smaller amplitude.",
            work=self._work,
        )

    def _local(
        self, likelihood: Likelihood, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, Sites]:
        n = self.num_rows
        if "bound_and_sites" in likelihood.in_numpy and mean.size <= likelihood.most_in_numpy:
            # without a program, which takes ten times as long where it was compiled in a hurry
            return sites_in_numpy(
                likelihood, np.asarray(self._padded_y, np.float64)[:n], mean, variance
            )
        with precision("float64"):
            bound, sites = local_sites(
                as_dtype(likelihood, np.float64), self._padded_y, *self._padded(mean, variance)
            )
        return np.asarray(bound)[:n], Sites(*(np.asarray(part)[..., :n] for part in sites))

    def _padded(self, *parts: np.ndarray) -> list[np.ndarray]:
        """Return values at the rows made up to the size that compiled code is shared for."""
        extra = len(self._padded_y) - self.num_rows
        rest = [(0, 0)] * (parts[0].ndim - 1) + [(0, extra)]
        return [np.pad(part, rest, mode="edge") for part in parts]

    def _by_likelihood(self, likelihood: Likelihood, found: DualPosterior) -> Any:
        if not jax.tree.leaves(likelihood):
            return likelihood  # of nothing
        with precision("float64"):
            mean, variance = self._padded(found.mean, found.variance)
            weights = np.arange(len(self._padded_y)) < self.num_rows
            slope = _likelihood_slope(
                as_dtype(likelihood, np.float64), self._padded_y, mean, variance, weights
            )
        return jax.tree.map(np.asarray, slope)


def _least_noise(likelihood: Likelihood) -> float:
    """Return the least noise variance that a site stands for: what covariances may be rounded by is far below it."""
    return 1.0 / likelihood.most_curvature()


def _times(K: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Return ``K vector`` of a symmetric matrix, by the BLAS of SciPy, as NumPy's own would contend with its LAPACK."""
    return dgemv(1.0, K.T, vector)


def _each(sites: Sites) -> list[Sites]:
    """Return the sites of each function."""
    return [Sites(*of_one) for of_one in zip(*map(np.atleast_2d, sites), strict=True)]


@program(work=nodes_made)
def _likelihood_slope(
    likelihood: Likelihood, y: Array, mean: Array, variance: Array, weights: Array
) -> Likelihood:
    def total(given: Likelihood) -> Array:
        return jnp.sum(weights * given.site_bound(y, mean, variance))

    return jax.grad(total)(likelihood)
