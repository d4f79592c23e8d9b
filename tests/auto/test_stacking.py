"""Several models as one: weights of largest left-out density, and mixtures that are what they say."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.optimize import brentq
from scipy.stats import norm

import vastgp
from vastgp import ExactGPRegressor, GPClassifier, GPRegressor, TSVGPClassifier, TSVGPRegressor
from vastgp.auto import finish
from vastgp.auto.calibration import Identity
from vastgp.auto.candidates import Candidate
from vastgp.auto.distribution import Distribution
from vastgp.auto.leaderboard import Entry
from vastgp.auto.stacking import Stack, chosen, stack_of
from vastgp.auto.stacking.by_spread import BySpread
from vastgp.auto.stacking.mixture import mixed_scores
from vastgp.auto.stacking.weights import (
    left_out_log_density,
    mixed_log_density,
    parts_to_keep,
    stacking_weights,
)
from vastgp.auto.track import Judged, Ran, scores_of
from vastgp.auto.warps import Log, Own
from vastgp.data import Places, Rows, Standardizer
from vastgp.estimators.predictive import Predictive
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


def _plain(density):
    """What `parts_to_keep` scores parts by, with weights that are the same everywhere."""
    return lambda numbers: mixed_log_density(
        density[:, numbers], stacking_weights(density[:, numbers])
    )


def test_parts_without_gain_are_left_out():
    generator = np.random.default_rng(0)
    shared = generator.normal(size=500)
    good = shared[:, None] + 0.5 * generator.normal(size=(500, 2))
    density = np.column_stack([shared - 3.0, good, shared - 4.0])
    assert sorted(parts_to_keep(density, _plain(density))) == [1, 2]
    # twice the same is of no use
    density = np.column_stack([good[:, 0], good[:, 0]])
    assert len(parts_to_keep(density, _plain(density))) == 1


def test_a_part_of_little_weight_is_kept_for_its_gain():
    generator = np.random.default_rng(0)
    # right at one row in twenty, where the other finds next to no density
    lost = generator.uniform(size=2000) < 0.05
    density = np.column_stack([np.where(lost, -12.0, 0.0), np.full(2000, -2.0)])
    kept = parts_to_keep(density, _plain(density))
    assert list(kept) == [0, 1] and stacking_weights(density)[1] < 0.07


def test_weights_of_left_out_rows_do_not_see_them():
    generator = np.random.default_rng(0)
    density = generator.normal(size=(80, 2))
    changed = density.copy()
    changed[17] += [5.0, -5.0]
    found, again = (
        left_out_log_density(
            given, 0, lambda others, here, given=given: stacking_weights(given[others])
        )
        for given in (density, changed)
    )
    fold = np.random.default_rng(0).permutation(80) % 10
    mates = (fold == fold[17]) & (np.arange(80) != 17)
    np.testing.assert_array_equal(again[mates], found[mates])
    assert not np.array_equal(again[fold != fold[17]], found[fold != fold[17]])


def test_rows_of_one_place_weigh_as_one():
    """Weights of both kinds, parts and left-out densities are those of the places, however often each is there."""
    density, spread, _ = _of_a_known_law(80)
    times = np.where(density[:, 0] > density[:, 1], 30, 1)  # many rows at places for one of both
    row = np.repeat(np.arange(80), times)
    places = Places(row)
    share = places.shares()
    np.testing.assert_allclose(
        stacking_weights(density[row], share), stacking_weights(density), atol=1e-6
    )
    assert not np.allclose(stacking_weights(density[row]), stacking_weights(density), atol=0.02)
    once, many = BySpread.fit(density, spread), BySpread.fit(density[row], spread[row], share)
    np.testing.assert_allclose(many.at(spread), once.at(spread), atol=1e-3)
    single = left_out_log_density(density, 3, lambda o, h: stacking_weights(density[o]))
    again = left_out_log_density(
        density[row], 3, lambda o, h: stacking_weights(density[row][o], share[o]), places
    )
    np.testing.assert_allclose(again, single[row], atol=1e-5)
    # a gain that is one place's luck
    parts = np.column_stack([np.zeros(60), np.where(np.arange(60) < 1, 6.0, -0.05)])
    many = np.repeat(parts, 20, axis=0)
    of_twenty = Places(np.repeat(np.arange(60), 20))
    assert len(parts_to_keep(many, _plain(many))) == 2
    assert len(parts_to_keep(parts, _plain(parts))) == 1
    assert len(parts_to_keep(many, _plain(many), of_twenty)) == 1


# ---------------------------------------------------------------- weights that differ by row


def _of_a_known_law(n=20_000):
    """Rows of two parts whose weights fall with the power 1.5 of deviations; log densities and deviations, (n, 2)."""
    generator = np.random.default_rng(3)
    spread = np.exp(generator.normal(size=(n, 2)))
    law = BySpread(np.array([0.4, -0.4]), 1.5, np.full(2, np.inf))
    first = generator.uniform(size=n) < law.at(spread)[:, 0]
    y = np.where(first, 0.0, 1.0) + np.where(first, *spread.T) * generator.normal(size=n)
    return norm.logpdf(y[:, None], [0.0, 1.0], spread), spread, law


def test_weights_by_spread_are_those_of_the_law_that_drew_the_rows():
    density, spread, law = _of_a_known_law()
    found = BySpread.fit(density, spread)
    assert abs(found.power - law.power) < 0.1
    np.testing.assert_allclose(found.at(spread), law.at(spread), atol=0.04)
    np.testing.assert_allclose(found.widest, np.log(spread).max(axis=0))


def test_weights_by_spread_have_the_largest_density():
    density, spread, _ = _of_a_known_law(400)
    found = BySpread.fit(density, spread)

    def reached(base, power):
        weights = BySpread(np.array([base, 0.0]), power, found.widest).at(spread)
        return mixed_log_density(density, weights).mean()

    best = mixed_log_density(density, found.at(spread)).mean()
    assert all(
        reached(base, power) <= best + 1e-6
        for base in np.linspace(-3.0, 3.0, 61)
        for power in np.linspace(0.0, 4.0, 41)
    )


def test_where_spread_says_nothing_weights_by_it_are_plain():
    generator = np.random.default_rng(1)
    first = generator.uniform(size=20_000) < 0.7
    spread = np.exp(generator.normal(size=(20_000, 2)))
    y = spread[:, 0] * np.where(
        first, generator.normal(size=20_000), 3.0 + generator.normal(size=20_000)
    )
    spread[:, 1] = spread[:, 0]
    density = np.column_stack([norm.logpdf(y, k * spread[:, 0], spread[:, 0]) for k in (0.0, 3.0)])
    np.testing.assert_allclose(BySpread.fit(density, spread).at(spread)[:, 0], 0.7, atol=0.01)


def test_a_model_gains_no_more_by_being_narrow_where_no_row_said_so():
    law = BySpread(np.array([0.0, 1.0]), 2.0, np.log([3.0, 2.0]))
    edge, beyond = law.at(np.array([[3.0, 2.0]])), law.at(np.array([[50.0, 2.5]]))
    np.testing.assert_allclose(beyond, edge)


def test_some_parts_keep_their_proportions():
    law = BySpread(np.array([0.0, 1.0, -0.5]), 1.0, np.full(3, 9.0))
    spread = np.exp(np.random.default_rng(0).normal(size=(6, 3)))
    whole, part = law.at(spread), law.of_parts([2, 0]).at(spread[:, [2, 0]])
    np.testing.assert_allclose(part[:, 0] / part[:, 1], whole[:, 2] / whole[:, 0])


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


@pytest.fixture(scope="module")
def varying(pair):
    """A stack whose weights differ by row, and rows near and far."""
    X = np.concatenate([rows(4, seed=1)[0], 3.0 + rows(3, seed=2)[0]])
    return Stack(pair[::-1], [0.4, 0.6], BySpread(np.array([-0.3, 0.3]), 2.0, np.full(2, 9.0))), X


def test_weights_of_a_row_are_by_what_its_parts_state(pair, varying):
    stack, X = varying
    found, parts = stack.distribution(X), [one.distribution(X) for one in pair]
    # members are in the order of their mean weights, and what varies with them
    odds = np.exp(0.6) * (parts[0].std / parts[1].std) ** -2.0
    weights = np.stack([odds, np.ones(7)]) / (odds + 1.0)
    assert np.ptp(weights[0]) > 0.1
    y = rows(7, seed=4)[1]
    logs = np.stack([part.log_density(y) for part in parts])
    np.testing.assert_allclose(np.exp(found.log_density(y)), np.sum(weights * np.exp(logs), axis=0))
    mean = np.sum(weights * [part.mean for part in parts], axis=0)
    np.testing.assert_allclose(stack.predict(X), mean)
    second = np.sum(weights * [part.mean**2 + part.std**2 for part in parts], axis=0)
    np.testing.assert_allclose(found.std, np.sqrt(second - mean**2))
    below = [norm.cdf(part.normal_scores(y)) for part in parts]
    np.testing.assert_allclose(norm.cdf(found.normal_scores(y)), np.sum(weights * below, axis=0))
    levels = np.array([0.01, 0.5, 0.975])
    for level, here in zip(levels, found.quantiles(levels), strict=True):
        np.testing.assert_allclose(norm.cdf(found.normal_scores(here)), level, rtol=1e-5)


def test_samples_are_of_the_members_by_the_weights_of_rows(varying):
    stack, X = varying
    drawn = stack.sample_y(X, 4000, random_state=0)
    error = drawn.std(axis=1) / np.sqrt(drawn.shape[1])
    assert np.all(np.abs(drawn.mean(axis=1) - stack.predict(X)) < 4.0 * error)


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
    std = np.broadcast_to(std, mean.shape)
    judged = Judged(norm.logpdf(y, mean, std), (y - mean) ** 2, z, mean, std, spread=std)
    entry = Entry(name, "own", len(y), 1.0, **scores_of(judged, False, 1.0))
    return Ran(Candidate(name, name), warp or Own(), entry, judged, _Normal())


def _errors(n=2000):
    generator = np.random.default_rng(0)
    y = generator.normal(size=n)
    return y, y + generator.normal(size=n), y + generator.normal(size=n), y + 3.0


@pytest.mark.parametrize("varying", [False, True])
def test_a_stack_has_the_distributions_of_its_parts_at_held_out_rows(varying):
    rng = np.random.default_rng(5)
    ones = np.array([-1.0, 1.0])
    unit = Standardizer().fit(Rows(ones[:, None], ones))
    y, parts = rng.normal(size=7), []
    for _ in range(2):
        mean, std, folds = rng.normal(size=7), rng.uniform(0.5, 2.0, 7), []
        for here in (slice(0, 4), slice(4, 7)):
            one = Predictive(Gaussian(0.1), mean[here], std[here] ** 2 - 0.1, unit)
            folds.append(Distribution(one, Own(), Identity(), (-9.0, 9.0)))
        whole = (norm.logpdf(y, mean, std), (y - mean) ** 2, (y - mean) / std, mean, std)
        parts.append(Judged(*whole, found=tuple(folds)))
    weights = rng.dirichlet([1.0, 1.0], 7) if varying else np.array([0.3, 0.7])
    judged = chosen.mixed(parts, weights, y, False)
    found = np.concatenate([one.quantiles([0.025, 0.975]) for one in judged.found], axis=1)
    for level, ends in zip((0.025, 0.975), found, strict=True):
        each = np.stack([norm.cdf(ends, part.mean, part.std) for part in parts], axis=1)
        np.testing.assert_allclose(np.sum(weights * each, axis=1), level, atol=1e-7)
    for name in ("mean", "std"):
        of_folds = np.concatenate([getattr(one, name) for one in judged.found])
        np.testing.assert_allclose(of_folds, getattr(judged, name))


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


def test_a_model_that_knows_nothing_of_some_rows_has_no_say_there():
    generator = np.random.default_rng(0)
    y, known = generator.normal(size=2000), generator.uniform(size=2000) < 0.8
    wide, narrow = np.full(2000, 1.0), np.where(known, 0.1, 8.0)
    ran = [
        _ran("wide", 0.6 * y, wide, y),
        _ran("narrow", np.where(known, y + 0.1 * generator.normal(size=2000), 0.0), narrow, y),
    ]
    found = stack_of(ran, 1, y, classes=False, y_scale=1.0, seed=0)
    assert found is not None and found.model.varying is not None
    by_name = {one.candidate.name: k for k, one in enumerate(found.members)}
    weights = found.model.varying.at(np.column_stack([one.judged.spread for one in found.members]))
    assert np.all(weights[known, by_name["narrow"]] > 0.9)
    assert np.all(weights[~known, by_name["wide"]] > 0.9)
    np.testing.assert_allclose(found.model.weights, weights.mean(axis=0))
    plain = stacking_weights(np.column_stack([one.judged.log_density for one in ran]))
    best = mixed_log_density(np.column_stack([one.judged.log_density for one in ran]), plain)
    assert found.judged.log_density.mean() > best.mean() + 0.1
    assert np.mean(found.judged.off) < 0.5 * np.mean(
        (y - plain @ [m.judged.mean for m in ran]) ** 2
    )


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
        chosen, "parts_to_keep", lambda density, *_: np.arange(min(2, density.shape[1]))
    )


def test_a_fit_that_ends_with_a_stack(always, tmp_path):
    X, y = rows(60)
    model = GPRegressor(max_seconds=None, max_work=1500, calibrate=None).fit(X, y)
    assert isinstance(model.model_, Stack) and len(model.model_.members) == 2
    assert model.leaderboard_[0].kept and model.leaderboard_[0].method.startswith("stack of ")
    new = rows(11, seed=3)[0]
    encoded = model._encoded(new).X
    parts = [one.distribution(encoded) for one in model.model_.members]
    weights = model.model_.varying.at(np.column_stack([part.std for part in parts]))
    expected = np.sum(weights * np.column_stack([part.mean for part in parts]), axis=1)
    np.testing.assert_allclose(model.predict(new), expected)
    model.save(tmp_path / "stack.vastgp")
    again = vastgp.load(tmp_path / "stack.vastgp")
    np.testing.assert_array_equal(again.predict_quantiles(new), model.predict_quantiles(new))
    np.testing.assert_array_equal(again.sample_y(new, 20), model.sample_y(new, 20))
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


@pytest.mark.parametrize(("lost", "left"), [((), 3), ((2,), 2), ((0,), None), ((1, 2), None)])
def test_a_stack_without_a_large_part_of_it_is_not_what_was_judged(lost, left, monkeypatch):
    """The last fit had no time for the members that fall short: then the race's own models stay."""
    weights = np.array([0.6, 0.3, 0.1])
    names = ["a", "b", "c"]
    parts = [Ran(Candidate(name, ""), Own(), Entry(name, "own", 9, 1.0)) for name in names]
    best = Ran(
        Candidate("stack", ""), Own(), parts[0].entry, None, Stack(parts, weights), tuple(parts)
    )
    whole = object.__new__(finish.Whole)
    whole.__dict__.update(deadline=None, inputs=SimpleNamespace(folds=1))
    monkeypatch.setattr(finish, "_fit", lambda one, *others: one)
    monkeypatch.setattr(
        finish, "_falls_short", lambda model, one: names.index(one.candidate.name) in lost
    )
    found = finish.fit_to_all(best, [one.candidate for one in parts], whole, Own())
    assert (found is None) == (left is None)
    if left is not None:
        kept = [k for k in range(3) if k not in lost]
        assert [one.candidate.name for one in found.members] == [names[k] for k in kept]
        np.testing.assert_allclose(found.weights, weights[kept] / weights[kept].sum())
