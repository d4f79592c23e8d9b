"""Table and plot of the lines of `strangers.py` and of its peers: how often who is best, and by how much."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from anytime_program import faults
from front_door_report import OURS, of_classes, off, with_linear
from report_rows import Row, as_cell, by, value
from table import RESULTS, rows, table_lines, write_page

OUT = RESULTS / "strangers.jsonl"
_MADE = (
    "Made by `python benchmarks/strangers.py --write` from `strangers.jsonl`, whose lines `benchmarks/strangers.py` "
    "and, in an environment of its own, `benchmarks/peers/front_door_peers.py` make: of tables of R packages a "
    "hundred in an order drawn once, with one column drawn for a target and all others as inputs, whatever they say "
    "(`benchmarks/stranger_tables.py`). A fifth of the rows are test rows, often a dozen of them, so that one table "
    "says little and the hundred much. Linear is Bayesian linear regression (logistic regression for classes) with a "
    "column for each level of a category. NLPD and losses are in deviations of the training target; pinball is the "
    "mean loss of the quantiles 0.025, 0.075, ..., 0.975. Beside linear: in nats, of pinball the logarithm of the "
    "ratio. Lowest of all: of the tables that all have a line for, linear among them."
)
_CAPTION = (
    "Of the tables, which share has at most such a loss beside the linear model's (dashed): farther to the left and "
    "higher is better. What lies beyond a panel is drawn at its edge."
)
_HEADER = (
    "| budget, s | estimator | tables | {0} at most linear's | lowest of all | median beside linear "
    "| mean beside linear, cut at ±1 | {1} | late | errors |"
)
_SCORES = {"nlpd": "NLPD", "pinball": "pinball"}
_HELD = "mean coverage | beyond 93 to 97 % by two deviations"
_LEFT = 0.02
# Those of Okabe and Ito.
_COLOURS = {
    "vastgp": "#D55E00", "CatBoost": "#0072B2", "HistGradientBoosting": "#009E73", "NGBoost": "#CC79A7",
    "MAPIE": "#E69F00",
}  # fmt: skip
# Ranges of the panels: nats more than a line, and share of its loss.
_NATS, _SHARES = (-2.0, 1.0), (0.0, 1.5)


def write_all(path: Path) -> None:
    """Write page and plot of all results."""
    found = rows(path)
    numbers = [row for row in found if not of_classes(row)]
    classes = [row for row in found if of_classes(row)]
    page = [_MADE, "", f"![Losses beside a linear model's]({path.stem}.png)", "", _CAPTION, ""]
    page += ["## Numbers", ""]
    for score in _SCORES:
        page += [*_standing(numbers, score), ""]
    if classes:
        page += ["## Classes", "", *_standing(classes, "nlpd"), ""]
    page += ["## Where the front door is worse than linear", "", *_worse(found), ""]
    page += ["## The front door's fits", "", *_every(found)]
    _plot(path.with_suffix(".png"), numbers, classes)
    write_page(path.with_suffix(".md"), "Tables that nobody chose", page)


def _named(row: Row) -> str:
    return "vastgp" if row["estimator"] in OURS else row["estimator"]


def _beside(row: Row, score: str) -> float:
    """Return a loss beside the linear model's: nats more, or the logarithm of their ratio."""
    mine, line = value(row, score), value(with_linear(row), score)
    if score == "nlpd":
        return mine - line
    # a target that inputs tell exactly has a loss of nothing
    return float(np.log(max(mine, 1e-12) / max(line, 1e-12)))


def _standing(found: list[Row], score: str) -> list[str]:
    """By budget and estimator: how often it is at most as bad as a line, and how often the best of all."""
    lines = []
    held = any("coverage" in row for row in found)
    for budget, fits in by("budget", found).items():
        scored = {_named(row) for row in fits if score in row}
        tables = by("table", [row for row in fits if _named(row) in scored])
        most = max(map(len, tables.values()), default=0)
        best = {
            name: min(value(row, score) for row in (*here, with_linear(here[0])))
            for name, here in tables.items()
            if len(here) == most
        }
        for name in sorted(scored):
            here = [row for row in fits if _named(row) == name]
            beside = np.array([_beside(row, score) for row in here])
            lowest = sum(value(row, score) <= best.get(row["table"], -np.inf) for row in here)
            cut = float(np.clip(beside, -1.0, 1.0).mean())
            lines.append(
                f"| {budget:g} | {name} | {len(here)} | {np.mean(beside <= 0.0):.0%} | {lowest} of {len(best)} "
                f"| {np.median(beside):+.3f} | {cut:+.3f} |{_coverage(here) if held else ''} "
                f"{sum('late' in faults(row) for row in here)} | {sum('error' in row for row in here)} |"
            )
    header = _HEADER.format(_SCORES[score], _HELD)
    return table_lines(header if held else header.replace(f" {_HELD} |", ""), lines)


