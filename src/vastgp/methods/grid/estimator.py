"""Exact Gaussian processes on grids with gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np

from vastgp._arguments import OneOf, Positive
from vastgp.data.coordinates import TIME_UNITS
from vastgp.data.grid import (
    check_array,
    group_keys,
    make_group,
    ordered_values,
    points_to_fit,
    value_scaling,
    without_single,
)
from vastgp.data.grid_errors import (
    known_variances,
    like_the_values,
    scaling_with_errors,
    standardised_variances,
)
from vastgp.data.grid_fields import told_of
from vastgp.data.grid_mask import make_mask
from vastgp.data.grid_meridian import counted_once, joined
from vastgp.data.grid_points import refuse_taken
from vastgp.estimators.arguments import (
    CheckpointLike,
    Dtype,
    MaxSeconds,
    Seed,
    Tolerance,
    Verbose,
    refuse_given,
    refuse_own_noise,
)
from vastgp.estimators.searches import LEARN_AVERAGE_OR_FIXED, Average, Fixed, Learn
from vastgp.fitting.run import Answer, Run
from vastgp.likelihoods import Gaussian
from vastgp.methods.grid.arguments import (
    check_kernels,
    check_known_errors,
    check_memory,
    check_outputs,
    factor_specs,
    groups_on_sphere,
)
from vastgp.methods.grid.fit import GridData, GridOptions, fit_grid
from vastgp.methods.grid.options import CRITERIA, SOLVERS, Criterion, Solver
from vastgp.methods.grid.predictions import PREDICTED, GridPredictions


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
        of the system. Dimensions without an entry get Matern-5/2, times that of Matern-5/2, -3/2 and -1/2 which has the
        highest evidence; dimensions of labels (strings) get ``"coregionalisation"``, a learned covariance matrix
        between outputs. Along longitudes that go all around, known by their units, standard name or name, a name stands
        for that kernel around the circle (`Cyclic`). A kernel's
        hyperparameters are where learning starts, in the coordinates' own units; of times, in ``time_unit``.
    solver : {"auto", "fill-gaps", "ignore-gaps", "penalize-gaps"} or object, default "auto"
        Which linear system is solved. All have the same solution; ``"auto"`` fills gaps up to a share of 80 % of the
        grid and ignores them beyond (docs/methods/grid_gp.md has the measurements). `vastgp.options.FillGaps`,
        `IgnoreGaps` and `PenalizeGaps` say how exactly.
    criterion : {"evidence", "gcv"} or object, default "evidence"
        What chooses the hyperparameters: the log evidence, or generalised cross validation. `vastgp.options.Evidence`
        and `CrossValidation` say how log-determinants and traces are computed.
    hyperparameters : {"learn", "average", "fixed"} or object, default "learn"
        `vastgp.options.Learn(noise_floor=1e-6)`: the least noise variance, relative to the variance of the values.
        ``"average"`` learns them and then averages predictions over what the data leave open of them, drawn by a Markov
        chain (`vastgp.options.Average(num_components=32)`): for forecasts and wide gaps, where deviations hang on
        hyperparameters that one series says little of. It takes some 200 to 400 evaluations of the evidence, where
        learning takes 20 to 60, and a posterior for each draw, so it is not the default; of the evidence alone.
        `Fixed(noise_std=...)`: every dimension needs a kernel, and variances are those given, of the product of all;
        ``noise_std`` is in units of the values, one number or one for each output.
    time_unit : {"days", "hours", "minutes", "seconds", "years"}, default "days"
        Unit of lengthscales and periods along times.
    max_iter : int, default 100
        Most iterations of L-BFGS.
    tol : float, default 1e-4
        Learning has converged when no derivative of the criterion per observation, by the logarithm of a
        hyperparameter, is larger, and the Newton decrement is not: some ``tol^2 / 2`` are left to gain.
    max_seconds : float, optional
        Wall-clock budget of ``fit``; None: until converged.
    checkpoint : path or SaveTo, optional
        File to save the fit to while it works, and to resume from when it exists; see `vastgp.options.SaveTo`.
    random_state : int, RandomState or None, default 0
    dtype : {"float64", "float32"}, default "float64"
        Of arrays of the grid's size. Eigendecompositions are in float64 always.
    verbose : bool, default False

    Attributes
    ----------
    kernel_ : GridKernel
        Learned kernel, in units of coordinates and values; also where others are averaged over.
    likelihood_ : Gaussian
        Noise in units of the values: of the mean output, where there are several.
    noise_std_ : float or ndarray of shape (k,)
        Standard deviation of the noise, of every output where there are several; the root of the mean variance where
        hyperparameters are averaged over.
    lengthscales_km_ : dict
        Lengthscales along latitude and longitude in kilometres.
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
    posterior_ : GridPosterior or AveragedGridPosterior
    mask_ : xarray.DataArray or None
        Cells that are not filled.
    outputs_ : dict of str to GridGP
        The model of every field; only of a Dataset.

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

    _moved: ClassVar[Mapping[str, str]] = {
        "log_determinant": "criterion=Evidence(spectrum=...)",
        "num_probes": "criterion=Evidence(num_probes=...)",
        "noise_std": "hyperparameters=Fixed(noise_std=...)",
        "noise_floor": "hyperparameters=Learn(noise_floor=...)",
        "variance": "predict(variance=...)",
        "num_samples": "predict(variance=VarianceSamples(num_samples=...))",
        "cg_tol": "solver=FillGaps(tol=...) or solver=IgnoreGaps(tol=...)",
        "max_cg_iter": "solver=FillGaps(max_products=...) or solver=IgnoreGaps(max_products=...)",
        "preconditioner_rank": "solver=FillGaps(rank=...) or solver=IgnoreGaps(rank=...)",
        "penalty": "solver=PenalizeGaps(penalty=...)",
    }

    def __init__(
        self,
        kernels: dict[Any, Any] | None = None,
        *,
        solver: Annotated[str | Solver, SOLVERS] = "auto",
        criterion: Annotated[str | Criterion, CRITERIA] = "evidence",
        hyperparameters: Annotated[str | Learn | Average | Fixed, LEARN_AVERAGE_OR_FIXED] = "learn",
        time_unit: Annotated[str, OneOf(*TIME_UNITS)] = "days",
        max_iter: Annotated[int, Positive(integer=True)] = 100,
        tol: Tolerance = 1e-4,
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float64",
        verbose: Verbose = False,
    ) -> None:
        self.kernels = kernels
        self.solver = solver
        self.criterion = criterion
        self.hyperparameters = hyperparameters
        self.time_unit = time_unit
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        check_kernels(self.kernels)
        search = LEARN_AVERAGE_OR_FIXED.resolve("hyperparameters", self.hyperparameters)
        if search.isotropic:
            raise ValueError(
                f"hyperparameters={type(search).__name__}(isotropic=True) has no effect here: give the dimensions that "
                "share a lengthscale a kernel with one, kernels={('lat', 'lon'): ...}."
            )
        refuse_given(
            "hyperparameters", search, rows=None, steps="max_iter", rate=None, tied="kernels"
        )
        criterion = CRITERIA.resolve("criterion", self.criterion)
        if isinstance(search, Average) and criterion.criterion != "evidence":
            raise ValueError(
                f"hyperparameters={self.hyperparameters!r} and criterion={self.criterion!r} exclude each other: cross "
                "validation is no density of hyperparameters. Set criterion='evidence', or hyperparameters='learn'."
            )
        if isinstance(search, Fixed) and search.noise_std is None:
            raise ValueError(
                f"hyperparameters={self.hyperparameters!r} needs noise_std, the standard deviation of the noise in "
                "units of the values. Write hyperparameters=Fixed(noise_std=...)."
            )

    # ------------------------------------------------------------ fit

    def fit(
        self,
        data_array: Any,
        y: Any = None,
        noise_std: Any = None,
        mask: Any = None,
        **others: Any,
    ) -> GridGP:
        """Fit the model.

        Cell i is observed with noise of variance ``sigma^2 + noise_std[i]^2``, where ``sigma`` is learned
        (``noise_std_``). Predictions with ``return_std=True`` are of a new observation with ``sigma`` alone.

        Parameters
        ----------
        data_array : xarray.DataArray or Dataset
            Values with NaN in the gaps, in memory or in chunks of dask. Coordinates may be spaced unevenly and be in
            any order; a dimension without any counts from 0. Of a Dataset every variable is a field of its own, with
            its own gaps, hyperparameters and noise; all have the same dimensions. Bounds, grid mappings and cell
            measures are known by the attributes that name them and come back with predictions; ancillary variables
            are left out. What is known of the fit (``kernel_``, ``noise_std_``) is then a dictionary by field.
        y : None
            Ignored: the values are those of the array.
        noise_std : xarray.DataArray or array-like, optional
            Known standard deviation of each cell's own error, in units of the values, such as the error field that
            comes with a satellite product: a DataArray on the same cells (dimensions that it lacks have one error
            along them) or an array of the same shape. Anything in the gaps. Of a Dataset a dictionary or a Dataset of
            these, by field. Several outputs then have one learned
            noise relative to the standard deviation of each. None: no cell has one. A noise that all cells have in
            common is set by ``hyperparameters=Fixed(noise_std=...)``.
        mask : xarray.DataArray or array-like, optional
            True (or 1) in cells that are not to be filled, such as land in a map of the sea; it may lack dimensions.
            Their values are not looked at, and predictions at cells of the fit (all or some, in any order) are NaN
            there; of a grid with other cells too the mask says nothing. One for all fields of a Dataset. None: every
            cell is filled.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or constructor arguments, and when memory would not suffice; the message says what to do.
        TypeError
            For any other argument.
        """
        refuse_own_noise(type(self).__name__, others)
        return self._fit_whole(lambda work: work._open(data_array, noise_std, mask))

    def _open(self, data: Any, noise_std: Any, mask: Any = None) -> Any:
        """Open one field or several."""
        if type(data).__module__.partition(".")[0] == "xarray" and hasattr(data, "data_vars"):
            return self._open_several(data, noise_std, mask, type(self)._open_grid)
        return self._open_grid(data, noise_std, mask)

    def _open_grid(self, array: Any, noise_std: Any, mask: Any = None) -> GridData:
        """Read the values, and learn their scaling and where they are."""
        with told_of(array):
            return self._read_grid(array, noise_std, mask)

    def _read_grid(self, array: Any, noise_std: Any, mask: Any) -> GridData:
        check_array(array)
        refuse_taken(array.dims, array.coords, PREDICTED, "data_array")
        if noise_std is not None:
            check_known_errors(self._options().criterion)
        whole, array = array, without_single(array, self.kernels)
        self.mask_ = None if mask is None else make_mask(mask, whole, array)
        noise_std = noise_std if noise_std is None else like_the_values(noise_std, whole, array)
        keys = group_keys(array, self.kernels)
        spherical = groups_on_sphere(self.kernels)
        groups = tuple(make_group(array, key, self.time_unit, key in spherical) for key in keys)
        check_outputs(groups)
        check_memory(array, groups, self.dtype, self._options().criterion.num_probes, self.mask_)
        fixed = isinstance(self._options().search, Fixed)
        specs = factor_specs(groups, self.kernels, fixed)
        self.groups_, self.dims_ = groups, tuple(map(str, whole.dims))
        # read: the file may be closed after the fit
        self.template_ = array.coords.to_dataset().compute()
        self.name_, self.attrs_ = array.name, dict(array.attrs)
        values = ordered_values(array if mask is None else array.where(~self.mask_), groups)
        self.gap_share_ = float(np.isnan(values).mean())
        values, errors = counted_once(values, groups), None
        if noise_std is not None:
            # each value with the error of its own cell
            variances = joined(known_variances(noise_std, array, groups, values), groups)
        values = joined(values, groups)
        self.value_mean_, scale = value_scaling(values, groups)
        if noise_std is not None and np.nanmax(variances) > 0.0:
            plain = self.value_mean_, scale
            self.value_mean_, scale = scaling_with_errors(values, variances, groups, plain)
            errors, _ = points_to_fit(standardised_variances(variances, scale), groups)
        values, axes = points_to_fit(values, groups)
        return GridData((values - self.value_mean_) / scale, axes, scale, groups, specs, errors)

    def _options(self) -> GridOptions:
        return GridOptions(
            SOLVERS.resolve("solver", self.solver),
            CRITERIA.resolve("criterion", self.criterion),
            LEARN_AVERAGE_OR_FIXED.resolve("hyperparameters", self.hyperparameters),
            self.max_iter,
            self.tol,
            self.dtype,
        )

    def _answers(self, data: GridData, run: Run) -> Iterator[Answer]:
        return fit_grid(data, self._options(), run)

    def _take(self, answer: Answer) -> None:
        """Set kernel and noise, in the units of the values."""
        scale = np.ravel(answer.attributes["value_scale_"])
        self.kernel_ = (
            answer.kernel.normalised(scale)
            if len(scale) > 1
            else answer.kernel.in_units(1.0, float(scale[0]))
        )
        noise = float(answer.likelihood.noise_variance)  # type: ignore[attr-defined]
        self.likelihood_ = Gaussian(noise * float(np.mean(scale**2)))
