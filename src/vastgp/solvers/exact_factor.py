"""The factor of the covariance of very many rows, in the precision that it needs, and what follows from it alone."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.kernels.matrices import covariance, prior_variances
from vastgp.linalg.cholesky import FactorizationError
from vastgp.linalg.device_cholesky import belongs_on_device
from vastgp.linalg.panels import PANEL_ROWS, GrowingFactor
from vastgp.solvers.cg import lanczos_matrix, lanczos_quadrature
from vastgp.solvers.large_factor import WIDE_ROWS, affordable_rows, factor_of
from vastgp.solvers.row_covariance import MOST_STEPS, Refined, RowCovariance, refine
from vastgp.solvers.spilled_factor import rows_on_disk, spilled

# A float32 factor is that of a matrix ``A + E``, and posterior variances from it are off by at most ``|E|`` over the
# least noise, as ``s^2 |A^-1 k|^2`` is a part of each. For errors of entries that are independent ``|E|`` is some
# roundings of the largest entry times the root of the number of rows. So many leave a hundredth: on kin40k with 10,000
# rows and an amplitude of 70,000 noise variances, eight times as much, variances were off by up to 0.075.
_ROUNDINGS = 10.0
# Where most of what rows say is said by others, errors are not: of kegg, whose matrix is a hundredth of what that asks
# for, 4096 rows take 8 steps of refinement and leave variances off by 0.015, and 19,456 rows 31 steps. So many random
# rows are tried beforehand where there are three times as many, and may take so many steps (kin40k: 4).
_TRIED_ROWS, _TRIED_OF, _TRIED_STEPS = 4096, 3, 5
# The mean is right to this share of the least noise, at every input: its error is at most
# ``sqrt(k(x, x) r^T A^-1 r)`` for a residual r, by Cauchy and Schwarz.
_MEAN_ERROR = 1e-3
# Variances are refined one by one where those of targets, function and noise, are wrong by more than this share; the
# function's deviation is then known to a tenth of the noise's. Next to the noise it may be so small that its last
# digits tell nothing, and refining takes ten times as long as the factor's own answer (elevators, 12,000 rows: off by
# 2 % of some, 1e-4 of the noise). Seen at so many rows and at as many inputs whose columns are those of other rows.
VARIANCE_ERROR, _PROBED, _PROBING, _TRYING = 0.01, 24, 21, 23
# What may be added to the diagonal of rows that rounding leaves without a positive pivot, in units of the least noise:
# conjugate gradients take about ten steps with one, and a hundred with 250 (kegg, 22,000 rows in float32: minutes, and
# no end), where float64, or in its place the rows before these, are at hand.
_MOST_JITTER = 1.0
# Draws for the determinant, and what conjugate gradients leave of each one's square.
_DRAWS, _DRAWN_LEFT = 8, 1e-6

_WHAT = "the covariance matrix of the observations (kernel + noise variance)"


@runtime_checkable
class Clock(Protocol):
    """What a factorisation asks of a budget."""

    def go_on(self, done: int, itemsize: int) -> bool:
        """Return whether there is time for another panel: see `vastgp.linalg.panels.factorize_panels`."""

    def is_enough(self, done: int) -> bool:
        """Return whether a factor in float64 that is begun now gets no further than so many rows."""

    def has_time(self, seconds: float) -> bool:
        """Return whether there are so many seconds left."""


class Factored(NamedTuple):
    """A factor that may be used, and what was found with it.

    Attributes
    ----------
    factor : PanelCholesky or DeviceCholesky
        Of the leading rows: all of them, unless it was stopped.
    weights : ndarray of shape (n,)
        ``A^-1 y``.
    log_evidence : float
    refined : bool
        Whether variances need refinement.
    diagnosis : dict
    """

    factor: GrowingFactor
    weights: np.ndarray
    log_evidence: float
    refined: bool
    diagnosis: dict[str, Any]


def diagnosis_of_dense(rows: int, jitter: float) -> dict[str, Any]:
    """Return the diagnosis of a posterior whose factor is one matrix in float64."""
    return {
        "rows": rows, "factor": "float64", "jitter": float(jitter), "refinement_steps": 0, "mean_error_bound": 0.0,
        "variance_error": 0.0, "refined": False, "log_evidence_se": 0.0, "tried": [], "factor_seconds": 0.0,
        "folder": None, "late": False,
    }  # fmt: skip


def _wide_rows_held(spill: Path | None) -> int:
    """Return the rows of the largest wide factor that the memory holds, or a folder that it is spilled to."""
    return affordable_rows(8) if spill is None else rows_on_disk(spill, 8)


def precision_for(matrix: RowCovariance, dtype: str, spill: Path | None = None) -> str:
    """Return the precision to begin with: what is asked for, or the narrow one where rows are many and it may do."""
    n = len(matrix.X)
    if dtype != "auto":
        return dtype
    if n > _wide_rows_held(spill):
        return "float32"
    if n <= WIDE_ROWS or (spill is None and belongs_on_device(n, 8)):
        return "float64"  # on the cards that are made for it as fast as float32, and nothing needs to be refined
    return "float32" if _may_be_narrow(matrix) else "float64"


def _may_be_narrow(matrix: RowCovariance) -> bool:
    # c eps sqrt(n) max A_ii < s^2
    largest = float(np.max(matrix.diagonal))
    error = _ROUNDINGS * float(np.finfo(np.float32).eps) * len(matrix.X) ** 0.5 * largest
    return error < float(np.min(matrix.noise))


def _refuse_narrow(matrix: RowCovariance, y: np.ndarray, seed: int) -> None:
    """Raise FactorizationError where some rows tell that a float32 factor of all is none."""
    if len(y) < _TRIED_OF * _TRIED_ROWS:
        return
    some = np.random.default_rng([seed, _TRYING]).permutation(len(y))[:_TRIED_ROWS]
    part = RowCovariance(matrix.kernel, matrix.X[some], matrix.noise[some])
    factor = factor_of(part, "float32")
    try:
        told = _judged(part, y[some], factor, seed, None, most=_TRIED_STEPS).diagnosis
    except FactorizationError as error:
        raise FactorizationError(f"of {len(some)} of the rows {error}") from None
    if told["refined"]:
        raise FactorizationError(
            f"of {len(some)} of the rows variances are off by {told['variance_error']:.1e}"
        )


def factor_exactly(
    matrix: RowCovariance,
    y: Float[np.ndarray, " n"],
    dtype: str = "auto",
    *,
    seed: int = 0,
    panel_rows: int = PANEL_ROWS,
    clock: Clock | None = None,
    spill: Path | None = None,
) -> Factored:
    """Factorise the covariance of all rows, solve for their weights to full accuracy, and judge what variances need.

    Where float32 is not enough float64 is used, if the memory holds it and ``dtype`` is left to choose, and where that
    gets further in what is left of a budget than float32 did.

    Parameters
    ----------
    matrix : RowCovariance
    y : ndarray of shape (n,)
    dtype : {"auto", "float32", "float64"}
        Of the factor. Residuals are in float64 in any case.
    seed : int
        Of the inputs that variances are checked at.
    panel_rows : int
        See `factorize_panels`.
    clock : Clock, optional
        Where it ends the work the factor is that of the leading rows.
    spill : path, optional
        Of a folder that panels are kept in, not in memory; what is there of this factor is not made again.

    Raises
    ------
    FactorizationError
        Where no factor is good enough; the message says what was tried, the condition, and what to do.
    """
    first = precision_for(matrix, dtype, spill)
    tried: list[str] = []
    wide = dtype == "auto" and len(matrix.X) <= _wide_rows_held(spill)
    wide &= first != "float64"
    for kind in [first, "float64"] if wide else [first]:
        other = wide and kind == first
        try:
            # what fails leaves nothing behind: the next factor needs its memory
            return _attempt(matrix, y, kind, seed, panel_rows, clock, other, tuple(tried), spill)
        except FactorizationError as error:
            tried.append(f"{kind}: {error}")
    raise FactorizationError(_advice(matrix, tried, first))


def _attempt(
    matrix: RowCovariance,
    y: np.ndarray,
    dtype: str,
    seed: int,
    panel_rows: int,
    clock: Clock | None,
    other: bool,
    tried: tuple[str, ...],
    spill: Path | None,
) -> Factored:
    """Return the factor in one precision, if it is any good; ``other`` where there is another one after it."""
    began = time.perf_counter()
    # a poor factor of all rows is better than none
    most = _MOST_JITTER * float(np.min(matrix.noise)) if other else np.inf
    go_on = None if clock is None else clock.go_on
    known = nullcontext() if spill is None else spilled(matrix, dtype, spill, panel_rows)
    with known as begun:
        try:
            if other and (begun is None or begun.size == 0):
                _refuse_narrow(matrix, y, seed)
            factor = factor_of(matrix, dtype, panel_rows, go_on, begun, most)
            if factor.spoilt and not (clock is not None and clock.is_enough(factor.size)):
                raise FactorizationError(
                    f"rounding leaves rows after the first {factor.size} without a positive pivot"
                )
            seconds = time.perf_counter() - began
            found = _judged(matrix.leading(factor.size), y[: factor.size], factor, seed, clock)
        except FactorizationError:
            if begun is not None:
                begun.remove()
            raise
    place = None if begun is None else str(begun.place)
    found.diagnosis.update(factor_seconds=seconds, tried=list(tried), folder=place)
    return found


def _judged(
    matrix: RowCovariance,
    y: np.ndarray,
    factor: GrowingFactor,
    seed: int,
    clock: Clock | None,
    most: int = MOST_STEPS,
) -> Factored:
    """Return what a factor is good for; FactorizationError where the weights do not converge in ``most`` steps.

    Targets, probes of the variance and draws for the determinant are refined together: a product of the matrix takes
    about as long for sixty columns as for one. Where the clock ends that, its state is what there is.
    """
    size, noise = (
        float(np.max(prior_variances(matrix.kernel, matrix.X))),
        float(np.min(matrix.noise)),
    )
    goal, n = _MEAN_ERROR**2 * noise / size, len(y)
    rounded = factor.dtype != np.float64 or factor.jitter > 0.0
    probes, draws = _Probes.of(matrix, seed, rounded), _draws(factor, seed, rounded)
    parts = [y[None], probes.cross.T, factor.half_product(draws).T if rounded else draws.T]
    ends = np.cumsum([len(part) for part in parts])

    def most_left(value: np.ndarray) -> np.ndarray:
        variance = np.maximum(probes.prior - value[ends[0] : ends[1]], 0.0)
        of_probes = 0.1 * VARIANCE_ERROR * (variance + noise)
        return np.concatenate([[goal], of_probes, np.full(len(draws.T), _DRAWN_LEFT * n)])

    has_time = (lambda _: True) if clock is None else clock.has_time
    found = refine(matrix, factor, np.concatenate(parts), most_left, most, has_time)
    solved = found.of(slice(0, ends[0]))
    if not (solved.reached or (found.late and np.all(np.isfinite(found.value)))):
        error = (size * solved.left[0] / noise) ** 0.5
        raise FactorizationError(
            f"refinement left an error of the mean of up to {error:.1e} noise standard deviations after {solved.steps} "
            f"steps (jitter {factor.jitter:.1e})"
        )
    error, log_determinant, doubt = 0.0, factor.log_determinant, 0.0
    if rounded:
        error = probes.error(factor, found.of(slice(ends[0], ends[1])), noise)
        more, doubt = _missing_log_determinant(draws, found.of(slice(ends[1], ends[2])))
        log_determinant += more
    refined = not error <= VARIANCE_ERROR
    diagnosis = diagnosis_of_dense(n, factor.jitter) | {
        "late": not solved.reached,
        "factor": str(factor.dtype),
        "refinement_steps": solved.steps,
        "mean_error_bound": float((size * max(solved.left[0], 0.0) / noise) ** 0.5),
        "variance_error": error,
        "refined": refined,
        "log_evidence_se": 0.5 * doubt,
    }
    # Rasmussen & Williams 2006, eq. 2.30
    evidence = -0.5 * (float(solved.value[0]) + log_determinant + n * math.log(2.0 * math.pi))
    return Factored(factor, solved.solution[0], evidence, refined, diagnosis)


class _Probes(NamedTuple):
    """Inputs at which a factor's posterior variances are compared with refined ones.

    Attributes
    ----------
    cross : ndarray of shape (n, P)
        Covariances of the rows and the inputs.
    prior : ndarray of shape (P,)
        Variances.
    """

    cross: np.ndarray
    prior: np.ndarray

    @classmethod
    def of(cls, matrix: RowCovariance, seed: int, wanted: bool) -> _Probes:
        """Return some rows, and as many inputs whose columns are those of other rows; none unless they are wanted."""
        X = matrix.X
        if not wanted:
            return cls(np.zeros((len(X), 0)), np.zeros(0))
        generator = np.random.default_rng([seed, _PROBING])
        rows = X[generator.choice(len(X), min(_PROBED, len(X)), replace=False)]
        mixed = np.stack([generator.choice(column, len(rows)) for column in X.T], axis=1)
        places = np.concatenate([rows, mixed])
        return cls(covariance(matrix.kernel, X, places), prior_variances(matrix.kernel, places))

    def error(self, factor: GrowingFactor, exact: Refined, noise: float) -> float:
        """Return the largest share by which the factor's variances of targets are off."""
        if not (exact.reached or exact.late):
            return math.inf
        off = np.abs(explained(factor, self.cross) - exact.value)
        return float(np.max(off / (self.prior - exact.value + noise)))


