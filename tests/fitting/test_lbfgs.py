"""L-BFGS over positive numbers."""

import numpy as np
import pytest

from vastgp.fitting.lbfgs import best_of, maximise, maximise_inside, maximise_real
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import FactorizationError

TARGET = {"a": np.array([0.2, 30.0]), "b": np.array(4.0)}
WIDE = ({"a": np.full(2, 1e-6), "b": 1e-6}, {"a": np.full(2, 1e6), "b": 1e6})


def bowl(params):
    """Return ``-1/2 sum c (log x - log target)^2``, whose maximum is the target, and its slope by x."""
    value, slopes = 0.0, {}
    for name, curvature in (("a", np.array([1.0, 25.0])), ("b", 4.0)):
        distance = np.log(params[name]) - np.log(TARGET[name])
        value -= 0.5 * np.sum(curvature * distance**2)
        slopes[name] = -curvature * distance / params[name]
    return float(value), slopes


def ones():
    return {"a": np.ones(2), "b": np.ones(())}


def climb(function=bowl, bounds=WIDE, **options):
    lower, upper = bounds
    defaults = {"max_iter": 100, "tol": 1e-6}
    return maximise(function, ones(), lower=lower, upper=upper, **(defaults | options))


def test_it_finds_the_maximum_over_positive_numbers():
    found = climb()
    assert found.converged
    for name, target in TARGET.items():
        np.testing.assert_allclose(found.params[name], target, rtol=1e-5)
        assert np.shape(found.params[name]) == target.shape
    assert found.value == pytest.approx(0.0, abs=1e-9)
    assert found.history.steps == list(range(1, found.num_iter + 1))
    assert found.history.objective == sorted(found.history.objective)
    assert found.history.objective[-1] == found.value


def test_bounds_hold():
    found = climb(bounds=({"a": np.full(2, 0.5), "b": 1e-6}, {"a": np.full(2, 10.0), "b": 1e6}))
    assert found.converged
    np.testing.assert_allclose(found.params["a"], [0.5, 10.0], rtol=1e-12)
    np.testing.assert_allclose(found.params["b"], 4.0, rtol=1e-5)


def test_the_scale_is_that_of_the_tolerance():
    def larger(params):
        value, slopes = bowl(params)
        return 1e6 * value, {name: 1e6 * slope for name, slope in slopes.items()}

    same = climb(larger, scale=1e6)
    assert same.num_iter == climb().num_iter and same.converged


@pytest.mark.parametrize("tol", [1e-4, 1e-5])
@pytest.mark.parametrize("distance", [1e-3, 1e-4, 3e-5, 1e-5])
def test_near_the_maximum_converged_means_that_no_slope_is_larger_than_tol(distance, tol):
    """Where the first iteration gains next to nothing, slopes of up to 28 ``tol`` were taken for none."""
    near = {name: target * np.exp(distance) for name, target in TARGET.items()}
    found = maximise(bowl, near, lower=WIDE[0], upper=WIDE[1], max_iter=100, tol=tol)
    slopes = [slope * found.params[name] for name, slope in bowl(found.params)[1].items()]
    assert found.converged
    assert max(np.max(np.abs(slope)) for slope in slopes) <= tol


@pytest.mark.parametrize("weight", [1.0, 0.03])
def test_along_a_flat_ridge_it_goes_on_while_there_is_more_to_gain(weight):
    """``-w b`` has the slope ``-w b`` by ``log b``: slopes below ``tol`` leave up to ``tol``, not ``tol^2``."""
    tol = 1e-3

    def ridge(params):
        value, slopes = bowl(params | {"b": TARGET["b"]})
        return value - weight * float(params["b"]), slopes | {"b": -weight}

    found = climb(ridge, tol=tol)
    assert (
        found.converged
        and found.message == "converged: slopes and the Newton decrement are below tol"
    )
    # the curvature along the last step is larger than that at its end, which would leave tol^2
    assert 0.0 < -found.value < 2.0 * tol**2
    near = {"a": TARGET["a"], "b": np.array(0.5 * tol / weight)}
    found = maximise(ridge, near, lower=WIDE[0], upper=WIDE[1], max_iter=100, tol=tol)
    assert found.converged and 0.0 < -found.value < 2.0 * tol**2


@pytest.mark.parametrize(("tol", "converged"), [(1e-2, True), (1e-4, False)])
def test_where_no_step_gains_anything_slopes_and_what_is_left_decide(tol, converged):
    """Slopes that say there is more, of values that have no more: those of a criterion with errors."""

    def wrong(params):
        value, slopes = bowl(params)
        return -abs(value), {name: slope + 2e-3 / params[name] for name, slope in slopes.items()}

    start = {name: target * np.exp(1e-9) for name, target in TARGET.items()}
    found = maximise(wrong, start, lower=WIDE[0], upper=WIDE[1], max_iter=100, tol=tol)
    assert found.converged is converged
    assert ("rounding hides" in found.message) is converged


def plateau(point):
    """A curved valley (Rosenbrock's): the maximum of 0 is at ones, and some iterations on the way gain little."""
    x, y = point
    value = -((1.0 - x) ** 2) - 100.0 * (y - x**2) ** 2
    slope = np.array([2.0 * (1.0 - x) + 400.0 * x * (y - x**2), -200.0 * (y - x**2)])
    return 0.1 * float(value), 0.1 * slope


