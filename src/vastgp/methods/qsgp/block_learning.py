"""Hyperparameters by the evidence of all rows, from the same solutions that give the posterior."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from vastgp.bases import RandomFourierBasis
from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer
from vastgp.estimators.evidence_fits import nats_left
from vastgp.fitting.adam_ascent import Estimate, climb_evidence
from vastgp.fitting.exact_ascent import climb_exact_evidence
from vastgp.fitting.loop import LoopResult
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.solvers.basis_evidence import BasisEvidence
from vastgp.solvers.block import advance, begin, build_system, choose_space, standardised
from vastgp.solvers.preconditioners import Preconditioner
from vastgp.solvers.systems import System

# Samples of the trace: its error is small beside the quadratic term, which is exact.
_SAMPLES = 8
# Products per step of learning: solutions start from those of the step before.
_PRODUCTS = 3
# Steps of Adam and its rate, and iterations of L-BFGS, where nobody says.
STEPS, RATE, ITERATIONS = 20, 0.1, 200
# Operations of an evidence of all rows, up to which slopes are exact: 500 rows with 12,500 functions take 1.4 times as
# long then, and 1000 rows with 25,000 twice as long.
_EXACT_OPERATIONS = 5e9
# Slope for each row at which L-BFGS ends, of the square of ``tol``: with the curvature c it leaves ``tol^4 / (200 c)``
# nats, a hundredth of what ``tol`` allows at its default from c = 0.01 on. Predictions move by more than the evidence
# gains, where that is flat.
_SLOPE = 0.1


def is_exact(num_rows: int, num_basis: int) -> bool:
    """Return whether the evidence of all rows is computed as it is, rather than estimated."""
    return float(num_rows) ** 2 * max(num_rows, num_basis) <= _EXACT_OPERATIONS


class BlockEvidence:
    """Pathwise slopes of the log evidence for `climb_evidence`.

    The slope is ``1/2 alpha^T dA alpha - 1/2 mean_s u_s^T dA u_s`` (see `evidence_slope`; Lin et al. 2024): alpha
    and the ``u_s`` are those of the posterior's mean and samples under the hyperparameters of the moment. The random
    draws stay the same from step to step, so that every solution starts close to its end.

    Parameters
    ----------
    basis : RandomFourierBasis
        Its kernel is not used.
    rows, standardizer
        Training data.
    rank, seed, dtype
        As in `build_system`.
    """

    def __init__(
        self,
        basis: RandomFourierBasis,
        rows: Rows,
        standardizer: Standardizer,
        *,
        rank: int | None,
        seed: int,
        dtype: str,
    ) -> None:
        self.basis, self.rows, self.standardizer = basis, rows, standardizer
        self.seed, self.dtype = seed, dtype
        columns = 1 + _SAMPLES
        self.space = choose_space(rows, standardizer, basis.num_basis, columns, dtype, rank)
        observed = self.space[1]
        unknowns = basis.num_basis if observed is None else len(observed.y)
        self.carried = np.zeros((columns, unknowns), dtype)
        self._kept: tuple[Any, Preconditioner] | None = None

    def __call__(self, params: Any, anchor: Any, step: int, carried: Any) -> Estimate:
        """Return the estimate at ``(kernel, likelihood)``, preconditioned by the system at ``anchor``."""
        del step
        system = self._build(params, self._at_anchor(anchor))
        state = begin(system, jax.device_put(carried))
        for _ in range(_PRODUCTS):
            state = advance(system, state)
        by_kernel, by_noise = system.slopes(state.solution)
        residual = float(system.errors(state.measures)[0])
        return Estimate(by_kernel, by_noise, {"residual": residual}, state.solution)

    def _build(self, params: Any, precondition: Preconditioner | None) -> System:
        kernel, likelihood = params
        system, _ = build_system(
            self.basis.with_kernel(kernel), float(likelihood.noise_variance), self.rows,
            self.standardizer, num_samples=_SAMPLES, seed=self.seed, dtype=self.dtype,
            precondition=precondition, space=self.space,
        )  # fmt: skip
        return system

    def _at_anchor(self, anchor: Any) -> Preconditioner:
        """Return the preconditioner of an anchor: made once and from it alone, so that a resumed run makes the same."""
        values = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(anchor)])
        if self._kept is None or not np.array_equal(self._kept[0], values):
            self._kept = None  # as large as the next one
            self._kept = values, self._build(anchor, None).precondition
        return self._kept[1]


def learn_block(
    basis: RandomFourierBasis,
    likelihood: Gaussian,
    rows: Rows,
    standardizer: Standardizer,
    run: Run,
    *,
    steps: int,
    rate: float,
    noise_floor: float,
    rank: int | None,
    tol: float,
    dtype: str,
    share: float = 1.0,
) -> tuple[Kernel, Gaussian, LoopResult]:
    """Climb the evidence of all rows from the kernel of the basis: of few rows by L-BFGS, of more by Adam.

    Exact slopes take a matrix of all rows; a step of Adam is about six passes.

    Parameters
    ----------
    basis, likelihood
        Where learning starts, standardised units.
    rows, standardizer
        Training data.
    steps, rate, noise_floor, share
        As in `climb_evidence`; L-BFGS has no rate.
    tol : float
        In standard deviations of the noise: Adam may leave ``tol^2 / 2`` nats for each row.
    """
    if is_exact(rows.n, basis.num_basis):
        exact = BasisEvidence(*standardised(rows, standardizer, dtype), basis, dtype)
        kernel, noise_variance, loop = climb_exact_evidence(
            exact, (basis.kernel, likelihood), run,
            steps=steps, noise_floor=noise_floor, tol=_SLOPE * tol**2, share=share,
        )  # fmt: skip
        return kernel, Gaussian(noise_variance), loop
    evidence = BlockEvidence(
        basis, rows, standardizer, rank=rank, seed=run.seed, dtype=dtype
    )  # fmt: skip
    kernel, noise_variance, loop = climb_evidence(
        evidence, (basis.kernel, likelihood), run,
        steps=steps, rate=rate, noise_floor=noise_floor, num_rows=rows.n, tol=nats_left(tol), share=share,
        carried=evidence.carried,
    )  # fmt: skip
    return kernel, Gaussian(noise_variance), loop
