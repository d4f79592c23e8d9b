"""`vastgp predict`: mean, standard deviation and 95 % interval of every row of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vastgp.cli._errors import explained
from vastgp.cli._options import BatchRows, Debug, Force


def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model that vastgp fit or model.save wrote.")
    ],
    new: Annotated[
        Path,
        typer.Argument(
            metavar="NEW",
            help="Rows to predict: Parquet, CSV, .npz or .npy with the features of the model. "
            "Other columns are ignored.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Where to write: .parquet, .csv or .npz, one row for each of NEW.",
        ),
    ],
    batch_rows: BatchRows = 65_536,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Predict every row of NEW.

    The columns are mean, std, lower_95 and upper_95, in the units of the target. std is that of a new
    observation, noise included. Rows stream through, so NEW may be larger than memory; the file
    appears whole or not at all.
    """
    with explained(debug):
        from vastgp.cli._console import facts, heading, plural
        from vastgp.cli._files import writable
        from vastgp.cli._model import load_regressor, predictions, rows_for
        from vastgp.cli._write import SUFFIXES, predictions_file

        writable(out, "--out", force=force, suffixes=SUFFIXES)
        fitted = load_regressor(model)
        rows = rows_for(fitted, new)
        mean_std = 0.0
        with predictions_file(out) as file:
            for _, mean, std in predictions(fitted, rows, batch_rows, label="predict"):
                file.write(mean, std)
                mean_std += float(std.sum())
        heading(str(out))
        facts(
            [
                ("predicted", plural(rows.n, "row")),
                ("columns", "mean, std, lower_95, upper_95"),
                ("typical std", f"{mean_std / rows.n:.4g}, in target units"),
            ]
        )
