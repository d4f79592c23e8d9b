"""The fit of a grid with gaps: hyperparameters learned or given, the solve at them, and what it says of the data."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vastgp._precision import precision
from vastgp._warn import warn
from vastgp.data.grid import Group
from vastgp.estimators.searches import Average, Fixed, Learn
from vastgp.fitting.lbfgs import LbfgsResult, maximise
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Answer, Run
from vastgp.kernels import GridKernel
from vastgp.likelihoods import Gaussian
from vastgp.linalg.kronecker import Known
from vastgp.methods.grid.averaging import averaged_answer, draw_params
from vastgp.methods.grid.evidence import GridFit, GridObjective, best_amplitude
from vastgp.methods.grid.known_errors import KnownErrors
from vastgp.methods.grid.noise import common_noise
from vastgp.methods.grid.options import Criterion, FillGaps, IgnoreGaps, PenalizeGaps, Solver
from vastgp.methods.grid.posterior import GridPosterior
from vastgp.methods.grid.probes import GridProbes
from vastgp.methods.grid.solver import GridSolver, mostly_gaps
from vastgp.methods.grid.spectrum import SPECTRAL_TERMS
from vastgp.methods.grid.start import bounds, kernel_from, rougher_in_time, start_values

_MOST_NOISE = 10.0
_LANCZOS_STEPS = 60
# The log evidence is called off from the unbiased one by more than this many standard errors, and nats a value.
_MOST_STANDARD_ERRORS, _MOST_OFF = 4.0, 0.02
# While learning: the evidence is exact to second order in the residual.
_LEARNING_TOL = 1e-4
_DEFAULT_TOL = {"float32": 1e-3, "float64": 1e-6}


@dataclass(frozen=True)
class GridData:
    """Values on a grid as a fit needs them.

    Attributes
    ----------
    values : ndarray of shape (m_1, ..., m_d)
        Standardised, NaN in the gaps, one axis a group, points in ascending order.
    axes : tuple of ndarray of shape (m_l, d_l)
        Points of every group.
    scale : ndarray
        Units of the values, of the values' dimensions: of every output where there are several.
    groups : tuple of Group
    specs : list
        The kernel that was given for every group, or None.
    errors : ndarray of shape (m_1, ..., m_d), optional
        Known error variances in the units of the values, anything in the gaps.
    known : Known, optional
        Eigendecompositions that fits of other fields began with.
    """

    values: np.ndarray
    axes: tuple[np.ndarray, ...]
    scale: np.ndarray
    groups: tuple[Group, ...]
    specs: list[Any]
    errors: np.ndarray | None = None
    known: Known | None = None

    def describe(self) -> dict[str, Any]:
        """Return what makes these data others than others, for the fingerprint of a fit."""
        digest = 0
        for array in (self.values, *self.axes, *([] if self.errors is None else [self.errors])):
            digest = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, digest)
        return {"points": list(self.values.shape), "data": f"{digest:08x}"}


@dataclass(frozen=True)
class GridOptions:
    """Arguments of `vastgp.GridGP` that a fit depends on, names resolved."""

    solver: Solver | str
    criterion: Criterion
    search: Learn | Fixed
    max_iter: int
    tol: float
    dtype: str


def fit_grid(data: GridData, options: GridOptions, run: Run) -> Iterator[Answer]:
    """Give the answer at the learned hyperparameters, and then the one that averages over others too, where wanted."""
    criterion = options.criterion
    solver = _solver(data, options, run.deadline)
    probes = GridProbes(solver, max(criterion.num_probes, 1), _LANCZOS_STEPS, run.seed)
    # cross validation and penalised gaps have errors of first order in the residual
    second_order = criterion.criterion == "evidence" and solver.solver != PenalizeGaps.kind
    objective = GridObjective(
        data.axes,
        data.values.ravel(),
        solver,
        criterion.criterion,
        probes if criterion.spectrum == "probes" else None,
        criterion.spectrum if criterion.spectrum in SPECTRAL_TERMS else "free-compression",
        _outputs(data),
        max(solver.tol, _LEARNING_TOL) if second_order else None,
        data.known,
    )
    if isinstance(options.search, Fixed):
        learned = _given(data, options.search)
        kernel, noise = learned.params
    else:
        learned = _learn(objective, data, options, options.search, run)
        kernel, noise = learned.params
        if criterion.criterion == "gcv":
            factor = best_amplitude(objective, kernel, float(noise))
            kernel, noise = kernel.in_units(1.0, factor**0.5), noise * factor
    found = objective.solve(kernel.normalised(), noise)
    evidences = _evidences(objective, criterion, probes, found, data.scale)
    answer = _answer(data, options, learned, kernel.normalised(), noise, found, evidences, run.seed)
    if not isinstance(options.search, Average):
        yield answer
        return
    late = "max_seconds was used up before hyperparameters were averaged over"
    yield replace(
        answer,
        converged=False,
        reason=f"{answer.reason}; {late}",
        advice="raise max_seconds, or set hyperparameters='learn'.",
    )
    floor = _floor(options.search)
    drawn = draw_params(
        objective, learned.params, floor, _MOST_NOISE, options.search.num_components, run
    )
    if drawn is not None:
        solver.deadline = run.deadline
        yield averaged_answer(answer, objective, drawn, data.scale, run.seed)


def _outputs(data: GridData) -> int | None:
    """Return which group is that of outputs with a noise variance each.

    None with known errors: values in units of their output's noise would have errors that depend on what is learned.
    Outputs then have one noise, relative to their own scale.
    """
    if data.errors is not None:
        return None
    return next((i for i, group in enumerate(data.groups) if group.is_labels), None)


def _solver(data: GridData, options: GridOptions, deadline: float | None) -> GridSolver:
    chosen, observed = options.solver, ~np.isnan(data.values).ravel()
    if isinstance(chosen, str):  # "auto"
        chosen = IgnoreGaps() if mostly_gaps(observed) else FillGaps()
    return GridSolver(
        observed,
        chosen.kind,
        dtype=options.dtype,
        tol=_DEFAULT_TOL[options.dtype] if chosen.tol is None else float(chosen.tol),
        max_products=int(chosen.max_products),
        rank=None if isinstance(chosen, PenalizeGaps) else chosen.rank,
        penalty=float(chosen.penalty) if isinstance(chosen, PenalizeGaps) else PenalizeGaps.penalty,
        deadline=deadline,
        known=KnownErrors.of(None if data.errors is None else data.errors.ravel(), observed),
    )


def _given(data: GridData, search: Fixed) -> LbfgsResult:
    """Return the hyperparameters that were given, in standardised units."""
    parts = [spec.with_ard(len(g.names)) for spec, g in zip(data.specs, data.groups, strict=True)]
    variance = math.prod(float(part.total_variance()) for part in parts)
    scale = np.ravel(data.scale)
    given = GridKernel(parts, [group.names for group in data.groups], variance)
    kernel = (
        given.normalised(1.0 / scale)
        if len(scale) > 1
        else given.normalised().in_units(1.0, 1.0 / float(scale[0]))
    )
    given_noise = np.asarray(search.noise_std, dtype=np.float64)
    if data.errors is not None and len(scale) > 1:
        raise ValueError(
            f"hyperparameters=Fixed(noise_std={search.noise_std!r}) of {len(scale)} outputs and fit(noise_std=...) "
            "exclude each other: with known errors the outputs have one noise relative to their own scale. Set "
            "hyperparameters='learn', or fit the outputs one by one."
        )
    if given_noise.size not in (1, len(scale)):
        raise ValueError(
            f"noise_std has {given_noise.size} values, and the data have {len(scale)} "
            f"{'outputs' if len(scale) > 1 else 'output'}. Give one number, or one for each output."
        )
    noise = (given_noise.ravel() / scale) ** 2
    params = kernel, noise if len(scale) > 1 else noise.reshape(())
    return LbfgsResult.unneeded(params, "hyperparameters were given")


def _learn(
    objective: GridObjective, data: GridData, options: GridOptions, search: Learn, run: Run
) -> LbfgsResult:
    """Return the hyperparameters that maximise the criterion."""
    axes, floor = objective.axes, _floor(search)
    scales, noise = start_values(data.values, axes, floor, data.errors)
    names = [group.names for group in data.groups]
    counts = [len(group.points) if group.is_labels else None for group in data.groups]
    cyclic = [group.is_cyclic for group in data.groups]
    kernel = kernel_from(data.specs, names, scales, counts, cyclic)
    # cross validation does not tell one noise from another
    each = objective.outputs is not None and objective.criterion == "evidence"
    one = np.ones(data.scale.size) if each else np.array(1.0)

    def climb(name: str, kernel: GridKernel, noise: Any) -> LbfgsResult:
        low, high = bounds(kernel, axes)
        return maximise(
            objective.objective,
            (kernel, noise),
            lower=(low, floor * one),
            upper=(high, _MOST_NOISE * one),
            max_iter=int(options.max_iter),
            tol=float(options.tol),
            scale=objective.num_observed,
            record=run.evaluations(name),
        )

    learned = climb("grid GP", kernel, noise * one)
    for name in ("grid GP, rougher in time", "grid GP, rougher still"):
        rough = rougher_in_time(learned.params[0], data.specs, data.groups)
        if rough is None or not learned.converged:
            break
        rougher = climb(name, rough, learned.params[1])
        if rougher.value <= learned.value:
            break
        learned = rougher
    return learned


def _floor(search: Learn) -> float:
    """Return the least noise variance, relative to the variance of the values."""
    return float(search.given(noise_floor=1e-6).noise_floor)


def _answer(
    data: GridData,
    options: GridOptions,
    learned: LbfgsResult,
    kernel: GridKernel,
    noise: Any,
    found: GridFit,
    evidences: dict[str, float],
    seed: int,
) -> Answer:
    """Return the answer: values in units in which all outputs have one noise variance."""
    solver, scale = found.system.solver, data.scale
    if np.ndim(noise):
        noise, ratios = common_noise(np.asarray(noise))
        scale = scale * ratios.reshape(scale.shape)
        kernel = kernel.normalised(1.0 / ratios)
    noise, solver.deadline = float(noise), None
    reason, advice = _ending(learned, found, options)
    attributes = {
        "value_scale_": scale,
        "solver_": solver.solver,
        "residual_": found.solution.residual,
    }
    return Answer(
        kernel,
        Gaussian(noise),
        lambda: GridPosterior(kernel, noise, data.axes, found.filled(), solver, seed),
        learned.num_iter,
        reason,
        learned.converged and found.solution.converged,
        learned.history,
        advice,
        attributes | evidences,
    )


def _ending(learned: LbfgsResult, found: GridFit, options: GridOptions) -> tuple[str, str]:
    """Return why the fit ended, and what to do where it has not converged."""
    reasons, advice, solver = [learned.message], [], found.system.solver
    residual = found.solution.residual
    if not learned.converged:
        late = learned.message == OUT_OF_TIME
        limit = "max_seconds" if late else f"max_iter (now {options.max_iter})"
        advice.append(f"raise {limit} or tol (now {options.tol:g})")
    if not found.solution.converged:
        reasons = [] if learned.converged else reasons
        reasons.append(
            f"conjugate gradients ended with a relative residual of {residual:.1e}, above {solver.tol:.0e}"
        )
        double = ", or use dtype='float64'" if options.dtype == "float32" else ""
        advice.append(
            f"raise max_products (now {solver.max_products}) or tol of the solver, noise_floor or max_seconds{double}"
        )
    return "; ".join(reasons), "; ".join(advice) + "."


def _evidences(
    objective: GridObjective,
    criterion: Criterion,
    probes: GridProbes,
    found: GridFit,
    scale: np.ndarray,
) -> dict[str, float]:
    """Return the log evidence in the units of the values, with both log-determinants."""
    n = objective.num_observed
    counts = objective.solver.observed.reshape([len(axis) for axis in objective.axes])
    jacobian = float(np.sum(counts * np.log(scale))) + found.log_units
    fit = -0.5 * (found.misfit + n * math.log(2.0 * math.pi)) - jacobian
    log_evidence = fit - 0.5 * objective.by_eigenvalues(found.system, "evidence").value
    unbiased = error = math.nan
    if criterion.num_probes:
        with precision(objective.solver.dtype):
            estimate = probes.log_determinant(found.system)
        unbiased, error = fit - 0.5 * estimate.value, 0.5 * estimate.standard_error
    off, most = abs(log_evidence - unbiased), max(_MOST_STANDARD_ERRORS * error, _MOST_OFF * n)
    if criterion.criterion == "evidence" and criterion.spectrum != "probes" and off > most:
        warn(
            f"GridGP: the log evidence by spectrum={criterion.spectrum!r} is {off:.3g} nats from the unbiased "
            f"one ({off / n:.2g} for each value), so that the hyperparameters may be off too. That happens where gaps "
            "are in large blocks. Use criterion=vastgp.options.Evidence(spectrum='probes')."
        )
    return {
        "log_evidence_": log_evidence,
        "log_evidence_unbiased_": unbiased,
        "log_evidence_se_": error,
    }
