"""Table and plot of the lines of `front_door.py` and of its peers: who is best, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from anytime_program import faults
from report_rows import Row, as_cell, by, lowest, value
from table import RESULTS, rows, table_lines, write_page

OUT = RESULTS / "front_door.jsonl"
OURS = {"GPRegressor", "GPClassifier"}

_MADE = (
    "Made by `python benchmarks/front_door.py --write` from `front_door.jsonl`, whose lines "
    "`benchmarks/front_door.py` and, in an environment of its own, `benchmarks/peers/front_door_peers.py` make. Each "
    "fit has its own process, with nothing compiled before. Scores are in deviations of the training target (the lines "
    "hold those in its own units too): pinball is the mean loss of the quantiles 0.025, 0.075, ..., 0.975, CRPS is "
    "closed for normal forecasts and twice that for others, width is that of the 95 % interval. Linear is Bayesian "
    "linear regression (logistic regression for classes) with a column for each level. Worse than linear: NLPD by more "
    "than 0.02 (CRPS by 2 % where there is no density); coverage: under 90 %; late: after 110 % of the budget and two "
    "seconds. Where many rows have exactly one value, which the front door gives a probability, who is best by NLPD is "
    "judged by that of the interval that the target was rounded to."
)
_HEADER = (
    "| table | rows x columns | estimator | budget, s | seconds | NLPD | pinball | CRPS | RMSE | coverage | width "
    "| GFLOP/s | answer | faults |"
)
_HEADER_CLASSES = (
    "| table | rows x columns | estimator | budget, s | seconds | NLPD | accuracy "
    "| GFLOP/s | answer | faults |"
)
_CAPTION = (
    "Loss as a share of the linear model's (dashed), pinball loss of numbers and NLPD of classes, with the coverage of "
    "95 % intervals at the right in per cent. Hollow: over 110 % of the budget and two seconds. What lies beyond a "
    "panel is drawn at its edge."
)
_LINEAR = "linear"
# Intervals of 95 % should hold this share; what a binomial deviation explains is no fault.
_HELD = (0.93, 0.97)
_COLUMNS = 4
# Range of a panel, in units of the linear model's loss.
_SHARES = (0.0, 1.25)


def write_all(
    path: Path, title: str = "Tables as they are", made: str = _MADE, *, rounded: bool = False
) -> None:
    """Write page and plot of all results; by the NLPD of ``rounded`` targets where these are whole numbers."""
    found = rows(path)
    if rounded:
        found = [_of_rounded(row) | {"linear": _of_rounded(row["linear"])} for row in found]
    page = [made, "", f"![Loss of the linear model's]({path.stem}.png)", "", _CAPTION, ""]
    page += ["## The front door beside its peers", "", *_standing(found), ""]
    page += ["## Coverage", "", *_coverage(found), "", "## Faults", "", *_listed(found)]
    numbers = [row for row in found if not of_classes(row)]
    classes = [row for row in found if of_classes(row)]
    page += ["", "## Numbers", "", *table_lines(_HEADER, _lines(numbers, _of_numbers))]
    if classes:
        page += ["", "## Classes", "", *table_lines(_HEADER_CLASSES, _lines(classes, _class_cells))]
    _plot(path.with_suffix(".png"), found)
    write_page(path.with_suffix(".md"), title, page)


def of_classes(row: Row) -> bool:
    return "accuracy" in row["linear"]


def with_linear(row: Row) -> Row:
    """Return the linear model as a result like any other."""
    return row | row["linear"] | {"estimator": _LINEAR}


def _of_rounded(row: Row) -> Row:
    """Return a result with the NLPD of the rounded target: infinite, never the lowest, where a peer has no density."""
    return row | {"nlpd": row["own"].get("nlpd_rounded", np.inf)}


def _standing(found: list[Row]) -> list[str]:
    """By budget and score: on how many tables the front door is best of all, and who is elsewhere."""
    header = "| budget, s | score | tables | best is vastgp's | at most linear | where others are best, by how much |"
    lines = []
    for budget, fits in by("budget", found).items():
        for score in ("nlpd", "pinball", "rmse"):
            won, beyond, lost = 0, 0, []
            for table, here in by("table", fits).items():
                mine = lowest(here, OURS, score)
                others = [row for row in here if row["estimator"] not in OURS] + [
                    with_linear(here[0])
                ]
                if score == "nlpd" and mine is not None and mine.get("heaps"):
                    # a mass has no unit: by the probability of what the target was rounded to
                    mine, *others = map(_of_rounded, [mine, *others])
                other = lowest(others, {row["estimator"] for row in others}, score)
                if mine is None or other is None or not np.isfinite(value(other, score)):
                    continue
                short = value(mine, score) - value(other, score)
                won += short <= 0.0
                beyond += value(mine, score) <= value(others[-1], score)
                if not short <= 0.0:
                    lost.append(f"{table} ({other['estimator']}, {short:.3f})")
            count = won + len(lost)
            if count:
                first = f"| {budget:g} | {score} | {count} | {won} ({won / count:.0%}) | {beyond}"
                lines.append(f"{first} | {', '.join(lost)} |")
    return table_lines(header, lines)


def _coverage(found: list[Row]) -> list[str]:
    """By estimator: how many tables have a coverage within the range, and which are beyond it by two deviations."""
    header = "| estimator | budget, s | tables | held by 93 to 97 % | beyond, by two deviations of counting too |"
    lines = []
    fits = [row for row in found if "coverage" in row]
    for (estimator, budget), here in by(lambda r: (r["estimator"], r["budget"]), fits).items():
        held = sum(_HELD[0] <= row["coverage"] <= _HELD[1] for row in here)
        beyond = [f"{row['table']} ({row['coverage']:.1%})" for row in here if off(row)]
        lines.append(f"| {estimator} | {budget:g} | {len(here)} | {held} | {', '.join(beyond)} |")
    return table_lines(header, lines)


def off(row: Row) -> bool:
    """Whether a coverage is beyond the range, and farther from 95 % than two deviations of counting."""
    held = row["coverage"]
    chance = 2.0 * np.sqrt(0.95 * 0.05 / row["n_test"])
    return not _HELD[0] <= held <= _HELD[1] and abs(held - 0.95) > chance


def _listed(found: list[Row]) -> list[str]:
    """Every fault, of a peer as well."""
    lines = [
        f"| {row['table']} | {row['estimator']} | {row['budget']:g} | {as_cell(faults(row))} |"
        for row in found
        if faults(row)
    ]
    return table_lines("| table | estimator | budget, s | faults |", lines)


def _lines(found: list[Row], scores: Callable[[Row], str]) -> list[str]:
    """All fits of a kind; of each table the linear model first."""
    lines = []
    for table, here in by("table", found).items():
        size = f"{here[0]['n']:,} x {here[0]['d']}"
        lines.append(f"| {table} | {size} | {_LINEAR} | | | {scores(with_linear(here[0]))} | | | |")
        for row in by(lambda row: (row["estimator"], row["budget"]), here).values():
            lines += [_line(each, size, scores) for each in row]
    return lines


def _line(row: Row, size: str, scores: Callable[[Row], str]) -> str:
    """One fit."""
    return (
        f"| {row['table']} | {size} | {row['estimator']} | {row['budget']:g} | {row['seconds']:.1f} | {scores(row)} "
        f"| {row['numpy_matmul_gflops']:.0f} | {row.get('answer', '')} | {as_cell(faults(row))} |"
    )


def _of_numbers(row: Row) -> str:
    names = ("nlpd", "pinball", "crps", "rmse", "coverage", "width")
    return " | ".join(format(row[name], ".3f") if name in row else "" for name in names)


def _class_cells(row: Row) -> str:
    names = ("nlpd", "accuracy")
    return " | ".join(format(row[name], ".3f") if name in row else "" for name in names)


# ---------------------------------------------------------------- plot


def _plot(path: Path, found: list[Row]) -> None:
    """Write small multiples, one panel a table, a row for each estimator."""
    tables = by("table", [row for row in found if "rmse" in row or "accuracy" in row])
    estimators = sorted({row["estimator"] for row in found} - OURS)
    count = -(-len(tables) // _COLUMNS)
    fig, axes = plt.subplots(
        count, _COLUMNS, figsize=(2.9 * _COLUMNS, 1.75 * count + 0.6), layout="constrained",
        sharey=True, squeeze=False,
    )  # fmt: skip
    for ax in axes.flat[len(tables) :]:
        ax.set_axis_off()
    names = ["vastgp", *estimators]
    for ax, (name, here) in zip(axes.flat, tables.items(), strict=False):
        _panel(ax, name, here, names)
    fig.supxlabel("loss, as a share of the linear model's", fontsize="medium")
    budgets = sorted({row["budget"] for row in found})
    handles = [
        Line2D([], [], ls="", marker=_mark(b, budgets), color="0.3", label=f"{b:g} s")
        for b in budgets
    ]
    if len(budgets) > 1:
        fig.legend(handles=handles, loc="outside upper right", ncols=len(budgets), frameon=False)
    fig.savefig(path, dpi=110)
    plt.close(fig)


def _mark(budget: float, budgets: list[float]) -> str:
    return "osD^v"[budgets.index(budget) % 5]


def _panel(ax: Axes, table: str, here: list[Row], names: list[str]) -> None:
    """Draw one table."""
    score = "nlpd" if of_classes(here[0]) else "pinball"
    budgets = sorted({row["budget"] for row in here})
    for row in here:
        ours = row["estimator"] in OURS
        place = names.index("vastgp" if ours else row["estimator"])
        share = np.clip(value(row, score) / row["linear"][score], *_SHARES)
        colour = "#D55E00" if ours else "#0072B2"
        late = "late" in faults(row)
        ax.plot(
            share, place, marker=_mark(row["budget"], budgets), color=colour, ms=6,
            mfc="white" if late else colour, clip_on=False, zorder=3,
        )  # fmt: skip
        if "coverage" in row and row["budget"] == budgets[-1]:
            weight = "bold" if off(row) else "normal"
            ax.text(1.02, place, f"{row['coverage']:.0%}", transform=ax.get_yaxis_transform(),
                    va="center", fontsize=7, weight=weight)  # fmt: skip
    ax.axvline(1.0, color="0.35", ls="--", lw=0.9, zorder=1)
    ax.set(xlim=_SHARES, ylim=(len(names) - 0.4, -0.6))
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(labelsize=7)
    kind = "NLPD" if score == "nlpd" else "pinball"
    ax.set_title(f"{table}: {here[0]['n']:,} x {here[0]['d']}, {kind}", fontsize=8.5)
    ax.grid(alpha=0.25, lw=0.5)
