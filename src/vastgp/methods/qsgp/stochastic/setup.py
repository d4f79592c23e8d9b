"""Before the first step of the stochastic solver: sizes, fixed rows, and what is computed from them."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Rows, Standardizer
from vastgp.data.devices import devices_for, on_every_device, over_devices, rows_over_devices
from vastgp.data.minibatch import fixed_indices
from vastgp.data.padding import repeat_last
from vastgp.data.tiles import row_tiles, tile_size
from vastgp.fitting.candidates import bounds_of
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.qsgp.stochastic.control_variates import FittedCoefficient
from vastgp.methods.qsgp.stochastic.nystrom import SupportOperators, support_operators
from vastgp.methods.qsgp.stochastic.options import Stochastic
from vastgp.methods.qsgp.stochastic.parts import over_functions
from vastgp.methods.qsgp.stochastic.sampled_elbo import optimal_diagonal
from vastgp.methods.qsgp.stochastic.state import (
    FourierBasis,
    Numbers,
    StochasticPlan,
    StochasticProblem,
    StochasticState,
)
from vastgp.methods.qsgp.stochastic.step import ADAM
from vastgp.solvers.least_squares import BlockedBasis, project

_PROBE_ROWS = 2048  # rows that the damping is measured on,
_PROBE_BATCH = 512  # and how many of them stand for a batch
_SCALE_ROWS = 256  # rows behind the diagonal's scales while the bound is estimated
_TILE = 4096
# Least noise variance relative to that of the target, where nobody says: float32 cannot solve a system with less.
NOISE_FLOOR = 1e-3
# Steps by which the residual at support rows no longer falls; where there are none it is all steps.
_USUAL_STEPS = 20_000
_OF_FEATURE = 16  # multiplications, about
# Up to so many pairs of functions the preconditioner is made of them, and not of the kernel that they are drawn for.
_KNOWN_PAIRS = 8192
# Most that a step on the steepest function of the rows may be too long by: at two it goes to and fro for ever where a
# step has all rows, and the logarithm of a dense column's diagonal adds to the curvature (wine, 200 rows: an entry of
# 0.97 had grown to 142 after 3750 steps).
_OVERSHOOT, _OVERSHOOT_OF_ALL = 2.0, 1.5
_TRIED_SETS = 2  # sets that the damping is tried on
# Running products at the support rows are made anew after so many steps at least, and so seldom that it takes less
# than this share of the time of the steps.
_RENEW_AFTER, _RENEW_SHARE = 1000, 0.05


def make_plan(
    options: Stochastic,
    num_rows: int,
    basis: RandomFourierBasis,
    likelihood: Likelihood,
    learn: bool = False,
) -> StochasticPlan:
    """Return the sizes of a step for this many rows and basis functions."""
    q, gaussian = options.dense_columns, isinstance(likelihood, Gaussian)
    head = (q + 1) // 2
    support, row_batch = min(options.control_rank, num_rows), min(options.row_batch, num_rows)
    pair_batch = min(max(-(-options.basis_batch // 2), head + 1), basis.num_pairs)
    # two sets of cosines and sines, at the rows of a step and at the support rows
    work = _OF_FEATURE * 4 * pair_batch * (row_batch + support)
    return StochasticPlan(
        num_pairs=basis.num_pairs,
        row_batch=row_batch,
        pair_batch=pair_batch,
        support_rows=support,
        dense_columns=q,
        column_batch=min(options.column_batch, q),
        control=options.control if support else "none",
        optimizer=options.optimizer,
        learn=learn,
        target_control=options.target_control,
        gaussian=gaussian,
        strict=options.bound == "strict" and not gaussian,
        functions=likelihood.num_latent,
        devices=devices_for(work, pair_batch, basis.num_pairs),
    )


def make_numbers(
    plan: StochasticPlan, options: Stochastic, num_rows: int, dtype: str, rate_hyper: float = 0.0
) -> Numbers:
    """Return what a step takes as it comes."""
    rate = options.learning_rate
    if rate is None:
        rate = 0.5 if options.optimizer == "preconditioned" else 0.1
    # features of a pass over the support rows, in those of a step
    of_step = 2 * plan.pair_batch * (plan.row_batch + plan.support_rows)
    a_pass = plan.support_rows * plan.num_pairs / of_step
    renew = max(_RENEW_AFTER, math.ceil(a_pass / _RENEW_SHARE))
    made: Numbers = as_dtype(
        Numbers(
            num_rows=float(num_rows),
            learning_rate=float(rate),
            decay=float(options.decay),
            averaging=float(options.averaging),
            freeze=np.int32(options.freeze_steps),
            learn_every=np.int32(options.learn_every),
            learning_rate_hyper=float(rate_hyper),
            renew=np.int32(renew),
        ),
        dtype,
    )
    return made


def fixed_rows(
    rows: Rows, standardizer: Standardizer, seed: int, use: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised rows that are drawn once; each ``use`` draws its own."""
    X, y = rows.take(fixed_indices(seed, use, rows.n, size))
    assert y is not None
    return standardizer.transform_X(X), standardizer.transform_y(y)


