"""`vastgp report`: what a model learned and how far to trust it, as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vastgp.cli._errors import BadInput, explained, with_article
from vastgp.cli._names import OF_REPORT
from vastgp.cli._options import Debug, ExposureOfCounts, Force

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
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            metavar="COLUMN",
            help="Target column of TEST, if it is not named as in training; of several targets one each.",
        ),
    ] = None,
    exposure: ExposureOfCounts = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Write a report of a model: one HTML page that needs no network, for each target.

    It shows what was done with each column, what was tried, how well intervals hold, which inputs matter and how, and
    what to try next.
    """
    with explained(debug, OF_REPORT):
        from vastgp.cli._console import say
        from vastgp.cli._files import writable
        from vastgp.cli._model import (
            load_model_of_rows,
            of_targets,
            rows_and_targets,
            targets_named,
        )
        from vastgp.cli._tables import is_front_door
        from vastgp.cli.evaluate import files_of

        out = out or Path(f"{model.stem}.html")
        fitted = load_model_of_rows(model)
        models = of_targets(fitted)
        pages = files_of(out, models)
        for page in pages.values():
            others = {"the model": model, "TEST": test}
            writable(page, "--out", force=force, suffixes=_PAGES, others=others)
        if not is_front_door(fitted):
            raise BadInput(
                f"{str(model)!r} holds {with_article(type(fitted).__name__)}; reports are of models of the "
                "default method. Fit one by vastgp fit without --method, or see vastgp info and vastgp evaluate."
            )
        if test is None:
            given = {"--target": target, "--exposure": exposure and [exposure]}
            for option, columns in given.items():
                if columns:
                    named = ", ".join(map(repr, columns))
                    raise BadInput(
                        f"{option} {named} names a column of TEST, which is missing; give TEST, or leave it out."
                    )
        names = targets_named(fitted, target)
        for name, one in models.items():
            page = pages[name]
            if test is None:
                one.report(page)
            else:
                # refuses what cannot be scored, in one line
                rows, _ = rows_and_targets(one, test, names[name], exposure)
                own = {} if rows.exposure is None else {"exposure": rows.exposure}
                one.report(page, X=str(test), y=rows.target_name, **own)
            say(f"Report: {page}")
