"""Refusals of bad constructor arguments of `QSGPRegressor`, before any work."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.bases.draws import KINDS
from vastgp.estimators.arguments import check_choice, check_fixed, check_positive


def check_arguments(model: Any) -> None:
    """Raise ValueError for the first argument that cannot work, with what it received and what to do."""
    for name in ("noise_floor", "tol", "checkpoint_seconds"):
        check_positive(name, getattr(model, name))
    for name in ("start_rows", "learning_steps", "row_batch", "basis_batch", "num_samples"):
        check_positive(name, getattr(model, name), integer=True)
    check_positive("num_basis", model.num_basis, integer=True, none="chosen by the number of rows")
    check_positive("rank", model.rank, integer=True, none="chosen by cost")
    check_positive("max_iter", model.max_iter, integer=True, none="the solver's own")
    check_positive("max_seconds", model.max_seconds, none="no limit")
    check_choice("solver", model.solver, ("auto", "block", "stochastic"))
    check_choice("hyperparameters", model.hyperparameters, ("subset", "learn", "fixed"))
    check_choice("frequencies", model.frequencies, KINDS)
    if model.num_basis is not None and model.num_basis % 2:
        raise ValueError(
            f"num_basis must be even (cosines and sines come in pairs), received {model.num_basis}."
        )
    if model.num_samples < 2:
        raise ValueError(
            f"num_samples must be at least 2 to estimate a variance, received {model.num_samples}."
        )
    for name in ("dense_columns", "control_rank"):
        value = getattr(model, name)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
            raise ValueError(f"{name} must be an integer of at least 0, received {value!r}.")
    share = model.validation_fraction
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
        raise ValueError(
            f"validation_fraction must be a number from 0 to less than 1, received {share!r}."
        )
    check_fixed(model)
