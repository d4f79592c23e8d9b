"""Before the first step of the stochastic solver: sizes, fixed rows, and what is computed from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Rows, Standardizer
from vastgp.data.minibatch import generator
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.qsgp.stochastic.control_variates import FittedCoefficient
from vastgp.methods.qsgp.stochastic.nystrom import SupportOperators, support_operators
from vastgp.methods.qsgp.stochastic.sampled_elbo import optimal_diagonal
from vastgp.methods.qsgp.stochastic.state import Problem, State, StepPlan
from vastgp.methods.qsgp.stochastic.step import hyper_optimizer
from vastgp.solvers.least_squares import BlockedBasis, project

CONTROLS = ("interpolation", "rows", "none")
OPTIMIZERS = ("preconditioned", "adagrad")
BOUNDS = ("plug-in", "strict")

_PROBE_ROWS = 2048  # rows that the damping is measured on,
_PROBE_BATCH = 512  # and how many of them stand for a batch
_SCALE_ROWS = 256  # rows behind the diagonal's scales while the bound is estimated
_TILE = 4096
# purpose of the random numbers that choose fixed rows, see vastgp.data.minibatch
_FIXED_ROWS = 3


@dataclass(frozen=True)
class StochasticOptions:
    """How the stochastic solver works; the defaults are for any data.

    Parameters
    ----------
    dense_columns : int, default 0
        Dense columns ``q`` of the chevron; 0 is mean-field. Each takes two vectors of length m.
    column_batch : int, default 10
        Dense columns in a step (the set ``r`` of Theorem 2).
    row_batch, basis_batch : int, default 500 and 10,000
        Rows, and basis functions in each of the two sets, as in the paper (I.1).
    control_rank : int, default 1000
        Support rows of the control variate and of the preconditioner; 0: neither.
    control : {"interpolation", "rows", "none"}, default "interpolation"
        ``"rows"`` is eq. (3), ``"interpolation"`` the kernel interpolation of the observed error.
    target_control : bool, default False
        The control variate of the term in y (F.2): one pass over all rows and basis functions beforehand and a lower
        variance of the recorded bound; it has no effect on gradients.
    optimizer : {"preconditioned", "adagrad"}, default "preconditioned"
        AdaGrad is the paper's.
    learning_rate : float, optional
        None: 0.5 preconditioned (each of the two sets takes half of the step that the damping is for), 0.1 for AdaGrad.
    decay : float, default 0.0
        The learning rate at step t is ``learning_rate / (1 + decay t)``.
    averaging : float, default 2.0
        Exponent of the average of iterates: about the last ``1 / (1 + averaging)`` of the visits count.
    learn_hyperparameters : bool, default False
        Learn lengthscales, variance and noise (empirical Bayes) by Adam after the freeze.
    freeze_iterations, learn_every : int, default 1000 and 5
        Steps before hyperparameters move, and between two of their steps.
    learning_rate_hyper : float, default 1e-3
        Adam's, on logarithms.
    bound : {"plug-in", "strict"}, default "plug-in"
        Estimate of the fit to the data where the likelihood is not Gaussian, see
        `sampled_likelihood`. The strict one is a lower bound, and far from tight with few sampled
        basis functions.
    """

    dense_columns: int = 0
    column_batch: int = 10
    row_batch: int = 500
    basis_batch: int = 10_000
    control_rank: int = 1000
    control: str = "interpolation"
    target_control: bool = False
    optimizer: str = "preconditioned"
    learning_rate: float | None = None
    decay: float = 0.0
    averaging: float = 2.0
    learn_hyperparameters: bool = False
    freeze_iterations: int = 1000
    learn_every: int = 5
    learning_rate_hyper: float = 1e-3
    bound: str = "plug-in"

    def __post_init__(self) -> None:
        for name, choices in (
            ("control", CONTROLS),
            ("optimizer", OPTIMIZERS),
            ("bound", BOUNDS),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be one of {choices}, received {getattr(self, name)!r}."
                )


def make_plan(
    options: StochasticOptions, num_rows: int, basis: RandomFourierBasis, likelihood: Likelihood
) -> StepPlan:
    """Return the sizes of a step for this many rows and basis functions.

    Raises
    ------
    ValueError
        When no diagonal column is left.
    """
    q, gaussian = options.dense_columns, isinstance(likelihood, Gaussian)
    head = (q + 1) // 2
    if head >= basis.num_pairs:
        raise ValueError(
            f"dense_columns = {q} leaves no diagonal column of num_basis = {basis.num_basis}. Give fewer dense "
            "columns, or use solver='block', whose posterior is exact."
        )
    support = min(options.control_rank, num_rows)
    rate = options.learning_rate
    if rate is None:
        rate = 0.5 if options.optimizer == "preconditioned" else 0.1
    return StepPlan(
        num_rows=num_rows,
        num_pairs=basis.num_pairs,
        row_batch=min(options.row_batch, num_rows),
        pair_batch=min(max(-(-options.basis_batch // 2), head + 1), basis.num_pairs),
        support_rows=support,
        dense_columns=q,
        column_batch=min(options.column_batch, q),
        control=options.control if support else "none",
        optimizer=options.optimizer,
        learning_rate=rate,
        decay=options.decay,
        averaging=options.averaging,
        learn=options.learn_hyperparameters,
        freeze=options.freeze_iterations,
        learn_every=options.learn_every,
        learning_rate_hyper=options.learning_rate_hyper,
        target_control=options.target_control,
        gaussian=gaussian,
        strict=options.bound == "strict" and not gaussian,
        functions=likelihood.num_latent,
    )


def fixed_rows(
    rows: Rows, standardizer: Standardizer, seed: int, use: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised rows that are drawn once; each ``use`` draws its own."""
    chosen = generator(seed, use, _FIXED_ROWS).choice(rows.n, size=min(rows.n, size), replace=False)
    X, y = rows.take(chosen)
    assert y is not None
    return standardizer.transform_X(X), standardizer.transform_y(y)


