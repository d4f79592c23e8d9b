"""`vastgp fit`: train a model on a file and save it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from vastgp.cli._errors import BadInput, close_match, explained
from vastgp.cli._options import Debug, Force, KernelName

_MODEL = "Model"
_BUDGET = "Budget"
_DATA = "Data"


class Method(StrEnum):
    """Estimators of the command line."""

    qsgp = "qsgp"
    exact = "exact"
    rvm = "rvm"
    tsvgp = "tsvgp"
    svgp = "svgp"


class Hyperparameters(StrEnum):
    """How kernel and noise are learned."""

    subset = "subset"
    learn = "learn"


class Dtype(StrEnum):
    """Floating point formats."""

    float32 = "float32"
    float64 = "float64"


class Solver(StrEnum):
    """Solvers of qsgp."""

    auto = "auto"
    block = "block"
    stochastic = "stochastic"


def fit(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="Training rows: Parquet (file or folder), CSV, .npz or .npy."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Where to save the model, e.g. model.vastgp."
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            metavar="COLUMN",
            help="Column to predict. In an .npz it is the array y unless given.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            "--features",
            metavar="COLUMNS",
            help="Columns to predict from, with commas between; all but the target by default.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    exclude: Annotated[
        str | None,
        typer.Option(
            "--exclude",
            metavar="COLUMNS",
            help="Columns to leave out, with commas between.",
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
        Method,
        typer.Option(
            "--method",
            "-m",
            metavar="NAME",
            help="qsgp: any number of rows. exact: up to a few thousand rows. rvm: a sum of few kernel functions. "
            "tsvgp, svgp: some hundred inducing points, any number of rows.",
            rich_help_panel=_MODEL,
        ),
    ] = Method.qsgp,
    kernel: Annotated[
        KernelName,
        typer.Option(
            "--kernel",
            "-k",
            metavar="NAME",
            help="auto (the best of three by evidence), rbf, matern12, matern32, matern52 or rational-quadratic.",
            rich_help_panel=_MODEL,
        ),
    ] = KernelName.auto,
    num_basis: Annotated[
        int | None,
        typer.Option(
            "--num-basis",
            metavar="COUNT",
            min=2,
            help="Random features of qsgp; more are closer to the exact model.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    solver: Annotated[
        Solver | None,
        typer.Option(
            "--solver",
            metavar="NAME",
            help="Of qsgp: auto, block or stochastic.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    hyperparameters: Annotated[
        Hyperparameters | None,
        typer.Option(
            "--hyperparameters",
            metavar="NAME",
            help="subset: kernel and noise from 2000 rows, in seconds. learn: from all rows.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    dtype: Annotated[
        Dtype | None,
        typer.Option(
            "--dtype", metavar="NAME", help="Precision: float32 or float64.", rich_help_panel=_MODEL
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other argument of the estimator; repeatable.",
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
            help="Stop the fit after this time; else when it has converged.",
            rich_help_panel=_BUDGET,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            metavar="FILE",
            help="Save the state of the fit here every half minute, and go on from it if it "
            "is there.",
            rich_help_panel=_BUDGET,
        ),
    ] = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Train a model on DATA and save it.

    Inputs and target are standardised for you; predictions come back in your units. The file is
    written whole or not at all.
    """  # fmt: skip
    with explained(debug):
        from vastgp.cli._files import require_folder, writable

        writable(out, "--out", force=force)
        if checkpoint is not None:
            require_folder(checkpoint.parent, f"--checkpoint {str(checkpoint)!r} cannot be written")
        given = {
            "num_basis": num_basis,
            "solver": solver and solver.value,
            "hyperparameters": hyperparameters and hyperparameters.value,
            "dtype": dtype and dtype.value,
            "max_seconds": max_seconds,
            "checkpoint": checkpoint and str(checkpoint),
            "kernel": None if kernel is KernelName.auto else kernel.value,
        }
        model = _estimator(method, seed, given, settings or [])
        train, test = _rows(data, target, features, exclude, test_fraction, seed)
        if method is Method.exact and train.n > model.max_rows:
            raise BadInput(
                f"--method exact takes up to {model.max_rows:,} rows, for time and memory, and there are {train.n:,}; "
                "use --method qsgp, or raise the limit with --set max_rows=NUMBER."
            )
        with _resumable(checkpoint):
            model.fit(train)
        model.save(out)
        _report(model, out, test)


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


