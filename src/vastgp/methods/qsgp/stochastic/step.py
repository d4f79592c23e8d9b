"""One step of the quadruply stochastic solver: O(1) in the numbers of rows and of basis functions."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import optax
from jaxtyping import Array, Float, Int

from vastgp.bases.draws import purpose_key
from vastgp.fitting.averages import average_weight
from vastgp.methods.qsgp.stochastic.control_variates import FittedCoefficient, running_product
from vastgp.methods.qsgp.stochastic.index_sets import stratified_indices
from vastgp.methods.qsgp.stochastic.likelihood import (
    estimate_likelihood_bound,
    latent_values,
    latent_variance,
    likelihood_residual,
)
from vastgp.methods.qsgp.stochastic.parts import (
    by_pairs,
    diagonal_position,
    flat,
    function_order,
    products,
)
from vastgp.methods.qsgp.stochastic.sample import (
    Sample,
    current_basis,
    draw_samples,
    estimate_bound,
    vector_columns,
)
from vastgp.methods.qsgp.stochastic.sampled_elbo import mean_gradient
from vastgp.methods.qsgp.stochastic.state import (
    StochasticPlan,
    StochasticProblem,
    StochasticState,
)

# The bound is evaluated at every so many steps, for the record: it costs a fifth of a step.
OBJECTIVE_EVERY = 5
# A step multiplies an entry c_rr of the diagonal by at most exp of this, and keeps it positive.
_MOST_LOG_CHANGE = 0.5
_ADAGRAD_EPSILON = 1e-10
# Weight of a new batch in the running mean of the curvature.
_FORGET = 0.02
# Of the hyperparameters, as in the paper (I.1).
ADAM = optax.scale_by_adam()


def _half_gradient(
    plan: StochasticPlan,
    problem: StochasticProblem,
    own: Sample,
    other: Sample,
    y: Float[Array, " n"],
    alpha: Float[Array, ""],
    seen: FittedCoefficient,
    noise_variance: Float[Array, ""],
    variance: Float[Array, "*n"],
) -> tuple[Float[Array, "r c"], FittedCoefficient]:
    """Return half the gradient of ``L_mu`` and ``L_Sigma`` at one set, and the moments of its control variate."""
    n = problem.numbers.num_rows
    estimate = other.product - alpha * other.error
    residual = likelihood_residual(plan, problem.likelihood, y, estimate, noise_variance, variance)
    gradient = mean_gradient(
        own.phi,
        residual.T,
        own.weights.T,
        noise_variance=noise_variance,
        row_factor=n / plan.row_batch,
    )
    if plan.control == "interpolation":
        F = plan.functions
        # with several functions no target is theirs: what sampling adds to the function is what counts
        target = y[:, None] if F == 1 else 0.0
        return gradient, seen.update(other.product[:, :F] - target, other.error[:, :F])
    if plan.control == "rows":
        # gradient of eq. (3) at one set, the expectation's part split evenly between both
        control = (n / (plan.support_rows * noise_variance)) * (
            other.support_error.T @ own.phi_support
        )
        return gradient - alpha * control, seen.update(gradient[0], control[0])
    return gradient, seen


def _precondition(
    plan: StochasticPlan,
    problem: StochasticProblem,
    own: Sample,
    gradient: Float[Array, "r c"],
    chosen: Int[Array, " k"],
) -> Float[Array, "r c"]:
    """Return ``(d I + G^T G / p)^-1 gradient`` with the features ``G`` of one set at the support rows.

    See `nystrom`. The matrix depends on the set alone, so that the mean of the step given the set is
    zero exactly where the gradient is: preconditioning adds no bias. A dense column lives on and below its diagonal,
    and the inverse is that of the curvature there.
    """
    G, d, p = own.phi_support, problem.damping, plan.support_rows
    if p == 0:
        return gradient / d
    below = function_order(plan, own.pairs)[None, :] >= chosen[:, None]
    keep = jnp.concatenate([jnp.ones((plan.functions, G.shape[1]), G.dtype), below.astype(G.dtype)])
    if plan.exact_curvature and G.shape[1] <= p:
        curvature = (G.T @ G / p) * keep[:, :, None] * keep[:, None, :]
        curvature = curvature + d * jnp.eye(G.shape[1], dtype=G.dtype)
        # one after the other: XLA's CPU executor can wait for itself within a batch of factorisations
        return jax.lax.map(
            lambda pair: jsp.linalg.cho_solve(jsp.linalg.cho_factor(pair[0]), pair[1]),
            (curvature, gradient),
        )
    if plan.exact_curvature:
        # by substitution: rounding of an explicit inverse would be multiplied by the largest eigenvalue
        factor = jsp.linalg.cho_factor(p * d * jnp.eye(p, dtype=G.dtype) + G @ G.T)
        solve = functools.partial(jsp.linalg.cho_solve, factor)
    else:
        solve = functools.partial(jnp.matmul, problem.deflator)  # of the expected matrix
    right = G @ gradient.T
    solution = solve(right)
    if plan.column_batch:
        # Take the functions above the diagonal, all in the head, out of G G^T again (Woodbury).
        if plan.exact_curvature:
            head = G[:, diagonal_position(plan, jnp.arange(2 * plan.head))]
            Z = solve(head)
            small = jnp.eye(2 * plan.head, dtype=G.dtype) - head.T @ Z
            L = jnp.linalg.cholesky(small)
            inverse = jsp.linalg.solve_triangular(
                L, jnp.eye(2 * plan.head, dtype=G.dtype), lower=True
            )
        else:
            Z, inverse = problem.head_solution, problem.head_inverse
        # Column r needs (I - H^T M H)^-1 of the functions before r alone. With the Cholesky factor L of the whole
        # that is L^-1 forwards, zeros from r on, and L^-T back: the same factor for every column.
        above = (jnp.arange(2 * plan.head)[:, None] < chosen[None, :]).astype(G.dtype)
        inner = inverse.T @ (above * (inverse @ (Z.T @ right[:, 1:])))
        solution = solution.at[:, 1:].add(Z @ inner)
    if not plan.exact_curvature:
        # one refinement takes the error of the expected matrix to second order
        rest = right - p * d * solution - G @ ((solution.T @ G) * keep).T
        solution = solution + solve(rest)
    return (gradient - (solution.T @ G) * keep) / d


def _change(
    plan: StochasticPlan,
    problem: StochasticProblem,
    own: Sample,
    gradient: Float[Array, "r c"],
    squares: Float[Array, "r c"],
    noise_variance: Float[Array, ""],
    chosen: Int[Array, " k"],
    rate: Float[Array, ""],
) -> tuple[Float[Array, "r c"], Float[Array, "r c"]]:
    """Return the change of one set's weights, and what AdaGrad adds to its sums."""
    if plan.column_batch:
        position = diagonal_position(plan, chosen)
        rows = 1 + jnp.arange(plan.column_batch)
        diagonal = own.weights[position, rows]
        # -2 log c_rr of Theorem 2; column r of a lower triangular factor starts at row r
        below = function_order(plan, own.pairs)[None, :] >= chosen[:, None]
        gradient = gradient.at[rows, position].add(-1.0 / diagonal).at[1:].multiply(below)
    if plan.optimizer == "adagrad":
        gradient = gradient * own.factor
        added = gradient**2
        change = -rate * gradient / (jnp.sqrt(squares + added) + _ADAGRAD_EPSILON)
    else:
        added = jnp.zeros_like(squares)
        scaled = gradient * (noise_variance / problem.numbers.num_rows)
        change = -rate * _precondition(plan, problem, own, scaled, chosen)
    if plan.column_batch:
        change = change.at[1:].multiply(below)
        # At the optimum the curvature of -log c_rr equals that of the quadratic along the column (c_rr^2 is the
        # diagonal of its inverse), and the preconditioner knows only the latter: half of its step is Newton's.
        relative = change[rows, position] / diagonal * (1.0 if plan.optimizer == "adagrad" else 0.5)
        relative = jnp.clip(relative, -_MOST_LOG_CHANGE, _MOST_LOG_CHANGE)
        change = change.at[rows, position].set(diagonal * jnp.expm1(relative))
    return change, added


