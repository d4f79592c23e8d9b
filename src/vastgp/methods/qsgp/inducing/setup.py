"""Before the first step with an inducing basis: sizes, support rows, and what is computed from them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import cho_solve

from vastgp._precision import as_dtype, precision
from vastgp.bases import InducingBasis, seed_key
from vastgp.data import Rows, Standardizer
from vastgp.data.minibatch import generator
from vastgp.kernels import Kernel
from vastgp.linalg.cholesky import factorize
from vastgp.methods.qsgp.inducing.rows import sampling_damping
from vastgp.methods.qsgp.inducing.state import InducingOptions, InducingPlan, InducingProblem
from vastgp.methods.qsgp.stochastic.nystrom import support_operators

_TILE = 2048
_PROBE_ROWS = 1024  # rows that the damping is measured on
_SEEN_FUNCTIONS = 4096  # and basis functions, of those with other inputs than the rows
_NUGGET = 1e-3  # of the interpolation, relative to the prior variance
_ROWS_BATCH, _WEIGHTS_BATCH = 100_000, 3000
FIXED_ROWS = 3  # purpose of random numbers, as in stochastic_setup


def make_plan(options: InducingOptions, n: int, inputs: np.ndarray | None) -> InducingPlan:
    """Return the sizes of a step for this many rows and inducing inputs."""
    m = n if inputs is None else len(inputs)
    batch = options.basis_batch or (_ROWS_BATCH if inputs is None else _WEIGHTS_BATCH)
    if inputs is not None:
        support = max(min(options.control_rank, n), 1)
        return InducingPlan(n, m, min(options.row_batch, n), min(batch, m), support, options.averaging)  # fmt: skip
    # of the two blocks of a step one row at least must be left for the second, and for a set of others
    support = max(min(options.control_rank, m - 1, max(batch // 2, 1)), 1)
    row_batch = max(min(options.row_batch, m - support), 1)
    return InducingPlan(n, m, row_batch, min(batch, m), support, options.averaging)


def rows_problem(
    plan: InducingPlan,
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    noise_variance: float,
    seed: int,
    dtype: str,
) -> InducingProblem:
    """Put the rows in random order, the first of them as support."""
    order = generator(seed, 0, FIXED_ROWS).permutation(rows.n)
    X, y = np.empty((rows.n, rows.d), dtype), np.empty(rows.n, dtype)
    place = np.argsort(order)
    done = 0
    for block, target in rows.batches(_TILE):
        assert target is not None
        here = place[done : done + len(block)]
        X[here], y[here] = standardizer.transform_X(block), standardizer.transform_y(target)
        done += len(block)
    p = plan.support
    probe = X[p : p + _PROBE_ROWS]
    K, cross, own = _matrices(kernel, X[:p], probe)
    solver = _inverse(K, noise_variance)
    deflated = own - cross @ (solver @ cross.T)
    return InducingProblem(
        basis=InducingBasis(as_dtype(kernel, dtype), jnp.asarray(X)),
        y=jnp.asarray(y),
        seed=jnp.asarray(seed_key(seed)),
        noise_variance=jnp.asarray(noise_variance, dtype),
        support_X=jnp.asarray(X[:p]),
        interpolator=_interpolator(plan, K, dtype),
        solver=jnp.asarray(solver, dtype),
        damping=jnp.asarray(sampling_damping(plan, deflated, noise_variance), dtype),
    )


def weights_problem(
    plan: InducingPlan,
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    noise_variance: float,
    seed: int,
    dtype: str,
    inputs: np.ndarray,
) -> InducingProblem:
    """Choose support rows and make the preconditioner of the weights from their features."""
    rng = generator(seed, 0, FIXED_ROWS)
    chosen = rng.choice(rows.n, size=min(rows.n, plan.support + _PROBE_ROWS), replace=False)
    X = standardizer.transform_X(rows.take(chosen)[0])
    p = plan.support
    support, probe = X[:p], X[-_PROBE_ROWS:]
    seen = rng.choice(len(inputs), size=min(len(inputs), _SEEN_FUNCTIONS), replace=False)
    _, of_support, _ = _matrices(kernel, inputs[seen], support)
    _, of_probe, _ = _matrices(kernel, inputs[seen], probe)
    scale = len(inputs) / len(seen)
    # features of the rows make Phi Phi^T, which stands where the whitened basis has the kernel
    operators = support_operators(
        scale * of_support @ of_support.T,
        scale * of_probe @ of_support.T,
        scale * of_probe @ of_probe.T,
        np.zeros((p, 0)),
        fraction=plan.basis_batch / plan.num_basis,
        row_batch=plan.row_batch,
        num_rows=plan.num_rows,
        num_functions=None if plan.whole else plan.basis_batch,
        step=0.5,
        # sigma^2 S <= Phi^T Phi + sigma^4 / 4 where the rows are like the inducing inputs
        noise_variance=max(noise_variance, 0.25 * noise_variance**2),
        rounding=float(np.finfo(dtype).eps),
    )
    K, _, _ = _matrices(kernel, support, support[:1])
    return InducingProblem(
        basis=InducingBasis(as_dtype(kernel, dtype), jnp.asarray(inputs, dtype)),
        y=jnp.zeros(0, dtype),
        seed=jnp.asarray(seed_key(seed)),
        noise_variance=jnp.asarray(noise_variance, dtype),
        support_X=jnp.asarray(support, dtype),
        interpolator=_interpolator(plan, K, dtype),
        solver=jnp.asarray(operators.deflator, dtype),
        damping=jnp.asarray(operators.damping, dtype),
    )


def _matrices(
    kernel: Kernel, support: np.ndarray, probe: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``K(U, U)``, ``K(Q, U)`` and ``K(Q, Q)`` in float64."""
    with precision("float64"):
        U, Q = np.asarray(support, np.float64), np.asarray(probe, np.float64)
        made = _kernel_matrices(kernel, U, Q)
        return tuple(np.asarray(part) for part in made)  # type: ignore[return-value]


@jax.jit
def _kernel_matrices(
    kernel: Any, U: Float[Array, "p d"], Q: Float[Array, "q d"]
) -> tuple[Array, Array, Array]:
    return kernel(U, U), kernel(Q, U), kernel(Q, Q)


def _inverse(K: np.ndarray, added: float) -> np.ndarray:
    factor = factorize(K, added, what="the kernel matrix of the support rows").lower
    return np.asarray(cho_solve((factor, True), np.eye(len(K))))


def _interpolator(plan: InducingPlan, K: np.ndarray, dtype: str) -> Float[Array, "p p"]:
    """Return ``(K_pp + nugget I)^-1``; zero where no error is interpolated."""
    if plan.whole:
        return jnp.zeros((plan.support, plan.support), dtype)
    return jnp.asarray(_inverse(K, _NUGGET * float(np.mean(np.diagonal(K)))), dtype)
