"""Refusals of bad constructor arguments of `QSGPRegressor` and `QSGPClassifier`, before any work."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.bases.draws import KINDS
from vastgp.estimators.arguments import check_choice, check_flag, check_positive
from vastgp.likelihoods import Bernoulli, HeteroskedasticGaussian, Likelihood, from_name
from vastgp.likelihoods.several_classes import SeveralClasses

REGRESSION = ("gaussian", "laplace", "student-t", "poisson", "poisson-log-normal")


def check_arguments(model: Any) -> None:
    """Raise ValueError for the first argument that cannot work, of those that both have."""
    for name in ("tol", "checkpoint_seconds"):
        check_positive(name, getattr(model, name))
    for name in ("start_rows", "num_samples", "row_batch"):
        check_positive(name, getattr(model, name), integer=True)
    check_positive("basis_batch", model.basis_batch, integer=True, none="chosen by the basis")
    check_count("control_rank", model.control_rank)
    check_positive("num_basis", model.num_basis, integer=True, none="chosen by the number of rows")
    check_positive("rank", model.rank, integer=True, none="chosen by cost")
    check_positive("max_iter", model.max_iter, integer=True, none="the solver's own")
    check_positive("max_seconds", model.max_seconds, none="no limit")
    check_choice("solver", model.solver, ("auto", "block", "stochastic"))
    check_choice("hyperparameters", model.hyperparameters, ("subset", "learn", "fixed"))
    check_choice("frequencies", model.frequencies, KINDS)
    check_flag("isotropic", model.isotropic)
    in_pairs = getattr(model, "basis", "fourier") == "fourier"
    if in_pairs and model.num_basis is not None and model.num_basis % 2:
        raise ValueError(
            f"num_basis must be even (cosines and sines come in pairs), received {model.num_basis}."
        )
    if model.num_samples < 2:
        raise ValueError(
            f"num_samples must be at least 2 to estimate a variance, received {model.num_samples}."
        )


def check_training(model: Any) -> None:
    """Raise ValueError for the first argument that cannot work, of those that the regressor alone has."""
    check_positive("noise_floor", model.noise_floor)
    check_positive("learning_steps", model.learning_steps, integer=True)
    check_count("dense_columns", model.dense_columns)
    share = model.validation_fraction
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
        raise ValueError(
            f"validation_fraction must be a number from 0 to less than 1, received {share!r}."
        )


def check_count(name: str, value: Any) -> None:
    """Raise ValueError for what is no integer of at least 0."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ValueError(f"{name} must be an integer of at least 0, received {value!r}.")


def check_likelihood(model: Any) -> Likelihood:
    """Return the likelihood of a regressor by its name or as given; raise ValueError for one that cannot work."""
    several = getattr(model, "several_functions", False)
    return chosen_likelihood(model.likelihood, type(model).__name__, several)


def chosen_likelihood(likelihood: Any, estimator: str, several: bool = False) -> Likelihood:
    """Return the likelihood of a regressor by its name or as given.

    Parameters
    ----------
    likelihood : object
        The argument.
    estimator : str
        The regressor's name.
    several : bool, default False
        Whether a likelihood may have more than one function.

    Raises
    ------
    ValueError
        For one that cannot work.
    """
    chosen = from_name(likelihood) if isinstance(likelihood, str) else likelihood
    known = (*REGRESSION, HeteroskedasticGaussian.name) if several else REGRESSION
    of_classes = isinstance(chosen, (Bernoulli, SeveralClasses))
    if not isinstance(chosen, Likelihood) or of_classes or (chosen.num_latent > 1 and not several):
        raise ValueError(
            f"likelihood must be one of {known}, or a vastgp.likelihoods object of one of these; received "
            f"{likelihood!r}. For classes, use {estimator.replace('Regressor', 'Classifier')}."
        )
    return chosen


def refuse_learning(model: Any, likelihood: Likelihood) -> None:
    """Raise ValueError for what a likelihood other than the Gaussian does not have."""
    if model.hyperparameters == "learn" and model.solver != "stochastic":
        raise ValueError(
            f"hyperparameters='learn' with the {likelihood.name} likelihood needs solver='stochastic'; the block "
            "solver learns them on start_rows rows: set hyperparameters='subset'."
        )
    if model.solver == "stochastic" and not np.isfinite(likelihood.most_curvature()):
        raise ValueError(
            f"solver='stochastic' needs a likelihood of bounded curvature, which the {likelihood.name} one is not; set "
            "solver='block'."
        )
