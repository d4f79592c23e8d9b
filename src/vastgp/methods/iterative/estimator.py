"""The exact Gaussian process on many rows, by products with kernel matrices that are never formed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np

from vastgp._arguments import AtLeast
from vastgp._memory import return_freed_memory
from vastgp._precision import as_dtype
from vastgp.bases import RandomFourierBasis, seed_key
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
    check_spectrum,
    refuse_given,
)
from vastgp.estimators.evidence_fits import (
    LEARN_ARGUMENTS,
    Params,
    first_params,
    learn_params,
    search_of,
    unfinished_learning,
)
from vastgp.estimators.searches import SEARCHES, Fixed, Learn, Subset
from vastgp.estimators.sharing import SharedRows
from vastgp.estimators.varying_noise import FitsVaryingNoise, NoiseLike
from vastgp.fitting.history import History
from vastgp.fitting.loop import OUT_OF_TIME, LoopResult
from vastgp.fitting.run import Answer, Run
from vastgp.methods.iterative.kernel_system import (
    PRODUCTS,
    KernelSystem,
    choose_rank,
    seconds_of_products,
)
from vastgp.methods.iterative.learning import IterativeEvidence
from vastgp.methods.iterative.options import CG, SOLVERS, RouletteCG
from vastgp.methods.iterative.posterior import PathwisePosterior
from vastgp.solvers.block import solve_system, standardised
from vastgp.solvers.distinct_rows import KnownRows, known_rows
from vastgp.solvers.plan import affordable_rank

# Basis functions of the prior draws behind the samples: per row, at least and at most.
_BASIS_PER_ROW, _LEAST_BASIS, _MOST_BASIS = 16, 2048, 16_384
# Share of max_seconds that learning may use: the final solution needs the rest.
_LEARNING_SHARE = 0.7
# The most of what is left of a budget that a preconditioner may take.
_RANK_SHARE = 0.3
_TILE_ROWS = 4096
# Times what the final solution is thought to take, which learning leaves it.
_AND_MORE = 1.2
# With fewer steps than this hyperparameters hardly move. Iterations of a step where the preconditioner is the matrix
# itself.
_FEWEST_STEPS, _WITH_MATRIX = 3, 10
# Least noise variance that is learned, relative to the variance of the target: a system with less noise has a larger
# condition number. Steps of learning.
_NOISE_FLOOR, _STEPS = 1e-3, 20


class IterativeGPRegressor(FitsVaryingNoise):
    """Exact Gaussian process regression on tens of thousands of rows, by conjugate gradients.

    Nothing is approximated in the model: kernel matrices are applied tile by tile and never stored, so memory grows
    with the rows and time with their square. Kernel and noise climb the evidence of all rows by Adam; the posterior's
    mean and samples come from one solution at the end. Several processes (see the page on scaling) make a share of the
    tiles each; rows, vectors and the preconditioner are whole in all of them, and lie over the devices of each.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `ExactGPRegressor`; None: the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on some
        rows, or a sum of two where that is likelier by far.
    solver : {"rr-cg", "cg"} or RouletteCG or CG, default "rr-cg"
        How slopes of the evidence are made. ``"cg"`` stops conjugate gradients after some iterations: biased towards
        underfitting where they have not converged by then. ``"rr-cg"`` stops at random, with weights that take the bias
        away (Russian roulette), at the same expected cost. The final solution is the same: to a residual of ``tol``.
        Iterations, probes, products and the kind of preconditioner are on the objects, see `vastgp.options`.
    likelihood : {"gaussian", "heteroskedastic"}, default "gaussian"
        As in `ExactGPRegressor`: with ``"heteroskedastic"`` the variance of the noise is a function of the inputs.
    hyperparameters : {"learn", "subset", "fixed"} or Learn, Subset or Fixed, default "learn"
        ``"subset"``: kernel and noise of highest exact evidence on some random rows (1000). ``"learn"`` goes on from
        there with all rows, where there are more, by 20 steps of Adam at a rate of 0.1 on logarithms; the last third of
        them is averaged. ``"fixed"``: those given, in the units of inputs and target. The objects of `vastgp.options`
        hold rows, steps, rate, the least noise variance (1e-3 of the target's: a system with less noise has a larger
        condition number, and takes more iterations) and ``noise_std``.
    num_samples : int, default 64
        Posterior samples: the error of each predicted latent variance is ``sqrt(2 / num_samples)``.
    rank : int, optional
        Of the preconditioner. None: chosen by time and memory; all rows up to 8000. 0: none.
    tol : float, default 0.05
        The final solution has converged when what is missing of mean and samples at the training rows (root mean
        square) is below this many standard deviations of the noise. Learning by Adam has when about 0.005 nats for each
        row are left to gain, by its slopes and their curvature.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, at most 70 % of it for learning. What is left undone in the final solution is in
        its standard deviations.
    checkpoint : path or SaveTo, optional
        File to save the state of the fit to, and to resume from when it exists; see `vastgp.options.SaveTo`.
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
    vastgp.ExactGPRegressor : what memory holds.
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

    _posterior_class = PathwisePosterior
    _learns_from_known = True
    _shared_rows = SharedRows("with likelihood='gaussian'", lambda model: not model._is_varying)
    _beside_posterior = ("diagnosis",)
    _compiling_seconds: ClassVar[float] = 4.0
    _moved: ClassVar[Mapping[str, str]] = LEARN_ARGUMENTS | {
        "learning_steps": "hyperparameters=Learn(steps=...)",
        "iterations": "solver=RouletteCG(iterations=...) or CG(iterations=...)",
        "num_probes": "solver=RouletteCG(num_probes=...) or CG(num_probes=...)",
        "temperature": "solver=RouletteCG(temperature=...)",
        "preconditioner": "solver=RouletteCG(preconditioner=...) or CG(preconditioner=...)",
        "max_iter": "solver=RouletteCG(max_products=...) or CG(max_products=...)",
    }

    def __init__(
        self,
        kernel: KernelLike = None,
        *,
        solver: Annotated[str | CG | RouletteCG, SOLVERS] = "rr-cg",
        likelihood: NoiseLike = "gaussian",
        hyperparameters: Annotated[str | Subset | Learn | Fixed, SEARCHES] = "learn",
        num_samples: Annotated[int, AtLeast(2)] = 64,
        rank: Annotated[int | None, AtLeast(0, none="chosen by time and memory")] = None,
        tol: Tolerance = 0.05,
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float32",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.solver = solver
        self.likelihood = likelihood
        self.hyperparameters = hyperparameters
        self.num_samples = num_samples
        self.rank = rank
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        super()._check_params()
        search = self._search()
        check_fixed_model(search, self.kernel)
        if not isinstance(search, Learn):
            given = SOLVERS.resolve("solver", self.solver)
            refuse_given("solver", given, iterations=None, num_probes=None, temperature=None)

    def _check_inputs(self, num_features: int) -> None:
        check_spectrum(self.kernel, num_features)  # posterior samples are made of waves

    def _search(self) -> Any:
        return search_of(self.hyperparameters, noise_floor=_NOISE_FLOOR, steps=_STEPS)

    @property
    def _preconditioner(self) -> str:
        return str(SOLVERS.resolve("solver", self.solver).preconditioner)

    def _least_rows(self) -> int:
        return 1 if isinstance(self._search(), Fixed) else 2

    def _tile_rows(self) -> int:
        return _TILE_ROWS

    # ------------------------------------------------------------ fit

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        search, solver = self._search(), SOLVERS.resolve("solver", self.solver).filled()
        scaling = self.standardizer_
        observed = known_rows(*standardised(rows, scaling, self.dtype))
        diagnosis: dict[str, Any] = {"distinct_rows": len(observed.y)}
        learned: LoopResult | None = None
        learns = isinstance(search, Learn) and rows.n > search.rows  # type: ignore[operator]
        steps = self._steps_in_time(search, solver, observed, run) if learns else 0
        params = first_params(search, self.kernel, rows, scaling, run, goes_on=steps > 0)
        if learns and not steps:
            learned = LoopResult(0, 0.0, False, OUT_OF_TIME, History())
        elif learns:
            estimate = IterativeEvidence(
                observed, solver, rank=self._rank(observed, solver.num_probes, run), seed=run.seed,
                dtype=self.dtype, kind=self._preconditioner,
            )  # fmt: skip
            if estimate.law is not None:
                law = estimate.law._asdict()
                diagnosis["truncation"] = {name: float(value) for name, value in law.items()}
            share = self._learning_share(len(observed.y), run)
            params, learned = learn_params(
                estimate, params, replace(search, steps=steps), rows.n, run, share=share
            )
        if run.needs is not None and run.first is not None:
            # another answer with this kernel and noise is there only where they were not given
            run.needs += seconds_of_products(len(observed.y), 1 + self.num_samples, PRODUCTS)
        run.check_time()
        posterior, solved = self._solve(params, observed, solver.max_products, run, diagnosis)
        loops = [solved] if learned is None else [learned, solved]
        # the solution first: without it predictions are not those of the model
        last = next((loop for loop in (solved, *loops) if not loop.converged), solved)
        if solved.converged and learned is not None:
            advice = unfinished_learning(learned, search.steps, cut=steps < search.steps)
        else:
            advice = self._unfinished_solution(diagnosis)
        yield Answer(
            *params,
            lambda: posterior,
            sum(loop.num_iter for loop in loops),
            last.reason,
            last.converged,
            loops[0].history,
            advice=advice,
            attributes={"diagnosis_": diagnosis},
        )

    def _learning_share(self, n: int, run: Run) -> float:
        """Return the share of what is left of the budget that learning has: the solution after it needs some."""
        left = run.seconds_left()
        if not left:
            return _LEARNING_SHARE
        solution = (run.needs or 0.0) + seconds_of_products(n, 1 + self.num_samples, PRODUCTS)
        return min(_LEARNING_SHARE, max(1.0 - _AND_MORE * solution / left, 0.0))

    def _steps_in_time(self, search: Learn, solver: Any, observed: KnownRows, run: Run) -> int:
        """Return the steps of learning, or those that the budget affords: none where these would be too few."""
        n, iterations = len(observed.y), solver.iterations
        if self._rank(observed, solver.num_probes, run) >= n:
            iterations = min(iterations, _WITH_MATRIX)

        # what compilation takes is no time for steps: of 9 s they had 17 on kegg
        compiling = run.needs or 0.0

        def affordable(left: float) -> int:
            spare = max(left - compiling, 0.0)
            found = int(spare / seconds_of_products(n, 1 + solver.num_probes, iterations))
            return found if found >= _FEWEST_STEPS else 0

        assert search.steps is not None
        return run.afforded("steps", search.steps, _LEARNING_SHARE, affordable)

    def _solve(
        self, params: Params, observed: KnownRows, max_products: int, run: Run, diagnosis: dict[str, Any]
    ) -> tuple[PathwisePosterior, LoopResult]:  # fmt: skip
        """Return the posterior, and how its system was solved; add what is left undone to the diagnosis."""
        (kernel, likelihood), n = params, len(observed.y)
        size = 2 * (min(max(_BASIS_PER_ROW * n, _LEAST_BASIS), _MOST_BASIS) // 2)
        basis = RandomFourierBasis(as_dtype(kernel, self.dtype), seed_key(run.seed), size)
        return_freed_memory()
        rank = self._rank(observed, self.num_samples, run)
        noise = float(likelihood.noise_variance)
        system = KernelSystem(
            kernel, noise, observed.at(noise), basis,
            num_samples=self.num_samples, seed=run.seed, rank=rank, kind=self._preconditioner,
        )  # fmt: skip
        solution, residuals, solved = solve_system(
            system, run, tol=self.tol, max_products=max_products
        )
        diagnosis |= {
            "residual": float(residuals[0]),
            "residual_samples": float(np.sqrt(np.mean(residuals[1:] ** 2))),
            "variance_relative_se": float((2.0 / self.num_samples) ** 0.5),
            "rank": rank,
            "vectors": system.vector_dtype,
            "entries": system.entry_dtype,
        }
        weights = system.weights(solution)
        return PathwisePosterior(system.kernel, system.X, weights, basis, run.seed), solved

    def _rank(self, observed: KnownRows, columns: int, run: Run) -> int:
        """Return the rank of a preconditioner for so many right-hand sides beside that of the mean."""
        n, itemsize = len(observed.y), np.dtype(self.dtype).itemsize
        if self.rank is not None:
            return int(min(self.rank, n))
        rank = min(choose_rank(n, 1 + columns, itemsize), n)
        return run.afforded(
            f"rank, {columns}", rank, _RANK_SHARE, lambda left: affordable_rank(n, left)
        )

    def _unfinished_solution(self, diagnosis: dict[str, Any]) -> str:
        worst = max(diagnosis["residual"], diagnosis["residual_samples"])
        return (
            f"the final solution has a residual of {worst:.2g} noise standard deviations (tol = {self.tol:g}). "
            "Predictions lie between those of the prior and of the posterior, and their standard deviations include "
            "what is left undone. Give more time (max_seconds, max_products of the solver), a larger rank, a larger "
            "noise (noise_floor or noise_std of hyperparameters), or dtype='float64'."
        )
