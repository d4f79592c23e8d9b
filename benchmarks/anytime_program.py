"""What `anytime.py` and `peers/anytime_*.py` share: the command line, one process a fit, one JSON line, what is wrong.

--table friedman-5k kin40k kin40k:3 17    drawn tables and shared sets by name, with a split; a seed
--table shared named raw                  all of a kind: see `anytime_tables.KINDS`
--estimator NAME ...                      all that suit a table, where none is named
--budget 5 15 60 300                      seconds
--missing                                 only what has no line
--together                                one after the other in this process, compiled programs kept: hundreds of fits
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from anytime_tables import Drawn, draw, linear, names_of
from table import RESULTS, matmul_gflops, peak_mb, put, rows

# A fit gives its scores, taken when they are asked for, and what else a line says of it.
Scored = tuple[Callable[[], dict[str, float]], dict[str, Any]]
Fit = Callable[[Drawn], Scored]

OUT = RESULTS / "anytime.jsonl"
# Values that say which fit a line is of.
KEYS = ("table", "estimator", "budget")
# The first of them: scikit-learn has one for each length scale.
_WARNINGS = 5
_SHOWN = (*KEYS, "seconds", "rmse", "nlpd", "coverage", "answer", "error")


def measure(table: Drawn, values: tuple[str, str, float], fit: Fit) -> dict[str, Any]:
    """Return one result; ``values`` are those of `KEYS`."""
    result: dict[str, Any] = dict(zip(KEYS, values, strict=True)) | {
        "n": len(table.y),
        "d": table.X.shape[1],
        "n_test": len(table.y_test),
        "unit": table.unit,
        "linear": linear(table),
        "drawn": table.origin,
        "numpy_matmul_gflops": matmul_gflops(),
    }
    began, cpu = time.perf_counter(), time.process_time()
    fitted = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            scored, about = fit(table)
            fitted, cpu = time.perf_counter(), time.process_time() - cpu
            found = scored()
        except Exception as error:  # a defect to record, as any other
            seconds = (fitted or time.perf_counter()) - began
            return result | {
                "error": f"{type(error).__name__}: {error}"[:200],
                "seconds": round(seconds, 2),
            }
    return result | found | {
        "seconds": round(fitted - began, 2), "cpu": round(cpu, 2),
        "predicting": round(time.perf_counter() - fitted, 2), **about, "peak_mb": round(peak_mb()),
        "warnings": [str(w.message)[:200] for w in caught[:_WARNINGS]],
        "numerical": sorted({f"{w.message} in {_place(w)}"[:200] for w in caught if w.category is RuntimeWarning}),
    }  # fmt: skip


def _place(warned: warnings.WarningMessage) -> str:
    return f"{'/'.join(Path(warned.filename).parts[-3:])}:{warned.lineno}"


def faults(found: dict[str, Any]) -> list[str]:
    """Return what is wrong with a result; nothing where all is well."""
    if "error" in found:
        return [found["error"]]
    wrong = []
    # "not at most" and "not at least": so that a NaN is one
    if not _behind_linear(found) <= 0.02:
        wrong.append("worse than linear")
    if not found.get("coverage", 1.0) >= 0.9:
        wrong.append("coverage")
    # processor time where it is less: others on the machine make no fit late
    if min(found["seconds"], found.get("cpu", np.inf)) > 1.1 * found["budget"] + 2.0:
        wrong.append("late")
    if found.get("numerical"):
        wrong.append("warning")
    return wrong


def _behind_linear(found: dict[str, Any]) -> float:
    """Return by how much a result is worse than the linear model: in nats; without a density by the share of CRPS."""
    line = found["linear"]
    return found["nlpd"] - line["nlpd"] if "nlpd" in found else found["crps"] / line["crps"] - 1.0


def command_line(description: str | None) -> argparse.ArgumentParser:
    """Return what reads the words that all programs take."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", nargs="+", default=["named"], help="names, seeds, kinds")
    parser.add_argument("--estimator", nargs="+")
    parser.add_argument("--budget", type=float, nargs="+", default=[15.0], help="seconds")
    parser.add_argument("--set", default="{}", help="arguments of the estimator, as JSON")
    parser.add_argument("--missing", action="store_true", help="only what has no line")
    parser.add_argument("--together", action="store_true", help="all fits in this process")
    parser.add_argument("--out", type=Path, default=OUT)
    return parser


def run(
    asked: argparse.Namespace,
    suited: Callable[[Drawn], list[str]],
    prepare: Callable[[str, float, dict[str, Any]], Fit],
) -> None:
    """Make the fits that were asked for; several: each in a process of its own.

    ``suited`` names the estimators for a table; ``prepare`` makes what fits one, from its name, the budget, arguments.
    """
    words = (names_of(asked.table), asked.estimator or [], asked.budget)

    def here(name: str, estimator: str, budget: float) -> None:
        table = draw(name)
        if estimator not in suited(table):
            sys.exit(f"{estimator} is not for {name}; these are: {', '.join(suited(table))}")
        found = measure(
            table, (name, estimator, budget), prepare(estimator, budget, json.loads(asked.set))
        )
        put(asked.out, found, KEYS)
        short = {key: found[key] for key in _SHOWN if key in found}
        print(json.dumps(short | {"faults": ", ".join(faults(found))}, default=float), flush=True)

    if all(len(word) == 1 for word in words):
        name, estimator, budget = (word[0] for word in words)
        here(name, estimator, budget)
        return
    there = {tuple(row[key] for key in KEYS) for row in rows(asked.out)} if asked.missing else set()
    for name in words[0]:
        estimators = [each for each in suited(draw(name)) if each in (asked.estimator or [each])]
        for fit in itertools.product([name], estimators, asked.budget):
            if fit in there:
                continue
            if asked.together:
                here(*fit)
            else:
                _in_a_process(fit, asked)
    _say_faults(asked)


def _say_faults(asked: argparse.Namespace) -> None:
    """Print which of the fits that were asked for have faults, those that lack most beside a line first."""
    names = set(names_of(asked.table))
    chosen = [
        row
        for row in rows(asked.out)
        if row["table"] in names
        and row["budget"] in asked.budget
        and row["estimator"] in (asked.estimator or [row["estimator"]])
    ]
    wrong = [row for row in chosen if faults(row)]
    print(f"{len(chosen)} fits, {len(wrong)} with a fault")
    lacking = {id(row): np.inf if "error" in row else _behind_linear(row) for row in wrong}
    for row in sorted(wrong, key=lambda row: -lacking[id(row)]):
        told = f"{row['n']} x {row['d']}: {', '.join(faults(row))} ({lacking[id(row)]:.3f} nats)"
        print(f"  {row['table']} {row['estimator']} {row['budget']:g} s, {told}")


def _in_a_process(fit: tuple[str, str, float], asked: argparse.Namespace) -> None:
    """Make one fit in a process of its own: nothing is compiled or held from another."""
    named = [
        word for key, value in zip(KEYS, fit, strict=True) for word in (f"--{key}", str(value))
    ]
    common = ["--set", asked.set, "--out", str(asked.out)]
    subprocess.run([sys.executable, sys.argv[0], *named, *common], check=False)
