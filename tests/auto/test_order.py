"""Trees before others where they alone beat what has run, and a race that is longer for them."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

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


@pytest.mark.parametrize(("kind", "found"), [("steps", TREES), ("line", None)])
@pytest.mark.parametrize("scale", ["own", "log"])
def test_trees_are_next_where_they_alone_are_nearer(kind, found, scale):
    X, y = table_of(kind)
    warp = Own()
    if scale == "log":
        y, warp = np.exp(0.3 * y), Log()
    assert trees_next(track_of(X, y), of_line(X, y, warp), WAITING, 8.0) == found
    # they have their turn, too, where there are ten seconds for a model and them
    assert trees_next(track_of(X, y), of_line(X, y, warp), WAITING, 10.0) is None


def classes_of(kind, count, seed=3):
    """Labels of steps, or of a line, and what one who knows nothing but a line, or steps, says of the held-out rows."""
    X, y = table_of(kind, seed)
    labels = np.searchsorted(np.quantile(y, np.arange(1, count) / count), y)
    track = track_of(X, labels)

    def grown(number, rows, warp):
        return grow(np.asarray(rows.X), np.asarray(rows.y), classes=count, seed=0)

    return X, labels, replace(track, classes=True, grown=grown)


def of_classes(proba):
    zeros = np.zeros(len(proba))
    judged = Judged(zeros, zeros, proba, zeros, zeros)
    return Ran(Candidate("tsvgp", ""), Own(), Entry("tsvgp", "own", ROWS, 1.0, 0.0), judged)


@pytest.mark.parametrize("count", [2, 4])
def test_trees_of_classes_are_next_where_they_alone_are_nearer(count):
    """By the squared error of probabilities: a race of 15 s ended before trees had their turn."""
    X, labels, track = classes_of("steps", count)
    line = LogisticRegression(max_iter=1000).fit(X[:ROWS], labels[:ROWS]).predict_proba(X[ROWS:])
    right = np.eye(count)[labels[ROWS:]]
    assert trees_next(track, of_classes(line), WAITING, 8.0) == TREES
    assert trees_next(track, of_classes(0.9 * right + 0.1 / count), WAITING, 8.0) is None
    assert trees_next(track, of_classes(line), WAITING, 0.5) is None


def test_trees_that_have_not_seen_a_class_keep_their_turn():
    track = classes_of("steps", 2)[2]
    third = np.full((OUT, 3), 1.0 / 3.0)
    assert trees_next(track, of_classes(third), WAITING, 8.0) is None


def test_without_time_trees_or_a_score_the_order_stays():
    X, y = table_of("steps")
    track, ran = track_of(X, y), of_line(X, y, Own())
    assert trees_next(track, ran, WAITING, 0.5) is None
    assert trees_next(replace(track, grown=None), ran, WAITING, 8.0) is None
    assert trees_next(track, replace(ran, judged=None), WAITING, 8.0) is None
    assert trees_next(track, ran, WAITING[:2], 4.0) is None


@pytest.mark.parametrize(("kind", "trees"), [("steps", True), ("line", False)])
@pytest.mark.parametrize("waiting", [WAITING, [TREES, *WAITING[:2]]], ids=["last", "next"])
def test_a_short_race_goes_on_for_trees_alone(kind, trees, waiting, monkeypatch):
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
        track_of(X, y), [Candidate("exact", ""), *waiting], [Own()],
        deadline=10.0, y_scale=1.0, verbose=False, least=4.0,
    )  # fmt: skip
    timed = [one.entry.method for one in ran if one.entry.note == ""]
    assert ("exact on trees" in timed) == trees
    assert clock[0] <= (14.0 if trees else 10.0)
