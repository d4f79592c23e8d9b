"""Models from files, the rows that fit them, and predictions batch by batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vastgp.cli._errors import BadInput, close_match, with_article
from vastgp.cli._files import existing
from vastgp.cli._parts import Part
from vastgp.cli._tables import RawRows, inputs_of, is_front_door

NO_ROWS = "The data hold no rows; give a file with at least one row below its names."


def load_model_of_rows(path: Path) -> Any:
    """The regressor or classifier that a file holds."""
    model = load_model(path)
    if hasattr(model, "kriging_"):
        raise BadInput(
            f"{str(path)!r} holds {with_article(type(model).__name__)}, whose answers are maps. In Python, "
            "vastgp.load(path).predict(grid) predicts, also of a table of points; vastgp map makes a map of readings."
        )
    if not hasattr(model, "n_features_in_"):
        raise BadInput(
            f"{str(path)!r} holds {with_article(type(model).__name__)}, whose data are a grid and not rows. In Python, "
            "vastgp.load(path).predict(coords) predicts; vastgp fill fills the gaps of a file."
        )
    return model


def load_model(path: Path) -> Any:
    """The estimator that a file holds."""
    from vastgp.estimators.load import load

    existing(path, "The model")
    if path.is_dir():
        raise BadInput(f"The model {str(path)!r} is a folder; give the file that vastgp fit wrote.")
    model = load(path)
    for one in [model, *of_targets(model).values()]:
        one.set_params(verbose=False)  # progress over a whole file is shown here, not tile by tile
    return model


def targets_named(model: Any, given: list[str] | None) -> dict[Any, str | None]:
    """The target column of each model, as given in their order; None where it is that of training."""
    models = of_targets(model)
    if given and len(given) != len(models):
        shown = ", ".join(map(str, models)) if len(models) > 1 else target_name(model) or "one"
        raise BadInput(
            f"--target was given {len(given)} time{'s' * (len(given) > 1)}, and the model has {len(models)} "
            f"target{'s' * (len(models) > 1)} ({shown}). Give a column for each, in that order, or leave --target out."
        )
    columns: Sequence[str | None] = given or [None] * len(models)
    return dict(zip(models, columns, strict=True))


def of_targets(model: Any) -> dict[Any, Any]:
    """The model of each target by its name; of one alone, itself, by None."""
    outputs: dict[Any, Any] | None = vars(model).get("outputs_")
    return {None: model} if outputs is None else outputs


def feature_names(model: Any) -> list[str]:
    """Names of the inputs; x0, x1, ... for a model fitted to an array without names."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return [f"x{j}" for j in range(model.n_features_in_)]
    return [str(name) for name in names]


def target_name(model: Any) -> str | None:
    """Name of the target column in training, if it had one."""
    name = getattr(model, "target_name_", None)
    return None if name is None else str(name)


def written_by(path: Path) -> str:
    """Version of vastgp that wrote a model file, from its header alone."""
    import json

    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return str(json.loads(file.metadata()["vastgp"])["header"]["vastgp"])


def table_columns(path: Path) -> list[str] | None:
    """Column names of a Parquet or CSV file; None for files of arrays, which have no names."""
    from vastgp.data import files

    return list(files.open_table_file(path).names) if files.is_table_file(path) else None


def require_columns(wanted: list[str], path: Path, why: str) -> None:
    """Refuse a table without these columns, naming what is there and what looks like them."""
    columns = table_columns(path)
    missing = [name for name in wanted if columns is not None and name not in columns]
    if columns is None or not missing:
        return
    guesses = [close_match(name, columns) for name in missing[:3]]
    shown = ", ".join(repr(name) for name in missing[:10]) + (", ..." if len(missing) > 10 else "")
    raise BadInput(
        f"{str(path)!r} has no column {shown}, {why}.{next(filter(None, guesses), '')} "
        f"Its columns are: {', '.join(repr(name) for name in columns[:30])}"
        f"{', ...' if len(columns) > 30 else ''}."
    )


def rows_for(model: Any, path: Path, exposure: str | None = None, part: Part | None = None) -> Any:
    """Open a file with the columns that a model takes.

    Parameters
    ----------
    model : estimator
        Fitted, of one target; its feature names select the columns of a table.
    path : Path
        Parquet, CSV, .npz or .npy.
    exposure : str, optional
        Column of the rows' exposures, or a number for all.
    part : Part, optional
        Which of the rows: those of one of several processes.
    """
    _refuse_exposure(model, exposure)
    if not is_front_door(model):
        return _opened(model, path, None, part)
    rows = _raw(model, path)
    given = None if exposure is None else _exposures(path, exposure)
    if part is not None:
        rows = replace(rows, source=_part_of(path, part, empty_as_text=True))
        if isinstance(given, np.ndarray):
            given = given[part.rows(len(given))]
    return replace(rows, exposure=given)


