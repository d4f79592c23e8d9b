"""Exact log evidence of Gaussian process regression, and its gradient."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from vastgp.data import observations
from vastgp.kernels import Kernel
from vastgp.kernels.matrices import (
    covariance,
    covariance_slope,
    covariance_upper,
    prior_variances,
)
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import Cholesky, FactorizationError, ToFactorize, factorize

_WHAT = "the covariance matrix of the observations (kernel + noise variance)"
_ADVICE = (
    "Raise the noise (noise_floor, or the noise given), choose a rougher kernel such as Matern32, "
    "or remove rows that are almost the same."
)
# How much larger the amplitude may become where the noise is at its least.
_RATIO_ROOM = 10.0
# Where rows have known errors: room of the logarithm of the amplitude, and most steps of the search.
_AMPLITUDE_ROOM, _MOST_STEPS = 8.0, 10


class RowEvidence:
    """What the evidence of a few rows needs whatever the likelihood: covariance matrices and their gradients, float64.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    """

    def __init__(self, X: Any, y: Any) -> None:
        self.X = np.ascontiguousarray(X, dtype=np.float64)
        self.y = np.ascontiguousarray(y, dtype=np.float64)
        self.num_rows, self.num_features = self.X.shape
        self._work = np.empty((self.num_rows, self.num_rows), order="F")

    def _covariance(self, kernel: Kernel, noise_variance: float = 0.0) -> np.ndarray:
        """Return ``K``, which rounding may change by far less than ``noise_variance``."""
        del noise_variance
        return covariance(kernel, self.X, self.X)

    def _upper(self, kernel: Kernel, noise_variance: float) -> ToFactorize:
        """Return what is factorised, or what writes as much of it as is."""
        del noise_variance
        return partial(covariance_upper, kernel, self.X)

    def _by_kernel(self, kernel: Kernel, inverse: np.ndarray, weights: np.ndarray) -> Kernel:
        """Return ``1/2 sum_ij (w w^T - A^-1)_ij dK_ij`` by hyperparameter.

        Parameters
        ----------
        inverse : ndarray of shape (n, n)
            ``A^-1``; its upper triangle is valid.
        weights : ndarray of shape (n,)
            ``w``.
        """
        return covariance_slope(kernel, self.X, inverse, weights)


class ExactEvidence(RowEvidence):
    """The log evidence of given rows as a function of kernel and noise variance.

    ``log p(y) = -1/2 y^T A^-1 y - 1/2 log|A| - n/2 log(2 pi)``, ``A = K + noise_variance I``
    (Rasmussen & Williams 2006, eq. 2.30), in float64. Rows with noise of their own have
    ``A = K + diag(noise_variance / w_i + e_i^2)``.

    SciPy's LAPACK factorises, on the host. The gradient uses the closed form (ibid., eq. 5.9) through one Cholesky
    factor: autodiff through the factor takes 3.5 times as long at n = 1000 as the inverse in JAX does, 7 times as long
    as in LAPACK. For most kernels nothing is compiled (`vastgp.kernels.dense`).

    Parameters
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,), or (n, 3) with noise of the rows' own (`vastgp.data.observations`)
        With mean zero: the prior mean is zero.
    """

    def __init__(self, X: Any, y: Any) -> None:
        super().__init__(X, observations.targets(np.asarray(y)))
        self.observed = np.asarray(y, dtype=np.float64)

    def __call__(self, kernel: Kernel, noise_variance: float) -> float:
        """Return the log evidence in nats."""
        return self.solve(kernel, noise_variance)[0]

    def solve(self, kernel: Kernel, noise_variance: float) -> tuple[float, Cholesky, np.ndarray]:
        """Return the log evidence, the factor of ``A`` and ``A^-1 y``. The next call reuses the factor's memory."""
        factor = self._factor(kernel, noise_variance)
        weights = factor.solve(self.y)
        return self._value(factor, weights), factor, weights

    def value_and_gradient(
        self, kernel: Kernel, noise_variance: float
    ) -> tuple[float, tuple[Kernel, float]]:
        """Return the log evidence and its derivatives by every hyperparameter and the noise variance.

        Raises
        ------
        FactorizationError
            When the covariance matrix cannot be factorised with the largest jitter.
        """
        value, factor, weights = self.solve(kernel, noise_variance)
        inverse = factor.into_inverse()
        # d log p / d A = 1/2 (A^-1 y y^T A^-1 - A^-1)
        by_noise = slope_by_noise(self.observed, weights, np.diagonal(inverse))
        return value, (self._by_kernel(kernel, inverse.T, weights), by_noise)

    def objective(self, params: tuple[Kernel, Gaussian]) -> tuple[float, tuple[Kernel, float]]:
        """Return `value_and_gradient` of ``(kernel, likelihood)``."""
        kernel, likelihood = params
        return self.value_and_gradient(kernel, float(likelihood.noise_variance))

    def rescaled(
        self, kernel: Kernel, noise_variance: float, noise_bounds: tuple[float, float]
    ) -> tuple[float, Kernel, float]:
        """Return the highest log evidence over amplitude and noise, the kernel's shape held, and where it is.

        With ``A = a (K + t I)`` the best amplitude given ``t`` is ``a = y^T (K + t I)^-1 y / n``, so that one
        unknown is left: some fifteen factorisations and one covariance matrix, the price of two or three gradients.
        Known errors do not scale with the amplitude: both are then searched for.

        Parameters
        ----------
        kernel : Kernel
        noise_variance : float
            Kept, with the kernel, where the search finds nothing better.
        noise_bounds : (float, float)
            Least and largest noise variance.

        Raises
        ------
        FactorizationError
            When not even the given values have a covariance matrix that can be factorised.
        """
        n = self.num_rows
        K = self._covariance(kernel)
        if observations.has_own_noise(self.observed) and np.any(self.observed[:, 2]):
            return self._rescaled_beside_errors(K, kernel, noise_variance, noise_bounds)
        least, most = noise_bounds

        def evidence(ratio: float) -> tuple[float, float]:
            factor = self._factorize(K, ratio)
            misfit = float(self.y @ factor.solve(self.y))
            # the evidence has one maximum in the amplitude: within bounds it is at the nearest point
            amplitude = min(max(misfit / n, least / ratio), most / ratio)
            log_det = factor.log_determinant + n * math.log(2.0 * math.pi * amplitude)
            return -0.5 * (misfit / amplitude + log_det), amplitude

        def loss(log_ratio: float) -> float:
            try:
                return -evidence(math.exp(log_ratio))[0]
            except FactorizationError:
                return math.inf

        bounds = (math.log(least / _RATIO_ROOM), math.log(most))
        found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.1})
        ratio = min((noise_variance, math.exp(found.x)), key=lambda ratio: loss(math.log(ratio)))
        value, amplitude = evidence(ratio)
        return value, kernel.in_units(1.0, amplitude**0.5), ratio * amplitude

    def _rescaled_beside_errors(
        self,
        K: np.ndarray,
        kernel: Kernel,
        noise_variance: float,
        noise_bounds: tuple[float, float],
    ) -> tuple[float, Kernel, float]:
        """Return `rescaled` with ``A = a K + diag(noise_variance / w_i + e_i^2)``, by L-BFGS over two logarithms."""
        inverse_weights = observations.inverse_weights(self.observed)
        value_there = self._value_of(K, 1.0, noise_variance)
        best = [value_there, 1.0, noise_variance]

        def negative(logs: np.ndarray) -> tuple[float, np.ndarray]:
            amplitude, noise = np.exp(logs)
            try:
                factor = self._factorize(amplitude * K, noise)
            except FactorizationError:
                return math.inf, np.zeros(2)
            weights = factor.solve(self.y)
            value = self._value(factor, weights)
            if value > best[0]:
                best[:] = value, amplitude, noise
            # d log p / d A_ii; a K is A less the noise
            inner = weights**2 - np.diagonal(factor.into_inverse())
            variances = observations.noise_variances(self.observed, noise)
            by_amplitude = self.y @ weights - self.num_rows - variances @ inner
            slope = 0.5 * np.array([by_amplitude, noise * (inverse_weights @ inner)])
            return -value / self.num_rows, -slope / self.num_rows

        bounds = [(-_AMPLITUDE_ROOM, _AMPLITUDE_ROOM), tuple(np.log(noise_bounds))]
        start = np.array([0.0, np.clip(math.log(noise_variance), *bounds[1])])
        minimize(
            negative, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _MOST_STEPS}
        )  # fmt: skip
        value, amplitude, noise = best
        return value, kernel.in_units(1.0, amplitude**0.5), float(noise)

    def _value_of(self, K: np.ndarray, amplitude: float, noise_variance: float) -> float:
        factor = self._factorize(amplitude * K, noise_variance)
        return self._value(factor, factor.solve(self.y))

    def _factor(self, kernel: Kernel, noise_variance: float) -> Cholesky:
        noise_variance = float(noise_variance)
        return self._factorize(self._upper(kernel, noise_variance), noise_variance)

    def _factorize(self, K: ToFactorize, noise_variance: float) -> Cholesky:
        added = observations.noise_variances(self.observed, noise_variance)
        return factorize(K, added, what=_WHAT, advice=_ADVICE, work=self._work)

    def _value(self, factor: Cholesky, weights: np.ndarray) -> float:
        return log_evidence(float(self.y @ weights), factor.log_determinant, self.num_rows)


