"""Weights and known errors of rows on their way in: what is refused, and what the rows then carry."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from vastgp.data import OwnNoise, Standardizer, as_rows, chunk_of_minibatches, observations, without


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    return X, X[:, 0] + rng.normal(size=40), rng.uniform(0.1, 2.0, 40), rng.uniform(0.5, 3.0, 40)


def opened(X, y, noise_std=None, sample_weight=None):
    X, own = OwnNoise(noise_std, sample_weight).read_columns(X)
    return own.attach(as_rows(X, y))


def test_observations_are_target_inverse_weight_and_known_variance(data):
    X, y, error, weight = data
    rows = opened(X, y, error, weight)
    np.testing.assert_array_equal(rows.y[:, 0], y)
    np.testing.assert_allclose(rows.y[:, 1], weight.mean() / weight, rtol=1e-14)
    np.testing.assert_array_equal(rows.y[:, 2], error**2)
    variances = observations.noise_variances(rows.y, 0.3)
    np.testing.assert_allclose(variances, 0.3 * weight.mean() / weight + error**2, rtol=1e-14)


def test_they_go_wherever_rows_go_in_standardised_units(data):
    X, y, error, weight = data
    rows = opened(X, 10.0 * y, 10.0 * error, weight)
    standardizer = Standardizer().fit(rows)
    scale = standardizer.y_scale
    chosen = np.array([3, 1, 7])
    found = standardizer.transform_y(without(rows, np.array([0])).take(chosen - 1)[1])
    np.testing.assert_allclose(found[:, 2], (10.0 * error[chosen] / scale) ** 2, rtol=1e-14)
    np.testing.assert_array_equal(found[:, 1], rows.y[chosen, 1])
    _, batches = chunk_of_minibatches(rows, standardizer, 0, 0, 2, 5, "float64")
    assert batches.shape == (2, 5, 3)
    row = np.flatnonzero(rows.y[:, 1] == batches[1, 2, 1])
    np.testing.assert_allclose(standardizer.inverse_mean(batches[1, 2, :1]), 10.0 * y[row])


def test_rows_that_are_all_alike_carry_nothing(data):
    X, y, _, _ = data
    for given in ({"noise_std": np.zeros(40)}, {"sample_weight": np.full(40, 3.0)}):
        assert not observations.has_own_noise(opened(X, y, **given).y)


def test_rows_of_weight_zero_are_left_out(data):
    X, y, error, weight = data
    weight[[2, 5, 39]] = 0.0
    rows = opened(X, y, error, weight)
    kept = np.flatnonzero(weight)
    np.testing.assert_array_equal(rows.take(np.arange(rows.n))[0], X[kept])
    np.testing.assert_allclose(rows.y[:, 1], weight[kept].mean() / weight[kept], rtol=1e-14)
    np.testing.assert_array_equal(rows.y[:, 2], error[kept] ** 2)


@pytest.mark.parametrize("kind", ["pandas", "polars", "csv", "parquet"])
def test_a_column_of_a_table_is_known_by_its_name_and_no_input(data, kind, tmp_path):
    X, y, error, weight = data
    columns = {"a": X[:, 0], "err": error, "b": X[:, 1], "y": y, "w": weight}
    table = pd.DataFrame(columns) if kind != "polars" else pl.DataFrame(columns)
    if kind in ("csv", "parquet"):
        path = tmp_path / f"table.{kind}"
        table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
        table = path
    rows = opened(table, "y", "err", "w")
    assert rows.feature_names == ["a", "b"] and rows.target_name == "y"
    np.testing.assert_array_equal(rows.take(np.arange(40))[0], X)
    np.testing.assert_array_equal(rows.y, opened(X, y, error, weight).y)


@pytest.mark.parametrize("argument", ["noise_std", "sample_weight"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: -v, r"{} must hold finite numbers.*received 40 other values, the first -"),
        (
            lambda v: np.where(v == v[3], np.nan, v),
            r"{} must .*1 other value, the first nan at row 3",
        ),
        (
            lambda v: np.where(v == v[3], np.inf, v),
            r"{} must .*1 other value, the first inf at row 3",
        ),
        (lambda v: v[:-1], r"{} has shape \(39,\). Expected \(40,\): one number for each row"),
        (lambda v: v[:, None], r"{} has shape \(40, 1\). Expected \(40,\)"),
        (lambda v: v.astype(str), r"{} holds strings"),
        (lambda v: "err", r"{}='err' is a string, and X is not a table"),
        (lambda v: 0.5, r"{}=0.5 is a single value. Expected an array"),
    ],
)
def test_what_cannot_be_used_is_named(data, argument, change, message):
    X, y, error, _ = data
    with pytest.raises(ValueError, match=message.format(argument)):
        opened(X, y, **{argument: change(error)})


def test_what_to_do_is_said(data):
    X, y, _, _ = data
    with pytest.raises(ValueError, match=r"set hyperparameters=Fixed\(noise_std=...\)"):
        opened(X, y, noise_std=0.1)
    with pytest.raises(ValueError, match="sample_weight is zero for all rows"):
        opened(X, y, sample_weight=np.zeros(40))
    table = pd.DataFrame({"a": X[:, 0], "y": y, "kind": ["good"] * 40})
    with pytest.raises(ValueError, match=r"noise_std='err' is no column of .*'a', 'y', 'kind'"):
        opened(table, "y", "err")
    with pytest.raises(ValueError, match=r"The column sample_weight='kind' of .*convert this one"):
        opened(table, "y", sample_weight="kind")


def test_the_targets_scale_is_what_known_errors_do_not_explain():
    """Of 4,000 targets of variance 4, half of them off by ten and a thousand, to four standard errors."""
    rng = np.random.default_rng(1)
    error = rng.choice([0.0, 0.5, 10.0, 1000.0], 4000)
    y = 3.0 + 2.0 * rng.normal(size=4000) + error * rng.normal(size=4000)
    found = Standardizer().fit(opened(y[:, None], y, error))
    informed = int(np.sum(error < 1.0))
    assert found.y_mean == pytest.approx(3.0, abs=4 * 2.0 / informed**0.5)
    assert found.y_scale == pytest.approx(2.0, abs=4 * 2.1 / (2 * informed) ** 0.5)
    assert Standardizer.from_dict(found.to_dict()).y_scale == found.y_scale


def test_weights_count_in_mean_and_scale_as_repetitions_do():
    rng = np.random.default_rng(2)
    y, weight = rng.normal(size=60), rng.integers(1, 5, 60)
    found = Standardizer().fit(opened(y[:, None], y, sample_weight=weight))
    repeated = np.repeat(y, weight)
    assert found.y_mean == pytest.approx(repeated.mean(), abs=1e-12)
    assert found.y_scale == pytest.approx(repeated.std(), rel=1e-12)


def test_errors_and_weights_of_any_size_are_numbers():
    y = np.array([1.0, 2.0, 4.0, 7.0])
    rows = opened(y[:, None], y, [0.0, 1e-200, 1.0, 1e200], [1e-300, 1.0, 1e300, 1.0])
    standardizer = Standardizer().fit(rows)
    assert np.all(np.isfinite(rows.y)) and np.isfinite(standardizer.y_scale)
    narrow = standardizer.transform_y(rows.y, "float32")
    assert np.all(np.isfinite(narrow)) and np.all(narrow[:, 1:] <= 1e8)
