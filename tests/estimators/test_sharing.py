"""Which estimators several processes fit: each class declares it, and refusals name those that do."""

import inspect

import pytest

import vastgp
from vastgp import options
from vastgp.data import processes
from vastgp.estimators.registry import ESTIMATORS
from vastgp.estimators.sharing import check_processes, sharing


@pytest.fixture
def two(monkeypatch):
    monkeypatch.setattr(processes, "count", lambda: 2)


SHARED = [
    vastgp.GriefRegressor(),
    vastgp.DirectRegressor(),
    vastgp.TSVGPRegressor(likelihood="poisson"),
    vastgp.ReweightedBasisRegressor(),
    vastgp.QSGPRegressor(likelihood="poisson"),
    vastgp.QSGPClassifier(),
    vastgp.TSVGPClassifier(),
    vastgp.IterativeGPRegressor(solver="cg"),
    vastgp.SVGPRegressor(solver="adam"),
    vastgp.SVGPClassifier(),
    vastgp.SWSGPRegressor(solver="stochastic"),
    vastgp.SWSGPRegressor(solver="nearest", likelihood="heteroskedastic"),
    vastgp.SWSGPClassifier(),
    vastgp.ReweightedBasisRegressor(likelihood="poisson-log-normal"),
    vastgp.ReweightedBasisClassifier(),
    vastgp.DirectClassifier(),
]
APART = [
    (vastgp.ExactGPRegressor(), "ExactGPRegressor is fitted by one process, and 2 run here"),
    (vastgp.GPRegressor(), "GPRegressor is fitted by one process"),
    (vastgp.GPClassifier(), "GPClassifier is fitted by one process"),
    (
        vastgp.SWSGPRegressor(likelihood="heteroskedastic"),
        "with noise that does not vary, or solver",
    ),
    (
        vastgp.SWSGPRegressor(solver=options.Nearest(evidence="ordered")),
        "or solver=Nearest(evidence='neighbors') alone",
    ),
    (vastgp.RandomFeatureGPRegressor(), "RandomFeatureGPRegressor is fitted by one process"),
    (vastgp.GridGP(), "GridGP is fitted by one process"),
    (
        vastgp.IterativeGPRegressor(likelihood="heteroskedastic"),
        "IterativeGPRegressor is fitted by several processes with likelihood='gaussian' alone",
    ),
    (vastgp.QSGPRegressor(solver="stochastic"), "with Fourier features, solver='block' and noise"),
    (vastgp.QSGPRegressor(basis="inducing"), "with Fourier features, solver='block' and noise"),
    (vastgp.QSGPRegressor(likelihood="heteroskedastic"), "with Fourier features, solver='block'"),
    (vastgp.QSGPClassifier(solver="stochastic"), "is fitted by several processes with solver='bl"),
]


def name_of(value):
    return type(value).__name__ if hasattr(value, "fit") else None


@pytest.mark.parametrize("model", SHARED, ids=name_of)
def test_what_declares_it_is_let_through(two, model):
    check_processes(model)


@pytest.mark.parametrize(("model", "said"), APART, ids=name_of)
def test_all_others_are_refused_by_name_with_what_can(two, model, said):
    with pytest.raises(ValueError, match="Processes share the rows of") as caught:
        check_processes(model)
    assert said in str(caught.value)
    for name, only in sharing(ESTIMATORS).items():
        assert (f"{name} ({only})" if only else name) in str(caught.value)


def test_the_front_door_refuses_before_it_reads(two):
    with pytest.raises(ValueError, match="GPRegressor is fitted by one process, and 2 run here"):
        vastgp.GPRegressor().fit("no such table", "y")


def test_one_process_fits_all():
    for model, _ in APART:
        check_processes(model)


def test_each_class_that_shares_is_tried_here():
    assert {type(model).__name__ for model in SHARED} == set(sharing(ESTIMATORS))


def test_rows_with_noise_of_their_own_are_of_one_process(two):
    for name in ("noise_std", "sample_weight", "exposure"):
        known = inspect.signature(vastgp.TSVGPRegressor.fit).parameters
        assert name in known
        model = vastgp.TSVGPRegressor(
            likelihood="poisson" if name == "exposure" else "gaussian",
            hyperparameters=options.Subset(rows=10),
        )
        with pytest.raises(
            ValueError, match="sample_weight and exposure are taken by a fit in one"
        ):
            model.fit([[0.0], [1.0], [2.0]], [1.0, 0.0, 2.0], **{name: [1.0, 2.0, 1.0]})
