"""What a model of the default method learned, as plain data and on the terminal."""

from __future__ import annotations

import math
from typing import Any

_COLUMNS = 30  # of the table, shown; --json has all
_FLAGS = 3
_LEVEL = 0.95
_DAYS = 7  # columns of a weekday


def summary(model: Any) -> dict[str, Any]:
    """What a fitted `GPRegressor` or `GPClassifier` learned.

    Returns
    -------
    dict
        ``method``, ``target``, ``exposure`` (of counts, None without), ``heap`` (None without: its values, rows
        at each, in words, and the leaderboard of what tells which rows these are), ``classes`` (None of numbers),
        ``features``, ``training_rows``, ``rows_dropped`` (without a target), ``rows_left_out`` (beyond what there was
        time or memory for), ``target_scale``, ``encoding`` (one dict a column), ``leaderboard`` (one dict a model, the
        winner first), ``scores_of`` (in words where not plain), ``weights`` (of the models that the answer is an
        average of), ``calibration`` (in words),
        ``calibration_record`` (coverage on held-out rows, None of classes), ``winner`` (that of most weight, see
        `_summary.summary`; its features are the encoded inputs), ``inputs`` (names of what shares a lengthscale, with
        the first of its columns), ``lengthscales_km`` (of places on the Earth), ``parameters``,
        ``seconds``.
    """
    from vastgp.auto.report.next_steps import calibration_of
    from vastgp.auto.report.words import heap_in_words
    from vastgp.auto.stacking import leading, parts_of
    from vastgp.auto.trees import OnTrees, process_of
    from vastgp.cli import _summary
    from vastgp.cli._model import feature_names, target_name

    names = [str(name) for name in model.encoder_.get_feature_names_out()]
    first = leading(model.model_)
    of_inputs = first.input_names(names) if isinstance(first, OnTrees) else names
    inner = _summary.summary(process_of(first), of_inputs)
    record = getattr(model, "calibration_record_", None)
    exposure = getattr(model, "exposure_", None)
    return {
        "method": type(model).__name__,
        "target": target_name(model),
        "exposure": None if exposure is None else exposure.to_dict(),
        "heap": None if not heap_in_words(model) else _heap(model),
        "classes": model.classes_.tolist() if hasattr(model, "classes_") else None,
        "features": feature_names(model),
        "training_rows": inner["training_rows"],
        "rows_dropped": int(model.n_rows_dropped_),
        "rows_left_out": int(model.n_rows_left_out_),
        "target_scale": model.warp_.name,
        "encoding": [
            {
                "name": column.name,
                "kind": column.kind,
                "done": column.done,
                "missing": int(column.missing),
                "kept": column.kept,
            }
            for column in model.encoding_
        ],
        "leaderboard": [
            {key: _finite(value) for key, value in entry.items()}
            for entry in model.leaderboard_.to_dicts()
        ],
        "scores_of": model.leaderboard_.note,
        "calibration": calibration_of(model),
        "calibration_record": None if record is None else record.to_dict(),
        "winner": inner,
        "weights": [
            {"method": type(process_of(part)).__name__, "weight": weight}
            for part, weight in parts_of(model.model_)
        ],
        "inputs": _inputs(model, names, of_inputs),
        "lengthscales_km": model.lengthscales_km_,
        "parameters": _summary.given_parameters(model),
        "seconds": float(model.fit_seconds_),
    }


