"""Inference of the hyperparameters of a fixed basis: by their highest evidence, or by Markov chains."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import LbfgsResult, maximise
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Run
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.reweighted.chains import ChainSteps, HyperPosterior, run_chains, starts_around
from vastgp.methods.reweighted.diagnosis import Chains, problems_of
from vastgp.methods.reweighted.evidence import EvidenceData, prepare
from vastgp.methods.reweighted.latent_chains import LatentRows, draw_latent_hyperparameters
from vastgp.methods.reweighted.latent_values import LatentModel
from vastgp.methods.reweighted.model import Features, FixedBasisModel
from vastgp.methods.reweighted.options import NUTS, MarkovChains, TypeII
from vastgp.methods.reweighted.weight_priors import WeightPrior

# Chains begin around the mode, at normal distances of so many of the prior's standard deviations: wider than the
# posterior, so that chains which agree have found it, and no wider than where it can be found from.
_OVERDISPERSED = 1.0
_MODE_ITERATIONS, _MODE_TOL, _MODE_SHARE = 200, 1e-4, 0.2

MakePrior = Callable[[EvidenceData], WeightPrior]


class Found(NamedTuple):
    """A model, and how its inference ended: see `vastgp.fitting.run.Answer`."""

    model: FixedBasisModel
    n_iter: int
    reason: str
    converged: bool
    history: History
    advice: str
    log_evidence: float | None = None


def infer(
    features: Features,
    statistics: SufficientStatistics,
    make_prior: MakePrior,
    mean: np.ndarray,
    how: Any,
    run: Run,
    *,
    noise_floor: float,
    learned: LbfgsResult | None = None,
) -> Iterator[Found]:
    """Infer hyperparameters from sums over the rows alone.

    Parameters
    ----------
    features : Features
    statistics : SufficientStatistics
        Of these features.
    make_prior : callable
        Gives the family of priors of the weights, when the rank of the features is known.
    mean : ndarray of shape (m,)
        Prior mean of the weights.
    how : TypeII or MarkovChains
        With all fields set.
    run : Run
    noise_floor : float
        Least noise variance, of searches alone: chains have the hyper-prior.
    learned : LbfgsResult, optional
        How the functions themselves were learned.
    """
    with precision("float64"):
        data = prepare(statistics, mean)
    prior = make_prior(data)
    target = HyperPosterior(prior, data)
    start = prior.start()
    start[0] = np.log(features.noise_variance)
    if isinstance(how, TypeII):
        limits: dict[str, Any] = {"max_iter": how.max_iter, "tol": how.tol}
        found = maximise_hyperparameters(
            target, start, noise_floor=noise_floor, with_prior=False,
            record=run.evaluations("evidence"), **limits,
        )  # fmt: skip
        model = FixedBasisModel(features, prior, data, found.params[None], mean)
        yield _highest(model, found, learned, how)
        return
    record = run.evaluations("mode")
    most = record.max_seconds
    mode = maximise_hyperparameters(
        target, start, noise_floor=noise_floor, with_prior=True, max_iter=_MODE_ITERATIONS, tol=_MODE_TOL,
        record=record, max_seconds=None if most is None else _MODE_SHARE * most,
    )  # fmt: skip
    yield _at_mode(features, prior, data, mean, mode, run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of libraries
        chains = draw_hyperparameters(target, mode.params, how, run)
    yield _of_chains(features, prior, data, mean, chains, how)


def infer_latent(
    features: Features,
    statistics: SufficientStatistics,
    make_prior: MakePrior,
    rows: Callable[[EvidenceData], LatentRows],
    latent: LatentModel,
    how: MarkovChains,
    run: Run,
) -> Iterator[Found]:
    """Infer hyperparameters from observations that depend on latent values.

    Parameters
    ----------
    features, statistics, make_prior, how, run
        As in `infer`.
    rows : callable
        Gives the rows, when their sums are prepared.
    latent : LatentModel
    """
    with precision("float64"):
        data = prepare(statistics, None)
    prior = make_prior(data)
    chains = draw_latent_hyperparameters(prior, data, rows(data), latent, how, run)
    yield _of_chains(features, prior, data, np.zeros(data.num_basis), chains, how)


def _highest(
    model: FixedBasisModel, found: LbfgsResult, learned: LbfgsResult | None, how: Any
) -> Found:
    """Return the answer of highest evidence, with what the learning of the functions before it has to say."""
    n_iter, converged, message, history = (
        found.num_iter,
        found.converged,
        found.message,
        found.history,
    )
    if learned is not None:
        n_iter, converged = n_iter + learned.num_iter, converged and learned.converged
        message = message if learned.converged else learned.message
        history = learned.history
    if len(history) == 0:  # the start was the optimum
        history.append(1, 0.0, {"objective": found.value})
    advice = f"give more time (max_seconds), or raise max_iter (now {how.max_iter}) or tol (now {how.tol:g}) of TypeII."
    return Found(model, max(n_iter, 1), message, converged, history, advice, found.value)


def _at_mode(
    features: Features, prior: WeightPrior, data: EvidenceData, mean: np.ndarray, mode: LbfgsResult, run: Run
) -> Found:  # fmt: skip
    """Return the answer before the chains: the mode as the only draw."""
    nothing = np.full(len(mode.params), np.nan)
    one = np.ones((1, 1))
    chains = Chains(
        mode.params[None, None], mode.value * one, one, one < 0, None, nothing, nothing, one[0], 1, "", mode.history
    )  # fmt: skip
    model = FixedBasisModel.of_chains(features, prior, data, mean, chains, 1)
    if len(mode.history) == 0:
        mode.history.append(1, 0.0, {"objective": mode.value})
    reason = OUT_OF_TIME if run.out_of_time else "chains have not begun"
    advice = (
        "predictions are those of one value of the hyperparameters. Give more time (max_seconds)."
    )
    return Found(model, max(mode.num_iter, 1), reason, False, mode.history, advice)


def _of_chains(
    features: Features, prior: WeightPrior, data: EvidenceData, mean: np.ndarray, chains: Chains, how: MarkovChains
) -> Found:  # fmt: skip
    model = FixedBasisModel.of_chains(features, prior, data, mean, chains, how.num_components)
    problems = "; ".join(problems_of(chains))
    reason = chains.reason
    if problems and reason != OUT_OF_TIME:
        reason = f"the draws of the hyperparameters are not to be relied on: {problems}"
    other = "" if isinstance(how, NUTS) else " inference='nuts',"
    advice = (
        f"raise num_warmup and num_steps of {type(how).__name__} (or max_seconds), or take{other} fewer basis "
        "functions."
    )
    converged = chains.reason != OUT_OF_TIME and not problems
    return Found(model, chains.num_steps, reason, converged, chains.history, advice)


def maximise_hyperparameters(
    target: HyperPosterior,
    start: np.ndarray,
    *,
    noise_floor: float,
    with_prior: bool,
    max_iter: int,
    tol: float,
    **limits: Any,
) -> LbfgsResult:
    """Return the hyperparameters of highest evidence (type II), or of highest posterior density.

    Parameters
    ----------
    target : HyperPosterior
    start : ndarray of shape (D,)
    noise_floor : float
        Least noise variance.
    with_prior : bool
        Whether the hyper-prior counts.
    max_iter, tol, **limits
        As in `maximise`; ``tol`` is per row.

    Returns
    -------
    LbfgsResult
        ``params`` is ``theta``.
    """
    lower, upper = target.prior.bounds(noise_floor)
    with precision("float64"):
        own = jax.device_put(jax.tree.map(np.asarray, target))

    def objective(positive: np.ndarray) -> tuple[float, np.ndarray]:
        with precision("float64"):
            value, slope = _value_and_slope(own, np.log(positive), with_prior)
        if not np.isfinite(float(value)):
            raise FactorizationError("the evidence is not finite at these hyperparameters")
        return float(value), np.asarray(slope) / positive

    # `maximise` is for positive numbers and moves their logarithms: theta is the logarithms
    found = maximise(
        objective,
        np.exp(np.clip(start, lower, upper)),
        lower=np.exp(lower),
        upper=np.exp(upper),
        max_iter=max_iter,
        tol=tol,
        scale=max(float(target.data.num_rows), 1.0),
        **limits,
    )
    return dataclasses.replace(found, params=np.log(found.params))


@eqx.filter_jit
def _value_and_slope(
    target: HyperPosterior, theta: Float[Any, " D"], with_prior: bool
) -> tuple[Array, Array]:
    def value(theta: Array) -> Array:
        return target(theta) if with_prior else target.prior.log_evidence(target.data, theta)

    return jax.value_and_grad(value)(theta)


def draw_hyperparameters(
    target: HyperPosterior, mode: np.ndarray, plan: MarkovChains, run: Run
) -> Chains:
    """Return draws of the hyperparameters (type I): chains that begin around the mode of their posterior density."""
    scale = target.prior.scale(target.data)
    starts = starts_around(mode, _OVERDISPERSED * scale, plan.num_chains, run.seed)
    with precision("float64"):
        steps = ChainSteps(target, plan, run.seed)
    return run_chains(steps, starts, scale, run)
