"""Hyperparameters by exact slopes of the log evidence of all rows: L-BFGS, where a noisy climb takes Adam."""

from __future__ import annotations

import numpy as np

from vastgp.fitting.best_fit import Evidence, fit_evidence
from vastgp.fitting.candidates import Params
from vastgp.fitting.lbfgs import ravel
from vastgp.fitting.loop import OUT_OF_TIME, LoopResult
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel


def climb_exact_evidence(
    evidence: Evidence,
    start: Params,
    run: Run,
    *,
    steps: int,
    noise_floor: float,
    tol: float,
    share: float = 1.0,
) -> tuple[Kernel, float, LoopResult]:
    """Climb evidence times prior, as `fit_evidence` has them, until its slope is short.

    Parameters
    ----------
    evidence : Evidence
    start : (Kernel, Gaussian)
        In standardised units.
    run : Run
        Its phase is called "learning".
    steps : int
        Most iterations.
    noise_floor : float
        Least noise variance.
    tol : float
        Converged where no slope by a logarithm is larger, per row: with the curvature ``c`` it leaves ``tol^2 / (2 c)``
        nats for each row.
    share : float, default 1.0
        Most of what is left of the budget.
    """
    found = fit_evidence(
        evidence, start, noise_floor=noise_floor, max_iter=steps, tol=tol,
        record=run.evaluations("learning", share=share),
    )  # fmt: skip
    kernel, likelihood = found.params
    seconds = found.history.seconds[-1] if len(found.history) else 0.0
    reason = found.message
    if found.converged:
        reason = f"converged: {found.num_iter} steps of learning ended in slopes of {tol:.2g} or less for each row"
    elif found.num_iter >= steps:
        reason = (
            f"{steps} steps of learning did not end in slopes of {tol:.2g} or less for each row"
        )
    elif reason != OUT_OF_TIME:
        reason = "no step of learning finds a higher evidence: the limit of the precision, set dtype='float64'"
    # what ran out of time within its first iteration has a record all the same
    moved = not np.allclose(ravel(found.params)[0], ravel(start)[0], rtol=1e-12)
    loop = LoopResult(
        found.num_iter if moved or found.converged else 0,
        seconds,
        found.converged,
        reason,
        found.history,
    )
    return kernel, float(likelihood.noise_variance), loop
