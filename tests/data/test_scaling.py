"""Streaming statistics are those of the whole array, to rounding."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vastgp.data import Rows, Standardizer


def _offset_columns(n: int = 10_007) -> np.ndarray:
    """Columns that one-pass formulas get wrong: far from zero, tiny, huge, skewed."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 6))
    z[:, 4] = np.exp(3 * z[:, 4])
    return z * [1.0, 1.0, 1e-9, 1e9, 1.0, 1e-3] + [0.0, 1e8, 1e-3, -1e12, 0.0, 1e6]


def _exact(column: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation from exactly rounded sums."""
    mean = math.fsum(column) / column.size
    rest = column - mean
    return mean, math.sqrt(
        math.fsum(rest * rest) / column.size - (math.fsum(rest) / column.size) ** 2
    )


@pytest.mark.parametrize("batch_rows", [1, 7, 1000, 10_007, 50_000])
def test_statistics_equal_those_of_the_whole_array_however_it_is_cut(batch_rows: int) -> None:
    X = _offset_columns()
    y = X[:, 1] * 2 - 3e8
    scaling = Standardizer().fit(Rows(X, y), batch_rows)
    for j in range(X.shape[1]):
        mean, std = _exact(X[:, j])
        assert abs(scaling.x_mean[j] - mean) <= 4 * np.spacing(np.abs(X[:, j]).max())
        assert scaling.x_scale[j] == pytest.approx(std, rel=1e-12, abs=0)
    np.testing.assert_allclose(scaling.x_mean, X.mean(axis=0), rtol=1e-12, atol=1e-15)
    # NumPy takes a rounded mean out, which costs it 2e-12 in the last column; the others agree.
    np.testing.assert_allclose(scaling.x_scale[:5], X.std(axis=0)[:5], rtol=1e-12)
    assert scaling.y_mean == pytest.approx(y.mean(), rel=1e-12)
    assert scaling.y_scale == pytest.approx(y.std(), rel=1e-12)
    assert scaling.n_rows == X.shape[0]


def test_the_textbook_formula_would_fail_the_test_above() -> None:
    """The offset column tells the methods apart: E[x^2] - E[x]^2 has no correct digit there."""
    x = _offset_columns()[:, 1]
    assert abs(np.mean(x**2) - np.mean(x) ** 2 - x.var()) > 0.5


@settings(max_examples=50, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 499), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_merging_parts_is_associative_and_commutative(cuts: list[int], order) -> None:
    X = _offset_columns(500)
    parts = []
    for block in np.split(X, sorted(set(cuts))):
        parts.append(Standardizer().partial_fit(block, block[:, 1]))
    order.shuffle(parts)
    left = Standardizer()  # ((a b) c) d
    for part in parts:
        left.merge(part)
    right = Standardizer()  # a (b (c d))
    for part in reversed(parts):
        right = Standardizer.from_dict(part.to_dict()).merge(right)
    for merged in (left, right):
        np.testing.assert_allclose(merged.x_mean, X.mean(axis=0), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(
            merged.x_scale, [_exact(column)[1] for column in X.T], rtol=1e-12
        )
        assert merged.y_scale == pytest.approx(X[:, 1].std(), rel=1e-12)
        assert merged.n_rows == 500


def test_merge_leaves_the_other_one_alone() -> None:
    X = _offset_columns(100)
    a, b = Standardizer().partial_fit(X[:60]), Standardizer().partial_fit(X[60:])
    before = json.dumps(b.to_dict())
    a.merge(b)
    assert json.dumps(b.to_dict()) == before


def test_standardised_rows_have_mean_0_and_deviation_1_and_come_back() -> None:
    X = _offset_columns()
    y = 5e5 + 3 * np.random.default_rng(1).normal(size=X.shape[0])
    scaling = Standardizer().fit(Rows(X, y))
    Z, t = scaling.transform_X(X), scaling.transform_y(y)
    np.testing.assert_allclose(
        Z.mean(axis=0), 0, atol=2e-3 * 1e-3
    )  # column 3 has spacing 1e-4 against a scale of 1e9
    np.testing.assert_allclose(Z.std(axis=0), 1, rtol=1e-9)
    np.testing.assert_allclose(scaling.inverse_mean(t), y, rtol=1e-14)
    # y = a + s t, so a Gaussian N(m, v) of t is N(a + s m, s^2 v) of y.
    np.testing.assert_allclose(scaling.inverse_std(np.array([2.0])), [2 * y.std()], rtol=1e-12)
    assert scaling.transform_X(X, np.float32).dtype == np.float32
    np.testing.assert_array_equal(scaling.transform_X(X, np.float32), Z.astype(np.float32))


def test_rounding_happens_after_scaling() -> None:
    """In float32 1e8 + 1 is 1e8: a column scaled after rounding would be destroyed."""
    x = 1e8 + np.random.default_rng(2).normal(size=(1000, 1))
    scaling = Standardizer().fit(Rows(x))
    np.testing.assert_allclose(
        scaling.transform_X(x, np.float32)[:, 0], (x[:, 0] - x.mean()) / x.std(), atol=1e-6
    )


@pytest.mark.parametrize("value", [0.0, 0.1, -1e8 / 3, 1e-300, 1e300])
def test_constant_columns_get_scale_1_and_are_listed(value: float) -> None:
    X = np.random.default_rng(3).normal(size=(3000, 3))
    X[:, 1] = value
    scaling = Standardizer().fit(Rows(X), batch_rows=77)
    assert scaling.constant_features_.tolist() == [1]
    assert scaling.x_scale[1] == 1.0
    np.testing.assert_allclose(scaling.transform_X(X)[:, 1], 0.0, atol=1e-14 * max(1.0, abs(value)))


def test_rounding_noise_is_not_blown_up_to_a_feature() -> None:
    """0.1 + 0.2 and 0.3 differ in the last bit; that is one value."""
    x = np.array([[0.1 + 0.2], [0.3]] * 10)
    assert np.ptp(x) > 0
    scaling = Standardizer().fit(Rows(x))
    assert scaling.constant_features_.tolist() == [0]
    assert np.abs(scaling.transform_X(x)).max() < 1e-15


def test_rounding_of_one_huge_value_stays_small() -> None:
    """1e159 has neighbours in float64 that are 1e143 away."""
    x = 1e159 * (1.0 + np.finfo(float).eps * np.arange(4.0))
    with pytest.warns(UserWarning, match="y is constant"):
        scaling = Standardizer().fit(Rows(x[:, None], x))
    assert scaling.constant_features_.tolist() == [0]
    for found in (scaling.transform_X(x[:, None]), scaling.transform_y(x)):
        assert 0.0 < np.abs(found).max() <= 1.0


def test_a_small_spread_far_from_zero_is_a_feature() -> None:
    x = (1e8 + np.arange(100) * 1e-6)[:, None]
    scaling = Standardizer().fit(Rows(x))
    assert scaling.constant_features_.size == 0
    assert scaling.x_scale[0] == pytest.approx(_exact(x[:, 0])[1], rel=1e-12, abs=0)


def test_a_constant_target_warns_and_gets_scale_1() -> None:
    X = np.random.default_rng(4).normal(size=(50, 2))
    with pytest.warns(
        UserWarning, match=r"y is constant: every value is 2\.5\. .*Is y the column you meant"
    ):
        scaling = Standardizer().fit(Rows(X, np.full(50, 2.5)))
    assert (scaling.y_mean, scaling.y_scale) == (2.5, 1.0)


@pytest.mark.parametrize("spread", [1e-156, 1e-160, 1e-200, 1e156])
def test_a_spread_whose_square_float64_has_not_is_refused_by_name(spread: float) -> None:
    """The square of 1e-156 is there with fewer digits, and its inverse is not: noise had an infinite variance."""
    x = np.random.default_rng(5).normal(size=(50, 1))
    with pytest.raises(ValueError, match=r"y runs from .* cannot be represented in float64"):
        Standardizer().fit(Rows(x, spread * x[:, 0]))
    with pytest.raises(ValueError, match=r"X column 0 runs from .* Express it in another unit"):
        Standardizer().fit(Rows(spread * x))
    for near in (1e-153, 1e152):
        scaling = Standardizer().fit(Rows(near * x, near * x[:, 0]))
        np.testing.assert_allclose(scaling.transform_X(near * x).std(), 1.0, rtol=1e-12)


def test_one_row_and_no_target() -> None:
    scaling = Standardizer().fit(Rows(np.array([[3.0, 4.0]])))
    assert scaling.x_mean.tolist() == [3.0, 4.0] and scaling.x_scale.tolist() == [1.0, 1.0]
    assert (scaling.y_mean, scaling.y_scale) == (0.0, 1.0)


@pytest.mark.parametrize("column", [[0.0, 1e200], [0.0, 1e-200], [1.7e308, 1.6e308]])
def test_a_spread_beyond_float64_is_an_error_that_names_the_column(column: list[float]) -> None:
    X = np.array([[0.0, column[0]], [1.0, column[1]]])
    with pytest.raises(
        ValueError, match=r"X column 'b' runs from .* to 1\.?7?e[+-]?[0-9]{3}, .* another unit"
    ):
        Standardizer().fit(Rows(X, feature_names=["a", "b"]))


def test_stored_statistics_are_the_same_bits_and_can_go_on() -> None:
    X = _offset_columns(300)
    first = Standardizer().partial_fit(X[:200], X[:200, 0])
    again = Standardizer.from_dict(json.loads(json.dumps(first.to_dict())))
    np.testing.assert_array_equal(again.x_mean, first.x_mean)
    np.testing.assert_array_equal(again.x_scale, first.x_scale)
    assert (again.y_mean, again.y_scale) == (first.y_mean, first.y_scale)
    for scaling in (first, again):
        scaling.partial_fit(X[200:], X[200:, 0])
    np.testing.assert_array_equal(again.x_scale, first.x_scale)


def test_blocks_must_fit_together() -> None:
    scaling = Standardizer().partial_fit(np.ones((2, 3)))
    with pytest.raises(ValueError, match="X has 1 features, but Standardizer is expecting 3"):
        scaling.partial_fit(np.ones((2, 1)))
    with pytest.raises(ValueError, match="X has 2, y has 3"):
        Standardizer().partial_fit(np.ones((2, 1)), np.ones(3))
    with pytest.raises(ValueError, match="has seen no rows"):
        Standardizer().transform_X(np.ones((2, 1)))
