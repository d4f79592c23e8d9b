"""Faults that a fit, a file or a server may meet, by the thousand: the long part of tests/faults.

``python -m benchmarks.faults tables --cases 300`` fits drawn tables with every estimator and holds the answers to what
they promise; ``kills`` ends fits by signals at chosen instants and compares the resumed ones; ``files`` loads saved
models that somebody changed; ``serving`` predicts from threads and row by row; ``soak`` fits, saves, loads and predicts
in one process for ``--minutes`` of processor time, and looks at its memory; both give the front doors a table with
text, a date and gaps. ``--only`` names estimators. Each row of a part replaces the one that stood for that estimator
in benchmarks/results/faults.json, or with ``--add`` and another ``--seed`` is counted with it;
benchmarks/results/faults.md is made of that.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fcntl
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "tests"))
import vastgp
from damaged_files import damaged
from fault_child import answers, small_table
from faults_page import added, page
from odd_fields import Axis, OddField, odd_fields
from odd_stations import OddStations, odd_stations
from odd_tables import LABELS, Column, OddTable, odd_tables
from promises import (
    QUICK,
    Refused,
    check_classifier,
    check_field,
    check_regressor,
    check_stations,
    quick,
)
from vastgp.metrics import coverage

_RESULTS = Path(__file__).parent / "results" / "faults.json"
_CHILD = Path(__file__).parents[1] / "tests" / "fault_child.py"
# Compiled programs are let go of after so many tables, each of which may have a shape of its own.
_CLEAR_AFTER = 50
_SIGNALS = {"SIGKILL": 9, "SIGTERM": 15, "SIGINT": 2}
# Loading takes longer, or more memory, only where a file makes it work.
_SLOW_SECONDS, _MUCH_KB = 5.0, 200_000
# Take fields on grids, and readings at places, where the others take tables.
GRID, STATIONS = "GridGP", "StationGP"
# What the memory of a soak may grow by after the warm-up: fragments of what was freed.
_GROWTH_MB = 10.0
# What a million predictions may take after the warm-up.
_SERVING_MB = 20.0
# Take tables with text, dates and gaps where the others take numbers.
FRONT_DOORS = ("GPRegressor", "GPClassifier")
# Nats a row that an answer may lack beside a line.
_WORSE = 0.05


class _Enough(Exception):
    """The time of a row is over."""


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("--cases", type=int, default=100, help="tables, files, or predictions")
    parser.add_argument("--rows", type=int, nargs="+", default=[2, 3, 12, 40, 120])
    parser.add_argument("--columns", type=int, default=3, help="of a table, at most")
    parser.add_argument(
        "--only", nargs="+", default=[*QUICK, GRID, STATIONS], help="names of estimators"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=np.inf, help="processor time of one row")
    parser.add_argument("--add", action="store_true", help="count with the row that stands")
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="of the soak, of processor time"
    )
    given_ = parser.parse_args()
    for name in given_.only:
        row = None
        if name not in (GRID, STATIONS) or given_.part in ("tables", "files"):
            row = PARTS[given_.part](name, given_)
        if row is None:
            continue
        row |= {"failures": row.get("failures", []), "seed": given_.seed}
        row = _written(given_.part, name, row, given_.add)
        print(given_.part, name, json.dumps(row, indent=1), flush=True)


def _written(part: str, name: str, row: dict[str, Any], add: bool) -> dict[str, Any]:
    """Write a row beside what other parts, which may run at the same time, wrote; return it as it stands."""
    with open(_RESULTS, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = json.loads(_RESULTS.read_text() or "{}")
        of_part = known.setdefault(part, {})
        of_part[name] = added(of_part[name], row) if add and name in of_part else row
        _RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        _RESULTS.with_suffix(".md").write_text(page(dict(sorted(known.items()))))
    return of_part[name]


# ---------------------------------------------------------------- tables


def tables(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Fit drawn tables, and count how that ended."""
    ended: collections.Counter[str] = collections.Counter()
    failures: list[str] = []
    began = time.process_time()

    @seed(args.seed)
    @settings(
        max_examples=args.cases, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    @given(
        _drawn(name, tuple(args.rows), args.columns),
        st.sampled_from(sorted(LABELS)),
        st.sampled_from([2, 2, 3, 5, 1]),
    )
    def run(table: Any, kind: str, count: int) -> None:
        if time.process_time() - began > args.seconds:
            raise _Enough  # to draw the others would take as long as to fit them
        try:
            if isinstance(table, OddField):
                check_field(table)
            elif isinstance(table, OddStations):
                check_stations(table)
            elif name.endswith("Classifier"):
                check_classifier(name, table, table.labels(kind, count))
            else:
                check_regressor(name, table)
            ended["fitted"] += 1
        except Refused:
            ended["refused"] += 1
        except AssertionError as error:
            ended["failed"] += 1
            failures.append(f"{str(error)[:300]} <- {table} {kind} {count}")
            print(failures[-1], file=sys.stderr, flush=True)
        if sum(ended.values()) % _CLEAR_AFTER == 0:
            jax.clear_caches()

    with contextlib.suppress(_Enough):
        run()
    row: dict[str, Any] = dict(ended) | {
        "cases": sum(ended.values()),
        "processor_seconds": round(time.process_time() - began),
        "failures": failures[:20],
    }
    return row


def _drawn(name: str, rows: tuple[int, ...], columns: int) -> st.SearchStrategy[Any]:
    if name == GRID:
        return odd_fields()
    strategy = odd_stations if name == STATIONS else odd_tables
    return strategy(rows, columns)


def quality(name: str, args: argparse.Namespace) -> dict[str, Any] | None:
    """Compare predictions with those of a Bayesian line, on tables that a normal density is fair to; defaults."""
    if not name.endswith("Regressor"):
        return None
    generator = np.random.default_rng(args.seed)
    kinds = ["normal", "uniform", "integers", "one-hot", "lognormal", "two values", "sum"]
    gains, inside, of_line, failures = [], [], [], []
    began = time.process_time()
    for number in range(args.seed, args.seed + args.cases):
        if time.process_time() - began > args.seconds:
            break
        columns = [Column(str(generator.choice(kinds))) for _ in range(generator.integers(1, 4))]
        target = str(generator.choice(["smooth", "noise", "noisy line"]))
        table = OddTable(int(generator.choice([40, 120])), tuple(columns), target, seed=number)
        if np.any(np.ptp(table.draw()[0], axis=0) == 0):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gain, near, share, lines = _beside_a_line(getattr(vastgp, name)(), table)
        gains.append(gain)
        inside.append(share)
        of_line.append(lines)
        # far beyond all rows a line that the table is made of is right by luck: counted, and no failure
        if near > _WORSE:
            failures.append(f"{near:.3f} nats, {share:.3f} inside <- {table}")
            print(failures[-1], file=sys.stderr, flush=True)
    worse = np.array(gains) > _WORSE
    return {
        "failures": failures[:20],
        "tables": len(gains),
        "coverage of 95 %": round(float(np.mean(inside)), 3),
        "its least": round(float(np.min(inside)), 3),
        "that of a line": round(float(np.mean(of_line)), 3),
        "least of a line": round(float(np.min(of_line)), 3),
        "mean NLPD less that of a line": round(float(np.mean(gains)), 3),
        "median": round(float(np.median(gains)), 3),
        "largest": round(float(np.max(gains)), 3),
        f"worse by {_WORSE}": int(worse.sum()),
    }


def _beside_a_line(model: Any, table: OddTable) -> tuple[float, float, float, float]:
    """Return NLPD less that of a Bayesian line, on new rows and on those in the range of the fit's; both's coverage."""
    X, y, new, target = table.draw(500)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    scale, center = float(y.std()), float(y.mean())
    from sklearn.linear_model import BayesianRidge

    line = BayesianRidge().fit(scaled, (y - center) / scale)
    mean, std = line.predict((new - X.mean(axis=0)) / X.std(axis=0), return_std=True)
    density = -0.5 * (((target - center) / scale - mean) / std) ** 2 - np.log(std * scale)
    density -= 0.5 * np.log(2.0 * np.pi)
    found = model.fit(X, y).log_predictive_density(new, target)
    inside = coverage(target, *model.predict(new, return_std=True))
    of_line = coverage(target, center + scale * mean, scale * std)
    less, seen = density - found, np.all((new >= X.min(axis=0)) & (new <= X.max(axis=0)), axis=1)
    return float(np.mean(less)), float(np.mean(less[seen])), float(inside), float(of_line)


# ---------------------------------------------------------------- processes that end


def kills(name: str, args: argparse.Namespace) -> dict[str, Any] | None:
    """End fits at instants spread over all of one, three in a row, and compare what the last one answers."""
    if "checkpoint" not in getattr(vastgp, name)().get_params():
        return None
    tried, equal, failures = 0, 0, []
    with tempfile.TemporaryDirectory() as folder:
        alone = _child(name, Path(folder) / "alone")
        whole = json.loads(alone.stdout)
        instants = [
            each for each in ("write", "fsync", "replace", "written") if whole["seen"].get(each)
        ]
        generator = np.random.default_rng(args.seed)
        for case in range(min(args.cases, 50) if instants else 0):
            path, done = Path(folder) / f"fit{case}", []
            for _ in range(3):
                at = str(generator.choice(instants))
                # the later ones come only while much is left
                call = int(generator.integers(1, max(2, whole["seen"][at] // 2) + 1))
                signal = str(generator.choice(sorted(_SIGNALS)))
                ended = _child(name, path, at=at, call=call, signal=_SIGNALS[signal])
                done.append(f"{signal} at {at} {call}: {ended.returncode}")
                if ended.returncode == 0:
                    break
                tried += 1
            else:
                ended = _child(name, path)
            left = [each for each in os.listdir(folder) if f"fit{case}" in each]
            if ended.returncode or json.loads(ended.stdout)["digest"] != whole["digest"] or left:
                failures.append(f"{done} {left} {ended.stderr[-300:]}")
            else:
                equal += 1
    return {"kills": tried, "fits": equal + len(failures), "equal": equal, "failures": failures}


def _child(name: str, path: Path, **plan: Any) -> subprocess.CompletedProcess[str]:
    given_ = {"estimator": name, "checkpoint": str(path), **plan}
    return subprocess.run(
        [sys.executable, str(_CHILD), json.dumps(given_)],
        capture_output=True,
        text=True,
        check=False,
    )


# ---------------------------------------------------------------- files that were changed


def files(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Load saved models that somebody changed: a model, or one kind of error that names the file."""
    X, y, _ = small_table(name.endswith("Classifier"))
    generator = np.random.default_rng(args.seed)
    ended: collections.Counter[str] = collections.Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole, path = Path(folder) / "whole", Path(folder) / "changed"
        _fitted(name, X, y).save(whole)
        memory = _most_memory()
        for _ in range(args.cases):
            what, began = damaged(path, whole, generator), time.process_time()
            try:
                vastgp.load(path)
                ended["loaded"] += 1
            except ValueError as error:
                ended["refused"] += 1
                if str(path) not in str(error):
                    failures.append(f"{what}: no name in {error}")
            except BaseException as error:
                failures.append(f"{what}: {error!r}")
            seconds, now = time.process_time() - began, _most_memory()
            if seconds > _SLOW_SECONDS or now - memory > _MUCH_KB:
                failures.append(f"{what}: {seconds:.1f} s, {now - memory:,} kB")
            memory = now
    return dict(ended) | {"cases": args.cases, "failures": failures[:20]}


def _fitted(name: str, X: np.ndarray, y: np.ndarray) -> Any:
    if name == GRID:
        return vastgp.GridGP(max_iter=10).fit(OddField((Axis(6), Axis(6)), gaps="a half").draw())
    if name == STATIONS:
        readings, _, given_ = OddStations(OddTable(40), "Europe", "days").draw(0)
        return vastgp.StationGP(max_seconds=None).fit(pd.DataFrame(readings), "seen", **given_)
    return quick(name, X).fit(X, y)


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# ---------------------------------------------------------------- serving


def serving(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Predict from eight threads at once, and one row after the other without growth of memory."""
    X, y, new = _table(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = _made(name, X).fit(X, y)
    wanted, found = answers(model, new), [None] * 8

    def ask(number: int) -> None:
        for _ in range(20):
            found[number] = answers(model, new)  # type: ignore[call-overload]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same = all(np.array_equal(each, wanted) for each in found)
    rows = [new[case : case + 1] for case in range(len(new))]
    began, done, megabytes = time.process_time(), 0, []
    # looked at a hundred times; a twentieth is the warm-up
    look = max(args.cases // 100, 1)
    while done < args.cases and time.process_time() - began < args.seconds:
        model.predict(rows[done % len(rows)])
        done += 1
        if done % look == 0 or done == 500:
            megabytes.append(_memory() / 1024.0)
            print(f"serving {name}: {done} calls, {megabytes[-1]:.1f} MB", flush=True)
    megabytes.append(_memory() / 1024.0)
    growth = max(megabytes[len(megabytes) // 20 :]) - megabytes[len(megabytes) // 20]
    failures = [] if same else ["threads"]
    if growth > _SERVING_MB:
        failures.append(f"memory grew by {growth:.1f} MB in {done} calls")
    return {
        "threads agree": same,
        "predictions of one row": done,
        "MB, evenly spaced": _spaced(megabytes),
        "growth in MB": round(growth, 1),
        "milliseconds each": round(1000 * (time.process_time() - began) / done, 2),
        "failures": failures,
    }


def _table(name: str) -> tuple[Any, np.ndarray, Any]:
    """Return rows, targets and new rows: for the front door with categories, a date and a gap in each column."""
    X, y, new = small_table(name.endswith("Classifier"))
    if name not in FRONT_DOORS:
        return X, y, new
    whole = np.concatenate([X, new])
    table = pd.DataFrame(
        {
            "size": whole[:, 0],
            "city": np.where(whole[:, 1] > 0, "Oslo", np.where(whole[:, 1] < -1, "Rome", "Wien")),
            "day": pd.Timestamp("2023-01-01") + pd.to_timedelta(np.arange(len(whole)) % 37, "D"),
        }
    )
    for number, column in enumerate(table):
        table.loc[number::17, column] = None
    return table[: len(X)], y, table[len(X) :]


def _made(name: str, X: Any) -> Any:
    # the front door asks for no number of distinct rows
    return quick(name, np.empty((0, 1)) if name in FRONT_DOORS else X)


def soak(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Fit, save, load and predict again and again in one process, which is to take no more memory than at first."""
    X, y, new = _table(name)
    generator, megabytes = np.random.default_rng(args.seed), []
    began, used = time.monotonic(), time.process_time()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model"
        while time.process_time() - used < 60.0 * args.minutes:
            # other rows of the same law each time, so that nothing is the same but the shapes
            some = generator.integers(len(y), size=len(y))
            X_, y_ = X.iloc[some] if name in FRONT_DOORS else X[some], y[some]
            if name in FRONT_DOORS:
                X_ = X_.assign(size=X_["size"] + 1e-3 * generator.normal(size=len(y)))
            else:
                X_ = X_ + 1e-3 * generator.normal(size=X.shape)
            model = _made(name, X_).fit(X_, y_)
            model.save(path)
            again = vastgp.load(path)
            same = np.array_equal(answers(model, new), answers(again, new))
            for row in range(len(new)):
                again.predict(new[row : row + 1])
            megabytes.append(_memory() / 1024.0)
            print(f"soak {name} round {len(megabytes)}: {megabytes[-1]:.1f} MB", flush=True)
            if not same:
                failures.append(f"round {len(megabytes)}: loaded, it answers otherwise")
    tenth = max(len(megabytes) // 10, 1)
    # a fifth is the warm-up: programs are compiled, pools of memory filled
    first = float(np.median(megabytes[2 * tenth : 3 * tenth] or megabytes[-1:]))
    growth = float(np.median(megabytes[-tenth:])) - first
    if growth > _GROWTH_MB:
        failures.append(f"memory grew by {growth:.1f} MB in {len(megabytes)} rounds")
    return {
        "rounds": len(megabytes),
        "minutes": round((time.monotonic() - began) / 60.0, 1),
        "processor_seconds": round(time.process_time() - used),
        "MB, evenly spaced": _spaced(megabytes),
        "growth in MB": round(growth, 1),
        "failures": failures[:20],
    }


def _spaced(megabytes: list[float]) -> str:
    shown = np.linspace(0, len(megabytes) - 1, min(len(megabytes), 12)).astype(int)
    return " ".join(f"{megabytes[i]:.0f}" for i in shown)


def _memory() -> float:
    """Resident memory of the process, kB."""
    status = Path("/proc/self/status").read_text()
    return float(status.partition("VmRSS:")[2].split()[0])


PARTS: dict[str, Callable[[str, argparse.Namespace], dict[str, Any] | None]] = {
    "tables": tables, "quality": quality, "kills": kills, "files": files, "serving": serving, "soak": soak,
}  # fmt: skip


if __name__ == "__main__":
    main()
