"""What `SVGPRegressor`, `TSVGPRegressor` and their classifiers share: arguments, the fit, predictions, files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vastgp._arguments import Positive
from vastgp.data import Rows
from vastgp.estimators.arguments import (
    CheckpointLike,
    Dtype,
    KernelLike,
    MaxSeconds,
    Seed,
    Tolerance,
    Verbose,
)
from vastgp.estimators.base import BaseGP
from vastgp.estimators.classes import MOVED_TO_CLASSES, ClassesLike
from vastgp.estimators.exposure import FitsExposure
from vastgp.estimators.first_hyperparameters import Beginning, find_first, rows_of_start
from vastgp.estimators.inducing_inputs import InducingInputsLike, given_inputs, inducing_attributes
from vastgp.estimators.searches import SEARCHES, Fixed, Learn, Subset, moved_to
from vastgp.estimators.weighted_rows import FitsRowWeights
from vastgp.fitting.run import Answer, Run
from vastgp.kernels import RBF, Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.svgp.fit import Inputs, answer_of, fit_svgp
from vastgp.methods.svgp.on_host import passes_stay_on_host
from vastgp.methods.svgp.options import (
    DUAL_SOLVERS,
    SOLVERS,
    Adam,
    Natural,
    SVGPOptions,
    check_options,
    plain_options,
    without_steps,
)
from vastgp.methods.svgp.posterior import SVGPPosterior
from vastgp.solvers.plan import affordable_inducing

# Inducing inputs where `num_inducing` is left open: the most of these with which half of the budget that is left does
# for so many steps (15 s, NLPD of new rows with 512, 256 and 128: two classes of protein 0.505, 0.466, 0.450, ten of
# kin40k 1.97, 1.98, 1.92; in 60 s the two classes 0.370 with 512 and 0.390 with 256).
_INDUCING, _STEPS, _FOR_STEPS = (512, 256, 128), 200, 0.5
_START_ROWS, _NOISE_FLOOR = 1000, 1e-3
# Of so many rows all are inducing inputs with Gaussian noise, and _MANY of them elsewhere: what is found without
# learning on all rows is better than what steps end in with 512, and sooner. 2000 rows, NLPD of others, and seconds:
# friedman -0.144 in 13 s (-0.144 in 50), kin40k -0.220 in 17 (-0.213 in 39), protein 0.975 in 20 (0.980 in 36),
# elevators 0.41 in 21 (0.43 in 42), powerplant -0.30 in 16 (-0.29 in 38); two classes, kin40k 0.282 in 12 (0.290 in
# 37), protein 0.439 in 11 (0.468 in 33), elevators 0.353 in 11 (0.348 in 122).
_FEW_ROWS, _MANY, _PASSES = 2000, 1024, 10
# Of the budget, for first hyperparameters: the bound is what counts where it is learned from there; of few rows nothing
# is, but with many classes.
_FOR_START, _FOR_START_OF_FEW, _FOR_START_ALONE = 0.3, 0.6, 0.8
_TILE_ENTRIES = 2**21

NumInducing = Annotated[
    int | None, Positive(integer=True, none="512, one for each row, or what max_seconds affords")
]
_FIELDS = {
    "row_batch": "row_batch",
    "max_iter": "max_steps",
    "num_e_steps": "e_steps",
    "num_m_steps": "m_steps",
    "step_rate": "rate",
    "learn_inducing": "learn_inducing",
    "jitter": "jitter",
    "sites": "sites",
    "whiten": "whiten",
}
_MOVED = (
    moved_to("Learn")
    | {
        "inducing": "inducing_inputs=...",
        "optimizer": "solver='natural' or solver='adam'",
        "learning_rate": "hyperparameters=Learn(rate=...), or solver=Adam(rate=...)",
    }
    | {old: f"solver=Natural({new}=...)" for old, new in _FIELDS.items()}
)


class SVGPFits(BaseGP):
    """Fits of all four; ``_dual`` says whether the sites are held or the moments."""

    _posterior_class = SVGPPosterior
    _beside_posterior = ("diagnosis",)
    _dual: ClassVar[bool]

    kernel: Any
    num_inducing: Any
    inducing_inputs: Any
    hyperparameters: Any
    solver: Any
    tol: Any

    def _first_likelihood(self, y: np.ndarray) -> Likelihood:
        raise NotImplementedError

    def _resolved(self) -> tuple[Any, Any]:
        """Return what ``hyperparameters`` and ``solver`` stand for."""
        search = SEARCHES.resolve("hyperparameters", self.hyperparameters)
        known = DUAL_SOLVERS if self._dual else SOLVERS
        return search, known.resolve("solver", self.solver)

    def _check_params(self) -> None:
        search, solver = self._resolved()
        check_options(solver, search, self._dual)

    def _compiles_nothing(self, rows: Rows) -> bool:
        chosen = self.num_inducing is None and isinstance(self.inducing_inputs, str)
        search, solver = self._resolved()
        if not chosen or isinstance(solver, Adam) or rows.n > _FEW_ROWS:
            return False
        options = without_steps(plain_options(solver, search, self._dual, self.tol), solver)
        if not options.given:
            return False
        _, y = rows.take(np.arange(rows.n))
        assert y is not None
        likelihood = self._first_likelihood(self.standardizer_.transform_y(y))
        kernel = self.kernel if isinstance(self.kernel, Kernel) else RBF(1.0, 1.0)
        return passes_stay_on_host(kernel, likelihood, rows, rows.n)

    def _can_spare(self, left: int, run: Run) -> bool:
        del run
        return self.num_inducing is None or self.num_inducing <= left

    def _count(self, n: int) -> int:
        if self.num_inducing is None:
            return min(n, _INDUCING[0])
        if self.num_inducing > n:
            raise ValueError(
                f"num_inducing={self.num_inducing} is more than the {n} rows of X: as many as rows are exact already. "
                f"Give at most {n}, or leave it out."
            )
        return int(self.num_inducing)

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        search, solver = self._resolved()
        options = plain_options(solver, search, self._dual, self.tol)
        scaling = self.standardizer_
        given = given_inputs(self.inducing_inputs, self.num_inducing, rows.d)
        if given is None:
            inputs = Inputs(None, self.inducing_inputs, self._count(rows.n))
        else:
            inputs = Inputs(scaling.transform_X(given), "given", len(given))
        chosen = self.num_inducing is None and given is None
        few = chosen and rows.n <= _FEW_ROWS
        if isinstance(search, Subset):
            begin = max(rows.n, _START_ROWS) if few else _START_ROWS
            search = search.given(rows=begin, noise_floor=_NOISE_FLOOR)
        share = _FOR_START_ALONE
        if options.learn:
            share = _FOR_START_OF_FEW if few else _FOR_START
        beginning = Beginning(search, self.kernel, rows, scaling, run, share, sums=True)
        first = find_first(beginning, self._first_likelihood)
        likelihood = first[1]
        # of so few rows the start has the evidence itself, of which the bound with most of them is a little less
        known = rows_of_start(search, likelihood)
        if few and known and rows.n <= search.rows:
            known *= 2  # all were asked for, and half are looked at as more would take too long
        enough = given is None and rows.n <= known
        if enough and (chosen or rows.n <= inputs.size):
            options = without_steps(options, solver)
        if chosen:
            inputs = inputs._replace(size=self._afforded(rows.n, likelihood, options, run))
        fit = fit_svgp(rows, scaling, first, inputs, options, run, self.dtype)
        yield answer_of(fit, scaling, options, self.dtype)

    def _afforded(self, n: int, likelihood: Likelihood, options: SVGPOptions, run: Run) -> int:
        """Return how many inducing inputs there are where that is left open."""
        sizes: tuple[int, ...] = _INDUCING
        times = _STEPS
        if not (options.learn or options.optimizer == "adam"):
            if n > _FEW_ROWS:
                return sizes[0]
            most = n if isinstance(likelihood, Gaussian) else min(n, _MANY)
            sizes, times = (most, *(size for size in sizes if size < most)), _PASSES
        return run.afforded(
            "number of inducing inputs", min(n, sizes[0]), _FOR_STEPS,
            lambda seconds: affordable_inducing(
                sizes, likelihood.num_latent, np.dtype(self.dtype).itemsize, seconds / times
            ),
        )  # fmt: skip

    # ------------------------------------------------------------ predict

    def covariance(self, X: Any) -> np.ndarray:
        """Return the posterior covariance of the function between rows, in memory quadratic in their number.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path

        Returns
        -------
        ndarray of shape (n, n), or (C, n, n) with several functions
            In squared units of the target, where it is scaled. Its diagonal is the square of the standard deviation
            that ``return_std="latent"`` gives.
        """
        check_is_fitted(self, "posterior_")
        inputs = np.concatenate([tile for tile, _ in self._tiles(self._open(X))])
        found = self.posterior_.covariance(inputs) * self.standardizer_.y_scale**2
        return self.likelihood_.location(found)

    def _tile_rows(self) -> int:
        functions = self.likelihood_.num_latent
        return max(256, _TILE_ENTRIES // (self.num_inducing_ * functions))

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore_state(state, arrays)
        self.__dict__ |= inducing_attributes(self.posterior_.Z, self.standardizer_)


class SparseRegressor(FitsExposure, SVGPFits):
    """Likelihoods of targets that are numbers."""

    _moved: ClassVar[Mapping[str, str]] = _MOVED
    several_functions = True

    def __init__(
        self,
        kernel: KernelLike = None,
        num_inducing: NumInducing = None,
        *,
        likelihood: str | Likelihood = "gaussian",
        inducing_inputs: InducingInputsLike = "kmeans",
        hyperparameters: Annotated[str | Subset | Learn | Fixed, SEARCHES] = "learn",
        solver: Annotated[str | Natural | Adam, SOLVERS] = "natural",
        tol: Tolerance = 1e-4,
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float64",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.num_inducing = num_inducing
        self.likelihood = likelihood
        self.inducing_inputs = inducing_inputs
        self.hyperparameters = hyperparameters
        self.solver = solver
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        super()._check_params()
        self._check_given(self._resolved()[0])


class SparseClassifier(FitsRowWeights, SVGPFits):
    """Likelihoods of labels."""

    _moved: ClassVar[Mapping[str, str]] = _MOVED | MOVED_TO_CLASSES

    def __init__(
        self,
        kernel: KernelLike = None,
        num_inducing: NumInducing = None,
        *,
        likelihood: ClassesLike = "logit",
        inducing_inputs: InducingInputsLike = "kmeans",
        hyperparameters: Annotated[str | Subset | Learn | Fixed, SEARCHES] = "learn",
        solver: Annotated[str | Natural | Adam, SOLVERS] = "natural",
        tol: Tolerance = 1e-4,
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float64",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.num_inducing = num_inducing
        self.likelihood = likelihood
        self.inducing_inputs = inducing_inputs
        self.hyperparameters = hyperparameters
        self.solver = solver
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        super()._check_params()
        self._check_classes()
