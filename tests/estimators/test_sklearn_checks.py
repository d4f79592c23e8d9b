"""scikit-learn's own conformance checks, on every estimator."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from vastgp import ExactGPRegressor


@parametrize_with_checks([ExactGPRegressor()])
def test_scikit_learn_check(estimator, check):
    check(estimator)
