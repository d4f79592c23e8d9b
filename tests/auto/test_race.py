"""The race: who is judged by what, and who wins."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from promises import no_strange_warnings
from vastgp import RBF, ExactGPRegressor, GPClassifier, GPRegressor, SWSGPRegressor
from vastgp.auto import base, candidates, finish, race
from vastgp.auto.budget import dealt
from vastgp.auto.calibration import PSEUDO_ROWS, fit_calibration
from vastgp.auto.candidates import Candidate
from vastgp.auto.class_candidates import classifiers
from vastgp.auto.folds import Fold, folds_of, some_rows, with_every_class
from vastgp.auto.inputs import Inputs
from vastgp.auto.leaderboard import Entry, Leaderboard
from vastgp.auto.race import best_of, run_race
from vastgp.auto.track import Judged, Ran, Track, scores_of
from vastgp.auto.warps import Log, Own
from vastgp.data import Places, Rows
from vastgp.likelihoods import Gaussian, HeteroskedasticGaussian
from vastgp.solvers import plan
from vastgp.solvers.plan import operations_of_exact


def _ran(name, log_density):
    log_density = np.asarray(log_density, np.float64)
    zeros = np.zeros(len(log_density))
    judged = Judged(log_density, zeros, zeros, zeros, zeros)
    return Ran(
        Candidate(name, ""), Own(), Entry(name, "own", 1, 1.0, float(-log_density.mean())), judged
    )


def test_a_last_fit_to_fewer_rows_than_the_race_had_is_none():
    """A race on two scales spent a budget of 500 rows, and the winner was fitted again to the two that were left."""
    ran = _ran("exact", [0.0])
    best = replace(ran, entry=replace(ran.entry, rows=50))
    inputs, whole = object.__new__(Inputs), object.__new__(finish.Whole)
    vars(inputs).update(folds=5)
    vars(whole).update(inputs=inputs, deadline=None)
    few = Candidate("exact", "ExactGPRegressor").with_at_most(49)
    assert finish.fit_to_all(best, [few], whole, Own()) is None


@pytest.mark.parametrize(
    ("last", "short"),
    [
        (("own", True, Gaussian), False),  # it says that noise does not vary
        (("own", False, Gaussian), True),  # it had no time to look
        (("own", False, HeteroskedasticGaussian), False),
        (("subset", False, HeteroskedasticGaussian), True),
    ],
)
def test_a_last_fit_without_time_for_what_the_race_found_falls_short(last, short):
    def model(answer, converged, noise):
        return SimpleNamespace(answer_=answer, converged_=converged, likelihood_=noise(1.0))

    of_race = replace(_ran("exact", [0.0]), model=model("own", True, HeteroskedasticGaussian))
    assert finish._falls_short(model(*last), of_race) == short


def test_losses_beyond_the_root_of_float64_have_an_error():
    """Held-out rows a thousand deviations off at scales of 1e84: their squares were an overflow."""
    zeros, loss = np.zeros(4), np.array([1.0, 2.0, 4.0, 1.0])
    with no_strange_warnings():
        plain, far = (
            scores_of(Judged(-unit * loss, zeros, zeros, zeros, zeros), False, 1.0)
            for unit in (1.0, 2.0**700)
        )
    assert far["nlpd_error"] == 2.0**700 * plain["nlpd_error"] == 2.0**700 * np.std(loss) / 2.0


def test_every_row_of_few_is_held_out_once():
    folds = folds_of(103, 0, 5.0)
    assert len(folds) == 5
    np.testing.assert_array_equal(
        np.sort(np.concatenate([f.held_out for f in folds])), np.arange(103)
    )
    for fold in folds:
        assert not set(fold.training) & set(fold.held_out)
        assert len(fold.training) + len(fold.held_out) == 103


@pytest.mark.parametrize(
    ("n", "seconds", "out"),
    [(300, 5.0, 100), (120, 4.0, 40), (3000, 60.0, 600), (10**5, None, 2000), (10**5, 15.0, 1000)],
)
def test_a_part_of_many_is_held_out(n, seconds, out):
    (fold,) = folds_of(n, 0, seconds)
    assert len(fold.held_out) == out and len(fold.training) == n - out


@pytest.mark.parametrize(("classes", "folds"), [(2, 5), (3, 1), (10, 1)])
def test_folds_are_for_as_many_functions_as_a_model_has(classes, folds):
    """Of ten classes five fits of half a second took 2.5 s each, and none came to an answer of its own."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    inputs = Inputs.of(X, None, None, np.arange(300), None, 300)
    model = GPClassifier()
    model.classes_ = np.arange(classes)
    assert len(model._folds(inputs, 300, 0, 15.0)) == folds
    assert len(model._folds(inputs, 300, 0, None)) == 5


