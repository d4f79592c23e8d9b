"""Calibration of predictive distributions on held-out rows: an increasing map of probability levels.

A model says that a new target lies below some value with probability ``u``, and on held-out rows these probabilities
``u_i = F_i(y_i)`` (PIT values) should be uniform. Where they are not, they say what is wrong: to be right with
probability ``p``, ask the model at the level ``g(p)``. Everything here works on normal scores ``z = Phi^-1(u)``, on
which a calibration is an increasing map ``t`` of the line with ``t(z_i)`` standard normal:
``g(p) = Phi(t^-1(Phi^-1(p)))``.

For discrete targets the PIT values are the randomised ones, see
`vastgp.estimators.predictive.Predictive.normal_scores`.
"""

from vastgp.auto.calibration.choice import (
    METHODS,
    calibration_from_state,
    check_method,
    exceeds,
    fit_calibration,
    folds,
)
from vastgp.auto.calibration.conformal import Conformal
from vastgp.auto.calibration.maps import (
    PSEUDO_ROWS,
    Calibration,
    Identity,
    Isotonic,
    Scale,
    normal_scores,
)
from vastgp.auto.calibration.tails import Tails

__all__ = [
    "METHODS",
    "PSEUDO_ROWS",
    "Calibration",
    "Conformal",
    "Identity",
    "Isotonic",
    "Scale",
    "Tails",
    "calibration_from_state",
    "check_method",
    "exceeds",
    "fit_calibration",
    "folds",
    "normal_scores",
]