def _add(
    plan: StochasticPlan,
    values: Float[Array, "F 2 P"],
    pairs: Int[Array, " b"],
    change: Float[Array, "F c"],
) -> Float[Array, "F 2 P"]:
    return values.at[..., pairs].add(by_pairs(plan, change))


def _add_columns(
    plan: StochasticPlan,
    values: Float[Array, "q 2 P"],
    chosen: Int[Array, " k"],
    pairs: Int[Array, " b"],
    change: Float[Array, "k c"],
) -> Float[Array, "q 2 P"]:
    where = (chosen[:, None, None], jnp.arange(2)[None, :, None], pairs[None, None, :])
    return values.at[where].add(by_pairs(plan, change))


def step_keys(seed: Any, number: Any) -> Array:
    """Return the keys of the two index sets, and of the dense columns, of a step."""
    return jax.random.split(jax.random.fold_in(purpose_key(seed, "sampled functions"), number), 3)


def step(
    plan: StochasticPlan,
    problem: StochasticProblem,
    state: StochasticState,
    batch: tuple[Float[Array, "n d"], Float[Array, " n"]],
    number: Int[Array, ""],
) -> tuple[StochasticState, dict[str, Array]]:
    """Take one step on one minibatch of rows: a `vastgp.fitting.minibatch_runner.Step`.

    Returns
    -------
    state : StochasticState
    record : dict of Array
        Estimate of the bound (NaN but at every `OBJECTIVE_EVERY` steps), mean square of the estimated residual, mean
        square of the sampling error observed at the support rows.
    """
    X, y = batch
    numbers, keys = problem.numbers, step_keys(problem.seed, number)
    state = _renewed(plan, problem, state, number)
    basis, noise_variance = current_basis(problem, state.hyper, plan)
    chosen = stratified_indices(keys[2], plan.column_batch, 0, plan.dense_columns)
    i, j = draw_samples(plan, problem, state, basis, keys[:2], chosen, X)
    alpha = state.coefficient.value
    rate = numbers.learning_rate / (1.0 + numbers.decay * number.astype(X.dtype))
    variance = latent_variance(plan, problem, basis, state, i, j)
    new = _apply(plan, problem, state, i, j, chosen, y, noise_variance, variance, rate)
    new = _average(plan, problem, new, i, j, chosen, number)

    def bound(hyper: Any) -> Array:
        if plan.gaussian:
            return estimate_bound(
                plan, problem, hyper, X, y, i, j, chosen, alpha, state.target_product
            )
        return estimate_likelihood_bound(
            plan, problem, hyper, X, y, i, j, chosen, alpha, state.curvature
        )

    missing = jnp.full((), jnp.nan, X.dtype)
    seen = number % OBJECTIVE_EVERY == 0
    objective = jax.lax.cond(seen, lambda: bound(state.hyper), lambda: missing)
    if plan.learn:
        new = _learn(problem, new, state, bound, number)
    estimate = i.product - alpha * i.error
    missing_of = likelihood_residual(
        plan, problem.likelihood, y, estimate, noise_variance, variance
    )
    F = plan.functions
    residual = jnp.mean(missing_of[:, :F] ** 2)
    if not plan.gaussian:
        latent = latent_values(plan, estimate)
        seen = jnp.mean(problem.likelihood.sites(y, latent, variance)[1])
        new = new._replace(curvature=state.curvature + _FORGET * (seen - state.curvature))
    error = jnp.mean(i.support_error[:, :F] ** 2) if plan.support_rows else missing
    return new, {"objective": objective, "residual": residual, "sampling_error": error}


