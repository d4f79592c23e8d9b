"""`vastgp predict`: mean, standard deviation and 95 % interval, or class probabilities, of every row of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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

    The columns are mean, std, lower_95 and upper_95, in the units of the target. std is that of a new observation,
    noise included; the interval is that of its own distribution, of counts for counts. Of a classifier they are
    predicted, the likeliest class, and the probability of each class. Rows stream through, so NEW may be larger than
    memory; the file appears whole or not at all.
    """
    with explained(debug):
        from vastgp.cli._console import facts, heading, plural
        from vastgp.cli._files import writable
        from vastgp.cli._model import by_batches, load_model_of_rows, rows_for
        from vastgp.cli._write import SUFFIXES, predictions_file

        writable(out, "--out", force=force, suffixes=SUFFIXES)
        fitted = load_model_of_rows(model)
        rows = rows_for(fitted, new)
        total = 0.0
        with predictions_file(out) as file:
            for some in by_batches(rows, batch_rows, label="predict"):
                columns, spread = predicted(fitted, some)
                file.write(columns)
                total += spread
        typical = f"{total / rows.n:.4g}"
        heading(str(out))
        facts(
            [
                ("predicted", plural(rows.n, "row")),
                ("columns", ", ".join(columns)),
                ("mean probability of the likeliest class", typical)
                if "predicted" in columns
                else ("typical std", f"{typical}, in target units"),
            ]
        )


def predicted(model: Any, rows: Any) -> tuple[dict[str, Any], float]:
    """Columns of predictions for some rows, and the sum of what says how sure they are."""
    import numpy as np
    from sklearn.base import is_classifier

    if is_classifier(model):
        p = model.predict_proba(rows)
        columns = {f"probability_{name}": p[:, j] for j, name in enumerate(model.classes_)}
        return {"predicted": model.classes_[np.argmax(p, axis=1)]} | columns, float(
            p.max(axis=1).sum()
        )
    found = model.distribution(rows)
    low, high = found.quantiles((0.025, 0.975))
    columns = {"mean": found.mean, "std": found.std, "lower_95": low, "upper_95": high}
    return columns, float(found.std.sum())
