"""A fit in a process of its own that something happens to: run by tests/faults and by benchmarks/faults.py.

``python tests/fault_child.py '{"estimator": "SVGPRegressor", "checkpoint": "fit", "at": "replace", "call": 2, "signal":
9}'`` fits a small table, saves at every record, and sends itself the signal at that call. It prints a digest of the
answers, and how often each instant came.
"""

from __future__ import annotations

import collections
import hashlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parent)]

# Where something may happen: before and after a file is written, and in the middle of that.
INSTANTS = ("write", "fsync", "replace", "unlink", "written")


def small_table(classes: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs and targets of 60 rows, and inputs of 20 new ones."""
    generator = np.random.default_rng(3)
    X = generator.uniform(-2.0, 2.0, (80, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * generator.normal(size=80)
    return X[:60], (np.where(y > 0, "a", "b") if classes else y)[:60], X[60:]


def answers(model: Any, X: np.ndarray) -> np.ndarray:
    """Return all that is compared."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X)
    return np.stack(model.predict(X, return_std=True))


def digest_of(model: Any, X: np.ndarray) -> str:
    """Return a digest of all that is compared."""
    return hashlib.sha256(np.ascontiguousarray(answers(model, X)).tobytes()).hexdigest()


def watched(plan: dict[str, Any]) -> collections.Counter[str]:
    """Count the instants from now on, and act at the chosen one."""
    from vastgp.fitting.checkpoint import Checkpoint

    seen: collections.Counter[str] = collections.Counter()

    def at(instant: str) -> None:
        seen[instant] += 1
        if plan.get("at") == instant and seen[instant] == plan["call"]:
            os.kill(os.getpid(), plan["signal"])

    def before(call: Callable[..., Any], instant: str) -> Callable[..., Any]:
        def wrapped(*given: Any, **named: Any) -> Any:
            at(instant)
            return call(*given, **named)

        return wrapped

    os.fsync, os.replace = before(os.fsync, "fsync"), before(os.replace, "replace")
    os.unlink = before(os.unlink, "unlink")
    write = Checkpoint.write

    def whole(file: Checkpoint) -> None:
        if not seen["write"]:
            limit(plan)
        at("write")
        write(file)
        at("written")

    Checkpoint.write = whole  # type: ignore[method-assign]
    Checkpoint.due = lambda file: True  # type: ignore[method-assign]
    return seen


def main(plan: dict[str, Any]) -> None:
    """Do what the plan says, and print how it ended."""
    from promises import quick

    warnings.simplefilter("ignore")
    name = plan["estimator"]
    X, y, new = small_table(name.endswith("Classifier"))
    model = quick(name, X).set_params(checkpoint=plan["checkpoint"])
    if "max_seconds" in plan:
        model.set_params(max_seconds=plan["max_seconds"])
    seen = watched(plan)
    if plan.get("clock"):  # somebody sets it, all the time
        times = iter(np.random.default_rng(0).uniform(0.0, 1e10, 10**6).tolist())
        time.time = lambda: next(times)  # type: ignore[assignment]
    model.fit(X, y)
    told = {"digest": digest_of(model, new), "seen": seen, "ended": model.stop_reason_}
    sys.stdout.write(json.dumps(told) + "\n")


def limit(plan: dict[str, Any]) -> None:
    """Set a limit of the system on this process, when it first writes: bytes of a file, or no more open files."""
    import resource
    import signal

    if "file_bytes" in plan:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (plan["file_bytes"],) * 2)
    if plan.get("no_files"):
        used = max(int(each) for each in os.listdir("/proc/self/fd")) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, used))
        while True:  # what is free below
            try:
                os.open(os.devnull, os.O_RDONLY)
            except OSError:
                return


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
