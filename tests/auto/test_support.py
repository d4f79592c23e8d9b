"""Rows outside the training rows are found, and others left alone."""

from __future__ import annotations

import numpy as np
import pytest

from vastgp.auto.support import RangeCheck


@pytest.fixture(scope="module")
def ring():
    """A check of rows on a ring: the middle is inside both ranges and far from all rows."""
    rng = np.random.default_rng(0)
    return RangeCheck.fit(on_ring(rng, 3000), [0.5, 0.5], ["east", "north"])


def on_ring(rng, n):
    angle, radius = rng.uniform(0, 2 * np.pi, n), rng.normal(3.0, 0.1, n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def test_the_middle_of_a_ring_is_outside_and_the_ring_is_not(ring):
    assert ring.outside([[0.0, 0.0], [3.0, 0.0], [0.0, -3.0], [9.0, 0.0]]).tolist() == [
        True,
        False,
        False,
        True,
    ]
    (reason,) = ring.reasons([0.0, 0.0])
    assert "no training row has inputs like these together" in reason
    assert ring.reasons([9.0, 0.0])[0].startswith("east is 9, above all training rows (3.")
    assert ring.reasons([3.0, 0.0]) == []
    assert ring.reasons([np.nan, 1.0])[0] == "east is not a finite number"
    assert ring.outside([[1e300, 0.0], [np.inf, 0.0], [0.0, np.nan]]).all()


@pytest.mark.parametrize("d", [2, 20])
def test_about_one_in_a_hundred_rows_of_the_same_kind_is_outside(d):
    rng = np.random.default_rng(1)
    check = RangeCheck.fit(rng.standard_normal((5000, d)), np.full(d, 2.0))
    n = 20_000
    share = np.mean(check.outside(rng.standard_normal((n, d))))
    # 1 %, itself known from 2000 rows, with the few beyond a range by a tenth of it
    assert abs(share - 0.01) < 4 * np.sqrt(0.01 * 0.99 * (1 / n + 1 / 2000)) + 0.002


def test_distances_are_those_of_brute_force_and_leave_out_infinite_lengthscales(ring):
    rng = np.random.default_rng(2)
    X = rng.uniform(-4, 4, (50, 2))
    brute = np.sqrt(((X[:, None] - ring.reference) ** 2).sum(axis=2)).min(axis=1) / 0.5
    np.testing.assert_allclose(ring.distances(X), brute, rtol=1e-12)
    np.testing.assert_allclose(ring.distances(np.tile(X, (3, 1))), np.tile(brute, 3), rtol=1e-12)
    check = RangeCheck.fit(rng.standard_normal((300, 2)) * 10.0, [1.0, np.inf])
    np.testing.assert_array_equal(check.distances([[0.3, 0.0]]), check.distances([[0.3, 2.9]]))
    gaps = np.abs(check.reference[:, None, 0] - check.reference[None, :, 0])
    np.fill_diagonal(gaps, np.inf)
    assert check.threshold == pytest.approx(np.sort(gaps.min(axis=1))[int(np.ceil(0.99 * 301)) - 1])


def test_drift_is_told_where_it_is_and_not_of_a_million_rows_that_hardly_differ():
    rng = np.random.default_rng(3)
    check = RangeCheck.fit(rng.standard_normal((4000, 3)), names=["a", "b", "c"])
    moved = rng.standard_normal((500, 3)) + np.array([0.0, 1.0, 0.0])
    (message,) = check.drift(moved)
    assert message.startswith("b has drifted: its median is 1")
    assert check.drift(rng.standard_normal((1_000_000, 3)) + 0.03) == []
    assert any("of the rows lie outside" in message for message in check.drift(moved + 5.0))
    assert check.drift(np.empty((0, 3))) == []
    assert "a holds no finite number" in check.drift(np.full((5, 3), np.nan))
    few = [check.drift(rng.standard_normal((30, 3))) for _ in range(200)]
    assert sum(map(bool, few)) <= 200 * 0.01 + 4 * np.sqrt(200 * 0.01 * 0.99)


def test_a_constant_input_has_one_value_inside():
    check = RangeCheck.fit(np.stack([np.full(100, 7.0), np.arange(100.0)], axis=1))
    assert check.outside([[7.0, 50.0], [7.1, 50.0]]).tolist() == [False, True]


def test_rows_that_repeat_each_other_leave_room_for_rounding():
    code = np.repeat(np.eye(3), 50, axis=0) * 12_345.6
    check = RangeCheck.fit(code, np.ones(3))
    assert check.threshold == 0.1
    assert not check.outside(np.tile(code, (2, 1)) + 1e-9).any()
    assert check.outside([[12_345.6, 12_345.6, 0.0]]).all()  # a combination never seen


def test_states_come_back_exactly(ring):
    again = RangeCheck.from_state(*ring.to_state())
    X = np.random.default_rng(4).uniform(-4, 4, (200, 2))
    np.testing.assert_array_equal(again.outside(X), ring.outside(X))
    assert again.names == ring.names and again.threshold == ring.threshold