def _heap(model: Any) -> dict[str, Any]:
    """What is known of the heaps of the target."""
    from vastgp.auto.report.words import heap_in_words

    board = model.at_heap_.leaderboard_.to_dicts()
    return model.heap_.to_dict() | {
        "words": heap_in_words(model)[0],
        "leaderboard": [{key: _finite(value) for key, value in entry.items()} for entry in board],
    }


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _inputs(model: Any, names: list[str], of_inputs: list[str]) -> list[dict[str, Any]]:
    """Each input by the name that a person knows, and its first column; after the table's that of the trees."""
    column_of = {j: column.name for column in model.encoding_ for j in column.outputs}
    places = {
        column.name: f"{column.name} (km)" if column.encoding.sphere else column.name
        for column in model.encoding_
        if column.kept and column.kind == "place"
    }
    found = []
    for group in model.encoder_.tied_:
        name, own = names[group[0]], column_of[group[0]]
        if (
            len(group) > 1
        ):  # `city` of `city=Oslo` and `city=Rome`, `day season` of its sine and cosine
            if own in places:
                name = places[own]
            elif name.startswith(f"{own}="):
                name = own
            elif len(group) == _DAYS:
                name = f"{own} weekday"
            else:
                name = name.rpartition(" ")[0] or own
        found.append({"name": name, "first": int(group[0]), "size": len(group)})
    if of_inputs[len(names) :]:
        found.append({"name": "trees", "first": len(names), "size": len(of_inputs) - len(names)})
    return found


# ---------------------------------------------------------------- on the terminal


def show(found: dict[str, Any], title: str, *, after_fit: bool = False) -> None:
    """Print a summary: facts, what was tried, what was done with each column, calibration.

    After a fit what was tried comes first, and lengthscales are left to ``vastgp info``.
    """
    from vastgp.cli import _summary
    from vastgp.cli._console import heading, say, wrapped

    def facts() -> None:
        heading(title)
        wrapped(_facts(found))

    if not after_fit:
        facts()
    if found["heap"] is not None:
        _show_board(
            {
                "leaderboard": found["heap"]["leaderboard"],
                "classes": [],
                "of": "Which rows are at a heap: models",
            }
        )
    _show_board(found)
    heading("What was done with each column")
    _show_encoding(found["encoding"])
    heading("Calibration")
    for line in _calibration(found):
        say(line, wrap=True, indent=2)
    if after_fit:
        facts()
        return
    inputs, winner = found["inputs"], found["winner"]
    _summary.show_lengthscales(
        {
            "features": [one["name"] for one in inputs],
            "components": [_of_inputs(part, inputs) for part in winner["components"]],
        }
    )


def _facts(found: dict[str, Any]) -> list[tuple[str, ...]]:
    from vastgp.cli import _summary
    from vastgp.cli._console import duration, number, plural

    winner = found["winner"]
    kept = sum(column["kept"] for column in found["encoding"])
    rows: list[tuple[str, ...]] = [
        ("method", f"{found['method']}: {_won(found)}"),
        ("target", _target(found)),
        (
            "trained on",
            f"{plural(found['training_rows'], 'row')}, {kept} of {plural(len(found['encoding']), 'column')}",
        ),
    ]
    if found["heap"] is not None:
        rows.append(("heap", found["heap"]["words"]))
    if found["exposure"] is not None:
        rows.append(("exposure", _exposure(found["exposure"])))
    if found["rows_dropped"]:
        rows.append(("left out", f"{plural(found['rows_dropped'], 'row')} without a target"))
    if found["rows_left_out"]:
        beyond = plural(found["rows_left_out"], "row")
        rows.append(
            ("left out", f"{beyond}, at random: beyond what --max-seconds or the memory is for")
        )
    for name, scale in found["lengthscales_km"].items():
        rows.append(("place", f"{name}: lengthscale {number(scale, 3)} km"))
    rows.append(("kernel", " with ".join(part["name"] for part in winner["components"]) or "none"))
    if winner["noise_std"] is not None:
        units = (
            "target units"
            if found["target_scale"] == "own"
            else f"units of the {found['target_scale']} scale"
        )
        rows.append(("noise", f"standard deviation {number(winner['noise_std'])}, in {units}"))
    elif found["classes"] is None:
        rows.append(("likelihood", str(winner["likelihood"])))
    rows.append(
        ("time", f"{duration(found['seconds'])} in all; last fit {_summary.how_it_ended(winner)}")
    )
    return rows + _summary.options_and_file(found)


def _exposure(known: dict[str, Any]) -> str:
    from vastgp.cli._console import number

    name = "given as an array" if known["name"] is None else str(known["name"])
    return (
        f"{name}, {number(known['least'])} to {number(known['largest'])}: {known['counted']:,.0f} counted in "
        f"{number(known['total'])}"
    )


