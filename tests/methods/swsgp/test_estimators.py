"""Sparse-within-sparse estimators: SVGP with all neighbours, solvers, checkpoints, jumps, mistakes."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from estimators.regressor_conformance import OTHER_EVIDENCE
from estimators.sklearn_checks import checks_of_a_method
from vastgp import (
    RBF,
    Matern12,
    Matern32,
    Matern52,
    SVGPRegressor,
    SWSGPClassifier,
    SWSGPRegressor,
    load,
)
from vastgp.fitting.evaluations import Evaluations
from vastgp.methods.swsgp import nearest_learning, ordered_evidence
from vastgp.methods.swsgp.fit import distinct
from vastgp.methods.swsgp.training import Chunks
from vastgp.options import Fixed, Learn, LocalSteps, Natural, Nearest, Sparse, Subset
from vastgp.solvers.neighbour_posterior import NeighbourPosterior

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@checks_of_a_method(
    [
        SWSGPRegressor("rbf", 4, 3, hyperparameters=Subset(rows=40)),
        # the search of the kernel, which is that of all methods, is among the checks of other classifiers
        SWSGPClassifier(RBF(1.0), 4, 3, hyperparameters=Fixed()),
    ],
    expected_failed_checks=lambda kind: OTHER_EVIDENCE if isinstance(kind, SWSGPRegressor) else {},
)
def test_scikit_learn_check(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (400, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=400)


def test_with_all_neighbours_predictions_are_those_of_svgp(data):
    """Mean and covariance that SVGP found, given to a posterior that sees all 25 inducing inputs."""
    X, y = data
    kernel = Matern52([1.5, 3.0], 2.0)
    model = SVGPRegressor(
        kernel, 25, hyperparameters=Fixed(noise_std=0.3), solver=Natural(jitter=1e-12)
    ).fit(X, y)
    found, scaling = model.posterior_, model.standardizer_
    Z = scaling.transform_X(model.inducing_points_)
    factor = np.linalg.cholesky(found.covariance(Z) + 1e-12 * np.eye(25))
    mine = NeighbourPosterior(
        found.kernel, Z, found.mean(Z)[:, None], factor[:, None, :], 25, 1e-12
    )
    new = np.random.default_rng(1).normal(size=(50, 2))
    for one, two in zip(
        mine.mean_and_latent_variance(new), found.mean_and_latent_variance(new), strict=True
    ):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_defaults_take_the_nearest_rows_and_explain_the_data(data):
    X, y = data
    model = SWSGPRegressor().fit(X, y)
    assert model.solver_ == "nearest" and model.num_inducing_ == len(X)
    assert model.score(X, y) > 0.95
    assert abs(model.likelihood_.noise_std - 0.3) < 0.05


@pytest.mark.parametrize(
    "asked",
    [
        {"num_inducing": 40},
        {"inducing_inputs": "random"},
        {"hyperparameters": Learn(steps=20)},
        {"kernel": RBF([0.5, 0.5]), "hyperparameters": Fixed(noise_std=0.3)},
        {"likelihood": "student-t"},
    ],
)
def test_what_is_asked_of_inducing_variables_has_these(data, asked):
    assert SWSGPRegressor(**asked)._resolved()[1] == "auto"
    given = dict(asked, hyperparameters=asked.get("hyperparameters", Subset(rows=100)))
    model = SWSGPRegressor(**given, max_seconds=20.0).fit(data[0][:200], data[1][:200])
    # who learns by stochastic steps has its hyperparameters from these
    assert model.solver_ == ("stochastic" if "Learn" in str(asked) else "sparse")


def test_the_sparse_solver_explains_the_data(data):
    X, y = data
    model = SWSGPRegressor(solver="sparse").fit(X, y)
    assert model.solver_ == "sparse" and model.converged_ and model.num_inducing_ == 100
    assert model.diagnosis_["residual"] < 1e-3
    assert model.score(X, y) > 0.95
    assert abs(model.likelihood_.noise_std - 0.3) < 0.05


@pytest.mark.parametrize("solver", ["sparse", "stochastic"])
def test_a_fit_whose_time_is_up_knows_that_it_knows_little(solver):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 5))
    f = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2 + 10.0 * X[:, 3]
    y = f + rng.normal(size=600)
    model = SWSGPRegressor(
        "rbf", max_seconds=1e-3, hyperparameters=Subset(rows=100), solver=solver
    ).fit(X[:300], y[:300])
    assert not model.converged_ and "max_seconds" in model.stop_reason_
    mean, std = model.predict(X[300:], return_std=True)
    # of 300 rows: 0.95 within three standard errors and some
    assert 0.9 < np.mean(np.abs(mean - y[300:]) < 1.96 * std) < 0.99
    trivial = 0.5 * np.log(2.0 * np.pi * np.e * np.var(y))
    assert -np.mean(model.log_predictive_density(X[300:], y[300:])) < trivial + 0.1


def test_learning_goes_on_from_the_sparse_solution(data):
    X, y = data
    first = SWSGPRegressor("rbf", 60, 16).fit(X, y)
    model = SWSGPRegressor("rbf", 60, 16, hyperparameters=Learn(steps=400)).fit(X, y)
    assert model.solver_ == "stochastic"
    assert not np.allclose(model.kernel_.lengthscales, first.kernel_.lengthscales, rtol=1e-3)
    # started from the maximum for the first hyperparameters, within the noise of minibatches
    start, noise = model.history_.objective[0], model.history_.objective_se[0]
    assert start > first.diagnosis_["objective"] - 5.0 * noise - 20.0


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_a_resumed_fit_equals_an_uninterrupted_one(data, covariance, tmp_path, monkeypatch):
    """Interrupted after 80 of 150 steps: neighbours and Adam's averages come back."""
    X, y = data
    params = {
        "kernel": "rbf", "num_inducing": 30, "num_neighbors": 6, "hyperparameters": "learn",
        "solver": LocalSteps(covariance=covariance, learn_inducing=True, row_batch=16, max_steps=150),
    }  # fmt: skip
    whole = SWSGPRegressor(**params).fit(X, y)
    path, call = tmp_path / "fit.ckpt", Chunks.__call__

    def interrupted(self, state, first_iter, num_iters):
        if first_iter == 80:
            raise KeyboardInterrupt
        return call(self, state, first_iter, num_iters)

    monkeypatch.setattr(Chunks, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SWSGPRegressor(**params, checkpoint=path).fit(X, y)
    monkeypatch.setattr(Chunks, "__call__", call)
    assert path.exists()
    resumed = SWSGPRegressor(**params, checkpoint=path).fit(X, y)
    assert not path.exists()
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    np.testing.assert_array_equal(resumed.inducing_points_, whole.inducing_points_)
    assert resumed.diagnosis_ == whole.diagnosis_ and whole.diagnosis_["searches"] > 4
    assert resumed.history_.values == whole.history_.values


@pytest.mark.parametrize(
    ("evidence", "ended"),
    [
        ("neighbors", (nearest_learning, "_LEAST_SECONDS", np.inf)),  # before it began
        ("neighbors", (Evaluations, "max_seconds", 0.0)),  # at its first evaluation
        ("ordered", (ordered_evidence, "_LEAST_SECONDS", np.inf)),
    ],
)
def test_learning_by_the_nearest_rows_that_the_clock_ended_goes_on(
    evidence, ended, data, tmp_path, monkeypatch
):
    X, y = data[0][:150], data[1][:150]
    path, params = tmp_path / "fit.ckpt", {"kernel": "rbf", "solver": Nearest(evidence=evidence)}
    with monkeypatch.context() as patched:
        patched.setattr(*ended)
        late = SWSGPRegressor(**params, max_seconds=1e6, checkpoint=path).fit(X, y)
    assert not late.converged_ and "max_seconds ended" in late.stop_reason_ and path.exists()
    resumed = SWSGPRegressor(**params, checkpoint=path).fit(X, y)
    whole = SWSGPRegressor(**params).fit(X, y)
    assert resumed.converged_ and not path.exists()
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    assert resumed.diagnosis_ == whole.diagnosis_


def test_more_neighbours_and_the_taper_lower_jumps(data):
    """Largest jump of the mean along a line: more neighbours to predict with, or fading ones."""
    X, y = data
    line = np.column_stack([np.linspace(-0.5, 0.5, 8001), np.full(8001, 0.3)])
    jumps = {}
    for name, params in {
        "few": {},
        "more": {"solver": Sparse(predict_neighbors=48)},
        "taper": {"solver": Sparse(taper=True)},
    }.items():
        model = SWSGPRegressor("rbf", 100, 6, **params).fit(X, y)
        jumps[name] = np.abs(np.diff(model.predict(line))).max()
    assert jumps["more"] < 0.3 * jumps["few"]
    assert jumps["taper"] < 0.3 * jumps["few"]


def test_three_classes_have_a_function_each():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (200, 1))
    y = np.digitize(X[:, 0] + 0.7 * rng.standard_normal(200), [-1.0, 1.0])
    # a rough kernel: variables of neighbours that a smooth one ties together take Adam thousands of steps
    fixed = {"kernel": Matern12(1.0, 2.0), "num_inducing": 20, "num_neighbors": 8}
    model = SWSGPClassifier(**fixed, hyperparameters="fixed").fit(X, y)
    assert model.solver_ == "sparse" and model.score(X, y) > 0.8
    assert model.predict_proba(X).shape == (200, 3)
    steps = {"solver": LocalSteps(rate=0.05, max_steps=300, row_batch=200)}
    other = SWSGPClassifier(**fixed, **steps, hyperparameters="fixed").fit(X, y)
    assert np.max(np.abs(other.predict_proba(X) - model.predict_proba(X))) < 0.05


