"""The sections of a report, in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from vastgp.auto.calibration_record import CalibrationRecord
from vastgp.auto.report import figures
from vastgp.auto.report.data import ReportData
from vastgp.auto.report.html import (
    NOTHING,
    items,
    number,
    paragraphs,
    percent,
    seconds,
    section,
    shortened,
    table,
    text,
)
from vastgp.auto.report.html import figures as side_by_side

_MOST_FLAGS = 8
_LONG = 24  # of a heading that is a user's word, in letters
_MOST_INPUTS = 20
_MOST_VALUES = 12  # of a row; the caller puts those that matter first


def sections(data: ReportData) -> Iterator[tuple[str, str, str]]:
    """Yield name, title and HTML of the sections that have anything to say."""
    held = "intervals" if data.classes is None else "probabilities"
    for name, title, make in (
        ("data", "The data", _data),
        ("model", "The model", _model),
        ("leaderboard", "What was tried", _leaderboard),
        ("forecast", "What was forecast, and what came", _forecast),
        ("calibration", f"Do the {held} hold?", _calibration),
        ("importance", "Which inputs matter", _importance),
        ("effects", "What the strongest inputs do", _effects),
        ("surprises", "The largest surprises", _surprises),
        ("advice", "What to try next", _advice),
        ("phases", "Where the time went", _phases),
    ):
        body = make(data)
        if body:
            yield name, title, section(name, title, body)


def _data(data: ReportData) -> str:
    kinds = Counter(str(kind).split(",")[0] for _, kind, _ in data.columns)
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(8))
    noun = "column" if len(data.columns) == 1 else "columns"
    columns = f" {len(data.columns)} {noun} ({counted})." if kinds else ""
    words = [f"{number(data.rows)} rows.{columns} What is predicted: {data.target}.", *data.notes]
    rows = [[text(part) for part in column] for column in data.columns]
    return paragraphs(words) + (table(("column", "kind", "what was done"), rows) if rows else "")


def _model(data: ReportData) -> str:
    return paragraphs(data.model)


def _leaderboard(data: ReportData) -> str:
    tried = [*data.leaderboard, *data.baselines]
    if not tried:
        return ""
    loss = "NLPD" if data.classes is None else "log loss"
    heads = (
        "method",
        loss,
        "RMSE",
        "wrong",
        "coverage of 95\N{NO-BREAK SPACE}%",
        "rows",
        "time",
        "note",
    )
    kept = [k for k, row in enumerate(tried) if row.get("kept")]
    note = (
        f"Scores on rows that were kept out of the fit. Lower {loss} is better: it is the mean negative log "
        f"{'density of the held-out targets' if data.classes is None else 'probability of the held-out labels'}, in "
        f"nats, and judges {'means and intervals' if data.classes is None else 'labels and probabilities'} at once; "
        "after ± stands its standard error. The marked row is the answer."
    )
    if data.baselines:
        note += " The last rows are simple methods to compare with."
    rows = [_tried(row) for row in tried]
    return paragraphs([note], "soft") + table(heads, rows, numeric=(1, 2, 3, 4, 5, 6), kept=kept)


def _tried(row: Mapping[str, Any]) -> list[str]:
    score = number(row.get("nlpd"))
    if row.get("nlpd_error") is not None:
        score += f" ± {number(row['nlpd_error'], 2)}"
    return [
        text(row.get("method", "")),
        score,
        number(row.get("rmse")),
        percent(row.get("wrong")),
        percent(row.get("coverage")),
        number(row.get("rows")),
        seconds(row.get("seconds")),
        text(row.get("note") or ""),
    ]


def _forecast(data: ReportData) -> str:
    if data.forecast is None:
        return ""
    note = f"The {data.about} rows in time, and what was forecast of them."
    if data.forecast.span is not None:
        note = (
            "Rows that were held out because they come last, and what was forecast of each stretch that begins at a "
            "dotted line, from the rows before it."
        )
    if data.forecast.ahead is not None:
        note += " In orange what the final model says of the time after the last row."
    return paragraphs([note], "soft") + figures.forecast_figure(data)


def _calibration(data: ReportData) -> str:
    drawn = side_by_side(figures.calibration_figures(data))
    record = data.calibration
    if record is None:
        return paragraphs([data.calibrated]) + drawn
    rows = [
        [f"{100.0 * one.level:.0f} %", percent(one.coverage), f"± {percent(one.error)}"]
        for one in record.overall
    ]
    whole = table(("interval", "holds", "by chance"), rows, numeric=(1, 2))
    return paragraphs([data.calibrated]) + whole + _flags(record) + drawn


def _flags(record: CalibrationRecord) -> str:
    looked = (
        f"Looked at in {record.checked} ways: all rows, tenths of them by stated deviation, and each input"
        if record.by_input
        else f"Looked at in {record.checked} ways: all rows, and tenths of them by stated deviation"
    )
    if not record.flags:
        return paragraphs([f"{looked}. Nowhere is the coverage off by more than chance."])
    more = len(record.flags) - _MOST_FLAGS
    shown = [*record.flags[:_MOST_FLAGS], *([f"and {more} more"] if more > 0 else [])]
    found = f"{looked}. More than three standard errors off (by chance, one look in 370 is):"
    return paragraphs([found]) + items(shown, "flags")


def _importance(data: ReportData) -> str:
    if not data.importance:
        return ""
    rows = []
    for one in data.importance[:_MOST_INPUTS]:
        lengthscale = one[3] if len(one) > 3 else None
        loss = f"{number(one[1], 3)} ± {number(one[2], 2)}"
        rows.append([text(one[0]), loss, number(lengthscale, 3)])
    more = len(data.importance) - _MOST_INPUTS
    rest = [f"{more} inputs that matter less are left out here."] if more > 0 else []
    note = f"What the model loses on {data.about} rows, in nats a row, when an input is shuffled among them."
    if any(len(one) > 3 and one[3] is not None for one in data.importance):
        note += (
            " The shorter its lengthscale (in the units of the encoded input), the faster the prediction changes with "
            "it."
        )
    heads = ("input", "loss", "lengthscale")
    return (
        paragraphs([note], "soft")
        + side_by_side(figures.importance_figure(data))
        + table(heads, rows, numeric=(1, 2))
        + paragraphs(rest, "soft")
    )


def _effects(data: ReportData) -> str:
    if not data.effects:
        return ""
    note = (
        f"The {data.effect_of or 'prediction'} over one input, averaged over rows with their other inputs as they "
        f"are{', and the average of its 95 % intervals' if data.classes is None else ''}. Where inputs go together, "
        "some of these rows never occur. All have the same scale."
    )
    return paragraphs([note], "soft") + side_by_side(figures.effect_figures(data))


def _surprises(data: ReportData) -> str:
    if not data.surprises:
        return ""
    rows = []
    for row, y, mean, std, values in data.surprises:
        shown = [f"{text(name)} {_value(value)}" for name, value in values.items()]
        inputs = ", ".join(shown[:_MOST_VALUES]) + (", …" if len(shown) > _MOST_VALUES else "")
        predicted = _value(mean) if std is None else f"{number(mean)} ± {number(std, 2)}"
        rows.append([number(row), _value(y), predicted, inputs])
    note = f"The {data.about} rows that the model held least probable: errors in the data, or what the model lacks."
    heads = ("row", shortened(data.target, _LONG), "predicted", "inputs")
    return paragraphs([note], "soft") + table(heads, rows, numeric=(0, 1, 2))


def _value(value: Any) -> str:
    if value is None or value != value:
        return NOTHING
    try:
        return text(value) if isinstance(value, str | bool) else number(value)
    except (TypeError, ValueError):
        return text(value)


def _advice(data: ReportData) -> str:
    return items(data.advice) if data.advice else ""


def _phases(data: ReportData) -> str:
    if not data.phases:
        return ""
    total = sum(spent for _, spent in data.phases)
    rows = [
        [text(name), seconds(spent), percent(spent / total if total else None)]
        for name, spent in data.phases
    ]
    rows.append(["in all", seconds(total), ""])
    return table(("phase", "time", "share"), rows, numeric=(1, 2))
