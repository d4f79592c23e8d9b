"""Simulation-based calibration: are true values ranked uniformly among the draws of their posteriors?

``python benchmarks/simulated_ranks.py --cases 500`` draws so many data sets of ``--rows`` rows from the model for
each method of tests/simulated_calibration.py, and counts the ranks of hyperparameters (where they are drawn) and values
of the function. One JSON line for each method in results/simulated_ranks.jsonl, of which the page is made.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from simulated_calibration import BINS, DRAWS, METHODS, ranks, uniformity
from table import RESULTS, put, rows, write_table

OUT = RESULTS / "simulated_ranks.jsonl"
# Probability that a page of uniform ranks has a value marked.
_LEVEL = 0.01


def measure(name: str, asked: argparse.Namespace) -> dict[str, object]:
    """Return one line."""
    began, found = time.process_time(), defaultdict(list)
    for one in ranks(name, asked.rows, asked.cases, asked.first):
        for value, place in one.items():
            found[value].append(place)
    return {
        "name": name, "rows": asked.rows, "cases": asked.cases, "first": asked.first, "draws": DRAWS,
        "processor_seconds": round(time.process_time() - began),
        "values": {
            value: {
                "chi-squared": (tested := uniformity(places))[0], "p": tested[1],
                "mean": float(np.mean(places)) / DRAWS,
                "outer tenth": float(np.mean([not 5 <= place < 95 for place in places])),
                "ranks": places,
            }
            for value, places in found.items()
        },
    }  # fmt: skip


def main() -> None:
    """Run what was asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(METHODS))
    parser.add_argument("--cases", type=int, default=500, help="data sets")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first data set")
    asked = parser.parse_args()
    for name in asked.only:
        row = measure(name, asked)
        put(OUT, row, ("name",))
        print(json.dumps(row | {"values": {}}), flush=True)
    found = [row for name in METHODS for row in rows(OUT) if row["name"] == name]
    count = max(1, sum(len(row["values"]) for row in found))
    lines = [
        f"| {row['name']} | {row['cases']} | {row['rows']} | {value} | {seen['chi-squared']:.1f} | {seen['p']:.3f}"
        f"{' **!**' if seen['p'] < _LEVEL / count else ''} | {seen['mean']:.3f} | {seen['outer tenth']:.3f} |"
        for row in found
        for value, seen in row["values"].items()
    ]
    made = (
        "Made by `python benchmarks/simulated_ranks.py`, see its first lines. Ranks of true values among "
        f"{DRAWS} draws, in {BINS} bins: chi-squared has {BINS - 1} degrees of freedom and is 19 on average where "
        "ranks are uniform, and their mean is 0.5 with 0.100 of them among the outermost ten of a hundred. **!**: p "
        f"below {_LEVEL} / {count}, the number of lines."
    )
    header = "| method | data sets | rows | value | chi-squared | p | mean rank | outermost tenth |"
    write_table(OUT.with_suffix(".md"), "Simulation-based calibration", made, header, lines)


if __name__ == "__main__":
    main()