def _renewed(
    plan: StochasticPlan, problem: StochasticProblem, state: StochasticState, number: Int[Array, ""]
) -> StochasticState:
    """Return the state with its running products made anew, at every so many steps.

    Their rounding adds up, and the error that a control variate sees would then have another mean than zero.
    """

    def anew() -> tuple[Array, Array]:
        target = problem.target
        support = products(plan, problem.basis, problem.support_X, state.mean, state.columns)
        return support, state.target_product if target is None else jnp.vdot(target, state.mean[0])

    due = (number > 0) & (number % problem.numbers.renew == 0)
    support, product = jax.lax.cond(due, anew, lambda: (state.support, state.target_product))
    return state._replace(support=support, target_product=product)


def _apply(
    plan: StochasticPlan,
    problem: StochasticProblem,
    state: StochasticState,
    i: Sample,
    j: Sample,
    chosen: Int[Array, " k"],
    y: Float[Array, " n"],
    noise_variance: Float[Array, ""],
    variance: Float[Array, "*n"],
    rate: Float[Array, ""],
) -> StochasticState:
    """Return the state after the step on mean and dense columns."""
    # the coefficient of earlier steps, for both sets: it must not know the present sample
    alpha, coefficient = state.coefficient.value, state.coefficient
    mean, columns, support = state.mean, state.columns, state.support
    squares, column_squares = state.squares, state.column_squares
    product = state.target_product
    F, which = plan.functions, vector_columns(plan, chosen)
    for own, other in ((i, j), (j, i)):
        gradient, coefficient = _half_gradient(
            plan, problem, own, other, y, alpha, coefficient, noise_variance, variance
        )
        old = jnp.zeros_like(gradient)
        if plan.optimizer == "adagrad":
            old = old.at[:F].set(flat(plan, squares[..., own.pairs]))
            if plan.column_batch:
                found = column_squares[
                    chosen[:, None, None], jnp.arange(2)[None, :, None], own.pairs
                ]
                old = old.at[1:].set(flat(plan, found))
        change, added = _change(plan, problem, own, gradient, old, noise_variance, chosen, rate)
        mean = _add(plan, mean, own.pairs, change[:F])
        support = support.at[:, which].set(
            running_product(support[:, which], own.phi_support, change.T)
        )
        if plan.column_batch:
            columns = _add_columns(plan, columns, chosen, own.pairs, change[1:])
        if plan.optimizer == "adagrad":
            squares = _add(plan, squares, own.pairs, added[:F])
            if plan.column_batch:
                column_squares = _add_columns(plan, column_squares, chosen, own.pairs, added[1:])
        if problem.target is not None:
            product = product + jnp.sum(flat(plan, problem.target[:, own.pairs]) * change[0])
    return state._replace(
        mean=mean, columns=columns, support=support, squares=squares, column_squares=column_squares,
        coefficient=coefficient, target_product=product,
    )  # fmt: skip


