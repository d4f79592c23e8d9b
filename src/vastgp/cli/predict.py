"""`vastgp predict`: mean, standard deviation and 95 % interval, or class probabilities, of every row of a file."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from vastgp.cli._errors import BadInput, explained, with_article
from vastgp.cli._files import check_suffix, existing, refuse_others
from vastgp.cli._names import OF_PREDICT
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
    exposure: Annotated[
        str | None,
        typer.Option(
            "--exposure",
            metavar="COLUMN|NUMBER",
            help="Of a model that was fitted with --exposure: predict counts of each row's own exposure, or of one for "
            "all. Without it predictions are of one unit.",
        ),
    ] = None,
    batch_rows: BatchRows = 65_536,
    processes: Annotated[
        int,
        typer.Option(
            "--processes",
            metavar="COUNT",
            min=1,
            help="Share the rows of a Parquet file or folder, .npy or .npz among so many processes of this machine; "
            "FILE is then a folder of one file for each, in the order of the rows.",
        ),
    ] = 1,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Predict every row of NEW.

    The columns are mean, std, lower_95 and upper_95, in the units of the target. std is that of a new observation,
    noise included; the interval is that of its own distribution, of counts for counts. Of a classifier they are
    predicted, the likeliest class, and the probability of each class. Of a target with heaps, values that many rows
    have exactly, there is also the probability of each. Of a model of several targets there are such
    columns for each, with its name before them. How many rows lie outside what the model was
    trained on is told at the end, and --range marks them. Rows stream through, so NEW may be larger than
    memory; the file appears whole or not at all.
    """
    with explained(debug, OF_PREDICT):
        from vastgp.cli._files import writable
        from vastgp.cli._model import load_model_of_rows
        from vastgp.cli._parts import Part, predict_in_parts
        from vastgp.cli._processes import share_cores
        from vastgp.cli._tables import is_front_door
        from vastgp.cli._write import SUFFIXES

        part, others = Part.own(), {"the model": model, "NEW": new}
        if part is not None:
            share_cores(part.number, part.count)
        elif processes == 1:
            writable(out, "--out", force=force, suffixes=SUFFIXES, others=others)
        else:
            check_suffix(out, "--out", SUFFIXES)
            refuse_others(out, "--out", others)
            load_model_of_rows(model)  # what cannot be read is said before any process is started
            existing(new, "The data")
            told = predict_in_parts(processes, out, force)
            _report(out, [Told(**each) for each in told], f"{processes} files")
            return
        fitted = load_model_of_rows(model)
        if mark_range and not is_front_door(fitted):
            raise BadInput(
                f"--range is for models of the default method, which know what they were trained on; {str(model)!r} "
                f"holds {with_article(type(fitted).__name__)}. Leave it out, or fit without --method."
            )
        file = out if part is None else part.file(out.suffix)
        found = _predict_to(file, fitted, new, exposure, mark_range, batch_rows, part)
        if part is None:
            _report(out, [found])
        else:
            part.tell(dataclasses.asdict(found))


@dataclass
class Told:
    """What is said of predictions when they are written.

    Attributes
    ----------
    rows : int
    columns : list of str
    spread : list of (target, float)
        The sum over the rows of what says how sure they are, of each target (None: the only one).
    notes : list of (str, str)
        More that is known of them, by name.
    outside : list of (target, str, bool)
        Of each target in words how many rows lie outside what the model was trained on, and whether some do.
    """

    rows: int
    columns: list[str]
    spread: list[Any]
    notes: list[Any]
    outside: list[Any]


def _predict_to(
    file: Path,
    fitted: Any,
    new: Path,
    exposure: str | None,
    mark_range: bool,
    batch_rows: int,
    part: Any,
) -> Told:
    """Predict rows to a file."""
    from vastgp.cli._model import of_targets, rows_for, together
    from vastgp.cli._tables import Watch, is_front_door
    from vastgp.cli._write import predictions_file

    models = of_targets(fitted)
    watches = {name: Watch(one) for name, one in models.items()} if is_front_door(fitted) else {}
    rows = [rows_for(one, new, exposure, part) for one in models.values()]
    total, count = dict.fromkeys(models, 0.0), 0
    with predictions_file(file) as sink:
        for parts in together(rows, batch_rows, label="predict"):
            columns: dict[str, Any] = {}
            for (name, one), some in zip(models.items(), parts, strict=True):
                found, spread = predicted(one, some)
                total[name] += spread
                if name in watches:
                    outside = watches[name].look(some)
                    found |= {"outside": outside} if mark_range else {}
                columns |= {_column(name, key): values for key, values in found.items()}
            sink.write(columns)
            count += parts[0].n
    of_watches = [
        (name, _words_of_outside(watch, mark_range, name), bool(watch.outside))
        for name, watch in watches.items()
    ]
    spreads = list(total.items())
    return Told(count, list(columns), spreads, _of_exposure(fitted, exposure), of_watches)


def _report(out: Path, parts: list[Told], files: str | None = None) -> None:
    """Say what was predicted, by one process or by several."""
    from vastgp.cli._console import facts, heading, plural, say

    heading(str(out))
    first, count = parts[0], sum(each.rows for each in parts)
    told = "typical std"
    unit = ", in target units"
    if "predicted" in first.columns:
        told, unit = "mean probability of the likeliest class", ""
    spreads = [
        (name, sum(each.spread[k][1] for each in parts)) for k, (name, _) in enumerate(first.spread)
    ]
    facts(
        [
            ("predicted", plural(count, "row")),
            *([] if files is None else [("in", files)]),
            ("columns", ", ".join(first.columns)),
            *(
                (told if name is None else f"{told} of {name}", f"{sum_ / count:.4g}{unit}")
                for name, sum_ in spreads
            ),
            *((name, text) for name, text in first.notes),
        ]
    )
    for number, each in enumerate(parts):
        of_part = "" if len(parts) == 1 else f"Part {number}: "
        for name, words, some in each.outside:
            # a target's name is as it is
            begins = name is None and not of_part
            text = words[0].upper() + words[1:] if begins else of_part + words
            say(text, style="yellow" if some else "dim", wrap=True)


def _column(target: Any, name: str) -> str:
    """What a column is called: of several targets with its name before it."""
    return name if target is None else f"{target}_{name}"


def _of_exposure(model: Any, exposure: str | None) -> list[tuple[str, str]]:
    """What a count is predicted of."""
    from vastgp.cli._model import of_targets

    known = [getattr(one, "exposure_", None) for one in of_targets(model).values()]
    if known[0] is None:
        return []
    if exposure is not None:
        return [("counts of", f"an exposure of {exposure} each")]
    name = known[0].name
    own = "" if name is None else f" (--exposure {name} predicts each row's own)"
    return [("counts of", f"one unit of exposure{own}")]


def _words_of_outside(watch: Any, marked: bool, target: Any) -> str:
    text = watch.in_words() if target is None else f"{target}: {watch.in_words()}"
    if watch.outside:
        column = _column(target, "outside")
        where = f"the column {column} marks them" if marked else "--range marks them in a column"
        return f"{text}: the model guesses there; {where}."
    return f"{text}."


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
    heap = getattr(model, "heap_", None)
    if heap is not None:
        masses = found.probabilities.T
        columns |= {f"probability_of_{h:g}": p for h, p in zip(heap.values, masses, strict=False)}
    return columns, float(found.std.sum())
