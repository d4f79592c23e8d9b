"""Steps with the training rows as inducing inputs: exact sub-problems of some rows, unbiased residuals.

With ``Z = X`` features and prior precision are the same matrix, ``Phi = S = K``, and the gradient of
``L_mu`` (Theorem 1) is ``K`` times something simple,

    1/2 dL_mu/dmu = K [(K mu - y) / sigma^2 + mu].

Preconditioned by ``S^-1``, which takes no computation, an entry of it is the residual of one row,
``g = f(x_l) + sigma^2 mu_l - y_l`` (times ``1 / sigma^2``). It is zero at the optimum for *every* row, so that sampling
rows adds no noise there, and its condition number is that of ``K + sigma^2 I`` where that of the plain gradient is its
square. ``f(x_l)`` is the sum over a set of basis functions that is independent of the rows, ``m / m~ K_lj mu_j`` with
the control variates, or the sum over all of them.

A step takes random rows B and the support rows U, and minimises the dual objective ``1/2 mu^T (K + sigma^2 I) mu -
y^T mu`` exactly over both (block descent with a coarse space):

    delta_B = -(K_BB - K_BU A K_UB + (sigma^2 + tau) I)^-1 (g_B - K_BU A g_U),      A = (K_UU + sigma^2 I)^-1,
    delta_U = -A (g_U + K_UB delta_B).

The U-block takes the leading directions of K out of the way of all others. ``tau`` is zero where ``f`` is exact; else
it keeps the sampling noise from growing, see `sampling_damping`.

Of several devices of a process each makes the kernel's values of its part of the rows B and of the support rows with
all functions of a step. Inputs and weights are whole on each.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import eigvalsh

from vastgp.bases.draws import purpose_key
from vastgp.data.devices import dealt, whole
from vastgp.fitting.averages import average_weight, moved
from vastgp.methods.qsgp.inducing.objective import BlockedInputs, blocked_product
from vastgp.methods.qsgp.inducing.state import (
    InducingPlan,
    InducingProblem,
    InducingState,
    renewed,
)
from vastgp.methods.qsgp.stochastic.control_variates import interpolated_error, running_product
from vastgp.methods.qsgp.stochastic.index_sets import stratified_indices
from vastgp.methods.qsgp.stochastic.sampled_elbo import mean_objective, sampled_product
from vastgp.solvers.cg import cg_start, iterate

# Steps between two iterates of the average.
AVERAGE_EVERY = 20
# Iterations of conjugate gradients on the rows of a step: a hundredth of the time that their kernel values take.
_INNER = 30
# How far the damping stays above the value at which a model of independent errors becomes unstable.
_SAFETY = 2.0


class RowsSample(NamedTuple):
    """Rows of a step and two independent estimates of the function there (the same one, where it is exact)."""

    rows: Int[Array, " b"]
    cross: Float[Array, "b p"]  # K(X_B, U)
    f_i: Float[Array, " b"]
    f_j: Float[Array, " b"]


def draw_rows(
    plan: InducingPlan,
    problem: InducingProblem,
    mean: Float[Array, " m"],
    support: Float[Array, " p"],
    key: Array,
) -> RowsSample:
    """Draw rows and basis functions, and estimate the function at the rows."""
    keys = jax.random.split(key, 3)
    drawn = stratified_indices(keys[0], plan.row_batch, plan.support, plan.num_basis)
    rows = whole(drawn, plan.devices)
    X = problem.basis.inputs[dealt(rows, plan.devices)]
    cross = problem.basis.kernel(X, problem.support_X)
    if plan.whole:
        exact = blocked_product(BlockedInputs.cut(problem.basis), X, mean)
        return RowsSample(rows, cross, exact, exact)
    f_i, f_j = (_estimate(plan, problem, mean, support, key, X, cross) for key in keys[1:])
    return RowsSample(rows, cross, f_i, f_j)


def _estimate(
    plan: InducingPlan,
    problem: InducingProblem,
    mean: Float[Array, " m"],
    support: Float[Array, " p"],
    key: Array,
    X: Float[Array, "b d"],
    cross: Float[Array, "b p"],
) -> Float[Array, " b"]:
    """Return an unbiased estimate of the function at some rows, freed of the error that the support rows see.

    The functions of the support rows are in every set. As rows and basis functions are the same points here, the
    estimate serves both sums of Theorem 1, over rows and in the prior; interpolating its error is the Nystrom control
    variate of F.2 for the latter.
    """
    p = plan.support
    j = stratified_indices(key, plan.basis_batch - p, p, plan.num_basis)
    factor = (plan.num_basis - p) / (plan.basis_batch - p)
    weights = mean[j, None]
    sampled = sampled_product(problem.basis.features(X, j), weights, factor)
    support_X = dealt(problem.support_X, plan.devices)
    at_support = sampled_product(problem.basis.features(support_X, j), weights, factor)
    head = problem.basis.kernel(support_X, problem.support_X) @ mean[:p]
    error = at_support[:, 0] + head - support
    correction = interpolated_error(cross, problem.interpolator, error[:, None])
    return cross @ mean[:p] + sampled[:, 0] - correction[:, 0]


def step_rows(
    plan: InducingPlan,
    problem: InducingProblem,
    state: InducingState,
    batch: None,
    number: Int[Array, ""],
) -> tuple[InducingState, dict[str, Array]]:
    """Take one step: a `vastgp.fitting.minibatch_runner.Step`.

    Returns
    -------
    state : InducingState
    record : dict of Array
        Estimate of the bound's part that the mean moves, and of the mean square of ``g`` over the rows outside the
        support.
    """
    key = jax.random.fold_in(purpose_key(problem.seed, "sampled rows and functions"), number)
    state = whole(renewed(plan, problem, state, number), plan.devices)
    mean, p, noise = state.mean, plan.support, problem.noise_variance
    B = draw_rows(plan, problem, mean, state.support, key)
    lift = noise * mean[B.rows] - problem.y[B.rows]
    g_B = 0.5 * (B.f_i + B.f_j) + lift
    g_U = state.support + noise * mean[:p] - problem.y[:p]
    X = problem.basis.inputs[B.rows]
    own = problem.basis.inputs[dealt(B.rows, plan.devices)]
    deflated = problem.basis.kernel(own, X) - B.cross @ (problem.solver @ B.cross.T)
    right = B.cross @ (problem.solver @ g_U) - g_B
    # iterations would wait for each other at every product: each device makes them all
    system = whole((deflated, noise + problem.damping, right), plan.devices)
    delta = whole(_solve(*system), plan.devices)
    back = B.cross.T @ delta
    coarse = whole(-(problem.solver @ (g_U + back)), plan.devices)
    # Proposition 3 at the support rows
    support_X = dealt(problem.support_X, plan.devices)
    moved_by = problem.basis.kernel(support_X, problem.support_X) @ coarse
    support = running_product((state.support + moved_by)[:, None], B.cross.T, delta[:, None])[:, 0]
    mean = mean.at[B.rows].add(delta).at[:p].add(coarse)
    record = {
        "objective": _objective(plan, problem, state, B),
        "residual_square": jnp.mean((B.f_i + lift) * (B.f_j + lift)),
    }
    average = state.average
    if not plan.whole:
        # all entries at once: those averaged at their own visits would not fit each other
        weight = average_weight((number + 1) / AVERAGE_EVERY, problem.averaging)
        due = (number + 1) % AVERAGE_EVERY == 0
        average = jax.lax.cond(due, lambda: moved(average, mean, weight), lambda: average)
    return whole(InducingState(mean, average, support), plan.devices), record


def _solve(
    matrix: Float[Array, "b b"], shift: Float[Array, ""], right: Float[Array, " b"]
) -> Float[Array, " b"]:
    """Return about ``(matrix + shift I)^-1 right``, in products alone (no factorisation in a compiled loop)."""
    start = cg_start(jnp.zeros_like(right)[None], right[None], lambda r: r)
    found, _, _ = iterate(lambda v: v @ matrix + shift * v, lambda r: r, start, 0.0, _INNER)
    return found.solution[0]


def _objective(
    plan: InducingPlan, problem: InducingProblem, state: InducingState, B: RowsSample
) -> Float[Array, ""]:
    """Return an unbiased estimate of ``-1/2 (L_mu + y^T y / sigma^2 + n log(2 pi sigma^2))``.

    Support rows count in full. ``mu^T S mu`` is the sum of ``mu_l f(x_l)`` over the rows, as these are the inducing
    inputs.
    """
    p, noise, y = plan.support, problem.noise_variance, problem.y
    factor = (plan.num_basis - p) / plan.row_batch
    total = problem.num_rows * jnp.log(2.0 * jnp.pi * noise)
    f_U = state.support
    parts = (
        (y[:p], f_U, f_U, state.mean[:p], 1.0),
        (y[B.rows], B.f_i, B.f_j, state.mean[B.rows], factor),
    )
    for target, f_i, f_j, weights, scale in parts:
        prior = scale * 0.5 * jnp.sum(weights * (f_i + f_j))
        total = total + scale / noise * jnp.sum(target**2)
        total = total + mean_objective(
            target, f_i, f_j, prior, noise_variance=noise, row_factor=scale
        )
    return -0.5 * total


def sampling_damping(plan: InducingPlan, deflated: np.ndarray, noise_variance: float) -> float:
    """Return ``tau``, which keeps the noise of sampling basis functions from growing.

    With ``k~`` the kernel deflated by the support rows, the mean of two estimates at row l has the error variance
    ``1/2 (1 / rho - 1) sum_j k~_lj^2 mu_j^2`` from a share ``rho`` of the functions. A step returns it to ``mu_l^2``
    divided by ``tau^2``, while directions that the kernel does not resolve decay by ``2 sigma^2 / tau`` only: mean
    squares are stable above ``tau = (1 / rho - 1) kappa / (4 sigma^2)`` with the largest eigenvalue ``kappa`` of the
    matrix of ``k~_lj^2``. `_SAFETY` times that is taken.

    Parameters
    ----------
    plan : InducingPlan
    deflated : ndarray of shape (q, q)
        ``k~`` between some rows.
    noise_variance : float
    """
    if plan.whole:
        return 0.0
    q, rest = len(deflated), plan.num_basis - plan.support
    squares = deflated**2
    own = np.diagonal(squares).copy()
    squares *= rest / q
    np.fill_diagonal(squares, own)
    kappa = float(eigvalsh(squares, subset_by_index=(q - 1, q - 1))[0])
    share = (plan.basis_batch - plan.support) / rest
    return float(_SAFETY * (1.0 / share - 1.0) * kappa / (4.0 * noise_variance))