def make_problem(
    plan: StepPlan,
    rows: Rows,
    standardizer: Standardizer,
    basis: RandomFourierBasis,
    likelihood: Likelihood,
    seed: int,
    dtype: str,
) -> Problem:
    """Choose the fixed rows and make what depends on them."""
    p, noise_variance = plan.support_rows, 1.0 / likelihood.most_curvature()
    X, y = fixed_rows(rows, standardizer, seed, 0, p + _PROBE_ROWS)
    # where there are too few rows for others, the probe shares some with the support
    probe = X[-_PROBE_ROWS:]
    precise = basis.kernel
    kernel = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), precise)
    key = jnp.asarray(basis.key_data)
    basis = RandomFourierBasis(kernel, key, basis.num_basis, basis.frequencies)
    support_X = jnp.asarray(X[:p], dtype)
    head = _head_features(plan, basis, support_X)
    operators = _operators(plan, precise, noise_variance, X[:p], probe, head, dtype)
    target, target_support = None, None
    if plan.target_control:
        target, cross_target = _target_products(basis, rows, standardizer, support_X, dtype)
        target_support = jnp.asarray(operators.interpolator, dtype) @ cross_target
        if plan.control != "interpolation":
            target_support = jnp.zeros_like(target_support)
    return Problem(
        basis=basis,
        likelihood=as_dtype(likelihood, dtype),
        seed=jnp.asarray(seed_key(seed)),
        support_X=support_X,
        support_y=jnp.asarray(y[:p], dtype),
        interpolator=jnp.asarray(operators.interpolator, dtype),
        deflator=jnp.asarray(operators.deflator, dtype),
        damping=jnp.asarray(operators.damping, dtype),
        head_solution=jnp.asarray(operators.head_solution, dtype),
        head_inverse=jnp.asarray(operators.head_inverse, dtype),
        scale_X=jnp.asarray(probe[:_SCALE_ROWS], dtype),
        target=target,
        target_support=target_support,
    )


