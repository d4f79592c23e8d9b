"""What to try next, from what a fit left behind."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.auto.calibration import normal_scores
from vastgp.auto.calibration_record import CalibrationRecord

_FAR = 3.0  # deviations, beyond which a normal variable is once in 370 rows
_LIMIT = 3.0  # standard errors


def advice(
    *,
    record: CalibrationRecord | None = None,
    u: Any = None,
    rows: Any = None,
    rows_used: Any = None,
    finished: Any = True,
    seconds: Any = None,
    importance: Any = (),
    positive: Any = False,
    about: str = "held-out",
) -> list[str]:
    """Return suggestions in words, each with what it rests on; an empty list where nothing speaks for any.

    Parameters
    ----------
    record : CalibrationRecord, optional
        Of the calibrated intervals.
    u : array-like of shape (n,), optional
        PIT values of the model's own distributions, before calibration.
    rows, rows_used : int, optional
        Rows of the table, and those that the model was fitted to.
    finished : bool, default True
    seconds : float, optional
        That the fit was given.
    importance : sequence of (str, float, float, ...)
        As from `permutation_importance`.
    positive : bool, default False
        Whether all targets are, so that a logarithm is possible.
    about : str, default "held-out"
        What to call the rows of ``u``.
    """
    found = []
    more = "" if seconds is None else f", such as max_seconds={4 * float(seconds):.0f}"
    if not finished:
        found.append(f"More time: the fit ended before it was done. Give it more{more}.")
    elif rows is not None and rows_used is not None and rows_used < rows:
        found.append(
            f"More time: the model saw {rows_used:,} of {rows:,} rows. Give it more{more}."
        )
    if u is not None and len(u):
        found += _of_shape(normal_scores(u), positive, about)
    if record is not None and any(one.differs for one in record.by_std):
        found.append(
            "Noise that depends on the inputs: intervals do not hold alike where the model is sure and where not. "
            "If the errors of the measurements are known, give them as noise_std; or give the inputs they depend on."
        )
    idle = [str(one[0]) for one in importance if one[1] <= 2.0 * one[2]]
    if idle and len(idle) < len(importance):
        found.append(
            "Fewer inputs: nothing is lost without "
            + ", ".join(idle[:8])
            + (", ..." if len(idle) > 8 else "")
            + ". "
            "Leaving them out makes the fit faster, and often better."
        )
    return found


def calibration_in_words(calibration: Any) -> str:
    """Return what a calibration, of a regressor or a classifier, does to predictions."""
    state = calibration.to_state()
    if state["name"] == "scale":
        return (
            f"Stated deviations are multiplied by {state['factor']:.3g}, as held-out rows ask for."
        )
    if state["name"] == "student":
        return (
            f"Normal distributions become Student's of {state['degrees']:.3g} degrees of freedom, with "
            f"{state['scale']:.3g} of the stated deviation: held-out rows have outliers."
        )
    if state["name"] == "temperature":
        way = "less" if state["temperature"] > 1.0 else "more"
        return f"Probabilities are made {way} sure, by a temperature of {state['temperature']:.3g}."
    if state["name"] == "conformal":
        return f"Intervals are the split-conformal ones of {len(state['radii']):,} held-out rows."
    if state["name"] == "isotonic":
        return "Probabilities follow how often things came true on held-out rows (isotonic calibration)."
    return "The model's own probabilities are used: none was calibrated."


def calibration_of(model: Any) -> str:
    """Return what the calibration of a fitted front door does; of a target with heaps those of both parts."""
    rest = getattr(model, "rest_calibration_", None)
    if rest is None:
        return calibration_in_words(model.calibration_)
    if model.interval_calibration_ is not None:
        return calibration_in_words(model.interval_calibration_)
    of_which = calibration_in_words(model.at_heap_.calibration_)
    return f"Which rows are at a heap: {of_which} The rest: {calibration_in_words(rest)}"


def is_calibrated(model: Any) -> bool:
    """Whether anything corrects what the model of a fitted front door says: of a target with heaps, of either part."""
    found = [model.calibration_, getattr(model, "rest_calibration_", None)]
    if found[1] is not None:
        found += [model.at_heap_.calibration_, model.interval_calibration_]
    return any(one is not None and one.name != "none" for one in found)


def _of_shape(z: np.ndarray, positive: bool, about: str) -> list[str]:
    """What the normal scores say of the likelihood: skewness, and tails."""
    n, scale = len(z), np.median(np.abs(z)) / 0.6745
    inner = np.clip((z - np.median(z)) / max(scale, 1e-12), -_FAR, _FAR)
    # under symmetry the mean of a bounded odd function is zero, whatever the tails
    odd = inner**3
    skewed = abs(np.mean(odd)) > _LIMIT * np.std(odd) / np.sqrt(n) if n > 1 else False
    if skewed and abs(np.mean(odd)) > 0.5:
        side = "large" if np.mean(odd) > 0 else "small"
        try_this = " Predict its logarithm." if positive else " Predict it on a warped scale."
        return [f"The target is skewed: surprises are mostly {side} values.{try_this}"]
    # rows beyond three of the deviations that the middle half tells, of which a normal target has 0.27 %
    chance = 0.0027
    beyond = float(np.mean(np.abs(z) > _FAR * scale))
    if beyond > chance + 4.0 * np.sqrt(chance / n) and beyond > 3.0 * chance:
        return [
            f"Outliers: {100.0 * beyond:.1f} % of the {about} rows are beyond three deviations, where 0.3 % would be. "
            "Try likelihood='student-t'."
        ]
    return []
