"""The log evidence and its gradient by conjugate gradients, biased by their early end or not.

With ``A = K + sigma^2 I`` and probes ``z`` of covariance ``P`` (the preconditioner, or the identity)

    dL = 1/2 (A^-1 y)^T dA (A^-1 y) - 1/2 E[(A^-1 z)^T dA (P^-1 z)],

eq. (3) of Potapczynski et al. (2021) where ``P = I``. Conjugate gradients write ``A^-1 b`` as a sum of terms ``gamma_j
d_j``. Stopped after a fixed number of iterations the gradient is biased: ``y^T A^-1 y`` comes out too small and
``log|A|`` too large, which favours underfitting. With truncations by Russian roulette it is unbiased. The quadratic
term needs two estimates of ``A^-1 y`` whose truncations are independent; both come from one run. The probes take the
later of the two truncations, with the weights of its own law.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.fitting.truncation import Roulette
from vastgp.kernels.products import KernelMatrix
from vastgp.kernels.shared_products import SharedKernelMatrix
from vastgp.solvers.cg import (
    Loop,
    WeightedRun,
    lanczos_matrix,
    lanczos_quadrature,
    loop_together,
    run_weighted,
)


class Weights(NamedTuple):
    """What the terms of conjugate gradients are multiplied by, each of shape (most,), zero from the end on.

    Attributes
    ----------
    first, second : ndarray
        For the two estimates of ``A^-1 y``.
    probes : ndarray
        For ``A^-1 z``.
    """

    first: Float[np.ndarray, " J"]
    second: Float[np.ndarray, " J"]
    probes: Float[np.ndarray, " J"]


def plain_weights(iterations: int, most: int) -> Weights:
    """Return those of conjugate gradients stopped after a number of iterations."""
    ones = np.where(np.arange(most) < iterations, 1.0, 0.0)
    return Weights(ones, ones, ones)


def roulette_weights(law: Roulette, uniform: Float[np.ndarray, "2"]) -> Weights:
    """Return those of Russian roulette, from two independent uniform numbers."""
    first, second = (int(truncation) for truncation in law.draw(uniform))
    return Weights(
        law.weights(first), law.weights(second), law.weights_of_later(max(first, second))
    )


class Slope(NamedTuple):
    """An estimate of the gradient, and the run that it came from."""

    by_kernel: Any
    by_noise: Float[Array, ""]
    run: WeightedRun


def evidence_slope_of_run(
    system: KernelMatrix,
    y: Float[Array, " n"],
    probes: Float[Array, "S n"],
    precondition: Any,
    weights: Float[Array, "J 3"],
    tol: Any,
    loop: Loop = jax.lax.while_loop,
) -> Slope:
    """Return the estimate of the log evidence's gradient by kernel and noise variance.

    A pure function, compiled by `evidence_slope_by_cg`; for ``loop`` see `vastgp.solvers.cg.iterate`.

    Parameters
    ----------
    system : KernelMatrix
        ``A``.
    y : Array of shape (n,)
        Targets, times the system's scale.
    probes : Array of shape (S, n)
        ``z``, whose covariance is the preconditioner.
    precondition : pytree, callable
    weights : Array of shape (J, 3)
        The columns are those of `Weights`.
    tol : float
        Relative residual at which a solution counts as complete.
    """
    S = len(probes)
    columns = (0, 0, *range(1, S + 1))
    per_sum = jnp.concatenate([weights[:, :2], jnp.repeat(weights[:, 2:], S, axis=1)], axis=1)
    right = jnp.concatenate([y[None], probes])
    run = run_weighted(system, right, precondition, per_sum, columns, tol, loop=loop)
    first, second, solved = run.sums[0], run.sums[1], run.sums[2:]
    U = jnp.concatenate([first[None], solved])
    V = jnp.concatenate([second[None], precondition(probes)])
    signs = jnp.concatenate([jnp.ones(1, y.dtype), jnp.full(S, -1.0 / S, y.dtype)])
    return Slope(*system.slope(U, V, 0.5 * signs), run)


_compiled_slope = eqx.filter_jit(evidence_slope_of_run)


def evidence_slope_by_cg(
    system: KernelMatrix, y: Array, probes: Array, precondition: Any, weights: Array, tol: Any
) -> Slope:
    """Return `evidence_slope_of_run`, compiled; its parts are where several devices or processes share the tiles."""
    given = system, y, probes, precondition, weights, tol
    if isinstance(system, SharedKernelMatrix):
        return evidence_slope_of_run(*given, loop=loop_together)
    return _compiled_slope(*given)


def quadratic_term(run: WeightedRun, weights: Float[np.ndarray, " J"]) -> float:
    """Return the estimate of ``y^T A^-1 y``: the sum of ``gamma_j r_j^T P^-1 r_j`` with the terms' weights.

    It telescopes: the partial sums are ``y^T x_j`` of the solutions ``x_j``.
    """
    lengths = np.asarray(run.lengths, np.float64)[:, 0]
    ratios = np.asarray(run.ratios, np.float64)[:, 0]
    energies = float(run.square[0]) * np.concatenate([[1.0], np.cumprod(ratios[:-1])])
    used = lengths > 0
    return float(np.sum(weights[used] * lengths[used] * energies[used]))


def log_determinants(run: WeightedRun, weights: Float[np.ndarray, " J"]) -> Float[np.ndarray, " S"]:
    """Return the estimate of ``log|P^-1/2 A P^-1/2|`` of every probe.

    ``tau_j = |z|^2 e_1^T log(T_j) e_1`` with Lanczos' matrix of the first ``j`` iterations (Ubaru, Chen and Saad 2017)
    falls towards its limit. It is itself truncated: the estimate is ``sum_j w_j (tau_j - tau_{j-1})``, which is the
    last one where all weights are one.
    """
    estimates = np.zeros(len(run.square) - 1)
    for probe in range(len(estimates)):
        diagonal, below = lanczos_matrix(
            np.asarray(run.lengths)[:, 1 + probe], np.asarray(run.ratios)[:, 1 + probe]
        )
        last = len(diagonal)
        # where weights stay the same, the terms between add up to one difference
        changes = np.flatnonzero(np.diff(weights[:last])) + 1
        before = 0.0
        for j in (*changes, last) if last else ():
            tau = lanczos_quadrature(diagonal[:j], below[: j - 1])
            estimates[probe] += weights[j - 1] * (tau - before)
            before = tau
    return estimates * np.asarray(run.square, np.float64)[1:]


def evidence_value(
    run: WeightedRun, weights: Weights, log_determinant_of_P: float, n: int
) -> tuple[float, float]:
    """Return the estimate of the log evidence of ``n`` scaled targets, and its standard error.

    The error is that over probes and, of the quadratic term, between its two truncations. What the probes' one
    truncation adds to all of them alike is not in it.
    """
    logs = log_determinants(run, weights.probes)
    fits = [quadratic_term(run, part) for part in (weights.first, weights.second)]
    value = 0.5 * sum(fits) + log_determinant_of_P + float(np.mean(logs))
    value += n * math.log(2.0 * math.pi)
    spread = float(np.std(logs, ddof=1)) / len(logs) ** 0.5 if len(logs) > 1 else math.nan
    error = math.hypot(spread, 0.5 * (fits[0] - fits[1]))
    return -0.5 * value, 0.5 * error
