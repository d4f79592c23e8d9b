"""A fit whose process is killed, told to end or short of everything: the next one goes on as if nothing had been."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fault_child import digest_of, small_table
from promises import quick
from vastgp.data import read_archive

CHILD = Path(__file__).parents[1] / "fault_child.py"
pytest.importorskip("resource", reason="signals and limits of POSIX")


def child(path, **plan):
    """Fit in a process of its own; return it, ended."""
    given = {"estimator": "SVGPRegressor", "checkpoint": str(path), **plan}
    return subprocess.run(
        [sys.executable, str(CHILD), json.dumps(given)], capture_output=True, text=True, timeout=300
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_killed_twice_in_a_row_it_is_the_fit_that_was_left_alone(tmp_path):
    """Before a new file takes the old one's name, and by Ctrl-C in the middle of a write."""
    path = tmp_path / "fit"
    X, y, new = small_table(classes=False)
    alone = digest_of(quick("SVGPRegressor", X).fit(X, y), new)
    for at, call, number in [
        ("replace", 2, signal.SIGKILL),
        ("fsync", 1, signal.SIGINT),
    ]:
        done = child(path, at=at, call=call, signal=int(number))
        assert done.returncode == -number, done.stderr
        assert read_archive(path)[0]["kind"] == "checkpoint"  # whole, whatever happened to the next
    done = child(path)
    assert json.loads(done.stdout)["digest"] == alone
    assert os.listdir(tmp_path) == []  # no temporary file, no lock


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_clock_that_is_set_changes_no_budget_and_no_answer(tmp_path):
    """Somebody sets it, to any time of three centuries at each look; a budget that it counted would be used up."""
    X, y, new = small_table(classes=False)
    done = child(tmp_path / "fit", clock=True, max_seconds=1000.0)
    assert done.returncode == 0, done.stderr
    alone = quick("SVGPRegressor", X).set_params(max_seconds=1000.0).fit(X, y)
    assert json.loads(done.stdout)["digest"] == digest_of(alone, new)
    assert "max_seconds" not in json.loads(done.stdout)["ended"]
    assert os.listdir(tmp_path) == []
