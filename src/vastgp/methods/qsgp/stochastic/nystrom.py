"""What a few support rows say about all: interpolation of a function, and a preconditioner of its weights.

Everything is made once, on the host, in float64, from kernel matrices between at most a few thousand rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, eigh, eigvalsh, solve_triangular

# Added to the spectrum of the support rows' kernel matrix for interpolation, relative to the prior variance: the
# error that is interpolated in float32 is not smooth below this level.
_NUGGET = 1e-3
_LEAST = 1e-9  # damping relative to the prior variance
# Rounding errors between the damping and the largest eigenvalue: a factorisation of some thousand rows stays positive.
_ROUNDINGS = 100.0
# Damping against sampling noise over the value at which a model of independent errors becomes unstable. At 1.7 times
# that value the error of kin40k still grew by what no row takes back, which has a bound of its own now. Protein with
# 100,000 functions in sets of 10,000, RMSE after 1000 and 2500 steps with a factor of seven: 0.576, 0.546, of two:
# 0.554, 0.537, with twice the error of a set.
_SAFETY = 3.0
# By this exponent at most may grow, over all steps, what the weights have of directions that no row sees.
_MOST_DRIFT = 2.0
# Share of the error at one row, unlike all others, that a step on it takes back; two is where such a row diverges.
_ONE_ROW = 0.5
# Share of a function in a set that ``M`` may be without: with x of it the step on it is 1 + x^3 times as long.
_MOST_MISSING = 0.5
# Most that a step on a set may be too long by; the few sets that are tried are not the worst.
_MOST_GROWTH = 1.5
# Of the power method: its value is a few per cent too low at most.
_POWER_STEPS = 30


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
    head_solution : ndarray of shape (p, h)
        ``M H`` with the features ``H`` that are in every set.
    head_inverse : ndarray of shape (h, h)
        Inverse of the lower Cholesky factor of ``I - H^T M H``.
    """

    interpolator: np.ndarray
    deflator: np.ndarray
    damping: float
    head_solution: np.ndarray
    head_inverse: np.ndarray


