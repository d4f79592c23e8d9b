"""The exact Gaussian process: nothing approximated, for a few thousand rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np

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
    check_fixed_model,
    fixed_kernel,
    fixed_noise_variance,
    refuse_given,
)
from vastgp.estimators.own_noise import FitsOwnNoise
from vastgp.estimators.searches import LEARN_OR_FIXED, Fixed, Learn
from vastgp.fitting.candidates import candidate_kernels
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import LbfgsResult
from vastgp.fitting.run import Answer, Run
from vastgp.fitting.start import fit_best, fit_evidence, start_from_exact_gp
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.solvers.exact_posterior import ExactPosterior
from vastgp.solvers.plan import operations_a_second

# Least noise variance that is learned, relative to the variance of the target: a thousandth of its standard deviation.
_NOISE_FLOOR = 1e-6
# Up to here all rows are used from the first iteration; beyond, this many give the starting values.
_START_ROWS = 1000
# What those may use of the budget.
_START_SHARE = 0.5
# Of an evaluation of the evidence and its gradient: the posterior after it, and an iteration, which may take two. Some
# share of what is left has to remain, or the hyperparameters of some rows stay.
_OF_POSTERIOR, _OF_ITERATION, _LEAST_SHARE = 0.5, 1.5, 0.25
_NO_TIME = f"max_seconds leaves no time to learn on all rows: kernel and noise are those of {_START_ROWS} of them"
# Numbers of a kernel matrix take so many operations to make and to differentiate.
_PER_ENTRY = 300.0
# A tile of predictions holds this many numbers of the cross-covariance.
_TILE_ENTRIES = 4_000_000


class ExactGPRegressor(FitsOwnNoise):
    """Gaussian process regression by Cholesky factorisation, hyperparameters by their evidence.

    They maximise the evidence times a weak prior, without which few rows would be followed in all their noise
    (`vastgp.fitting.hyperparameter_prior`); from some hundred rows on it changes little.

    Time grows with the cube of the rows and memory with their square: one evaluation of the evidence and its gradient
    takes some 40 ms at 1000 rows and 2 s at 5000, on two cores. All work is in float64.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        What is known about the function. A name (``"rbf"``, ``"matern12"``, ``"matern32"``, ``"matern52"``,
        ``"rational-quadratic"``, ``"linear"``, ``"constant"``) stands for a kernel of that form, names with ``+`` and
        ``*`` between them (``"matern32 + linear"``) for their sums and products. None: the one of RBF, Matern-5/2 and
        Matern-3/2 that has the highest evidence. A kernel's hyperparameters are where learning starts, in units of the
        standardised inputs and target; with ``hyperparameters="fixed"`` they are the model, in the units of inputs and
        target.
    hyperparameters : {"learn", "fixed"} or Learn or Fixed, default "learn"
        Whether kernel and noise are learned or are those given: objects of `vastgp.options`. ``Learn(noise_floor=...)``
        is the least noise variance that may be learned, relative to the variance of the target (1e-6: evidence of a
        function that is observed without noise has no maximum); ``Fixed(noise_std=...)`` holds the noise's standard
        deviation, in units of the target, and the kernel is then the model.
    max_rows : int, default 5000
        More rows are refused: a fit would take minutes (some 60 evaluations) and gigabytes.
    restarts : int, default 2
        How often learning begins, first at given and default values, then at random ones; the highest evidence is kept.
        Restarts use some 300 rows, so they cost little.
    max_iter : int, default 200
        Most iterations of L-BFGS.
    tol : float, default 1e-5
        Learning has converged when no derivative of the log evidence per row, by the logarithm of a hyperparameter, is
        larger.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked after each iteration; None: until converged.
    checkpoint : path or SaveTo, optional
        File to save the fit to while it works, and to resume from when it exists; see `vastgp.options.SaveTo`.
    random_state : int, RandomState or None, default 0
        Seed of the restarts and of the rows that give the starting values.
    dtype : {"float64"}, default "float64"
        In float32 the factorisation fails for smooth kernels.
    verbose : bool, default False
        Show progress when a fit takes more than two seconds at a terminal.

    Attributes
    ----------
    log_evidence_ : float
        Log evidence (log marginal likelihood) of the training targets, in nats and in their own units.

    See Also
    --------
    vastgp.QSGPRegressor : for more rows.

    References
    ----------
    Rasmussen, C. E., Williams, C. K. I. (2006). Gaussian Processes for Machine Learning, algorithm 2.1, section 5.4.1.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import ExactGPRegressor
    >>> X = np.linspace(0.0, 6.0, 40)[:, None]
    >>> model = ExactGPRegressor("rbf").fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.01)
    True
    """

    _moved: ClassVar[Mapping[str, str]] = {
        "noise_std": "hyperparameters=Fixed(noise_std=...)",
        "noise_floor": "hyperparameters=Learn(noise_floor=...)",
    }

    def __init__(
        self,
        kernel: KernelLike = None,
        *,
        hyperparameters: Annotated[str | Learn | Fixed, LEARN_OR_FIXED] = "learn",
        max_rows: Annotated[int, Positive(integer=True)] = 5000,
        restarts: Annotated[int, Positive(integer=True)] = 2,
        max_iter: Annotated[int, Positive(integer=True)] = 200,
        tol: Tolerance = 1e-5,
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float64",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.hyperparameters = hyperparameters
        self.max_rows = max_rows
        self.restarts = restarts
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        if self.dtype != "float64":
            raise ValueError(
                f"dtype must be 'float64' for ExactGPRegressor, received {self.dtype!r}: in float32 the Cholesky "
                "factorisation fails for smooth kernels. QSGPRegressor works in float32."
            )
        search = LEARN_OR_FIXED.resolve("hyperparameters", self.hyperparameters)
        check_fixed_model(search, self.kernel)
        refuse_given("hyperparameters", search, rows="max_rows", steps="max_iter", rate=None)

    def _can_spare(self, left: int) -> bool:
        # its answers are exact at the hyperparameters that they have
        return False

    def _least_rows(self) -> int:
        return 1 if self._is_fixed else 2

    def _tile_rows(self) -> int:
        return max(256, _TILE_ENTRIES // len(self.posterior_.X))

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        if rows.n > self.max_rows:
            raise ValueError(
                f"X has {rows.n} rows, more than max_rows={self.max_rows}: time grows with their cube ("
                f"{8 * rows.n**2 / 1e9:.1f} GB for one matrix). Use QSGPRegressor, which is made for many rows, "
                "give fewer rows, or raise max_rows."
            )
        search = LEARN_OR_FIXED.resolve("hyperparameters", self.hyperparameters)
        scaling = self.standardizer_
        X, y = rows.take(np.arange(rows.n))
        assert y is not None  # fit has seen to it
        X, y = scaling.transform_X(X), scaling.transform_y(y)
        if isinstance(search, Fixed):
            kernel = fixed_kernel(self.kernel, scaling, search)
            noise = Gaussian(fixed_noise_variance(search.noise_std, scaling))
            yield self._condition(kernel, noise, X, y, _GIVEN)
            return
        search = search.given(noise_floor=_NOISE_FLOOR)
        best = self._learn(search, X, y, run)
        run.first = kernel, likelihood = best.params
        yield self._condition(kernel, likelihood, X, y, best)

    def _learn(self, search: Any, X: np.ndarray, y: np.ndarray, run: Run) -> LbfgsResult:
        """Return the hyperparameters of highest evidence."""
        limits: dict[str, Any] = {"max_iter": self.max_iter, "tol": self.tol}
        if len(y) <= _START_ROWS:
            return fit_best(
                candidate_kernels(self.kernel, X.shape[1], search.inputs(X.shape[1])),
                X,
                y,
                noise_floor=search.noise_floor,
                restarts=self.restarts,
                generator=np.random.default_rng(run.seed),
                deadline=run.deadline,
                **limits,
            )

        def begin() -> tuple[Kernel, float]:
            return start_from_exact_gp(
                self.kernel,
                X,
                y,
                max_rows=_START_ROWS,
                seed=run.seed,
                noise_floor=search.noise_floor,
                restarts=self.restarts,
                inputs=search.inputs(X.shape[1]),
                max_seconds=run.seconds_left(_START_SHARE),
            )[:2]

        kernel, noise_variance = run.once("first hyperparameters", begin)
        first = run.first = kernel, Gaussian(noise_variance)
        share = 1.0
        if run.max_seconds is not None:
            # the posterior takes one factorisation more, and an iteration that has begun is not left in the middle
            one = run.once("seconds of an evaluation", lambda: _seconds_of_evaluation(len(y)))
            run.needs = max(run.needs or 0.0, _OF_POSTERIOR * one)
            run.check_time()
            share -= (_OF_POSTERIOR + _OF_ITERATION) * one / run.seconds_left()
        if share < _LEAST_SHARE:
            return LbfgsResult(first, np.nan, 0, 0, False, _NO_TIME, History())
        return fit_evidence(
            ExactEvidence(X, y),
            first,
            noise_floor=search.noise_floor,
            record=run.evaluations("exact GP", share=share),
            **limits,
        )

    def _condition(
        self,
        kernel: Kernel,
        likelihood: Gaussian,
        X: np.ndarray,
        y: np.ndarray,
        learned: LbfgsResult,
    ) -> Answer:
        posterior, evidence = ExactPosterior.condition(
            kernel, float(likelihood.noise_variance), X, y
        )
        # a density per unit of the target, of n targets
        log_evidence = float(evidence - len(y) * np.log(self.standardizer_.y_scale))
        return Answer(
            kernel,
            likelihood,
            lambda: posterior,
            learned.num_iter,
            learned.message,
            learned.converged,
            learned.history,
            advice=f"give more time (max_seconds), or raise max_iter (now {self.max_iter}) or tol (now {self.tol:g}).",
            attributes={"log_evidence_": log_evidence},
        )

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self.posterior_.to_state()
        return state | {"log_evidence": self.log_evidence_}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.log_evidence_ = state["log_evidence"]
        self.posterior_ = ExactPosterior.from_state(state, arrays)


_GIVEN = LbfgsResult(None, float("nan"), 0, 0, True, "hyperparameters were given", History())


def _seconds_of_evaluation(n: int) -> float:
    """Return about what the evidence of n rows and its gradient take on this machine.

    A factorisation and an inverse, ``n^3`` operations in float64 at some two thirds of a product's rate.
    """
    return (1.5 * n**3 + _PER_ENTRY * n**2) / (0.5 * operations_a_second())