def log_evidence(misfit: float, log_determinant: float, num_rows: int) -> float:
    """Return ``-1/2 y^T A^-1 y - 1/2 log|A| - n/2 log(2 pi)``."""
    return -0.5 * (misfit + log_determinant + num_rows * math.log(2.0 * math.pi))


def slope_by_noise(observed: np.ndarray, weights: np.ndarray, diagonal: np.ndarray) -> float:
    """Return the derivative of the log evidence by the noise variance, whose ``dA`` is ``diag(1 / w)``.

    Parameters
    ----------
    observed : ndarray of shape (n,) or (n, 3)
        See `vastgp.data.observations`.
    weights, diagonal : ndarray of shape (n,)
        ``A^-1 y`` and the diagonal of ``A^-1``.
    """
    if observations.has_own_noise(observed):
        slope = observations.inverse_weights(observed) @ (weights**2 - diagonal)
    else:
        slope = weights @ weights - np.sum(diagonal)
    return 0.5 * float(slope)


def resolving_rate(
    kernel: Kernel, noise_variance: float, X: np.ndarray, y: np.ndarray | None = None
) -> float:
    """Return how fast more rows resolve a function: the exponent ``b`` of posterior variance ``~ n^-b``.

    It is read off the posterior variance at an eighth of the rows given all others, and given a quarter of those:
    one Cholesky factor has both. Near 0: correlations reach hardly any other row (rough kernels, many inputs).
    ``y`` counts where rows have noise of their own.
    """
    order = np.random.default_rng(0).permutation(len(X))  # rows may be sorted
    seen, new = np.split(X[order], [len(X) - len(X) // 8])
    evidence = ExactEvidence(seen, np.zeros(len(seen)) if y is None else y[order][: len(seen)])
    factor = evidence.solve(kernel, noise_variance)[1]
    cross = covariance(kernel, new, seen).T
    explained = np.cumsum(np.mean(factor.half_solve(cross) ** 2, axis=1))
    few = len(seen) // 4
    left = np.mean(prior_variances(kernel, new)) - explained[[few - 1, -1]]
    left = np.maximum(left, 1e-12 * float(kernel.total_variance()))
    return float(np.clip(np.log(left[0] / left[1]) / np.log(len(seen) / few), 0.0, 1.0))
