"""Fits that say "converged", and what they would say after ten times the work: how far apart their predictions are."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

import vastgp
from vastgp.options import (
    Block,
    CrossValidation,
    Inducing,
    Learn,
    LocalSteps,
    MeanField,
    Mixture,
    Natural,
    Pruning,
    Sparse,
    Stochastic,
    TypeII,
)

# What `tol` counts, and so what may be missing of predictions, in nats for each row.
NATS, TOTAL, NOISE = "nats a row", "nats in all", "deviations of the noise"


@dataclass(frozen=True)
class Longer:
    """An estimator as a user has it, and with a tenth of ``tol`` and ten times the steps.

    Attributes
    ----------
    estimator : str
    given, longer : dict
        Arguments of the one, and what the other has beside or in place of them.
    tol : float
        Of the first.
    unit : str
        `NATS`: a gain, or a slope by the logarithm of a hyperparameter, for each row. `TOTAL`: of all rows together.
        `NOISE`: of the mean and the samples, relative to the noise; ``e`` of it are ``e^2 / 2`` nats.
    rule : str, optional
        What ends the first and not the second, by its full name, where a smaller ``tol`` would be another model.
    """

    estimator: str
    given: Mapping[str, Any]
    longer: Mapping[str, Any]
    tol: float
    unit: str
    rule: str | None = None

    def fits(self, *data: Any) -> tuple[Any, Any]:
        """Return both, fitted, with the methods' own answers: simple ones in their place would hide how they ended."""
        make = getattr(vastgp, self.estimator)
        alone = mock.patch("vastgp.estimators.base.race", _without_race)
        with alone, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            short = make(**self.given).fit(*data)
            endless = mock.patch(self.rule, return_value=None) if self.rule else nullcontext()
            with endless:
                return short, make(**{**self.given, **self.longer}).fit(*data)

    def allowed(self, rows: int) -> float:
        """Return what predictions may move by, in nats for each row."""
        return {NATS: self.tol, TOTAL: self.tol / rows, NOISE: 0.5 * self.tol**2}[self.unit]


def _without_race(model: Any, rows: Any, run: Any) -> Any:
    answer = model._last_answer(rows, run)
    model._keep(answer, run)
    return answer


def moved(short: Any, long: Any, X: Any) -> float:
    """Return what one fit loses beside the other, in nats a row: the divergence ``KL(long || short)`` of predictions.

    With normal ``N(m, s^2)`` it is ``log(s / s') + (s'^2 + (m' - m)^2) / (2 s^2) - 1/2``, and it is taken by these
    moments whatever the likelihood. In deviations ``e`` of an observation a mean that is off costs ``e^2 / 2``.
    """
    if hasattr(short, "predict_proba"):
        p, q = (np.maximum(model.predict_proba(X), 1e-300) for model in (long, short))
        return float(np.mean(np.sum(p * np.log(p / q), axis=1)))
    (mean, std), (better, best_std) = (_moments(model, X) for model in (short, long))
    ratio = (best_std**2 + (better - mean) ** 2) / std**2
    return float(np.mean(np.log(std / best_std) + 0.5 * ratio - 0.5))


