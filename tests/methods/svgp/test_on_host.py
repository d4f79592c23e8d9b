"""Passes in NumPy: those of the programs, without one."""

import numpy as np
import pytest

import vastgp
from compiled_programs import count_programs
from vastgp.data import Rows, Standardizer
from vastgp.kernels import RBF, Matern32
from vastgp.methods.svgp import fit, on_host, posterior

LIKELIHOODS = ["student-t", "poisson", "negative-binomial", "logit", "three classes"]


def rows(n, likelihood):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1]
    if likelihood == "logit":
        return X, (f + rng.logistic(size=n) > 0.0).astype(int)
    if likelihood == "three classes":
        return X, np.digitize(f + 0.5 * rng.normal(size=n), [-0.7, 0.7])
    if likelihood == "student-t":
        return X, f + 0.2 * rng.standard_t(3, size=n)
    return X, rng.poisson(np.exp(f)).astype(float)


def fitted(X, y, likelihood, **options):
    if likelihood in ("logit", "three classes"):
        return vastgp.TSVGPClassifier(**options).fit(X, y)
    return vastgp.TSVGPRegressor(likelihood=likelihood, **options).fit(X, y)


def answers(model, new):
    """Return moments of the function, and what is said of observations."""
    latent = model.posterior_.mean_and_latent_variance(model.standardizer_.transform_X(new))
    if hasattr(model, "classes_"):
        return [*latent, model.predict_proba(new)]
    return [*latent, *model.predict(new, return_std=True)]


@pytest.mark.parametrize("num_inducing", [None, 20])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_they_are_those_of_the_programs(likelihood, num_inducing, monkeypatch):
    X, y = rows(60, likelihood)
    new = np.random.default_rng(1).normal(size=(30, 3))
    options = {"num_inducing": num_inducing, "tol": 1e-8}
    if num_inducing is not None:
        options |= {"kernel": RBF(np.full(3, 1.2), 2.0), "hyperparameters": "fixed"}
        if likelihood not in ("logit", "three classes"):
            law = {
                "student-t": vastgp.likelihoods.StudentT(0.3),
                "poisson": vastgp.likelihoods.Poisson(),
                "negative-binomial": vastgp.likelihoods.NegativeBinomial(),
            }
            likelihood = law[likelihood]
    here = fitted(X, y, likelihood, **options)
    for module, name in (
        (fit, "passes_stay_on_host"), (fit, "stays_on_host"), (posterior, "stays_on_host"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, lambda *given: False)
    there = fitted(X, y, likelihood, **options)
    assert here.answer_ == there.answer_ == "own" and here.converged_ and there.converged_
    assert here.diagnosis_["bound"] == pytest.approx(there.diagnosis_["bound"], abs=1e-6)
    assert here.diagnosis_["passes"] == there.diagnosis_["passes"]
    for one, other in zip(answers(here, new), answers(there, new), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("likelihood", ["student-t", "poisson", "logit"])
def test_no_program_is_compiled_for_another_number_of_rows(likelihood):
    X, y = rows(40, likelihood)
    new = np.random.default_rng(1).normal(size=(30, 3))
    answers(fitted(X, y, likelihood), new)
    for n in (41, 53):
        X, y = rows(n, likelihood)
        with count_programs() as programs:
            answers(fitted(X, y, likelihood), new)
            assert programs() == 0


@pytest.mark.parametrize(
    ("options", "n", "nothing"),
    [
        ({}, 1000, True),
        ({}, 1001, False),
        ({"num_inducing": 20}, 100, False),
        ({"inducing_inputs": np.zeros((3, 3))}, 100, False),
        ({"solver": vastgp.options.Natural(max_steps=5)}, 100, False),
        ({"hyperparameters": "fixed", "kernel": RBF(np.ones(3), 1.0)}, 100, True),
        ({"kernel": "matern32"}, 100, True),
    ],
    ids=str,
)
def test_where_nothing_is_compiled_the_method_needs_next_to_no_time(options, n, nothing):
    """Of 300 rows and a budget of two seconds it had no answer, as compilation would have taken as long."""
    model = vastgp.TSVGPClassifier(**options)
    X, y = rows(n, "logit")
    model.classes_, model._class_weights = np.array([0, 1]), None
    data = Rows(X, np.where(y > 0, 1.0, -1.0), checked=True)
    model.standardizer_ = Standardizer().fit(Rows(X, None, checked=True))
    assert model._compiles_nothing(data) == nothing


def test_a_short_budget_does_for_few_rows():
    X, y = rows(120, "logit")
    model = vastgp.TSVGPClassifier(max_seconds=3.0).fit(X, y)
    assert model.converged_ and "too little of max_seconds" not in model.stop_reason_


def test_who_stays_on_the_host():
    assert on_host.stays_on_host(RBF(np.ones(2), 1.0) + Matern32(np.ones(2), 1.0), 1000)
    assert not on_host.stays_on_host(RBF(np.ones(2), 1.0), 1001)
