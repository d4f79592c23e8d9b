"""`vastgp fit` by the default method: what the target is, the fit of a table of any kind, and what it found."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vastgp.cli._errors import BadInput
from vastgp.cli._estimators import make_estimator
from vastgp.cli._model import NO_ROWS
from vastgp.cli._tables import RawRows, open_any, rows_of

AUTO = "auto"
_SECONDS = 60.0
# Options that a race has no use for, and a method that has.
_OF_METHODS = {
    "num_basis": "qsgp",
    "solver": "qsgp",
    "hyperparameters": "qsgp",
    "dtype": "qsgp",
    "checkpoint": "qsgp",
    "kernel": "exact",
}
# Text with more distinct values than this share of the rows is no class; of fewer rows, that may be chance.
_MOST_DISTINCT, _FEW_ROWS = 0.5, 10


@dataclass(frozen=True)
class Asked:
    """What is to be fitted.

    Attributes
    ----------
    data : Path
    targets : list of str
        Columns; none for the array y of a file of arrays.
    names : list of str or None
        Inputs; None of a file of arrays.
    exposure : str or None
        Column of the exposures of counts.
    classes : bool or None
        Whether the target is a class; None: by what it holds.
    """

    data: Path
    targets: list[str]
    names: list[str] | None
    exposure: str | None
    classes: bool | None

    @property
    def target(self) -> str | None:
        """The target, or the first one."""
        return self.targets[0] if self.targets else None


@dataclass(frozen=True)
class Fitted:
    """A fitted model, and by target the rows kept out of it with their targets, where there are any."""

    model: Any
    test: dict[Any, tuple[RawRows, np.ndarray]]


def refuse_options(options: dict[str, Any]) -> None:
    """Refuse options of the named methods."""
    for name, method in _OF_METHODS.items():
        if options[name] is not None:
            option = f"--{name.replace('_', '-')}"
            raise BadInput(
                f"{option} {options[name]} does not apply to the default method, which finds models by itself. Leave "
                f"it out, or name a method that has it: --method {method}."
            )


def fit_auto(
    asked: Asked,
    test_fraction: float,
    seed: int,
    options: dict[str, Any],
    settings: list[str],
) -> Fitted:
    """Fit the default method.

    Parameters
    ----------
    asked : Asked
    test_fraction : float
        Share of the rows to keep out.
    seed : int
    options : dict
        Arguments that have options of their own.
    settings : list of str
        Of the option --set.
    """
    source, targets = _read(asked)
    of_classes, why = _kind(asked, targets)
    given = {name: options[name] for name in ("max_seconds", "random_state", "space")}
    given["max_seconds"] = _SECONDS if given["max_seconds"] is None else given["max_seconds"]
    if any(entry.replace(" ", "").startswith(("encoder=", "encoder.")) for entry in settings):
        raise BadInput(
            "--set encoder: an encoder is an object of Python; use GPRegressor(encoder=...) there."
        )
    model = make_estimator("GPClassifier" if of_classes else "GPRegressor", given, settings)
    _announce(model, why)
    y = next(iter(targets.values()))
    rows, test_rows = _parts(len(y), test_fraction, seed)
    if isinstance(source, np.ndarray):
        model.fit(source[rows], y[rows])
    else:
        named = asked.targets if len(targets) > 1 else asked.target
        own = {} if asked.exposure is None else {"exposure": asked.exposure}
        model.fit(source if test_rows is None else rows_of(source, rows), named, **own)
    if of_classes and model.classes_.dtype.kind == "f":
        # whole numbers that a CSV file or gaps made floating point: 0 and 1, not 0.0 and 1.0
        model.classes_ = model.classes_.astype(np.int64)
    if test_rows is None:
        return Fitted(model, {})
    return Fitted(model, _kept_out(model, asked, source, targets, test_rows))


def _kind(asked: Asked, targets: dict[str | None, np.ndarray]) -> tuple[bool, str]:
    """Whether the target is a class, and why in words; several targets, and counts with exposures, are numbers."""
    from vastgp.auto.reading_targets import spoilt_numbers
    from vastgp.data.missing import missing_in

    several = len(targets) > 1
    if asked.classes and (several or asked.exposure is not None):
        why = "several targets are" if several else f"counts with --exposure {asked.exposure} are"
        raise BadInput(f"--classes: {why} numbers. Leave --classes out, or fit the class alone.")
    numbers = several or asked.exposure is not None
    found = []
    for name, y in targets.items():
        if not len(y):
            raise BadInput(NO_ROWS)
        called = "the target" if name is None else f"the target {name!r}"
        try:
            kind = kind_of_target(
                y[~missing_in(y)],
                called,
                False if numbers else asked.classes,
                declared=_is_category(asked.data, name),
                alone=not numbers,
            )
        except BadInput as error:
            raise BadInput(spoilt_numbers(y, _upper(called)) or str(error)) from None
        found.append(kind)
    words = "; ".join(why for _, why in found)
    if asked.exposure is not None:
        words += f", a count over {asked.exposure!r}"
    return found[0][0], words


def _announce(model: Any, why: str) -> None:
    from vastgp.cli._console import say

    limit = model.max_seconds
    time = "until all have converged" if limit is None else f"up to {limit:g} s"
    say(f"{why}: {type(model).__name__}, {time}.", wrap=True)


def _kept_out(
    model: Any,
    asked: Asked,
    source: Any,
    targets: dict[str | None, np.ndarray],
    rows: np.ndarray,
) -> dict[Any, tuple[RawRows, np.ndarray]]:
    """Rows that were kept out of the fit, and their targets, for the model of each target that has some."""
    from vastgp.cli._model import of_targets
    from vastgp.data.missing import missing_in

    exposure, found = None, {}
    if asked.exposure is not None:
        exposure = np.asarray(source.labels(asked.exposure), np.float64)[rows]
    for (key, one), (name, y) in zip(of_targets(model).items(), targets.items(), strict=True):
        present = ~missing_in(y[rows])
        if present.any():
            kept = np.asarray(y[rows][present].tolist())
            new = RawRows(rows_of(source, rows), one.encoder_, present, name, exposure)
            found[key] = new, kept
    return found


def _read(asked: Asked) -> tuple[Any, dict[str | None, np.ndarray]]:
    """Inputs, and each target as it is by its name."""
    from vastgp.data import files
    from vastgp.data.labels import column_of

    data, target = asked.data, asked.target
    if asked.names is not None:
        own = [] if asked.exposure is None else [asked.exposure]
        source: Any = open_any(data, asked.names, [*asked.targets, *own])
        return source, {name: source.labels(name) for name in asked.targets}
    suffix = files.suffix_of(data)
    if suffix not in (".npz", ".npy"):
        raise files.unknown_format_error(data, "DATA")
    stored = files.npz_names(data) if suffix == ".npz" else []
    if suffix == ".npz" and "X" not in stored:
        raise BadInput(f"{str(data)!r} holds no array X; write numpy.savez(path, X=X, y=y).")
    if (
        suffix == ".npz" and (target or "y") not in stored and not str(target).endswith(".npy")
    ) or (suffix == ".npy" and target is None):
        raise BadInput(
            f"{str(data)!r} holds no target; write numpy.savez(path, X=X, y=y), or name the array with --target."
        )
    source = files.open_matrix(data)
    y = column_of(str(data), target, estimator="vastgp fit")[0]
    return source, {target: y}


def _parts(n: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Numbers of the rows to train on, and of those to keep out."""
    from vastgp.data import held_out_indices

    if not fraction:
        return np.arange(n), None
    out = held_out_indices(n, fraction, seed, max_rows=None)
    return np.setdiff1d(np.arange(n), out), out