@pytest.mark.parametrize(("n", "seconds"), [(400, 60.0), (400, 5.0), (5000, 60.0)])
def test_rows_that_repeat_each_other_are_held_out_together(n, seconds):
    groups = np.random.default_rng(0).integers(n // 4, size=n)
    groups = np.unique(groups, return_inverse=True)[1]
    folds = folds_of(n, 0, seconds, groups)
    for fold in folds:
        assert not set(groups[fold.training]) & set(groups[fold.held_out])
        assert len(fold.training) + len(fold.held_out) == n
        assert len(fold.held_out) >= 0.15 * n
    if len(folds) > 1:
        assert sum(len(fold.held_out) for fold in folds) == n


@pytest.mark.parametrize("n", [103, 3000])
def test_training_rows_have_every_class(n):
    labels = np.zeros(n, np.int64)
    labels[:5], labels[5:7], labels[7] = 1, 2, 3
    for seed in range(5):
        before = folds_of(n, seed, None)
        for fold in with_every_class(before, labels):
            assert set(labels[fold.training]) == {0, 1, 2, 3}
            assert not set(fold.training) & set(fold.held_out)
            assert len(fold.training) + len(fold.held_out) == n
        # what all folds had in training stays held out
        held = np.concatenate([fold.held_out for fold in with_every_class(before, labels)])
        lost = set(np.concatenate([fold.held_out for fold in before])) - set(held)
        assert lost <= {5, 6, 7}
    only = with_every_class(folds_of(60, 0, 5.0), np.arange(60))
    assert only == []  # nothing is left to judge by


def test_a_part_of_the_rows_has_every_class():
    labels = np.zeros(500)
    labels[[3, 77]], labels[499] = 1.0, 2.0
    rows = Rows(np.arange(500.0)[:, None], labels, checked=True)
    for seed in range(20):
        some = some_rows(rows, 5, seed, classes=True)
        assert some.n == 5 == len(np.unique(some.X)) and set(some.y) == {0.0, 1.0, 2.0}
        np.testing.assert_array_equal(some.y, labels[some.X[:, 0].astype(int)])
        assert len(set(some_rows(rows, 2, seed, classes=True).y)) == 2
        plain = some_rows(rows, 5, seed)
        if set(plain.y) == {0.0, 1.0, 2.0}:
            np.testing.assert_array_equal(plain.X, some.X)
    assert any(set(some_rows(rows, 5, seed).y) == {0.0} for seed in range(20))


def test_which_rows_repeat_each_other():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 3))
    X = np.concatenate([X, X[:20] + 1e-5, generator.normal(size=(20, 3))])

    def repetitions(X):
        return Inputs.of(X, None, None, np.arange(len(X)), None, len(X)).repetitions().groups

    groups = repetitions(X)
    assert len(np.unique(groups)) == 80
    np.testing.assert_array_equal(groups[60:80], groups[:20])
    assert repetitions(X[:60]) is None
    assert repetitions(np.round(X)) is None  # whole numbers


def test_rows_of_a_few_places_are_not_judged_by_their_repetitions():
    """Of twelve places there is nothing to judge by, whatever the rows; one of forty is held out with all its rows."""
    rng = np.random.default_rng(0)

    def folds(places, nearly):
        X = rng.normal(size=(places, 3))[np.arange(100) % places]
        X = X + nearly * rng.normal(size=X.shape)
        inputs = Inputs.of(X, None, None, np.arange(100), None, 100)
        return X, GPRegressor()._folds(inputs, 100, 0, 3.0)

    X, (fold,) = folds(40, 1e-7)
    away = np.abs(X[fold.held_out][:, None] - X[fold.training]).max(axis=2)
    assert np.min(away) > 0.01
    assert folds(12, 1e-7)[1] == []
    # the same exactly: a design, whose places come again
    assert len(folds(12, 0.0)[1]) == 1


