"""`vastgp fit`: train a model on a file and save it."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from vastgp.cli._auto import AUTO, Asked, fit_auto, refuse_options, report_auto
from vastgp.cli._errors import BadInput, close_match, explained
from vastgp.cli._estimators import make_estimator
from vastgp.cli._names import OF_FIT, in_option
from vastgp.cli._options import Debug, Force
from vastgp.cli._processes import check_processes, joined, run_in_processes
from vastgp.cli._selection import chosen_inputs, place_of
from vastgp.estimators.registry import METHODS

_MODEL = "Model"
_BUDGET = "Budget"
_DATA = "Data"


def fit(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="Training rows: Parquet (file or folder), CSV, .npz or .npy."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Where to save the model; sales.vastgp in this folder for sales.parquet unless given.",
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            metavar="COLUMN",
            help="Column to predict; repeatable: auto fits a model to each. In an .npz it is the array y unless given.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    exposure: Annotated[
        str | None,
        typer.Option(
            "--exposure",
            metavar="COLUMN",
            help="Of counts: the column with the time, area or number at risk that each was counted over; it is no "
            "input, and predictions are rates.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            "--features",
            metavar="COLUMNS",
            help="Columns to predict from, with commas between (names with a comma in double quotes); all but the "
            "target by default.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    exclude: Annotated[
        str | None,
        typer.Option(
            "--exclude",
            metavar="COLUMNS",
            help="Columns to leave out, likewise.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            "--space",
            metavar="LAT,LON",
            help="Two columns that together are a place, with one lengthscale: on the sphere where they are called "
            "latitude and longitude, in a plane otherwise (x,y).",
            rich_help_panel=_DATA,
        ),
    ] = None,
    test_fraction: Annotated[
        float,
        typer.Option(
            "--test-fraction",
            metavar="SHARE",
            min=0.0,
            max=0.9,
            help="Keep this share of the rows, chosen at random, out of the fit and score the model on them.",
            rich_help_panel=_DATA,
        ),
    ] = 0.0,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            "-m",
            metavar="NAME",
            help="auto: takes any table (text, dates, gaps), tries models that suit it on rows held out, and "
            f"calibrates the best. Or one, for numbers without gaps: {', '.join(METHODS)}.",
            rich_help_panel=_MODEL,
        ),
    ] = AUTO,
    classes: Annotated[
        bool | None,
        typer.Option(
            "--classes/--numbers",
            help="What auto takes the target for. Unless given, text, booleans, categories and two whole numbers are "
            "classes, other numbers are numbers.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    kernel: Annotated[
        str,
        typer.Option(
            "--kernel",
            "-k",
            metavar="NAME",
            help="Of a named method: auto (the best of three), rbf, matern12, matern32, matern52, "
            "rational-quadratic, linear, or several with + and * between them.",
            rich_help_panel=_MODEL,
        ),
    ] = "auto",
    num_basis: Annotated[
        int | None,
        typer.Option(
            "--num-basis",
            metavar="COUNT",
            min=2,
            help="Random features of --method qsgp; more are closer to the exact model.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    solver: Annotated[
        str | None,
        typer.Option(
            "--solver",
            metavar="NAME",
            help="Of methods that have several; of qsgp auto, block or stochastic.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    hyperparameters: Annotated[
        str | None,
        typer.Option(
            "--hyperparameters",
            metavar="NAME",
            help="subset: kernel and noise from 2000 rows, in seconds. learn: from all rows. fixed: as given.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype", metavar="NAME", help="Precision: float32 or float64.", rich_help_panel=_MODEL
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other argument of the estimator (of auto: GPRegressor, GPClassifier), or with a dot what an "
            "object that is one holds "
            "(solver.rank=500); repeatable.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="NUMBER",
            min=0,
            help="Of everything random; the same seed gives the same model.",
            rich_help_panel=_MODEL,
        ),
    ] = 0,
    max_seconds: Annotated[
        float | None,
        typer.Option(
            "--max-seconds",
            metavar="SECONDS",
            min=0.0,
            help="Time of the fit: 60 for auto; a named method stops when it has converged unless given.",
            rich_help_panel=_BUDGET,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            metavar="FILE",
            help="Save the state of a named method here every half minute, and go on from it if it is there.",
            rich_help_panel=_BUDGET,
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            "--processes",
            metavar="COUNT",
            min=1,
            help="Of a named method: share the rows among so many processes of this machine.",
            rich_help_panel=_BUDGET,
        ),
    ] = 1,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Train a model on DATA and save it.

    DATA may have text, dates, categories and gaps; rows without a target are left out. A method that is named takes
    numbers alone. Predictions come back in your units. The file is written whole or not at all.
    """
    with explained(debug, OF_FIT):
        from vastgp.cli._files import writable

        if method not in (AUTO, *METHODS):
            names = (AUTO, *METHODS)
            raise BadInput(
                f"--method {method!r} is none.{close_match(method, names)} It is one of {', '.join(names)}."
            )
        out = out or Path(f"{_stem(data)}.vastgp")
        others = {"the data": data, "the file of --checkpoint": checkpoint}
        writable(out, "--out", force=force, others=others)
        if processes > 1:
            check_processes(processes, method, AUTO)
            run_in_processes(processes, checkpoint)
            return
        silent = joined()
        options: dict[str, Any] = {
            "num_basis": num_basis,
            "solver": solver,
            "hyperparameters": hyperparameters,
            "dtype": dtype,
            "max_seconds": max_seconds,
            "checkpoint": checkpoint and str(checkpoint),
            "kernel": None if kernel == "auto" else kernel,
            "random_state": seed or None,
        }
        if method == AUTO:
            refuse_options(options)
            names_of_inputs = chosen_inputs(data, target or [], features, exclude, exposure)
            options["space"] = None if space is None else place_of(space, data, names_of_inputs)
            asked = Asked(data, target or [], names_of_inputs, exposure, classes)
            made = fit_auto(asked, test_fraction, seed, options, settings or [])
            made.model.save(out)
            report_auto(made, out)
            return
        if classes is not None:
            raise BadInput(
                f"--{'classes' if classes else 'numbers'} is for --method auto; --method {method} is for "
                f"{'classes' if METHODS[method].endswith('Classifier') else 'numbers'}. Leave one of them out."
            )
        if exposure is not None or space is not None or len(target or []) > 1:
            what = "--exposure" if exposure is not None else "several times --target"
            what = what if space is None else "--space"
            raise BadInput(
                f"{what} is for --method auto, and --method {method} was named. Leave --method out; --set "
                f"method={method} makes auto use that one alone where it can."
            )
        model = _fit_named(
            method,
            options,
            settings or [],
            checkpoint,
            (data, target[0] if target else None, features, exclude, test_fraction, seed),
        )
        if not silent:
            model[0].save(out)
        _report(model[0], out, model[1])


