"""Rows that judged a race are taken in by its winner where it is not fitted again, with all that it learned."""

import dataclasses

import numpy as np
import pytest

import vastgp
from auto.tables import sales
from vastgp import ExactGPRegressor, GPClassifier, GPRegressor, SWSGPRegressor
from vastgp.auto import TableEncoder, base, taken_in
from vastgp.auto.stacking import Stack
from vastgp.auto.taken_in import take_in
from vastgp.auto.trees import OnTrees
from vastgp.auto.trees.grown import grow
from vastgp.auto.warps import Log, Own
from vastgp.data import Rows, observations
from vastgp.kernels import RBF, Matern32
from vastgp.likelihoods import Gaussian
from vastgp.methods.exact import estimator as exact
from vastgp.methods.swsgp.nearest_posterior import NearestPosterior
from vastgp.options import Fixed, Nearest
from vastgp.solvers.exact_posterior import ExactPosterior


def rows(n, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.uniform(-2.0, 2.0, size=(n, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * generator.normal(size=n)


def in_units_of(model, X, y):
    scaling = model.standardizer_
    return scaling.transform_X(X), scaling.transform_y(y)


@pytest.mark.parametrize("warp", [Own(), Log()])
def test_the_exact_process_is_that_of_all_rows_at_what_it_learned(warp):
    X, y = rows(60)
    y = np.exp(y) if isinstance(warp, Log) else y
    model = ExactGPRegressor("rbf", max_iter=20).fit(X[:40], warp.forward(y[:40]))
    learned, kernel = model.posterior_, model.kernel_
    assert take_in(model, Rows(X[40:], y[40:]), None, warp, None)
    whole, evidence = ExactPosterior.condition(
        learned.kernel, learned.noise_variance, *in_units_of(model, X, warp.forward(y))
    )
    new = rows(9, seed=1)[0]
    of_new = model.standardizer_.transform_X(new)
    for found, expected in zip(
        model.posterior_.mean_and_latent_variance(of_new),
        whole.mean_and_latent_variance(of_new),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert model.kernel_ is kernel
    assert model.log_evidence_ == pytest.approx(evidence - 60 * np.log(model.standardizer_.y_scale))
    np.testing.assert_array_equal(model.conditioned_rows_, np.arange(60))
    left_out = model.leave_one_out()
    expected = whole.leave_one_out().log_density - np.log(model.standardizer_.y_scale)
    np.testing.assert_allclose(left_out.log_density, expected, rtol=1e-6)


def test_the_nearest_rows_are_those_of_all():
    X, y = rows(700)
    model = SWSGPRegressor(solver="nearest", likelihood="heteroskedastic", max_seconds=8)
    model.fit(X[:600], y[:600])
    before = model.posterior_
    assert take_in(model, Rows(X[600:], y[600:]), None, Own(), None)
    params = before.kernel, Gaussian(before.noise_variance)
    whole = NearestPosterior.of_targets(
        params, *in_units_of(model, X, y), before.num_neighbors, Nearest()
    )
    new = model.standardizer_.transform_X(rows(9, seed=1)[0])
    # its scale is kept, and is not that of a posterior that is made of targets
    assert model.posterior_.scale == before.scale
    plain = dataclasses.replace(model.posterior_, scale=None)
    for found, expected in zip(
        plain.mean_and_latent_variance(new), whole.mean_and_latent_variance(new), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.inducing_points_, X)
    assert model.num_inducing_ == 700


def test_rows_that_an_estimator_kept_out_are_taken_in_where_that_takes_no_time():
    X = rows(4000)[0]
    y = np.sin(20.0 * X[:, 0]) * np.sin(20.0 * X[:, 1])
    model = SWSGPRegressor("rbf", solver="nearest", max_seconds=8).fit(X, y)
    assert model.answer_ == "own" and model.num_inducing_ == 4000
    np.testing.assert_allclose(
        np.sort(model.inducing_points_, axis=0), np.sort(X, axis=0), rtol=0, atol=1e-12
    )
    some = SWSGPRegressor("rbf", 500, solver="nearest", max_seconds=8).fit(X, y)
    assert some.num_inducing_ == 500  # as many as were asked for


def test_trees_say_of_them_what_they_say_of_new_rows():
    X, y = rows(200)
    grown = grow(X[:150], y[:150], seed=0)
    process = ExactGPRegressor(Matern32([1.0, 1.0, 1.0]), max_iter=5)
    model = OnTrees(process, grown.trees, grown).fit(X[:150], y[:150])
    assert take_in(model, Rows(X[150:], y[150:]), None, Own(), None)
    wide = model.standardizer_.transform_X(model.wide(X[150:]))
    np.testing.assert_allclose(model.posterior_.X[150:], wide)


@pytest.mark.parametrize("left", ["by its weight", "by the budget"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_no_row_that_is_taken_in_has_the_number_of_one_of_the_fit(left, monkeypatch, tmp_path):
    """Where the last rows of a fit are left out, too, also from a file."""
    X, y = rows(60)
    model = ExactGPRegressor("rbf", hyperparameters=Fixed(0.2), max_seconds=100.0)
    if left == "by its weight":
        model.set_params(kernel=RBF(1.0)).fit(X[:40], y[:40], sample_weight=np.arange(40) < 39)
    else:
        monkeypatch.setattr(ExactGPRegressor, "_is_dense", lambda self, n: False)
        monkeypatch.setattr(exact, "rows_at_once", lambda n, run, dtype, max_rows: 10)
        model.set_params(kernel=RBF(1.0)).fit(X[:40], y[:40])
    seen = model.conditioned_rows_
    assert len(seen) == (39 if left == "by its weight" else 10) and seen[-1] < 39
    for start in (40, 50):
        assert take_in(model, Rows(X[start : start + 10], y[start : start + 10]), None, Own(), None)
        model.save(tmp_path / "model")
        model = vastgp.load(tmp_path / "model")
    np.testing.assert_array_equal(model.conditioned_rows_, [*seen, *range(40, 60)])


def test_every_member_of_a_stack_that_can_takes_them_in():
    X, y = rows(60)
    exact = [ExactGPRegressor(kernel, max_iter=5).fit(X[:40], y[:40]) for kernel in ("rbf", None)]
    assert take_in(Stack(exact, [0.5, 0.5]), Rows(X[40:], y[40:]), None, Own(), None)
    assert [len(one.conditioned_rows_) for one in exact] == [60, 60]


def test_their_gaps_are_their_own():
    table = sales(120)
    table.loc[100:105, "age"] = np.nan
    encoder = TableEncoder()
    fitted = encoder.fit_transform(table[:90], "price")
    new = encoder.transform(table[90:])
    own = encoder.as_training(new)
    unknown = [" unknown" in name for name in encoder.get_feature_names_out()]
    np.testing.assert_array_equal(own[:, ~np.array(unknown)], new[:, ~np.array(unknown)])
    np.testing.assert_array_equal(encoder.as_new(own), new)
    gaps = np.concatenate([fitted[:, unknown], own[:, unknown]])
    gaps = gaps[np.any(gaps != 0.0, axis=1)]
    assert len(gaps) > 6 and len(np.unique(gaps, axis=0)) == len(gaps)


def test_rows_with_errors_of_their_own_and_methods_that_have_no_way_are_left():
    X, y = rows(60)
    model = ExactGPRegressor("rbf", max_iter=5).fit(X[:40], y[:40])
    known = np.column_stack([y[40:], np.ones(20), np.full(20, 0.01)])
    assert observations.has_own_noise(known)
    assert not take_in(model, Rows(X[40:], known), None, Own(), None)
    assert not take_in(model, Rows(X[40:], y[40:]), None, Own(), 0.0)  # no time
    assert len(model.conditioned_rows_) == 40
    other = vastgp.TSVGPRegressor("rbf", 10, max_seconds=5).fit(X[:40], y[:40])
    assert other.answer_ == "own" and not take_in(other, Rows(X[40:], y[40:]), None, Own(), None)


def test_the_exact_posterior_in_the_place_of_a_method_takes_them_in():
    X, y = rows(60)
    model = ExactGPRegressor("rbf", max_iter=20).fit(X[:40], y[:40])
    other = vastgp.TSVGPRegressor("rbf", 10, max_seconds=5).fit(X[:40], y[:40])
    other.answer_, other.posterior_ = "subset", model.posterior_
    assert take_in(other, Rows(X[40:], y[40:]), None, Own(), None)
    assert take_in(model, Rows(X[40:], y[40:]), None, Own(), None)
    new = rows(9, seed=1)[0]
    np.testing.assert_allclose(other.predict(new), model.predict(new))


@pytest.mark.parametrize(
    "made",
    [
        # of others, which win where a machine is slow, some take no rows in
        lambda: GPRegressor(max_seconds=60, method="exact", random_state=0),
        lambda: GPClassifier(max_seconds=8, random_state=0),
    ],
    ids=["regressor", "classifier"],
)
def test_a_front_door_without_time_for_another_fit(made, monkeypatch):
    """The model is that of the race, which has seen all rows in the end, but what judged it has not."""
    monkeypatch.setattr(base, "fit_to_all", lambda *_: None)
    X, y = rows(300)
    is_regressor = isinstance(made(), GPRegressor)
    y = y if is_regressor else (y > 0).astype(int)
    kept = made().fit(X, y)
    called = []
    monkeypatch.setattr(
        base, "take_in", lambda *given: called.append(given) or taken_in.take_in(*given)
    )
    model = made().fit(X, y)
    (given,) = called
    assert given[0] is model.model_ and given[1].n < 300
    assert len(model.held_out_["y"]) == len(kept.held_out_["y"])
    if is_regressor:
        assert model.kept_.rows_used == 300


def test_rows_of_a_budget_in_rows_are_all_that_it_has(monkeypatch):
    monkeypatch.setattr(base, "fit_to_all", lambda *_: None)
    monkeypatch.setattr(base, "take_in", lambda *_: pytest.fail("it takes in more"))
    X, y = rows(60)
    model = GPRegressor(max_seconds=None, max_work=300, method="exact").fit(X, y)
    assert model.kept_.rows_used < 60
