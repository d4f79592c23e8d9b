"""scikit-learn's own conformance checks, on every estimator but `QSGPRegressor`, which has them among its tests."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import has_fit_parameter

from estimators.classifier_conformance import AVERAGED
from estimators.regressor_conformance import OTHER_EVIDENCE
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

# What these ask is answered before a method has the rows, or after its posterior has spoken, by the lines that all
# estimators share: of regressors `ExactGPRegressor` has them, of classifiers `SVGPClassifier`. (`GPRegressor`,
# `GPClassifier` and the methods that have a conformance of their own have all of them as well.)
OF_THE_SHARED_LINES = {
    "check_classifier_data_not_an_array",
    "check_dtype_object",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_score_takes_y",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
    "check_regressor_data_not_an_array",
    "check_regressors_no_decision_function",
    "check_requires_y_none",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
    "check_supervised_y_2d",
}


def takes_weights(estimator):
    return has_fit_parameter(estimator, "sample_weight")


def checks_of_a_method(estimators, expected_failed_checks):
    """Parametrise by the checks that the lines of a method can fail.

    Left out are those of lines that all share, rows in memory that cannot be written to among them, and those that are
    expected to fail: one of each is enough to know that.
    """
    pairs = parametrize_with_checks(estimators, expected_failed_checks=expected_failed_checks)
    found = []
    for pair in pairs.args[1]:
        estimator, check = getattr(pair, "values", pair)
        name = check.func.__name__
        if (
            name not in OF_THE_SHARED_LINES
            and name not in expected_failed_checks(estimator)
            and "readonly_memmap" not in check.keywords
        ):
            found.append(pair)
    return pytest.mark.parametrize(*pairs.args[:1], found, **pairs.kwargs)


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
    [SVGPClassifier(RBF(1.0), num_inducing=4, hyperparameters=Fixed())],
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
