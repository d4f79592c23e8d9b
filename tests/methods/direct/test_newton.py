"""Newton's method for discrete weights: it climbs, it ends where nothing is left, and it says how much is left."""

import jax
import numpy as np
import pytest
from scipy.optimize import minimize

from discrete_cases import random_logits, small_case
from vastgp._precision import precision
from vastgp.fitting.lbfgs import ravel
from vastgp.fitting.run import Run
from vastgp.methods.direct.elbo import value_and_slope
from vastgp.methods.direct.model import DiscretePrior, evenly_spaced, relaxed_normal
from vastgp.methods.direct.newton import (
    bound_of,
    coordinate_sweep,
    logits_of,
    newton_step,
    offer_spacings,
    tilted_from,
)
from vastgp.methods.direct.training import fit_mean_field


@pytest.fixture(autouse=True)
def _double():
    with precision("float64"):
        yield


def correlated(b=20, n=15, noise=0.05, learn=False, seed=0):
    """More weights than rows, which depend on each other strongly."""
    case = small_case(seed, n=n, b=b, noises=1)
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(n, 4)) @ rng.normal(size=(4, b)) + 0.1 * rng.normal(size=(n, b))
    y = phi @ rng.normal(size=b) / 3.0
    values = np.tile(evenly_spaced(7), (b, 1))
    model = case.model
    likelihood = model.likelihood._replace(square=float(y @ y), target=phi.T @ y, gram=phi.T @ phi)
    prior = DiscretePrior(np.asarray(relaxed_normal(values))[None], np.zeros(1))
    model = type(model)(likelihood, values, prior, np.array([noise]), np.zeros(1))
    logits = random_logits(model)
    return model, logits._replace(spacing=np.zeros(b)) if learn else logits


def bound(logits, model):
    return float(value_and_slope(logits, model)[0])


def climbed(logits, model, rounds=5):
    """Return the bound after thousands of iterations of L-BFGS on all logits."""
    point, rebuild = ravel(logits)

    def negated(point):
        value, slope = value_and_slope(rebuild(point), model)
        return -float(value), -ravel(jax.tree.map(np.asarray, slope))[0]

    for _ in range(rounds):
        options = {"maxiter": 5000, "maxfun": 10_000, "ftol": 0.0, "gtol": 1e-10}
        point = minimize(negated, point, jac=True, method="L-BFGS-B", options=options).x
    return -negated(point)[0]


def test_a_sweep_is_the_best_of_each_weight_and_noise_and_never_lowers_the_bound():
    model = small_case(prior_parts=2).model
    logits = random_logits(model)
    bounds = [bound(logits, model)]
    for _ in range(30):
        logits = coordinate_sweep(logits, model)
        bounds.append(bound(logits, model))
    assert np.all(np.diff(bounds) >= -1e-9)
    slope = value_and_slope(logits, model)[1]
    assert max(float(np.max(np.abs(leaf))) for leaf in jax.tree.leaves(slope)) < 1e-3
    # from the last logits on, tilted weights are these logits
    point = tilted_from(logits, model)
    assert float(bound_of(point, model)) >= bounds[-1] - 1e-9
    assert float(bound_of(point, model)) == pytest.approx(bound(logits_of(point, model), model))


@pytest.mark.parametrize("learn", [False, True])
def test_steps_climb_to_where_no_slope_is_left(learn):
    model, logits = correlated(learn=learn)
    point, bounds = tilted_from(logits, model), []
    for _ in range(40):
        taken = newton_step(point, model, learn)
        point = taken.point
        bounds.append(float(taken.bound))
    assert np.all(np.diff(bounds) >= -1e-9)
    slope = value_and_slope(logits_of(point, model), model)[1]
    assert max(float(np.max(np.abs(leaf))) for leaf in jax.tree.leaves(slope)) < 1e-5
    # thousands of iterations on all logits find nothing more there
    assert climbed(logits_of(point, model), model) < bounds[-1] + 1e-6


def test_what_a_step_expects_is_what_is_left_near_the_maximum():
    model, logits = correlated(b=40, noise=0.5)
    point, seen = tilted_from(logits, model), []
    for _ in range(40):
        taken = newton_step(point, model)
        seen.append((float(taken.expected), float(bound_of(point, model))))
        point = taken.point
    highest = float(taken.bound)
    near = [(expected, highest - at) for expected, at in seen if 1e-7 < highest - at < 1e-3]
    assert len(near) >= 1
    for expected, left in near:
        assert expected == pytest.approx(left, rel=0.01)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(lambda: correlated(), id="correlated"),
        pytest.param(lambda: correlated(learn=True), id="learned spacings"),
        pytest.param(lambda: (m := small_case(noises=5).model, random_logits(m)), id="noise"),
        pytest.param(lambda: (m := small_case(prior_parts=3).model, random_logits(m)), id="parts"),
    ],
)
def test_a_fit_that_has_converged_leaves_less_than_tol(case):
    model, logits = case()
    tol = 1e-6
    fit = fit_mean_field(model, logits, Run(), "weights", rows=1.0, max_iter=1000, tol=tol)
    assert fit.converged
    assert fit.objective == pytest.approx(bound(fit.logits, model), abs=1e-9)
    assert climbed(fit.logits, model) - fit.objective < tol


def test_it_ends_higher_than_hundreds_of_iterations_on_all_logits():
    """The bound of learned spacings has plateaus on which L-BFGS said that it had converged."""
    model, logits = correlated(learn=True)
    fit = fit_mean_field(model, logits, Run(), "weights", rows=15.0, max_iter=100, tol=1e-5)
    assert fit.num_iter < 60
    assert fit.objective > climbed(logits, model, rounds=1) - 1e-3


def test_offers_of_spacings_never_lower_the_bound_and_leave_plateaus():
    model, logits = correlated(learn=True)
    # all weights switched off: no slope leads back
    point = tilted_from(logits._replace(spacing=np.full(20, 5.0)), model)
    steps = point
    for _ in range(10):
        steps = newton_step(steps, model, False).point
    offered = offer_spacings(steps, model)
    assert float(offered.gain) > 1.0
    assert float(offer_spacings(offered.point, model).gain) >= -1e-9


def test_a_fit_that_ends_by_its_steps_has_not_converged():
    model, logits = correlated()
    fit = fit_mean_field(model, logits, Run(), "weights", rows=1.0, max_iter=1, tol=1e-9)
    assert not fit.converged
    assert "max_iter = 1" in fit.reason
