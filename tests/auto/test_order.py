"""Trees before others where they alone beat what has run, and a race that is longer for them."""

from dataclasses import replace

import numpy as np
import pytest

from vastgp.auto import race
from vastgp.auto.candidates import Candidate
from vastgp.auto.folds import Fold
from vastgp.auto.leaderboard import Entry
from vastgp.auto.order import trees_next
from vastgp.auto.race import run_race
from vastgp.auto.track import Judged, Ran, Track
from vastgp.auto.trees import grow
from vastgp.auto.warps import Log, Own
from vastgp.data import Rows

ROWS, OUT = 600, 150
TREES = Candidate("exact", "ExactGPRegressor").with_trees()
WAITING = [Candidate("linear", "", quick=True), Candidate("nearest", ""), TREES]


def table_of(kind, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(ROWS + OUT, 4))
    steps = np.floor(4 * X[:, 0]) + 2.0 * (X[:, 1] > 0.4)
    line = X @ [3.0, -2.0, 1.0, 0.5]
    return X, (steps if kind == "steps" else line) + 0.1 * rng.normal(size=len(X))


def track_of(X, y, **changed):
    """One fold; trees are really grown."""
    fold = Fold(np.arange(ROWS), np.arange(ROWS, ROWS + OUT))
    parts = [Rows(X[where], y[where], checked=True) for where in (fold.training, fold.held_out)]

    def grown(number, rows, warp):
        return grow(np.asarray(rows.X), np.asarray(warp.forward(rows.y)), seed=0)

    track = Track([fold], lambda number: (*parts, ()), lambda *given: None, 0, False, grown)
    return replace(track, **changed)


def of_line(X, y, warp):
    """What a line of the training rows says of the others, as the first that has run."""
    features = np.column_stack([np.ones(len(X)), X])
    weights = np.linalg.lstsq(features[:ROWS], np.asarray(warp.forward(y[:ROWS])), rcond=None)[0]
    mean = features[ROWS:] @ weights
    mean = np.exp(mean) if isinstance(warp, Log) else mean
    zeros = np.zeros(OUT)
    judged = Judged(zeros, (mean - y[ROWS:]) ** 2, zeros, mean, zeros)
    return Ran(Candidate("exact", ""), warp, Entry("exact", "own", ROWS, 1.0, 0.0), judged)


@pytest.mark.parametrize(("kind", "first"), [("steps", "exact on trees"), ("line", "linear")])
@pytest.mark.parametrize("scale", ["own", "log"])
def test_trees_are_next_where_they_alone_are_nearer(kind, first, scale):
    X, y = table_of(kind)
    warp = Own()
    if scale == "log":
        y, warp = np.exp(0.3 * y), Log()
    found = trees_next(track_of(X, y), of_line(X, y, warp), WAITING, 8.0)
    assert found[0].name == first
    assert sorted(one.name for one in found) == sorted(one.name for one in WAITING)
    # they have their turn, too, where there are ten seconds for a model and them
    assert trees_next(track_of(X, y), of_line(X, y, warp), WAITING, 10.0) == WAITING


def test_without_time_trees_or_a_score_the_order_stays():
    X, y = table_of("steps")
    track, ran = track_of(X, y), of_line(X, y, Own())
    assert trees_next(track, ran, WAITING, 0.5) == WAITING
    assert trees_next(replace(track, grown=None), ran, WAITING, 8.0) == WAITING
    assert trees_next(replace(track, classes=True), ran, WAITING, 8.0) == WAITING
    assert trees_next(track, replace(ran, judged=None), WAITING, 8.0) == WAITING
    assert trees_next(track, ran, WAITING[:2], 4.0) == WAITING[:2]


@pytest.mark.parametrize(("kind", "trees"), [("steps", True), ("line", False)])
def test_a_short_race_goes_on_for_trees_alone(kind, trees, monkeypatch):
    """Each uses up what it is given, of a race of ten seconds: without trees the line is the last with time."""
    X, y = table_of(kind)
    clock = [0.0]
    monkeypatch.setattr(race.time, "perf_counter", lambda: clock[0])

    def spend(track, candidate, warp, seconds, y_scale, deadline):
        clock[0] += max(seconds, 7.0 if candidate.name == "exact" else 0.0)
        ran = of_line(X, y, warp)
        return replace(
            ran,
            candidate=candidate,
            entry=replace(ran.entry, method=candidate.name, seconds=seconds),
        )

    monkeypatch.setattr(race, "run_one", spend)
    ran, _ = run_race(
        track_of(X, y), [Candidate("exact", ""), *WAITING], [Own()],
        deadline=10.0, y_scale=1.0, verbose=False, least=4.0,
    )  # fmt: skip
    timed = [one.entry.method for one in ran if one.entry.note == ""]
    assert ("exact on trees" in timed) == trees
    assert clock[0] <= (14.0 if trees else 10.0)
