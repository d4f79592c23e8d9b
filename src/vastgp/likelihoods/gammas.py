"""Gamma functions of large arguments: their differences would be rounding, which these series are not."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax.scipy.special import gammaln
from scipy import special

from vastgp.likelihoods.quadrature import array_module

# From here on what series leave out is below 1e-12.
_LARGE = 20.0
_LOG_2PI = math.log(2.0 * math.pi)


def log_gamma_ratio(a: Any) -> Any:
    """Return ``log Gamma(a + 1/2) - log Gamma(a)``."""
    small, large = jnp.where(a < _LARGE, a, _LARGE), jnp.where(a < _LARGE, _LARGE, a)
    # 1/2 log a - 1 / (8 a) + 1 / (192 a^3) - 1 / (640 a^5), in powers that do not overflow
    r = 1.0 / large
    series = 0.5 * jnp.log(large) - r * (1.0 / 8.0 - r**2 * (1.0 / 192.0 - r**2 / 640.0))
    return jnp.where(a < _LARGE, gammaln(small + 0.5) - gammaln(small), series)


def log_gamma_constant(a: Any) -> Any:
    """Return ``a log a - a - log Gamma(a)``, of the array module that ``a`` is of; from 20 on Stirling's series."""
    xp = array_module(a)
    log_gamma = gammaln if xp is jnp else special.gammaln
    log_a, r = xp.log(a), 1.0 / xp.where(a < _LARGE, _LARGE, a)
    direct = a * log_a - a - log_gamma(xp.where(a < _LARGE, a, _LARGE))
    # 1/2 log(a / (2 pi)) - 1 / (12 a) + 1 / (360 a^3) - 1 / (1260 a^5)
    series = 0.5 * log_a - 0.5 * _LOG_2PI - r * (1.0 / 12.0 - r**2 * (1.0 / 360.0 - r**2 / 1260.0))
    return xp.where(a < _LARGE, direct, series)
