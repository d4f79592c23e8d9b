"""Programs that XLA compiles for a fit and its first prediction, and their seconds: one JSON line a case.

    python -m benchmarks.compilation [--estimators ExactGPRegressor QSGPRegressor] [--rows 200 250] [--inputs 5]

Every estimator runs in a process of its own, without a cache of programs on disk. It is fitted to the first number of
rows and asked for a prediction; then another one like it is fitted to each of the other numbers, with another seed:
what is compiled then are programs that depend on what they should not. ``seconds`` are those of the whole case, the
import of the library in the first; ``compiling`` are those in XLA.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings

_EVENT = "/jax/core/compile/backend_compile_duration"
_LEFT_OUT = ("GridGP", "ReweightedBasisClassifier")  # takes a grid; needs chains


def main() -> None:
    from vastgp.estimators.registry import ESTIMATORS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [name for name in ESTIMATORS if name not in _LEFT_OUT]
    parser.add_argument("--estimators", nargs="+", default=names)
    parser.add_argument("--rows", nargs="+", type=int, default=[200, 250])
    parser.add_argument("--inputs", type=int, default=5)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        _measure(given.estimators[0], given.rows, given.inputs)
        return
    clean = {name: value for name, value in os.environ.items() if "COMPILATION_CACHE" not in name}
    for name in given.estimators:
        rows = [str(count) for count in given.rows]
        subprocess.run(
            [sys.executable, "-m", "benchmarks.compilation", "--here", "--estimators", name,
             "--rows", *rows, "--inputs", str(given.inputs)],
            check=False, env=clean,
        )  # fmt: skip


def _measure(name: str, rows: list[int], inputs: int) -> None:
    began = time.perf_counter()
    import jax
    import numpy as np

    import vastgp

    compiled: list[float] = []

    def note(event: str, seconds: float, **_: object) -> None:
        if event == _EVENT:
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(note)
    warnings.simplefilter("ignore")
    for seed, count in enumerate(rows):
        rng = np.random.default_rng(seed)
        X = rng.uniform(size=(count, inputs))
        y = np.sin(6.0 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=count)
        if name.endswith("Classifier"):
            y = (y > np.median(y)).astype(int)
        compiled.clear()
        model = getattr(vastgp, name)(random_state=seed).fit(X, y)
        fitted = len(compiled)
        model.predict(X[:10])
        line = {
            "benchmark": "compilation", "vastgp": vastgp.__version__, "jax": jax.__version__,
            "estimator": name, "rows": count, "inputs": inputs, "seed": seed,
            "programs_of_fit": fitted, "programs_of_prediction": len(compiled) - fitted,
            "compiling": round(sum(compiled), 3), "seconds": round(time.perf_counter() - began, 3),
            "processor_seconds": round(time.process_time(), 3),
        }  # fmt: skip
        print(json.dumps(line), flush=True)
        began = time.perf_counter()


if __name__ == "__main__":
    main()