def support_operators(
    K_pp: np.ndarray,
    K_qp: np.ndarray,
    K_bb: np.ndarray,
    head: np.ndarray,
    *,
    fraction: float,
    row_batch: int,
    num_rows: int,
    num_functions: int | None,
    all_functions: int,
    step: float,
    steps: int,
    noise_variance: float,
    rounding: float = 0.0,
    overshoot: float = 2.0,
    expected: np.ndarray | None = None,
    functions: np.ndarray | None = None,
    grams: Sequence[np.ndarray] = (),
) -> SupportOperators:
    """Return the operators that interpolate sampling errors and precondition stochastic gradients.

    With features ``G`` of a sampled fraction ``rho`` of the basis functions at the support rows, the curvature
    of the objective over these weights is about ``G^T G / p`` per row. Its inverse, damped by ``d``, is
    ``(d I + G^T G / p)^-1 = (I - G^T (p d I + G G^T)^-1 G) / d`` (Woodbury), and as
    ``G G^T`` is ``rho K_pp`` but for sampling error, ``M = (p d I + rho K_pp)^-1`` is computed once: a gradient is
    preconditioned by two products with ``G``. This flattens the leading eigenvalues of the kernel operator, as
    EigenPro does for kernel machines (Ma and Belkin 2017). Features ``H`` that are in every set count in full:
    ``G G^T`` is about ``H H^T + rho (K_pp - H H^T)``.

    The damping is ``sigma^2 / n``, the prior's own part, plus what stands for the rest of the spectrum: the least value
    that meets all of these, with ``K~`` the kernel deflated by the support rows,
    ``K - K_qp (K_pp + p d / rho I)^-1 K_pq``.

    - A batch of rows: the preconditioned curvature that one batch sees, ``lambda_max`` of ``rho K~_bb / (b d)``, is at
      most ``overshoot``.
    - One row that the support says nothing of: ``rho K_ii / (b d) (1 - b / n)`` at most a half. Rows far from all
      others are too rare for the batch above to show them; where a batch is all rows it does.
    - The noise of sampling basis functions. An estimate at row i has the error
      ``(1 - rho) / (rho m) ||w||^2 k_i``, ``k_i`` the prior variance there that interpolation leaves. A step
      returns it to the weights through the rows: ``||w||^2`` grows by
      ``2 eta^2 (1 - rho) / (d^2 b m) mean(K~_ii k_i)`` of itself, and falls by ``4 eta rho / (m d) mean(K~_ii)``. They
      balance at ``d = eta (1 - rho) / (2 rho b) mean(K~_ii k_i) / mean(K~_ii)``; ``_SAFETY`` times that is taken. It is
      the products that count: few rows far from the support matter more than their number.
    - The noise that no row takes back. A share ``1 - rho`` of what a set's step adds to the weights lies in directions
      that no row sees, as the set holds parts of functions of which only sums over all sets are seen, and there nothing
      falls but by the prior, ``4 eta rho sigma^2 / (d n)`` of ``||w||^2`` a step. Errors of the rows of a batch are not
      independent, so that ``||w||^2`` grows there by ``2 eta^2 (1 - rho)^2 / (d^2 m) tr(K~_bb C_bb) / b^2``, with the
      covariance C of the errors that interpolation leaves in the place of its diagonal k. It is at most half of what
      falls, or so little that it makes a factor e^2 of all steps. Matters where functions are few (600 in sets of 200:
      a residual of 0.3 grew to 42 in 600 steps).
    - The validity of ``M`` where it stands for the inverse of ``p d I + G G^T``: an effective rank
      ``tr K_pp (K_pp + p d / rho I)^-1`` of at most a sixteenth of the ``c`` functions in a set, so that
      ``G G^T`` is ``rho K_pp`` to within a half in the directions that matter. Ranks are averages. Of a single function
      ``g``, as a wave of a high frequency that no other has, ``M`` holds ``rho`` and a set all or nothing: where it is
      in a set and ``M`` misses ``x = (1 - rho) g^T M g`` of it, the refined step on it is ``1 + x^3`` times as long
      (``M = 1 / (p d)``, ``A = p d + |g|^2``, and ``2 M - M A M`` in the place of ``1 / A``); x is at most a half. And
      of a set as a whole, as measured on some, the largest eigenvalue of `_growth` is at most 1.5.
    - Rounding: ``p d`` at least ``_ROUNDINGS`` times ``rounding`` relative to the largest eigenvalue. Matters where the
      support is all there is and nothing else asks for damping.

    Parameters
    ----------
    K_pp : ndarray of shape (p, p)
        Kernel matrix of the support rows.
    K_qp : ndarray of shape (q, p)
        Between other rows and them.
    K_bb : ndarray of shape (b', b')
        Of the first ``b' <= q`` of these other rows; prior variances are taken from its diagonal, which is constant.
    head : ndarray of shape (p, h)
        ``H``, features of the support rows that are in every set; ``h`` may be 0.
    fraction : float
        ``rho``: basis functions in one set over all.
    row_batch, num_rows : int
        ``b`` and ``n``: rows in a step, and of all; ``K_bb`` may be of fewer rows.
    num_functions : int or None
        ``c``; None where ``G G^T`` itself is used.
    all_functions : int
        ``m``, of which sets are drawn.
    step : float
        ``eta``, the step size of each of two sets that the damping is for.
    steps : int
        After how many the fit will have ended.
    noise_variance : float
        ``sigma^2``.
    rounding : float, default 0.0
        Of the precision in which ``p d I + G G^T`` is factorised.
    overshoot : float, default 2.0
        See above.
    expected : ndarray of shape (p, p), optional
        What ``G G^T`` is on average over sets, head and all, where functions are few enough to know. None: by ``K_pp``.
    functions : ndarray of shape (p, k, 2), optional
        Pairs of functions outside the head, at the support rows: all, or some at random.
    grams : sequence of ndarray of shape (p, p)
        ``G G^T`` of some sets.
    """
    variance = float(np.mean(np.diagonal(K_bb)))
    p, rows = K_pp.shape[0], K_bb.shape[0]
    values, vectors = _spectrum(K_pp)
    projected = K_qp @ vectors
    nugget = _NUGGET * variance

    def unexplained(shift: float) -> np.ndarray:
        return np.maximum(variance - projected**2 @ (1.0 / (values + shift)), 0.0)

    left = unexplained(nugget)

    def deflated(shift: float) -> np.ndarray:
        return np.asarray(K_bb - (projected[:rows] / (values + shift)) @ projected[:rows].T)

    errors = deflated(nugget)

    def curvature(d: float) -> float:
        top = eigvalsh(deflated(p * d / fraction), subset_by_index=(rows - 1, rows - 1))
        return fraction * float(top[0]) / (rows * d)

    def drifts(d: float) -> bool:
        both = deflated(p * d / fraction) * errors
        of_a_row, of_all = float(np.trace(both)) / rows, float(np.sum(both)) / rows
        of_a_pair = max(of_all - of_a_row, 0.0) / max(rows - 1, 1)
        noise = (of_a_row + (row_batch - 1) * of_a_pair) / row_batch
        growth = 2.0 * (step * (1.0 - fraction) / d) ** 2 / all_functions * noise
        falls = 4.0 * step * fraction * noise_variance / (d * num_rows)
        return growth > max(0.5 * falls, _MOST_DRIFT / steps)

    def noise(d: float) -> float:
        open_to = unexplained(p * d / fraction)
        both = float(open_to @ left) / max(float(np.sum(open_to)), np.finfo(float).tiny)
        return _SAFETY * step * (1.0 - fraction) / (2.0 * fraction * row_batch) * both

    def rank(d: float) -> float:
        return float(np.sum(fraction * values / (fraction * values + p * d)))

    most_rank = np.inf if num_functions is None else num_functions / 16.0
    largest = fraction * float(values[-1]) if p else 0.0
    one_row = fraction * variance * (1.0 - row_batch / num_rows) / (_ONE_ROW * row_batch)
    low = max(one_row, _ROUNDINGS * rounding * largest / max(p, 1), _LEAST * fraction * variance)

    scales, directions = fraction * values, vectors
    if expected is None and head.shape[1]:
        of_head = head @ head.T
        expected = of_head + fraction * _without_negative(K_pp - of_head)
    if expected is not None:
        scales, directions = _spectrum(expected)
    squares = None
    if functions is not None:
        turned = np.tensordot(directions.T, functions, axes=1)
        squares = np.sum(turned**2, axis=2)

    growths = [_growth(gram, scales, directions) for gram in grams]

    def missing(d: float) -> float:
        if squares is None:
            return 0.0
        return (1.0 - fraction) * float(np.max((1.0 / (scales + p * d)) @ squares))

    def too_low(d: float) -> bool:
        validity = rank(d) > most_rank or missing(d) > _MOST_MISSING
        if validity or noise(d) > d or drifts(d) or curvature(d) > overshoot:
            return True
        return any(growth(d) > _MOST_GROWTH for growth in growths)

    high = low
    while too_low(high):
        high *= 4.0
    damping = noise_variance / num_rows + _bisect(too_low, low, high, until=1.02)
    interpolator = (vectors / (values + nugget)) @ vectors.T
    deflator = (directions / (p * damping + scales)) @ directions.T
    solution = deflator @ head
    factor = cholesky(np.eye(head.shape[1]) - head.T @ solution, lower=True)
    inverse = solve_triangular(factor, np.eye(len(factor)), lower=True)
    return SupportOperators(interpolator, deflator, damping, solution, inverse)