def _part_of(path: Path, part: Part, **options: Any) -> Any:
    """What a process has of a file: of a table, or of an array."""
    from vastgp.data import files

    if not files.is_table_file(path):
        whole = files.open_matrix(path)
        return whole[part.rows(len(whole))]
    table = files.open_table_file(path, **options)
    if table.part is None or table.num_rows is None:
        raise BadInput(
            f"--processes: {str(path)!r} is no Parquet file or folder, of which each process can read its part alone. "
            "Convert it, or leave --processes out."
        )
    return table.part(part.rows(table.num_rows))


def _refuse_exposure(model: Any, exposure: str | None) -> None:
    if exposure is not None and getattr(model, "exposure_", None) is None:
        raise BadInput(
            f"--exposure {exposure}: the model is {with_article(type(model).__name__)} that was fitted without "
            "exposures. Leave the option out, or fit again by vastgp fit --exposure COLUMN."
        )


def _exposures(path: Path, exposure: str, rows: np.ndarray | None = None) -> np.ndarray | float:
    """Exposures of all rows of a file, a column's, or a number for all of them.

    Parameters
    ----------
    path : Path
    exposure : str
        Name of the column, or the number.
    rows : ndarray of bool, optional
        Which rows must have one; all unless given.
    """
    from vastgp.data import Exposure
    from vastgp.data.own_noise import named_column, opened

    columns = table_columns(path)
    if columns is None or exposure not in columns:
        with contextlib.suppress(ValueError):
            return float(exposure)
        require_columns([exposure], path, "named by --exposure")
        raise BadInput(
            f"--exposure {exposure}: {str(path)!r} has no named columns. Give a number for all rows, or a table."
        )
    found = named_column(opened(path), exposure, "exposure")
    needed = np.ones(len(found), dtype=bool) if rows is None else rows
    Exposure(found, exposure).of_targets(np.zeros(len(found)), needed)  # refuses what is none
    return found


def _exposure_of_counts(model: Any, path: Path, exposure: str | None) -> str | None:
    """What counts are compared by: the column of the fit unless another is named."""
    from vastgp.auto.exposures import of_counts

    _refuse_exposure(model, exposure)
    fitted = getattr(model, "exposure_", None)
    if fitted is None:
        return None
    try:
        return str(of_counts(exposure, fitted, path))
    except ValueError as error:
        raise BadInput(
            f"--exposure is missing: the model was fitted to counts with {fitted.called}, and {str(path)!r} has no "
            "such column. Name the one that has them, or give a number for all rows."
        ) from error


def rows_and_targets(
    model: Any, path: Path, target: str | None, exposure: str | None = None
) -> tuple[Any, np.ndarray]:
    """Open a file with the columns that a model takes and the target: numbers, or the labels of a classifier.

    Parameters
    ----------
    model : estimator
    path : Path
    target : str, optional
        Column (or array of an .npz, or .npy file) of the target; as in training without it.
    exposure : str, optional
        Column of the rows' exposures, or a number for all; that of training without it.
    """
    from sklearn.base import is_classifier

    from vastgp.data import files
    from vastgp.data.labels import encode_as, read_labels

    existing(path, "The data")
    if not files.is_table_file(path) and files.suffix_of(path) not in (".npz", ".npy"):
        raise files.unknown_format_error(path, "TEST")
    target, columns = target or target_name(model), table_columns(path)
    if target is None and columns is not None:
        raise BadInput(
            f"--target: the model does not know the name of its target; name the column of {str(path)!r} "
            f"that holds it, one of {', '.join(map(repr, columns[:30]))}."
        )
    if target is not None:
        require_columns([target], path, "the target (--target names another one)")
    # In an .npz the target is the array y, whatever the column was called in training.
    y = target if columns is not None or _is_array_name(path, target) else None
    exposure = _exposure_of_counts(model, path, exposure)
    if is_front_door(model):
        rows, found = _raw_and_targets(model, path, y, target)
        if exposure is not None:
            rows = replace(rows, exposure=_exposures(path, exposure, rows.present))
        return rows, found
    if not is_classifier(model):
        rows = _opened(model, path, y)
        if rows.y is None:
            raise BadInput(f"{str(path)!r} holds no target; write numpy.savez(path, X=X, y=y).")
        return rows, rows.y
    labels = read_labels(path, y, estimator=type(model).__name__)
    numbers = encode_as(labels, model.classes_)  # refuses others
    return _opened(model, path, numbers.astype(np.float64)), labels


