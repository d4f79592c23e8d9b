"""The answer of the block solver: learning or sites first, then the posterior's mean and samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from vastgp._precision import as_dtype
from vastgp.bases import PairedBasis, RandomFourierBasis
from vastgp.data import Rows, Standardizer
from vastgp.estimators.searches import Learn
from vastgp.fitting.loop import LoopResult
from vastgp.fitting.run import Answer, Run
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.qsgp.block_learning import ITERATIONS, RATE, STEPS, is_exact, learn_block
from vastgp.methods.qsgp.options import Block
from vastgp.solvers.block import BlockFit, build_system, choose_space, fit_block, standardised
from vastgp.solvers.plan import Plan, affordable_rank, plan_rows, rows_of_functions
from vastgp.solvers.sites import MOST_EXACT, find_sites
from vastgp.solvers.systems import System
from vastgp.solvers.weight_space import SampledPosterior

# Share of what is left of the budget that learning on all rows may take.
_LEARNING_SHARE = 0.6
# Most updates of the sites of other likelihoods than the Gaussian.
_MOST_SITE_UPDATES = 50
# Of what is left of the budget: for the preconditioner, and for each of those that a search for sites makes.
_PRECONDITIONER_SHARE, _MANY_PRECONDITIONERS = 1.0 / 3.0, 0.1


def fit_block_answers(
    rows: Rows,
    standardizer: Standardizer,
    basis: PairedBasis,
    likelihood: Likelihood,
    options: Block,
    run: Run,
    *,
    search: Any,
    tol: float,
    dtype: str,
) -> Iterator[Answer]:
    """Give the answer of `fit_block`, after learning or a search for sites where they are wanted.

    Parameters
    ----------
    basis, likelihood
        In standardised units: the hyperparameters to start from.
    search : Subset, Learn or Fixed
        `Learn` goes on from there on all rows.
    """
    before: LoopResult | None = None
    start = None
    if isinstance(likelihood, Gaussian):
        if isinstance(search, Learn):
            assert isinstance(basis, RandomFourierBasis)
            steps = ITERATIONS if is_exact(rows.n, basis.num_basis) else STEPS
            search = search.given(steps=steps, rate=RATE)
            kernel, likelihood, before = learn_block(
                basis, likelihood, rows, standardizer, run,
                steps=search.steps, rate=search.rate, noise_floor=search.noise_floor,
                rank=options.rank, tol=tol, dtype=dtype, share=_LEARNING_SHARE,
            )  # fmt: skip
            basis = basis.with_kernel(kernel)
        space = choose_space(
            rows, standardizer, basis.num_basis, 1 + options.num_samples, dtype, options.rank
        )
        if options.rank is None and space[1] is not None:
            rank = _rank_in_time(space[0].rank, len(space[1].y), run)
            space = space[0]._replace(rank=rank), space[1]
        system, plan = build_system(
            basis, float(likelihood.noise_variance), rows, standardizer,
            num_samples=options.num_samples, seed=run.seed, dtype=dtype, widen=True, space=space,
        )  # fmt: skip
    else:
        system, plan, start, before = _site_system(
            rows, standardizer, basis, likelihood, options, run, tol=tol, dtype=dtype
        )
    fit = fit_block(system, plan, run, tol=tol, max_products=options.max_products, start=start)
    yield _answer(fit, as_dtype(basis, dtype), likelihood, options, before, tol)


def _site_system(
    rows: Rows,
    standardizer: Standardizer,
    basis: PairedBasis,
    likelihood: Likelihood,
    options: Block,
    run: Run,
    *,
    tol: float,
    dtype: str,
) -> tuple[System, Plan, Any, LoopResult | None]:
    """Find the sites of a likelihood; return the system that they make, where to start, and how they were found."""
    X, y = standardised(rows, standardizer, dtype)
    columns = 1 + options.num_samples
    rank, _ = plan_rows(len(y), basis.num_basis, columns, X.dtype.itemsize, options.rank, rows.d)
    if options.rank is None and len(y) > rows_of_functions(MOST_EXACT, likelihood):
        rank = _rank_in_time(rank, len(y), run, _MANY_PRECONDITIONERS)
    found = find_sites(
        as_dtype(basis, dtype), likelihood, X, y, run,
        num_samples=options.num_samples, rank=rank, tol=tol, max_iter=_MOST_SITE_UPDATES,
    )  # fmt: skip
    start = None if found.dual is None else found.dual / found.system.scale
    return found.system, Plan("rows", rank), start, found.loop


def _rank_in_time(planned: int, num_rows: int, run: Run, share: float = 1.0) -> int:
    """Return the planned rank, or what its share of the budget affords: products are to follow."""
    return run.afforded(
        "rank", planned, _PRECONDITIONER_SHARE * share, lambda left: affordable_rank(num_rows, left)
    )


def _answer(
    fit: BlockFit,
    basis: PairedBasis,
    likelihood: Likelihood,
    options: Block,
    before: LoopResult | None,
    tol: float,
) -> Answer:
    """Return what the solver found, after learning, a search for sites, or neither."""
    diagnosis: dict[str, Any] = {
        "residual": float(fit.residuals[0]),
        "residual_samples": float(np.sqrt(np.mean(fit.residuals[1:] ** 2))),
        "effective_samples": int(options.num_samples),
        "variance_relative_se": float((2.0 / options.num_samples) ** 0.5),
        "space": fit.plan.space,
        "rank": int(fit.plan.rank),
    }
    if before is not None and not isinstance(likelihood, Gaussian):
        of_sites = {name: before.history.last(name) for name in ("change", "rate")}
        diagnosis |= {"site_updates": before.num_iter} | of_sites
    ends = [fit.loop] if before is None else [before, fit.loop]
    # the solution first: without it predictions are not those of the model
    last = next((end for end in ends[::-1] if not end.converged), fit.loop)
    return Answer(
        basis.kernel,
        likelihood,
        lambda: SampledPosterior(basis, *fit.solution),
        sum(end.num_iter for end in ends),
        last.reason,
        last.converged,
        # the search is where the work is; the solution starts from its last one
        ends[0].history,
        advice=f"residual {diagnosis['residual']:.2g} of the noise (tol = {tol:g}). Predictions lie between those of "
        "the prior and of the posterior, and their standard deviations include what is left undone. Give more time "
        "(max_seconds, Block(max_products=...)), fewer basis functions, or a larger noise_floor: "
        "hyperparameters=Subset(noise_floor=...).",
        attributes={"diagnosis_": diagnosis},
    )
