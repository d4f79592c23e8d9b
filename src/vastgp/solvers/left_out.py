"""What all other rows say of each one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class LeftOut(NamedTuple):
    """What is said of each row given all others, its own noise included, in standardised units: (n,) each."""

    mean: np.ndarray
    variance: np.ndarray
    log_density: np.ndarray

    @classmethod
    def of(cls, targets: np.ndarray, off: np.ndarray, variance: np.ndarray) -> LeftOut:
        """Return it from how far targets are off their means, and variances: ``log N(y_i; mu_i, s_i^2)``.

        Rasmussen & Williams 2006, eq. 5.10.
        """
        log_density = -0.5 * (np.log(2.0 * np.pi * variance) + off**2 / variance)
        return cls(targets - off, variance, log_density)
