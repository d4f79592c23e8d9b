"""Answers that stand beside a method's own: linear functions, and the exact posterior of some rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from vastgp import _accelerator
from vastgp.data import Rows, nearly_repeated, observations
from vastgp.data.minibatch import fixed_indices, standardised_rows
from vastgp.estimators.few_rows import FEW_ROWS, average_of_lines
from vastgp.fitting.dual_evidence import DualEvidence
from vastgp.fitting.history import History
from vastgp.fitting.run import Answer, Run
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.solvers.averaged_posterior import AveragedPosterior
from vastgp.solvers.exact_posterior import DENSE_ROWS, ExactPosterior
from vastgp.solvers.linear_model import LinearPosterior, fit_linear, line_of_few, of_average
from vastgp.solvers.linear_sites import by_plug_in
from vastgp.solvers.plan import affordable_exact, operations_a_second, rows_of_functions
from vastgp.solvers.several_exact import SeveralExact

LINEAR, SUBSET = "linear", "subset"
# Rows of a linear answer, and of functions that need quadrature over several values.
_LINEAR_ROWS, _SITE_ROWS = 20_000, 16_384
# Of several classes and few rows for each weight, whose averages take long, and where there is time.
_SEVERAL_ROWS, _MORE_SEVERAL_ROWS = 1000, 8000
# Rows of more weights than these are as many as there is time for in a share of the budget, at some updates of all of
# them: 785 weights of 16,384 rows took 20 of 15 seconds, of ten classes of 1000 rows 30.
_WEIGHTS_OF_NO_TIME, _OF_LINE, _UPDATES, _FEWEST_ROWS = 201, 0.15, 30, 500
# Numbers in the inputs of a linear answer at most.
_LINEAR_ENTRIES = 20_000_000
# Rows of the exact posterior: a factorisation takes a tenth of a second; of sites some ten of them.
SUBSET_ROWS, _SUBSET_SITE_ROWS = 2000, 1000
# Where the method could not begin, as many as there is time for at some updates, each a factor and an inverse of every
# function. Tenths of protein, by 100 rows, 464 and 1000: NLPD 2.25, 2.06 and 1.98 in 0.7, 0.7 and 4.4 s.
_MOST_SITE_ROWS, _SITE_UPDATES = 2000, 30
# Nats a row that an update of sites gains at least: with a thousandth of it 1000 rows that a function parts took twice
# as long (bike, highest 2 %: 44 updates and 81), and said the same of new ones to 0.0003.
_SETTLED = 1e-5
# Where a second or two more do not matter, and the method's own answer is not to be had.
MORE_ROWS, _MORE_SECONDS = 4000, 30.0
# Where the method could not even begin: as many as there is time for in a share of what is left, and no more than
# these, as each row predicted takes their square.
_MOST_ROWS, _PART_SHARE = 10_000, 0.5
# On an accelerator a row takes next to nothing (H200, 50,000 rows: 1 ms).
_MOST_ON_DEVICE = 50_000
# Uses of the seed, see `fixed_indices`.
_ROWS_OF = {LINEAR: 110, SUBSET: 111}


def linear_answer(model: Any, rows: Rows, run: Run, own: Answer | None) -> Answer:
    """Return the posterior of linear functions of some rows, or of all."""
    del own
    # rows with noise of their own are decomposed some twenty times
    entries = _LINEAR_ENTRIES // (10 if observations.has_own_noise(rows.y) else 1)
    many = max(1, min(_LINEAR_ROWS, entries // rows.d))
    chosen = np.sort(fixed_indices(run.seed, _ROWS_OF[LINEAR], rows.n, many))
    X, y = standardised_rows(rows, model.standardizer_, chosen)
    likelihood = model._simple_likelihood(y)
    if isinstance(likelihood, Gaussian) and len(y) <= FEW_ROWS:
        groups = nearly_repeated(rows.take(chosen)[0])
        lines = line_of_few(X, y, groups)
        kernel, likelihood = of_average(lines, lines.basis).kernel, Gaussian(lines.noise_variance)
        return simple_answer(kernel, likelihood, average_of_lines(lines))
    posterior, likelihood = fit_linear(likelihood, X, y, partial(_rows_of_sites, likelihood, run))
    answer = simple_answer(posterior.kernel, likelihood, posterior)
    return answer if len(chosen) < rows.n else replace(answer, evidence=posterior.evidence)


def _rows_of_sites(likelihood: Likelihood, run: Run, num_rows: int, size: int) -> int:
    """Return of how many rows a line is that is found by sites, of so many weights a function."""
    functions = likelihood.num_latent
    several = _SEVERAL_ROWS if _in_a_hurry(run) else _MORE_SEVERAL_ROWS
    quick = functions == 1 or by_plug_in(likelihood, min(num_rows, _SITE_ROWS), size)
    most = _SITE_ROWS if quick else several
    if size <= _WEIGHTS_OF_NO_TIME and functions * size**2 <= 10 * _WEIGHTS_OF_NO_TIME**2:
        return most

    def within(seconds: float) -> int:
        # moments in float64, and what they add to the precision: two products an update
        of_row = 2.0 * 4.0 * functions * size**2
        return max(_FEWEST_ROWS, int(seconds * operations_a_second() / (_UPDATES * of_row)))

    return run.afforded("rows of a line", most, _OF_LINE, within, alone=True)


def _in_a_hurry(run: Run) -> bool:
    return run.max_seconds is not None and run.max_seconds < _MORE_SECONDS


def subset_answer(model: Any, rows: Rows, run: Run, own: Answer | None) -> Answer | None:
    """Return the exact posterior of some rows at the method's first hyperparameters; None where it has none.

    There are fewer rows where the method has ended well by itself, or where time is short, and as many as there is time
    for where the method has no answer of its own.
    """
    if run.first is None:
        return None
    kernel, likelihood = run.first
    most = rows_of_functions(_SUBSET_SITE_ROWS, likelihood)
    if isinstance(likelihood, Gaussian):
        most = SUBSET_ROWS if _in_a_hurry(run) or (own is not None and own.converged) else MORE_ROWS
        if own is None:
            # a low noise needs float64
            within = partial(affordable_exact, itemsize=8)
            planned = _MOST_ON_DEVICE if _accelerator.is_present() else _MOST_ROWS
            most = max(
                most, run.afforded("rows of a part", planned, _PART_SHARE, within, alone=True)
            )
    elif own is None:
        planned = rows_of_functions(_MOST_SITE_ROWS, likelihood)
        within = partial(_rows_solved_in, functions=likelihood.num_latent)
        most = max(most, run.afforded("rows of a part", planned, _PART_SHARE, within, alone=True))
    X, y = standardised_rows(rows, model.standardizer_, rows_of_subset(run.seed, rows.n, most))
    posterior: ExactPosterior | SeveralExact
    if isinstance(likelihood, Gaussian):
        dense = len(X) <= DENSE_ROWS
        condition = ExactPosterior.condition if dense else ExactPosterior.condition_many
        posterior = condition(kernel, float(likelihood.noise_variance), X, y)[0]
    else:
        sites = DualEvidence(X, y, _SETTLED).solve(kernel, likelihood)
        posterior = SeveralExact.of_sites(kernel, sites, X)
    return simple_answer(kernel, likelihood, posterior)


def rows_of_subset(seed: int, n: int, most: int) -> np.ndarray:
    """Return which rows the exact posterior of so many of them is of, ascending."""
    return np.sort(fixed_indices(seed, _ROWS_OF[SUBSET], n, most))


def _rows_solved_in(seconds: float, functions: int) -> int:
    """Return of how many rows sites are found in so many seconds: 4 n^3 / 3 operations in float64 an update."""
    of_cube = 2.0 * _SITE_UPDATES * functions * 4.0 / 3.0
    return int((seconds * operations_a_second() / of_cube) ** (1.0 / 3.0))


def simple_answer(kernel: Any, likelihood: Likelihood, posterior: Any) -> Answer:
    """Return a posterior as an answer."""
    return Answer(kernel, likelihood, lambda: posterior, 0, "a simple answer", False, History())


SIMPLE: dict[str, Callable[..., Answer | None]] = {LINEAR: linear_answer, SUBSET: subset_answer}
_POSTERIORS = {
    each.__name__: each
    for each in (LinearPosterior, ExactPosterior, SeveralExact, AveragedPosterior)
}  # fmt: skip


def posterior_to_state(posterior: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the posterior of a simple answer as JSON-able data and arrays."""
    state, arrays = posterior.to_state()
    return {"posterior": type(posterior).__name__, **state}, arrays


def posterior_from_state(state: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Return the posterior that `posterior_to_state` described."""
    return _POSTERIORS[state["posterior"]].from_state(state, arrays)
