"""Estimates with an inducing basis are unbiased, and their control variates lower the variance."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support_control import nystrom_prior_control
from vastgp._precision import precision
from vastgp.data import Standardizer, as_rows
from vastgp.kernels import RBF
from vastgp.methods.qsgp.inducing.options import Inducing
from vastgp.methods.qsgp.inducing.rows import _objective, draw_rows
from vastgp.methods.qsgp.inducing.setup import make_plan, rows_problem, weights_problem
from vastgp.methods.qsgp.inducing.state import InducingState
from vastgp.methods.qsgp.inducing.weights import _objective as weights_objective
from vastgp.methods.qsgp.inducing.weights import draw_weights, half_gradient
from vastgp.methods.qsgp.stochastic.index_sets import stratified_indices
from vastgp.methods.qsgp.stochastic.sampled_elbo import DensePrior

DRAWS, GATE = 4000, 4.0
N, M, P, SET = 60, 45, 12, 20
NOISE = 0.1


@pytest.fixture(autouse=True)
def _double_precision():
    with precision("float64"):
        yield


def problem_of(inputs, seed=0, control=True):
    """A small problem with a mean that is no optimum, its plan, and its dense matrices."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (N, 2))
    rows = as_rows(X, np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=N))
    standardizer = Standardizer().fit(rows)
    Z = None if inputs is None else rng.normal(size=(inputs, 2))
    options = Inducing(row_batch=15, basis_batch=SET, control_rank=P)
    plan = make_plan(options, N, Z)
    common = (plan, options, rows, standardizer, RBF([0.8, 1.2], 1.3), NOISE, 0, "float64")
    problem = rows_problem(*common) if Z is None else weights_problem(*common, Z)
    if not control:
        problem = problem._replace(interpolator=jnp.zeros_like(problem.interpolator))
    mean = jnp.asarray(rng.normal(size=problem.basis.num_basis))
    support = problem.basis.kernel(problem.support_X, problem.basis.inputs) @ mean
    return plan, problem, mean, support, rows, standardizer


def draws_of(draw, keys=DRAWS):
    return np.asarray(jax.lax.map(draw, jax.random.split(jax.random.key(0), keys)))


def check_mean(found, truth):
    gap = found.mean(axis=0) - truth
    error = found.std(axis=0, ddof=1) / len(found) ** 0.5
    assert np.all(np.abs(gap) <= GATE * error + 1e-9 * (1 + np.abs(truth))), np.max(
        np.abs(gap) / (error + 1e-12)
    )


def test_nystrom_control_has_mean_zero_and_lowers_the_variance_of_the_priors_term():
    rng = np.random.default_rng(1)
    Z, kernel = jnp.asarray(rng.uniform(-2, 2, (M, 2))), RBF([1.0, 1.0], 1.5)
    U, v = Z[:P], jnp.asarray(rng.normal(size=(M, 3)))
    S, cross = kernel(Z, Z), kernel(Z, U)
    inverse = jnp.linalg.inv(kernel(U, U) + 1e-6 * jnp.eye(P))
    a, factor = cross.T @ v, M / SET

    def draw(key):
        i, j = (stratified_indices(k, SET, 0, M) for k in jax.random.split(key))
        plain = DensePrior(S[j][:, i]).quadratic(v[i], v[j], factor, factor)
        control = nystrom_prior_control(
            cross[i], cross[j], inverse, v[i], v[j], a, factor_i=factor, factor_j=factor
        )
        # the gradient by v_i, with the expectation's part split evenly between both sets
        gradient = factor * (S[i][:, j] @ v[j])
        smooth = cross[i] @ (inverse @ (factor * cross[j].T @ v[j] - a))
        where = jnp.zeros((M, 3)).at[i]
        return (
            jnp.stack([plain, control]),
            where.set(factor * gradient),
            where.set(factor * (gradient - smooth)),
        )

    values, gradient, controlled = (
        np.asarray(part) for part in jax.lax.map(draw, jax.random.split(jax.random.key(0), DRAWS))
    )
    truth = np.asarray(jnp.sum(v * (S @ v), axis=0))
    check_mean(values[:, 1], np.zeros(3))
    check_mean(values.sum(axis=1), truth)
    assert np.all(values.sum(axis=1).var(axis=0) < 0.5 * values[:, 0].var(axis=0))
    check_mean(gradient, np.asarray(S @ v))
    check_mean(controlled, np.asarray(S @ v))
    assert controlled.var(axis=0).mean() < 0.7 * gradient.var(axis=0).mean()


