"""The bound of the log evidence of inducing points with the best ``q``, as a function of amplitude and noise alone.

With ``psi = L^-1 K_uf``, ``K_uu = L L^T``, and the kernel times a factor ``s`` (Titsias 2009),

    L(s, sigma^2) = log N(y; 0, s psi^T psi + sigma^2 I) - s tr(K_ff - psi^T psi) / (2 sigma^2),

which is a `ScaledEvidence`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp._programs import program
from vastgp.data import observations
from vastgp.data.padding import pad_rows
from vastgp.fitting.scaled_evidence import ScaledEvidence, best_beside_own_noise
from vastgp.kernels import Kernel
from vastgp.linalg.eigen import symmetric_eigen
from vastgp.linalg.gram import gram
from vastgp.methods.svgp.bound import coordinates, whitened_features


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
    y : ndarray of shape (n,) or (n, 3)
    jitter : float
        Of ``K_uu``, relative to the prior variance.
    noise_floor : float
        Least noise variance.
    """
    with precision("float64"):
        found = _features(kernel, np.asarray(Z, np.float64), pad_rows(X), jitter)
        psi, prior = (np.asarray(part)[..., : len(X)] for part in found)
    if observations.has_own_noise(y):
        of_rows = np.maximum(prior - np.sum(psi**2, axis=0), 0.0)
        s, noise, _ = best_beside_own_noise(psi, y, of_rows, noise_variance, noise_floor)
        return kernel.in_units(1.0, s**0.5), noise
    eigenvalues, E = symmetric_eigen(gram(psi.T))
    eigenvalues = np.maximum(eigenvalues, 0.0)
    left = max(float(np.sum(prior) - np.sum(eigenvalues)), 0.0)
    bound = ScaledEvidence(eigenvalues, E.T @ (psi @ y), float(y @ y), len(y), left)
    s, noise, _ = bound.best(noise_variance, noise_floor)
    return kernel.in_units(1.0, s**0.5), noise


@program
def _features(
    kernel: Kernel, Z: Float[Array, "m d"], X: Float[Array, "n d"], jitter: Any
) -> tuple[Float[Array, "m n"], Float[Array, " n"]]:
    """Return whitened features and prior variances of rows."""
    return whitened_features(kernel, Z, coordinates(kernel, Z, jitter).inverse, X), kernel.diag(X)
