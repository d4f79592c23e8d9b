"""Sums over parts of the rows make the model of all of them."""

import numpy as np
import pandas as pd
import pytest

import vastgp
from vastgp.options import Fixed, Subset

KERNEL = vastgp.RBF([0.5, 0.8], variance=2.0)
MODELS = {
    "grief": lambda: vastgp.GriefRegressor("rbf", 20, hyperparameters=Subset(rows=100)),
    "direct": lambda: vastgp.DirectRegressor(
        KERNEL, 20, hyperparameters=Fixed(noise_std=0.1), dtype="float64"
    ),
}


@pytest.fixture(scope="module")
def frame():
    generator = np.random.default_rng(0)
    X = generator.uniform(size=(1000, 2))
    y = np.sin(5.0 * X[:, 0]) * X[:, 1] + 0.1 * generator.normal(size=1000)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})


@pytest.mark.parametrize("name", MODELS)
def test_partitions_of_a_dask_frame_update_as_their_rows_do(name, frame):
    dd = pytest.importorskip("dask.dataframe")
    first = frame[:400]
    at_once = MODELS[name]().fit(first, "y").partial_fit(frame[400:], "y")
    by_parts = MODELS[name]().fit(first, "y")
    parts = dd.from_pandas(frame[400:], npartitions=5, sort=False)
    sums = vastgp.statistics(by_parts, parts, "y")
    by_parts.update(sums)
    assert sums.num_rows == 600 and by_parts.statistics_.num_rows == 1000
    # what follows from the sums are searches, which rounding may lead elsewhere
    np.testing.assert_allclose(
        by_parts.statistics_.moments, at_once.statistics_.moments, rtol=1e-12, atol=1e-12
    )
    assert by_parts.score(frame[["a", "b"]], frame["y"]) > 0.9


def test_partitions_that_a_filter_left_empty_add_nothing(frame):
    dd = pytest.importorskip("dask.dataframe")
    model = MODELS["direct"]().fit(frame[:400], "y")
    rest = frame[400:].sort_values("a")
    parts = dd.from_pandas(rest.reset_index(drop=True), npartitions=5)
    sums = vastgp.statistics(model, parts[parts["a"] > 0.5], "y")
    expected = model.statistics(rest[rest["a"] > 0.5], "y")
    assert sums.num_rows == expected.num_rows
    np.testing.assert_allclose(sums.moments, expected.moments, rtol=1e-12, atol=1e-12)
    # Spark makes data frames without columns of them
    for none in (frame[:0], pd.DataFrame([])):
        total = expected + model.statistics(none, "y")
        assert total.num_rows == expected.num_rows
        np.testing.assert_array_equal(total.moments, expected.moments)
    assert model.statistics(np.zeros((0, 2)), []).num_rows == 0
    with pytest.raises(ValueError, match=r"Found array with 0 sample"):
        model.partial_fit(frame[:0], "y")


def test_what_has_no_sums_or_no_partitions_is_named(frame):
    with pytest.raises(
        ValueError, match="model is a ExactGPRegressor, which sums over rows do not make"
    ):
        vastgp.statistics(vastgp.ExactGPRegressor(), frame, "y")
    with pytest.raises(ValueError, match=r"frame is a DataFrame\. Expected a dask DataFrame"):
        vastgp.statistics(vastgp.GriefRegressor(), frame, "y")


@pytest.mark.parametrize("wrong", [3, None, np.zeros((2, 2))])
def test_what_are_no_sums_is_refused_by_name(wrong, frame):
    model = MODELS["direct"]().fit(frame[:50], "y")
    said = r"statistics must be sums over rows, .* received (3|None|array.*)\. partial_fit"
    with pytest.raises(ValueError, match=said):
        model.update(wrong)
    assert model.statistics_.num_rows == 50
