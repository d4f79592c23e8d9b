"""Small random instances of the weight-space model, and its bound computed without any sampling."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class SmallModel(NamedTuple):
    """A problem small enough for dense algebra: ``y`` (n,), ``phi`` (n, m), ``S`` (m, m), ``mu`` (m,), ``C`` (m, m)."""

    y: np.ndarray
    phi: np.ndarray
    S: np.ndarray
    mu: np.ndarray
    C: np.ndarray
    noise: float


def small_model(seed: int, n: int, m: int, dense: bool) -> SmallModel:
    """Return a random instance; ``dense`` says whether the prior precision is a full matrix."""
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(n, m)) @ np.diag(rng.uniform(0.3, 1.5, m)) / m**0.5
    A = rng.normal(size=(m, m))
    S = A @ A.T / m + np.eye(m) if dense else np.diag(rng.uniform(0.5, 2.0, m))
    C = np.tril(0.3 * rng.normal(size=(m, m)), -1) + np.diag(rng.uniform(0.3, 1.2, m))
    return SmallModel(
        rng.normal(size=n), phi, S, rng.normal(size=m), C, float(rng.uniform(0.2, 0.8))
    )


def exact_terms(model: SmallModel) -> tuple[float, float, float]:
    """Return ``L_mu``, ``L_Sigma`` and ``L_const`` of eq. (2), term by term as printed."""
    y, phi, S, mu, C, s2 = model
    n, m = phi.shape
    L_mu = (-2 * y @ phi @ mu + np.sum((phi @ mu) ** 2)) / s2 + mu @ S @ mu
    Sigma = C @ C.T
    L_Sigma = np.sum((phi @ C) ** 2) / s2 + np.trace(S @ Sigma) - np.linalg.slogdet(Sigma)[1]
    L_const = (
        np.linalg.slogdet(2 * np.pi * np.linalg.inv(S))[1]
        - m * np.log(2 * np.pi) - m + n * np.log(2 * np.pi * s2) + y @ y / s2
    )  # fmt: skip
    return float(L_mu), float(L_Sigma), float(L_const)


def exact_mean_gradient(model: SmallModel) -> np.ndarray:
    """Return the gradient of ``L_mu`` by ``mu``."""
    y, phi, S, mu, _, s2 = model
    return 2 * (phi.T @ (phi @ mu - y)) / s2 + 2 * S @ mu


def exact_factor_gradient(model: SmallModel) -> np.ndarray:
    """Return the gradient of ``L_Sigma`` by the lower triangle of ``C``."""
    _, phi, S, _, C, s2 = model
    gradient = 2 * (phi.T @ phi @ C) / s2 + 2 * S @ C - 2 * np.diag(1 / np.diag(C))
    return np.tril(gradient)


def gradient_through_features(model: SmallModel) -> np.ndarray:
    """Return the derivative of ``L_mu + L_Sigma`` by the features, ``(n, m)``."""
    y, phi, _, mu, C, s2 = model
    return 2 * (np.outer(phi @ mu - y, mu) + phi @ C @ C.T) / s2
