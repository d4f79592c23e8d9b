"""The exact Gaussian process on many rows, by products with kernel matrices that are never formed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vastgp._memory import return_freed_memory
from vastgp._precision import as_dtype
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Rows
from vastgp.estimators.arguments import check_choice, check_positive, seed_from
from vastgp.estimators.base import Fit
from vastgp.estimators.checkpoints import checkpoint_of
from vastgp.estimators.evidence_fits import EvidenceFits
from vastgp.estimators.likelihood_arguments import check_count
from vastgp.fitting.loop import LoopResult
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.methods.iterative.kernel_factors import FACTORS
from vastgp.methods.iterative.kernel_system import KernelSystem, choose_rank
from vastgp.methods.iterative.learning import IterativeEvidence
from vastgp.methods.iterative.posterior import PathwisePosterior
from vastgp.solvers.block import solve_system, standardised
from vastgp.solvers.distinct_rows import DistinctRows, merge_repeated

# Basis functions of the prior draws behind the samples: per row, at least and at most.
_BASIS_PER_ROW, _LEAST_BASIS, _MOST_BASIS = 16, 2048, 16_384
# Share of max_seconds that learning may use: the final solution needs the rest.
_LEARNING_SHARE = 0.7
_MOST_PRODUCTS = 500
_TILE_ROWS = 4096


class IterativeGPRegressor(EvidenceFits):
    """Exact Gaussian process regression on tens of thousands of rows, by conjugate gradients.

    Nothing is approximated in the model: kernel matrices are applied tile by tile and never stored, so memory grows
    with the rows and time with their square. Kernel and noise climb the evidence of all rows by Adam; the posterior's
    mean and samples come from one solution at the end.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `ExactGPRegressor`; None: the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on
        ``start_rows`` rows.
    solver : {"rr-cg", "cg"}, default "rr-cg"
        How slopes of the evidence are made. ``"cg"`` stops conjugate gradients after ``iterations``: biased towards
        underfitting where they have not converged by then. ``"rr-cg"`` stops at random, with weights that take the bias
        away (Russian roulette), at the same expected cost. The final solution is the same: to a residual of ``tol``.
    isotropic : bool, default False
        One lengthscale and one scale for all inputs.
    hyperparameters : {"learn", "subset", "fixed"}, default "learn"
        ``"subset"``: kernel and noise of highest exact evidence on ``start_rows`` random rows. ``"learn"`` goes on from
        there with all rows, where there are more. ``"fixed"``: those given, in the units of inputs and target.
    noise_std : float, optional
        Standard deviation of the noise in units of the target; needed with ``"fixed"``, refused otherwise.
    noise_floor : float, default 1e-3
        Least noise variance that may be learned, relative to the variance of the target. A system with less noise has a
        larger condition number, and takes more iterations.
    start_rows : int, default 1000
        Rows of the first hyperparameters.
    learning_steps : int, default 20
        Steps of Adam on all rows. The last third of them is averaged.
    learning_rate : float, default 0.1
        Of Adam at the start, on logarithms.
    iterations : int, default 50
        Iterations of conjugate gradients in a step of learning; with ``"rr-cg"`` their mean.
    temperature : float, default 0.05
        ``t`` of the law ``P(J) ~ exp(-t (J - Jmin))``: a larger one has less variance in the time, and more in the
        slope. It is raised where ``iterations`` are so few that less than a quarter of them would be certain.
    num_probes : int, default 8
        Random vectors that estimate the trace in a step.
    num_samples : int, default 64
        Posterior samples: the error of each predicted latent variance is ``sqrt(2 / num_samples)``.
    rank : int, optional
        Of the preconditioner. None: chosen by time and memory; all rows up to 8000. 0: none.
    preconditioner : {"auto", "pivots", "grid"}, default "auto"
        What it is made of: kernel functions at rows that randomly pivoted Cholesky picks, or the leading eigenfunctions
        of the kernel on a grid (Evans, section 4.3.3), for RBF and products of them. ``"auto"``: what leaves less of
        the prior variance.
    max_iter : int, optional
        Most iterations of the final solution; None: 500.
    tol : float, default 0.05
        The final solution has converged when what is missing of mean and samples at the training rows (root mean
        square) is below this many standard deviations of the noise.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, at most 70 % of it for learning. What is left undone in the final solution is in
        its standard deviations.
    checkpoint : path, optional
        File to save the state of the fit to, and to resume from when it exists.
    checkpoint_seconds : float, default 30.0
        Time between two writes.
    random_state : int, RandomState or None, default 0
    dtype : {"float32", "float64"}, default "float32"
        Of kernel matrices. With float32, the vectors of conjugate gradients are float64 where the noise asks for it,
        and so are the kernel's entries where their rounding (measured on 1000 rows) is a tenth of the system or more,
        at five to ten times the cost: ``diagnosis_`` says which.
    verbose : bool, default False

    Attributes
    ----------
    diagnosis_ : dict
        Residuals of mean and samples in noise standard deviations, rank, distinct rows, the law of the truncation, the
        precision of ``"vectors"`` and ``"entries"``.

    See Also
    --------
    vastgp.ExactGPRegressor : up to a few thousand rows.
    vastgp.QSGPRegressor : for more rows, with random features.

    References
    ----------
    Potapczynski, A. et al. (2021). Bias-free scalable Gaussian processes via randomized truncations. ICML.
    Wang, K. A. et al. (2019). Exact Gaussian processes on a million data points. NeurIPS.
    Wilson, J. et al. (2020). Efficiently sampling functions from Gaussian process posteriors. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import IterativeGPRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> model = IterativeGPRegressor("rbf").fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.05)
    True
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        solver: Any = "rr-cg",
        isotropic: Any = False,
        hyperparameters: Any = "learn",
        noise_std: Any = None,
        noise_floor: Any = 1e-3,
        start_rows: Any = 1000,
        learning_steps: Any = 20,
        learning_rate: Any = 0.1,
        iterations: Any = 50,
        temperature: Any = 0.05,
        num_probes: Any = 8,
        num_samples: Any = 64,
        rank: Any = None,
        preconditioner: Any = "auto",
        max_iter: Any = None,
        tol: Any = 0.05,
        max_seconds: Any = None,
        checkpoint: Any = None,
        checkpoint_seconds: Any = 30.0,
        random_state: Any = 0,
        dtype: Any = "float32",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.solver = solver
        self.isotropic = isotropic
        self.hyperparameters = hyperparameters
        self.noise_std = noise_std
        self.noise_floor = noise_floor
        self.start_rows = start_rows
        self.learning_steps = learning_steps
        self.learning_rate = learning_rate
        self.iterations = iterations
        self.temperature = temperature
        self.num_probes = num_probes
        self.num_samples = num_samples
        self.rank = rank
        self.preconditioner = preconditioner
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        super()._check_params()
        check_choice("solver", self.solver, ("rr-cg", "cg"))
        check_choice("preconditioner", self.preconditioner, FACTORS)
        check_positive("temperature", self.temperature)
        for name in ("learning_steps", "iterations", "num_probes", "num_samples"):
            check_positive(name, getattr(self, name), integer=True)
        check_positive("max_iter", self.max_iter, integer=True, none=str(_MOST_PRODUCTS))
        if self.rank is not None:
            check_count("rank", self.rank)
        if self.num_samples < 2:
            raise ValueError(
                f"num_samples must be at least 2 to estimate a variance, received {self.num_samples}."
            )

    def _tile_rows(self) -> int:
        return _TILE_ROWS

    # ------------------------------------------------------------ fit

    def _fit_rows(self, rows: Rows) -> Fit:
        seed = seed_from(self.random_state)
        kernel, likelihood = self._first_hyperparameters(rows, seed)
        observed = merge_repeated(*standardised(rows, self.standardizer_, self.dtype))
        n, itemsize = len(observed.y), np.dtype(self.dtype).itemsize
        self.diagnosis_: dict[str, Any] = {"distinct_rows": n}
        learned: LoopResult | None = None
        if self.hyperparameters == "learn" and rows.n > self.start_rows:
            kernel, likelihood, learned = self._learn(rows, observed, kernel, likelihood, seed)
        rank = choose_rank(n, 1 + self.num_samples, itemsize) if self.rank is None else self.rank
        size = 2 * (min(max(_BASIS_PER_ROW * n, _LEAST_BASIS), _MOST_BASIS) // 2)
        basis = RandomFourierBasis(as_dtype(kernel, self.dtype), seed_key(seed), size)
        return_freed_memory()
        system = KernelSystem(
            kernel, float(likelihood.noise_variance), observed, basis,
            num_samples=self.num_samples, seed=seed, rank=min(rank, n), kind=self.preconditioner,
        )  # fmt: skip
        state, residuals, solved = solve_system(
            system,
            tol=self.tol,
            max_iter=self.max_iter or _MOST_PRODUCTS,
            max_seconds=self._seconds_left(self.max_seconds),
            checkpoint=checkpoint_of(self, rows, seed),
            verbose=bool(self.verbose),
        )
        self.diagnosis_ |= {
            "residual": float(residuals[0]),
            "residual_samples": float(np.sqrt(np.mean(residuals[1:] ** 2))),
            "variance_relative_se": float((2.0 / self.num_samples) ** 0.5),
            "rank": int(min(rank, n)),
            "vectors": system.vector_dtype,
            "entries": system.entry_dtype,
        }
        posterior = PathwisePosterior(
            system.kernel, system.X, system.weights(state.solution), basis, seed
        )
        return self._of_loops(kernel, likelihood, posterior, learned, solved)

    def _learn(
        self, rows: Rows, observed: DistinctRows, kernel: Kernel, likelihood: Gaussian, seed: int
    ) -> tuple[Kernel, Gaussian, LoopResult]:
        """Learn kernel and noise on all rows."""
        n, itemsize = len(observed.y), np.dtype(self.dtype).itemsize
        rank = choose_rank(n, 1 + self.num_probes, itemsize) if self.rank is None else self.rank
        estimate = IterativeEvidence(
            observed,
            solver=self.solver,
            iterations=self.iterations,
            temperature=self.temperature,
            num_probes=self.num_probes,
            rank=min(rank, n),
            seed=seed,
            dtype=self.dtype,
            kind=self.preconditioner,
        )
        if estimate.law is not None:
            self.diagnosis_["truncation"] = {
                name: float(value) for name, value in estimate.law._asdict().items()
            }
        return self._climb(
            estimate, kernel, likelihood, rows, seed,
            steps=self.learning_steps, share=_LEARNING_SHARE,
        )  # fmt: skip

    def _of_loops(
        self,
        kernel: Kernel,
        likelihood: Gaussian,
        posterior: PathwisePosterior,
        learned: LoopResult | None,
        solved: LoopResult,
    ) -> Fit:
        """Return the fit, with a warning where learning or the final solution did not come to its end."""
        loops = [solved] if learned is None else [learned, solved]
        # the solution first: without it predictions are not those of the model
        last = next((loop for loop in (solved, *loops) if not loop.converged), solved)
        self._warn_unless_converged(last, of_solution=not solved.converged)
        return Fit(
            kernel,
            likelihood,
            posterior,
            sum(loop.num_iter for loop in loops),
            last.converged,
            last.reason,
            loops[0].history,
        )

    def _warn_unless_converged(self, last: LoopResult, of_solution: bool) -> None:
        if last.converged:
            return
        if of_solution:
            worst = max(self.diagnosis_["residual"], self.diagnosis_["residual_samples"])
            what = (
                f"the final solution has a residual of {worst:.2g} noise standard deviations (tol = {self.tol:g}). "
                "Predictions lie between those of the prior and of the posterior, and their standard deviations "
                "include what is left undone. Give more time (max_seconds, max_iter), a larger rank, a larger noise "
                "(noise_floor or noise_std), or dtype='float64'"
            )
        else:
            what = self._unfinished_learning(last, self.learning_steps)
        warnings.warn(
            f"IterativeGPRegressor did not converge: {last.reason}; {what}.",
            ConvergenceWarning,
            stacklevel=5,
        )

    # ------------------------------------------------------------ files

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self.posterior_.to_state()
        return state | {"diagnosis": self.diagnosis_}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.diagnosis_ = state["diagnosis"]
        self.posterior_ = PathwisePosterior.from_state(state, arrays)