def _head_features(plan: StepPlan, basis: RandomFourierBasis, support_X: Array) -> np.ndarray:
    """Return the features that are in every set, cosine and sine of a pair side by side.

    None where a step makes the preconditioner's matrix from its own sample.
    """
    pairs = jnp.arange(0 if plan.exact_curvature else plan.head)
    features = np.asarray(basis.features(support_X, pairs), np.float64)
    return features.transpose(0, 2, 1).reshape(len(features), 2 * len(pairs))


def _operators(
    plan: StepPlan,
    kernel: Kernel,
    noise_variance: float,
    support: np.ndarray,
    probe: np.ndarray,
    head: np.ndarray,
    dtype: str,
) -> SupportOperators:
    with precision("float64"):
        K_pp, K_qp, K_bb = _kernel_matrices(kernel, support, probe, probe[:_PROBE_BATCH])
    return support_operators(
        np.asarray(K_pp),
        np.asarray(K_qp),
        np.asarray(K_bb),
        head,
        fraction=1.0 / plan.tail_factor,
        row_batch=plan.row_batch,
        num_rows=plan.num_rows,
        num_functions=None if plan.exact_curvature else 2 * plan.pair_batch,
        step=plan.learning_rate,
        noise_variance=noise_variance,
        rounding=float(np.finfo(dtype).eps),
    )


@jax.jit  # one program: operation by operation, each shape would leave dozens of compiled ones behind
def _kernel_matrices(
    kernel: Any,
    support: Float[Array, "p d"],
    probe: Float[Array, "q d"],
    batch: Float[Array, "b d"],
) -> tuple[Array, Array, Array]:
    return kernel(support, support), kernel(probe, support), kernel(batch, batch)


def _target_products(
    basis: RandomFourierBasis, rows: Rows, standardizer: Standardizer, support_X: Array, dtype: str
) -> tuple[Float[Array, "2 P"], Float[Array, " p"]]:
    """Return ``Phi^T y`` and ``K(X_p, X) y`` in one pass over the rows."""
    blocks = BlockedBasis.cut(basis)
    total, cross = blocks.zeros(1, dtype), jnp.zeros(support_X.shape[0], dtype)
    for X, y in rows.batches(_TILE):
        assert y is not None
        tile = jnp.asarray(standardizer.transform_X(X), dtype)
        values = jnp.asarray(standardizer.transform_y(y), dtype)
        total = total + project(blocks, tile, values[None])
        cross = cross + basis.kernel(support_X, tile) @ values
    return total[0, :, : basis.num_pairs], cross


def start_state(plan: StepPlan, problem: Problem, noise_variance: float, dtype: str) -> State:
    """Return the state before the first step: mean zero, columns that are still diagonal."""
    P, q = plan.num_pairs, plan.dense_columns
    columns = jnp.zeros((q, 2, P), dtype)
    F = plan.functions
    support = jnp.zeros((plan.support_rows, F + q), dtype)
    if q:
        head = jnp.arange(plan.head)
        scales = problem.basis.features(problem.scale_X, head)
        gram = plan.num_rows * jnp.mean(scales**2, axis=0)
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
    return State(
        iteration=jnp.zeros((), jnp.int32),
        mean=jnp.zeros((F, 2, P), dtype),
        mean_average=jnp.zeros((F, 2, P), dtype),
        columns=columns,
        columns_average=columns + 0.0,  # a buffer of its own: both are donated
        support=support,
        squares=jnp.zeros((F, 2, P) if adagrad else (0,), dtype),
        column_squares=jnp.zeros((q, 2, P) if adagrad else (0,), dtype),
        coefficient=FittedCoefficient.start(jnp.dtype(dtype)),
        target_product=jnp.zeros((), dtype),
        curvature=jnp.asarray(1.0 / noise_variance, dtype),
        hyper=hyper,
        hyper_state=hyper_optimizer(plan).init(hyper),
    )