def _stem(data: Path) -> str:
    """`sales` of sales.parquet, sales.csv.gz and the folder sales."""
    return data.resolve().name.partition(".")[0] or "model"


def _fit_named(
    method: str,
    options: dict[str, Any],
    settings: list[str],
    checkpoint: Path | None,
    data: tuple[Any, ...],
) -> tuple[Any, Any]:
    """Fit the estimator that a name stands for; return it, and rows that were kept out."""
    from vastgp.cli._files import require_folder

    if checkpoint is not None:
        require_folder(checkpoint.parent, f"--checkpoint {str(checkpoint)!r} cannot be written")
    model = make_estimator(METHODS[method], options, settings)
    train, test = _data(model, *data)
    most = getattr(model, "max_rows", None)
    if isinstance(most, int) and train[0].n > most:
        raise BadInput(
            f"--method {method} takes up to {most:,} rows, for time and memory, and there are "
            f"{train[0].n:,}; leave --method out, or raise the limit with --set max_rows=NUMBER."
        )
    with _resumable(checkpoint):
        model.fit(*train)
    return model, test


@contextlib.contextmanager
def _resumable(checkpoint: Path | None) -> Iterator[None]:
    """After Ctrl-C, say that the work so far is not lost."""
    from vastgp.cli._console import message

    try:
        yield
    except KeyboardInterrupt:
        if checkpoint is not None and any(checkpoint.parent.glob(f"{checkpoint.name}*")):
            message("Checkpoint", f"the same command goes on from {checkpoint}.", style="yellow")
        raise


def _data(
    model: Any,
    data: Path,
    target: str | None,
    features: str | None,
    exclude: str | None,
    test_fraction: float,
    seed: int,
) -> tuple[tuple[Any, Any], tuple[Any, Any] | None]:
    """Rows and targets for training, and for the test where a fraction is to be held out."""
    import numpy as np
    from sklearn.base import is_classifier

    from vastgp.data import held_out_indices, without
    from vastgp.data.shared_rows import as_shared_labelled, as_shared_rows

    names = chosen_inputs(data, [] if target is None else [target], features, exclude)
    if names is not None:
        _require_numbers(names, data)
    classes = None
    if is_classifier(model):
        rows, classes = as_shared_labelled(data, target, feature_names=names, min_rows=2)
    else:
        rows = as_shared_rows(data, target, feature_names=names, min_rows=2)
    if rows.y is None:
        raise BadInput(
            f"{str(data)!r} holds no target; write numpy.savez(path, X=X, y=y), or name the array with --target."
        )

    def labelled(rows: Any) -> tuple[Any, Any]:
        """Rows as an estimator takes them: numbers with the inputs, labels of what this process has beside these."""
        if classes is None:
            return rows, None
        own = rows.local
        numbers = np.asarray(own.y[:], dtype=np.int64)
        return dataclasses.replace(own, y=None), classes[numbers]

    if not test_fraction:
        return labelled(rows), None
    kept_out = held_out_indices(rows.n, test_fraction, seed, max_rows=None)
    X, y = rows.take(kept_out)
    test = dataclasses.replace(rows, X=X, y=None, checked=True)
    of_test = y if classes is None else classes[np.asarray(y, dtype=np.int64)]
    return labelled(without(rows, kept_out)), (test, of_test)


def _require_numbers(names: list[str], data: Path) -> None:
    """Refuse columns of text, dates and the like, which a table often has beside its numbers."""
    from vastgp.data import files

    held = files.open_table_file(data).not_numeric
    found = [name for name in names if name in held]
    if found:
        shown = ", ".join(f"{name!r} ({held[name]})" for name in found[:10])
        raise BadInput(
            f"{str(data)!r} has columns that are not numbers: {shown}. The default method takes them as they are: "
            f"leave --method out. Or leave them out with --exclude {shlex.quote(in_option(found))}."
        )


def _report(model: Any, out: Path, test: Any) -> None:
    """What was learned, how well it does on the rows kept out, and what to do next."""
    from vastgp.cli import _summary, evaluate

    _summary.show(_summary.summary(model), f"{out}, saved", lengthscales=False)
    if test is not None:
        evaluate.show(evaluate.score(model, *test), "On the rows kept out of the fit")