def make_problem(
    plan: StochasticPlan,
    options: Stochastic,
    rows: Rows,
    standardizer: Standardizer,
    basis: RandomFourierBasis,
    likelihood: Likelihood,
    seed: int,
    dtype: str,
    rate_hyper: float = 0.0,
    noise_floor: float = NOISE_FLOOR,
) -> StochasticProblem:
    """Choose the fixed rows and make what depends on them."""
    p, noise_variance = plan.support_rows, 1.0 / likelihood.most_curvature()
    X, y = fixed_rows(rows, standardizer, seed, 0, p + _PROBE_ROWS)
    # where there are too few rows for others, the probe shares some with the support
    probe = X[-_PROBE_ROWS:]
    precise = basis.kernel
    # rounded on the host: each conversion would be a program
    cast = functools.partial(as_dtype, dtype=dtype)
    kernel = cast(precise)
    drawn = RandomFourierBasis(kernel, cast(basis.key_data), basis.num_basis, basis.frequencies)
    stored = drawn.stored(rows.d, dtype)
    support_X = cast(X[:p])
    head = _head_features(plan, stored, support_X)
    numbers = make_numbers(plan, options, rows.n, dtype, rate_hyper)
    known = _known_functions(plan, stored, support_X, head, seed)
    steps = _USUAL_STEPS if p else max(options.max_steps, _USUAL_STEPS)
    operators = _operators(
        plan, numbers, precise, noise_variance, X[:p], probe, head, known, steps, dtype
    )
    target, target_support = None, None
    if plan.target_control:
        target, cross_target = _target_products(plan, stored, rows, standardizer, support_X, dtype)
        target_support = cast(operators.interpolator) @ cross_target
        if plan.control != "interpolation":
            target_support = jnp.zeros_like(target_support)
    lower, upper = _bounds(plan, precise, noise_floor)
    problem = StochasticProblem(
        numbers=numbers,
        basis=stored,
        likelihood=cast(likelihood),
        seed=cast(seed_key(seed)),
        support_X=support_X,
        support_y=cast(y[:p]),
        interpolator=cast(operators.interpolator),
        deflator=cast(operators.deflator),
        damping=cast(operators.damping),
        head_solution=cast(operators.head_solution),
        head_inverse=cast(operators.head_inverse),
        scale_X=cast(probe[:_SCALE_ROWS]),
        target=None,
        target_support=target_support,
        lower=cast(lower),
        upper=cast(upper),
    )
    problem = on_every_device(problem, plan.devices)
    if target is not None:
        target = over_devices(target, plan.devices, axis=1)
    return problem._replace(target=target)


def _bounds(plan: StochasticPlan, kernel: Kernel, noise_floor: float) -> tuple[Any, Any]:
    """Return least and largest values of `StochasticState.hyper`; None where it stays."""
    if not plan.learn:
        return None, None
    lower, upper = (
        jax.tree.map(np.log, side) for side in bounds_of((kernel, Gaussian(1.0)), noise_floor)
    )
    least, most = lower[1].noise_variance, upper[1].noise_variance
    if not plan.gaussian:
        # the largest curvature of another likelihood is its own
        least, most = np.float64(-np.inf), np.float64(np.inf)
    return (lower[0], least), (upper[0], most)


