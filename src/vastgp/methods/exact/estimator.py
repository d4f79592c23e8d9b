"""The exact Gaussian process: nothing approximated, for a few thousand rows."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vastgp.data import Rows
from vastgp.estimators.arguments import (
    check_choice,
    check_fixed,
    check_positive,
    fixed_kernel,
    fixed_noise_variance,
    seed_from,
)
from vastgp.estimators.base import Fit
from vastgp.estimators.regressor import BaseGPRegressor
from vastgp.fitting.candidates import candidate_kernels
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import LbfgsResult
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.progress import Progress
from vastgp.fitting.start import fit_best, fit_evidence, start_from_exact_gp
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.methods.exact.posterior import ExactPosterior

# Up to here all rows are used from the first iteration; beyond, this many give the starting values.
_START_ROWS = 1000
# A tile of predictions holds this many numbers of the cross-covariance.
_TILE_ENTRIES = 4_000_000


class ExactGPRegressor(BaseGPRegressor):
    """Gaussian process regression by Cholesky factorisation, hyperparameters by maximal evidence.

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
    noise_std : float, optional
        Standard deviation of the noise, in units of the target: needed with ``hyperparameters="fixed"``, refused
        otherwise, as it is learned.
    hyperparameters : {"learn", "fixed"}, default "learn"
        Whether kernel and noise are learned or are those given.
    noise_floor : float, default 1e-6
        Least noise variance that may be learned, relative to the variance of the target: a thousandth of its standard
        deviation. Evidence of a function that is observed without noise has no maximum.
    max_rows : int, default 5000
        More rows are refused: a fit would take minutes (some 60 evaluations) and gigabytes.
    restarts : int, default 2
        How often learning begins, first at given and default values, then at random ones; the highest evidence is kept.
        Restarts use at most 600 rows, so they cost little.
    max_iter : int, default 200
        Most iterations of L-BFGS.
    tol : float, default 1e-5
        Learning has converged when no derivative of the log evidence per row, by the logarithm of a hyperparameter, is
        larger.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked after each iteration; None: until converged.
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

    def __init__(
        self,
        kernel: Any = None,
        *,
        noise_std: Any = None,
        hyperparameters: Any = "learn",
        noise_floor: Any = 1e-6,
        max_rows: Any = 5000,
        restarts: Any = 2,
        max_iter: Any = 200,
        tol: Any = 1e-5,
        max_seconds: Any = None,
        random_state: Any = 0,
        dtype: Any = "float64",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.noise_std = noise_std
        self.hyperparameters = hyperparameters
        self.noise_floor = noise_floor
        self.max_rows = max_rows
        self.restarts = restarts
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        if self.dtype != "float64":
            raise ValueError(
                f"dtype must be 'float64' for ExactGPRegressor, received {self.dtype!r}: in float32 the Cholesky "
                "factorisation fails for smooth kernels. QSGPRegressor works in float32."
            )
        for name in ("noise_floor", "tol"):
            check_positive(name, getattr(self, name))
        for name in ("max_rows", "restarts", "max_iter"):
            check_positive(name, getattr(self, name), integer=True)
        check_positive("max_seconds", self.max_seconds, none="no limit")
        check_choice("hyperparameters", self.hyperparameters, ("learn", "fixed"))
        check_fixed(self)

    def _least_rows(self) -> int:
        return 1 if self.hyperparameters == "fixed" else 2

    def _tile_rows(self) -> int:
        return max(256, _TILE_ENTRIES // len(self.posterior_.X))

    def _fit_rows(self, rows: Rows) -> Fit:
        if rows.n > self.max_rows:
            raise ValueError(
                f"X has {rows.n} rows, more than max_rows={self.max_rows}: time grows with their cube ("
                f"{8 * rows.n**2 / 1e9:.1f} GB for one matrix). Use QSGPRegressor, which is made for many rows, "
                "give fewer rows, or raise max_rows."
            )
        candidates = candidate_kernels(self.kernel, rows.d)
        scaling = self.standardizer_
        X, y = rows.take(np.arange(rows.n))
        assert y is not None  # fit has seen to it
        X, y = scaling.transform_X(X), scaling.transform_y(y)
        if self.hyperparameters == "fixed":
            kernel = fixed_kernel(self.kernel, scaling)
            noise_variance = fixed_noise_variance(self.noise_std, scaling)
            return self._condition(kernel, Gaussian(noise_variance), X, y, _GIVEN)
        best = self._learn(candidates, X, y)
        if not best.converged and best.message != OUT_OF_TIME:
            warnings.warn(
                f"ExactGPRegressor did not converge: {best.message}, after {best.num_iter} iterations. Raise max_iter "
                f"(now {self.max_iter}) or tol (now {self.tol:g}).",
                ConvergenceWarning,
                stacklevel=3,
            )
        kernel, likelihood = best.params
        return self._condition(kernel, likelihood, X, y, best)

    def _learn(self, candidates: list[Kernel], X: np.ndarray, y: np.ndarray) -> LbfgsResult:
        """Return the hyperparameters of highest evidence."""
        seed = seed_from(self.random_state)
        limits = {"max_iter": self.max_iter, "tol": self.tol}
        left = self._seconds_left(self.max_seconds)
        if len(y) <= _START_ROWS:
            return fit_best(
                candidates,
                X,
                y,
                noise_floor=self.noise_floor,
                restarts=self.restarts,
                generator=np.random.default_rng(seed),
                deadline=None if left is None else time.perf_counter() + left,
                **limits,
            )
        kernel, noise_variance, _ = start_from_exact_gp(
            self.kernel,
            X,
            y,
            max_rows=_START_ROWS,
            seed=seed,
            noise_floor=self.noise_floor,
            restarts=self.restarts,
            max_seconds=left,
        )
        with Progress("exact GP", bool(self.verbose)) as progress:
            return fit_evidence(
                ExactEvidence(X, y),
                (kernel, Gaussian(noise_variance)),
                noise_floor=self.noise_floor,
                max_seconds=self._seconds_left(self.max_seconds),
                on_iteration=lambda step, value: progress.update(
                    step / self.max_iter, f"log evidence {value:.6g}"
                ),
                **limits,
            )

    def _condition(
        self,
        kernel: Kernel,
        likelihood: Gaussian,
        X: np.ndarray,
        y: np.ndarray,
        learned: LbfgsResult,
    ) -> Fit:
        posterior, evidence = ExactPosterior.condition(
            kernel, float(likelihood.noise_variance), X, y
        )
        # a density per unit of the target, of n targets
        self.log_evidence_ = float(evidence - len(y) * np.log(self.standardizer_.y_scale))
        return Fit(
            kernel,
            likelihood,
            posterior,
            learned.num_iter,
            learned.converged,
            learned.message,
            learned.history,
        )

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self.posterior_.to_state()
        return state | {"log_evidence": self.log_evidence_}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.log_evidence_ = state["log_evidence"]
        self.posterior_ = ExactPosterior.from_state(state, arrays)


_GIVEN = LbfgsResult(None, float("nan"), 0, 0, True, "hyperparameters were given", History())
