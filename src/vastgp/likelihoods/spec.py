"""Likelihoods by name, and as plain data for files."""

from __future__ import annotations

import dataclasses
from typing import Any

from vastgp.likelihoods.base import Likelihood
from vastgp.likelihoods.bernoulli import Bernoulli
from vastgp.likelihoods.exposed import Exposed
from vastgp.likelihoods.gaussian import Gaussian
from vastgp.likelihoods.heteroskedastic import HeteroskedasticGaussian
from vastgp.likelihoods.laplace import Laplace
from vastgp.likelihoods.locally_scaled import LocallyScaled
from vastgp.likelihoods.multinomial_probit import MultinomialProbit
from vastgp.likelihoods.negative_binomial import NegativeBinomial
from vastgp.likelihoods.one_vs_rest import OneVsRest
from vastgp.likelihoods.poisson import Poisson
from vastgp.likelihoods.poisson_log_normal import PoissonLogNormal
from vastgp.likelihoods.softmax import Softmax
from vastgp.likelihoods.student_t import StudentT
from vastgp.likelihoods.weighted import Weighted

# Where learning starts for a target of unit variance: noise of a tenth of it.
_DEFAULTS: dict[type[Likelihood], dict[str, float]] = {
    Gaussian: {"noise_variance": 0.1},
    Laplace: {"scale": 0.05**0.5},  # 2 b^2 = 0.1
    StudentT: {"scale": 0.05**0.5, "degrees_of_freedom": 4.0},  # s^2 nu / (nu - 2) = 0.1
    Bernoulli: {},
    Poisson: {"rate": 1.0},
    Softmax: {},
    HeteroskedasticGaussian: {"noise_variance": 0.1},
    OneVsRest: {},
    MultinomialProbit: {},
    PoissonLogNormal: {"rate": 1.0, "variance": 0.1},
    NegativeBinomial: {"rate": 1.0, "size": 10.0},
}
_BY_NAME: dict[str, type[Likelihood]] = {cls.name: cls for cls in _DEFAULTS}
NAMES = tuple(_BY_NAME)
# Of fitted models alone.
_FOUND = {LocallyScaled.name: LocallyScaled}


def from_name(name: Any) -> Likelihood:
    """Return a likelihood with starting values for a standardised target by its name.

    Raises
    ------
    ValueError
        When the name is unknown; the message lists the known ones.
    """
    try:
        cls = _BY_NAME[name.lower()]
    except (KeyError, AttributeError):
        known = ", ".join(repr(known) for known in NAMES)
        raise ValueError(
            f"likelihood must be one of {known}, or a Likelihood; received {name!r}."
        ) from None
    return cls(**_DEFAULTS[cls])


def to_spec(likelihood: Likelihood) -> dict[str, Any]:
    """Return a likelihood as JSON-able data: its name, its hyperparameters as numbers, its settings.

    Raises
    ------
    TypeError
        When its class is not one of this library.
    """
    if isinstance(likelihood, (Exposed, Weighted)):
        return {"kind": likelihood.name, "of_one": to_spec(likelihood.of_one)}
    if type(likelihood) not in (*_DEFAULTS, *_FOUND.values()):
        raise TypeError(f"a likelihood of type {type(likelihood).__name__} cannot be saved.")
    spec: dict[str, Any] = {"kind": likelihood.name}
    for field in dataclasses.fields(likelihood):
        value = getattr(likelihood, field.name)
        spec[field.name] = _plain(value) if field.metadata.get("static") else float(value)
    return spec


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def from_spec(spec: dict[str, Any]) -> Likelihood:
    """Return the likelihood that `to_spec` wrote.

    Raises
    ------
    ValueError
        When the data name a likelihood, or a setting of one, that this version does not know.
    """
    kind = spec.get("kind")
    for around in (Exposed, Weighted):
        if kind == around.name:
            return around(from_spec(spec["of_one"]))
    by_name = _BY_NAME | _FOUND
    if kind not in by_name:
        raise ValueError(f"the file holds a likelihood {kind!r} that this version does not know.")
    cls, values = by_name[kind], {name: value for name, value in spec.items() if name != "kind"}
    known = {field.name for field in dataclasses.fields(cls)}
    if set(values) - known:
        raise ValueError(
            f"the file holds a {kind} likelihood with {sorted(set(values) - known)}, which this version does not know."
        )
    return cls(**values)
