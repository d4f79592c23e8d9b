"""`vastgp report`: what a model learned and how far to trust it, as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vastgp.cli._errors import BadInput, explained
from vastgp.cli._options import Debug, Force

_PAGES = (".html", ".htm")


def report(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="A model that vastgp fit wrote by its default method."
        ),
    ],
    test: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TEST]",
            help="Rows that the fit has not seen, with the target column; the rows that the fit held out unless given.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Where to write; model.html in this folder for model.vastgp unless given.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            metavar="COLUMN",
            help="Target column of TEST, if it is not named as in training.",
        ),
    ] = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Write a report of a model: one HTML page that needs no network.

    It shows what was done with each column, what was tried, how well intervals hold, which inputs matter and how, and
    what to try next.
    """
    with explained(debug):
        from vastgp.cli._console import say
        from vastgp.cli._files import writable
        from vastgp.cli._model import load_model_of_rows, rows_and_targets
        from vastgp.cli._tables import is_front_door

        out = writable(out or Path(f"{model.stem}.html"), "--out", force=force, suffixes=_PAGES)
        fitted = load_model_of_rows(model)
        if not is_front_door(fitted):
            raise BadInput(
                f"{str(model)!r} holds a {type(fitted).__name__}; reports are of models of the default method. Fit one "
                "by vastgp fit without --method, or see vastgp info and vastgp evaluate."
            )
        if test is None:
            if target is not None:
                raise BadInput(
                    f"--target {target!r} names a column of TEST, which is missing; give TEST, or leave it out."
                )
            fitted.report(out)
        else:
            rows, _ = rows_and_targets(
                fitted, test, target
            )  # refuses what cannot be scored, in one line
            fitted.report(out, X=str(test), y=rows.target_name)
        say(f"Report: {out}")