def _opened(model: Any, path: Path, y: Any, part: Part | None = None) -> Any:
    from vastgp.data import as_rows

    existing(path, "The data")
    named = getattr(model, "feature_names_in_", None) is not None
    if named:
        require_columns(feature_names(model), path, "which the model was fitted with")
    return as_rows(
        path if part is None else _part_of(path, part),
        y,
        feature_names=feature_names(model) if named else None,
        n_features=int(model.n_features_in_),
        estimator=type(model).__name__,
    )


def _raw(model: Any, path: Path) -> RawRows:
    existing(path, "The data")
    wanted = inputs_of(model)
    if wanted is not None:
        require_columns(wanted, path, "which the model was fitted with")
    return RawRows(str(path), model.encoder_)


def _raw_and_targets(
    model: Any, path: Path, y: Any, target: str | None
) -> tuple[RawRows, np.ndarray]:
    """Rows of any kind that have a target, and their targets."""
    from sklearn.base import is_classifier

    from vastgp.auto.reading_targets import numbers_and_name
    from vastgp.data import files
    from vastgp.data.labels import encode_as, read_labels
    from vastgp.data.missing import missing_in

    rows = _raw(model, path)
    if y is None and not (files.suffix_of(path) == ".npz" and "y" in files.npz_names(path)):
        raise BadInput(f"{str(path)!r} holds no target; write numpy.savez(path, X=X, y=y).")
    if is_classifier(model):
        found = read_labels(str(path), y, estimator=type(model).__name__)
    else:
        found = numbers_and_name(str(path), y)[0]
    present = ~missing_in(found)
    if not len(found):
        raise BadInput(NO_ROWS)
    if not present.any():
        raise BadInput(
            f"The target {target or 'y'!r} of {str(path)!r} is missing in all {len(found):,} rows: nothing can be "
            "scored. Give rows whose target is known."
        )
    # as a vector of one type, not of objects
    found = np.asarray(found[present].tolist())
    if is_classifier(model):
        encode_as(found, model.classes_)  # refuses others
    return replace(rows, present=present, target_name=target), found


def together(all_rows: Sequence[Any], batch_rows: int, *, label: str) -> Iterator[list[Any]]:
    """The same rows as each of several models takes them, as many of each at a time."""
    streams = [
        by_batches(rows, batch_rows, label=label, shown=number == 0)
        for number, rows in enumerate(all_rows)
    ]
    # a file's blocks may be cut elsewhere for other columns
    waiting: list[Any] = [next(stream, None) for stream in streams]
    while all(some is not None for some in waiting):
        size = min(some.n for some in waiting)
        yield [_cut(some, 0, size) for some in waiting]
        rest = [_cut(some, size, some.n) for some in waiting]
        waiting = [
            some if some.n else next(stream, None)
            for some, stream in zip(rest, streams, strict=True)
        ]


def _cut(rows: Any, begin: int, end: int) -> Any:
    y = None if rows.y is None else rows.y[begin:end]
    return replace(rows, X=rows.X[begin:end], y=y)


def by_batches(rows: Any, batch_rows: int, *, label: str, shown: bool = True) -> Iterator[Any]:
    """Rows of inputs, one batch after the other, with progress."""
    if isinstance(rows, RawRows):
        yield from _raw_by_batches(rows, batch_rows, label, shown)
        return
    from vastgp.data import Rows
    from vastgp.fitting.progress import Progress

    done = 0
    with Progress(label, True) as progress:
        for X, _ in rows.batches(batch_rows):
            yield Rows(X, feature_names=rows.feature_names, checked=True)
            done += X.shape[0]
            progress.update(done / rows.n, f"{done:,} rows")


def _raw_by_batches(rows: RawRows, batch_rows: int, label: str, shown: bool) -> Iterator[Any]:
    from vastgp.fitting.progress import Progress

    total, done = rows.n_read, 0
    with Progress(label, shown) as progress:
        for done, some in rows.batches(batch_rows):
            yield some
            # how many rows a CSV file has is known at its end
            progress.update(done / total if total else 0.0, f"{done:,} rows")
    if not done:
        raise BadInput(NO_ROWS)


def _is_array_name(path: Path, target: str | None) -> bool:
    """Whether `target` names an array of an .npz, or is itself the .npy file beside an .npy."""
    from vastgp.data import files

    if target is None:
        return False
    if files.suffix_of(path) == ".npz":
        return target in files.npz_names(path)
    return target.lower().endswith(".npy")