def _is_category(data: Path, target: str | None) -> bool:
    """Whether a file declares the target to be a category, whatever its levels are."""
    from vastgp.data import files

    if target is None or not files.is_table_file(data):
        return False
    return files.open_table_file(data).not_numeric.get(target) == "categories"


# ---------------------------------------------------------------- what the target is


def kind_of_target(
    values: np.ndarray,
    called: str,
    forced: bool | None,
    *,
    declared: bool = False,
    alone: bool = True,
) -> tuple[bool, str]:
    """Return whether a target is a class, and why in words.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Those that are not missing.
    called : str
        What to call it.
    forced : bool or None
        What the user says.
    declared : bool, default False
        Whether the table says that it is a category.
    alone : bool, default True
        Whether classes are possible: they are no target beside others, and have no exposures.
    """
    if not len(values):
        raise BadInput(
            f"{_upper(called)} is missing in all rows; name another column with --target, or give rows that have it."
        )
    values = np.asarray(values.tolist()) if values.dtype.kind == "O" else values
    if values.dtype.kind in "mM" or (values.dtype.kind == "O" and hasattr(values[0], "year")):
        raise BadInput(
            f"{_upper(called)} holds dates or times, for example {values[0]!s}, which no model here predicts. Make a "
            "number of it, such as the days since the first, or name another column with --target."
        )
    text = values.dtype.kind in "US"
    if text or values.dtype.kind == "b" or declared:
        holds = "text" if text else "booleans" if values.dtype.kind == "b" else "categories"
        if forced is False and (text or values.dtype.kind == "b"):
            example = f"{called} holds {holds}, for example {str(values[0])!r}"
            if not alone:
                raise BadInput(
                    f"{_upper(example)}, and several targets, or counts with --exposure, are numbers. Make numbers of "
                    "it, or fit it by a command of its own."
                )
            raise BadInput(
                f"--numbers: {example}. Make numbers of it, or leave --numbers out: then its values are classes."
            )
        if forced is False:
            return False, f"{_upper(called)} is predicted as a number"
        return True, f"{_upper(called)} holds {_counted(values, called, holds)}"
    numbers = np.asarray(values, dtype=np.float64) if values.dtype.kind == "O" else values
    if forced:
        if not np.all(numbers == np.round(numbers)):
            odd = numbers[numbers != np.round(numbers)][0]
            raise BadInput(
                f"--classes: {called} holds fractions, for example {odd:g}, which are no classes. Leave --classes out, "
                "or make whole numbers or text of them."
            )
        return True, f"{_upper(called)} holds {_counted(numbers, called, 'whole numbers')}"
    found = np.unique(numbers[:1000])
    found = np.unique(numbers) if len(found) <= 2 else found
    if forced is None and len(found) == 2 and np.all(found == np.round(found)):
        pair = f"{found[0]:g} and {found[1]:g}"
        why = f"holds two whole numbers only, {pair}, taken as classes (--numbers predicts numbers)"
        return True, f"{_upper(called)} {why}"
    return False, f"{_upper(called)} is predicted as a number"


