"""Table and plot of the lines of `anytime.py` and of `peers/anytime_*.py`: who wins, what is wrong, NLPD by seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from anytime_program import faults
from report_rows import Row, as_cell, by, lowest, value
from table import rows, table_lines, write_page

_MADE = (
    "Made by `python benchmarks/anytime.py --write` from `{}`, whose lines `benchmarks/anytime.py` and, in "
    "environments of their own, `benchmarks/peers/anytime_*.py` make. Each fit has its own process, with nothing "
    "compiled before (unless it was asked for with `--together`); NLPD in standardised units. Worse than linear: than "
    "Bayesian linear regression (logistic regression for classes) by more than 0.02; coverage: under 90 %; late: after "
    "110 % of the budget and two seconds, of processor time where that is less; warning: of NumPy's, from inside."
)
_HEADER = (
    "| table | rows x inputs | estimator | budget, s | seconds | NLPD | of a line | coverage "
    "| answer | faults |"
)
_CAPTION = (
    "NLPD by the seconds that fits used, one panel a table with its training rows and inputs. Each curve goes from one "
    "budget to the next. What lies above a panel is drawn at its upper edge; what took less than 0.02 s, at its left."
)
# Panels in a row of the plot, and of more tables than this there is none.
_COLUMNS, _MOST_PANELS = 5, 40
# Range of seconds; less is drawn at its beginning.
_SECONDS = (0.02, 1000)
# Those of Okabe and Ito, told apart by all kinds of eyes; a mark for each as well.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKS = "s^vDPX"


def write_all(path: Path, ours: set[str]) -> None:
    """Write page and plot of all results; ``ours`` are the names of vastgp's estimators, all others are peers."""
    found = rows(path)
    shown = len({row["table"] for row in found}) <= _MOST_PANELS
    page = [_MADE.format(path.name), ""]
    if shown:
        page += [f"![NLPD by seconds]({path.stem}.png)", "", _CAPTION, ""]
    page += ["## Wins", "", *_wins(found, ours)]
    page += ["", "## Faults", "", *_counted(found, ours), "", *_listed(found)]
    page += ["", "## All fits", "", *table_lines(_HEADER, [_line(row) for row in found])]
    if shown:
        plot(path.with_suffix(".png"), found, ours)
    write_page(path.with_suffix(".md"), "Accuracy at a budget", page)


def _wins(found: list[Row], ours: set[str]) -> list[str]:
    """By budget: the sets on which the best of vastgp's estimators has the lowest NLPD of all."""
    header = "| budget, s | sets with a peer | lowest NLPD is vastgp's | share | a peer has it, and by how much |"
    lines = []
    for (budget, kind), fits in by(lambda row: (row["budget"], _kind(row)), found).items():
        won, lost = 0, []
        for table, here in by("table", fits).items():
            mine, others = lowest(here, ours), lowest(here, {r["estimator"] for r in here} - ours)
            if mine is None or others is None:
                continue
            if np.isfinite(value(mine)) and value(mine) <= value(others):
                won += 1
            else:
                short = value(mine) - value(others)
                lost.append(f"{table} ({others['estimator']}, {short:.3f})")
        count = won + len(lost)
        if count:
            first = f"| {budget:g} | {count} {kind} | {won} | {won / count:.0%}"
            lines.append(f"{first} | {', '.join(lost)} |")
    return table_lines(header, lines) if lines else ["No peer has a line."]


def _kind(row: Row) -> str:
    """Whether rows are those of a shared set, or were drawn."""
    return "shared" if "shared" in row["drawn"] else "drawn"


def _counted(found: list[Row], ours: set[str]) -> list[str]:
    """By budget: how many of vastgp's fits have which fault."""
    names = ("worse than linear", "coverage", "late", "warning")
    header = f"| budget, s | fits of vastgp | {' | '.join(names)} | error | without a fault |"
    lines = []
    for budget, fits in by("budget", [r for r in found if r["estimator"] in ours]).items():
        counts = [sum(name in faults(row) for row in fits) for name in names]
        counts += [sum("error" in row for row in fits), sum(not faults(row) for row in fits)]
        lines.append(f"| {budget:g} | {len(fits)} | {' | '.join(map(str, counts))} |")
    return table_lines(header, lines)


def _listed(found: list[Row]) -> list[str]:
    """Every fault, of a peer as well."""
    lines = [
        f"| {row['table']} | {row['estimator']} | {row['budget']:g} | {as_cell(faults(row))} |"
        for row in found
        if faults(row)
    ]
    return table_lines("| table | estimator | budget, s | faults |", lines)


