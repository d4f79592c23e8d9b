"""Stations on the sphere, and their universal kriging in NumPy alone."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve

import vastgp
from vastgp.data.coordinates import chord_points
from vastgp.options import Fixed

KM, VARIANCE, NOISE = 1500.0, 0.8, 0.3
GIVEN: dict[str, Any] = {
    "kernel": vastgp.Matern32(KM, VARIANCE),
    "hyperparameters": Fixed(noise_std=NOISE),
}


def made(n=60, seed=0):
    generator = np.random.default_rng(seed)
    lat = np.rad2deg(np.arcsin(generator.uniform(-1, 1, n)))
    lon = generator.uniform(-180, 180, n)
    height, coast = generator.gamma(1.0, 0.6, n), generator.uniform(0, 5, n)
    field = np.sin(3 * np.deg2rad(lat)) + np.cos(np.deg2rad(lon)) * np.cos(np.deg2rad(lat))
    temp = 10.0 + field - 6.5 * height + 0.4 * coast + NOISE * generator.normal(size=n)
    return pd.DataFrame({"lat": lat, "lon": lon, "height": height, "coast": coast, "temp": temp})


def covariance(one, other):
    a, b = (chord_points(t["lat"], t["lon"]) for t in (one, other))
    r = np.sqrt(3.0) * np.linalg.norm(a[:, None] - b[None], axis=2) / KM
    return VARIANCE * (1.0 + r) * np.exp(-r)


def universal_kriging(table, new, names, noise=0.0, level=None):
    """Rasmussen & Williams (2006), eq. 2.41 and 2.42 with a flat prior, about the means of values and covariates."""
    y, H = table["temp"].to_numpy(), table[names].to_numpy()
    factor = cho_factor(
        covariance(table, table) + np.diag(NOISE**2 + noise**2 * np.ones(len(table)))
    )
    level, shift = y.mean() if level is None else level, H.mean(axis=0)
    H, y = H - shift, y - level
    V = np.linalg.inv(H.T @ cho_solve(factor, H))
    b = V @ H.T @ cho_solve(factor, y)
    cross = covariance(new, table)
    r = new[names].to_numpy() - shift - cross @ cho_solve(factor, H)
    mean = level + cross @ cho_solve(factor, y) + r @ b
    variance = VARIANCE - np.sum(cross * cho_solve(factor, cross.T).T, axis=1)
    return b, np.sqrt(np.diag(V)), mean, np.sqrt(variance + np.sum(r @ V * r, axis=1))