@pytest.mark.parametrize("likelihood", ["student-t", "poisson"])
def test_other_likelihoods_have_sparse_solutions(likelihood):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (300, 1))
    f = 1.0 + np.sin(2 * X[:, 0])
    y = rng.poisson(np.exp(f)) if likelihood == "poisson" else f + 0.1 * rng.standard_t(3, 300)
    model = SWSGPRegressor("rbf", 40, 10, likelihood=likelihood).fit(X, y)
    assert model.solver_ == "sparse" and model.converged_ and model.n_iter_ > 1
    truth = np.exp(f) if likelihood == "poisson" else f
    assert np.sqrt(np.mean((model.predict(X) - truth) ** 2)) < 0.25 * np.std(y)


def test_a_sum_of_kernels_and_a_file(data, tmp_path):
    X, y = data
    model = SWSGPRegressor(
        RBF(1.0) + Matern32(0.5), 50, 10, solver=LocalSteps(covariance="full", max_steps=100)
    ).fit(X, y)
    model.save(tmp_path / "m.vastgp")
    again = load(tmp_path / "m.vastgp")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.solver_ == "stochastic" and again.diagnosis_ == model.diagnosis_


def test_samples_of_many_rows_have_the_moments_of_few(data):
    X, y = data
    model = SWSGPRegressor("rbf", 60, 12).fit(X, y)
    rows = np.random.default_rng(1).uniform(-3, 3, (2500, 2))
    drawn = model.sample_y(rows, 300)
    mean, std = model.predict(rows, return_std="latent")
    error = (drawn.mean(axis=1) - mean) / (std / 300**0.5)
    assert np.mean(error**2) < 2.0
    assert abs(np.mean(drawn.std(axis=1) / std) - 1.0) < 0.1


