"""Run every declared benchmark in turn, each in a process of its own: `make bench` or `python -m benchmarks`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

# data set, splits, method: what `results/regression.md` is made of
PLAN = [
    ("kin40k", (0, 1, 2), "block"),
    ("protein", (0, 1, 2), "block"),
    ("kegg", (0, 1, 2), "block"),
    ("kin40k", (0,), "block-learned"),
    ("kin40k", (0,), "qsgp-0"),
    ("protein", (0,), "qsgp-0"),
    ("kegg", (0,), "qsgp-0"),
    ("kin40k", (0,), "qsgp-100"),
    ("houseelectric", (0,), "block-20k"),
]


def main() -> None:
    """Run the plan, or the part of it that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset")
    parser.add_argument("--method")
    asked = parser.parse_args()
    if "VASTGP_DATA" not in os.environ:
        sys.exit("set VASTGP_DATA to the folder of the data files, see benchmarks/README.md")
    for dataset, splits, method in PLAN:
        if asked.dataset not in (None, dataset) or asked.method not in (None, method):
            continue
        for split in splits:
            options = ["--dataset", dataset, "--split", str(split), "--method", method]
            subprocess.run([sys.executable, HERE / "run.py", *options], check=True)
    subprocess.run([sys.executable, HERE / "table.py"], check=True)


if __name__ == "__main__":
    main()
