"""Saved models that somebody changed: a model or one kind of error, and never more than that."""

import warnings

import numpy as np
import pytest

import vastgp
from damaged_files import damaged
from fault_child import small_table
from promises import quick


@pytest.mark.parametrize(
    ("name", "cases"),
    [("ExactGPRegressor", 150), ("DirectRegressor", 100)],
)
def test_a_changed_file_is_refused_by_its_name_or_read(name, cases, tmp_path):
    X, y, _ = small_table(name.endswith("Classifier"))
    whole, path, refused = tmp_path / "whole", tmp_path / "changed", 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quick(name, X).fit(X, y).save(whole)
        generator = np.random.default_rng(0)
        for _ in range(cases):
            what = damaged(path, whole, generator)
            try:
                vastgp.load(path)
            except ValueError as error:
                said = str(error)
                assert str(path) in said, (what, said)
                refused += 1
    assert refused > cases // 3
