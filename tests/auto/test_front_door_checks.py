"""scikit-learn's own conformance checks of the front door, each with one method that is quick."""

import warnings

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from estimators.regressor_conformance import OTHER_EVIDENCE
from vastgp import GPClassifier, GPRegressor
from vastgp.auto import candidates
from vastgp.auto.candidates import Candidate
from vastgp.kernels import RBF
from vastgp.options import Fixed

# These are answered by how well and how evenly a method learns. All others ask what the front door does with rows,
# labels and weights, whatever the method: one that has nothing to learn, so that no clock ends it, and two fits of the
# same rows are the same. A few steps are enough for what is asked.
OF_A_METHOD = {
    "check_classifiers_classes",
    "check_classifiers_train",
    "check_estimators_dtypes",
    "check_estimators_pickle",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_regressors_train",
}
GIVEN = {"kernel": RBF(1.0), "hyperparameters": Fixed()}
WITHOUT_LEARNING = {
    False: Candidate(
        "given", "ExactGPRegressor", GIVEN | {"hyperparameters": Fixed(noise_std=0.3)}
    ),
    True: Candidate("given", "SVGPClassifier", GIVEN | {"num_inducing": 4, "tol": 0.1}),
}


@pytest.fixture
def run(monkeypatch):
    def run(estimator, check):
        # one object is handed to all of its checks, and none of them must see what another one set
        estimator = clone(estimator)
        if check.func.__name__ not in OF_A_METHOD or "readonly_memmap" in check.keywords:
            estimator.set_params(max_seconds=None)
            named = lambda method, classes, likelihood: WITHOUT_LEARNING[classes]  # noqa: E731
            monkeypatch.setattr(candidates, "named", named)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(estimator)

    return run


@pytest.mark.little_work
@parametrize_with_checks(
    [GPRegressor(method="exact", max_seconds=2)], expected_failed_checks=lambda _: OTHER_EVIDENCE
)
def test_scikit_learn_check_of_regression(run, estimator, check):
    run(estimator, check)


# averages over a softmax are most of the time, and take nine times as long where compilation is kept short
@parametrize_with_checks([GPClassifier(method="direct", max_seconds=2)])
def test_scikit_learn_check_of_classes(run, estimator, check):
    run(estimator, check)
