"""Small problems of discrete weights with every hypothesis written down."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax, logsumexp

from vastgp.methods.direct.model import (
    DiscreteLogits,
    DiscreteModel,
    DiscretePrior,
    QuadraticLikelihood,
)


class Case(NamedTuple):
    """Features (n, b), targets, and the model that their statistics make."""

    phi: np.ndarray
    y: np.ndarray
    model: DiscreteModel


def small_case(seed=0, n=12, b=6, k=3, noises=3, prior_parts=1) -> Case:
    """Return a random problem with uneven values, other ones for every weight."""
    rng = np.random.default_rng(seed)
    phi, y = rng.normal(size=(n, b)), rng.normal(size=n)
    values = np.sort(rng.normal(size=(b, k)), axis=1)
    log_mass = log_softmax(rng.normal(size=(prior_parts, b, k)), axis=-1)
    return Case(
        phi,
        y,
        DiscreteModel(
            QuadraticLikelihood(float(n), float(y @ y), phi.T @ y, phi.T @ phi),
            values,
            DiscretePrior(log_mass, log_softmax(rng.normal(size=prior_parts))),
            np.exp(rng.normal(size=noises)),
            log_softmax(rng.normal(size=noises)),
        ),
    )


def random_logits(model: DiscreteModel, components: int = 1, seed: int = 1) -> DiscreteLogits:
    """Return parameters far from any maximum."""
    rng = np.random.default_rng(seed)
    return DiscreteLogits(
        rng.normal(size=(components, *model.values.shape)),
        rng.normal(size=components),
        rng.normal(size=len(model.noise)),
    )


class Hypotheses(NamedTuple):
    """All ``k^b`` combinations: codes and weights (m, b), ``log q`` of components (r, m) and mixture, ``log p``."""

    codes: np.ndarray
    weights: np.ndarray
    by_part: np.ndarray
    log_q: np.ndarray
    log_p: np.ndarray


def enumerate_all(model: DiscreteModel, logits: DiscreteLogits) -> Hypotheses:
    """Write every hypothesis down."""
    b, k = model.values.shape
    codes = np.array(list(product(range(k), repeat=b)))
    each = np.arange(b)
    log_parts = log_softmax(logits.weights, axis=-1)
    by_part = np.stack([part[each, codes].sum(axis=1) for part in log_parts])
    log_alpha = log_softmax(logits.mixture)
    log_mass = np.broadcast_to(model.prior.log_mass, (len(model.prior.log_weights), b, k))
    of_prior = np.stack([part[each, codes].sum(axis=1) for part in log_mass])
    return Hypotheses(
        codes,
        np.asarray(model.values)[each, codes],
        by_part,
        logsumexp(by_part + log_alpha[:, None], axis=0),
        logsumexp(of_prior + model.prior.log_weights[:, None], axis=0),
    )


def enumerated_elbo(case: Case, logits: DiscreteLogits) -> float:
    """Return the evidence lower bound by (7.2): a sum over all hypotheses and all values of the noise."""
    every = enumerate_all(case.model, logits)
    q = np.exp(every.log_q)
    misfit = np.sum((case.y - every.weights @ case.phi.T) ** 2, axis=1)
    log_noise_q = log_softmax(logits.noise)
    total = float(q @ (every.log_p - every.log_q))
    for v, log_qv, log_pv in zip(
        case.model.noise, log_noise_q, case.model.log_noise_prior, strict=True
    ):
        log_likelihood = -0.5 * misfit / v - 0.5 * len(case.y) * np.log(2 * np.pi * v)
        total += np.exp(log_qv) * (q @ log_likelihood + log_pv - log_qv)
    return total
