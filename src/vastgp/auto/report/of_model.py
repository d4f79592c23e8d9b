"""The report of a fitted front door: what `write_report` shows, made of the model and of rows to judge it by."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from vastgp.auto.calibration_record import calibration_record
from vastgp.auto.encoder import TableEncoder
from vastgp.auto.heaps import Heap
from vastgp.auto.heaps.distribution import heaped_scores
from vastgp.auto.leaderboard import NO_TIME_LEFT
from vastgp.auto.report.data import ReportData
from vastgp.auto.report.effects_of import effects_of, importance_with_lengthscales
from vastgp.auto.report.explain import surprises
from vastgp.auto.report.forecast import forecast_of
from vastgp.auto.report.html import number, percent, shortened
from vastgp.auto.report.next_steps import advice, calibration_of, is_calibrated
from vastgp.auto.report.places import cell, grouped
from vastgp.auto.report.rows import About, bounded, given_rows, held_out_rows
from vastgp.auto.report.words import (
    ending_in_words,
    heap_in_words,
    left_out_in_words,
    model_in_words,
)
from vastgp.auto.report.write import write_report
from vastgp.data.whole_files import place_of
from vastgp.estimators.arguments import seed_from

_SURPRISES = 10
_LONG = 200  # of a note on the leaderboard, in letters


def write_report_of(
    model: Any, path: Any, X: Any = None, y: Any = None, exposure: Any = None
) -> Path:
    """Write the report of a fitted model, see `GPRegressor.report`."""
    check_name_of_page(path)
    place_of(path)  # what cannot be written is refused before the work
    return write_report(report_data(model, X, y, exposure), Path(path).expanduser())


def check_name_of_page(path: Any) -> None:
    """Refuse what cannot be the name of a file."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(
            f"path must be the name of a file to write, such as 'report.html'; received {path!r}."
        )


def report_data(model: Any, X: Any = None, y: Any = None, exposure: Any = None) -> ReportData:
    """Return what the report of a fitted model shows.

    Parameters
    ----------
    model : GPRegressor or GPClassifier
    X, y, exposure
        Rows and targets that it is about, and their exposures; those that the fit held out by default.
    """
    held = X is None and y is None
    about = held_out_rows(model) if held else given_rows(model, X, y, exposure)
    kept, target = model.kept_, model.target_name_ or "the target"
    rows = kept.rows or 0
    importance = importance_with_lengthscales(model, about)
    effect_of, effects = effects_of(model, about, [one[0] for one in importance])
    data = ReportData(
        title=f"Prediction of {target}",
        target=target,
        rows=rows,
        columns=_columns(model),
        model=model_in_words(model, rows, kept.rows_used),
        leaderboard=_leaderboard(model),
        calibrated=calibration_of(model),
        about=about.called,
        importance=importance,
        effects=effects,
        effect_of=effect_of,
        phases=_phases(model),
        notes=_notes(model, about),
        versions=_versions(),
        seed=seed_from(model.random_state) if model.random_state is not None else None,
    )
    judge = _of_classes if model._classes else _of_numbers
    return judge(data, model, about)


# ---------------------------------------------------------------- numbers


def _of_numbers(data: ReportData, model: Any, about: About) -> ReportData:
    """Add what is said of a target of numbers."""
    common = _advised(model, data.importance)
    if not len(about.y):
        return dataclasses.replace(data, advice=advice(**common))
    u = np.nan_to_num(ndtr(model.calibration_.scores(bounded(about.scores))))
    std = about.std * model.calibration_.std_factor
    change = model.calibration_.log_density_change(bounded(about.scores))
    found = surprises(
        about.y, about.mean, np.maximum(std, 1e-300), u, lambda k: _inputs(data, about, k), about.row,
        _SURPRISES,
    )  # fmt: skip
    loss, rmse = -(about.log_density + change), np.sqrt(np.mean((about.y - about.mean) ** 2))
    scores = [
        ("typical error (RMSE)", number(rmse)),
        (_scored("NLPD", model), number(float(np.mean(loss)))),
    ]
    data = dataclasses.replace(data, surprises=found, scores=scores)
    if not about.enough:
        return dataclasses.replace(data, advice=advice(**common))
    record = calibration_record(about.y, about.mean, std, u, *grouped(about.columns))
    common |= {
        "record": record,
        "positive": bool(np.min(about.y) > 0.0),
        "about": about.called,
    }
    heap = getattr(model, "heap_", None)
    if _noise_is_open(model) and heap is None:
        common["u"] = np.nan_to_num(ndtr(bounded(about.scores)))
    return dataclasses.replace(
        data,
        calibration=record,
        forecast=forecast_of(model, about),
        y=about.y,
        mean=about.mean,
        std=std,
        u=u,
        low=about.low,
        high=about.high,
        baselines=[_mean_alone(about.y, heap) | _whose(about)],
        advice=_more_time(model) + advice(**common),
    )