def _won(found: dict[str, Any]) -> str:
    winner, board = found["winner"], found["leaderboard"]
    inner = ", ".join(
        filter(None, [winner["method"], winner["solver"] and f"{winner['solver']} solver"])
    )
    return f"{board[0]['method']} won ({inner})" if board else inner


def _target(found: dict[str, Any]) -> str:
    name = found["target"] or "not named"
    if found["classes"] is not None:
        classes = found["classes"]
        shown = ", ".join(map(str, classes[:10])) + (", ..." if len(classes) > 10 else "")
        return f"{name}, {len(classes)} classes: {shown}"
    return (
        name
        if found["target_scale"] == "own"
        else f"{name}, modelled on the {found['target_scale']} scale"
    )


def _show_board(found: dict[str, Any]) -> None:
    """The models that were tried, by their scores on held-out rows; the winner is marked."""
    from vastgp.cli._console import heading, number, say, table

    board = found["leaderboard"]
    if not board:
        say("Too few rows to compare models on rows held out: one was fitted.", wrap=True)
        return
    classes = found["classes"] is not None
    heads = ["model", "scale", "rows", "seconds", "NLPD", "±", "wrong" if classes else "RMSE"]
    heads += [] if classes else ["in 95 %"]
    scored = [entry for entry in board if entry["nlpd"] is not None]
    lines = []
    for entry in scored:
        line = [
            f"{'*' if entry['kept'] else ' '} {entry['method']}",
            entry["target"],
            f"{entry['rows']:,}",
            f"{entry['seconds']:.1f}",
            number(entry["nlpd"]),
            number(entry["nlpd_error"], 2),
            f"{100 * entry['error']:.1f} %" if classes else number(entry["error"]),
        ]
        lines.append(line if classes else [*line, f"{100 * (entry['coverage'] or 0.0):.1f} %"])
    heading(
        f"{found.get('of', 'Models')} compared on rows held out (* won; a lower NLPD is better)"
    )
    if len({entry["target"] for entry in scored}) <= 1:  # one scale for all is told with the target
        heads = [head for head in heads if head != "scale"]
        lines = [[*line[:1], *line[2:]] for line in lines]
    table(heads, lines)
    if found.get("scores_of") and not found["heap"]:
        say(f"  {found['scores_of']}", style="dim", wrap=True)
    for entry in board:
        if entry["nlpd"] is None:
            say(
                f"  {entry['method']}: {' '.join(entry['note'].split())[:200] or 'no score'}",
                style="dim",
                wrap=True,
            )


def _show_encoding(columns: list[dict[str, Any]]) -> None:
    from vastgp.cli._console import say, wrapped

    lines: list[tuple[str, ...]] = []
    for column in columns[:_COLUMNS]:
        gaps = f" ({column['missing']:,} missing)" if column["missing"] else ""
        lines.append((column["name"], column["kind"], column["done"] + gaps))
    wrapped(lines)
    if len(columns) > _COLUMNS:
        say(
            f"  and {len(columns) - _COLUMNS:,} more columns (vastgp info --json has all)",
            style="dim",
        )


def _calibration(found: dict[str, Any]) -> list[str]:
    """What is known of how far to trust the intervals."""
    lines, record = [found["calibration"]], found["calibration_record"]
    if record is None:
        board = found["leaderboard"]
        if not board:
            lines = ["Not checked: there were too few rows to hold some out."]
        elif board[0]["nlpd"] is not None:
            lines.append(
                f"{100 * board[0]['error']:.1f} % of the rows held out were put into a wrong class."
            )
        return lines
    inside = next(one for one in record["overall"] if one["level"] == _LEVEL)
    lines.append(
        f"95 % intervals held {100 * inside['coverage']:.1f} % of {record['rows']:,} rows held out (by chance 95 ± "
        f"{100 * inside['error']:.1f} %)."
    )
    return lines + [f"{flag}." for flag in record["flags"][:_FLAGS]]


def _of_inputs(part: dict[str, Any], inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """A part of the kernel by inputs: columns that are one input share what it says of them."""
    return {
        key: [value[one["first"]] for one in inputs] if isinstance(value, list) else value
        for key, value in part.items()
    }