def test_a_later_one_must_be_clearly_better():
    generator = np.random.default_rng(0)
    first, noise = generator.normal(size=400), generator.normal(size=400)
    error = noise.std() / 20.0
    slightly = first + (noise - noise.mean()) + 0.9 * error
    clearly = first + (noise - noise.mean()) + 1.1 * error
    assert best_of([_ran("a", first), _ran("b", slightly)]) == 0
    assert best_of([_ran("a", first), _ran("b", clearly)]) == 1
    assert best_of([_ran("a", first), _ran("b", np.full(400, -np.inf))]) == 0
    assert best_of([Ran(Candidate("a", ""), Own(), Entry("a", "own", 1, 1.0))]) is None


def _repeated(judged, times):
    """What is judged, each row so many times, in a random order."""
    n = len(judged.log_density)
    row = np.random.default_rng(1).permutation(np.repeat(np.arange(n), times))
    values = {
        name: getattr(judged, name)[row]
        for name in ("log_density", "off", "scores", "mean", "std", "weight")
        if getattr(judged, name) is not None
    }
    return Judged(**values, of_places=Places.of(row, np.arange(len(row))))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("times", [20, "unequal"])
def test_rows_that_repeat_each_other_count_once(times, weighted):
    """Scores, their errors, the winner and the calibration are those of the places, however often each is there."""
    rng = np.random.default_rng(3)
    n = 60
    times = rng.integers(1, 40, size=n) if times == "unequal" else times
    weight = rng.uniform(0.2, 3.0, size=n) if weighted else None
    first = rng.normal(size=n)
    # better, by less than its error among places, of which twenty times as many rows would be sure
    second = first + rng.normal(0.05, 1.0, size=n)
    ran = []
    for name, density in (("a", first), ("b", second)):
        z = 1.5 * rng.normal(size=n)
        once = Judged(density, z**2, z, 0.0 * z, np.ones(n), weight)
        ran.append([Ran(Candidate(name, ""), Own(), Entry(name, "own", 1, 1.0), once)])
        ran[-1].append(replace(ran[-1][0], judged=_repeated(once, times)))
    for single, many in ran:
        plain, again = (scores_of(one.judged, False, 2.0) for one in (single, many))
        for name, value in plain.items():
            np.testing.assert_allclose(again[name], value, rtol=1e-12, err_msg=name)
    entries = [
        [
            replace(one, entry=replace(one.entry, **scores_of(one.judged, False, 1.0)))
            for one in them
        ]
        for them in zip(*ran, strict=True)
    ]
    assert best_of(entries[0]) == best_of(entries[1])
    plain, again = (
        fit_calibration(one.judged.scores, "scale", 0, one.judged.places) for one in ran[0]
    )
    assert plain.factor == pytest.approx(again.factor, rel=1e-12)


def test_the_choice_is_of_independent_places():
    """By rows, a model that is better at two of twelve places by luck would win; by places it does not."""
    rng = np.random.default_rng(0)
    behind = rng.normal(size=12)
    behind += 0.7 * behind.std() / np.sqrt(12) - behind.mean()
    once = [_ran("a", np.zeros(12)), _ran("b", behind)]
    many = [replace(one, judged=_repeated(one.judged, 20)) for one in once]
    apart = [replace(one, judged=replace(one.judged, of_places=None)) for one in many]
    assert best_of(once) == best_of(many) == 0
    assert best_of(apart) == 1


