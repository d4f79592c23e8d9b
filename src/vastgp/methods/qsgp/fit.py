"""What the QSGP estimators share: first hyperparameters, both solvers, their posterior."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vastgp._precision import as_dtype
from vastgp.bases import PairedBasis, RandomFourierBasis, seed_key
from vastgp.data import Rows
from vastgp.estimators.arguments import check_constant_variance, seed_from
from vastgp.estimators.base import BaseGP, Fit
from vastgp.estimators.checkpoints import checkpoint_of
from vastgp.estimators.first_hyperparameters import first_hyperparameters
from vastgp.estimators.grid_basis import check_kernel_of, grid_eigenfunctions
from vastgp.fitting.candidates import candidate_kernels
from vastgp.fitting.loop import LoopResult
from vastgp.fitting.run import Answer
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.qsgp.block_learning import RATE as LEARNING_RATE
from vastgp.methods.qsgp.block_learning import learn_block
from vastgp.methods.qsgp.inducing.answers import fit_inducing_answers
from vastgp.methods.qsgp.inducing.estimator import is_inducing
from vastgp.methods.qsgp.inducing.options import Inducing
from vastgp.methods.qsgp.inducing.posterior import InducingPosterior
from vastgp.methods.qsgp.stochastic.fit import RATE, fit_stochastic_answers
from vastgp.methods.qsgp.stochastic.options import Stochastic
from vastgp.methods.qsgp.stochastic.posterior import ChevronPosterior
from vastgp.solvers.basis_evidence import BasisEvidence
from vastgp.solvers.block import BlockFit, build_system, fit_block, standardised
from vastgp.solvers.plan import Plan, plan_rows
from vastgp.solvers.sites import find_sites
from vastgp.solvers.systems import System
from vastgp.solvers.weight_space import SampledPosterior

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
# Share of what is left of the budget that learning on all rows may take.
_LEARNING_SHARE = 0.6
# Most updates of the sites of other likelihoods than the Gaussian.
_MOST_SITE_UPDATES = 50


class QSGPFits(BaseGP):
    """Fits of `QSGPRegressor` and `QSGPClassifier`; they have the same arguments but for those of the likelihood."""

    # constructor arguments of the regressor
    noise_floor: Any = 1e-3
    dense_columns: Any = 0
    validation_fraction: Any = 0.0
    basis: Any = "fourier"
    # and of the classifier
    bound: Any = "plug-in"

    # ------------------------------------------------------------ arguments

    def _choose_size(self, n: int) -> tuple[int, str]:
        """Return the number of basis functions and the solver for ``n`` rows."""
        size = self.num_basis
        if size is None:
            size = max(_LEAST_BASIS, min(_MOST_BASIS, _BASIS_PER_ROW * n))
            size = _BASIS_OF_MANY if n > _MANY_ROWS else size
        if self.solver != "auto":
            return int(size), self.solver
        if self.basis == "grief":
            return int(size), "block"
        itemsize = np.dtype(self.dtype).itemsize
        vectors = _BLOCK_VECTORS * (1 + self.num_samples) * min(n, size) * itemsize
        return int(size), "block" if vectors <= _BLOCK_BYTES else "stochastic"

    def _check_inputs(self, num_features: int) -> None:
        if is_inducing(self):
            check_constant_variance(self.kernel, num_features)
        else:
            check_kernel_of(self.basis, self.kernel, num_features)

    # ------------------------------------------------------------ fit

    def _fit_rows(self, rows: Rows) -> Fit:
        seed = seed_from(self.random_state)
        inducing = is_inducing(self)
        self.num_basis_, self.solver_ = (
            (rows.n, "stochastic") if inducing else self._choose_size(rows.n)
        )
        kernel, likelihood = first_hyperparameters(
            self, rows, seed, self._first_likelihood,
            self._model_evidence(rows.n, seed) if self.basis == "fourier" else None,
        )  # fmt: skip
        if inducing:
            assert isinstance(likelihood, Gaussian)
            options = Inducing(
                self.inducing_inputs, bool(self.augment), self.row_batch, self.basis_batch,
                max(self.control_rank, 1), self.max_iter or Inducing.max_steps,
            )  # fmt: skip
            return self._of_answers(
                fit_inducing_answers(
                    rows, self.standardizer_, kernel, likelihood, options, self._run,
                    num_basis=self.num_basis, tol=self.tol, dtype=self.dtype,
                )
            )  # fmt: skip
        if self.basis == "grief":
            eigenfunctions = grid_eigenfunctions(kernel, rows, self.standardizer_, self.num_basis_)
            eigenfunctions = eigenfunctions.in_pairs()
            self.num_basis_ = eigenfunctions.num_basis
            return self._fit_block(rows, eigenfunctions, likelihood, seed)
        basis = RandomFourierBasis(kernel, seed_key(seed), self.num_basis_, self.frequencies)
        if self.solver_ == "block":
            return self._fit_block(rows, basis, likelihood, seed)
        return self._fit_stochastic(rows, basis, likelihood, seed)

    @abc.abstractmethod
    def _first_likelihood(self, y: np.ndarray) -> Likelihood:
        """Return where the likelihood's hyperparameters start, or those that are fixed, in standardised units."""

    def _model_evidence(self, n: int, seed: int) -> Any:
        """Return how to make the evidence of some rows with so many basis functions that they err as the whole does."""

        def evidence(X: np.ndarray, y: np.ndarray, rate: float) -> BasisEvidence | None:
            # What n rows leave unresolved, of which n / m is explained in error, goes down as n^-rate.
            rows = len(y)
            per_row = self.num_basis_ / n * (n / rows) ** rate
            if per_row >= _NEAR_EXACT:
                return None
            kernel = candidate_kernels(self.kernel, X.shape[1], self.isotropic)[0]
            least = 2 * len(kernel.spectral_terms())
            size = max(least, 2 * round(per_row * rows / 2))
            basis = RandomFourierBasis(kernel, seed_key(seed), size, self.frequencies)
            return BasisEvidence(X, y, basis)

        return evidence

    def _fit_block(self, rows: Rows, basis: PairedBasis, likelihood: Likelihood, seed: int) -> Fit:
        learned: LoopResult | None = None
        if isinstance(likelihood, Gaussian):
            if self.hyperparameters == "learn":
                assert isinstance(basis, RandomFourierBasis)
                kernel, likelihood, learned = learn_block(
                    basis, likelihood, rows, self.standardizer_, self._run,
                    steps=self.learning_steps, rate=LEARNING_RATE, noise_floor=self.noise_floor,
                    rank=self.rank, dtype=self.dtype, share=_LEARNING_SHARE,
                )  # fmt: skip
                basis = basis.with_kernel(kernel)
            system, chosen = build_system(
                basis, float(likelihood.noise_variance), rows, self.standardizer_,
                num_samples=self.num_samples, seed=seed, dtype=self.dtype, rank=self.rank, widen=True,
            )  # fmt: skip
            start = None
        else:
            system, chosen, start, learned = self._site_system(rows, basis, likelihood, seed)
        fit = fit_block(
            system,
            chosen,
            self._run,
            tol=self.tol,
            max_products=self.max_iter or 300,
            start=start,
        )
        return self._of_block(fit, basis, likelihood, learned)

    def _site_system(
        self, rows: Rows, basis: PairedBasis, likelihood: Likelihood, seed: int
    ) -> tuple[System, Plan, Any, LoopResult | None]:
        """Find the sites of a likelihood; return the system that they make, where to start, and how they were found."""
        X, y = standardised(rows, self.standardizer_, self.dtype)
        basis = as_dtype(basis, self.dtype)
        rank, _ = plan_rows(
            len(y), self.num_basis_, 1 + self.num_samples, X.dtype.itemsize, self.rank, rows.d
        )
        found = find_sites(
            basis,
            likelihood,
            X,
            y,
            tol=self.tol,
            max_iter=_MOST_SITE_UPDATES,
            max_seconds=self._seconds_left(self.max_seconds),
            checkpoint=checkpoint_of(self, "sites"),
            verbose=bool(self.verbose),
            num_samples=self.num_samples,
            seed=seed,
            rank=rank,
        )
        start = None if found.dual is None else found.dual / found.system.scale
        return found.system, Plan("rows", rank), start, found.loop

    def _of_block(
        self,
        fit: BlockFit,
        basis: PairedBasis,
        likelihood: Likelihood,
        before: LoopResult | None,
    ) -> Fit:
        """Return what the block solver found, after learning, a search for sites, or neither."""
        self.diagnosis_: dict[str, Any] = {
            "residual": float(fit.residuals[0]),
            "residual_samples": float(np.sqrt(np.mean(fit.residuals[1:] ** 2))),
            "effective_samples": int(self.num_samples),
            "variance_relative_se": float((2.0 / self.num_samples) ** 0.5),
            "space": fit.plan.space,
            "rank": int(fit.plan.rank),
        }
        ends = [fit.loop] if before is None else [before, fit.loop]
        if before is not None and not isinstance(likelihood, Gaussian):
            self.diagnosis_ |= {"site_updates": before.num_iter} | {
                name: before.history.last(name) for name in ("change", "rate")
            }
        # the solution first: without it predictions are not those of the model
        last = next((end for end in ends[::-1] if not end.converged), fit.loop)
        self._warn_unless_converged(last.converged, last.reason)
        posterior = SampledPosterior(as_dtype(basis, self.dtype), *fit.solution)
        # the search is where the work is; the solution starts from its last one
        return Fit(
            basis.kernel,
            likelihood,
            posterior,
            sum(end.num_iter for end in ends),
            last.converged,
            last.reason,
            ends[0].history,
        )

    def _fit_stochastic(
        self, rows: Rows, basis: RandomFourierBasis, likelihood: Likelihood, seed: int
    ) -> Fit:
        options = Stochastic(
            dense_columns=self.dense_columns,
            row_batch=self.row_batch,
            basis_batch=self.basis_batch or Stochastic.basis_batch,
            control_rank=self.control_rank,
            validation_fraction=self.validation_fraction,
            bound=self.bound,
            max_steps=self.max_iter or Stochastic.max_steps,
        )
        rate = RATE if self.hyperparameters == "learn" else None
        return self._of_answers(
            fit_stochastic_answers(
                rows, self.standardizer_, basis, likelihood, options, self._run,
                rate=rate, tol=self.tol, dtype=self.dtype,
            )
        )  # fmt: skip

    def _of_answers(self, answers: Iterator[Answer]) -> Fit:
        """Return the last answer as estimators give it that have not been ported."""
        *_, answer = answers
        for name, value in answer.attributes.items():
            setattr(self, name, value)
        self._warn_unless_converged(answer.converged, answer.reason)
        return Fit(
            answer.kernel, answer.likelihood, answer.posterior(), answer.n_iter, answer.converged,
            answer.reason, answer.history,
        )  # fmt: skip

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
            f"{type(self).__name__} did not converge: {reason}; {what}",
            ConvergenceWarning,
            stacklevel=6,
        )

    # ------------------------------------------------------------ predict

    def _tile_rows(self) -> int:
        return _TILE_ROWS

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self.posterior_.to_state()
        return state | {"solver": self.solver_, "diagnosis": self.diagnosis_}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.solver_, self.diagnosis_ = state["solver"], state["diagnosis"]
        kind: Any = SampledPosterior if self.solver_ == "block" else ChevronPosterior
        if is_inducing(self):
            kind = InducingPosterior
        self.posterior_ = kind.from_state(state, arrays)
        self.num_basis_ = self.posterior_.basis.num_basis