def _coverage(here: list[Row]) -> str:
    """Return the mean coverage, and of how many tables it is off."""
    fits = [row for row in here if "coverage" in row]
    return f" {np.mean([row['coverage'] for row in fits]):.1%} | {sum(map(off, fits))} |"


def _about(row: Row) -> str:
    """Return what a table is: its package and name, and the target."""
    told = row["drawn"]
    return f"| {row['table']} | {told['package']} {told['item']}, {told['target']} | {row['n']:,} x {row['d']}"


def _worse(found: list[Row]) -> list[str]:
    """The front door's fits that are worse than a line, most of all first."""
    mine = [row for row in found if row["estimator"] in OURS and not _beside(row, "nlpd") <= _LEFT]
    lines = [
        f"{_about(row)} | {row['budget']:g} | {value(row):.3f} | {row['linear']['nlpd']:.3f} | {row.get('answer', '')} "
        f"| {as_cell(faults(row))} |"
        for row in sorted(mine, key=lambda row: -_beside(row, "nlpd"))
    ]
    header = (
        "| table | what it is | rows x columns | budget, s | NLPD | of a line | answer | faults |"
    )
    return table_lines(header, lines) if lines else ["Nowhere."]


def _every(found: list[Row]) -> list[str]:
    """All fits of the front door."""
    lines = []
    for row in (row for row in found if row["estimator"] in OURS):
        cells = [
            format(row[key], ".3f") if key in row else ""
            for key in ("nlpd", "rmse", "accuracy", "coverage")
        ]
        lines.append(
            f"{_about(row)} | {row['budget']:g} | {row['seconds']:.1f} | {' | '.join(cells)} "
            f"| {row['linear']['nlpd']:.3f} | {row.get('answer', '')} | {as_cell(faults(row))} |"
        )
    header = (
        "| table | what it is | rows x columns | budget, s | seconds | NLPD | RMSE | accuracy | coverage "
        "| NLPD of a line | answer | faults |"
    )
    return table_lines(header, lines)


# ---------------------------------------------------------------- plot


def _plot(path: Path, numbers: list[Row], classes: list[Row]) -> None:
    """Write the shares of tables by loss: NLPD and pinball loss of numbers, NLPD of classes."""
    panels = [
        (numbers, "nlpd", _NATS, "NLPD more than a line's, nats"),
        (numbers, "pinball", _SHARES, "pinball loss, of a line's"),
        (classes, "nlpd", (-1.0, 0.5), "log loss of classes more than a line's, nats"),
    ]
    panels = [panel for panel in panels if panel[0]]
    fig, axes = plt.subplots(
        1, len(panels), figsize=(3.7 * len(panels), 3.6), layout="constrained", sharey=True, squeeze=False
    )  # fmt: skip
    for ax, (found, score, limits, label) in zip(axes.flat, panels, strict=True):
        _panel(ax, found, score, limits)
        ax.set_xlabel(label)
        ax.set_title(f"{len(by('table', found))} tables", fontsize="medium")
    axes[0, 0].set_ylabel("share of the tables")
    names = {
        text.get_label(): text
        for ax in axes.flat
        for text in ax.get_lines()
        if text.get_label()[0] != "_"
    }
    fig.legend(
        names.values(), names.keys(), loc="outside upper center", ncols=len(names), frameon=False
    )
    fig.savefig(path, dpi=110)
    plt.close(fig)


def _panel(ax: Axes, found: list[Row], score: str, limits: tuple[float, float]) -> None:
    """Draw one curve for each estimator and budget."""
    budgets = sorted({row["budget"] for row in found})
    for (name, budget), here in by(lambda row: (_named(row), row["budget"]), found).items():
        if not any(score in row for row in here):
            continue
        beside = np.sort([_beside(row, score) for row in here])
        beside = np.clip(beside if score == "nlpd" else np.exp(beside), *limits)
        label = f"{name}, {budget:g} s" if name == "vastgp" and len(budgets) > 1 else name
        dashes = ":" if budget != budgets[0] else "-"
        ax.step(beside, np.arange(1, len(beside) + 1) / len(beside), where="post", label=label,
                color=_COLOURS[name], lw=1.9 if name == "vastgp" else 1.2, ls=dashes)  # fmt: skip
    ax.axvline(
        0.0 if score == "nlpd" else 1.0, color="0.35", ls="--", lw=0.9, zorder=1, label="_line"
    )
    ax.set(xlim=limits, ylim=(0.0, 1.0))
    ax.grid(alpha=0.25, lw=0.5)
