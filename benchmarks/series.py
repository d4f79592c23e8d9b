"""Forecasts of the last fifth of a series by the front door: one fit in a process of its own, one JSON line.

    VASTGP_RAW=/tmp/raw python benchmarks/series.py --budget 20 --missing
    python benchmarks/series.py --write    # results/series.md from the lines

The words are those of `anytime.py`, the fits and their lines those of `front_door.py`. Peers write lines beside these:
`peers/series_peers.py`.
"""

from __future__ import annotations

from pathlib import Path

from anytime_program import command_line, faults, run
from front_door import prepare, suited
from report_rows import Row, as_cell, by, lowest, value
from table import RESULTS, rows, table_lines, write_page

OUT = RESULTS / "series.jsonl"
_BUDGETS = [20.0]
_OURS = "GPRegressor"
_LINEAR = "linear"
_MADE = (
    "Made by `python benchmarks/series.py --write` from `series.jsonl`, whose lines `benchmarks/series.py` and, in an "
    "environment of its own, `benchmarks/peers/series_peers.py` make. Each fit has its own process, with nothing "
    "compiled before. The first four fifths of a series are given, the last fifth is forecast. Scores are in "
    "deviations of the training target; CRPS is closed for normal forecasts. Linear is Bayesian linear regression on "
    "day, day of the year and weekday. Peers are told the season, the front door finds it in the dates. Worse than "
    "linear: NLPD by more than 0.02; coverage: under 90 %; late: after 110 % of the budget and two seconds."
)
_HEADER = "| series | rows | estimator | seconds | NLPD | CRPS | RMSE | coverage | width | answer | faults |"


def write(path: Path) -> None:
    """Write the page of all results."""
    found = rows(path)
    page = [_MADE, "", "## Standing", "", *_standing(found), "", "## Numbers", ""]
    write_page(
        path.with_suffix(".md"), "Forecasts of series", page + table_lines(_HEADER, _lines(found))
    )


def _with_linear(found: list[Row]) -> list[Row]:
    """Return the results of one series, the linear model as one of them."""
    return [found[0] | found[0]["linear"] | {"estimator": _LINEAR, "answer": ""}, *found]


def _standing(found: list[Row]) -> list[str]:
    """Return a table: on how many series each is best, by two scores, and how often it holds."""
    groups = [_with_linear(group) for group in by("table", found).values()]
    names = sorted({row["estimator"] for group in groups for row in group})
    lines = []
    for name in names:
        own = [row for group in groups for row in group if row["estimator"] == name]
        best = [
            sum(1 for group in groups if lowest(group, names, score)["estimator"] == name)
            for score in ("nlpd", "crps", "rmse")
        ]
        held = [row["coverage"] for row in own if "coverage" in row]
        mean = sum(value(row, "crps") for row in own) / len(own)
        lines.append(
            f"| {name} | {len(own)} | {best[0]} | {best[1]} | {best[2]} | {mean:.3f} "
            f"| {sum(held) / max(len(held), 1):.1%} | {sum(share < 0.9 for share in held)} |"
        )
    head = (
        "| estimator | series | lowest NLPD | lowest CRPS | lowest RMSE | mean CRPS | mean coverage "
        "| under 90 % |"
    )
    return table_lines(head, lines)


def _lines(found: list[Row]) -> list[str]:
    lines = []
    for name, group in by("table", found).items():
        for row in _with_linear(group):
            if "nlpd" not in row:
                lines.append(
                    f"| {name} | {row['n']:,} | {row['estimator']} | | | | | | | | {as_cell(faults(row))} |"
                )
                continue
            is_line = row["estimator"] == _LINEAR
            seconds = "" if is_line else f"{row['seconds']:.1f}"
            wrong = "" if is_line else as_cell(faults(row))
            lines.append(
                f"| {name} | {row['n']:,} | {row['estimator']} | {seconds} | {row['nlpd']:.3f} | {row['crps']:.3f} "
                f"| {row['rmse']:.3f} | {row['coverage']:.3f} | {row['width']:.3f} | {row.get('answer') or ''} "
                f"| {wrong} |"
            )
    return lines


def main() -> None:
    """Read the command line."""
    parser = command_line(__doc__)
    parser.set_defaults(out=OUT, table=["series"], budget=_BUDGETS)
    parser.add_argument("--write", action="store_true", help="write the table; fit nothing")
    asked = parser.parse_args()
    if asked.write:
        write(asked.out)
    else:
        run(asked, suited, prepare)


if __name__ == "__main__":
    main()