def test_the_function_at_sampled_rows_is_unbiased_and_so_is_the_bound():
    """Rows as inducing inputs: ``f`` at the drawn rows, and ``-1/2 (L_mu + ...)`` from both estimates of it."""
    plan, problem, mean, support, *_ = problem_of(None)
    assert not plan.whole
    K = problem.basis.kernel(problem.basis.inputs, problem.basis.inputs)
    f, y = np.asarray(K @ mean), np.asarray(problem.y)
    state = InducingState(mean, mean, support)

    def draw(key):
        B = draw_rows(plan, problem, mean, support, key)
        gaps = (
            jnp.zeros((2, N)).at[:, B.rows].set(jnp.stack([B.f_i, B.f_j]) - jnp.asarray(f)[B.rows])
        )
        return jnp.concatenate([gaps.ravel(), _objective(plan, problem, state, B)[None]])

    found = draws_of(draw)
    check_mean(found[:, :-1], np.zeros(2 * N))
    quadratic = np.sum((f - y) ** 2) / NOISE + np.asarray(mean) @ f
    check_mean(found[:, -1:], np.array([-0.5 * (quadratic + N * np.log(2 * np.pi * NOISE))]))
    plain = problem_of(None, control=False)[1]
    spread = draws_of(lambda key: draw_rows(plan, plain, mean, support, key).f_i, 500)
    controlled = draws_of(lambda key: draw_rows(plan, problem, mean, support, key).f_i, 500)
    assert controlled.var() < spread.var()


@pytest.mark.parametrize("whole", [False, True], ids=["sampled", "whole"])
def test_gradient_of_the_weights_is_unbiased_given_its_set(whole):
    plan, problem, mean, support, rows, standardizer = problem_of(M)
    if whole:
        plan = dataclasses.replace(plan, basis_batch=M)
    X, y = rows.take(np.arange(N))
    X, y = jnp.asarray(standardizer.transform_X(X)), jnp.asarray(standardizer.transform_y(y))
    Z, kernel = problem.basis.inputs, problem.basis.kernel
    phi, S = kernel(X, Z), kernel(Z, Z)
    exact = np.asarray(phi.T @ (phi @ mean - y) / NOISE + S @ mean)
    bound = -0.5 * (
        jnp.sum((phi @ mean - y) ** 2) / NOISE + mean @ S @ mean + N * jnp.log(2 * jnp.pi * NOISE)
    )

    def draw(key, problem=problem):
        chosen, *keys = jax.random.split(key, 3)
        batch = jax.random.choice(chosen, N, (plan.row_batch,), replace=False)
        cross = kernel(X[batch], problem.support_X)
        own, other = (draw_weights(plan, problem, mean, support, k, X[batch], cross) for k in keys)
        gradient = half_gradient(plan, problem, own, other, y[batch])
        factor = plan.num_basis / plan.basis_batch
        dense = jnp.zeros(M).at[own.indices].set(factor * gradient)
        value = weights_objective(plan, problem, own, other, y[batch])
        return jnp.concatenate([dense, value[None]])

    found = draws_of(draw)
    check_mean(found, np.append(exact, bound))
    if not whole:
        plain = problem._replace(interpolator=jnp.zeros_like(problem.interpolator))
        without = draws_of(lambda key: draw(key, plain), 1000)
        assert found[:, :-1].var(axis=0).mean() < 0.8 * without[:, :-1].var(axis=0).mean()
