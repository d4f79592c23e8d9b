"""scikit-learn's own conformance checks of the front door, each with one method that is quick."""

import warnings

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from estimators.regressor_conformance import OTHER_EVIDENCE
from vastgp import GPClassifier, GPRegressor


@pytest.mark.little_work
@parametrize_with_checks(
    [
        GPRegressor(method="exact", max_seconds=5),
        GPClassifier(method="direct", max_seconds=5),
    ],
    expected_failed_checks=lambda each: OTHER_EVIDENCE if isinstance(each, GPRegressor) else {},
)
def test_scikit_learn_check(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)
