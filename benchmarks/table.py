"""Write `results/regression.md` from the JSON lines: means over splits, standardised units."""

from __future__ import annotations

import json
import re
import timeit
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
HEADER = (
    "| data | method | splits | n | RMSE | NLPD | CRPS | coverage 95 % | "
    "RMSE (own units) | NLPD (own units) | fit, s | peak, MB | converged | GFLOP/s |"
)


def rows(path: Path) -> list[dict]:
    """Read JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def put(path: Path, result: dict[str, Any], names: tuple[str, ...]) -> None:
    """Add a JSON line, in the place of an older one with the same values of ``names``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    others = [row for row in rows(path) if any(row.get(name) != result[name] for name in names)]
    lines = [json.dumps(row, default=float) for row in (*others, result)]
    path.write_text("\n".join(lines) + "\n")


def peak_mb() -> float:
    """Return the most memory that this program has had, MB.

    Not ``ru_maxrss``, which begins with that of the process that started it.
    """
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) / 1024


def matmul_gflops() -> float:
    """Return the rate at which NumPy multiplies float32 matrices now, GFLOP/s: the same measure for every program."""
    matrix = np.ones((1024, 1024), np.float32)
    seconds = timeit.repeat(lambda: matrix @ matrix, number=1, repeat=7)
    return round(2 * 1024**3 / 1e9 / float(np.median(seconds)), 1)


def table_lines(header: str, lines: list[str]) -> list[str]:
    """Return a table of Markdown."""
    return [header, "|" + "---|" * header.count("|", 1), *lines]


def write_page(path: Path, title: str, page: list[str]) -> None:
    """Write a page, and print it."""
    page = [f"# {title}", "", *page]
    path.write_text("\n".join(page) + "\n")
    print("\n".join(page))


def write_table(path: Path, title: str, made: str, header: str, lines: list[str]) -> None:
    """Write a page of one table, and print it."""
    write_page(path, title, [made, "", *table_lines(header, lines)])


def mean(values: list[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values)


def main() -> None:
    """Write the table."""
    grouped: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for row in rows(RESULTS / "regression.jsonl"):
        grouped[row["dataset"], row["method"]].append(row)
    lines: list[str] = []
    made = (
        "Made by `python benchmarks/table.py` from `regression.jsonl`, whose lines are made by `benchmarks/run.py`. "
        "Standardised units are those of the training targets. Two CPU cores, float32; seconds are wall-clock of the "
        "whole fit (starting values, compilation and preconditioner included) at the matrix product rate in the last "
        "column."
    )
    for (dataset, method), found in sorted(grouped.items()):
        scores = [row["report"]["standardised"] for row in found]
        own = [row["report"]["target"] for row in found]
        lines.append(
            f"| {dataset} | {method} | {', '.join(str(row['split']) for row in found)} | {found[0]['n']:,} "
            f"| {mean([s['rmse'] for s in scores]):.4f} | {mean([s['nlpd'] for s in scores]):.3f} "
            f"| {mean([s['crps'] for s in scores]):.4f} | {mean([row['report']['coverage'] for row in found]):.3f} "
            f"| {mean([s['rmse'] for s in own]):.4g} | {mean([s['nlpd'] for s in own]):.3f} "
            f"| {mean([row['seconds'] for row in found]):.0f} | {max(row['peak_mb'] for row in found)} "
            f"| {sum(row['converged'] for row in found)}/{len(found)} "
            f"| {mean([row['matmul_gflops'] for row in found]):.0f} |"
        )
    title = "Regression: test scores, means over the splits that were run"
    write_table(RESULTS / "regression.md", title, made, HEADER, lines)


if __name__ == "__main__":
    main()
