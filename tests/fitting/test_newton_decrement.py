"""The Newton decrement by steps, against that of a known Hessian."""

import numpy as np
import pytest

from vastgp.fitting.newton_decrement import NewtonDecrement

SIZE = 4
ENDLESS = np.tile([-np.inf, np.inf], (SIZE, 1))


def quadratic(seed=0):
    """Return a Hessian whose curvatures are from 1e-6 to 10, and its eigenvectors."""
    axes, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(SIZE, SIZE)))
    return (axes * [1e-6, 1e-2, 1.0, 10.0]) @ axes.T, axes


def after_all_axes(hessian, axes, bounds=ENDLESS, scale=1.0):
    """Walk along conjugate directions, by which BFGS knows a Hessian exactly."""
    decrement, point = NewtonDecrement(bounds), np.array([3.0, -1.0, 2.0, 0.5]) / scale
    decrement.note(point, scale * hessian @ (scale * point))
    for axis in axes.T:
        point = point + 0.1 * axis / scale
        decrement.note(point, scale * hessian @ (scale * point))
    return decrement, scale * point


def test_of_a_quadratic_function_half_its_square_is_what_is_left_to_gain():
    hessian, axes = quadratic()
    decrement, point = after_all_axes(hessian, axes)
    assert 0.5 * decrement.value() ** 2 == pytest.approx(0.5 * point @ hessian @ point, rel=1e-6)


def test_it_does_not_depend_on_units():
    hessian, axes = quadratic(1)
    found = [after_all_axes(hessian, axes, scale=scale)[0].value() for scale in (1.0, 1000.0)]
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_what_a_bound_holds_is_left_out():
    hessian, bounds = np.diag([1e-6, 1e-2, 1.0, 10.0]), ENDLESS.copy()
    _, end = after_all_axes(hessian, np.eye(SIZE))
    bounds[2, 0] = end[2]  # the minimum lies beyond
    decrement, point = after_all_axes(hessian, np.eye(SIZE), bounds)
    point[2] = 0.0
    assert decrement.value() ** 2 == pytest.approx(point @ hessian @ point, rel=1e-6)
    slopes = np.abs(hessian @ point)
    assert decrement.is_below(10.0, 1.001 * np.max(slopes))
    assert not decrement.is_below(10.0, 0.999 * np.max(slopes))
    assert not decrement.is_below(0.99 * decrement.value(), 10.0)


def test_before_any_step_the_curvature_is_one():
    decrement, slope = NewtonDecrement(ENDLESS), np.array([3.0, 0.0, 4.0, 0.0])
    decrement.note(np.zeros(SIZE), slope)
    assert decrement.value() == pytest.approx(5.0)
    decrement.note(np.ones(SIZE), slope)  # no curvature was seen
    assert decrement.value() == pytest.approx(5.0)
