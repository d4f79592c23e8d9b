"""Before the first step with an inducing basis: sizes, support rows, and what is computed from them."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from vastgp._precision import as_dtype
from vastgp.bases import InducingBasis, seed_key
from vastgp.data import Rows, Standardizer
from vastgp.data.devices import devices_for
from vastgp.data.minibatch import fixed_indices
from vastgp.kernels import Kernel
from vastgp.kernels.matrices import covariance
from vastgp.linalg.cholesky import factorize
from vastgp.methods.qsgp.inducing.options import Inducing
from vastgp.methods.qsgp.inducing.rows import sampling_damping
from vastgp.methods.qsgp.inducing.state import InducingPlan, InducingProblem
from vastgp.methods.qsgp.stochastic.nystrom import support_operators

_TILE = 2048
OF_VALUE = 16  # multiplications that a value of the kernel takes, about
_PROBE_ROWS = 1024  # rows that the damping is measured on
_SEEN_FUNCTIONS = 4096  # and basis functions, of those with other inputs than the rows
_NUGGET = 1e-3  # of the interpolation, relative to the prior variance
_ROWS_BATCH, _WEIGHTS_BATCH = 100_000, 3000
# The function at the support rows is made anew after so many steps at least, and so seldom that it takes less than this
# share of the time of the steps.
_RENEW_AFTER, _RENEW_SHARE = 1000, 0.05
# Uses of rows drawn once, see `fixed_indices`: the support and what is measured beside it, rows that judge the average,
# rows behind the diagonal, basis functions behind the preconditioner, inducing inputs, rows of the augmentation, rows
# that say what inducing inputs stand for.
SUPPORT, JUDGES, OF_DIAGONAL, SEEN, INPUTS, AUGMENTING, OF_NEAREST = range(7)


def make_plan(options: Inducing, n: int, inputs: np.ndarray | None) -> InducingPlan:
    """Return the sizes of a step for this many rows and inducing inputs."""
    m = n if inputs is None else len(inputs)
    batch = options.basis_batch or (_ROWS_BATCH if inputs is None else _WEIGHTS_BATCH)
    if inputs is not None:
        support = max(min(options.control_rank, n), 1)
        row_batch, batch = min(options.row_batch, n), min(batch, m)
        # two sets, at the rows of a step, at the support rows and at each other
        values = 2 * batch * (row_batch + support + batch)
        return InducingPlan(
            m, row_batch, batch, support, devices_for(OF_VALUE * values, batch, support)
        )
    # of the two blocks of a step one row at least must be left for the second, and for a set of others than the first
    batch = max(batch, 2)
    support = max(min(options.control_rank, m - 1, max(batch // 2, 1)), 1)
    row_batch = max(min(options.row_batch, m - support), 1)
    values = row_batch * (support + row_batch + min(batch, m))
    return InducingPlan(
        m, row_batch, min(batch, m), support, devices_for(OF_VALUE * values, row_batch, support)
    )


def _numbers(plan: InducingPlan, options: Inducing, num_rows: int) -> dict[str, Any]:
    """Return what a step takes as it comes."""
    # kernel values of a pass over the support rows, in those of a step
    a_pass = plan.support * plan.num_basis / (plan.basis_batch * (plan.row_batch + plan.support))
    renew = max(_RENEW_AFTER, math.ceil(a_pass / _RENEW_SHARE))
    return {
        "num_rows": np.float64(num_rows),
        "averaging": np.float64(options.averaging),
        "renew": np.int32(renew),
    }


def rows_problem(
    plan: InducingPlan,
    options: Inducing,
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    noise_variance: float,
    seed: int,
    dtype: str,
) -> InducingProblem:
    """Put the rows in random order, the first of them as support."""
    order = fixed_indices(seed, SUPPORT, rows.n, rows.n)
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
    K, cross, own = (
        covariance(kernel, *of) for of in ((X[:p], X[:p]), (probe, X[:p]), (probe, probe))
    )
    solver = _inverse(K, noise_variance)
    deflated = own - cross @ (solver @ cross.T)
    cast = functools.partial(as_dtype, dtype=dtype)
    return InducingProblem(
        basis=InducingBasis(cast(kernel), cast(X)),
        y=cast(y),
        seed=cast(seed_key(seed)),
        noise_variance=cast(np.float64(noise_variance)),
        support_X=cast(X[:p]),
        interpolator=cast(_interpolator(plan, K)),
        solver=cast(solver),
        damping=cast(np.float64(sampling_damping(plan, deflated, noise_variance))),
        **cast(_numbers(plan, options, rows.n)),
    )


def weights_problem(
    plan: InducingPlan,
    options: Inducing,
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    noise_variance: float,
    seed: int,
    dtype: str,
    inputs: np.ndarray,
) -> InducingProblem:
    """Choose support rows and make the preconditioner of the weights from their features."""
    chosen = fixed_indices(seed, SUPPORT, rows.n, plan.support + _PROBE_ROWS)
    X = standardizer.transform_X(rows.take(chosen)[0])
    p = plan.support
    support, probe = X[:p], X[-_PROBE_ROWS:]
    seen = fixed_indices(seed, SEEN, len(inputs), _SEEN_FUNCTIONS)
    of_support, of_probe = (covariance(kernel, part, inputs[seen]) for part in (support, probe))
    scale = len(inputs) / len(seen)
    # features of the rows make Phi Phi^T, which stands where the whitened basis has the kernel
    operators = support_operators(
        scale * of_support @ of_support.T,
        scale * of_probe @ of_support.T,
        scale * of_probe @ of_probe.T,
        np.zeros((p, 0)),
        fraction=plan.basis_batch / plan.num_basis,
        row_batch=plan.row_batch,
        num_rows=rows.n,
        num_functions=None if plan.whole else plan.basis_batch,
        all_functions=plan.num_basis,
        step=0.5,
        steps=options.max_steps,
        # sigma^2 S <= Phi^T Phi + sigma^4 / 4 where the rows are like the inducing inputs
        noise_variance=max(noise_variance, 0.25 * noise_variance**2),
        rounding=float(np.finfo(dtype).eps),
    )
    K = covariance(kernel, support, support)
    cast = functools.partial(as_dtype, dtype=dtype)
    return InducingProblem(
        basis=InducingBasis(cast(kernel), cast(inputs)),
        y=cast(np.zeros(0)),
        seed=cast(seed_key(seed)),
        noise_variance=cast(np.float64(noise_variance)),
        support_X=cast(support),
        interpolator=cast(_interpolator(plan, K)),
        solver=cast(operators.deflator),
        damping=cast(np.float64(operators.damping)),
        **cast(_numbers(plan, options, rows.n)),
    )


def _inverse(K: np.ndarray, added: float) -> np.ndarray:
    factor = factorize(K, added, what="the kernel matrix of the support rows")
    return factor.into_whole_inverse()


def _interpolator(plan: InducingPlan, K: np.ndarray) -> np.ndarray:
    """Return ``(K_pp + nugget I)^-1``; zero where no error is interpolated."""
    return np.zeros_like(K) if plan.whole else _inverse(K, _NUGGET * float(np.mean(np.diagonal(K))))
