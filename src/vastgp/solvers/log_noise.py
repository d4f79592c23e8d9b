"""The logarithm of a noise variance as a Gaussian process of the inputs, given what each row was off by.

Given ``e_i = E[(y_i - f_i)^2]`` the noise ``r(x) = exp(c + g(x))``, ``g ~ GP(0, k + s0^2)``, has the log likelihood
``sum_i -1/2 (c + g_i + e_i exp(-c - g_i) + log 2 pi)``, which is concave in ``g``: its expectation under normal ``g_i``
has a closed form (Lazaro-Gredilla and Titsias 2011), and damped Newton steps find the best ones. ``exp(c)`` is the mean
of ``e``, and the constant of variance ``s0^2`` what is not known of the level. Logarithms of noise are smooth and each
row says little of them (its Fisher information is 1/2), so that some hundred inducing variables hold what there is to
know.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from scipy.linalg import lapack

from vastgp.fitting.candidates import candidate_kernels
from vastgp.fitting.damped_updates import DampedUpdates
from vastgp.fitting.dual_evidence import Sites
from vastgp.fitting.hyperparameter_prior import HyperparameterPrior
from vastgp.fitting.inducing_points import select_inducing
from vastgp.fitting.start import fit_evidence
from vastgp.kernels import Kernel, from_spec, to_spec
from vastgp.kernels.dense import dense_cross_slope
from vastgp.kernels.matrices import covariance, prior_variances
from vastgp.kernels.metric import number_of_inputs
from vastgp.linalg.cholesky import Cholesky, factorize
from vastgp.linalg.threads import blas_threads

# Of the process: rough enough for noise that jumps, smooth enough to average over many rows.
_FORM = "matern52"
# Inducing inputs and rows that hyperparameters are learned with, and those of the posterior.
_LEARNED, _KEPT = (100, 4000), (200, 20_000)
# Standard deviation of the constant, in logarithms of a variance.
_CONSTANT = 2.0
# Of the kernel matrix of inducing inputs, relative to its diagonal: chosen greedily they are far apart.
_JITTER = 1e-8
# Steps of the sites leave less than this to gain for each row; steps at most; iterations of L-BFGS at most.
_LEAST_GAIN, _MOST_STEPS, _MOST_ITERATIONS, _TOL = 1e-8, 60, 60, 1e-4
# Beyond this a variance overflows.
_MOST_LOG = 80.0
_LOG_2PI = float(np.log(2.0 * np.pi))
_ROWS = 61  # a use of the seed


class _Found(NamedTuple):
    """What sites give, see `vastgp.fitting.damped_updates.Found`.

    Attributes
    ----------
    sites, better : Sites
    bound : float
        Of ``log p(e)``, in nats.
    mean, variance : ndarray of shape (n,)
        Of ``g`` at the rows.
    weights : ndarray of shape (1 + m,)
        Mean of the constant, in its deviations, and of the whitened inducing variables.
    factor : Cholesky
        Of their posterior precision.
    """

    sites: Sites
    better: Sites
    bound: float
    mean: np.ndarray
    variance: np.ndarray
    weights: np.ndarray
    factor: Cholesky


@dataclass(frozen=True)
class LogNoise:
    """Posterior of the logarithm of a noise variance, less its level.

    Attributes
    ----------
    kernel : Kernel
        Over standardised inputs.
    level : float
        Mean of the logarithm where the process is zero: ``c`` and what was learned of the constant.
    Z : ndarray of shape (m, d)
        Inducing inputs.
    weights : ndarray of shape (1 + m,)
        Means of the constant, in its deviations, and of ``L^-1 g(Z)`` with ``L L^T = k(Z, Z)``.
    precision : ndarray of shape (1 + m, 1 + m)
        Of these.
    """

    kernel: Kernel
    level: float
    Z: np.ndarray
    weights: np.ndarray
    precision: np.ndarray

    @cached_property
    def _factors(self) -> tuple[Cholesky, Cholesky]:
        return _prior_factor(self.kernel, self.Z), factorize(self.precision, what=_WHAT)

    def mean(self, X: Any) -> np.ndarray:
        """Return means, less the level, (n,)."""
        return self._features(X)[1:].T @ self.weights[1:]

    def mean_and_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return means, less the level, and variances, (n,) each."""
        features = self._features(X)
        left = prior_variances(self.kernel, X) - _squares(features[1:])
        spread = _squares(self._factors[1].half_solve(features))
        return features[1:].T @ self.weights[1:], np.maximum(left, 0.0) + spread

    def effective_variances(self, X: Any) -> np.ndarray:
        """Return ``1 / E[1 / r]``, the noise variance that rows have for the function, relative to its level's."""
        mean, variance = self.mean_and_variance(X)
        return np.exp(mean - 0.5 * variance)

    def evidence_cost(self, X: Any) -> float:
        """Return what the bound of the evidence of rows has less than that given `effective_variances`, in nats.

        ``1/4 sum_i V_i + KL(q(g) || p(g))`` (Lazaro-Gredilla and Titsias 2011).
        """
        spread = self.mean_and_variance(X)[1]
        return 0.25 * float(np.sum(spread)) + _divergence(self.weights, self._factors[1])

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        spec, arrays = to_spec(self.kernel)
        own = {"Z": self.Z, "weights": self.weights, "precision": self.precision}
        return {"kernel": spec, "level": self.level}, arrays | own

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> LogNoise:
        """Return the posterior that `to_state` described."""
        own = (arrays[name] for name in ("Z", "weights", "precision"))
        return cls(from_spec(state["kernel"], arrays), float(state["level"]), *own)

    def _features(self, X: Any) -> np.ndarray:
        return _features(self._factors[0], covariance(self.kernel, self.Z, X))