# ---------------------------------------------------------------- mistakes

Z = np.random.default_rng(5).uniform(-3, 3, (12, 2))
WRONG = [
    ({"num_neighbors": 31, "num_inducing": 30}, "num_neighbors=31 is more than the 30 inducing inputs"),
    ({"solver": Sparse(predict_neighbors=31), "num_inducing": 30}, "predict_neighbors=31 is more than the 30"),
    ({"num_inducing": 401}, "num_inducing=401 is more than the 400 rows of X"),
    ({"inducing_inputs": np.vstack([Z, Z[3]])}, "13 rows of which 12 differ; rows 3 and 12 are the same"),
    ({"inducing_inputs": Z[:, :1]}, r"inducing_inputs must have shape \(m, 2\)"),
    ({"inducing_inputs": np.where(Z > 2.5, np.nan, Z)}, "inducing_inputs hold NaN"),
    ({"inducing_inputs": Z, "num_inducing": 5}, "num_inducing=5, but inducing_inputs holds 12 rows"),
    ({"inducing_inputs": "grid"}, "inducing_inputs must be one of"),
    ({"solver": "exact"}, r"solver must be one of .* or Sparse\(...\), LocalSteps"),
    ({"solver": "sparse", "dtype": "float32"}, "dtype='float32' has no effect with solver='sparse'"),
    ({"hyperparameters": Learn(steps=9)}, r"set solver=LocalSteps\(max_steps=...\) instead"),
    ({"hyperparameters": Subset(noise_floor=0.1), "noise_std": 1.0}, "no argument 'noise_std' any more"),
    ({"hyperparameters": "some"}, "hyperparameters must be one of"),
    ({"num_neighbors": 0}, "num_neighbors must be a positive integer"),
    ({"hyperparameters": "fixed"}, "needs noise_std"),
    ({"checkpoint": "/nowhere/at/all"}, "checkpoint: the folder of"),
]  # fmt: skip


