"""Arguments of `QSGPRegressor` that the inducing basis goes with."""

from __future__ import annotations

from typing import Any

from vastgp.estimators.arguments import check_choice, check_flag
from vastgp.likelihoods import Gaussian, Likelihood

BASES = ("fourier", "inducing", "grief")


def is_inducing(model: Any) -> bool:
    """Whether an estimator's basis is the inducing one; classifiers have none to choose."""
    return getattr(model, "basis", "fourier") == "inducing"


def check_basis(model: Any, likelihood: Likelihood) -> None:
    """Raise ValueError for what the chosen basis does not go with."""
    check_choice("basis", model.basis, BASES)
    check_flag("augment", model.augment)
    if model.basis != "inducing" and model.inducing_inputs is not None:
        raise ValueError(
            f"inducing_inputs were given, but basis={model.basis!r} has none. Set basis='inducing', or leave them out."
        )
    if model.basis == "fourier":
        return
    inducing = model.basis == "inducing"
    refused = {
        "likelihood": (
            inducing and not isinstance(likelihood, Gaussian),
            "likelihood='gaussian'",
        ),
        "solver": (model.solver == ("block" if inducing else "stochastic"), "solver='auto'"),
        "hyperparameters": (model.hyperparameters == "learn", "hyperparameters='subset'"),
        "dense_columns": (model.dense_columns != 0, "dense_columns=0"),
        "validation_fraction": (model.validation_fraction != 0, "validation_fraction=0.0"),
        "frequencies": (model.frequencies != "plain", "frequencies='plain'"),
    }
    for name, (wrong, instead) in refused.items():
        if wrong:
            raise ValueError(
                f"{name}={getattr(model, name)!r} is not available with basis={model.basis!r}. Set {instead}, or use "
                "basis='fourier'."
            )
    if model.inducing_inputs is not None and model.num_basis is not None:
        raise ValueError(
            f"num_basis={model.num_basis!r} and inducing_inputs were both given: the basis has one function for each "
            "inducing input. Leave one of them out."
        )
