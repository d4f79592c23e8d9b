"""Several models as one: weights of largest left-out density, and mixtures that are what they say."""

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.optimize import brentq
from scipy.stats import norm

import vastgp
from vastgp import ExactGPRegressor, GPClassifier, GPRegressor, TSVGPClassifier, TSVGPRegressor
from vastgp.auto.candidates import Candidate
from vastgp.auto.leaderboard import Entry
from vastgp.auto.race import Judged, Ran, scores_of
from vastgp.auto.stacking import Stack, chosen, stack_of
from vastgp.auto.stacking.mixture import mixed_scores
from vastgp.auto.stacking.weights import (
    left_out_log_density,
    mixed_log_density,
    parts_to_keep,
    stacking_weights,
)
from vastgp.auto.warps import Log, Own
from vastgp.kernels import RBF, Matern32
from vastgp.likelihoods import Gaussian, StudentT
from vastgp.options import Fixed


def rows(n=60, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.uniform(-2.0, 2.0, size=(n, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * generator.normal(size=n)


@pytest.fixture(scope="module")
def pair():
    """An exact process, and one with heavy tails, on the same rows."""
    X, y = rows()
    exact = ExactGPRegressor("rbf", max_iter=20).fit(X, y)
    heavy = TSVGPRegressor(
        Matern32(1.0), 20, likelihood=StudentT(0.2, 4.0), hyperparameters=Fixed()
    ).fit(X, y)
    return exact, heavy


# ---------------------------------------------------------------- weights


def test_weights_have_the_largest_density():
    generator = np.random.default_rng(0)
    density = generator.normal(size=(300, 3)) + np.array([0.0, 0.1, -0.5])
    found = stacking_weights(density)
    assert np.isclose(found.sum(), 1.0) and np.all(found >= 0.0)
    best = mixed_log_density(density, found).mean()
    # no weights of a fine grid are better
    step = np.linspace(0.0, 1.0, 51)
    for first in step:
        for second in step[step <= 1.0 - first + 1e-12]:
            other = np.array([first, second, max(1.0 - first - second, 0.0)])
            assert mixed_log_density(density, other).mean() <= best + 1e-7


def test_weights_are_those_of_the_law_that_drew_the_rows():
    generator = np.random.default_rng(1)
    first = generator.uniform(size=20_000) < 0.7
    y = np.where(first, generator.normal(size=20_000), 3.0 + 0.5 * generator.normal(size=20_000))
    density = np.column_stack([norm.logpdf(y), norm.logpdf(y, 3.0, 0.5)])
    np.testing.assert_allclose(stacking_weights(density), [0.7, 0.3], atol=0.01)


def test_a_part_that_finds_rows_impossible_has_no_say_on_them():
    density = np.array([[-np.inf, -1.0], [-1.0, -1.0], [-1.0, -np.inf], [-np.inf, -np.inf]])
    np.testing.assert_allclose(stacking_weights(density), [0.5, 0.5])


def test_parts_without_weight_are_left_out():
    generator = np.random.default_rng(0)
    shared = generator.normal(size=500)
    good = shared[:, None] + 0.5 * generator.normal(size=(500, 2))
    density = np.column_stack([shared - 3.0, good, shared - 4.0])
    assert sorted(parts_to_keep(density)) == [1, 2]


def test_weights_of_left_out_rows_do_not_see_them():
    generator = np.random.default_rng(0)
    density = generator.normal(size=(80, 2))
    found = left_out_log_density(density, 0)
    changed = density.copy()
    changed[17] += [5.0, -5.0]
    again = left_out_log_density(changed, 0)
    fold = np.random.default_rng(0).permutation(80) % 10
    mates = (fold == fold[17]) & (np.arange(80) != 17)
    np.testing.assert_array_equal(again[mates], found[mates])
    assert not np.array_equal(again[fold != fold[17]], found[fold != fold[17]])


# ---------------------------------------------------------------- mixtures


def test_scores_of_a_mixture():
    weights = np.array([0.25, 0.75])
    scores = np.array([[-1.0, 0.0, 2.0, 30.0, -30.0], [0.5, 0.0, -2.0, 30.0, -30.0]])
    found = mixed_scores(scores, weights)
    np.testing.assert_allclose(norm.cdf(found[:3]), weights @ norm.cdf(scores[:, :3]), rtol=1e-12)
    # equal parts are as each of them, far beyond the last probability before one
    np.testing.assert_allclose(found[3:], [30.0, -30.0], rtol=1e-10)


def test_a_mixture_is_the_average_of_its_parts(pair):
    weights = np.array([0.6, 0.4])
    X = rows(7, seed=1)[0]
    stack = Stack(pair, weights)
    found, parts = stack.distribution(X), [one.distribution(X) for one in pair]
    grid = np.linspace(-6.0, 6.0, 1001)
    density = np.array([np.exp(found.log_density(np.full(7, t))) for t in grid])
    expected = sum(
        w * np.array([np.exp(part.log_density(np.full(7, t))) for t in grid])
        for w, part in zip(weights, parts, strict=True)
    )
    np.testing.assert_allclose(density, expected, rtol=1e-10)
    np.testing.assert_allclose(trapezoid(density, grid, axis=0), 1.0, atol=2e-3)
    np.testing.assert_allclose(
        found.mean, trapezoid(density * grid[:, None], grid, axis=0), atol=1e-2
    )
    np.testing.assert_allclose(stack.predict(X), found.mean, rtol=1e-9)


def test_quantiles_of_a_mixture(pair):
    X = rows(5, seed=1)[0]
    found = Stack(pair, [0.6, 0.4]).distribution(X)
    levels = np.array([0.001, 0.05, 0.5, 0.9, 0.9999])
    quantiles = found.quantiles(levels)
    for level, here in zip(levels, quantiles, strict=True):
        np.testing.assert_allclose(norm.cdf(found.normal_scores(here)), level, rtol=1e-5)
    assert np.all(np.diff(quantiles, axis=0) > 0.0)


def test_quantiles_by_another_solver():
    X, y = rows()
    models = [ExactGPRegressor(name, max_iter=5).fit(X, y) for name in ("rbf", "linear")]
    found = Stack(models, [0.5, 0.5]).distribution(X[:4])
    parts = [model.distribution(X[:4]) for model in models]
    for row in range(4):

        def above(t, row=row):
            below = [
                norm.cdf(p.of_rows(np.array([row])).normal_scores(np.array([t]))) for p in parts
            ]
            return 0.5 * sum(below).item() - 0.9

        expected = brentq(above, -20.0, 20.0, xtol=1e-12)
        np.testing.assert_allclose(found.quantiles([0.9])[0, row], expected, atol=1e-6)


def test_a_stack_of_one_law_is_that_law(pair):
    X, y = rows(9, seed=2)
    alone, stack = pair[0].distribution(X), Stack([pair[0], pair[0]], [0.3, 0.7]).distribution(X)
    np.testing.assert_allclose(stack.mean, alone.mean, rtol=1e-12)
    np.testing.assert_allclose(stack.std, alone.std, rtol=1e-10)
    np.testing.assert_allclose(stack.log_density(y), alone.log_density(y), rtol=1e-10)
    np.testing.assert_allclose(stack.quantiles([0.1, 0.8]), alone.quantiles([0.1, 0.8]), atol=1e-6)


def test_samples_are_of_the_members_by_their_weights(pair):
    X = rows(3, seed=1)[0]
    drawn = Stack(pair, [0.8, 0.2]).sample_y(X, 4000, random_state=0)
    means = [one.predict(X) for one in pair]
    expected = 0.8 * means[0] + 0.2 * means[1]
    error = drawn.std(axis=1) / np.sqrt(drawn.shape[1])
    assert np.all(np.abs(drawn.mean(axis=1) - expected) < 4.0 * error)


# ---------------------------------------------------------------- when there is one


class _Normal:
    likelihood_ = Gaussian(1.0)
    answer_ = "own"


def _ran(name, mean, std, y, warp=None):
    z = (y - mean) / std
    judged = Judged(
        norm.logpdf(y, mean, std), (y - mean) ** 2, z, mean, np.broadcast_to(std, mean.shape)
    )
    entry = Entry(name, "own", len(y), 1.0, **scores_of(judged, False, 1.0))
    return Ran(Candidate(name, name), warp or Own(), entry, judged, _Normal())


def _errors(n=2000):
    generator = np.random.default_rng(0)
    y = generator.normal(size=n)
    return y, y + generator.normal(size=n), y + generator.normal(size=n), y + 3.0


def test_models_with_errors_of_their_own_are_stacked():
    y, first, second, far = _errors()
    ran = [_ran("a", first, 1.0, y), _ran("far", far, 1.0, y), _ran("b", second, 1.0, y)]
    found = stack_of(ran, 0, y, classes=False, y_scale=1.0, seed=0)
    assert found is not None and {one.candidate.name for one in found.members} == {"a", "b"}
    np.testing.assert_allclose(found.model.weights, 0.5, atol=0.1)
    weights = found.model.weights
    expected = np.logaddexp(
        *(np.log(w) + one.judged.log_density for w, one in zip(weights, found.members, strict=True))
    )
    np.testing.assert_allclose(found.judged.log_density, expected)
    np.testing.assert_allclose(
        found.judged.off, (y - weights @ [m.judged.mean for m in found.members]) ** 2
    )
    assert found.entry.nlpd < min(one.entry.nlpd for one in ran)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (lambda y, m: _ran("b", m + 1e-3, 1.0, y), "the same model twice"),
        (lambda y, m: _ran("b", m + 9.0, 1.0, y), "one that is far worse"),
        (lambda y, m: _ran("b", -m, 1.0, y, Log()), "another scale"),
    ],
)
def test_no_stack_of(other, why):
    y, first, _, _ = _errors()
    ran = [_ran("a", first, 1.0, y), other(y, first)]
    assert stack_of(ran, 0, y, classes=False, y_scale=1.0, seed=0) is None, why


@pytest.fixture
def always(monkeypatch):
    """Any stack is taken."""
    monkeypatch.setattr(chosen, "exceeds", lambda gain: True)
    monkeypatch.setattr(
        chosen, "parts_to_keep", lambda density: np.arange(min(2, density.shape[1]))
    )


def test_a_fit_that_ends_with_a_stack(always, tmp_path):
    X, y = rows(60)
    model = GPRegressor(max_seconds=None, max_work=1500, calibrate=None).fit(X, y)
    assert isinstance(model.model_, Stack) and len(model.model_.members) == 2
    assert model.leaderboard_[0].kept and model.leaderboard_[0].method.startswith("stack of ")
    new = rows(11, seed=3)[0]
    encoded = model._encoded(new).X
    expected = model.model_.weights @ [one.predict(encoded) for one in model.model_.members]
    np.testing.assert_allclose(model.predict(new), expected)
    model.save(tmp_path / "stack.vastgp")
    again = vastgp.load(tmp_path / "stack.vastgp")
    np.testing.assert_array_equal(again.predict_quantiles(new), model.predict_quantiles(new))
    page = model.report(tmp_path / "report.html").read_text()
    assert "Several models, whose distributions are averaged" in page


def test_a_stack_of_classifiers(always):
    X, f = rows(80)
    labels = np.array(["no", "yes"])[(f > 0.0).astype(int)]
    model = GPClassifier(max_seconds=None, max_work=1500, calibrate=None).fit(X, labels)
    assert isinstance(model.model_, Stack)
    new = rows(11, seed=3)[0]
    encoded = model._encoded(new).X
    parts = [one.predict_proba(encoded) for one in model.model_.members]
    np.testing.assert_allclose(
        model.predict_proba(new), np.tensordot(model.model_.weights, parts, axes=1), rtol=1e-12
    )


def test_members_that_do_not_know_all_classes():
    X, f = rows(80)
    y = np.digitize(f, [-0.3, 0.4])
    given = {"kernel": RBF(1.0), "num_inducing": 10, "hyperparameters": Fixed()}
    both = TSVGPClassifier(**given).fit(X, y)
    two = TSVGPClassifier(**given).fit(X[y > 0], y[y > 0])
    found = Stack([two, both], [0.5, 0.5]).predict_proba(X[:6])
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_allclose(found[:, 0], 0.5 * both.predict_proba(X[:6])[:, 0])
