"""Steps within a region of trust, held against matrices that are written down."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from vastgp._precision import precision
from vastgp.fitting.trust_region import FIRST_RADIUS, trust_step


def quadratic(eigenvalues, seed=0):
    """A function of second derivatives of these eigenvalues, its matrix, and a point."""
    generator = np.random.default_rng(seed)
    size = len(eigenvalues)
    basis, _ = np.linalg.qr(generator.normal(size=(size, size)))
    matrix, slope = (basis * eigenvalues) @ basis.T, generator.normal(size=size)
    return (lambda x: slope @ x + 0.5 * x @ matrix @ x), matrix, slope


def stepped(objective, point, radius):
    with precision("float64"):
        return jax.tree.map(
            np.asarray, jax.jit(lambda x, r: trust_step(objective, x, r))(point, radius)
        )


def test_within_a_large_region_it_is_the_step_of_newton():
    objective, matrix, slope = quadratic(-np.geomspace(1.0, 30.0, 6))
    point = np.linspace(-1.0, 1.0, 6)
    at = 1e-9 * (slope + matrix @ point)  # a slope so small is followed to the end
    taken = stepped(lambda x: 1e-9 * objective(x), point, 1e3)
    np.testing.assert_allclose(taken.point, np.linalg.solve(-matrix, slope), atol=1e-4)
    wanted = 0.5 * at @ np.linalg.solve(-1e-9 * matrix, at)
    assert taken.inside and taken.radius == 1e3
    assert taken.gain == pytest.approx(wanted, rel=1e-4)
    assert taken.expected == pytest.approx(wanted, rel=1e-4)


def test_in_two_dimensions_the_step_to_the_border_is_the_best_of_the_plane():
    """Of a slope and the product with it conjugate gradients make a plane, in which they go monotonically outward."""
    objective, _, slope = quadratic(np.array([-2.0, -0.5]))
    taken = stepped(objective, np.zeros(2), 0.05)
    assert np.linalg.norm(taken.point) == pytest.approx(0.05) and not taken.inside
    np.testing.assert_allclose(taken.point, 0.05 * slope / np.linalg.norm(slope), rtol=1e-9)
    assert taken.gain == pytest.approx(taken.expected)
    assert taken.radius == 0.1


def test_a_curvature_that_is_not_negative_is_followed_to_the_border():
    objective, _, slope = quadratic(np.array([-3.0, -2.0, -1.0, 0.5]))
    small = 1e-9  # a slope so small is followed to the end
    taken = stepped(lambda x: small * objective(x), np.zeros(4), 2.0)
    assert np.linalg.norm(taken.point) == pytest.approx(2.0) and not taken.inside
    assert taken.gain == pytest.approx(taken.expected, rel=1e-6)
    # it gains more than any multiple of the slope
    lengths = np.linspace(0.0, 2.0, 201)
    along = max(float(objective(t * slope / np.linalg.norm(slope))) for t in lengths)
    assert taken.gain > small * along


def test_a_step_that_would_lead_down_is_not_taken_and_the_region_narrows():
    """At 0.9 the quadratic model of cos(3 x) has its maximum a step beyond, where it is lower."""

    def objective(x):
        return jnp.sum(jnp.cos(3.0 * x)) + 100.0 * jnp.sum(jnp.where(x < 0.2, x - 0.2, 0.0))

    taken = stepped(objective, np.array([0.9]), 1.0)
    assert taken.point == 0.9 and taken.gain == 0.0 and taken.radius <= 0.25
    assert taken.value == pytest.approx(np.cos(2.7))


def test_where_nothing_is_known_it_stays_and_the_region_narrows():
    """Beyond a border there are no numbers; at a point without a slope there is no step."""
    taken = stepped(lambda x: jnp.sum(jnp.log(2.0 - x)) + 100.0 * jnp.sum(x), np.array([1.9]), 1.0)
    assert taken.point == 1.9 and taken.gain == 0.0
    assert taken.radius == pytest.approx(0.25 * 0.9)
    none = stepped(lambda x: -jnp.linalg.norm(x), np.zeros(2), 1.0)
    assert np.all(none.point == 0.0) and np.isnan(none.expected) and none.radius == 0.25


def test_at_a_maximum_nothing_moves():
    taken = stepped(lambda x: -jnp.sum(x**2), np.zeros(3), 1.0)
    np.testing.assert_array_equal(taken.point, np.zeros(3))
    assert taken.gain == taken.expected == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_steps_come_to_the_maximum_that_the_same_method_of_scipy_finds(seed):
    generator = np.random.default_rng(seed)
    weights = generator.normal(size=(5, 8))

    def objective(x):
        return jnp.sum(jnp.cos(weights @ x)) - 0.05 * x @ x

    with precision("float64"):
        step = jax.jit(lambda x, r: trust_step(objective, x, r))
        point, radius = jnp.asarray(generator.normal(size=8)), FIRST_RADIUS
        begin = np.asarray(point)
        for _ in range(40):
            taken = step(point, jnp.asarray(radius))
            point, radius = taken.point, taken.radius
        found = minimize(
            lambda x: -float(objective(x)), begin, jac=lambda x: -np.asarray(jax.grad(objective)(x)),
            hess=lambda x: -np.asarray(jax.hessian(objective)(x)), method="trust-ncg", options={"gtol": 1e-9},
        )  # fmt: skip
    np.testing.assert_allclose(point, found.x, atol=1e-6)
