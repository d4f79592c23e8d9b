"""Likelihoods of regressors as they are given: a name, or an object."""

from __future__ import annotations

from typing import Any

from vastgp.likelihoods import (
    Bernoulli,
    HeteroskedasticGaussian,
    Likelihood,
    LocallyScaled,
    from_name,
)
from vastgp.likelihoods.several_classes import SeveralClasses

REGRESSION = (
    "gaussian", "laplace", "student-t", "poisson", "poisson-log-normal", "negative-binomial",
)  # fmt: skip


def chosen_likelihood(likelihood: Any, estimator: str, several: bool = False) -> Likelihood:
    """Return the likelihood of a regressor by its name or as given.

    Parameters
    ----------
    likelihood : object
        The argument.
    estimator : str
        The regressor's name.
    several : bool, default False
        Whether a likelihood may have more than one function.

    Raises
    ------
    ValueError
        For one that cannot work.
    """
    chosen = from_name(likelihood) if isinstance(likelihood, str) else likelihood
    known = (*REGRESSION, HeteroskedasticGaussian.name) if several else REGRESSION
    unfit = isinstance(chosen, (Bernoulli, SeveralClasses, LocallyScaled))
    if not isinstance(chosen, Likelihood) or unfit or (chosen.num_latent > 1 and not several):
        raise ValueError(
            f"likelihood must be one of {known}, or a vastgp.likelihoods object of one of these; received "
            f"{likelihood!r}. For classes, use {estimator.replace('Regressor', 'Classifier')}."
        )
    return chosen
