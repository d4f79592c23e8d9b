"""Of classes the one model that there is time for has trees, unless they say less of some rows than a process."""

from dataclasses import replace

import numpy as np
import pytest

from vastgp.auto import class_alone
from vastgp.auto.candidates import alone
from vastgp.auto.class_alone import likelier_alone
from vastgp.auto.class_candidates import classifiers
from vastgp.auto.firsts import Shape
from vastgp.auto.folds import Fold
from vastgp.auto.track import Track
from vastgp.auto.trees import grow
from vastgp.data import Rows
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.likelihoods import Gaussian

ROWS = 1200
PLAIN, TREES = "tsvgp", "tsvgp on trees"


def track_of(kind, classes, seed=5):
    """One fold, whose trees are really grown: of a smooth function no axis tells, or of steps along axes."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(ROWS, 4))
    smooth = np.sin(3.0 * X @ [0.6, -0.8, 0.7, 0.5])
    steps = np.floor(3.0 * X[:, 0]) + 2.0 * np.floor(2.5 * X[:, 1]) * (X[:, 2] > 0.3)
    f = (smooth if kind == "smooth" else steps) + 0.01 * rng.normal(size=ROWS)
    y = np.searchsorted(np.quantile(f, np.arange(1, classes) / classes), f).astype(np.float64)
    rows = Rows(X, y, checked=True)

    def grown(number, rows, warp):
        return grow(np.asarray(rows.X), np.asarray(rows.y), classes=classes, seed=0)

    fold = Fold(np.arange(ROWS), np.arange(0))
    return Track([fold], lambda number: (rows, rows, ()), lambda *given: None, 0, True, grown)


def found_for(classes, seconds=15.0):
    return classifiers(50_000, 4, 4, classes=classes, seconds=seconds)


@pytest.mark.parametrize(("kind", "name"), [("smooth", PLAIN), ("steps", TREES)])
@pytest.mark.parametrize("classes", [2, 4])
def test_trees_are_an_input_unless_a_process_says_clearly_more(kind, name, classes):
    track = track_of(kind, classes)
    assert likelier_alone(track, found_for(classes), 25.0).name == name
    # several classes begin at what the process has learned: their own search has few rows
    begins = track.firsts._found.get((0, class_alone.Own(), False), {})
    assert (Gaussian in begins) == (name == PLAIN and classes > 2)
    for first, shape in begins.values():
        assert shape == Shape(ROWS, 4)
        assert not first.complete


def test_labels_left_out_have_the_probabilities_of_a_process_without_their_row():
    """Against the posterior of all rows but one, for some of them."""
    track = track_of("smooth", 3)
    whole = track.encoded(0)[0]
    X, labels = whole.X[:60], np.asarray(whole.y[:60], np.int64)
    first, proba = class_alone._of_process(Rows(X, whole.y[:60], checked=True), labels, 3, 0)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    noise = float(first.likelihood.noise_variance)
    K = ExactEvidence(Z, Z[:, 0])._covariance(first.kernel) + noise * np.eye(60)
    one_hot = np.eye(3)[labels]
    mean, std = one_hot.mean(axis=0), one_hot.std(axis=0)
    for row in (0, 17, 59):
        others = np.arange(60) != row
        weights = np.linalg.solve(K[np.ix_(others, others)], ((one_hot - mean) / std)[others])
        expected = np.clip(mean + std * (K[row, others] @ weights), 0.0, 1.0)
        np.testing.assert_allclose(proba[row], expected, atol=1e-8)


def test_copies_of_rows_say_nothing_of_a_process():
    """Each row three times: a process would know each by its copies, trees are grown without them."""
    track = track_of("steps", 2)
    rows = track.encoded(0)[0]
    some = np.repeat(np.arange(400), 3)
    copies = Rows(rows.X[some], rows.y[some], checked=True)
    assert class_alone._of_different_places(copies).n == 400
    track = replace(track, encoded=lambda number: (copies, copies, ()))
    assert likelier_alone(track, found_for(2), 15.0).name == TREES


def test_without_time_or_trees_the_first_runs():
    track, found = track_of("smooth", 2), found_for(2)
    assert likelier_alone(track, found, 5.0) == alone(found, 5.0)
    # the comparison of five classes is a sixth of this
    five = found_for(5)
    assert likelier_alone(track_of("smooth", 5), five, 14.0) == alone(five, 14.0)
    assert likelier_alone(replace(track, grown=None), found, 15.0) == alone(found, 15.0)
    without = [one for one in found if not one.on_trees]
    assert likelier_alone(track, without, 15.0) == alone(without, 15.0)


def test_what_cannot_be_compared_has_trees():
    def fails(number, rows, warp):
        raise ValueError("a class with one row")

    track = track_of("smooth", 2)
    assert likelier_alone(replace(track, grown=fails), found_for(2), 15.0).name == TREES
    rows = track.encoded(0)[0]
    one = Rows(rows.X, np.zeros(ROWS), checked=True)
    assert (
        likelier_alone(replace(track, encoded=lambda n: (one, one, ())), found_for(2), 15.0).name
        == TREES
    )
