"""Every estimator by name, and the module that defines it: what `vastgp.load` may make, and nothing else."""

from __future__ import annotations

import importlib
from typing import Any

ESTIMATORS = {
    "ExactGPRegressor": "vastgp.estimators.exact",
    "QSGPRegressor": "vastgp.estimators.qsgp",
    "QSGPClassifier": "vastgp.estimators.qsgp_classifier",
    "RelevanceVectorRegressor": "vastgp.estimators.relevance_vector",
    "GriefRegressor": "vastgp.estimators.grief",
    "ReweightedBasisRegressor": "vastgp.estimators.reweighted",
    "ReweightedBasisClassifier": "vastgp.estimators.reweighted_classifier",
    "IterativeGPRegressor": "vastgp.estimators.iterative",
    "RandomFeatureGPRegressor": "vastgp.estimators.random_feature",
    "GridGP": "vastgp.estimators.grid",
    "SWSGPRegressor": "vastgp.estimators.swsgp",
    "SWSGPClassifier": "vastgp.estimators.swsgp",
    "TSVGPRegressor": "vastgp.estimators.tsvgp",
    "TSVGPClassifier": "vastgp.estimators.tsvgp",
    "SVGPRegressor": "vastgp.estimators.svgp",
    "SVGPClassifier": "vastgp.estimators.svgp",
    "DirectRegressor": "vastgp.estimators.direct",
    "DirectClassifier": "vastgp.estimators.direct_classifier",
    "DirectNetworkRegressor": "vastgp.estimators.direct_network",
}


def estimator_class(name: str) -> Any:
    """Return the class of an estimator by its name.

    Raises
    ------
    KeyError
        When there is none of that name.
    """
    return getattr(importlib.import_module(ESTIMATORS[name]), name)