def test_an_iteration_that_gains_little_is_no_end_where_slopes_are_not_looked_at():
    start, tol = np.array([-1.2, 1.0]), 3e-3
    found = maximise_real(plateau, start, max_iter=200, tol=tol)
    gains = np.diff(found.history.objective)
    assert np.min(gains[:-20]) < tol
    assert found.converged and found.value == pytest.approx(0.0, abs=1e-6)
    assert found.num_iter == len(found.history) > 21


def test_without_slopes_a_limit_is_no_convergence():
    start = np.array([-1.2, 1.0])
    few = maximise_real(plateau, start, max_iter=5, tol=1e-3)
    assert not few.converged and few.num_iter == 5
    whole = maximise_real(plateau, start, max_iter=200, tol=1e-9)
    np.testing.assert_allclose(whole.params, 1.0, atol=1e-5)


def test_limits_are_told():
    few = climb(max_iter=2)
    assert not few.converged and few.num_iter == 2
    assert few.message == "stopped after 2 iterations"
    late = climb(max_seconds=0.0)
    assert not late.converged and late.num_iter == 1
    assert late.message == "stopped when max_seconds was used up"


def test_a_point_that_fails_shortens_the_step():
    def cliff(params):
        if params["b"] > 6.0:
            raise FactorizationError("too far")
        if params["a"][1] > 100.0:
            return float("nan"), params
        return bowl(params)

    found = climb(cliff)
    np.testing.assert_allclose(found.params["b"], 4.0, rtol=1e-3)
    np.testing.assert_allclose(found.params["a"], TARGET["a"], rtol=1e-3)


def test_a_start_that_fails_is_the_callers_error():
    def never(params):
        raise FactorizationError("the matrix could not be factorised")

    with pytest.raises(FactorizationError, match="could not be factorised"):
        climb(never)


def test_each_iteration_is_told_and_modules_are_parameters():
    found = maximise(
        lambda p: (-float(np.log(p.noise_variance) ** 2), slope_of(p)),
        Gaussian(5.0),
        lower=Gaussian(1e-3),
        upper=Gaussian(1e3),
        max_iter=50,
        tol=1e-8,
    )
    assert isinstance(found.params, Gaussian)
    assert float(found.params.noise_variance) == pytest.approx(1.0, rel=1e-6)
    assert found.history.steps == list(range(1, found.num_iter + 1))
    assert np.all(np.diff(found.history.objective) > 0)
    assert found.history.objective[-1] == found.value


def slope_of(p):
    from equinox import tree_at

    slope = -2.0 * np.log(p.noise_variance) / p.noise_variance
    return tree_at(lambda q: q.noise_variance, p, slope)


def test_the_best_of_several():
    assert best_of([climb(max_iter=1), climb(), climb(max_iter=2)]).converged


def test_a_budget_ends_it_between_two_evaluations_at_the_best_point(monkeypatch):
    seen = []

    def now():
        return float(len(seen))

    def counted(params):
        value, slopes = bowl(params)
        # slopes ten thousand times too long: the search along the first line takes many evaluations
        slopes = {name: 1e4 * slope for name, slope in slopes.items()}
        seen.append((value, params))
        return value, slopes

    free = climb(counted)
    assert free.num_iter < len(seen) / 3
    seen.clear()
    monkeypatch.setattr("vastgp.fitting.lbfgs.now", now)
    found = climb(counted, max_seconds=3.5)
    assert len(seen) == 4 and not found.converged and found.message == OUT_OF_TIME
    value, params = max(seen, key=lambda each: each[0])
    assert found.value == found.history.objective[-1] == value
    np.testing.assert_allclose(found.params["a"], params["a"], rtol=1e-12)


def inside(function, start, **options):
    everywhere = [np.full(len(start), side) for side in (-np.inf, np.inf)]
    given = {"lower": everywhere[0], "upper": everywhere[1], "max_iter": 5000, "tol": 1e-4}
    return maximise_inside(function, np.asarray(start), **(given | options))


def valley(x):
    """Return less of Rosenbrock's function, ``-1/2 sum 100 (a - b^2)^2 + (1 - b)^2``: along it steps gain little."""
    a, b = x[::2], x[1::2]
    across = 10.0 * (a - b**2)
    slope = np.stack([-10.0 * across, 20.0 * b * across + (1.0 - b)], axis=1)
    return -0.5 * float(np.sum(across**2) + np.sum((1.0 - b) ** 2)), slope.ravel()


def test_inside_a_flat_valley_ends_where_slope_and_gains_are_small():
    start = np.random.default_rng(0).normal(size=100)
    found = inside(valley, start)
    assert found.converged
    assert "slope is shorter than tol" in found.message
    value, slope = valley(found.params)
    assert np.linalg.norm(slope) <= 1e-4
    assert value > -1e-6


def test_inside_bounds_the_slope_across_them_counts_nothing():
    found = inside(lambda x: (float(np.sum(x)), np.ones_like(x)), [0.0, 0.0], upper=np.ones(2))
    assert found.converged
    np.testing.assert_array_equal(found.params, 1.0)


def test_where_a_step_gains_nothing_and_the_slope_is_long_it_has_not_converged():
    found = inside(lambda x: (0.0, np.ones_like(x)), [0.0, 0.0])
    assert not found.converged
    assert found.message.startswith("no step gains anything, though slopes")


def test_where_rounding_ends_it_on_level_ground_it_has_converged():
    """No step along a line gains anything; what the slopes promise is below a hundredth of tol, or above."""
    level = inside(lambda x: (0.0, np.full_like(x, 5e-7)), [0.0, 0.0])
    assert level.converged
    assert "rounding hides the rest" in level.message
    assert not inside(lambda x: (0.0, np.full_like(x, 1e-5)), [0.0, 0.0]).converged
