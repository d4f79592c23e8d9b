"""Which of scikit-learn's conformance checks the lines of a method can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

# What these ask is answered before a method has the rows, or after its posterior has spoken, by the lines that all
# estimators share: of regressors `ExactGPRegressor` has them, of classifiers `SVGPClassifier`. (`GPRegressor`,
# `GPClassifier` and `ReweightedBasisRegressor`, which opens its rows by itself, have all of them as well.)
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
# The lines that all share. A method that has one of its own has all checks.
_SHARED = (
    "fit", "predict", "predict_proba", "score", "decision_function", "log_predictive_density", "_take",
    "_open_training",
)  # fmt: skip


def _shares_lines(estimator: Any) -> bool:
    of_methods = [
        kind for kind in type(estimator).__mro__ if kind.__module__.startswith("vastgp.methods.")
    ]
    return not any(name in vars(kind) for kind in of_methods for name in _SHARED)


def checks_of_a_method(
    estimators: list[Any], expected_failed_checks: Callable[[Any], dict[str, str]] = lambda _: {}
) -> Any:
    """Parametrise by the checks that the lines of a method can fail.

    Left out are those of lines that all share, rows in memory that cannot be written to among them, and those that are
    expected to fail: one of each is enough to know that. A method that has one of these lines by itself has all.
    """
    pairs = parametrize_with_checks(estimators, expected_failed_checks=expected_failed_checks)
    found = []
    for pair in pairs.args[1]:
        estimator, check = getattr(pair, "values", pair)
        name = check.func.__name__
        if not _shares_lines(estimator) or (
            name not in OF_THE_SHARED_LINES
            and name not in expected_failed_checks(estimator)
            and "readonly_memmap" not in check.keywords
        ):
            found.append(pair)
    return pytest.mark.parametrize(*pairs.args[:1], found, **pairs.kwargs)
