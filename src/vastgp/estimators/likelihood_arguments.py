"""Likelihoods of regressors as they are given: a name, or an object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vastgp.likelihoods import (
    Bernoulli,
    HeteroskedasticGaussian,
    Likelihood,
    LocallyScaled,
    from_name,
)
from vastgp.likelihoods.several_classes import SeveralClasses
from vastgp.likelihoods.spec import NAMES

REGRESSION = (
    "gaussian", "laplace", "student-t", "poisson", "poisson-log-normal", "negative-binomial",
)  # fmt: skip


def chosen_likelihood(
    likelihood: Any, estimator: str, several: bool = False, also: Sequence[str] = ()
) -> Likelihood:
    """Return the likelihood of a regressor by its name or as given.

    Parameters
    ----------
    likelihood : object
        The argument.
    estimator : str
        The regressor's name.
    several : bool, default False
        Whether a likelihood may have more than one function.
    also : sequence of str
        What the regressor knows beside these, for the message.

    Raises
    ------
    ValueError
        For one that cannot work.
    """
    named = isinstance(likelihood, str) and (not also or likelihood.lower() in NAMES)
    chosen = from_name(likelihood) if named else likelihood
    known = (*also, *REGRESSION, *[HeteroskedasticGaussian.name] * several)
    unfit = isinstance(chosen, (Bernoulli, SeveralClasses, LocallyScaled))
    if not isinstance(chosen, Likelihood) or unfit or (chosen.num_latent > 1 and not several):
        raise ValueError(
            f"likelihood must be one of {known}, or a vastgp.likelihoods object of one of these; received "
            f"{likelihood!r}. For classes, use {estimator.replace('Regressor', 'Classifier')}."
        )
    return chosen
