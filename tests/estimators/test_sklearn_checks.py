"""scikit-learn's own conformance checks, on the estimators that have none among tests of their own."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import has_fit_parameter

from estimators.classifier_conformance import AVERAGED
from estimators.regressor_conformance import OTHER_EVIDENCE
from estimators.sklearn_checks import checks_of_a_method
from vastgp import (
    ExactGPRegressor,
    IterativeGPRegressor,
    QSGPClassifier,
    RandomFeatureGPRegressor,
    SVGPClassifier,
    SVGPRegressor,
    TSVGPClassifier,
    TSVGPRegressor,
)
from vastgp.kernels import RBF
from vastgp.options import Block, Fixed, Learn, Natural

# few steps are enough for what is asked here
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

QUICK = {"kernel": "rbf", "num_inducing": 4, "solver": Natural(max_steps=10, row_batch=64)}

# Repeated rows have weights of a larger sum, and another mean and deviation of the inputs.
OF_MEAN_ONE = {
    "check_sample_weight_equivalence_on_dense_data": "weights are divided by their mean, so that they sum to the rows",
}


def takes_weights(estimator):
    return has_fit_parameter(estimator, "sample_weight")


@pytest.mark.little_work
@parametrize_with_checks(
    # one family of kernels and one start: the default tries several
    [ExactGPRegressor("rbf", restarts=1, tol=1e-2)],
    expected_failed_checks=lambda _: OTHER_EVIDENCE,
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.little_work
@checks_of_a_method(
    [
        IterativeGPRegressor("rbf", num_samples=4),
        RandomFeatureGPRegressor("rbf", num_basis=64, hyperparameters=Learn(steps=2)),
    ],
    lambda estimator: OTHER_EVIDENCE if takes_weights(estimator) else {},
)
def test_scikit_learn_check_of_a_method(estimator, check):
    check(estimator)


@checks_of_a_method(
    # double precision: a check compares decision values of a subset of the rows to 1e-7
    [QSGPClassifier(RBF(1.0), 16, solver=Block(4), hyperparameters=Fixed(), dtype="float64")],
    lambda _: AVERAGED,
)
def test_scikit_learn_check_of_a_classifier(estimator, check):
    check(estimator)


@pytest.mark.little_work
@checks_of_a_method([TSVGPRegressor(**QUICK), SVGPRegressor(**QUICK)], lambda _: OTHER_EVIDENCE)
def test_scikit_learn_check_of_inducing_points(estimator, check):
    check(estimator)


# averages over a softmax are most of a search, which is that of all methods: it is among the checks of
# `DirectClassifier`, `ReweightedBasisClassifier` and, with its race, `GPClassifier`
@parametrize_with_checks(
    [SVGPClassifier(RBF(1.0), num_inducing=4, hyperparameters=Fixed(), tol=1e-2)],
    expected_failed_checks=lambda _: AVERAGED | OF_MEAN_ONE,
)
def test_scikit_learn_check_of_classes(estimator, check):
    check(estimator)


@checks_of_a_method(
    [TSVGPClassifier(RBF(1.0), num_inducing=4, hyperparameters=Fixed())],
    lambda _: AVERAGED | OF_MEAN_ONE,
)
def test_scikit_learn_check_of_inducing_points_and_classes(estimator, check):
    check(estimator)