def _head_features(plan: StochasticPlan, basis: FourierBasis, support_X: Array) -> np.ndarray:
    """Return the features that are in every set, cosine and sine of a pair side by side.

    None where a step makes the preconditioner's matrix from its own sample.
    """
    pairs = np.arange(0 if plan.exact_curvature else plan.head, dtype=np.int32)
    features = np.asarray(_features(basis, support_X, pairs), np.float64)
    return features.transpose(0, 2, 1).reshape(len(features), 2 * len(pairs))


def _known_functions(
    plan: StochasticPlan, basis: FourierBasis, support_X: Array, head: np.ndarray, seed: int
) -> dict[str, Any]:
    """Return what `support_operators` asks of the functions; nothing where a step makes its matrix itself."""
    if plan.exact_curvature:
        return {}
    whole = plan.pair_batch == plan.num_pairs
    few = whole or plan.num_pairs <= _KNOWN_PAIRS
    count = plan.num_pairs if few else _KNOWN_PAIRS  # frequencies are in no order
    expected, kept = head @ head.T, []
    tile = min(_TILE, count)  # one shape: the last tile begins within the one before
    for first in range(0, count, tile):
        start = min(first, count - tile)
        pairs = np.arange(start, start + tile, dtype=np.int32)
        G = np.asarray(_features(basis, support_X, pairs)).transpose(0, 2, 1)
        G = G[:, max(first, plan.head) - start :]
        expected += _gram(G) / plan.tail_factor
        if not whole:
            kept.append(G)
    known: dict[str, Any] = {"expected": expected if few else None}
    if whole:
        return known
    functions = np.concatenate(kept, axis=1)
    rng, size = (
        np.random.default_rng([seed, plan.num_pairs]),
        min(plan.tail_batch, len(functions[0])),
    )
    sets = [rng.choice(functions.shape[1], size, replace=False) for _ in range(_TRIED_SETS)]
    grams = [
        head @ head.T + plan.tail_batch / size * _gram(functions[:, chosen]) for chosen in sets
    ]
    return known | {"functions": functions, "grams": grams}


def _gram(G: np.ndarray) -> np.ndarray:
    """Return the sum over pairs of functions of their products at every two rows, in float64."""
    flat = G.reshape(len(G), -1)
    return (flat @ flat.T).astype(np.float64)


@jax.jit
def _features(
    basis: FourierBasis, X: Float[Array, "n d"], pairs: Int[Array, " b"]
) -> Float[Array, "n 2 b"]:
    return basis.features(X, pairs)


def _operators(
    plan: StochasticPlan,
    numbers: Numbers,
    kernel: Kernel,
    noise_variance: float,
    support: np.ndarray,
    probe: np.ndarray,
    head: np.ndarray,
    known: dict[str, Any],
    steps: int,
    dtype: str,
) -> SupportOperators:
    with precision("float64"):
        # one shape for any number of rows
        made = _kernel_matrices(kernel, support, repeat_last(probe, _PROBE_ROWS))
    K_pp, K_qp, K_bb = map(np.asarray, made)
    batch = min(_PROBE_BATCH, len(probe))
    return support_operators(
        K_pp,
        K_qp[: len(probe)],
        K_bb[:batch, :batch],
        head,
        fraction=1.0 / plan.tail_factor,
        row_batch=plan.row_batch,
        num_rows=int(numbers.num_rows),
        num_functions=None if plan.exact_curvature else 2 * plan.pair_batch,
        all_functions=2 * (plan.num_pairs - plan.head),
        step=float(numbers.learning_rate),
        steps=steps,
        noise_variance=noise_variance,
        rounding=float(np.finfo(dtype).eps),
        overshoot=_OVERSHOOT_OF_ALL if plan.row_batch >= int(numbers.num_rows) else _OVERSHOOT,
        **known,
    )