def _draws(factor: GrowingFactor, seed: int, wanted: bool) -> np.ndarray:
    """Return draws ``z`` for the determinant, (n, S); none unless they are wanted."""
    count = _DRAWS if wanted else 0
    return np.random.default_rng([seed, _PROBING + 1]).standard_normal((factor.size, count))


def _missing_log_determinant(draws: np.ndarray, found: Refined) -> tuple[float, float]:
    """Return ``log|A| - log|P|`` for the factor's ``P = L L^T``, and its standard error.

    It is the trace of ``log(L^-1 A L^-T)``. The mean of ``z^T log(.) z`` over draws ``z`` is that, and Lanczos' matrix
    of conjugate gradients started at ``L z``, whose run ``found`` is, its Gauss quadrature (Ubaru, Chen and Saad 2017).
    """
    each = []
    for z, lengths, ratios in zip(draws.T, found.lengths.T, found.ratios.T, strict=True):
        each.append(z @ z * lanczos_quadrature(*lanczos_matrix(lengths, ratios)))
    return float(np.mean(each)), float(np.std(each) / (_DRAWS - 1) ** 0.5)


def explained(factor: Any, cross: Any) -> np.ndarray:
    """Return ``|L^-1 k|^2`` of each column ``k``, summed in float64."""
    half = factor.half_solve(cross if factor.on_device else np.asarray(cross))
    if isinstance(half, jax.Array):
        with precision("float64"):
            return np.asarray(_squared_norms(half))
    return np.einsum("ij,ij->j", half, half, dtype=np.float64)


@jax.jit
def _squared_norms(columns: Array) -> Array:
    return jnp.sum(columns.astype(jnp.float64) ** 2, axis=0)


def _advice(matrix: RowCovariance, tried: list[str], first: str) -> str:
    n, noise = len(matrix.X), float(np.min(matrix.noise))
    condition = float(np.sum(matrix.diagonal)) / noise
    wide = (
        "use dtype='float64', raise"
        if first == "float32" and n <= affordable_rows(8)
        else "give fewer rows, raise"
    )
    return (
        f"{_WHAT} ({n} x {n}, condition number up to {condition:.1e}) could not be solved. {'. '.join(tried)}. "
        f"{wide.capitalize()} the noise (noise_floor, or the noise given), choose a rougher kernel such as Matern32, "
        "or remove rows that are almost the same."
    )