def test_the_leaderboard_of_a_table_whose_rows_stand_twenty_times():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    y = np.sin(6.0 * X[:, 0]) + 0.3 * rng.normal(size=60)
    X, y = np.repeat(X, 20, axis=0), np.repeat(y, 20)
    model = GPRegressor("exact", max_seconds=None, max_work=10**5, calibrate="scale").fit(X, y)
    (entry,), held = model.leaderboard_, model.held_out_
    loss = -held["log_density"].reshape(-1, 20)
    assert np.all(np.ptp(loss, axis=1) < 1e-6) and len(loss) == 12
    np.testing.assert_allclose(entry.nlpd_error, loss[:, 0].std() / np.sqrt(12), rtol=1e-6)
    z = held["scores"].reshape(-1, 20)[:, 0]
    # they are to be narrowed, which the 48 places that were not held out resist
    factor = np.sqrt((np.sum(z**2) + PSEUDO_ROWS + 48) / (12 + PSEUDO_ROWS + 48))
    assert np.sum(z**2) < 12
    assert model.calibration_.factor == pytest.approx(factor, rel=1e-6)


def _track(judge, n=60):
    X = np.random.default_rng(0).normal(size=(n, 1))
    y = np.sin(X[:, 0])
    folds = folds_of(n, 0, 5.0)

    def encoded(number):
        fold = folds[number]
        return (
            Rows(X[fold.training], y[fold.training]),
            Rows(X[fold.held_out], y[fold.held_out]),
            ((0,),),
        )

    return Track(folds, encoded, judge, 0, False)


def test_a_failure_is_an_entry_and_ends_nothing():
    def judge(model, warp, rows):
        found = model.distribution(rows.X)
        zeros = np.zeros(rows.n)
        return Judged(found.log_density(rows.y), zeros, zeros, found.mean, found.std)

    runners = [
        Candidate("broken", "ExactGPRegressor", {"kernel": "no such kernel"}),
        Candidate("exact", "ExactGPRegressor", {"kernel": "rbf"}),
    ]
    ran, winner = run_race(
        _track(judge), runners, [Own()], deadline=None, y_scale=1.0, verbose=False
    )
    assert winner == 1
    assert ran[0].entry.note.startswith("failed: kernel must be one of") and np.isnan(
        ran[0].entry.nlpd
    )
    assert np.isfinite(ran[1].entry.nlpd) and ran[1].model.kernel_ is not None


def test_without_time_the_first_runs_and_the_others_say_why_not():
    def judge(model, warp, rows):
        zeros = np.zeros(rows.n)
        return Judged(zeros, zeros, zeros, zeros, zeros)

    runners = [Candidate(name, "ExactGPRegressor", {"kernel": "rbf"}) for name in ("a", "b", "c")]
    ran, winner = run_race(
        _track(judge), runners, [Own()], deadline=0.0, y_scale=1.0, verbose=False
    )
    assert winner == 0
    assert [one.entry.note for one in ran[1:]] == ["no time was left"] * 2


def test_the_leaderboard_has_the_winner_first_then_by_score():
    entries = (
        Entry("a", "own", 9, 1.0, 0.3),
        Entry("b", "own", 9, 1.0, 0.1),
        Entry("c", "own", 9, 1.0, note="failed: x"),
    )
    board = Leaderboard(entries).sorted_with(0)
    assert [entry.method for entry in board] == ["a", "b", "c"]
    assert [entry.kept for entry in board] == [True, False, False]
    # what is not a number is not equal to itself
    again = Leaderboard.from_dicts(board.to_dicts(), False)
    assert repr(again.entries[:2]) == repr(board.entries[:2])
    assert "failed: x" in str(board)


def test_who_runs_follows_from_the_table():
    def names(**changes):
        given = {
            "n": 500,
            "d": 5,
            "tied": False,
            "counts": False,
            "likelihood": "auto",
        } | changes
        return [one.name for one in candidates.regressors(given.pop("n"), given.pop("d"), **given)]

    # what finds noise that varies is third: of some hundred rows turns with it, of more the nearest rows
    assert names()[:4] == ["exact", "linear", "exact, heteroskedastic", "exact on trees"]
    assert names(n=1500)[:4] == ["exact", "linear", "nearest", "exact on trees"]
    assert all(len(set(given)) == len(given) for given in (names(), names(n=1500)))
    assert names(counts=True)[:3] == ["exact", "linear", "exact on trees"]
    assert "qsgp" not in names() and "qsgp" in names(n=5000)
    # of many rows the exact process comes first as well, then what takes all of them
    assert names(n=50_000)[:5] == [
        "exact",
        "nearest",
        "linear",
        "nearest on trees",
        "exact on trees",
    ]
    assert names(n=50_000)[5] == "qsgp on trees"
    # of fewer they tell a scale of their own, after the exact process has been tried
    assert names()[4:6] == ["nearest", "nearest on trees"] and "nearest" not in names(n=499)
    assert "tsvgp, poisson" in names(counts=True) and "tsvgp, student-t" not in names(counts=True)
    assert "grief" in names(n=5000) and "grief" not in names(n=5000, tied=True)
    assert names(likelihood="student-t") == ["tsvgp", "svgp", "swsgp"]
    assert set(names(n=5000, own_noise=True)) == {
        "exact",
        "exact on trees",
        "qsgp",
        "qsgp on trees",
        "linear",
        "nearest",
        "nearest on trees",
        "tsvgp",
        "iterative",
    }


