"""QSGP: Gaussian process regression with any number of rows and basis functions."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Rows
from vastgp.data.minibatch import minibatch_indices
from vastgp.data.split import held_out_indices, without
from vastgp.estimators.arguments import fixed_hyperparameters, seed_from
from vastgp.estimators.base import BaseGPRegressor, Fit
from vastgp.estimators.qsgp_arguments import check_arguments
from vastgp.estimators.serialise import fit_fingerprint
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.objectives.basis_evidence import BasisEvidence
from vastgp.posteriors.chevron import ChevronPosterior
from vastgp.posteriors.weight_space import SampledPosterior
from vastgp.training.block import build_system, fit_block
from vastgp.training.block_learning import learn_block
from vastgp.training.checkpoint import Checkpoint
from vastgp.training.early_stopping import no_progress
from vastgp.training.start import candidate_kernels, start_from_exact_gp
from vastgp.training.stochastic import fit_stochastic
from vastgp.training.stochastic_setup import StochasticOptions

# Beyond this many bytes of vectors for the block solver, `solver="auto"` turns to the stochastic one.
_BLOCK_BYTES = 8_000_000_000
# Vectors of conjugate gradients: right-hand side, solution, residual, direction, product.
_BLOCK_VECTORS = 6
# Basis functions per row and at most, when `num_basis` is left open; beyond _MANY_ROWS the cost of
# a pass (rows times basis functions) asks for fewer.
_BASIS_PER_ROW, _MOST_BASIS, _LEAST_BASIS = 4, 100_000, 2_000
_MANY_ROWS, _BASIS_OF_MANY = 200_000, 20_000
_TILE_ROWS = 4096
# With this many basis functions per row the model's evidence is the exact one but for an eighth of the kernel's
# short-range part, and takes longer.
_NEAR_EXACT = 8.0
# Stochastic solver: steps as in the paper; records (of 50 steps) without progress before it stops, where progress
# is this share of `tol` noise standard deviations; rows held out at most.
_MOST_STEPS, _PATIENCE, _LEAST_PROGRESS, _MOST_JUDGES = 100_000, 40, 0.01, 1000
# Parameters that say how long to work and what to show, not what is computed.
_NOT_OF_THE_RESULT = ("max_seconds", "max_iter", "verbose", "checkpoint", "checkpoint_seconds")


class QSGPRegressor(BaseGPRegressor):
    """Gaussian process regression with random Fourier features regenerated from (seed, index).

    The kernel is approximated by ``num_basis`` random features that are never stored: millions of them fit a laptop.
    Two solvers find the posterior of their weights:

    - ``"block"``: conjugate gradients with exact residuals in passes over blocks of features, for the mean and for
      ``num_samples`` posterior samples together. It converges to the exact posterior of the model; its samples give
      variances, correlations and `sample_y`. Memory: some vectors of length ``min(n, m)`` per sample.
    - ``"stochastic"``: the quadruply stochastic variational inference of Evans and Nair: a step costs the same
      whatever n and m are, the covariance is a chevron with ``dense_columns`` dense columns. For data beyond the
      block solver.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `ExactGPRegressor`. None: the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on
        ``start_rows`` rows.
    num_basis : int, optional
        Number of basis functions m, even. None: four per row, at least 2000 and at most 100,000; 20,000 beyond 200,000
        rows, where a pass costs more.
    solver : {"auto", "block", "stochastic"}, default "auto"
        ``"auto"`` is the block solver unless its vectors exceed 8 GB.
    hyperparameters : {"subset", "learn", "fixed"}, default "subset"
        ``"subset"``: kernel and noise of highest evidence on ``start_rows`` random rows, which takes seconds.
        ``"learn"`` goes on from there with all rows. ``"fixed"``: those given, in the units of inputs and target.
    noise_std : float, optional
        Standard deviation of the noise in units of the target; needed with ``"fixed"``, refused otherwise.
    noise_floor : float, default 1e-3
        Least noise variance relative to the variance of the target. The evidence of a smooth kernel on few rows can
        drive the noise so low that float32 cannot solve the system.
    start_rows : int, default 2000
        Rows of the first hyperparameters. From 2000 on, three parts of 1000 are fitted and the best of them is refined
        on all of these rows, as the evidence of 1000 rows can have several optima. Where basis functions are few, they
        are refined by the evidence of the model with random features: see `BasisEvidence`.
    frequencies : {"plain", "orthogonal", "qmc"}, default "plain"
        How frequencies are drawn: independent, orthogonal in runs of d, or from a scrambled Halton sequence.
    num_samples : int, default 32
        Posterior samples of the block solver: the error of each predicted latent variance is ``sqrt(2 / num_samples)``.
    rank : int, optional
        Size of the block solver's preconditioner. None: chosen by a count of operations and memory.
    learning_steps : int, default 20
        Steps of the block solver's learning on all rows, each about six passes.
    dense_columns : int, default 0
        Stochastic solver: dense columns of the chevron covariance; 0 is mean-field.
    row_batch, basis_batch : int, default 500 and 10,000
        Stochastic solver: rows and basis functions in a step, as in the paper.
    control_rank : int, default 1000
        Stochastic solver: support rows of the control variate and of the preconditioner; 0 for neither. The paper
        has 500; 1000 reached the same error in less time.
    validation_fraction : float, default 0.0
        Stochastic solver: share of the rows (at most 1000) kept out of the training to stop it when their error no
        longer falls. 0: it stops when the residual at the support rows no longer does.
    max_iter : int, optional
        Most products (block, None: 300) or steps (stochastic, None: 100,000 as in the paper).
    tol : float, default 0.1
        Block: converged when what is missing of mean and samples at the training rows (root mean square) is below this
        many standard deviations of the noise: at 0.1 it adds one per cent to the variance of an observation.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked after each product or chunk of steps. The block solver's variance
        includes what was left undone when it stopped early, see `vastgp.training.block`.
    checkpoint : path, optional
        File to save the state of the fit to, and to resume from when it exists.
    checkpoint_seconds : float, default 30.0
        Time between two writes.
    random_state : int, RandomState or None, default 0
    dtype : {"float32", "float64"}, default "float32"
    verbose : bool, default False

    Attributes
    ----------
    solver_ : str
        The solver used.
    num_basis_ : int
        Number of basis functions.
    diagnosis_ : dict
        What to look at before trusting the fit: residuals, samples, relative standard error of the variance, ...

    References
    ----------
    Evans, T. W., Nair, P. B. (2020). Quadruply Stochastic Gaussian Processes. arXiv:2006.03015.
    Lin, J. A. et al. (2024). Improving linear system solvers for hyperparameter optimisation in iterative GPs.
    Wenger, J. et al. (2022). Posterior and computational uncertainty in Gaussian processes.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import QSGPRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> model = QSGPRegressor("rbf").fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.05)
    True
    """

    def __init__(
        self,
        kernel: Any = None,
        num_basis: Any = None,
        *,
        solver: Any = "auto",
        hyperparameters: Any = "subset",
        noise_std: Any = None,
        noise_floor: Any = 1e-3,
        start_rows: Any = 2000,
        frequencies: Any = "plain",
        num_samples: Any = 32,
        rank: Any = None,
        learning_steps: Any = 20,
        dense_columns: Any = 0,
        row_batch: Any = 500,
        basis_batch: Any = 10_000,
        control_rank: Any = 1000,
        validation_fraction: Any = 0.0,
        max_iter: Any = None,
        tol: Any = 0.1,
        max_seconds: Any = None,
        checkpoint: Any = None,
        checkpoint_seconds: Any = 30.0,
        random_state: Any = 0,
        dtype: Any = "float32",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.solver = solver
        self.hyperparameters = hyperparameters
        self.noise_std = noise_std
        self.noise_floor = noise_floor
        self.start_rows = start_rows
        self.frequencies = frequencies
        self.num_samples = num_samples
        self.rank = rank
        self.learning_steps = learning_steps
        self.dense_columns = dense_columns
        self.row_batch = row_batch
        self.basis_batch = basis_batch
        self.control_rank = control_rank
        self.validation_fraction = validation_fraction
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    # ------------------------------------------------------------ arguments

    def _check_params(self) -> None:
        check_arguments(self)

    def _choose_size(self, n: int) -> tuple[int, str]:
        """Return the number of basis functions and the solver for ``n`` rows."""
        size = self.num_basis
        if size is None:
            size = max(_LEAST_BASIS, min(_MOST_BASIS, _BASIS_PER_ROW * n))
            size = _BASIS_OF_MANY if n > _MANY_ROWS else size
        if self.solver != "auto":
            return int(size), self.solver
        itemsize = np.dtype(self.dtype).itemsize
        vectors = _BLOCK_VECTORS * (1 + self.num_samples) * min(n, size) * itemsize
        return int(size), "block" if vectors <= _BLOCK_BYTES else "stochastic"

    # ------------------------------------------------------------ fit

    def _fit_rows(self, rows: Rows) -> Fit:
        seed = seed_from(self.random_state)
        self.num_basis_, self.solver_ = self._choose_size(rows.n)
        kernel, noise_variance = self._first_hyperparameters(rows, seed)
        basis = RandomFourierBasis(kernel, seed_key(seed), self.num_basis_, self.frequencies)
        if self.solver_ == "block":
            return self._fit_block(rows, basis, noise_variance, seed)
        return self._fit_stochastic(rows, basis, noise_variance, seed)

    def _first_hyperparameters(self, rows: Rows, seed: int) -> tuple[Kernel, float]:
        """Return kernel and noise variance in standardised units."""
        scaling = self.standardizer_
        if self.hyperparameters == "fixed":
            return fixed_hyperparameters(self, scaling)
        chosen = np.sort(minibatch_indices(seed, 0, rows.n, min(rows.n, self.start_rows)))
        X, y = rows.take(chosen)
        assert y is not None
        start = start_from_exact_gp(
            self.kernel,
            scaling.transform_X(X),
            scaling.transform_y(y),
            max_rows=self.start_rows,
            seed=seed,
            noise_floor=self.noise_floor,
            max_seconds=self._seconds_left(self.max_seconds),
            evidence=self._model_evidence(rows.n, seed),
        )
        return start.kernel, start.noise_variance

    def _model_evidence(self, n: int, seed: int) -> Any:
        """Return how to make the evidence of some rows with so many basis functions that they err as the whole does."""

        def evidence(X: np.ndarray, y: np.ndarray, rate: float) -> BasisEvidence | None:
            # What n rows leave unresolved, of which n / m is explained in error, goes down as n^-rate.
            rows = len(y)
            per_row = self.num_basis_ / n * (n / rows) ** rate
            if per_row >= _NEAR_EXACT:
                return None
            kernel = candidate_kernels(self.kernel, X.shape[1])[0]
            least = 2 * len(kernel.spectral_terms())
            size = max(least, 2 * round(per_row * rows / 2))
            basis = RandomFourierBasis(kernel, seed_key(seed), size, self.frequencies)
            return BasisEvidence(X, y, basis)

        return evidence

    def _fit_block(
        self, rows: Rows, basis: RandomFourierBasis, noise_variance: float, seed: int
    ) -> Fit:
        if self.hyperparameters == "learn":
            kernel, noise_variance, _ = learn_block(
                basis,
                noise_variance,
                rows,
                self.standardizer_,
                steps=self.learning_steps,
                seed=seed,
                dtype=self.dtype,
                noise_floor=self.noise_floor,
                rank=self.rank,
                max_seconds=self._seconds_left(self.max_seconds),
                checkpoint=self._checkpoint(rows, seed, ".learning"),
                verbose=bool(self.verbose),
            )
            basis = basis.with_kernel(kernel)
        system, chosen = build_system(
            basis, noise_variance, rows, self.standardizer_,
            num_samples=self.num_samples, seed=seed, dtype=self.dtype, rank=self.rank, widen=True,
        )  # fmt: skip
        fit = fit_block(
            system,
            chosen,
            tol=self.tol,
            max_iter=self.max_iter or 300,
            max_seconds=self._seconds_left(self.max_seconds),
            checkpoint=self._checkpoint(rows, seed),
            verbose=bool(self.verbose),
        )
        self._finish_learning(seed)
        self.diagnosis_: dict[str, Any] = {
            "residual": float(fit.residuals[0]),
            "residual_samples": float(np.sqrt(np.mean(fit.residuals[1:] ** 2))),
            "effective_samples": int(self.num_samples),
            "variance_relative_se": float((2.0 / self.num_samples) ** 0.5),
            "space": fit.plan.space,
            "rank": int(fit.plan.rank),
        }
        self._warn_unless_converged(fit.loop.converged, fit.loop.reason)
        posterior = SampledPosterior(system.blocks.basis, *fit.solution)
        return Fit(
            basis.kernel,
            Gaussian(noise_variance),
            posterior,
            fit.loop.num_iter,
            fit.loop.converged,
            fit.loop.reason,
            fit.loop.history,
        )

    def _fit_stochastic(
        self, rows: Rows, basis: RandomFourierBasis, noise_variance: float, seed: int
    ) -> Fit:
        options = StochasticOptions(
            dense_columns=self.dense_columns,
            row_batch=self.row_batch,
            basis_batch=self.basis_batch,
            control_rank=self.control_rank,
            learn_hyperparameters=self.hyperparameters == "learn",
        )
        training, judge, watched = self._hold_out(rows, seed)
        least = _LEAST_PROGRESS * self.tol * noise_variance**0.5
        fit = fit_stochastic(
            training,
            self.standardizer_,
            basis,
            noise_variance,
            options,
            max_iter=self.max_iter or _MOST_STEPS,
            max_seconds=self._seconds_left(self.max_seconds),
            should_stop=no_progress(watched, patience=_PATIENCE, min_change=least),
            checkpoint=self._checkpoint(rows, seed),
            seed=seed,
            dtype=self.dtype,
            verbose=bool(self.verbose),
            on_chunk=judge,
        )
        posterior = ChevronPosterior(fit.basis, fit.mean, fit.columns, fit.diagonal)
        history = fit.loop.history
        self.diagnosis_ = {
            name: history.last(name)
            for name in ("objective", "objective_se", "residual", watched, "sampling_error")
        } | {"averaged": fit.averaged, "dense_columns": posterior.dense_columns}
        self._warn_unless_converged(fit.loop.converged, fit.loop.reason)
        return Fit(
            fit.basis.kernel,
            Gaussian(fit.noise_variance),
            posterior,
            fit.loop.num_iter,
            fit.loop.converged,
            fit.loop.reason,
            history,
        )

    def _hold_out(self, rows: Rows, seed: int) -> tuple[Rows, Any, str]:
        """Return the rows to train on, what to record after each chunk, and the record that decides."""
        if not self.validation_fraction:
            watched = "support_residual" if self.control_rank else "residual"
            return rows, None, watched
        chosen = held_out_indices(rows.n, self.validation_fraction, seed, _MOST_JUDGES)
        X, y = rows.take(chosen)
        assert y is not None
        inputs = self.standardizer_.transform_X(X, np.dtype(self.dtype))
        target = self.standardizer_.transform_y(y)

        def judge(state: Any, problem: Any) -> dict[str, float]:
            basis = problem.basis.with_kernel(jax.tree.map(jnp.exp, state.hyper[0]))
            nothing = jnp.zeros_like(state.mean)
            mean = ChevronPosterior(basis, state.mean_average, None, nothing).mean(inputs)
            return {"held_out_rmse": float(np.sqrt(np.mean((target - mean) ** 2)))}

        return without(rows, chosen), judge, "held_out_rmse"

    def _warn_unless_converged(self, converged: bool, reason: str) -> None:
        if converged:
            return
        if self.solver_ == "block":
            what = (
                f"residual {self.diagnosis_['residual']:.2g} of the noise (tol = {self.tol:g}). Predictions lie "
                "between those of the prior and of the posterior, and their standard deviations include what is left "
                "undone. Give more time (max_seconds, max_iter), fewer basis functions, or a larger noise_floor."
            )
        else:
            what = (
                "the mean may still move, see history_. Standard deviations do not include what is left undone. Give "
                "more time (max_seconds, max_iter), or use solver='block' where it fits."
            )
        warnings.warn(
            f"QSGPRegressor did not converge: {reason}; {what}", ConvergenceWarning, stacklevel=5
        )

    def _checkpoint(self, rows: Rows, seed: int, suffix: str = "") -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        params = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in _NOT_OF_THE_RESULT
        }
        return Checkpoint(
            f"{self.checkpoint}{suffix}",
            self.checkpoint_seconds,
            fingerprint=fit_fingerprint(type(self).__name__, params, rows, seed),
        )

    def _finish_learning(self, seed: int) -> None:
        if self.checkpoint is not None and not Path(self.checkpoint).exists():
            Path(f"{self.checkpoint}.learning").unlink(missing_ok=True)

    # ------------------------------------------------------------ predict

    def _tile_rows(self) -> int:
        return _TILE_ROWS

    def _latent(self, X: np.ndarray, with_variance: bool) -> tuple[np.ndarray, np.ndarray | None]:
        if with_variance:
            return self.posterior_.mean_and_latent_variance(X)
        return self.posterior_.mean(X), None

    def _sample_latent(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        return self.posterior_.samples(X, num_samples, seed)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self.posterior_.to_state()
        return state | {"solver": self.solver_, "diagnosis": self.diagnosis_}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.solver_, self.diagnosis_ = state["solver"], state["diagnosis"]
        kind = SampledPosterior if self.solver_ == "block" else ChevronPosterior
        self.posterior_ = kind.from_state(state, arrays)
        self.num_basis_ = self.posterior_.basis.num_basis
