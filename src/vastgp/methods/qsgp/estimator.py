"""What the QSGP estimators share: sizes, first hyperparameters, the solver, files."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from vastgp._arguments import Named
from vastgp.bases import PairedBasis, RandomFourierBasis, seed_key
from vastgp.data import Rows, observations
from vastgp.estimators.arguments import check_constant_variance
from vastgp.estimators.base import BaseGP
from vastgp.estimators.bases import Fourier
from vastgp.estimators.first_hyperparameters import Beginning, find_first
from vastgp.estimators.grid_basis import check_kernel_of, grid_eigenfunctions
from vastgp.estimators.searches import SEARCHES, Fixed, Learn
from vastgp.fitting.candidates import candidate_kernels
from vastgp.fitting.run import Answer, Run
from vastgp.fitting.start import MakeEvidence
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.qsgp.block import fit_block_answers
from vastgp.methods.qsgp.inducing.answers import fit_inducing_answers
from vastgp.methods.qsgp.inducing.options import Inducing
from vastgp.methods.qsgp.inducing.posterior import InducingPosterior
from vastgp.methods.qsgp.options import SOLVERS, Block, Chosen, check_chosen
from vastgp.methods.qsgp.stochastic.fit import RATE, fit_stochastic_answers
from vastgp.methods.qsgp.stochastic.options import Stochastic
from vastgp.methods.qsgp.stochastic.posterior import ChevronPosterior
from vastgp.methods.qsgp.stochastic.setup import NOISE_FLOOR
from vastgp.solvers.basis_evidence import BasisEvidence
from vastgp.solvers.plan import affordable_basis
from vastgp.solvers.weight_space import SampledPosterior

# Beyond this many bytes of vectors for the block solver, `solver="auto"` turns to the stochastic one.
_BLOCK_BYTES = 8_000_000_000
# Vectors of conjugate gradients: right-hand side, solution, residual, direction, product.
_BLOCK_VECTORS = 6
# Basis functions per row and at most, when `num_basis` is left open; beyond _MANY_ROWS the cost of
# a pass (rows times basis functions) asks for fewer.
_BASIS_PER_ROW, _MOST_BASIS, _LEAST_BASIS = 4, 100_000, 2_000
# Of few rows many more cost next to nothing, and the evidence of the start is then the exact one: 1353 rows of airfoil
# with 5412, 30,000 and 100,000 functions, NLPD of test rows -0.09, -0.32 and -0.36 (exact: -0.36) in 16, 5 and 7 s.
_BASIS_PER_ROW_OF_FEW, _BASIS_OF_FEW = 25, 30_000
_MANY_ROWS, _BASIS_OF_MANY = 200_000, 20_000
_TILE_ROWS = 4096
# With this many basis functions per row the model's evidence is the exact one but for an eighth of the kernel's
# short-range part, and takes longer.
_NEAR_EXACT = 8.0
# Of the budget, for first hyperparameters: the posterior of the best of them is the prior where no time is left for it.
_START_SHARE = 0.25
# Of the rest, for the block solver's preconditioner and products: compilation takes the others. Sites of another
# likelihood ask for some solutions one after the other.
_SOLUTION_SHARE, _SITE_SOLUTIONS = 0.6, 4


class QSGPFits(BaseGP):
    """Fits of `QSGPRegressor` and `QSGPClassifier`, which have the same arguments."""

    # of the first hyperparameters, where nobody says how many
    _start_rows: ClassVar[int]
    _bases: ClassVar[Named]
    _compiling_seconds: ClassVar[float] = 5.0
    _beside_posterior = ("solver", "diagnosis")

    kernel: Any
    num_basis: Any
    basis: Any
    solver: Any
    hyperparameters: Any
    tol: Any

    # ------------------------------------------------------------ arguments

    def _chosen(self) -> Chosen:
        """Return what ``hyperparameters``, ``basis`` and ``solver`` stand for."""
        search = SEARCHES.resolve("hyperparameters", self.hyperparameters)
        if not isinstance(search, Fixed):
            own = {"rows": self._start_rows, "noise_floor": NOISE_FLOOR}
            search = search.given(**own)
        return Chosen(
            search,
            self._bases.resolve("basis", self.basis),
            SOLVERS.resolve("solver", self.solver),
        )

    @abc.abstractmethod
    def _declared_likelihood(self) -> Likelihood:
        """Return the likelihood as far as the arguments tell, without data."""

    @abc.abstractmethod
    def _first_likelihood(self, y: np.ndarray) -> Likelihood:
        """Return where the likelihood's hyperparameters start, or those that are fixed, in standardised units."""

    def _check_params(self) -> None:
        check_chosen(self._chosen(), self._declared_likelihood(), self.num_basis)

    def _check_inputs(self, num_features: int) -> None:
        basis = self._chosen().basis
        if isinstance(basis, Inducing):
            check_constant_variance(self.kernel, num_features)
        else:
            name = self._bases.name_of(basis)
            check_kernel_of(name, self.kernel, num_features, self.num_basis)

    # ------------------------------------------------------------ fit

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        chosen, scaling = self._chosen(), self.standardizer_
        if isinstance(chosen.basis, Inducing):
            refuse_own_noise_of(rows, "basis='inducing'", "basis='fourier'")
            kernel, likelihood = self._first(rows, run, chosen, None)
            assert isinstance(likelihood, Gaussian)
            answers = fit_inducing_answers(
                rows, scaling, kernel, likelihood, chosen.basis, run,
                num_basis=self.num_basis, tol=self.tol, dtype=self.dtype,
            )  # fmt: skip
            yield from _with(answers, solver_="stochastic")
            return
        planned, solver = choose_size(chosen, self.num_basis, rows.n, self.dtype)
        size = planned
        if isinstance(solver, Stochastic):
            refuse_own_noise_of(rows, "solver='stochastic'", "solver='block'")
        if self.num_basis is None and isinstance(solver, Block):
            size = self._size_in_time(planned, rows, solver, run)
            if size < planned and size == _LEAST_BASIS and self._may_be_stochastic(chosen):
                solver, size = Stochastic(), planned
        chosen = chosen._replace(solver=solver)
        check_chosen(chosen, self._declared_likelihood(), size)
        evidence = None
        if isinstance(chosen.basis, Fourier):
            evidence = model_evidence(chosen, self.kernel, size / rows.n, rows.n, run.seed)
        kernel, likelihood = self._first(rows, run, chosen, evidence)
        basis: PairedBasis
        if isinstance(chosen.basis, Fourier):
            basis = RandomFourierBasis(kernel, seed_key(run.seed), size, chosen.basis.frequencies)
        else:
            basis = grid_eigenfunctions(kernel, rows, scaling, size).in_pairs()
        common: dict[str, Any] = {"tol": self.tol, "dtype": self.dtype}
        if isinstance(solver, Block):
            answers = fit_block_answers(
                rows, scaling, basis, likelihood, solver, run, search=chosen.search, **common
            )
        else:
            assert isinstance(basis, RandomFourierBasis)
            answers = fit_stochastic_answers(
                rows, scaling, basis, likelihood, solver, run, rate=_rate(chosen.search),
                noise_floor=getattr(chosen.search, "noise_floor", NOISE_FLOOR), **common,
            )  # fmt: skip
        named = {"solver_": SOLVERS.name_of(solver), "num_basis_": basis.num_basis}
        for answer in _with(answers, **named):
            yield dataclasses.replace(answer, cut=size < planned)

    def _may_be_stochastic(self, chosen: Chosen) -> bool:
        """Return whether steps on some rows are to find classes that there is no time for with all of them.

        36,000 rows of kin40k in two classes, 15 s: NLPD 0.30, where the block solver left what the start had, 0.34. The
        system of a Gaussian likelihood is solved in a fraction of that time.
        """
        likelihood = self._declared_likelihood()
        classes = likelihood.log_concave and np.isfinite(likelihood.most_curvature())
        named = chosen.solver == "auto" and isinstance(chosen.basis, Fourier)
        return classes and named and not isinstance(likelihood, Gaussian)

    def _size_in_time(self, planned: int, rows: Rows, solver: Block, run: Run) -> int:
        """Return the planned number of basis functions, or those that the budget affords."""
        solutions = 1 if isinstance(self._declared_likelihood(), Gaussian) else _SITE_SOLUTIONS
        classes = len(getattr(self, "classes_", ()))
        columns = (classes if classes > 2 else 1) * (1 + solver.num_samples)
        itemsize = np.dtype(self.dtype).itemsize

        def affordable(left: float) -> int:
            most = affordable_basis(rows.n, planned, columns, itemsize, rows.d, left)
            return max(_LEAST_BASIS, 2 * (most // 2))

        share = (1.0 - _START_SHARE) * _SOLUTION_SHARE / solutions
        return run.afforded("size", planned, share, affordable)

    def _first(
        self, rows: Rows, run: Run, chosen: Chosen, evidence: MakeEvidence | None
    ) -> tuple[Kernel, Likelihood]:
        sums, scaling = isinstance(chosen.basis, Fourier), self.standardizer_
        beginning = Beginning(chosen.search, self.kernel, rows, scaling, run, _START_SHARE, sums)
        return find_first(beginning, self._first_likelihood, evidence)

    # ------------------------------------------------------------ predict

    def _tile_rows(self) -> int:
        return _TILE_ROWS

    @property
    def _posterior_class(self) -> Any:
        if isinstance(self._chosen().basis, Inducing):
            return InducingPosterior
        return SampledPosterior if self.solver_ == "block" else ChevronPosterior

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore_state(state, arrays)
        self.num_basis_ = self.posterior_.basis.num_basis


def refuse_own_noise_of(rows: Rows, what: str, instead: str) -> None:
    """Raise ValueError where rows have noise of their own, which a part of the method does not take."""
    if observations.has_own_noise(rows.y):
        raise ValueError(f"{what} takes no noise_std and no sample_weight yet. Set {instead}.")


def choose_size(
    chosen: Chosen, num_basis: int | None, num_rows: int, dtype: str
) -> tuple[int, Block | Stochastic]:
    """Return the number of basis functions and the solver for so many rows."""
    size = num_basis
    if size is None:
        of_few = min(_BASIS_OF_FEW, 2 * (_BASIS_PER_ROW_OF_FEW * num_rows // 2))
        size = max(_LEAST_BASIS, of_few, min(_MOST_BASIS, _BASIS_PER_ROW * num_rows))
        size = _BASIS_OF_MANY if num_rows > _MANY_ROWS else size
    if not isinstance(chosen.solver, str):
        return int(size), chosen.solver
    block = Block()
    columns = 1 + block.num_samples
    needed = _BLOCK_VECTORS * columns * min(num_rows, size) * np.dtype(dtype).itemsize
    fits = chosen.basis == "grief" or needed <= _BLOCK_BYTES
    return int(size), block if fits else Stochastic()


def _rate(search: Any) -> float | None:
    """Return the rate of learning of the stochastic solver, or None where nothing is learned."""
    return (search.rate or RATE) if isinstance(search, Learn) else None


def model_evidence(
    chosen: Chosen, kernel: Any, per_row: float, num_rows: int, seed: int
) -> MakeEvidence:
    """Return how to make the evidence of some rows with so many basis functions that they err as the whole does."""

    def evidence(X: np.ndarray, y: np.ndarray, rate: float) -> BasisEvidence | None:
        # What n rows leave unresolved, of which n / m is explained in error, goes down as n^-rate.
        rows = len(y)
        share = per_row * (num_rows / rows) ** rate
        if share >= _NEAR_EXACT:
            return None
        inputs = chosen.search.inputs(X.shape[1])
        candidate = candidate_kernels(kernel, X.shape[1], inputs)[0]
        least = 2 * len(candidate.spectral_terms())
        size = max(least, 2 * round(share * rows / 2))
        basis = RandomFourierBasis(candidate, seed_key(seed), size, chosen.basis.frequencies)
        return BasisEvidence(X, y, basis)

    return evidence


def _with(answers: Iterator[Answer], **attributes: Any) -> Iterator[Answer]:
    """Give the answers with further attributes."""
    for answer in answers:
        yield dataclasses.replace(answer, attributes=attributes | dict(answer.attributes))
