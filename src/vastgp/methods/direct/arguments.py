"""Arguments of the DIRECT estimators: what the weights can be, how likely each value is beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.bases.draws import KINDS
from vastgp.estimators.arguments import check_choice, check_fixed, check_flag, check_positive
from vastgp.methods.direct.model import DiscretePrior, evenly_spaced

BASES = ("fourier", "grief")
_MOST_VALUES = 256


def check_direct(model: Any) -> None:
    """Raise ValueError for the first argument that cannot work, of those that regressor and classifier have."""
    for name in ("noise_floor", "tol"):
        check_positive(name, getattr(model, name))
    for name in ("start_rows", "components", "draws", "max_iter"):
        check_positive(name, getattr(model, name), integer=True)
    check_positive("max_seconds", model.max_seconds, none="no limit")
    check_positive("num_basis", model.num_basis, integer=True, none="chosen by the number of rows")
    check_choice("basis", model.basis, BASES)
    fourier = model.basis == "fourier"
    if fourier and model.num_basis is not None and model.num_basis % 2:
        raise ValueError(
            f"num_basis must be even (cosines and sines come in pairs), received {model.num_basis}."
        )
    if model.draws < 2:
        raise ValueError(f"draws must be at least 2, for a baseline; received {model.draws}.")
    check_choice("q", model.q, ("mean-field", "mixture"))
    check_choice("objective", model.objective, ("bound", "unbiased"))
    check_choice("start", model.start, ("posterior", "prior"))
    check_choice("hyperparameters", model.hyperparameters, ("subset", "fixed"))
    check_choice("frequencies", model.frequencies, KINDS)
    if not fourier and model.frequencies != "plain":
        raise ValueError(
            f"frequencies={model.frequencies!r} is for basis='fourier', and basis={model.basis!r} has none. Leave it "
            "out."
        )
    for name in ("isotropic", "learn_support", "keep_statistics"):
        value = getattr(model, name)
        if name == "learn_support" and value is None:
            continue
        check_flag(name, value)
    values = support_values(model.support)
    prior_of(model, values)


def check_noise(model: Any) -> None:
    """Raise ValueError for a noise that cannot be: of the regressor."""
    check_choice("noise", model.noise, ("learned", "fixed"))
    check_fixed(model)


def support_values(support: Any) -> np.ndarray:
    """Return what a weight can be, in standard deviations of its prior, ascending.

    Raises
    ------
    ValueError
        For fewer than two values, for equal ones, and for what are no numbers.
    """
    if isinstance(support, (int, np.integer)) and not isinstance(support, bool):
        if not 2 <= support <= _MOST_VALUES:
            raise ValueError(
                f"support={support}: a weight needs at least two values to choose from (15 fit into four bits), and at "
                f"most {_MOST_VALUES}."
            )
        return evenly_spaced(int(support))
    try:
        values = np.sort(np.asarray(support, dtype=np.float64))
        good = values.ndim == 1 and np.all(np.isfinite(values))
    except (TypeError, ValueError):
        good = False
    if not good:
        raise ValueError(
            "support must be a number of values, or an array of values in standard deviations of the prior (for "
            f"example [-2, -1, 0, 1, 2]); received {support!r}."
        )
    distinct = np.unique(values)
    if len(distinct) < 2 or len(distinct) < len(values) or len(values) > _MOST_VALUES:
        raise ValueError(
            f"support has {len(values)} values of which {len(distinct)} are distinct. Give at least two values and at "
            f"most {_MOST_VALUES}, each once."
        )
    return values


def prior_of(model: Any, values: np.ndarray) -> DiscretePrior:
    """Return the prior of the constructor's arguments: one for all weights.

    Raises
    ------
    ValueError
        For a value without prior mass: its logarithm is minus infinity, and so is the bound.
    """
    prior, weights = model.prior, model.prior_weights
    if isinstance(prior, str):
        check_choice("prior", prior, ("gaussian", "uniform"))
        log_mass = -0.5 * values**2 if prior == "gaussian" else np.zeros_like(values)
        log_mass = log_mass - np.logaddexp.reduce(log_mass)
        mass = np.exp(log_mass)[None]
    else:
        try:
            mass = np.atleast_2d(np.asarray(prior, dtype=np.float64))
        except (TypeError, ValueError):
            mass = np.empty((0, 0))
        if mass.ndim != 2 or mass.shape[1] != len(values):
            raise ValueError(
                f"prior must be 'gaussian', 'uniform', or masses of the {len(values)} values of support, of shape "
                f"({len(values)},) or (parts, {len(values)}) for a mixture; received {prior!r}."
            )
    bad = ~(np.isfinite(mass) & (mass > 0.0))
    if bad.any():
        where = int(np.argwhere(bad)[0][1])
        raise ValueError(
            f"prior has the mass {mass[bad][0]:g} at the value {values[where]:g} of support: every value needs a "
            "positive one, as the bound holds its logarithm. Leave such values out of support."
        )
    if model.learn_support and not (isinstance(prior, str) and prior == "gaussian"):
        raise ValueError(
            f"learn_support=True moves the values, and masses are known there for prior='gaussian' only; received "
            f"prior={prior!r}."
        )
    log_mass = np.log(mass) - np.log(np.sum(mass, axis=1, keepdims=True))
    return DiscretePrior(log_mass[:, None, :], _log_weights(weights, len(mass)))


def _log_weights(weights: Any, parts: int) -> np.ndarray:
    if weights is None:
        return np.full(parts, -np.log(parts))
    try:
        given = np.asarray(weights, dtype=np.float64)
        good = given.shape == (parts,) and bool(np.all(np.isfinite(given) & (given > 0.0)))
    except (TypeError, ValueError):
        good = False
    if not good:
        raise ValueError(
            f"prior_weights must be {parts} positive numbers, one for each part of prior, or None (equal ones); "
            f"received {weights!r}."
        )
    return np.log(given) - np.log(np.sum(given))