def _line(row: Row) -> str:
    """One fit in the table of all."""
    size = f"{row['n']:,} x {row['d']}"
    first = f"| {row['table']} | {size} | {row['estimator']} | {row['budget']:g}"
    if "error" in row:
        return f"{first} | | | | | | {as_cell(faults(row))} |"
    held = format(row["coverage"], ".3f") if "coverage" in row else ""
    return (
        f"{first} | {row['seconds']:.1f} | {row['nlpd']:.3f} | {row['linear']['nlpd']:.3f} | {held} "
        f"| {row.get('answer', '')} | {as_cell(faults(row))} |"
    )


def plot(path: Path, found: list[Row], ours: set[str]) -> None:
    """Write small multiples, one panel a table: NLPD by the seconds that fits used."""
    tables = by("table", [row for row in found if "nlpd" in row])
    peers = sorted({row["estimator"] for row in found} - ours)
    if not tables:
        return
    columns = min(_COLUMNS, len(tables))
    count = -(-len(tables) // columns)
    fig, axes = plt.subplots(
        count,
        columns,
        figsize=(2.9 * columns, 2.3 * count + 0.9),
        layout="constrained",
        squeeze=False,
    )
    fig.get_layout_engine().set(h_pad=0.06, w_pad=0.06)
    for ax in axes.flat[len(tables) :]:
        ax.set_axis_off()
    for ax, (name, here) in zip(axes.flat, tables.items(), strict=False):
        _panel(ax, name, here, peers, ours)
    fig.supxlabel("seconds used by the fit", fontsize="medium")
    fig.supylabel("NLPD of test rows, standardised units", fontsize="medium")
    fig.legend(
        handles=_legend(peers), loc="outside upper center", ncols=min(4, columns), frameon=False
    )
    fig.savefig(path, dpi=110)
    plt.close(fig)


def _panel(ax: Axes, name: str, here: list[Row], peers: list[str], ours: set[str]) -> None:
    """Draw one table: estimators in grey, the best of each budget in black, peers in colour, a linear model dashed."""
    line = here[0]["linear"]["nlpd"]
    low, high = _limits([value(row) for row in here], line)
    by_estimator = by("estimator", here)
    for estimator in sorted(ours & set(by_estimator)):
        _curve(ax, by_estimator[estimator], high, color="0.75", marker=".", lw=0.7, ms=4, zorder=1)
    for estimator in set(peers) & set(by_estimator):
        _curve(ax, by_estimator[estimator], high, **_style(peers, estimator), zorder=3)
    mine = by("budget", [row for row in here if row["estimator"] in ours])
    best = [min(fits, key=value) for fits in mine.values()]
    _curve(ax, best, high, color="black", marker="o", lw=1.8, ms=4.5, zorder=4)
    ax.axhline(line, color="0.35", ls="--", lw=0.9, zorder=2)
    ax.set(xscale="log", xlim=_SECONDS, ylim=(low, high))
    ax.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    ax.minorticks_off()
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.tick_params(labelsize="small")
    ax.set_title(f"{name}: {here[0]['n']:,} x {here[0]['d']}", fontsize="small")
    ax.grid(alpha=0.25, lw=0.5)


def _limits(values: list[float], line: float) -> tuple[float, float]:
    """Return the range of a panel: from the lowest value to a little above the linear model.

    What is much worse than linear would flatten all the rest; it is drawn at the upper edge.
    """
    low = min(*values, line)
    high = line + 0.35 * (line - low) + 0.1
    margin = 0.06 * (high - low)
    return low - margin, high


def _curve(ax: Axes, fits: list[Row], high: float, **style: Any) -> None:
    """Draw results from one budget to the next; a value above the panel stands at its edge."""
    fits = sorted(fits, key=lambda row: row["budget"])
    values = [min(value(row), high) for row in fits]
    seconds = [max(row["seconds"], _SECONDS[0]) for row in fits]
    # marks at the edge are whole, and the layout takes no notice of them
    ax.plot(seconds, values, clip_on=False, in_layout=False, **style)


def _style(peers: list[str], peer: str) -> dict[str, Any]:
    """How a peer is drawn."""
    place = peers.index(peer)
    return {"color": _COLOURS[place % 6], "marker": _MARKS[place % 6], "lw": 1.1, "ms": 4.5}


def _legend(peers: list[str]) -> list[Line2D]:
    """One legend for all panels."""
    return [
        Line2D(
            [], [], color="black", marker="o", lw=1.8, ms=4.5, label="vastgp, best at each budget"
        ),
        Line2D([], [], color="0.75", marker=".", lw=0.7, label="each of vastgp's estimators"),
        Line2D(
            [], [], color="0.35", ls="--", lw=0.9, label="Bayesian linear or logistic regression"
        ),
        *(Line2D([], [], label=peer, **_style(peers, peer)) for peer in peers),
    ]