def _average(
    plan: StochasticPlan,
    problem: StochasticProblem,
    state: StochasticState,
    i: Sample,
    j: Sample,
    chosen: Int[Array, " k"],
    number: Int[Array, ""],
) -> StochasticState:
    """Move the averages of the entries that were visited: each is over the values that it had at its own visits."""
    mean, columns = state.mean_average, state.columns_average
    share, exponent = 2.0 / plan.tail_factor, problem.numbers.averaging
    weight = average_weight(number * share, exponent)
    for pairs in (i.pairs, j.pairs):
        gap = state.mean[..., pairs] - mean[..., pairs]
        mean = mean.at[..., pairs].add(weight * gap)
    if plan.column_batch:
        share = share * plan.column_batch / plan.dense_columns
        weight = average_weight(number * share, exponent)
        for pairs in (i.pairs, j.pairs):
            where = (chosen[:, None, None], jnp.arange(2)[None, :, None], pairs[None, None, :])
            columns = columns.at[where].add(weight * (state.columns[where] - columns[where]))
    return state._replace(mean_average=mean, columns_average=columns)


def _learn(
    problem: StochasticProblem,
    new: StochasticState,
    state: StochasticState,
    bound: Any,
    number: Array,
) -> StochasticState:
    """Take a step on the hyperparameters inside their bounds, at every so many steps after the freeze."""
    numbers = problem.numbers

    def take() -> tuple[Any, Any]:
        gradient = jax.grad(lambda hyper: -bound(hyper) / numbers.num_rows)(state.hyper)
        update, hyper_state = ADAM.update(gradient, state.hyper_state)
        rate = numbers.learning_rate_hyper
        found = jax.tree.map(lambda h, u: h - rate * u, state.hyper, update)
        return jax.tree.map(jnp.clip, found, problem.lower, problem.upper), hyper_state

    due = (number >= numbers.freeze) & (number % numbers.learn_every == 0)
    hyper, hyper_state = jax.lax.cond(due, take, lambda: (state.hyper, state.hyper_state))
    return new._replace(hyper=hyper, hyper_state=hyper_state)
