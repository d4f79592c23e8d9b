"""The answer that averages over hyperparameters: they are drawn around the learned ones, and each has its solve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vastgp.fitting.hyperparameter_average import DrawnParams, draw_around
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Answer, Run
from vastgp.likelihoods import Gaussian
from vastgp.methods.grid.averaged import AveragedGridPosterior
from vastgp.methods.grid.evidence import GridObjective, Params
from vastgp.methods.grid.noise import common_noise
from vastgp.methods.grid.posterior import GridPosterior
from vastgp.methods.grid.start import bounds


def draw_params(
    objective: GridObjective,
    learned: Params,
    floor: float,
    most_noise: float,
    num_components: int,
    run: Run,
) -> DrawnParams | None:
    """Return kernels and noise variances to average over; None when time ran out.

    Noise variances of several outputs keep their ratios, so that values have the same units in all parts.
    """
    kernel, noise = learned[0], np.asarray(learned[1], np.float64)
    typical = common_noise(np.ravel(noise))[0]

    def value_and_gradient(params: Any) -> tuple[float, Any]:
        value, (by_kernel, by_noise) = objective.objective((params[0], params[1] * noise))
        return value, (by_kernel, np.sum(by_noise * noise))

    low, high = bounds(kernel, objective.axes)
    drawn = draw_around(
        value_and_gradient,
        (kernel, np.array(1.0)),
        lower=(low, min(floor / typical, 1.0)),
        upper=(high, max(most_noise / typical, 1.0)),
        num_draws=num_components,
        seed=run.seed,
        record=run.evaluations("average over hyperparameters"),
    )
    if drawn is None:
        return None
    return drawn._replace(params=[(kernel, factor * noise) for kernel, factor in drawn.params])


def averaged_answer(
    answer: Answer, objective: GridObjective, drawn: DrawnParams, scale: np.ndarray, seed: int
) -> Answer:
    """Return an answer whose posterior is the mixture of those at drawn hyperparameters.

    Parameters
    ----------
    answer : Answer
        At the learned hyperparameters.
    objective : GridObjective
    drawn : DrawnParams
    scale : ndarray
        Units of the values; those of the answer have the ratios of noise of several outputs in them.
    seed : int
    """
    units = np.ravel(answer.attributes["value_scale_"] / scale)
    parts, converged, residual = [], answer.converged, float(answer.attributes["residual_"])
    for kernel, noise in drawn.params:
        found = objective.solve(kernel.normalised(), noise)
        kernel = kernel.normalised(1.0 / units) if len(units) > 1 else kernel.normalised()
        noise = common_noise(np.ravel(noise))[0]
        solver = found.system.solver
        parts.append(GridPosterior(kernel, noise, objective.axes, found.filled(), solver, seed))
        converged = converged and found.solution.converged
        residual = max(residual, found.solution.residual)
    objective.solver.deadline = None
    posterior = AveragedGridPosterior(tuple(parts), drawn.weights)
    reason, advice = answer.reason, answer.advice
    if not drawn.complete:
        reason = f"{reason}; {OUT_OF_TIME}, hyperparameters being drawn"
        advice = "raise max_seconds, or set num_components lower."
    return replace(
        answer,
        reason=reason,
        advice=advice,
        likelihood=Gaussian(posterior.noise_variance),
        posterior=lambda: posterior,
        converged=converged and drawn.complete,
        attributes=dict(answer.attributes) | {"residual_": residual},
    )
