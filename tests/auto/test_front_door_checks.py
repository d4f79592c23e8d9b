"""scikit-learn's own conformance checks of the front door, each with one method that is quick."""

import warnings

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from estimators.regressor_conformance import OTHER_EVIDENCE
from vastgp import GPClassifier, GPRegressor

# These compare two fits, which a clock would end at different moments.
COMPARING = {
    "check_classifier_data_not_an_array",
    "check_fit_idempotent",
    "check_pipeline_consistency",
    "check_regressor_data_not_an_array",
    "check_regressors_int",
    "check_sample_weight_equivalence_on_dense_data",
    "check_supervised_y_2d",
}


def run(estimator, check):
    # one object is handed to all of its checks, and none of them must see what another one set
    estimator = clone(estimator)
    if check.func.__name__ in COMPARING:
        estimator.set_params(max_seconds=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.little_work
@parametrize_with_checks(
    [GPRegressor(method="exact", max_seconds=2)], expected_failed_checks=lambda _: OTHER_EVIDENCE
)
def test_scikit_learn_check_of_regression(estimator, check):
    run(estimator, check)


# averages over a softmax are most of the time, and take nine times as long where compilation is kept short
@parametrize_with_checks([GPClassifier(method="direct", max_seconds=2)])
def test_scikit_learn_check_of_classes(estimator, check):
    run(estimator, check)