@jax.jit  # one program: operation by operation, each shape would leave dozens of compiled ones behind
def _kernel_matrices(
    kernel: Any, support: Float[Array, "p d"], probe: Float[Array, "q d"]
) -> tuple[Array, Array, Array]:
    batch = probe[:_PROBE_BATCH]
    return kernel(support, support), kernel(probe, support), kernel(batch, batch)


def _target_products(
    plan: StochasticPlan,
    basis: FourierBasis,
    rows: Rows,
    standardizer: Standardizer,
    support_X: Array,
    dtype: str,
) -> tuple[Float[Array, "2 P"], Float[Array, " p"]]:
    """Return ``Phi^T y``, each device's run of the pairs on it, and ``K(X_p, X) y`` in one pass over the rows."""
    total: Any = over_devices(np.zeros((2, plan.num_pairs), dtype), plan.devices, axis=1)
    cross = np.zeros(plan.support_rows, dtype)
    work = float(_OF_FEATURE * plan.support_rows)
    for tile in row_tiles(rows, standardizer, tile_size(rows.n, _TILE), dtype):
        y = as_dtype(tile.y * tile.weight, dtype)
        total = target_sums(plan, basis, tile.X, y, total)
        own = rows_over_devices((tile.X, y), work)
        cross = cross + np.asarray(_cross_target(basis.kernel, support_X, *own))
    return total, jnp.asarray(cross)


@functools.partial(jax.jit, static_argnames="plan")
def target_sums(
    plan: StochasticPlan,
    basis: FourierBasis,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
    total: Float[Array, "2 P"],
) -> Float[Array, "2 P"]:
    """Return ``total + Phi^T y``, of which each device has its run of the pairs."""

    def run(blocks: BlockedBasis, X: Array, y: Array) -> Array:
        return project(blocks, X, y[None])[0, :, : blocks.num_pairs]

    return total + over_functions(plan, run, basis, X, y, summed=False)


@jax.jit
def _cross_target(
    kernel: Kernel, support_X: Float[Array, "p d"], X: Float[Array, "n d"], y: Float[Array, " n"]
) -> Float[Array, " p"]:
    return kernel(support_X, X) @ y


@functools.partial(jax.jit, static_argnames=("plan", "dtype"))
def start_state(
    plan: StochasticPlan, problem: StochasticProblem, noise_variance: Any, dtype: str
) -> StochasticState:
    """Return the state before the first step: mean zero, columns that are still diagonal."""
    P, q = plan.num_pairs, plan.dense_columns
    columns = jnp.zeros((q, 2, P), dtype)
    F = plan.functions
    support = jnp.zeros((plan.support_rows, F + q), dtype)
    if q:
        head = jnp.arange(plan.head)
        scales = problem.basis.features(problem.scale_X, head)
        gram = problem.numbers.num_rows * jnp.mean(scales**2, axis=0)
        order = jnp.arange(q)
        diagonal = optimal_diagonal(gram, 1.0, noise_variance)[order % 2, order // 2]
        columns = columns.at[order, order % 2, order // 2].set(diagonal)
        features = problem.basis.features(problem.support_X, head)
        support = support.at[:, F:].set(features[:, order % 2, order // 2] * diagonal)
    adagrad = plan.optimizer == "adagrad"
    hyper = (
        jax.tree.map(jnp.log, problem.basis.kernel),
        jnp.log(jnp.asarray(noise_variance, dtype)),
    )
    return StochasticState(
        mean=jnp.zeros((F, 2, P), dtype),
        mean_average=jnp.zeros((F, 2, P), dtype),
        columns=columns,
        columns_average=columns,
        support=support,
        squares=jnp.zeros((F, 2, P) if adagrad else (0,), dtype),
        column_squares=jnp.zeros((q, 2, P) if adagrad else (0,), dtype),
        coefficient=FittedCoefficient.start(jnp.dtype(dtype)),
        target_product=jnp.zeros((), dtype),
        curvature=jnp.asarray(1.0 / noise_variance, dtype),
        hyper=hyper,
        hyper_state=ADAM.init(hyper),
    )
