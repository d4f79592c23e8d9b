"""Each row is predicted from the training rows nearest to it: every row is an inducing input, and nothing is solved.

With inducing inputs at all rows the sparse-within-sparse posterior of a row needs no variational distribution: what is
known there are the targets, whose noise is known. Given the H rows nearest to ``x`` (Vecchia 1988; Allison, Stephenson
and others 2023, "Leveraging locality and robustness to achieve massively scalable Gaussian process regression"),

    f(x) | y  ~  N(k^T (K + N)^-1 y,  k(x, x) - k^T (K + N)^-1 k),      N the noise variances of these rows.

Kernel and noise are those by which some rows are likeliest, each given its nearest others: the evidence of few rows,
which are far from each other, says little of what the function does between near ones. Or by which they are likeliest
each given the nearest before it, see `vastgp.methods.swsgp.ordered_evidence`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vastgp.data import Rows, Standardizer, processes
from vastgp.data.minibatch import spread_indices, standardised_rows
from vastgp.data.shared_rows import SharedArray
from vastgp.estimators.inducing_inputs import inducing_attributes
from vastgp.fitting.history import History
from vastgp.fitting.run import Answer, Run
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.methods.swsgp.local_scale import LEAST_ROWS, LocalScale, local_scale_of
from vastgp.methods.swsgp.near_rows import LADDER, Judges, NearRows
from vastgp.methods.swsgp.nearest_learning import (
    ROUNDS,
    STEPS,
    Asked,
    learn_near,
    search_again,
)
from vastgp.methods.swsgp.nearest_posterior import NearestPosterior
from vastgp.methods.swsgp.shared_near_rows import SharedNearRows

# Of what is left of the budget after learning, for a last search of all rows; of what is left then, for scales of the
# rows' own.
_FOR_LAST_SEARCH, _FOR_SCALE = 0.5, 0.5
# Standard errors by which a factor of all variances must differ from one that most rows agree with.
_DOUBT = 3.0
# A use of the seed, see `spread_indices`.
_SEEN = 120


def check_nearest(likelihood: Any, inducing_inputs: Any, normal: bool) -> None:
    """Refuse what ``solver="nearest"`` is not for.

    Parameters
    ----------
    likelihood, inducing_inputs
        Of the estimator.
    normal : bool
        Whether noise is normal, with one variance or with one that varies.
    """
    if not normal:
        raise ValueError(
            "solver='nearest' takes the targets of neighbouring rows for the function with normal noise, and "
            f"likelihood={likelihood!r} is another. Set solver='sparse', or leave it out."
        )
    if not (isinstance(inducing_inputs, str) and inducing_inputs == "auto"):
        raise ValueError(
            "inducing_inputs has no effect with solver='nearest', whose inducing inputs are the rows: leave it out, or "
            "set solver='sparse'."
        )


def fit_nearest(
    rows: Rows, standardizer: Standardizer, first: tuple[Kernel, Gaussian], asked: Asked, run: Run
) -> Answer:
    """Keep the rows that predictions are made from, and find kernel, noise and the number of neighbours.

    Parameters
    ----------
    rows, standardizer
    first : tuple of Kernel and Gaussian
        In standardised units.
    asked : Asked
    run : Run
    """
    near, may_vary = near_rows(rows, standardizer, asked, run.seed), asked.varies
    asked = asked._replace(varies=may_vary and near.num_rows >= LEAST_ROWS)
    judges = Judges(near, asked.varies)
    params, history, steps, unfinished = first, History(), 0, ""
    if asked.floor is not None and near.num_rows > 1:
        params, history, steps, unfinished = learn_near(first, near, judges, asked, run)
    posterior, ends = _settle(params, near, judges, asked, not unfinished, run)
    # a thousand rows, each given 512 others, take 5 s
    scores = judges.scores(posterior, few=posterior.num_neighbors > LADDER[1])
    reason = f"each row is predicted from the {posterior.num_neighbors} rows nearest to it"
    if unfinished:
        reason = f"{unfinished}; {reason}"
    diagnosis = {
        "objective": float(np.mean(scores)),
        "objective_se": float(np.std(scores) / np.sqrt(len(scores))),
        "searches": 1,
        "recall": posterior.recall,
        "stale": 0.0,
        "neighbors": posterior.num_neighbors,
        "factor": float(ends["factor"]),
    }
    if may_vary:
        diagnosis |= {"noise_varies": posterior.scale is not None, "noise_gain": ends["gain"]}
    return Answer(
        posterior.kernel,
        posterior.likelihood,
        lambda: posterior,
        steps,
        reason,
        not unfinished,
        history,
        advice=f"give more time (max_seconds); without a limit there are {ROUNDS} rounds of {STEPS} steps.",
        attributes={"diagnosis_": diagnosis, "solver_": "nearest"}
        | inducing_attributes(near.inputs, standardizer)
        | {"num_inducing_": near.num_rows},
    )


def near_rows(rows: Rows, standardizer: Standardizer, asked: Asked, seed: int) -> NearRows:
    """Return the rows that are kept: of several processes each keeps those that it has."""
    local, first = rows.local, rows.first
    kept = spread_indices(seed, _SEEN, rows.n, asked.kept, first, first + local.n)
    X, y = standardised_rows(local, standardizer, kept - first)
    if local is rows:
        return NearRows(X, y, asked.solver, seed)
    counts = [int(n) for n in processes.gathered(np.int64(len(X)))]
    shared = SharedArray(X, counts), SharedArray(y, counts)
    return SharedNearRows(*shared, asked.solver, seed)


def _settle(
    params: tuple[Kernel, Gaussian],
    near: NearRows,
    judges: Judges,
    asked: Asked,
    learned: bool,
    run: Run,
) -> tuple[NearestPosterior, dict[str, Any]]:
    """Return the posterior with as many neighbours as are of use, and on the scale that rows have; and what it has."""
    kernel, noise = params
    first = near.posterior(params, min(asked.neighbors or LADDER[0], near.num_rows))

    # what judges is to be as near as what new rows are predicted from: 1.8 million rows of houseelectric, given the
    # nearest in the metric of the start, were off by 0.41 of their deviations (the median), new ones by 0.44 and
    # intervals of 95 % held 91 %
    search_again(
        kernel, near, run, "time for a last search", lambda: run.seconds_left(_FOR_LAST_SEARCH)
    )

    def settled() -> dict[str, Any]:
        # what the clock has a say in is kept in the file of the fit
        found, scale, gain = first, None, 0.0
        # when time is up the first number of neighbours stands, and one scale
        if not (asked.neighbors or run.out_of_time):
            found = judges.with_neighbors(first, run)
        if asked.varies and not run.out_of_time:
            scale, gain = local_scale_of(judges.scattered(found, run.seconds_left(_FOR_SCALE)))
        # what most rows say in order of the amplitude is doubted by few rows where these are sure
        doubt = _DOUBT if asked.solver.evidence == "ordered" and learned else 0.0
        known = asked.floor is None or scale is not None
        return {
            "neighbors": found.num_neighbors,
            "factor": 1.0 if known else judges.factor(found, doubt),
            "scale": None if scale is None else scale.to_state(),
            "gain": gain,
        }

    ends = run.once("neighbours", settled, is_cut=lambda _: run.out_of_time)
    # no smaller than leaves the noise that was asked for
    factor = max(float(ends["factor"]), asked.least / float(noise.noise_variance))
    ends = ends | {"factor": factor}
    params = kernel.in_units(1.0, factor**0.5), Gaussian(factor * float(noise.noise_variance))
    posterior = near.posterior(params, int(ends["neighbors"]))
    if ends["scale"] is not None:
        posterior = replace(posterior, scale=LocalScale(**ends["scale"]))
    return posterior, ends
