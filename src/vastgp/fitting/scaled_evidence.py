"""The log evidence of a kernel that is given but for its amplitude, as a function of amplitude and noise alone."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from vastgp.data import observations
from vastgp.linalg.eigen import symmetric_eigen
from vastgp.linalg.gram import gram
from vastgp.linalg.least_near import least_near

_LOG_2PI = math.log(2.0 * math.pi)
# Room of the logarithm of the factor; values of each that are tried first.
_ROOM, _TRIED = 8.0, 17
# Noise variances that are tried first where rows have noise of their own, and how far the logarithm is then settled.
_TRIED_NOISES, _SETTLED = 9, 0.02


class ScaledEvidence(NamedTuple):
    """``L(s, sigma^2) = log N(y; 0, s Phi Phi^T + sigma^2 I) - s left / (2 sigma^2)`` at O(m) an evaluation.

    With ``Phi^T Phi = E diag(lambda) E^T`` and ``c = E^T Phi^T y``. What functions leave of the prior variances is
    ``left`` in the bound of inducing points (Titsias 2009), and zero where the functions are the model.

    Attributes
    ----------
    eigenvalues : ndarray of shape (m,)
    projected : ndarray of shape (m,)
        ``c``.
    square : float
        ``y^T y``.
    num_rows : int
    left : float
    """

    eigenvalues: np.ndarray
    projected: np.ndarray
    square: float
    num_rows: int
    left: float = 0.0

    def per_row(self, logs: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return the value for each row at ``(log s, log sigma^2)``, and its derivatives; at several places at once.

        Parameters
        ----------
        logs : ndarray of shape (2, ...)

        Returns
        -------
        value : ndarray of shape (...)
        slope : ndarray of shape (2, ...)
        """
        s, noise = np.exp(logs)
        n, left = self.num_rows, self.left
        b = noise[..., None] + s[..., None] * self.eigenvalues
        explained = self.projected**2 * s[..., None] / b
        misfit = (self.square - np.sum(explained, axis=-1)) / noise
        log_det = np.sum(np.log(b / noise[..., None]), axis=-1) + n * logs[1]
        value = -0.5 * (n * _LOG_2PI + log_det + misfit + s * left / noise)
        shares = np.sum(s[..., None] * self.eigenvalues / b, axis=-1)
        fitted = np.sum(explained / b, axis=-1)
        by_s = shares - fitted + s * left / noise
        by_noise = n - shares - misfit + fitted - s * left / noise
        return value / n, -0.5 * np.array([by_s, by_noise]) / n

    def best(self, noise_variance: float, noise_floor: float) -> tuple[float, float, float]:
        """Return the factor and the noise variance of highest value, and that value.

        Parameters
        ----------
        noise_variance : float
            Where the search starts, beside a grid: there may be several optima, one of noise alone for example.
        noise_floor : float
            Least noise variance.
        """
        most = 10.0 * max(self.square / self.num_rows, noise_floor)
        least, most = math.log(noise_floor), math.log(most)
        given = (0.0, np.clip(math.log(noise_variance), least, most))
        grid = itertools.product(
            np.linspace(-_ROOM, _ROOM, _TRIED), np.linspace(least, most, _TRIED)
        )
        tried = np.array([given, *grid]).T
        start = tried[:, np.argmax(self.per_row(tried)[0])]

        def negative(logs: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = self.per_row(logs)
            return -float(value), -slope

        bounds = [(-_ROOM, _ROOM), (least, most)]
        found = minimize(negative, start, jac=True, method="L-BFGS-B", bounds=bounds)
        s, noise = np.exp(found.x)
        return float(s), float(noise), -float(found.fun) * self.num_rows

    def best_factor(self) -> tuple[float, float]:
        """Return the factor of highest value at a noise variance of one, and that value."""

        def negative(log_s: float) -> float:
            return -float(self.per_row(np.array([log_s, 0.0]))[0])

        tried = np.linspace(-_ROOM, _ROOM, _TRIED)
        k = int(np.argmax(self.per_row(np.stack([tried, np.zeros(_TRIED)]))[0]))
        bounds = (tried[max(k - 1, 0)], tried[min(k + 1, _TRIED - 1)])
        found = minimize_scalar(negative, bounds=bounds, method="bounded")
        return math.exp(found.x), -float(found.fun) * self.num_rows


def best_beside_own_noise(
    features: np.ndarray,
    y: np.ndarray,
    left: np.ndarray | float,
    noise_variance: float,
    noise_floor: float,
) -> tuple[float, float, float]:
    """Return factor and noise variance of highest value where rows have noise of their own, and that value.

    At a noise variance the rows, divided by their standard deviations ``v_i^1/2``, have the noise variance one, and
    their log density is lower by ``1/2 sum_i log v_i``: the factor's optimum costs one decomposition, and the noise is
    searched for over some twenty of them.

    Parameters
    ----------
    features : ndarray of shape (m, n)
        ``Phi^T``.
    y : ndarray of shape (n, 3)
        See `vastgp.data.observations`.
    left : ndarray of shape (n,), or 0
        What the functions leave of each row's prior variance, in the bound of inducing points.
    noise_variance, noise_floor
        As in `ScaledEvidence.best`.
    """

    if len(features) > len(y):
        features = np.asarray(np.linalg.qr(features, mode="r"))  # Phi Phi^T is the same

    def best_at(log_noise: float) -> tuple[float, float]:
        variances = observations.noise_variances(y, math.exp(log_noise))
        root = 1.0 / np.sqrt(variances)
        phi, target = features * root, observations.targets(y) * root
        eigenvalues, vectors = symmetric_eigen(gram(phi.T))
        evidence = ScaledEvidence(
            np.maximum(eigenvalues, 0.0), vectors.T @ (phi @ target), float(target @ target),
            len(y), float(np.sum(left / variances)),
        )  # fmt: skip
        s, value = evidence.best_factor()
        return s, value - 0.5 * float(np.sum(np.log(variances)))

    def negative(log_noise: float) -> float:
        return -best_at(log_noise)[1]

    most = 10.0 * max(float(np.mean(observations.targets(y) ** 2)), noise_floor)
    least, most = math.log(noise_floor), math.log(most)
    given = float(np.clip(math.log(noise_variance), least, most))
    tried = np.unique([given, *np.linspace(least, most, _TRIED_NOISES)])
    best = least_near(negative, tried, _SETTLED)
    s, value = best_at(best)
    return s, math.exp(best), value
