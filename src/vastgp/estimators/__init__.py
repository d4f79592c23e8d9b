"""scikit-learn estimators, one per method; each is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vastgp.estimators.load import load
from vastgp.estimators.registry import ESTIMATORS, estimator_class

if TYPE_CHECKING:
    from vastgp.estimators.direct import DirectRegressor
    from vastgp.estimators.direct_classifier import DirectClassifier
    from vastgp.estimators.direct_network import DirectNetworkRegressor
    from vastgp.estimators.exact import ExactGPRegressor
    from vastgp.estimators.grid import GridGP
    from vastgp.estimators.grief import GriefRegressor
    from vastgp.estimators.iterative import IterativeGPRegressor
    from vastgp.estimators.qsgp import QSGPRegressor
    from vastgp.estimators.qsgp_classifier import QSGPClassifier
    from vastgp.estimators.random_feature import RandomFeatureGPRegressor
    from vastgp.estimators.relevance_vector import RelevanceVectorRegressor
    from vastgp.estimators.reweighted import ReweightedBasisRegressor
    from vastgp.estimators.reweighted_classifier import ReweightedBasisClassifier
    from vastgp.estimators.svgp import SVGPClassifier, SVGPRegressor
    from vastgp.estimators.swsgp import SWSGPClassifier, SWSGPRegressor
    from vastgp.estimators.tsvgp import TSVGPClassifier, TSVGPRegressor

__all__ = [
    "DirectClassifier",
    "DirectNetworkRegressor",
    "DirectRegressor",
    "ExactGPRegressor",
    "GridGP",
    "GriefRegressor",
    "IterativeGPRegressor",
    "QSGPClassifier",
    "QSGPRegressor",
    "RandomFeatureGPRegressor",
    "RelevanceVectorRegressor",
    "ReweightedBasisClassifier",
    "ReweightedBasisRegressor",
    "SVGPClassifier",
    "SVGPRegressor",
    "SWSGPClassifier",
    "SWSGPRegressor",
    "TSVGPClassifier",
    "TSVGPRegressor",
    "load",
]


def __getattr__(name: str) -> Any:
    if name in ESTIMATORS:
        value = estimator_class(name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'vastgp.estimators' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
