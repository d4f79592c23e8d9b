"""Hyperparameters by the evidence of all rows, from the same solutions that give the posterior."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from vastgp.bases import RandomFourierBasis
from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer
from vastgp.fitting.adam_ascent import Estimate, climb_evidence
from vastgp.fitting.loop import LoopResult
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.solvers.block import advance, begin, build_system, choose_space
from vastgp.solvers.preconditioners import Preconditioner
from vastgp.solvers.systems import System

# Samples of the trace: its error is small beside the quadratic term, which is exact.
_SAMPLES = 8
# Products per step of learning: solutions start from those of the step before.
_PRODUCTS = 3
# Steps, and the rate of Adam, where nobody says.
STEPS, RATE = 20, 0.1


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
    dtype: str,
    share: float = 1.0,
) -> tuple[Kernel, Gaussian, LoopResult]:
    """Climb the evidence of all rows by Adam, from the kernel of the basis; each step is about six passes.

    Parameters
    ----------
    basis, likelihood
        Where learning starts, standardised units.
    rows, standardizer
        Training data.
    steps, rate, noise_floor, share
        As in `climb_evidence`.
    """
    evidence = BlockEvidence(
        basis, rows, standardizer, rank=rank, seed=run.seed, dtype=dtype
    )  # fmt: skip
    kernel, noise_variance, loop = climb_evidence(
        evidence, (basis.kernel, likelihood), run,
        steps=steps, rate=rate, noise_floor=noise_floor, num_rows=rows.n, share=share,
        carried=evidence.carried,
    )  # fmt: skip
    return kernel, Gaussian(noise_variance), loop
