"""scikit-learn's own conformance checks of the front door, each with one method that is quick."""

import warnings

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from estimators.regressor_conformance import OTHER_EVIDENCE
from vastgp import GPClassifier, GPRegressor

# These compare two fits, which a clock would end at different moments on a busy machine.
COMPARING = {"check_fit_idempotent", "check_supervised_y_2d"}


@pytest.mark.little_work
@parametrize_with_checks(
    [
        GPRegressor(method="exact", max_seconds=5),
        GPClassifier(method="direct", max_seconds=5),
    ],
    expected_failed_checks=lambda each: OTHER_EVIDENCE if isinstance(each, GPRegressor) else {},
)
def test_scikit_learn_check(estimator, check):
    if check.func.__name__ in COMPARING:
        estimator.set_params(max_seconds=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)