def _noise_is_open(model: Any) -> bool:
    """Whether the noise is normal, and heavy tails have not been tried beside it."""
    tried = any(
        "student" in entry.method and np.isfinite(entry.nlpd) for entry in model.leaderboard_
    )
    return type(model.likelihood_).__name__ == "Gaussian" and not tried


def _mean_alone(y: np.ndarray, heap: Heap | None = None) -> dict[str, Any]:
    """Return the score of a normal distribution with the mean and deviation of these very rows, and no inputs.

    Of a target with heaps their shares among these rows, and such a distribution of the others.
    """
    part = np.zeros(len(y)) if heap is None else heap.classes_of(y)
    rest = part == (0 if heap is None else len(heap.values))
    others = y[rest] if rest.any() else y
    deviation = max(float(np.std(others)), 1e-300)
    z = (y - np.mean(others)) / deviation
    density = -0.5 * z**2 - np.log(deviation) - 0.5 * np.log(2.0 * np.pi)
    share = np.array([np.mean(part == own) for own in part])
    loss = -np.log(share) - np.where(rest, density, 0.0)
    scores = z
    if heap is not None:
        shares = np.array([[np.mean(part == k) for k in range(len(heap.values) + 1)]])
        scores = heaped_scores(np.asarray(heap.values), np.repeat(shares, len(y), axis=0), y, z)
    return {
        "method": "mean and deviation alone"
        if heap is None
        else "shares, mean and deviation alone",
        "nlpd": float(np.mean(loss)),
        "nlpd_error": float(np.std(loss) / np.sqrt(len(y))),
        "rmse": float(np.std(y)),
        "coverage": float(np.mean(np.abs(scores) < 1.959964)),
    }


# ---------------------------------------------------------------- classes


def _of_classes(data: ReportData, model: Any, about: About) -> ReportData:
    """Add what is said of classes."""
    common = _advised(model, data.importance)
    classes = model.classes_
    data = dataclasses.replace(data, classes=classes.tolist())
    if not len(about.y):
        return dataclasses.replace(data, advice=advice(**common))
    proba, y = model.calibration_.transform(about.scores), about.y.astype(np.int64)
    of_label = proba[np.arange(len(y)), y]
    order = np.argsort(of_label, kind="stable")[:_SURPRISES]
    guess = np.argmax(proba, axis=1)
    found = [
        (
            int(about.row[k]), str(classes[y[k]]),
            f"{classes[guess[k]]} {percent(proba[k, guess[k]])}, {classes[y[k]]} {percent(of_label[k])}", None,
            _inputs(data, about, int(k)),
        )
        for k in order
        if guess[k] != y[k]
    ]  # fmt: skip
    loss = -np.log(np.maximum(of_label, 1e-12))
    scores = [
        ("right", percent(float(np.mean(guess == y)))),
        (_scored("log loss", model), number(float(np.mean(loss)))),
    ]
    data = dataclasses.replace(data, surprises=found, scores=scores)
    if not about.enough:
        return dataclasses.replace(data, advice=advice(**common))
    return dataclasses.replace(
        data,
        labels=classes[y],
        probabilities=proba,
        baselines=[_shares_alone(y) | _whose(about)],
        advice=_more_time(model) + advice(**common),
    )


def _shares_alone(y: np.ndarray) -> dict[str, Any]:
    """Return the score of the classes' shares among these very rows, without inputs."""
    share = np.bincount(y) / len(y)
    loss = -np.log(share[y])
    return {
        "method": "shares of the classes alone",
        "nlpd": float(np.mean(loss)),
        "nlpd_error": float(np.std(loss) / np.sqrt(len(y))),
        "wrong": float(1.0 - np.max(share)),
    }


# ---------------------------------------------------------------- what both have


def _scored(name: str, model: Any) -> str:
    """Return what a score is called: whether calibration has changed it is part of that."""
    return f"{name}, calibrated" if is_calibrated(model) else name