@pytest.mark.parametrize(("params", "message"), WRONG)
def test_bad_arguments_are_named(data, params, message):
    with pytest.raises((ValueError, TypeError), match=message):
        SWSGPRegressor(**({"kernel": "rbf", "solver": LocalSteps(max_steps=5)} | params)).fit(*data)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"covariance": "banded"}, "covariance must be one of"),
        ({"prior": "none"}, "prior must be one of"),
        ({"neighbor_search": "fast"}, "neighbor_search must be one of"),
        ({"taper": 1}, "taper must be True or False"),
        ({"rate": 0.0}, "rate must be a positive number"),
    ],
)
def test_bad_options_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        LocalSteps(**wrong)


def test_a_full_covariance_of_very_many_is_refused():
    X = np.random.default_rng(0).normal(size=(5000, 1))
    with pytest.raises(ValueError, match=r"covariance='full' keeps 5000 x 5000 numbers"):
        SWSGPRegressor("rbf", 5000, solver=LocalSteps(covariance="full")).fit(X, X[:, 0])


def test_columns_of_text_are_named(data):
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(colour="red")
    with pytest.raises(ValueError, match="colour"):
        SWSGPRegressor().fit(frame, y)


def test_repeated_rows_become_one_inducing_input_each():
    X = np.repeat(np.arange(20.0), 20)[:, None]
    y = np.sin(X[:, 0] / 3)
    model = SWSGPRegressor("rbf", num_neighbors=5, solver="sparse").fit(X, y)
    assert model.num_inducing_ == 20 and len(distinct(model.inducing_points_)) == 20
    with pytest.raises(ValueError, match="num_inducing=30, but X has 20 distinct rows"):
        SWSGPRegressor("rbf", 30).fit(X, y)


def test_steps_that_lose_all_numbers_say_what_to_do(data):
    model = SWSGPRegressor("rbf", 50, 10, solver=LocalSteps(rate=1e30, max_steps=100))
    with pytest.warns(ConvergenceWarning, match="Lower the learning rate.*is the answer"):
        model.fit(*data)
    assert model.answer_ != "own" and np.all(np.isfinite(model.predict(data[0])))


def test_steps_that_inducing_inputs_close_together_hold_back_are_warned_of():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, (400, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=400)
    dense = {"num_inducing": 30, "num_neighbors": 8, "solver": LocalSteps(max_steps=1000)}
    with pytest.warns(ConvergenceWarning, match=r"below that of noise alone.*solver='sparse'"):
        model = SWSGPRegressor("rbf", **dense).fit(X, y)
    assert not model.converged_
    # what they ended in contradicts the exact posterior of these rows, averaged over its hyperparameters: the answer
    assert model.answer_ == "average" and model.score(X, y) > 0.95
    # with room between them the same steps arrive
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        other = SWSGPRegressor(
            "rbf", **(dense | {"num_inducing": 10, "solver": LocalSteps(max_steps=4000)})
        ).fit(X, y)
    assert not any("noise alone" in str(one.message) for one in caught)
    assert other.score(X, y) > 0.9