def _counted(values: np.ndarray, called: str, holds: str) -> str:
    """How many classes there are; too many are refused, as no model learns what it has seen once."""
    distinct = len(np.unique(values))
    if len(values) >= _FEW_ROWS and distinct > _MOST_DISTINCT * len(values):
        raise BadInput(
            f"{_upper(called)} holds {holds}, such as {str(values[0])!r}, with {distinct:,} different values in "
            f"{len(values):,} rows: too many to be classes. If they are numbers written as text, convert them; else "
            "name another column with --target."
        )
    return f"{holds} of {distinct:,} classes" if distinct != 1 else f"{holds} of one class"


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]


# ---------------------------------------------------------------- what was found


def report_auto(made: Fitted, out: Path) -> None:
    """What was tried and found, what was done with the table, and how well it does on the rows kept out."""
    from vastgp.cli import evaluate
    from vastgp.cli._auto_info import show, summary
    from vastgp.cli._console import say
    from vastgp.cli._model import of_targets

    for name, one in of_targets(made.model).items():
        title = f"{out}, saved" if name is None else f"{name}, saved in {out}"
        show(summary(one), title, after_fit=True)
        if name in made.test:
            report = evaluate.score(one, *made.test[name])
            of_one = "" if name is None else f": {name}"
            evaluate.show(report, f"On the rows kept out of the fit{of_one}")
    say(f"Next: vastgp predict {shlex.quote(str(out))} NEW --out predictions.parquet", style="dim")
