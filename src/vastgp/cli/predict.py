"""`vastgp predict`: mean, standard deviation and 95 % interval, or class probabilities, of every row of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vastgp.cli._errors import BadInput, explained
from vastgp.cli._options import BatchRows, Debug, Force


def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model that vastgp fit or model.save wrote.")
    ],
    new: Annotated[
        Path,
        typer.Argument(
            metavar="NEW",
            help="Rows to predict: Parquet, CSV, .npz or .npy with the columns that the model was fitted with. "
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
    mark_range: Annotated[
        bool,
        typer.Option(
            "--range",
            help="Add the column outside: whether a row lies outside what the model was trained on. For models of the "
            "default method.",
        ),
    ] = False,
    batch_rows: BatchRows = 65_536,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Predict every row of NEW.

    The columns are mean, std, lower_95 and upper_95, in the units of the target. std is that of a new observation,
    noise included; the interval is that of its own distribution, of counts for counts. Of a classifier they are
    predicted, the likeliest class, and the probability of each class. How many rows lie outside what the model was
    trained on is told at the end, and --range marks them. Rows stream through, so NEW may be larger than
    memory; the file appears whole or not at all.
    """
    with explained(debug):
        from vastgp.cli._console import facts, heading, plural
        from vastgp.cli._files import writable
        from vastgp.cli._model import by_batches, load_model_of_rows, rows_for
        from vastgp.cli._tables import Watch, is_front_door
        from vastgp.cli._write import SUFFIXES, predictions_file

        writable(out, "--out", force=force, suffixes=SUFFIXES)
        fitted = load_model_of_rows(model)
        watch = Watch(fitted) if is_front_door(fitted) else None
        if mark_range and watch is None:
            raise BadInput(
                f"--range is for models of the default method, which know what they were trained on; {str(model)!r} "
                f"holds a {type(fitted).__name__}. Leave it out, or fit without --method."
            )
        rows = rows_for(fitted, new)
        total, count = 0.0, 0
        with predictions_file(out) as file:
            for some in by_batches(rows, batch_rows, label="predict"):
                columns, spread = predicted(fitted, some)
                if watch is not None:
                    outside = watch.look(some)
                    columns |= {"outside": outside} if mark_range else {}
                file.write(columns)
                total += spread
                count += some.n
        typical = f"{total / count:.4g}"
        heading(str(out))
        facts(
            [
                ("predicted", plural(count, "row")),
                ("columns", ", ".join(columns)),
                ("mean probability of the likeliest class", typical)
                if "predicted" in columns
                else ("typical std", f"{typical}, in target units"),
            ]
        )
        if watch is not None:
            _tell_outside(watch, mark_range)


def _tell_outside(watch: Any, marked: bool) -> None:
    from vastgp.cli._console import say

    text = watch.in_words()
    if watch.outside:
        where = "the column outside marks them" if marked else "--range marks them in a column"
        text += f": the model guesses there; {where}."
    else:
        text += "."
    say(text[0].upper() + text[1:], style="yellow" if watch.outside else "dim", wrap=True)


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