def _growth(
    gram: np.ndarray, scales: np.ndarray, directions: np.ndarray
) -> Callable[[float], float]:
    """Return the largest eigenvalue of what a step on one set, refined once, makes of its gradient, by the damping.

    With ``S = G G^T``, ``A = S + p d I`` and ``M = U (s + p d)^-1 U^T`` the preconditioner ``P`` has
    ``2 M - M A M = A^-1 - (I - M A) A^-1 (I - A M)`` in the place of ``A^-1``. So ``P (d I + G^T G / p)`` is the
    identity plus a matrix with the eigenvalues of ``Y Y^T / d``, where in the eigenbasis of S (eigenvalues s_S)
    ``Y = [s_S (d + s_S / p)]^(1/2) (I - M A) A^(-1/2)``. Found by the power method.
    """
    own, basis = _spectrum(gram)
    p = len(own)
    turned = basis.T @ directions
    first = np.random.default_rng(0).standard_normal(p)

    def growth(d: float) -> float:
        a, outer = own + p * d, np.sqrt(own * (d + own / p))
        weights = 1.0 / (scales + p * d)

        def apply_m(v: np.ndarray) -> np.ndarray:
            return np.asarray(turned @ (weights * (turned.T @ v)))

        v, size = first, 0.0
        for _ in range(_POWER_STEPS):
            inner = outer * v
            inner = (inner - a * apply_m(inner)) / a
            v = outer * (inner - apply_m(a * inner))
            size = float(np.linalg.norm(v))
            if size == 0.0:
                break
            v = v / size
        return 1.0 + size / d

    return growth


def _without_negative(matrix: np.ndarray) -> np.ndarray:
    """Return a symmetric matrix without the negative eigenvalues of rounding."""
    values, vectors = _spectrum(matrix)
    return (vectors * values) @ vectors.T


def _bisect(too_low: Callable[[float], bool], low: float, high: float, until: float) -> float:
    """Return the upper end of a bracket halved on the logarithmic scale, down to a ratio of ``until``."""
    while high > until * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return float(high)


def _spectrum(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues, negative ones of rounding set to zero, and eigenvectors."""
    if matrix.shape[0] == 0:
        return np.zeros(0), np.zeros((0, 0))
    values, vectors = eigh(matrix)
    return np.maximum(values, 0.0), vectors
