"""What an exact process says of each training row given all others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vastgp.data import Standardizer
from vastgp.solvers.exact_posterior import ExactPosterior


class LeaveOneOut(NamedTuple):
    """What the model says of each training row given all others, in units of the target.

    Attributes
    ----------
    mean, std : ndarray of shape (n,)
        Of a new observation in the place of the row, with the row's own noise where it has some.
    log_density : ndarray of shape (n,)
        Of the row's target, in nats; a density per unit of the target.
    """

    mean: np.ndarray
    std: np.ndarray
    log_density: np.ndarray


def left_out(posterior: ExactPosterior, order: np.ndarray, scaling: Standardizer) -> LeaveOneOut:
    """Return it in units of the target, rows by their numbers, which ``order`` has in the posterior's order."""
    found, place = posterior.leave_one_out(), np.argsort(order)
    return LeaveOneOut(
        scaling.inverse_mean(found.mean)[place],
        scaling.inverse_std(np.sqrt(found.variance))[place],
        found.log_density[place] - np.log(scaling.y_scale),
    )
