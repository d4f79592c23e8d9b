"""Gaussian processes whose capacity is not limited by memory.

The public names are loaded on first use (PEP 562), so that ``import vastgp`` stays quick and a
script that only scores predictions never starts JAX.

Examples
--------
>>> import vastgp
>>> model = vastgp.QSGPRegressor().fit(X, y)                    # doctest: +SKIP
>>> mean, std = model.predict(X_new, return_std=True)           # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vastgp import datasets, kernels, likelihoods, metrics, plots
    from vastgp.estimators import (
        DirectClassifier,
        DirectNetworkRegressor,
        DirectRegressor,
        ExactGPRegressor,
        GridGP,
        GriefRegressor,
        IterativeGPRegressor,
        QSGPClassifier,
        QSGPRegressor,
        RandomFeatureGPRegressor,
        RelevanceVectorRegressor,
        ReweightedBasisClassifier,
        ReweightedBasisRegressor,
        SVGPClassifier,
        SVGPRegressor,
        SWSGPClassifier,
        SWSGPRegressor,
        TSVGPClassifier,
        TSVGPRegressor,
        load,
    )
    from vastgp.kernels import (
        RBF,
        Constant,
        Linear,
        Matern12,
        Matern32,
        Matern52,
        Periodic,
        RationalQuadratic,
    )

# public name -> the module that defines it
_NAMES = {
    "ExactGPRegressor": "vastgp.estimators",
    "QSGPRegressor": "vastgp.estimators",
    "QSGPClassifier": "vastgp.estimators",
    "RelevanceVectorRegressor": "vastgp.estimators",
    "GriefRegressor": "vastgp.estimators",
    "ReweightedBasisClassifier": "vastgp.estimators",
    "ReweightedBasisRegressor": "vastgp.estimators",
    "IterativeGPRegressor": "vastgp.estimators",
    "RandomFeatureGPRegressor": "vastgp.estimators",
    "GridGP": "vastgp.estimators",
    "TSVGPRegressor": "vastgp.estimators",
    "TSVGPClassifier": "vastgp.estimators",
    "SVGPRegressor": "vastgp.estimators",
    "SVGPClassifier": "vastgp.estimators",
    "SWSGPRegressor": "vastgp.estimators",
    "SWSGPClassifier": "vastgp.estimators",
    "DirectRegressor": "vastgp.estimators",
    "DirectClassifier": "vastgp.estimators",
    "DirectNetworkRegressor": "vastgp.estimators",
    "load": "vastgp.estimators",
    "RBF": "vastgp.kernels",
    "Constant": "vastgp.kernels",
    "Linear": "vastgp.kernels",
    "Matern12": "vastgp.kernels",
    "Matern32": "vastgp.kernels",
    "Matern52": "vastgp.kernels",
    "RationalQuadratic": "vastgp.kernels",
    "Periodic": "vastgp.kernels",
}
_MODULES = ("datasets", "kernels", "likelihoods", "metrics", "plots")

__all__ = [  # noqa: RUF022 (grouped by what they are, not by spelling)
    "ExactGPRegressor",
    "QSGPRegressor",
    "QSGPClassifier",
    "RelevanceVectorRegressor",
    "GriefRegressor",
    "ReweightedBasisClassifier",
    "ReweightedBasisRegressor",
    "IterativeGPRegressor",
    "RandomFeatureGPRegressor",
    "GridGP",
    "TSVGPRegressor",
    "TSVGPClassifier",
    "SVGPRegressor",
    "SVGPClassifier",
    "SWSGPRegressor",
    "SWSGPClassifier",
    "DirectRegressor",
    "DirectClassifier",
    "DirectNetworkRegressor",
    "load",
    "RBF",
    "Constant",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "RationalQuadratic",
    "Periodic",
    "datasets",
    "kernels",
    "likelihoods",
    "metrics",
    "plots",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"vastgp.{name}")  # binds the name here: this runs once
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'vastgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
