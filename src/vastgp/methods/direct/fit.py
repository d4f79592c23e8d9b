"""The weights of one function: from a quadratic likelihood to their approximate posterior, in answers that improve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from vastgp._precision import precision
from vastgp.fitting.history import History
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Run
from vastgp.methods.direct.mixture_training import (
    fit_mixture_bound,
    fit_mixture_sampled,
    spread_out,
)
from vastgp.methods.direct.model import (
    DiscreteLogits,
    DiscreteModel,
    QuadraticLikelihood,
    discrete_model,
    values_now,
    weights_moments,
)
from vastgp.methods.direct.options import MeanField, Mixture, Support
from vastgp.methods.direct.start import NormalWeights, normal_weights, residual_of
from vastgp.methods.direct.training import (
    DiscreteFit,
    fit_mean_field,
    softmax,
    start_mean_field,
)

# A start is good enough where sweeps gain no more than this, in nats.
_LEAST_GAIN = 1.0
# Learned noise: values from this part of the first one to this multiple of it, so many.
_NOISE_REACH, _NOISE_VALUES = 10.0, 15


class FittedWeights(NamedTuple):
    """What was found for one function, in plain numbers.

    ``rounding`` is how much farther from the targets the mean is than that of normal weights, in squared distance per
    row: what values so far apart cannot express.
    """

    values: np.ndarray
    probabilities: np.ndarray
    mixture: np.ndarray
    noise_probabilities: np.ndarray
    fit: DiscreteFit
    rounding: float


@dataclass(frozen=True)
class Recipe:
    """How weights are fitted.

    Attributes
    ----------
    support : Support
    family : MeanField or Mixture
    learn_spacing : bool
    tol : float
        In nats per row.
    rows : int
    """

    support: Support
    family: MeanField
    learn_spacing: bool
    tol: float
    rows: int

    def model(
        self, likelihood: QuadraticLikelihood, noise: np.ndarray | None = None
    ) -> DiscreteModel:
        """Return the model of whitened weights; must run in double precision."""
        values = self.values(len(likelihood.target))
        noise = np.ones(1) if noise is None else noise
        return discrete_model(likelihood, values, self.support.masses(), noise)

    def values(self, size: int) -> np.ndarray:
        """Return what each of so many weights can be before learning, (size, k)."""
        return np.tile(self.support.levels(), (size, 1))


def fit_weights(
    likelihood: QuadraticLikelihood,
    noise: np.ndarray,
    noise_variance: float,
    recipe: Recipe,
    run: Run,
) -> Iterator[FittedWeights]:
    """Fit the weights of one function: at their start, by Newton's method, and as a mixture where one is asked for.

    Parameters
    ----------
    likelihood : QuadraticLikelihood
        Of weights in the units of the basis.
    noise : ndarray of shape (s,)
        What the noise variance can be.
    noise_variance : float
        Where to start.
    recipe : Recipe
    run : Run
    """
    with precision("float64"):
        model, normal = recipe.model(likelihood, noise), normal_weights(likelihood, noise_variance)
        logits, bound, sweeps = begin(model, normal, recipe, run)
        history = History([max(sweeps, 1)], [run.elapsed()], {"objective": [bound]})
        fit = DiscreteFit(logits, bound, max(sweeps, 1), OUT_OF_TIME, history=history)
    yield as_fitted(fit, model, normal.residual)
    yield from improve(logits, model, recipe, run, residual=normal.residual)


def improve(
    logits: DiscreteLogits,
    model: DiscreteModel,
    recipe: Recipe,
    run: Run,
    name: str = "",
    residual: float | None = None,
    share: float = 1.0,
) -> Iterator[FittedWeights]:
    """Go on from some logits with a share of what is left: by Newton's method, then as a mixture if asked for."""
    family, limits = recipe.family, {"rows": recipe.rows, "tol": recipe.tol}
    with precision("float64"):
        fit = fit_mean_field(
            model, logits, run, f"{name}weights", max_iter=family.max_iter, share=share, **limits
        )
    yield as_fitted(fit, model, residual)
    if not isinstance(family, Mixture):
        return
    with precision("float64"):
        logits = spread_out(fit.logits, family.components, run.seed)
        if family.objective == "unbiased":
            # `resolved_family` has seen to it
            assert family.draws is not None
            assert family.max_steps is not None
            fit = fit_mixture_sampled(
                model, logits, run, f"{name}mixture",
                draws=family.draws, max_steps=family.max_steps, **limits,
            )  # fmt: skip
        else:
            center = jnp.log(jnp.asarray(softmax(fit.logits.weights))[0] + 1e-18)
            fit = fit_mixture_bound(
                model, logits, center, run, f"{name}mixture", max_iter=family.max_iter, **limits,
            )  # fmt: skip
    yield as_fitted(fit, model, residual)


def last_in_time(answers: Iterator[FittedWeights], run: Run) -> FittedWeights:
    """Return the last answer, or the first one that is given after the budget was used up."""
    found = next(answers)
    while not run.out_of_time and (better := next(answers, None)) is not None:
        found = better
    return found


def begin(
    model: DiscreteModel, normal: NormalWeights, recipe: Recipe, run: Run, name: str = ""
) -> tuple[DiscreteLogits, float, int]:
    """Return logits to start from, the bound there, and the sweeps that were done; in double precision."""
    near = normal if recipe.family.start == "posterior" else None

    def compute() -> list[Any]:
        logits, bound, sweeps = start_mean_field(
            model, normal=near, learn_spacing=recipe.learn_spacing,
            tol=max(recipe.tol * recipe.rows, _LEAST_GAIN), deadline=run.deadline,
        )  # fmt: skip
        return [[None if leaf is None else np.asarray(leaf) for leaf in logits], bound, sweeps]

    leaves, bound, sweeps = run.once(f"{name}start", compute, is_cut=lambda _: run.out_of_time)
    return DiscreteLogits(*leaves), bound, sweeps


def noise_values(noise_variance: float, least: float) -> np.ndarray:
    """Return what a learned noise variance can be, evenly spaced in its logarithm."""
    reach = np.log(_NOISE_REACH)
    values = noise_variance * np.exp(np.linspace(-reach, reach, _NOISE_VALUES))
    return values[values >= min(least, noise_variance)]


def as_fitted(
    fit: DiscreteFit, model: DiscreteModel, residual: float | None = None
) -> FittedWeights:
    """Return a fit in plain numbers; ``residual`` is that of normal weights."""
    with precision("float64"):
        logits = fit.logits
        values = values_now(logits, model.values)
        q, alpha, noise = (softmax(part) for part in (logits.weights, logits.mixture, logits.noise))
        rounding = 0.0
        if residual is not None:
            own = residual_of(model.likelihood, weights_moments(logits, model.values).mean)
            rounding = max(own - residual, 0.0)
    return FittedWeights(values, q, alpha, noise, fit, rounding)
