"""What a few support rows say about all: interpolation of a function, and a preconditioner of its weights.

Everything is made once, on the host, in float64, from kernel matrices between at most a few thousand rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh, eigvalsh

# Added to the spectrum of the support rows' kernel matrix for interpolation, relative to the prior variance: the
# error that is interpolated in float32 is not smooth below this level.
_NUGGET = 1e-3
_BISECTIONS = 60
# Rounding errors between the damping and the largest eigenvalue: a factorisation of some thousand rows stays positive.
_ROUNDINGS = 100.0
# On the damping against sampling noise: the estimate of what a step adds leaves out how the noise of rows and of basis
# functions multiply. On kin40k the error grew without it (by a factor e in 1600 steps, after a best value of 0.146).
_SAFETY = 4.0


class SupportOperators(NamedTuple):
    """Operators of ``p`` support rows.

    Attributes
    ----------
    interpolator : ndarray of shape (p, p)
        ``(K_pp + nugget I)^-1``.
    deflator : ndarray of shape (p, p)
        ``M`` of the preconditioner, see `support_operators`.
    damping : float
        ``d`` of the preconditioner.
    """

    interpolator: np.ndarray
    deflator: np.ndarray
    damping: float


def support_operators(
    K_pp: np.ndarray,
    K_bp: np.ndarray,
    K_bb: np.ndarray,
    *,
    fraction: float,
    row_batch: int,
    num_functions: int | None,
    step: float,
    ridge: float,
    rounding: float = 0.0,
    overshoot: float = 2.0,
) -> SupportOperators:
    """Return the operators that interpolate sampling errors and precondition stochastic gradients.

    With features ``G`` of a sampled fraction ``rho`` of the basis functions at the support rows, the curvature
    of the objective over these weights is about ``G^T G / p`` per row. Its inverse, damped by ``d``, is
    ``(d I + G^T G / p)^-1 = (I - G^T (p d I + G G^T)^-1 G) / d`` (Woodbury), and as
    ``G G^T`` is ``rho K_pp`` but for sampling error, ``M = (p d I + rho K_pp)^-1`` is computed once: a gradient is
    preconditioned by two products with ``G``. This flattens the leading eigenvalues of the kernel operator, as
    EigenPro does for kernel machines (Ma and Belkin 2017).

    The damping is ``ridge``, the prior's own part, plus what stands for the rest of the spectrum: the largest of three
    values.

    - What a batch of rows needs: the preconditioned curvature seen by one batch, ``lambda_max`` of
      ``rho K~_bb / (b d)`` with ``K~`` the kernel deflated by the support rows, at most ``overshoot``.
    - What the noise of sampling basis functions needs. A step adds to ``||w||^2`` in proportion to the error's
      variance, which is itself proportional to ``||w||^2``: ``2 (eta nu)^2 (1 - rho) / (d^2 b m)`` relative, against
      a decay of ``4 eta rho nu / (m d)`` (``nu``: prior variance not explained by the support rows). The first would
      stay below half of the second for ``d >= eta nu (1 - rho) / (rho b)``; _SAFETY times that is taken.

    - What ``M`` needs where it stands for the inverse of ``p d I + G G^T``: an effective rank
      ``tr K_pp (K_pp + p d / rho I)^-1`` of at most a sixteenth of the ``c`` functions in a set, so that
      ``G G^T`` is ``rho K_pp`` to within a half in the directions that matter.

    Parameters
    ----------
    K_pp, K_bp, K_bb : ndarray
        Kernel matrices of the support rows and of a batch of other rows.
    fraction : float
        ``rho``: basis functions in one set over all.
    row_batch : int
        ``b``: rows in a step; ``K_bb`` may be of fewer rows.
    num_functions : int or None
        ``c``; None where ``G G^T`` itself is used.
    step : float
        ``eta``, the step size that the damping is for.
    ridge : float
        ``sigma^2 / n``.
    rounding : float, default 0.0
        Rounding of the precision in which ``p d I + G G^T`` is factorised: ``p d`` is kept at 100 of these, relative to
        the largest eigenvalue. Matters where the support is all there is and nothing else asks for damping.
    overshoot : float, default 2.0
        See above.
    """
    variance = float(np.mean(np.diagonal(K_bb)))
    p, b = K_pp.shape[0], K_bb.shape[0]
    values, vectors = _spectrum(K_pp)
    projected = K_bp @ vectors

    def deflated(shift: float) -> np.ndarray:
        return K_bb - (projected / (values + shift)) @ projected.T

    def curvature(d: float) -> float:
        top = eigvalsh(deflated(p * d / fraction), subset_by_index=(b - 1, b - 1))
        return fraction * float(top[0]) / (b * d)

    low, high = 1e-9 * variance * fraction, variance * fraction * max(1.0, 1.0 / overshoot)
    high = _bisect(lambda d: curvature(d) > overshoot, low, high, until=1.02)
    nugget = _NUGGET * variance
    unexplained = float(np.mean(np.diagonal(deflated(nugget))))
    noise = _SAFETY * step * max(unexplained, 0.0) * (1.0 - fraction) / (fraction * row_batch)
    rank = (
        0.0 if num_functions is None else _damping_for_rank(values, num_functions / 16.0) * fraction
    )
    largest = fraction * float(values[-1]) if p else 0.0
    solvable = _ROUNDINGS * rounding * largest
    damping = ridge + max(high, noise, rank / max(p, 1), solvable / max(p, 1))
    deflator = (vectors / (p * damping + fraction * values)) @ vectors.T
    return SupportOperators((vectors / (values + nugget)) @ vectors.T, deflator, damping)


def _damping_for_rank(values: np.ndarray, rank: float) -> float:
    """Return the shift at which ``sum(values / (values + shift))`` is ``rank``, 0 if it never exceeds it."""
    if np.count_nonzero(values > 0) <= rank:
        return 0.0
    low, high = 1e-12 * values[-1], values.sum() / rank
    return _bisect(lambda shift: bool(np.sum(values / (values + shift)) > rank), low, high)


def _bisect(too_low: Callable[[float], bool], low: float, high: float, until: float = 1.0) -> float:
    """Return the upper end of a bracket halved on the logarithmic scale, down to a ratio of ``until``."""
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if too_low(middle) else (low, middle)
        if high < until * low:
            break
    return float(high)


def _spectrum(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues, negative ones of rounding set to zero, and eigenvectors."""
    if matrix.shape[0] == 0:
        return np.zeros(0), np.zeros((0, 0))
    values, vectors = eigh(matrix)
    return np.maximum(values, 0.0), vectors