_WHAT = "the precision of the inducing variables of the noise"


class LogNoiseEvidence:
    """Lower bound of the evidence of ``e`` by the kernel of ``g``, over the best level and the best normal ``g(Z)``.

    As the bound is stationary in both, its slope by the kernel is that with both held.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Standardised inputs.
    square : ndarray of shape (n,)
        ``e``.
    Z : ndarray of shape (m, d)
    """

    def __init__(self, X: np.ndarray, square: np.ndarray, Z: np.ndarray) -> None:
        self.X, self.square, self.Z = X, square, Z
        self.num_rows, self.num_features = X.shape
        mean = max(float(np.mean(square)), float(np.finfo(np.float64).tiny))
        self.level, self.relative = float(np.log(mean)), square / mean
        self._sites = Sites(np.zeros(len(X)), np.full(len(X), 0.5))

    @property
    def constant(self) -> float:
        """The bound where all rows have one noise."""
        features = np.full((1, self.num_rows), _CONSTANT)
        with blas_threads(1):
            return self._settled(features, np.zeros(self.num_rows), self._sites).bound

    def objective(self, params: tuple[Kernel, None]) -> tuple[float, tuple[Kernel, None]]:
        """Return the bound at ``(kernel, None)``, and its slope."""
        kernel, _ = params
        with blas_threads(1):
            found, features, root = self._solve(kernel)
            # F = sum_i l_i(m_i, V_i) - KL,  m = Phi^T mu,  V_i = k_ii + s0^2 + Phi_i^T (S - I) Phi_i
            half = found.better.precision
            spread = found.factor.solve(features) - features
            by_features = (np.outer(found.weights, half - 0.5) - half * spread)[1:]
            # Phi = L^-1 K(Z, X)
            by_cross = _transposed_solve(root, by_features)
            by_prior = _through_cholesky(root, -np.tril(by_cross @ features[1:].T))
        by_prior.reshape(-1)[:: len(by_prior) + 1] *= 1.0 + _JITTER
        slope = jax.tree.map(
            np.add,
            dense_cross_slope(kernel, self.Z, self.X, by_cross),
            dense_cross_slope(kernel, self.Z, self.Z, by_prior),
        )
        # k_ii is the kernel's variance
        by_variance = slope.variance - 0.5 * float(np.sum(half))
        return found.bound, (eqx.tree_at(lambda k: k.variance, slope, by_variance), None)

    def posterior(self, kernel: Kernel) -> tuple[LogNoise, float]:
        """Return the posterior under a kernel, and the bound."""
        with blas_threads(1):
            found, features, _ = self._solve(kernel)
            precision = _precision(features, found.sites.precision)
        level = self.level + _CONSTANT * float(found.weights[0])
        return LogNoise(kernel, level, self.Z, found.weights, precision), found.bound

    def _solve(self, kernel: Kernel) -> tuple[_Found, np.ndarray, Cholesky]:
        root = _prior_factor(kernel, self.Z)
        features = _features(root, covariance(kernel, self.Z, self.X))
        left = np.maximum(prior_variances(kernel, self.X) - _squares(features[1:]), 0.0)
        found = self._settled(features, left, self._sites)
        self._sites = found.sites
        return found, features, root

    def _settled(self, features: np.ndarray, left: np.ndarray, sites: Sites) -> _Found:
        updates = DampedUpdates(
            lambda sites: self._at(sites, features, left),
            most=1.0, least_gain=_LEAST_GAIN * self.num_rows,
        )  # fmt: skip
        return updates.run(updates.start(sites), _MOST_STEPS).found

    def _at(self, sites: Sites, features: np.ndarray, left: np.ndarray) -> _Found:
        factor = factorize(_precision(features, sites.precision), what=_WHAT)
        weights = factor.solve(features @ sites.linear)
        mean, variance = features.T @ weights, left + _squares(factor.half_solve(features))
        # h = 1/2 e E[exp(-c - g)]
        inverse = np.exp(np.minimum(0.5 * variance - mean, _MOST_LOG))
        half = 0.5 * self.relative * inverse
        fit = -np.sum(half) - 0.5 * (np.sum(mean) + self.num_rows * (self.level + _LOG_2PI))
        divergence = _divergence(weights, factor)
        # the slope by the mean is h - 1/2, by the variance -h / 2
        better = Sites(half * mean + half - 0.5, half)
        return _Found(sites, better, float(fit - divergence), mean, variance, weights, factor)


