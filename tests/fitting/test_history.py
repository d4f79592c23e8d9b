"""The record of a fit."""

import math

import numpy as np
import pytest

from vastgp.fitting.history import History


def test_columns_stay_of_one_length_when_diagnostics_come_and_go():
    history = History()
    history.append(10, 0.5, {"objective": 1.0})
    history.append(20, 1.0, {"objective": 2.0, "residual": 0.1})
    history.append(30, 1.5, {"residual": 0.05})
    table = history.to_dict()
    assert table["steps"] == [10, 20, 30] and table["seconds"] == [0.5, 1.0, 1.5]
    np.testing.assert_array_equal(table["objective"], [1.0, 2.0, math.nan])
    np.testing.assert_array_equal(table["residual"], [math.nan, 0.1, 0.05])
    assert history.last("residual") == 0.05 and math.isnan(history.last("nothing"))
    assert history.objective_se == [0.0, 0.0, 0.0]
    assert "residual" in history and "other" not in history and len(history) == 3


def test_arrays_restore_every_bit():
    history = History()
    history.append(1, 0.1 + 0.2, {"objective": 1e-300, "objective_se": math.nan})
    again = History.from_dict(history.to_arrays())
    np.testing.assert_equal(again.to_dict(), history.to_dict())
    assert isinstance(again.steps[0], int) and isinstance(again.objective[0], float)


def test_an_unknown_column_names_those_there_are():
    history = History()
    with pytest.raises(KeyError, match="holds nothing yet"):
        history["objective"]
    history.append(1, 1.0, {"residual": 1.0})
    with pytest.raises(KeyError, match="no 'objective'; it holds residual"):
        history.objective  # noqa: B018
