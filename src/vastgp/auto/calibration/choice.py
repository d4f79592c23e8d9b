"""Which calibration a model gets, by the held-out rows that it was not fitted to."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from vastgp.auto.calibration.conformal import Conformal
from vastgp.auto.calibration.maps import Calibration, Identity, Isotonic, Scale
from vastgp.auto.calibration.tails import Tails
from vastgp.auto.monotone import MonotoneSpline
from vastgp.data import Places

METHODS = ("scale", "student", "isotonic", "conformal")
_FOLDS = 10
_FEWEST = 20  # held-out places, from which on a calibration is chosen by their scores


def calibration_from_state(state: Any) -> Calibration:
    """Return the calibration that `Calibration.to_state` described."""
    name = state["name"]
    if name == Identity.name:
        return Identity()
    if name == Scale.name:
        return Scale(float(state["factor"]))
    if name == Tails.name:
        return Tails(float(state["degrees"]), float(state["scale"]))
    if name == Conformal.name:
        weight = state.get("weight")
        return Conformal(
            np.asarray(state["radii"], dtype=np.float64),
            None if weight is None else np.asarray(weight, dtype=np.float64),
            float(state.get("own", 1.0)),
        )
    if name == Isotonic.name:
        parts = (np.asarray(state[part], dtype=np.float64) for part in ("x", "y", "slope"))
        return Isotonic(MonotoneSpline(*parts))
    raise ValueError(f"calibration: expected one of {('none', *METHODS)}, got {name!r}")


def check_method(method: Any) -> None:
    """Raise ``ValueError`` unless there is a calibration of numbers of that name."""
    if method is not None and (not isinstance(method, str) or method not in ("auto", *METHODS)):
        raise ValueError(
            f"calibrate: expected 'auto', {', '.join(map(repr, METHODS))} or None, got {method!r}"
        )


def fit_calibration(
    z: Any, method: Any = "auto", seed: Any = 0, places: Places | None = None
) -> Calibration:
    """Return the calibration of a model by the normal scores of held-out rows.

    Parameters
    ----------
    z : array-like of shape (n,)
        Standard normal if the model is right: those of PIT values (see `normal_scores`), or better the model's own,
        which tell values apart far beyond the last PIT value before one.
    method : {"auto", "scale", "student", "isotonic", "conformal", None}, default "auto"
        "auto" compares none, "scale", "student" and "isotonic" by the log density of held-out rows that they were not
        fitted to (ten folds), and takes the next one only where it is better by more than one standard error of the
        paired difference; with fewer than 20 rows it is none. "conformal" is not among them: its intervals are exact in
        another sense, have no density, and are infinite at levels that few rows cannot tell.
    seed : int, default 0
        Of the folds.
    places : Places, optional
        Which rows are of one place: they count as one, and are left out together. Where all are of the few places of a
        design, or are a few paths of forecasts, there is no map, and nothing is narrowed: they tell nothing of others.
        Rows that were not held out, ``others``, have said what deviations are, too, and resist where these narrow them.

    Returns
    -------
    Calibration
    """
    z = np.asarray(z, dtype=np.float64)
    check_method(method)
    if not np.all(np.isfinite(z)):
        raise ValueError(
            f"z: expected finite normal scores, got {np.sum(~np.isfinite(z))} that are not"
        )
    if method is None or len(z) == 0:
        return Identity()
    places = places or Places(np.arange(len(z)))
    kinds: dict[str, Any] = {
        "scale": partial(Scale.fit, others=places.others),
        "student": partial(Tails.fit, others=places.others),
        "isotonic": partial(Isotonic.fit, others=places.others),
        "conformal": Conformal.fit,
    }
    if method != "auto":
        return kinds[method](z, places.shares())
    best: Calibration = Identity()
    if places.count < _FEWEST:
        return best
    score = np.zeros(places.count)
    # a map of levels that few places or paths tell shifts the others by what is theirs
    for name in ("scale",) if places.design else ("scale", "student", "isotonic"):
        gain = places.means(_left_out_gain(kinds[name], z, seed, places))
        found = kinds[name](z, places.shares())
        if exceeds(gain - score) and not (places.design and found.std_factor < 1.0):
            best, score = found, gain
    return best


def exceeds(differences: np.ndarray) -> bool:
    """Whether paired differences are above zero in the mean by more than one standard error."""
    return bool(np.mean(differences) > np.std(differences, ddof=1) / np.sqrt(len(differences)))


def folds(places: Places, seed: int) -> np.ndarray:
    """Return the number of the fold of each row: those of one place are in one."""
    return (np.random.default_rng(seed).permutation(places.count) % _FOLDS)[places.of_row]


def _left_out_gain(fit: Any, z: np.ndarray, seed: int, places: Places) -> np.ndarray:
    """The log density that each row gains by a calibration fitted to the other folds."""
    part, gain, share = folds(places, seed), np.empty(len(z)), places.shares()
    for k in range(_FOLDS):
        here = part == k
        kept = fit(z[~here], None if share is None else share[~here])
        gain[here] = kept.log_density_change(z[here])
    return gain