def _whose(about: About) -> dict[str, str]:
    """Return what is noted of a simple method: models above it were judged by the rows that the fit held out."""
    which = "same" if about.called == "held-out" else about.called
    return {"note": f"of the {which} rows, without inputs"}


def _columns(model: Any) -> list[tuple[str, str, str]]:
    columns = getattr(model.encoder_, "columns_", None)
    if not isinstance(model.encoder_, TableEncoder) or columns is None:
        names = getattr(model, "feature_names_in_", ())
        return [(str(name), "", "") for name in names]
    return [
        (one.name, f"{one.kind}, {one.missing:,} missing" if one.missing else one.kind, one.done)
        for one in columns
    ]


def _notes(model: Any, about: About) -> list[str]:
    found = [_classes_in_words(model)] if model._classes else []
    found += left_out_in_words(model) + heap_in_words(model)
    exposure = getattr(model, "exposure_", None)
    if exposure is not None:
        found.append(exposure.in_words())
    if not isinstance(model.encoder_, TableEncoder):
        what = shortened(" ".join(repr(model.encoder_).split()), _LONG)
        found.append(f"Inputs are {model.model_.n_features_in_} columns that {what} made.")
    if len(about.y):
        where = (
            f"that the fit held out{', the last in time' if model._in_time else ''}"
            if about.called == "held-out"
            else "that were given with this report"
        )
        found.append(f"Calibration and surprises are of {len(about.y):,} rows {where}.")
    return [*found, *about.notes]


def _classes_in_words(model: Any) -> str:
    classes = [str(label) for label in model.classes_[:_SURPRISES]]
    more = len(model.classes_) - len(classes)
    return f"{len(model.classes_)} classes: {', '.join(classes)}{f' and {more} more' if more > 0 else ''}."


def _leaderboard(model: Any) -> list[dict[str, Any]]:
    found = []
    for entry in model.leaderboard_:
        scale = "" if entry.target in ("own", "") else f", {entry.target} scale"
        row = {
            "method": entry.method + scale,
            "rows": entry.rows or None,
            "seconds": entry.seconds if entry.rows else None,
            "note": _note(entry.note),
            "kept": entry.kept,
        }
        if np.isfinite(entry.nlpd):
            row |= {"nlpd": entry.nlpd, "nlpd_error": entry.nlpd_error}
            row["wrong" if model._classes else "rmse"] = entry.error
            row["coverage"] = None if np.isnan(entry.coverage) else entry.coverage
        found.append(row)
    return found


def _note(note: str) -> str:
    return shortened(ending_in_words(note.splitlines()[0] if note else ""), _LONG)


def _inputs(data: ReportData, about: About, place: int) -> dict[str, Any]:
    """Return a row's inputs, those that matter most first."""
    strong = [one[0] for one in data.importance if one[0] in about.columns]
    names = [*strong, *(name for name in about.columns if name not in strong)]
    return {name: cell(about.columns[name], place) for name in names}


def _advised(model: Any, importance: Any) -> dict[str, Any]:
    kept = model.kept_
    return {
        "rows": kept.rows,
        "rows_used": kept.rows_used,
        "finished": model.converged_,
        "seconds": None if model.max_work is not None else model.max_seconds,
        "importance": importance,
    }


def _more_time(model: Any) -> list[str]:
    waiting = [entry.method for entry in model.leaderboard_ if entry.note == NO_TIME_LEFT]
    if not waiting or not model.converged_:
        return []
    # names have commas themselves
    shown = ", ".join(map(repr, waiting))
    return [f"More time: there was none to try {shown}."]


def _phases(model: Any) -> list[tuple[str, float]]:
    race = sum(entry.seconds for entry in model.leaderboard_)
    found = [("comparing models on held-out rows", race)] if race else []
    whole = len(model.kept_.spent) == 1
    found += [("last fit" if whole else f"last fit: {name}", s) for name, s in model.kept_.spent]
    rest = model.fit_seconds_ - sum(spent for _, spent in found)
    return [*found, ("reading, encoding, calibration and the like", max(rest, 0.0))]


def _versions() -> dict[str, str]:
    import platform
    from importlib.metadata import version

    import vastgp

    found = {"vastgp": vastgp.__version__, "Python": platform.python_version()}
    return found | {name: version(name) for name in ("jax", "numpy", "scikit-learn")}
