"""Every estimator and every options object by name, and its module: what `vastgp.load` may make, and nothing else."""

from __future__ import annotations

import importlib
import re
from typing import Any

ESTIMATORS = {
    "ExactGPRegressor": "vastgp.methods.exact.estimator",
    "QSGPRegressor": "vastgp.methods.qsgp.regressor",
    "QSGPClassifier": "vastgp.methods.qsgp.classifier",
    "RelevanceVectorRegressor": "vastgp.methods.relevance.estimator",
    "GriefRegressor": "vastgp.methods.reweighted.grief",
    "ReweightedBasisRegressor": "vastgp.methods.reweighted.regressor",
    "ReweightedBasisClassifier": "vastgp.methods.reweighted.classifier",
    "IterativeGPRegressor": "vastgp.methods.iterative.estimator",
    "RandomFeatureGPRegressor": "vastgp.methods.random_feature.estimator",
    "GridGP": "vastgp.methods.grid.estimator",
    "SWSGPRegressor": "vastgp.methods.swsgp.estimator",
    "SWSGPClassifier": "vastgp.methods.swsgp.estimator",
    "TSVGPRegressor": "vastgp.methods.svgp.tsvgp",
    "TSVGPClassifier": "vastgp.methods.svgp.tsvgp",
    "SVGPRegressor": "vastgp.methods.svgp.svgp",
    "SVGPClassifier": "vastgp.methods.svgp.svgp",
    "DirectRegressor": "vastgp.methods.direct.regressor",
    "DirectClassifier": "vastgp.methods.direct.classifier",
    "DirectNetworkRegressor": "vastgp.methods.direct.network",
}

# The front door, which chooses among them; see `vastgp.auto`.
FRONT_DOOR = {
    "GPRegressor": "vastgp.auto.regressor",
    "GPClassifier": "vastgp.auto.classifier",
}
# Maps from stations, on top of it: no estimator of rows.
MAPS = {"StationGP": "vastgp.auto.stations.estimator"}

# Objects that constructors take beside kernels and likelihoods: frozen dataclasses deriving from `_arguments.Options`,
# public in `vastgp.options`. Files hold them by these names.
OPTIONS = {
    "Adam": "vastgp.methods.svgp.options",
    "Average": "vastgp.estimators.searches",
    "Block": "vastgp.methods.qsgp.options",
    "CG": "vastgp.methods.iterative.options",
    "Classes": "vastgp.estimators.classes",
    "CrossValidation": "vastgp.methods.grid.options",
    "DiagonalWeights": "vastgp.methods.reweighted.options",
    "Evidence": "vastgp.methods.grid.options",
    "FillGaps": "vastgp.methods.grid.options",
    "Fixed": "vastgp.estimators.searches",
    "Fourier": "vastgp.estimators.bases",
    "IgnoreGaps": "vastgp.methods.grid.options",
    "Inducing": "vastgp.methods.qsgp.inducing.options",
    "KernelWeights": "vastgp.methods.reweighted.options",
    "LaplaceBasis": "vastgp.methods.reweighted.options",
    "Learn": "vastgp.estimators.searches",
    "LocalSteps": "vastgp.methods.swsgp.options",
    "MALA": "vastgp.methods.reweighted.options",
    "MeanField": "vastgp.methods.direct.options",
    "Mixture": "vastgp.methods.direct.options",
    "NUTS": "vastgp.methods.reweighted.options",
    "Natural": "vastgp.methods.svgp.options",
    "Nearest": "vastgp.methods.swsgp.options",
    "OrthogonalWeights": "vastgp.methods.reweighted.options",
    "PenalizeGaps": "vastgp.methods.grid.options",
    "Pruning": "vastgp.methods.relevance.options",
    "RouletteCG": "vastgp.methods.iterative.options",
    "SaveTo": "vastgp.estimators.searches",
    "SingleSample": "vastgp.methods.random_feature.options",
    "Sparse": "vastgp.methods.swsgp.options",
    "SpectralWeights": "vastgp.methods.reweighted.options",
    "Spill": "vastgp.methods.exact.options",
    "Stochastic": "vastgp.methods.qsgp.stochastic.options",
    "Subset": "vastgp.estimators.searches",
    "Support": "vastgp.methods.direct.options",
    "TypeII": "vastgp.methods.reweighted.options",
    "VarianceSamples": "vastgp.methods.grid.options",
}


def _method(estimator: str) -> str:
    """`RandomFeatureGPRegressor` as `random-feature`, `QSGPClassifier` as `qsgp-classifier`."""
    stem = estimator.removesuffix("Regressor")
    stem = re.sub("(?<=[a-z])GP(?=Classifier$|$)", "", stem)
    return re.sub("(?<=[a-z])(?=[A-Z])|(?=Classifier$)", "-", stem).lower()


# What takes rows, by the names that it has on the command line and for the front door: grids have a command of theirs.
METHODS = {_method(name): name for name in ESTIMATORS if name.endswith(("Regressor", "Classifier"))}


def estimator_class(name: str) -> Any:
    """Return the class of an estimator by its name.

    Raises
    ------
    KeyError
        When there is none of that name.
    """
    return getattr(importlib.import_module((ESTIMATORS | FRONT_DOOR | MAPS)[name]), name)


def option_class(name: str) -> Any:
    """Return the class of an options object by its name.

    Raises
    ------
    KeyError
        When there is none of that name.
    """
    return getattr(importlib.import_module(OPTIONS[name]), name)
