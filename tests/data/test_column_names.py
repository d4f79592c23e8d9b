"""Columns at prediction are those of the fit by name, and the target is none of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from vastgp import ExactGPRegressor
from vastgp.data import as_rows
from vastgp.kernels import RBF
from vastgp.options import Fixed

_N = 60
_RNG = np.random.default_rng(0)
_X = _RNG.normal(size=(_N, 3)) * [1, 1e6, 1e-6]
_Y = _RNG.normal(size=_N)
_NAMES = ["age", "mass", "length"]


def _frame() -> pd.DataFrame:
    return pd.DataFrame({"age": _X[:, 0], "y": _Y, "mass": _X[:, 1], "length": _X[:, 2]})


@pytest.mark.parametrize("kind", ["pandas", "polars", "csv", "parquet"])
def test_a_model_takes_its_columns_by_name(kind: str, tmp_path: Path) -> None:
    """From a file in any order; from a data frame in that of the fit, whatever stands between them."""
    frame = _frame()[["length", "y", "age", "mass"]].assign(note="text")
    ordered = frame[["age", "note", "mass", "y", "length"]]
    for other in (frame, frame[["length", "age", "mass"]]):
        with pytest.raises(
            ValueError, match=r"same order as they were in fit\.\n.*'length', 'age'"
        ):
            as_rows(other, feature_names=_NAMES)
    X: object = {
        "pandas": lambda: ordered,
        "polars": lambda: pl.from_pandas(ordered),
        # with a nameless column of row numbers
        "csv": lambda: frame.to_csv(tmp_path / "d.csv") or tmp_path / "d.csv",
        "parquet": lambda: frame.to_parquet(tmp_path / "d.parquet") or tmp_path / "d.parquet",
    }[kind]()
    rows = as_rows(X, feature_names=np.array(_NAMES, dtype=object), n_features=3)
    np.testing.assert_array_equal(rows.X, _X)
    assert rows.feature_names == _NAMES and rows.y is None
    rows = as_rows(X, "y", feature_names=_NAMES)
    np.testing.assert_array_equal(rows.y, _Y)


def test_missing_names_are_listed() -> None:
    frame = _frame().rename(columns={"length": "lenght"})
    with pytest.raises(
        ValueError,
        match=(
            r"The feature names should match those that were passed during fit\.\nFeature names unseen at fit time:\n"
            r"- lenght\n- y\nFeature names seen at fit time, yet now missing:\n- length\n"
            r"Model takes its columns from the pandas DataFrame X by name: .* Is 'lenght' what was 'length'\?"
        ),
    ):
        as_rows(frame, feature_names=_NAMES, estimator="Model")


def test_without_names_the_number_of_columns_has_to_be_right() -> None:
    with pytest.raises(
        ValueError, match=r"X has 2 features, but Model is expecting 3 features as input\."
    ):
        as_rows(_X[:, :2], n_features=3, estimator="Model")
    with pytest.raises(
        ValueError, match=r"X has 4 features, but Model is expecting 3 features as input\."
    ):
        as_rows(_frame(), n_features=3, estimator="Model")
    with pytest.warns(
        UserWarning, match="X does not have valid feature names, but Model was fitted with feature"
    ):
        as_rows(_X, feature_names=_NAMES, estimator="Model")
    with pytest.raises(ValueError, match="X has 2 features, but Model is expecting 3"):
        as_rows(_X[:, :2], feature_names=_NAMES, estimator="Model")


def test_frames_with_numbers_as_names_have_no_names() -> None:
    rows = as_rows(pd.DataFrame(_X), _Y)
    assert rows.feature_names is None
    np.testing.assert_array_equal(rows.X, _X)


@pytest.mark.parametrize("kind", ["pandas", "csv", "parquet"])
def test_an_input_is_no_target(kind: str, tmp_path: Path) -> None:
    frame, path = _frame(), tmp_path / f"d.{kind}"
    params = {"kernel": RBF(1.0, 1.0), "hyperparameters": Fixed(noise_std=1.0)}
    model = ExactGPRegressor(**params).fit(frame, "y")
    X: object = path
    if kind == "pandas":
        X = frame
    elif kind == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    message = (
        r"y='mass' is an input of the ExactGPRegressor, not its target: .* target, one of 'y'\."
    )
    for asked in (model.score, model.log_predictive_density):
        with pytest.raises(ValueError, match=message):
            asked(X, "mass")
    with pytest.raises(ValueError, match=r"name the column that holds the target\.$"):
        as_rows(frame[_NAMES], "age", feature_names=_NAMES)
    assert model.score(X, "y") == model.score(frame[_NAMES], frame["y"])
