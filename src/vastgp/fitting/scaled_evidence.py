"""The log evidence of a kernel that is given but for its amplitude, as a function of amplitude and noise alone."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

_LOG_2PI = math.log(2.0 * math.pi)
# Room of the logarithm of the factor; values of each that are tried first.
_ROOM, _TRIED = 8.0, 17


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

    def per_row(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value for each row at ``(log s, log sigma^2)``, and its derivatives."""
        s, noise = np.exp(logs)
        n, left = self.num_rows, self.left
        b = noise + s * self.eigenvalues
        explained = self.projected**2 * s / b
        misfit = (self.square - np.sum(explained)) / noise
        log_det = np.sum(np.log(b / noise)) + n * logs[1]
        value = -0.5 * (n * _LOG_2PI + log_det + misfit + s * left / noise)
        by_s = np.sum(s * self.eigenvalues / b) - np.sum(explained / b) + s * left / noise
        by_noise = (
            n - np.sum(s * self.eigenvalues / b) - misfit + np.sum(explained / b) - s * left / noise
        )
        return float(value) / n, -0.5 * np.array([by_s, by_noise]) / n

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
        tried = [np.array([0.0, np.clip(math.log(noise_variance), least, most)])] + [
            np.array([s, noise])
            for s in np.linspace(-_ROOM, _ROOM, _TRIED)
            for noise in np.linspace(least, most, _TRIED)
        ]
        start = max(tried, key=lambda logs: self.per_row(logs)[0])

        def negative(logs: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = self.per_row(logs)
            return -value, -slope

        bounds = [(-_ROOM, _ROOM), (least, most)]
        found = minimize(negative, start, jac=True, method="L-BFGS-B", bounds=bounds)
        s, noise = np.exp(found.x)
        return float(s), float(noise), -float(found.fun) * self.num_rows
