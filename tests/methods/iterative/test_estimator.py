"""`IterativeGPRegressor`: the exact process, and what it says where it is not."""

import re

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from vastgp import ExactGPRegressor, IterativeGPRegressor, RandomFeatureGPRegressor
from vastgp.estimators.evidence_fits import unfinished_learning
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.history import History
from vastgp.fitting.loop import OUT_OF_TIME, LoopResult
from vastgp.kernels import RBF, Matern32
from vastgp.methods.iterative import kernel_system
from vastgp.methods.iterative.learning import IterativeEvidence
from vastgp.options import CG, Fixed, Learn, RouletteCG, SaveTo, SingleSample

KERNEL, NOISE = Matern32([1.5, 1.0], 1.2), 0.2


def data(n=250, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    return X, np.sin(2.0 * X[:, 0]) * X[:, 1] + NOISE * rng.normal(size=n)


def fixed(kernel=KERNEL, noise=NOISE, **params):
    given = {"hyperparameters": Fixed(noise), "dtype": "float64", "tol": 1e-6}
    return IterativeGPRegressor(kernel, **(given | params))


@pytest.fixture(scope="module")
def exact():
    return ExactGPRegressor(KERNEL, hyperparameters=Fixed(NOISE)).fit(*data())


def test_it_is_the_exact_process(exact):
    new, _ = data(40, seed=1)
    expected, std = exact.predict(new, return_std="latent")
    model = fixed(rank=30, num_samples=400).fit(*data())
    assert model.converged_ and model.diagnosis_["rank"] == 30
    mean, found = model.predict(new, return_std="latent")
    np.testing.assert_allclose(mean, expected, atol=1e-5)
    # each variance has the relative standard error sqrt(2 / 400), and all of them less together
    ratio = found**2 / std**2
    assert np.all(np.abs(ratio - 1.0) < 4.5 * (2.0 / 400) ** 0.5)
    assert abs(np.mean(ratio) - 1.0) < 0.07
    joint = model.sample_y(new, 400, random_state=3)
    covariance = np.cov(joint)
    assert np.max(np.abs(np.diagonal(covariance) / std**2 - 1.0)) < 4.5 * (2.0 / 400) ** 0.5


def test_float32_is_as_good_as_its_tolerance(exact):
    new, _ = data(40, seed=1)
    model = fixed(rank=30, dtype="float32", tol=0.01).fit(*data())
    # the residual's norm is a hundredth of the noise; of 40 errors the largest is some standard deviations of it
    np.testing.assert_allclose(model.predict(new), exact.predict(new), atol=0.03 * NOISE)


def test_repeated_rows_are_merged_into_the_same_posterior(exact):
    X, y = data(100)
    X, y = np.concatenate([X, X[:40]]), np.concatenate([y, y[:40] + 0.3])
    reference = ExactGPRegressor(KERNEL, hyperparameters=Fixed(NOISE)).fit(X, y)
    model = fixed(rank=10).fit(X, y)
    assert model.diagnosis_["distinct_rows"] == 100
    np.testing.assert_allclose(model.predict(X), reference.predict(X), atol=1e-5)


@pytest.mark.parametrize("solver", ["cg", "rr-cg"])
def test_learning_on_all_rows_nears_the_evidence_of_cholesky(solver):
    X, y = data(250)
    model = IterativeGPRegressor(
        "rbf",
        solver={"cg": CG, "rr-cg": RouletteCG}[solver](40),
        hyperparameters=Learn(40, steps=15),
        rank=20,
        num_samples=8,
    ).fit(X, y)
    assert len(model.history_) == 15
    highest = ExactGPRegressor("rbf").fit(X, y).log_evidence_
    noise = float(model.likelihood_.noise_variance)
    learned = ExactEvidence(X, y - y.mean())(model.kernel_, noise)
    # the history holds the evidence itself, in standardised units: the first is that of the start
    values = np.array(model.history_.objective) - len(y) * np.log(y.std())
    # fifteen steps, none much longer than a tenth of a logarithm, along a ridge of amplitude and lengthscales
    assert learned > highest - (highest - values[0]) / 3.0
    # (the average over the last steps is at most two nats from the last of them)
    if solver == "cg":
        assert abs(values[-1] - learned) < 4.0 * model.history_["objective_se"][-1] + 2.0


def test_a_resumed_fit_is_the_uninterrupted_one(tmp_path, monkeypatch):
    X, y = data(150)
    given = {
        "kernel": "rbf", "hyperparameters": Learn(40, steps=4), "solver": RouletteCG(20), "rank": 10,
        "num_samples": 4, "checkpoint": SaveTo("~/fit", 1e-6),
    }  # fmt: skip
    whole = IterativeGPRegressor(**given | {"checkpoint": None}).fit(X, y)
    monkeypatch.setenv("HOME", str(tmp_path))
    estimate = IterativeEvidence.__call__

    def interrupted(self, params, anchor, step, carried=()):
        if step == 2:
            raise KeyboardInterrupt
        return estimate(self, params, anchor, step, carried)

    monkeypatch.setattr(IterativeEvidence, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        IterativeGPRegressor(**given).fit(X, y)
    monkeypatch.setattr(IterativeEvidence, "__call__", estimate)
    assert (tmp_path / "fit").exists()
    resumed = IterativeGPRegressor(**given).fit(X, y)
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    assert list(tmp_path.iterdir()) == []


def test_what_did_not_converge_is_said_with_its_residual_and_what_to_change():
    X, y = data(100)
    X = np.concatenate([X, X + 1e-7])
    model = fixed(RBF([2.0, 2.0]), noise=1e-7, rank=0, solver=CG(max_products=10))
    with pytest.warns(
        ConvergenceWarning,
        match=r"did not converge.* residual of [0-9.e+-]+ noise standard deviations \(tol = 1e-06\)"
        r".*max_seconds, max_products.*larger rank.*noise_floor or noise_std",
    ):
        model.fit(X, np.concatenate([y, y]))
    assert not model.converged_
    assert max(model.diagnosis_["residual"], model.diagnosis_["residual_samples"]) > 1e-6
    # what was left undone is in the standard deviations: no silent certainty
    assert np.all(np.isfinite(model.predict(X)))


def test_learning_that_was_cut_is_said():
    cut = LoopResult(3, 1.0, False, OUT_OF_TIME, History())
    assert re.search(r"learned for 3 of 20 steps\. Give more time", unfinished_learning(cut, 20))
    short = LoopResult(3, 1.0, False, "3 steps of learning were done", History())
    assert "Give more time" in unfinished_learning(short, 20, cut=True)
    assert "Give more time" not in unfinished_learning(short, 20)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("products", [0, 30, 10_000])
def test_steps_and_solutions_that_do_not_fit_are_not_begun(products, monkeypatch):
    """On a machine that makes so many products with the matrix in the budget: 43 are three steps, 17 the solution."""
    X, y = data(2100)
    model = IterativeGPRegressor(
        "rbf", solver=RouletteCG(iterations=10, num_probes=4), num_samples=8, rank=100,
        hyperparameters=Learn(rows=100, steps=3), max_seconds=100,
    )  # fmt: skip
    rate = kernel_system.operations_of_product(2000, 5) * products / 100 + 1.0
    monkeypatch.setattr(kernel_system, "operations_where_arrays_lie", lambda: rate)
    model.fit(X, y)
    assert ("learning" in model.history_.spent) == (products == 10_000)
    assert model.answer_ == ("own" if products else "subset")
    assert not model.converged_ or products == 10_000
    if not products:
        assert "too little of max_seconds was left" in model.stop_reason_


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"solver": "cholesky"}, r"solver must be one of \('rr-cg', 'cg'\) or RouletteCG"),
        ({"num_samples": 1}, "num_samples must be an integer of at least 2"),
        ({"rank": -1}, "rank must be an integer of at least 0"),
        ({"hyperparameters": "guess"}, "hyperparameters must be one of"),
        ({"hyperparameters": "fixed"}, "needs noise_std"),
        ({"hyperparameters": "subset", "solver": CG(5)}, r"CG\(iterations=5\) has no effect here"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        IterativeGPRegressor(**change).fit(*data(20))


def test_options_and_old_names_are_refused():
    for make, message in (
        (lambda: RouletteCG(temperature=0.0), "temperature must be a positive number"),
        (lambda: CG(iterations=2.5), "iterations must be a positive integer"),
        (lambda: CG(num_probes=0), "num_probes must be a positive integer"),
        (lambda: SingleSample(first_basis=3), "first_basis must be even"),
        (lambda: SingleSample(basis_step=0), "basis_step must be a positive integer"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
    for cls, name in (
        (IterativeGPRegressor, "learning_steps"),
        (IterativeGPRegressor, "max_iter"),
        (RandomFeatureGPRegressor, "first_basis"),
    ):
        with pytest.raises(TypeError, match=f"no argument '{name}' any more: write "):
            cls(**{name: 1})


def test_a_kernel_without_variance_is_refused():
    with pytest.raises(ValueError, match=r"variance must be positive and finite, received 0\.0"):
        fixed(RBF(1.0, 0.0))


def test_entries_of_single_precision_give_way_where_they_are_too_coarse(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (1200, 2))
    y = np.sin(9.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.01 * rng.normal(size=1200)
    given = {"hyperparameters": Fixed(0.01)}

    def error(kernel):
        expected = (
            ExactGPRegressor(kernel, hyperparameters=Fixed(noise_std=0.01)).fit(X, y).predict(X)
        )
        model = IterativeGPRegressor(kernel, num_samples=4, rank=400, **given).fit(X, y)
        difference = model.predict(X) - expected
        return np.sqrt(np.mean(difference**2)) / 0.01, model.diagnosis_["entries"]

    # rows a hundred lengthscales apart are as exact as near ones: single precision will do
    found, entries = error(RBF([0.02, 3.0], 1.0))
    assert entries == "float32"
    assert found < 0.05
    # not where a smooth function has 10^6 times the variance of the noise
    smooth = RBF([0.5, 3.0], 100.0)
    found, entries = error(smooth)
    assert entries == "float64"
    assert found < 0.05
    monkeypatch.setattr(kernel_system, "_MOST_ENTRY_ROUNDING", np.inf)
    with pytest.warns(ConvergenceWarning, match="limit of the precision"):
        rough, entries = error(smooth)
    assert entries == "float32"
    assert rough > 0.1


def test_a_solution_that_rounding_makes_diverge_is_no_worse_than_the_prior(monkeypatch):
    # the variance is 10^8 noise variances: kernel entries of single precision are too coarse by far
    monkeypatch.setattr(kernel_system, "_MOST_ENTRY_ROUNDING", np.inf)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (1500, 3))
    y = np.sin(3.0 * X[:, 0]) + 0.5 * X[:, 1]
    kernel = RBF([3.0, 3.0, 3.0], 1e4 * np.var(y))
    fixed = {"hyperparameters": Fixed(1e-2 * np.std(y)), "rank": 10}
    with pytest.warns(ConvergenceWarning, match="residual"):
        model = IterativeGPRegressor(
            kernel, num_samples=8, solver=CG(max_products=150), **fixed
        ).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 1.1 * np.std(y)
    assert np.mean(np.abs(mean - y) < 1.96 * std) > 0.9