@pytest.mark.little_work
def test_which_classes_are_told_apart_by_what():
    """Within 15 s of 20,000 rows two had half of a race each, and neither came to an answer of its own."""

    def names(n=20_000, d=9, seconds=15.0, **changes):
        return [one.name for one in classifiers(n, d, d, seconds=seconds, **changes)]

    assert names(n=1000) == ["tsvgp", "tsvgp on trees", "linear"]
    many = names()
    assert many[:4] == ["swsgp", "tsvgp on trees", "tsvgp", "linear"]
    assert set(many) == set(names(seconds=None)) == {*many[:4], "qsgp", "direct"}
    # the neighbourhoods of a row take longer than there is, or are none
    assert names(seconds=5.0)[0] == names(d=61)[0] == "tsvgp on trees"
    # trees of every class cost their time, and more classes more of it
    assert names(classes=5)[0] == "tsvgp on trees" and names(classes=10)[0] == "tsvgp"
    assert names(classes=10, seconds=60.0)[0] == "tsvgp on trees"
    assert names(n=900, classes=5)[0] == "tsvgp on trees"
    for left, races in ((15.0, False), (39.0, False), (41.0, True)):
        assert dealt(left, 20_000, classifiers(20_000, 9, 9), 1).races == races


def test_trees_take_no_time_beyond_that_of_the_race(monkeypatch):
    """Of five classes they took 8 s of 15, for which nobody had asked the clock."""
    given, clock = [], [0.0]

    class Model:
        def fit(self, X, y):
            raise ValueError("this is all that the test asks")

    def grow(number, rows, warp):
        clock[0] += 6.0

    track = Track(
        [Fold(np.arange(3), np.arange(2))], lambda number: (Rows(np.zeros((3, 1)), np.zeros(3)),) * 2 + ((),),
        lambda *some: None, 0, False, grow,
    )  # fmt: skip
    monkeypatch.setattr(race.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(
        Candidate, "make", lambda self, *, seconds, **more: given.append(seconds) or Model()
    )
    on_trees = Candidate("tsvgp", "TSVGPRegressor").with_trees()
    race.run_one(track, on_trees, Own(), 9.0, 1.0)
    race.run_one(track, on_trees, Own(), 9.0, 1.0, deadline=6.0 + 10.0)
    assert given == [9.0, 4.0]


def test_how_many_rows_an_exact_process_takes_follows_from_the_budget(monkeypatch):
    monkeypatch.setattr(plan, "operations_a_second", lambda: 1e11)
    monkeypatch.setattr(candidates, "affordable_rows", lambda itemsize: 40_000)
    # the posterior takes the whole budget
    found = [candidates.most_exact_rows(seconds) for seconds in (0.01, 60.0, 120.0, 1e6)]
    assert found[0] == 3000 and found[-1] == 40_000
    for n, seconds in zip(found[1:3], (60.0, 120.0), strict=True):
        assert operations_of_exact(n, 4) == pytest.approx(1e11 * seconds, rel=1e-3)
    # or a share of it, in float64
    for seconds in (60.0, 600.0, 3600.0):
        n = plan.affordable_exact(0.03 * seconds, 8)
        assert operations_of_exact(n, 8) == pytest.approx(0.03e11 * seconds, rel=1e-3)
    assert candidates.most_exact_rows(None) == 20_000
    # the same on any machine
    assert candidates.most_exact_rows(1e6, timed=False) == 3000


def test_of_more_rows_than_the_exact_process_is_given_it_has_a_random_part():
    def given(n):
        found = candidates.regressors(
            n, 5, tied=False, counts=False, likelihood="auto", exact_rows=4000
        )
        return {one.name: one.most_rows for one in found}

    assert given(4000)["exact"] is None
    assert given(4001)["exact"] == given(4001)["exact on trees"] == 4000
    assert given(4001)["nearest"] is None


def test_a_model_says_how_many_rows_its_posterior_has_seen():
    part = SimpleNamespace(conditioned_rows_=np.arange(7))
    whole = SimpleNamespace()
    assert race.rows_seen(part, 20) == 7 and race.rows_seen(whole, 20) == 20
    assert race.rows_seen(SimpleNamespace(members=(part, part)), 20) == 7
    assert race.rows_seen(SimpleNamespace(members=(part, whole)), 20) == 20


@pytest.mark.parametrize(
    ("n", "budget", "scales", "models"),
    [
        (1500, 11.9, 1, 1),
        (1500, 12.1, 1, 9),
        (1500, 11.9, 2, 1),
        (1501, 12.1, 2, 9),
        (5000, 27.0, 1, 1),
        (5000, 29.0, 1, 9),
    ],
)
def test_with_little_time_one_model_has_all_of_it(monkeypatch, n, budget, scales, models):
    """Who is sent into the race; beyond one, all are, and it gets half of the budget, of few rows more."""
    (sent,) = _sent(monkeypatch, n, budget, scales)
    share = 0.65 if n <= 1500 else 0.5
    wanted = (1, 1, budget) if models == 1 else (models, scales, share * budget)
    assert (len(sent.given), len(sent.warps), sent.deadline) == wanted


def test_scales_of_many_rows_are_compared_on_few_of_them_where_one_model_runs(monkeypatch):
    first, then = _sent(monkeypatch, 5000, 20.0, 2, [-1.0, -0.5])
    (few,), (one,) = first.given, then.given
    assert (few.name, few.most_rows, len(first.warps)) == ("exact", 1000, 2)
    assert (one.name, one.most_rows, [each.name for each in then.warps]) == (
        "nearest", None, ["log"],
    )  # fmt: skip
    assert (first.deadline, then.deadline) == (pytest.approx(6.0), 20.0)


@pytest.mark.parametrize("density", [-13.0, -1.43, np.nan, -1.41, 2.0])
def test_one_that_says_nothing_is_compared_with_what_takes_no_time(monkeypatch, density):
    """A normal density with the rows' own mean and deviation is -1.419 in the mean."""
    first, *more = _sent(monkeypatch, 5000, 20.0, 1, [density])
    assert [one.name for one in first.given] == ["nearest"]
    says = density > -0.5 * np.log(2.0 * np.pi * np.e)
    assert [one.name for each in more for one in each.given] == ([] if says else ["linear"])


def _sent(monkeypatch, n, budget, scales, densities=(0.0, 0.0)):
    """Return what is sent into races; the scales of each have these densities."""
    sent, told = [], [_ran("exact", [density] * 20) for density in densities]

    def look(track, given, warps, *, deadline, **rest):
        sent.append(SimpleNamespace(given=given, warps=warps, deadline=deadline))
        ran = [
            replace(one, warp=warp, entry=replace(one.entry, nlpd_standardised=one.entry.nlpd))
            for one, warp in zip(told, warps, strict=False)
        ]
        return ran, best_of(ran)

    monkeypatch.setattr(base, "run_race", look)
    monkeypatch.setattr(race, "run_race", look)
    monkeypatch.setattr(base.time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(GPRegressor, "_warps", lambda self, y, seed: [Own(), Log()][:scales])
    given = candidates.regressors(n, 5, tied=False, counts=False, likelihood="auto")[:9]
    track = Track(
        [Fold(np.arange(3), np.arange(2))], lambda number: None, lambda *some: None, 0, False
    )
    GPRegressor()._run(track, given, np.zeros(n), budget)
    return sent


@pytest.mark.parametrize(
    ("n", "seconds", "name"),
    [
        (400, 11.0, "exact"),
        (2000, 1.5, "exact"),
        (2000, 5.0, "nearest"),
        (5000, 11.0, "nearest"),
        (50_000, 27.0, "nearest"),
    ],
)
def test_the_one_that_has_all_of_the_time(n, seconds, name):
    given = candidates.regressors(n, 5, tied=False, counts=False, likelihood="auto")
    assert candidates.alone(given, seconds).name == name
    assert candidates.alone(given[:1], seconds).name == "exact"


def test_a_last_fit_goes_on_from_the_race_where_it_learns_by_another_measure():
    """Kernel and noise of the race, standardised, are what the fit begins with, without a search."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1.0, 1.0, size=(80, 2)) * [1.0, 5.0]
    y = 3.0 * np.sin(3.0 * X[:, 0]) + 0.1 * generator.normal(size=80)
    model = SWSGPRegressor(RBF([1.0, 1.0]), num_neighbors=20, solver="nearest").fit(X, y)
    candidate = candidates.named("nearest", False, "auto")
    assert candidate.goes_on and not candidates.named("exact", False, "auto").goes_on
    made = candidate.make(seed=0, seconds=None)
    finish._go_on(made, Ran(candidate, Own(), Entry("nearest", "own", 80, 1.0), None, model))
    (first,) = made._known_firsts
    scaling = model.standardizer_
    assert first.complete
    np.testing.assert_allclose(
        first.kernel.lengthscales, np.asarray(model.kernel_.lengthscales) / scaling.x_scale
    )
    noise = float(model.likelihood_.noise_variance) / scaling.y_scale**2
    np.testing.assert_allclose(float(first.likelihood.noise_variance), noise)


@pytest.mark.parametrize("answer", ["own", "average", "linear"])
def test_a_fit_to_all_rows_begins_with_the_kernel_of_a_process_alone(answer):
    """The prior of an average holds that of lines too: learned as one process' it was sure of what was open."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    function = {
        "own": np.sin(3.0 * X[:, 0]),
        "average": 0.25 * X[:, 1] ** 2,
        "linear": 3.0 * X[:, 0],
    }
    model = ExactGPRegressor().fit(X, function[answer] + 0.3 * rng.normal(size=60))
    assert model.answer_ == answer
    candidate = candidates.regressors(60, 3, tied=False, counts=False, likelihood="auto")[0]
    kernel = finish._kernel_of(Ran(candidate, Own(), Entry("exact", "own", 60, 1.0), None, model))
    assert (kernel is None) == (answer != "own")


@pytest.mark.parametrize(
    ("now", "then", "stated", "alike"),
    [
        (1.0, 1.0, 1.2, True),
        (0.3, 1.0, 1.2, True),
        (0.2, 1.0, 1.2, False),  # a line in as many inputs as rows, and then in fewer
        (5.0, 1.0, 1.2, False),
        (1e-9, 1e-6, 1.2, True),  # where the function is uncertain, and not its noise
    ],
)
def test_how_a_race_was_off_says_nothing_of_another_noise(now, then, stated, alike):
    def fitted(noise, answer="own"):
        return SimpleNamespace(answer_=answer, likelihood_=Gaussian(noise))

    judged = replace(_ran("linear", [0.0] * 5).judged, spread=np.full(5, stated))
    ran = replace(_ran("linear", [0.0] * 5), judged=judged, model=fitted(then))
    assert finish.is_alike(fitted(now), ran) == alike
    assert not finish.is_alike(fitted(then, "average"), ran)
    assert finish.is_alike(fitted(now), replace(ran, judged=replace(judged, spread=None)))


@pytest.mark.parametrize(
    ("n", "left", "races"),
    [
        (200, 2.9, False), (200, 3.1, True), (500, 3.9, False), (500, 4.1, True), (1000, 7.9, False), (1000, 8.1, True),
        (3000, 11.9, False), (3000, 12.1, True), (3001, 27.9, False), (3001, 28.1, True),
    ],
)  # fmt: skip
def test_seconds_from_which_on_models_are_compared(n, left, races):
    """Of few rows so much less as they are fewer: a fit of 700 rows takes a second or two."""
    given = candidates.regressors(n, 5, tied=False, counts=False, likelihood="auto")
    deal = dealt(left, n, given, 2)
    assert deal.races == races
    # what is left is enough for one fit to all rows, of few as of many
    assert left - deal.of_race >= 0.35 * left - 1e-9
    # one model on one scale has all of the time, and no budget is no limit
    assert dealt(left, n, given[:1], 1).of_race == left
    assert dealt(None, n, given, 2)[:3] == (True, False, None)


def test_where_time_is_short_fewer_run_each_with_enough(monkeypatch):
    """Candidates that use up what they are given: who runs, and how long."""
    given = candidates.regressors(499, 5, tied=False, counts=False, likelihood="auto")
    nothing = Track([], lambda number: None, lambda model, warp, rows: None, 0, False)
    clock = [0.0]
    monkeypatch.setattr(race.time, "perf_counter", lambda: clock[0])

    def spend(track, candidate, warp, seconds, y_scale, deadline):
        clock[0] += seconds
        return Ran(candidate, warp, Entry(candidate.name, warp.name, 1, seconds))

    def seconds(race_seconds, *warps):
        monkeypatch.setattr(race, "run_one", spend)
        clock[0] = 0.0
        ran, _ = run_race(
            nothing, given, warps, deadline=race_seconds, y_scale=1.0, verbose=False, least=4.0
        )
        assert {one.entry.method for one in ran} == {one.name for one in given}
        found = {}
        for one in ran:
            if one.entry.seconds:
                found.setdefault(one.entry.method, []).append(one.entry.seconds)
        assert sum(map(sum, found.values())) <= race_seconds
        return found

    short = seconds(15.0, Own(), Log())
    assert list(short) == ["exact", "linear", "exact, heteroskedastic"]
    assert short["exact"] == [3.75, 3.75] and short["exact, heteroskedastic"][0] > 4.0
    minute = seconds(30.0, Own())
    assert list(minute.values()) == [[5.0], [3.0], [10.0], [5.0], [5.0]]
    assert list(minute)[2] == "exact, heteroskedastic"
    # equal shares where all have enough
    whole = seconds(300.0, Own())
    assert list(whole) == [one.name for one in given] and whole["exact"] == [300.0 / len(given)]


def test_a_method_that_is_none_is_refused():
    with pytest.raises(ValueError, match="method must be 'auto' or one of 'exact', 'qsgp'"):
        candidates.named("forest", False, "auto")
    with pytest.raises(ValueError, match="is not for method='grief', whose noise is normal"):
        candidates.named("grief", False, "student-t")
    with pytest.raises(ValueError, match=r"likelihood must be .*'heteroskedastic'.*'student-t'"):
        candidates.named("exact", False, "student-t")


def test_progress_tells_who_runs_and_how_far(monkeypatch):
    """Two folds, two candidates, the first on two scales: six steps, each after the one before."""
    seen = []

    class Shown(race.Progress):
        def update(self, fraction, text=""):
            seen.append((round(fraction, 6), text))

    monkeypatch.setattr(race, "Progress", Shown)
    X, y = np.arange(12.0)[:, None], np.arange(12.0)
    folds = [Fold(np.arange(6), np.arange(6, 12)), Fold(np.arange(6, 12), np.arange(6))]
    nothing = Judged(*np.zeros((5, 6)))

    class Model:
        stop_reason_ = "done"

        def fit(self, X, y):
            return self

    def encoded(number):
        parts = folds[number].training, folds[number].held_out
        return *(Rows(X[rows], y[rows], checked=True) for rows in parts), ()

    track = Track(folds, encoded, lambda model, warp, rows: nothing, 0, False)
    monkeypatch.setattr(candidates.Candidate, "make", lambda self, **given: Model())
    two = [candidates.Candidate("one", "-"), candidates.Candidate("two", "-")]
    run_race(track, two, [Own(), Own()], deadline=None, y_scale=1.0, verbose=True)
    places = [0.0, 0.125, 0.25, 0.25, 0.375, 0.5]
    assert seen[:6] == [(place, "one") for place in places]
    assert seen[6:] == [(place, "two") for place in (0.5, 0.75, 1.0)]
