"""Maps beside PyKrige, GSTools and verde: stations drawn from fields, and gaps; the same withheld places for all.

    VASTGP_DATA=... python benchmarks/maps.py --peers /tmp/maps    # all sets and all programs, one after the other
    VASTGP_DATA=... python benchmarks/maps.py --set orca2 --method StationGP
    python benchmarks/maps.py --write                              # results/maps.md from the lines

`--peers` is the folder of their environments (`peers/README.md`). Every program is a process of its own; its seconds
are those of fit and prediction, its memory the most that the process had.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from map_sets import GAPS, SETS, Set, field_of
from table import RESULTS, peak_mb, put, rows, table_lines, write_page
from vastgp.metrics import coverage, nlpd, rmse

OUT = RESULTS / "maps.jsonl"
PEERS = ("pykrige", "gstools", "verde")
OURS = {True: "GridGP", False: "StationGP"}
# A program that takes longer is ended, and the line says so.
LONGEST, MEMORY_GB = 400, 12


def with_stations(held: Set, seconds: float) -> dict[str, Any]:
    """Fit and predict with `StationGP`."""
    import pyarrow as pa

    import vastgp

    names = list(held["names"])
    given, new = (dict(zip(names, held[key].T.copy(), strict=True)) for key in ("inputs", "new"))
    options: dict[str, Any] = {"covariates": ["height"]} if "height" in names else {}
    if "time" in names:
        options["time"] = "time"
    began, used = time.perf_counter(), time.process_time()
    model = vastgp.StationGP(max_seconds=seconds)
    model.fit(pa.table(given | {"value": held["y"]}), "value", **options)
    found = model.predict(pa.table(new))
    return {
        "mean": np.asarray(found["mean"]), "std": np.asarray(found["std"]),
        "seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - used,
        "more": f"{model.method_}, {model.kernel_}",
    }  # fmt: skip


def with_grid(name: str, seconds: float) -> dict[str, Any]:
    """Fit and predict with `GridGP` and kernels of its own choice."""
    import vastgp

    whole, hidden = field_of(name)
    began, used = time.perf_counter(), time.process_time()
    model = vastgp.GridGP(max_seconds=seconds).fit(whole.where(~hidden))
    found = model.predict()
    return {
        "mean": found["mean"].values[hidden], "std": found["std"].values[hidden],
        "seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - used,
        "more": str(model.kernel_),
    }  # fmt: skip


def ours(name: str, seconds: float) -> dict[str, Any]:
    """Predict the withheld places of a set, in this process."""
    found = with_grid(GAPS[name], seconds) if name in GAPS else with_stations(SETS[name](), seconds)
    return found | {"peak_mb": peak_mb()}


def of_process(command: list[str], out: Path) -> dict[str, Any]:
    """Run a program that writes its predictions."""
    limit = f"ulimit -v {MEMORY_GB * 2**20}; exec "
    quoted = " ".join(f"'{part}'" for part in command)
    try:
        ran = subprocess.run(
            ["bash", "-c", limit + quoted], capture_output=True, text=True, timeout=LONGEST
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failed": f"not done in {LONGEST} s"}
    print(ran.stdout[-3000:], flush=True)
    if ran.returncode:
        lines = ran.stderr.strip().splitlines() or [f"ended with {ran.returncode}"]
        print(ran.stderr[-3000:], file=sys.stderr)
        return {"failed": lines[-1][:200]}
    with np.load(out) as stored:
        return {name: stored[name] for name in stored.files}


def line_of(name: str, method: str, held: Set, found: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of one program on one set, in units of the values."""
    line = {
        "set": name, "method": method, "readings": len(held["y"]), "withheld": len(held["y_new"]),
        "deviation": float(np.std(held["y_new"])), "cores": os.cpu_count(),
    }  # fmt: skip
    if "failed" in found:
        return line | {"failed": found["failed"]}
    y, mean, std = held["y_new"], np.asarray(found["mean"]), np.asarray(found["std"])
    line |= {"rmse": float(rmse(y, mean))}
    if np.isfinite(std).all():
        line |= {"nlpd": float(nlpd(y, mean, std)), "coverage": float(coverage(y, mean, std))}
    line |= {key: float(found[key]) for key in ("seconds", "processor_seconds", "peak_mb")}
    return line | {"more": str(found["more"])}


def run(name: str, method: str, peers: Path | None, seconds: float) -> None:
    """Run one program on one set, and keep its line."""
    held = SETS[name]()
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "set.npz", Path(folder) / "found.npz"
        if method in PEERS:
            np.savez(file, **held)
            here = Path(__file__).parent / "peers" / "map_peers.py"
            python = str(Path(peers or "/tmp/maps") / method / "bin" / "python")
            command = [python, str(here), method, str(file), "--out", str(out)]
        else:
            command = [sys.executable, __file__, "--set", name, "--seconds", str(seconds)]
            command += ["--only", str(out)]
        line = line_of(name, method, held, of_process(command, out))
    put(OUT, line, ("set", "method"))
    print(json.dumps(line), flush=True)


def page() -> None:
    """Write results/maps.md."""
    lines = []
    order = {name: number for number, name in enumerate(SETS)}
    found = sorted(rows(OUT), key=lambda row: order.get(row["set"], 99))
    for row in found:
        start = f"| {row['set']} | {row['readings']:,} | {row['method']} "
        if "failed" in row:
            lines.append(f"{start}| {row['failed']} | | | | | |")
            continue
        density = (
            "| | " if "nlpd" not in row else f"| {row['nlpd']:.3f} | {100 * row['coverage']:.1f} % "
        )
        lines.append(
            f"{start}| {row['rmse']:.4g} {density}| {row['processor_seconds']:.0f} | {row['seconds']:.0f} | "
            f"{row['peak_mb'] / 1024:.1f} |"
        )
    header = "| set | readings | program | RMSE | NLPD | in 95 % | processor s | wall s | GB |"
    words = [
        "`python benchmarks/maps.py --peers /tmp/maps`, then `--write`: the same withheld places for all, RMSE and",
        "NLPD in units of the values, seconds of fit and prediction. `peers/README.md` says how peers are set up and",
        "what is chosen for them; their settings are in `maps.jsonl`. verde has no density and no time, PyKrige no",
        "sphere in time. Of gap fields peers fill every slice by itself, as none of them takes all cells; GridGP has",
        f"kernels of its own choice. A program had {LONGEST} s and {MEMORY_GB} GB. On {found[-1]['cores']} cores with",
        "other work beside, so that wall seconds are two to four times those of an idle machine: compare processor",
        "seconds.",
        "",
    ]
    write_page(
        RESULTS / "maps.md",
        "Maps beside PyKrige, GSTools and verde",
        [*words, *table_lines(header, lines)],
    )


def main() -> None:
    """Run programs on sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=SETS, nargs="+", default=list(SETS))
    parser.add_argument("--method", choices=[*PEERS, *OURS.values()], nargs="+")
    parser.add_argument("--peers", type=Path)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="budget of StationGP and GridGP"
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write:
        page()
    elif args.only:
        np.savez(args.only, **ours(args.set[0], args.seconds))
    else:
        for name in args.set:
            own = OURS[name in GAPS]
            for method in args.method or [own, *PEERS]:
                if method in OURS.values() and method != own:
                    continue
                if method == "verde" and "time" in SETS[name]()["names"]:
                    continue
                run(name, method, args.peers, args.seconds)


if __name__ == "__main__":
    main()
