"""The bound of the log evidence of inducing points with the best ``q``, as a function of amplitude and noise alone.

With ``psi = L^-1 K_uf``, ``K_uu = L L^T``, and the kernel times a factor ``s`` (Titsias 2009),

    L(s, sigma^2) = log N(y; 0, s psi^T psi + sigma^2 I) - s tr(K_ff - psi^T psi) / (2 sigma^2),

and with ``psi psi^T = E diag(lambda) E^T``, ``c = E^T psi y`` it takes O(m) an evaluation.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize

from vastgp._precision import precision
from vastgp.kernels import Kernel
from vastgp.objectives.svgp_bound import coordinates, whitened_features

_LOG_2PI = math.log(2.0 * math.pi)
# Room of the logarithm of the factor; values of each that are tried first.
_ROOM, _TRIED = 8.0, 17


def best_scales(
    kernel: Kernel,
    noise_variance: float,
    Z: np.ndarray,
    X: np.ndarray,
    y: np.ndarray,
    *,
    jitter: float,
    noise_floor: float,
) -> tuple[Kernel, float]:
    """Return the kernel times a factor, and the noise variance, of highest bound on some rows.

    Hyperparameters of an exact process on few rows may have next to no noise where every row has its own neighbours to
    itself; the inducing points then leave more than that noise, and steps of learning take thousands to find out.

    Parameters
    ----------
    kernel : Kernel
    noise_variance : float
        Where the search starts.
    Z : ndarray of shape (m, d)
    X : ndarray of shape (n, d)
        Standardised rows.
    y : ndarray of shape (n,)
    jitter : float
        Of ``K_uu``, relative to the prior variance.
    noise_floor : float
        Least noise variance.
    """
    with precision("float64"):
        here = coordinates(kernel, jnp.asarray(Z, jnp.float64), jitter)
        psi = np.asarray(whitened_features(kernel, jnp.asarray(Z), here.inverse, jnp.asarray(X)))
        prior = np.asarray(kernel.diag(jnp.asarray(X)))
    eigenvalues, E = eigh(psi @ psi.T, driver="evd")
    eigenvalues = np.maximum(eigenvalues, 0.0)
    projected, square, n = E.T @ (psi @ y), float(y @ y), len(y)
    left = max(float(np.sum(prior) - np.sum(eigenvalues)), 0.0)

    def negative(logs: np.ndarray) -> tuple[float, np.ndarray]:
        s, noise = np.exp(logs)
        b = noise + s * eigenvalues
        explained = projected**2 * s / b
        misfit = (square - np.sum(explained)) / noise
        log_det = np.sum(np.log(b / noise)) + n * logs[1]
        value = 0.5 * (n * _LOG_2PI + log_det + misfit + s * left / noise)
        # d/d log s and d/d log sigma^2
        by_s = np.sum(s * eigenvalues / b) - np.sum(explained / b) + s * left / noise
        by_noise = (
            n - np.sum(s * eigenvalues / b) - misfit + np.sum(explained / b) - s * left / noise
        )
        return float(value) / n, 0.5 * np.array([by_s, by_noise]) / n

    least, most = math.log(noise_floor), math.log(10.0 * max(square / n, noise_floor))
    # there may be several optima: one of noise alone, for example
    given = np.array([0.0, np.clip(math.log(noise_variance), least, most)])
    tried = [given] + [
        np.array([s, noise])
        for s in np.linspace(-_ROOM, _ROOM, _TRIED)
        for noise in np.linspace(least, most, _TRIED)
    ]
    start = min(tried, key=lambda logs: negative(logs)[0])
    bounds = [(-_ROOM, _ROOM), (least, most)]
    found = minimize(negative, start, jac=True, method="L-BFGS-B", bounds=bounds)
    s, noise = np.exp(found.x)
    return kernel.in_units(1.0, float(s) ** 0.5), float(noise)
