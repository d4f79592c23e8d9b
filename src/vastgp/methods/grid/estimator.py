"""Exact Gaussian processes on grids with gaps."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vastgp._precision import precision
from vastgp.data.grid import (
    check_array,
    group_keys,
    make_group,
    ordered_values,
    points_to_fit,
    value_scaling,
)
from vastgp.estimators.arguments import seed_from
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import LbfgsResult, maximise
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.progress import Progress
from vastgp.kernels import GridKernel
from vastgp.likelihoods import Gaussian
from vastgp.methods.grid.arguments import check_grid_params, check_memory, factor_specs
from vastgp.methods.grid.evidence import GridFit, GridObjective, best_amplitude
from vastgp.methods.grid.noise import common_noise
from vastgp.methods.grid.posterior import GridPosterior
from vastgp.methods.grid.predictions import GridPredictions
from vastgp.methods.grid.probes import GridProbes
from vastgp.methods.grid.solver import GridSolver, choose_solver
from vastgp.methods.grid.spectrum import SPECTRAL_TERMS
from vastgp.methods.grid.start import bounds, kernel_from, start_values

_MOST_NOISE = 10.0
_LANCZOS_STEPS = 60
# The log evidence is called off from the unbiased one by more than this many standard errors, and nats a value.
_MOST_STANDARD_ERRORS, _MOST_OFF = 4.0, 0.02
# While learning: the evidence is exact to second order in the residual.
_LEARNING_TOL = 1e-4
_DEFAULT_CG_TOL = {"float32": 1e-3, "float64": 1e-6}


class GridGP(GridPredictions):
    """Gaussian process regression on a grid with gaps, without approximating the posterior mean.

    Takes an `xarray.DataArray` with NaN where nothing was observed. The kernel is a product over (groups of)
    dimensions, so that the covariance matrix of the whole grid is a Kronecker product, which is never formed: time per
    iteration ``O(M sum_l m_l)`` for a grid of ``M = m_1 ... m_d`` points, and memory of a few arrays like the input.

    Parameters
    ----------
    kernels : dict, optional
        A kernel, or its name, for a dimension (``"time"``) or a group of them (``("lat", "lon")``). A group may also be
        coordinates along one dimension, such as ``("lat", "lon", "elevation")`` of a dimension of stations, which need
        be no grid. Points of a group without any observation, such as land in a group ``("lat", "lon")``, are left out
        of the system. Dimensions without an entry get Matern-5/2; dimensions of labels (strings) get
        ``"coregionalisation"``, a learned covariance matrix between outputs. A kernel's hyperparameters are where
        learning starts, in the coordinates' own units; of times, in ``time_unit``.
    solver : {"auto", "fill-gaps", "ignore-gaps", "penalize-gaps"}, default "auto"
        Which linear system is solved. All have the same solution; ``"auto"`` fills gaps up to a share of 80 % of the
        grid and ignores them beyond (docs/methods/grid_gp.md has the measurements).
    criterion : {"evidence", "gcv"}, default "evidence"
        What chooses the hyperparameters: the log evidence, or generalised cross validation.
    log_determinant : {"free-compression", "nystrom", "probes"}, default "free-compression"
        How the log-determinant of the evidence (the trace of cross validation) is computed while learning: from the
        eigenvalues of the whole grid, as if gaps were independent of the eigenvectors (``"free-compression"``) or by
        the largest of them (``"nystrom"``), or without bias by random probes, which takes ``num_probes`` more solves a
        step.
    noise_std : float or sequence of float, optional
        Standard deviation of the noise: needed with ``hyperparameters="fixed"``, refused otherwise. One for each output
        where there are several, or one number for all.
    hyperparameters : {"learn", "fixed"}, default "learn"
        With ``"fixed"`` every dimension needs a kernel, and variances are those given: of the product of all.
    noise_floor : float, default 1e-6
        Least noise variance, relative to the variance of the values.
    variance : {"auto", "exact", "samples", "low-rank"}, default "auto"
        How predictive variances are computed, see `predict`.
    num_samples : int, default 64
        Random solves behind the variances of ``"samples"``.
    cg_tol : float, optional
        Relative residual of conjugate gradients; default 1e-6 in float64, 1e-3 in float32.
    max_cg_iter : int, default 2000
        Most iterations of a solve.
    preconditioner_rank : int, optional
        Eigenvectors in the preconditioner of ``"ignore-gaps"`` and ``"fill-gaps"``, 0 for none. By default
        ``"ignore-gaps"`` takes those with eigenvalues above the noise, at most 4096, and ``"fill-gaps"`` none; but
        systems of few unknowns (2048 at most) are factorised, and iterations refine that.
    penalty : float, default 1e5
        Of ``"penalize-gaps"``: noise variance of the gaps, relative to the prior variance.
    num_probes : int, default 8
        Random probes of unbiased log-determinants; after learning they check the log evidence. 0 leaves that out.
    time_unit : {"days", "hours", "minutes", "seconds", "years"}, default "days"
        Unit of lengthscales and periods along times.
    max_iter : int, default 100
        Most iterations of L-BFGS.
    tol : float, default 1e-4
        Learning has converged when no derivative of the criterion per observation, by the logarithm of a
        hyperparameter, is larger.
    max_seconds : float, optional
        Wall-clock budget of ``fit``; None: until converged.
    random_state : int, RandomState or None, default 0
    dtype : {"float64", "float32"}, default "float64"
        Of arrays of the grid's size. Eigendecompositions are in float64 always.
    verbose : bool, default False

    Attributes
    ----------
    kernel_ : GridKernel
        Learned kernel, in units of coordinates and values.
    likelihood_ : Gaussian
        Noise in units of the values: of the mean output, where there are several.
    noise_std_ : float or ndarray of shape (k,)
        Standard deviation of the noise, of every output where there are several.
    solver_ : str
        What ``"auto"`` chose.
    gap_share_ : float
        Share of the grid that was not observed.
    log_evidence_ : float
        Log evidence in nats, the log-determinant as ``log_determinant`` says (by free compression for ``"probes"``).
    log_evidence_unbiased_, log_evidence_se_ : float
        The same with a log-determinant by random probes, and its standard error.
    residual_ : float
        Relative residual of the last solve.
    n_iter_, converged_, stop_reason_, history_, fit_seconds_
        As of every estimator.
    posterior_ : GridPosterior

    References
    ----------
    Evans, T. W., Nair, P. B. (2018). Exploiting structure for fast kernel learning. SIAM International Conference on
    Data Mining.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from vastgp import GridGP
    >>> t, x = np.linspace(0.0, 6.0, 15), np.linspace(0.0, 1.0, 8)
    >>> field = xr.DataArray(np.sin(t)[:, None] * np.cos(3 * x), dims=("t", "x"), coords={"t": t, "x": x})
    >>> noise = np.random.default_rng(0).normal(0.0, 0.02, field.shape)
    >>> filled = GridGP().fit((field + noise).where(field.t != t[7])).predict()
    >>> bool(abs(filled["mean"] - field).max() < 0.1)
    True
    """

    def __init__(
        self,
        kernels: Any = None,
        *,
        solver: Any = "auto",
        criterion: Any = "evidence",
        log_determinant: Any = "free-compression",
        noise_std: Any = None,
        hyperparameters: Any = "learn",
        noise_floor: Any = 1e-6,
        variance: Any = "auto",
        num_samples: Any = 64,
        cg_tol: Any = None,
        max_cg_iter: Any = 2000,
        preconditioner_rank: Any = None,
        penalty: Any = 1e5,
        num_probes: Any = 8,
        time_unit: Any = "days",
        max_iter: Any = 100,
        tol: Any = 1e-4,
        max_seconds: Any = None,
        random_state: Any = 0,
        dtype: Any = "float64",
        verbose: Any = False,
    ) -> None:
        self.kernels = kernels
        self.solver = solver
        self.criterion = criterion
        self.log_determinant = log_determinant
        self.noise_std = noise_std
        self.hyperparameters = hyperparameters
        self.noise_floor = noise_floor
        self.variance = variance
        self.num_samples = num_samples
        self.cg_tol = cg_tol
        self.max_cg_iter = max_cg_iter
        self.preconditioner_rank = preconditioner_rank
        self.penalty = penalty
        self.num_probes = num_probes
        self.time_unit = time_unit
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    # ------------------------------------------------------------ fit

    def fit(self, data_array: Any, y: Any = None) -> GridGP:
        """Fit the model.

        Parameters
        ----------
        data_array : xarray.DataArray
            Values with NaN in the gaps, in memory or in chunks of dask. Coordinates may be spaced unevenly; a dimension
            without any counts from 0.
        y : None
            Ignored: the values are those of the array.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or constructor arguments, and when memory would not suffice; the message says what to do.
        """
        began = time.perf_counter()
        with precision(self.dtype):
            pass
        check_grid_params(self)
        check_array(data_array)
        self._deadline = None if self.max_seconds is None else began + float(self.max_seconds)
        keys = group_keys(data_array, self.kernels)
        check_memory(self, data_array)
        groups = tuple(make_group(data_array, key, self.time_unit) for key in keys)
        specs = factor_specs(groups, self.kernels, self.hyperparameters == "fixed")
        self.groups_, self.dims_ = groups, tuple(map(str, data_array.dims))
        self.template_ = data_array.coords.to_dataset()
        self.name_, self.attrs_ = data_array.name, dict(data_array.attrs)
        values = ordered_values(data_array, groups)
        self._condition(values, specs)
        self.fit_seconds_ = time.perf_counter() - began
        del self._deadline
        return self

    def _condition(self, values: np.ndarray, specs: list[Any]) -> None:
        self.value_mean_, self.value_scale_ = value_scaling(values, self.groups_)
        self.gap_share_ = float(np.isnan(values).mean())
        values, axes = points_to_fit(values, self.groups_)
        observed = ~np.isnan(values)
        tensor = (values - self.value_mean_) / self.value_scale_
        self.solver_ = choose_solver(self.solver, 1.0 - float(observed.mean()))
        solver = GridSolver(
            observed.ravel(),
            self.solver_,
            dtype=self.dtype,
            tol=self._cg_tol(),
            max_iter=int(self.max_cg_iter),
            rank=self.preconditioner_rank,
            penalty=float(self.penalty),
            deadline=self._deadline,
        )
        seed = seed_from(self.random_state)
        probes = GridProbes(solver, max(int(self.num_probes), 1), _LANCZOS_STEPS, seed)
        exact_to_second_order = self.criterion == "evidence" and self.solver_ != "penalize-gaps"
        objective = GridObjective(
            axes,
            tensor.ravel(),
            solver,
            self.criterion,
            probes if self.log_determinant == "probes" else None,
            self.log_determinant if self.log_determinant in SPECTRAL_TERMS else "free-compression",
            next((i for i, group in enumerate(self.groups_) if group.is_labels), None),
            # cross validation and penalised gaps have errors of first order
            max(solver.tol, _LEARNING_TOL) if exact_to_second_order else None,
        )
        if self.hyperparameters == "fixed":
            learned = self._given(specs)
        else:
            learned = self._learn(objective, tensor, specs)
        kernel, noise = learned.params
        if self.criterion == "gcv" and self.hyperparameters != "fixed":
            factor = best_amplitude(objective, kernel, float(noise))
            kernel, noise = kernel.in_units(1.0, factor**0.5), noise * factor
        self._finish(objective, probes, kernel.normalised(), noise, learned, seed)

    def _given(self, specs: list[Any]) -> LbfgsResult:
        """Return the hyperparameters that were given, in standardised units."""
        parts = [spec.with_ard(len(g.names)) for spec, g in zip(specs, self.groups_, strict=True)]
        variance = math.prod(float(part.total_variance()) for part in parts)
        scale = np.ravel(self.value_scale_)
        given = GridKernel(parts, [group.names for group in self.groups_], variance)
        kernel = (
            given.normalised(1.0 / scale)
            if len(scale) > 1
            else given.normalised().in_units(1.0, 1.0 / float(scale[0]))
        )
        given_noise = np.asarray(self.noise_std, dtype=np.float64)
        if given_noise.size not in (1, len(scale)):
            raise ValueError(
                f"noise_std has {given_noise.size} values, and the data have {len(scale)} "
                f"{'outputs' if len(scale) > 1 else 'output'}. Give one number, or one for each output."
            )
        noise = (given_noise.ravel() / scale) ** 2
        return LbfgsResult(
            (kernel, noise if len(scale) > 1 else noise.reshape(())),
            math.nan,
            0,
            0,
            True,
            "hyperparameters were given",
            History(),
        )

    def _learn(self, objective: GridObjective, tensor: np.ndarray, specs: list[Any]) -> LbfgsResult:
        """Return the hyperparameters that maximise the criterion."""
        axes = objective.axes
        scales, noise = start_values(tensor, axes, float(self.noise_floor))
        names = [group.names for group in self.groups_]
        counts = [len(group.points) if group.is_labels else None for group in self.groups_]
        kernel = kernel_from(specs, names, scales, counts)
        low, high = bounds(kernel, axes)
        # cross validation does not tell one noise from another
        each = objective.outputs is not None and self.criterion == "evidence"
        one = np.ones(len(np.ravel(self.value_scale_))) if each else np.array(1.0)
        left = None if self._deadline is None else self._deadline - time.perf_counter()
        with Progress("grid GP", bool(self.verbose)) as progress:
            best = maximise(
                objective.objective,
                (kernel, noise * one),
                lower=(low, float(self.noise_floor) * one),
                upper=(high, _MOST_NOISE * one),
                max_iter=int(self.max_iter),
                tol=float(self.tol),
                scale=objective.num_observed,
                max_seconds=left,
                on_iteration=lambda step, value: progress.update(
                    step / self.max_iter, f"{self.criterion} {value:.6g}"
                ),
            )
        if not best.converged:
            late = best.message == OUT_OF_TIME
            advice = (
                f"max_seconds (now {self.max_seconds})"
                if late
                else f"max_iter (now {self.max_iter})"
            )
            warnings.warn(
                f"GridGP did not converge: {best.message}, after {best.num_iter} iterations. Raise {advice} or tol "
                f"(now {self.tol:g}).",
                ConvergenceWarning,
                stacklevel=4,
            )
        return best

    def _finish(
        self,
        objective: GridObjective,
        probes: GridProbes,
        kernel: GridKernel,
        noise: Any,
        learned: LbfgsResult,
        seed: int,
    ) -> None:
        solver = objective.solver
        found = objective.solve(kernel, noise)
        if not found.converged:
            warnings.warn(
                f"GridGP: conjugate gradients ended with a relative residual of {found.found.residual:.1e}, above "
                f"cg_tol={solver.tol:.0e}. Raise max_cg_iter (now {self.max_cg_iter}), cg_tol, noise_floor or "
                f"max_seconds{', or use dtype=' + repr('float64') if self.dtype == 'float32' else ''}.",
                ConvergenceWarning,
                stacklevel=4,
            )
        if np.ndim(noise):
            # from here on values are in units in which all outputs have one noise variance
            _, ratios = common_noise(np.asarray(noise))
            self.value_scale_ = self.value_scale_ * ratios.reshape(self.value_scale_.shape)
            kernel = kernel.normalised(1.0 / ratios)
        noise = found.noise
        self._evidences(objective, probes, found)
        self.residual_ = found.found.residual
        self.n_iter_, self.converged_ = (
            learned.num_iter,
            learned.converged and found.converged,
        )
        self.stop_reason_, self.history_ = learned.message, learned.history
        scale = np.ravel(self.value_scale_)
        self.kernel_ = (
            kernel.normalised(scale) if len(scale) > 1 else kernel.in_units(1.0, float(scale[0]))
        )
        self.likelihood_ = Gaussian(noise * float(np.mean(scale**2)))
        solver.deadline = None
        self.posterior_ = GridPosterior(
            kernel,
            noise,
            objective.axes,
            found.coefficients(),
            solver,
            int(self.num_samples),
            seed,
        )

    def _evidences(self, objective: GridObjective, probes: GridProbes, found: GridFit) -> None:
        """Set the log evidence, with both log-determinants, in the units of the values."""
        n = objective.num_observed
        counts = objective.solver.observed.reshape([len(axis) for axis in objective.axes])
        jacobian = float(np.sum(counts * np.log(self.value_scale_)))
        fit = -0.5 * (found.misfit + n * math.log(2.0 * math.pi)) - jacobian
        determinant, _ = SPECTRAL_TERMS[objective.spectrum]
        self.log_evidence_ = fit - 0.5 * determinant(found.eigen, found.noise, n).value
        self.log_evidence_unbiased_ = self.log_evidence_se_ = math.nan
        if not self.num_probes:
            return
        with precision(self.dtype):
            estimate = probes.log_determinant(found.system)
        self.log_evidence_unbiased_ = fit - 0.5 * estimate.value
        self.log_evidence_se_ = 0.5 * estimate.standard_error
        off = abs(self.log_evidence_ - self.log_evidence_unbiased_)
        approximate = self.criterion == "evidence" and self.log_determinant != "probes"
        if not approximate or off <= max(
            _MOST_STANDARD_ERRORS * self.log_evidence_se_, _MOST_OFF * n
        ):
            return
        warnings.warn(
            f"GridGP: the log evidence by log_determinant={self.log_determinant!r} is {off:.3g} nats from the unbiased "
            f"one ({off / n:.2g} for each value), so that the hyperparameters may be off too. That happens where gaps "
            "are in large blocks. Use log_determinant='probes'.",
            UserWarning,
            stacklevel=5,
        )

    def _cg_tol(self) -> float:
        return float(_DEFAULT_CG_TOL[self.dtype] if self.cg_tol is None else self.cg_tol)