def _estimator(method: Method, seed: int, given: dict[str, Any], settings: list[str]) -> Any:
    """The unfitted estimator with the arguments that were given."""
    from vastgp.estimators.registry import estimator_class

    kind = {
        Method.qsgp: "QSGPRegressor",
        Method.exact: "ExactGPRegressor",
        Method.rvm: "RelevanceVectorRegressor",
        Method.tsvgp: "TSVGPRegressor",
        Method.svgp: "SVGPRegressor",
    }[method]
    make = estimator_class(kind)
    known = make().get_params(deep=False)
    arguments = {name: value for name, value in given.items() if value is not None}
    for name in arguments:
        if name not in known:
            raise BadInput(
                f"--{name.replace('_', '-')} does not apply to --method {method.value}; leave it out."
            )
    for entry in settings:
        name, equals, text = entry.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in known:
            raise BadInput(
                f"--set {entry!r}: expected NAME=VALUE with an argument of {kind}.{close_match(name, known)} "
                f"It has: {', '.join(known)}."
            )
        arguments[name] = _value(text.strip())
    return make(**arguments, random_state=seed, verbose=True)


def _value(text: str) -> Any:
    """A number, true, false or none; other text as it is."""
    import ast

    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _rows(
    data: Path,
    target: str | None,
    features: str | None,
    exclude: str | None,
    test_fraction: float,
    seed: int,
) -> tuple[Any, Any]:
    """Training rows, and test rows where a fraction of them is to be held out."""
    from vastgp.cli._files import existing
    from vastgp.data import Rows, as_rows, held_out_indices, without

    existing(data, "The data")
    names = _selection(data, target, features, exclude)
    rows = as_rows(data, target, feature_names=names, min_rows=2)
    if rows.y is None:
        raise BadInput(
            f"{str(data)!r} holds no target; write numpy.savez(path, X=X, y=y), or name the array with --target."
        )
    if not test_fraction:
        return rows, None
    kept_out = held_out_indices(rows.n, test_fraction, seed, max_rows=None)
    X, y = rows.take(kept_out)
    test = Rows(X, y, feature_names=rows.feature_names, target_name=rows.target_name, checked=True)
    return without(rows, kept_out), test


def _selection(
    data: Path, target: str | None, features: str | None, exclude: str | None
) -> list[str] | None:
    """Names of the input columns, or None for all but the target."""
    from vastgp.cli._model import require_columns, table_columns

    columns = table_columns(data)
    if columns is None:
        if features or exclude:
            raise BadInput(
                f"--features and --exclude name columns, and {str(data)!r} holds arrays without names."
            )
        return None
    if target is None:
        shown = ", ".join(map(repr, columns[:30])) + (", ..." if len(columns) > 30 else "")
        raise BadInput(f"--target is missing: name the column to predict, one of {shown}.")
    require_columns([target], data, "named by --target")
    chosen, left_out = _names(features), _names(exclude)
    require_columns(chosen, data, "named by --features")
    require_columns(left_out, data, "named by --exclude")
    if target in chosen:
        raise BadInput(f"--features names the target {target!r} as well; leave it out there.")
    names = [name for name in chosen or columns if name != target and name not in left_out]
    _require_numbers(names, data)
    return names


def _require_numbers(names: list[str], data: Path) -> None:
    """Refuse columns of text, dates and the like, which a table often has beside its numbers."""
    from vastgp.data import files

    held = files.open_table_file(data).not_numeric
    found = [name for name in names if name in held]
    if found:
        shown = ", ".join(f"{name!r} ({held[name]})" for name in found[:10])
        raise BadInput(
            f"{str(data)!r} has columns that are not numbers: {shown}. Encode them as numbers, or leave them out "
            f"with --exclude {','.join(found)}."
        )


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _report(model: Any, out: Path, test: Any) -> None:
    """What was learned, how well it does on the rows kept out, and what to do next."""
    from vastgp.cli import evaluate, info

    info.show(info.summary(model), f"{out}, saved", lengthscales=False)
    if test is not None:
        evaluate.show(evaluate.score(model, test, 65_536), "On the rows kept out of the fit")