class LearnedNoise(NamedTuple):
    """A posterior, and how much better it is than one noise for all rows.

    Attributes
    ----------
    posterior : LogNoise
    bound : float
        Of the log evidence of what rows are off by, in nats, with the prior of lengthscales.
    constant : float
        That of one noise for all.
    cost : float
        Nats that amplitude and lengthscale have to gain, ``log n`` (Schwarz 1978).
    """

    posterior: LogNoise
    bound: float
    constant: float
    cost: float

    @property
    def gain(self) -> float:
        """Nats by which noise that varies is better, less what it costs."""
        return self.bound - self.constant - self.cost


def learn_log_noise(
    X: np.ndarray,
    square: np.ndarray,
    *,
    seed: int,
    inputs: Any = None,
    start: Kernel | None = None,
    max_iter: int = _MOST_ITERATIONS,
) -> LearnedNoise:
    """Return the posterior of the log noise at hyperparameters of highest bound.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Standardised inputs.
    square : ndarray of shape (n,)
        What rows are off by, squared, in any units: ``E[(y - f)^2]``.
    seed : int
        Of the rows that are used where there are very many.
    inputs : sequence of int, optional
        Which columns have one lengthscale, see `candidate_kernels`.
    start : Kernel, optional
        Where learning starts; None: at default values.
    max_iter : int
        Most iterations of L-BFGS.
    """
    generator = np.random.default_rng([seed, _ROWS])
    order = generator.permutation(len(X))
    kernel = start or candidate_kernels(_FORM, X.shape[1], inputs)[0]
    points, rows = _LEARNED
    some = np.sort(order[:rows])
    for _ in range(1 if start is not None else 2):
        # what matters is known after a first search, and with it where inducing inputs had better be
        Z = _points(kernel, X[some], points)
        evidence = LogNoiseEvidence(X[some], square[some], Z)
        fitted = fit_evidence(
            evidence, (kernel, None), noise_floor=1.0, max_iter=max_iter, tol=_TOL
        )
        kernel = fitted.params[0]
    points, rows = _KEPT
    some = np.sort(order[:rows])
    evidence = LogNoiseEvidence(X[some], square[some], _points(kernel, X[some], points))
    posterior, bound = evidence.posterior(kernel)
    prior = HyperparameterPrior(number_of_inputs(kernel, X.shape[1]))((kernel, None))[0]
    return LearnedNoise(posterior, bound + prior, evidence.constant, float(np.log(len(some))))


def _points(kernel: Kernel, X: np.ndarray, count: int) -> np.ndarray:
    """Return inducing inputs: rows of largest remaining variance, repeated ones once."""
    X = np.unique(X, axis=0)
    return X if len(X) <= count else select_inducing("greedy", kernel, X, count)


def _prior_factor(kernel: Kernel, Z: np.ndarray) -> Cholesky:
    K = covariance(kernel, Z, Z)
    found = factorize(K, _JITTER * np.diagonal(K), what="the kernel of the noise")
    return Cholesky(np.tril(found.lower), found.jitter)


def _features(root: Cholesky, cross: np.ndarray) -> np.ndarray:
    """Return the constant, and ``L^-1 k(Z, X)``: (1 + m, n)."""
    with blas_threads(1):
        return np.vstack([np.full((1, cross.shape[1]), _CONSTANT), root.half_solve(cross)])


def _precision(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    scaled = features * np.sqrt(weights)
    found = scaled @ scaled.T
    found.reshape(-1)[:: len(found) + 1] += 1.0
    return found


def _divergence(weights: np.ndarray, factor: Cholesky) -> float:
    """Return ``KL(N(mu, S) || N(0, I))``, of which the factor has ``S^-1``."""
    inner = np.tril(lapack.dtrtri(factor.lower, lower=1)[0])
    trace = float(np.vdot(inner, inner))
    return 0.5 * (trace + weights @ weights - len(weights) + factor.log_determinant)


def _squares(columns: np.ndarray) -> np.ndarray:
    """Return the squared norm of each column."""
    return np.einsum("ij,ij->j", columns, columns)


def _transposed_solve(root: Cholesky, right: np.ndarray) -> np.ndarray:
    """Return ``L^-T right``."""
    return lapack.dtrtrs(root.lower, right, lower=1, trans=1)[0]


def _through_cholesky(root: Cholesky, by_root: np.ndarray) -> np.ndarray:
    """Return the slope by ``A`` of what has the slope ``by_root`` by its factor: ``L^-T P(L^T by_root) L^-1``.

    ``P`` halves the diagonal and drops what is above it (Murray 2016, eq. 9).
    """
    inner = np.tril(root.lower.T @ by_root)
    inner.reshape(-1)[:: len(inner) + 1] *= 0.5
    half = _transposed_solve(root, inner)
    found = _transposed_solve(root, np.asfortranarray(half.T)).T
    return 0.5 * (found + found.T)