def _moments(model: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(model, vastgp.GridGP):
        found = model.predict(X)
        return found["mean"].values.ravel(), found["std"].values.ravel()
    mean, std = model.predict(X, return_std=True)
    if np.all(np.isfinite(std)):
        return mean, std
    # Student-t noise of two degrees of freedom and fewer has no variance: of a normal, where 68 % are
    low, middle, high = model.predict_quantiles(X, [0.16, 0.5, 0.84]).T
    return middle, 0.5 * (high - low)


_INDUCING = {"num_inducing": 20}
_SVGP_LONGER = {"tol": 1e-5, "solver": Natural(max_steps=20_000)}
_QSGP = {"num_basis": 400, "dtype": "float64"}

# By the name of the table's row: what is tried, with default arguments but for sizes.
LONGER: dict[str, Longer] = {
    "ExactGPRegressor": Longer(
        "ExactGPRegressor", {}, {"tol": 1e-4, "max_iter": 2000}, 1e-3, NATS
    ),
    "QSGPRegressor, block": Longer(
        "QSGPRegressor", {**_QSGP, "solver": Block(rank=20)},
        {"tol": 0.01, "solver": Block(rank=20, max_products=3000)}, 0.1, NOISE,
    ),
    "QSGPRegressor, block learning": Longer(
        "QSGPRegressor", {**_QSGP, "solver": Block(rank=20), "hyperparameters": "learn"},
        {"tol": 0.01, "solver": Block(rank=20, max_products=3000), "hyperparameters": Learn(steps=2000)}, 0.1, NOISE,
    ),
    "QSGPRegressor, stochastic": Longer(
        "QSGPRegressor", {**_QSGP, "solver": Stochastic(dense_columns=10, control_rank=100, max_steps=10_000)},
        {"tol": 0.01, "solver": Stochastic(dense_columns=10, control_rank=100, max_steps=100_000)}, 0.1, NOISE,
    ),
    "QSGPRegressor, inducing": Longer(
        "QSGPRegressor", {"num_basis": 20, "basis": "inducing", "dtype": "float64"},
        {"tol": 0.01, "basis": Inducing(max_steps=20_000)}, 0.1, NOISE,
    ),
    "QSGPRegressor, Student-t": Longer(
        "QSGPRegressor", {**_QSGP, "solver": Block(rank=20), "likelihood": "student-t"},
        {"tol": 0.01, "solver": Block(rank=20, max_products=3000)}, 0.1, NOISE,
    ),
    "SVGPRegressor": Longer("SVGPRegressor", _INDUCING, _SVGP_LONGER, 1e-4, NATS),
    "TSVGPRegressor": Longer("TSVGPRegressor", _INDUCING, _SVGP_LONGER, 1e-4, NATS),
    "SVGPRegressor, every row inducing": Longer("SVGPRegressor", {}, {"tol": 1e-5}, 1e-4, NATS),
    "SVGPRegressor, Student-t": Longer(
        "SVGPRegressor", {**_INDUCING, "likelihood": "student-t"}, _SVGP_LONGER, 1e-4, NATS
    ),
    "SVGPRegressor, fixed Student-t": Longer(
        "SVGPRegressor", {**_INDUCING, "likelihood": "student-t", "hyperparameters": "subset"},
        {"tol": 1e-5}, 1e-4, NATS,
    ),
    "DirectRegressor": Longer(
        "DirectRegressor", {"num_basis": 100}, {"family": MeanField(max_iter=250)}, 1e-5, NATS,
        "vastgp.methods.direct.training._rests",
    ),
    "DirectRegressor, mixture": Longer(
        "DirectRegressor", {"num_basis": 50, "family": "mixture"},
        {"family": Mixture(max_iter=1500)}, 1e-5, NATS, "vastgp.methods.direct.mixture_training._gains_little",
    ),
    "DirectNetworkRegressor": Longer(
        "DirectNetworkRegressor", {"hidden": 1, "restarts": 2}, {"tol": 1e-7, "max_iter": 5000}, 1e-6, NATS
    ),
    "GriefRegressor": Longer(
        "GriefRegressor", {}, {"inference": TypeII(2000, 1e-5)}, 1e-4, NATS
    ),
    "ReweightedBasisRegressor": Longer(
        "ReweightedBasisRegressor", {"num_basis": 100}, {"inference": TypeII(2000, 1e-6)}, 1e-5, NATS
    ),
    "RandomFeatureGPRegressor": Longer(
        "RandomFeatureGPRegressor", {"num_basis": 200, "dtype": "float64"},
        {"tol": 1e-5, "hyperparameters": Learn(steps=2000)}, 1e-4, NATS,
    ),
    "IterativeGPRegressor": Longer(
        "IterativeGPRegressor", {"hyperparameters": "subset", "rank": 20, "dtype": "float64"}, {"tol": 0.005},
        0.05, NOISE,
    ),
    "IterativeGPRegressor, learning": Longer(
        "IterativeGPRegressor", {"rank": 20, "dtype": "float64", "hyperparameters": Learn(rows=50)},
        {"tol": 0.005, "hyperparameters": Learn(rows=50, steps=400)}, 5e-3, NATS,
    ),
    "RelevanceVectorRegressor": Longer(
        "RelevanceVectorRegressor", {}, {"solver": Pruning(max_steps=500)}, 1e-2, TOTAL,
        "vastgp.methods.relevance.training._Search.stop",
    ),
    "SWSGPRegressor, sparse": Longer(
        "SWSGPRegressor", {**_INDUCING, "num_neighbors": 20}, {"solver": Sparse(tol=1e-5)}, 1e-4, NATS
    ),
    "SWSGPRegressor, steps": Longer(
        "SWSGPRegressor", {**_INDUCING, "num_neighbors": 20, "solver": LocalSteps()},
        {"solver": LocalSteps(max_steps=200_000, tol=1e-5)}, 1e-4, NATS,
    ),
    "QSGPClassifier": Longer(
        "QSGPClassifier", {**_QSGP, "solver": Block(rank=20)},
        {"tol": 0.01, "solver": Block(rank=20, max_products=3000)}, 0.1, NOISE,
    ),
    "SVGPClassifier": Longer("SVGPClassifier", _INDUCING, _SVGP_LONGER, 1e-4, NATS),
    "SVGPClassifier, every row inducing": Longer("SVGPClassifier", {}, {"tol": 1e-5}, 1e-4, NATS),
    "TSVGPClassifier": Longer("TSVGPClassifier", _INDUCING, _SVGP_LONGER, 1e-4, NATS),
    "DirectClassifier": Longer(
        "DirectClassifier", {"num_basis": 50}, {"family": MeanField(max_iter=5000)}, 1e-4, NATS,
        "vastgp.methods.direct.logistic_training._passes_gain_little",
    ),
    "SWSGPClassifier, sparse": Longer(
        "SWSGPClassifier", {**_INDUCING, "num_neighbors": 20}, {"solver": Sparse(tol=1e-5)}, 1e-4, NATS
    ),
    "GridGP": Longer("GridGP", {}, {"tol": 1e-5, "max_iter": 1000}, 1e-4, NATS),
    "GridGP, cross validation": Longer(
        "GridGP", {"criterion": CrossValidation()}, {"tol": 1e-5, "max_iter": 1000}, 1e-4, NATS
    ),
}  # fmt: skip
