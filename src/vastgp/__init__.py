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

from vastgp.estimators.registry import ESTIMATORS, FRONT_DOOR, MAPS

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vastgp import auto, datasets, kernels, likelihoods, metrics, options, plots
    from vastgp.auto.classifier import GPClassifier
    from vastgp.auto.regressor import GPRegressor
    from vastgp.auto.stations.estimator import StationGP
    from vastgp.estimators.load import load
    from vastgp.estimators.statistics import statistics
    from vastgp.kernels import (
        RBF,
        Constant,
        Cyclic,
        Linear,
        Matern12,
        Matern32,
        Matern52,
        OnSphere,
        Periodic,
        RationalQuadratic,
    )
    from vastgp.methods.direct.classifier import DirectClassifier
    from vastgp.methods.direct.network import DirectNetworkRegressor
    from vastgp.methods.direct.regressor import DirectRegressor
    from vastgp.methods.exact.estimator import ExactGPRegressor
    from vastgp.methods.grid.estimator import GridGP
    from vastgp.methods.iterative.estimator import IterativeGPRegressor
    from vastgp.methods.qsgp.classifier import QSGPClassifier
    from vastgp.methods.qsgp.regressor import QSGPRegressor
    from vastgp.methods.random_feature.estimator import RandomFeatureGPRegressor
    from vastgp.methods.relevance.estimator import RelevanceVectorRegressor
    from vastgp.methods.reweighted.classifier import ReweightedBasisClassifier
    from vastgp.methods.reweighted.grief import GriefRegressor
    from vastgp.methods.reweighted.regressor import ReweightedBasisRegressor
    from vastgp.methods.svgp.svgp import SVGPClassifier, SVGPRegressor
    from vastgp.methods.svgp.tsvgp import TSVGPClassifier, TSVGPRegressor
    from vastgp.methods.swsgp.estimator import SWSGPClassifier, SWSGPRegressor

# public name -> the module that defines it
_NAMES = (
    FRONT_DOOR
    | MAPS
    | ESTIMATORS
    | {
        "load": "vastgp.estimators.load",
        "statistics": "vastgp.estimators.statistics",
        "RBF": "vastgp.kernels",
        "Constant": "vastgp.kernels",
        "Linear": "vastgp.kernels",
        "Matern12": "vastgp.kernels",
        "Matern32": "vastgp.kernels",
        "Matern52": "vastgp.kernels",
        "RationalQuadratic": "vastgp.kernels",
        "Periodic": "vastgp.kernels",
        "Cyclic": "vastgp.kernels",
        "OnSphere": "vastgp.kernels",
    }
)
_MODULES = ("auto", "datasets", "kernels", "likelihoods", "metrics", "options", "plots")

__all__ = [*_NAMES, *_MODULES, "__version__"]


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
