"""Targets of Python objects: numbers and labels of any type among missing values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vastgp.auto.reading_targets import classes_of, numbers_and_name

_X = np.zeros((3, 1))


@pytest.mark.parametrize("missing", [None, np.nan, np.float64("nan"), pd.NA, pd.NaT])
@pytest.mark.parametrize("kind", [float, np.float64, np.float32, np.int64])
def test_numbers_of_any_type_are_there_and_gaps_are_not(kind, missing):
    y = pd.Series([kind(3), missing, kind(2)], dtype=object)
    np.testing.assert_array_equal(numbers_and_name(_X, y)[0], [3.0, np.nan, 2.0])


@pytest.mark.parametrize("kind", [str, np.str_])
def test_labels_of_any_type_are_there_and_gaps_are_not(kind):
    y = np.array([kind("no"), None, kind("yes")], dtype=object)
    numbers, classes, _ = classes_of(_X, y)
    np.testing.assert_array_equal(numbers, [0.0, np.nan, 1.0])
    assert classes.tolist() == ["no", "yes"]


def test_truths_of_numpy_are_classes_of_which_none_is_missing():
    y = np.array([np.True_, np.False_, None], dtype=object)
    np.testing.assert_array_equal(classes_of(_X, y)[0], [1.0, 0.0, np.nan])
