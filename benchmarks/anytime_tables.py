"""Tables of `anytime.py` by name, what a linear model says of each, and scores: without JAX, for peers as well.

A name is that of a drawn table (``friedman-5k``; a number: one drawn at random by that seed), of a shared set
(``kin40k``; ``kin40k:3`` is its split 3) or of a raw table (``ames``). ``kin40k.5`` has five classes of equal size, its
target cut at the quantiles of the training rows. ``mnist.2`` and ``mnist.10`` are pictures of digits, odd and even or
all ten, and ``mnist-slant`` how they lean: 784 inputs. ``named``, ``regression``, ``classes``, ``shared``, ``cut``,
``wide``, ``raw``, ``counts``, ``series`` and ``hundred`` are all of a kind; ``hundred:7`` is one of a hundred random
ones of 2 to 3000 rows, ``hundred-classes:7`` the same with the sign of its noisy function for a target. ``stranger:7``
and ``stranger-classes:7`` are real tables that nobody chose, see `stranger_tables`.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

import raw_tables
import series_sets
import stranger_tables
from forecast_scores import LEVELS, forecast_scores, rounded_normal, rounded_to
from raw_tables import RAW, RAW_COUNTS, dates_as_numbers
from series_sets import SERIES
from shared_sets import CLASSES, REGRESSION, load, pictures

# those of the suite, and the package's scores, which ask for no other part of it
sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("tests", "src")]
from hard_tables import NAMED, random_table
from vastgp.metrics import coverage, crps_gaussian, nlpd, nlpd_of_probabilities, rmse

KINDS = {
    "named": sorted(NAMED),
    "regression": REGRESSION,
    "classes": CLASSES,
    "shared": (*REGRESSION, *CLASSES),
    "cut": ("protein.2", "kin40k.2", "kin40k.5", "bike.2", "protein.10", "airfoil.2"),
    "wide": ("mnist.2", "mnist.10", "mnist-slant"),
    "raw": tuple(RAW),
    "counts": tuple(RAW_COUNTS),
    "series": tuple(SERIES),
    **{
        kind: tuple(f"{kind}:{number}" for number in range(stranger_tables.COUNT))
        for kind in stranger_tables.SUITED
    },
    "hundred": tuple(f"hundred:{number}" for number in range(100)),
    "hundred-classes": tuple(f"hundred-classes:{number}" for number in range(100)),
}
# Those hundred: their seeds begin where no other use of random tables draws, and so do their rows end.
_HUNDRED_SEED, _HUNDRED_ROWS = 5000, 3000
# More test rows would make a line no more exact, and local methods take long for each.
_MOST_TEST_ROWS = 20_000
# Fewer rows kept out tell little of a deviation.
_FEW_KEPT_OUT = 20
# Of pictures: logistic regression of all 60,000 takes minutes. And the noise of how they lean, of its deviation.
_PICTURES, _NOISE_OF_SLANT = 20_000, 0.1
# Levels of a category that get a column each in a linear model; rarer ones share one.
_MOST_INDICATORS = 50


class Drawn(NamedTuple):
    """Rows of a table, and what it was drawn from; a raw one has its inputs in a data frame."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    origin: dict[str, Any]

    @property
    def classes(self) -> bool:
        """Whether the target is a class."""
        return self.y.dtype.kind == "i"

    @property
    def unit(self) -> float:
        """Standard deviation of the training target, which scores are relative to."""
        return float(self.y.std()) or 1.0


def names_of(words: list[str]) -> list[str]:
    """Return names of tables; a word that stands for a kind is all of its kind."""
    return [name for word in words for name in KINDS.get(word, (word,))]


def draw(name: str) -> Drawn:
    """Return a table by its name."""
    dataset, _, split = name.partition(":")
    if dataset in raw_tables.ALL:
        origin = raw_tables.ALL[dataset]._asdict() | {"raw": dataset, "split": int(split or 0)}
        return Drawn(*raw_tables.load(dataset, int(split or 0)), origin)
    if dataset in stranger_tables.SUITED:
        drawn, told = stranger_tables.load(dataset, int(split))
        return Drawn(*drawn, told)
    if dataset in SERIES:
        return Drawn(*series_sets.load(dataset), {"series": dataset})
    numbers, _, classes = dataset.partition(".")
    if classes and numbers in REGRESSION:
        return _cut(draw(f"{numbers}:{split}"), int(classes))
    if dataset in KINDS["wide"]:
        return _wide(dataset)
    if dataset in KINDS["shared"]:
        X, y, X_test, y_test = load(dataset, int(split or 0))
        kind = np.int64 if dataset in CLASSES else np.float64
        every = -(-len(y_test) // _MOST_TEST_ROWS)
        X_test, y_test = X_test[::every].astype(np.float64), y_test[::every].astype(kind)
        origin = {"shared": dataset, "split": int(split or 0)}
        return Drawn(X.astype(np.float64), y.astype(kind), X_test, y_test, origin)
    if dataset in ("hundred", "hundred-classes"):
        seed = _HUNDRED_SEED + int(split)
        table = random_table(seed, _HUNDRED_ROWS)
        if dataset == "hundred-classes":
            table = dataclasses.replace(table, target="classes")
        return Drawn(*table.draw(seed), dataclasses.asdict(table))
    table, seed = (NAMED[name], 0) if name in NAMED else (random_table(int(name)), int(name))
    return Drawn(*table.draw(seed), dataclasses.asdict(table))


def _wide(name: str) -> Drawn:
    X, digit, X_test, digit_test = pictures(_PICTURES)
    origin = {"shared": "mnist", "rows": _PICTURES, "target": name}
    if name.startswith("mnist."):
        most = int(name.removeprefix("mnist."))
        return Drawn(X, digit % most, X_test, digit_test % most, origin)
    rng = np.random.default_rng(0)
    leans = _slant(X)
    y, y_test = ((each - leans.mean()) / leans.std() for each in (leans, _slant(X_test)))
    noise, noise_test = (_NOISE_OF_SLANT * rng.normal(size=len(each)) for each in (y, y_test))
    return Drawn(X, y + noise, X_test, y_test + noise_test, origin)


def _slant(X: np.ndarray) -> np.ndarray:
    """Return how pictures lean, their covariance of rows and columns over the deviation of columns, and a wave."""
    ink = X.reshape(-1, 28, 28) + 1e-3
    place, total = np.arange(28) - 13.5, ink.sum(axis=(1, 2))
    across = ink.sum(axis=1)
    both = np.einsum("nij,i,j->n", ink, place, place) / total
    return both / np.sqrt(across @ place**2 / total) + np.sin(across @ place / total)


def _cut(table: Drawn, classes: int) -> Drawn:
    """Return a table whose target is cut into classes of equal size."""
    edges = np.unique(np.quantile(table.y, np.arange(1, classes) / classes))
    of_rows, of_test = (np.searchsorted(edges, y).astype(np.int64) for y in (table.y, table.y_test))
    origin = table.origin | {"classes": classes}
    return table._replace(y=of_rows, y_test=of_test, origin=origin)


def scores(
    table: Drawn, density: np.ndarray, mean: np.ndarray, std: np.ndarray
) -> dict[str, float]:
    """Return RMSE and NLPD in units of the training target's standard deviation, and coverage of 95 %."""
    return {
        "rmse": rmse(table.y_test, mean) / table.unit,
        "nlpd": float(-np.mean(density) - np.log(table.unit)),
        "coverage": coverage(table.y_test, mean, std),
    }


def gaussian_scores(table: Drawn, mean: np.ndarray, std: np.ndarray) -> dict[str, Any]:
    """Return scores of Gaussian predictions of standardised targets: zero is the training mean, one its deviation."""
    mean, std = table.y.mean() + table.unit * mean, table.unit * std
    y, width = table.y_test, rounded_to(np.concatenate([table.y, table.y_test]))
    scores = forecast_scores(
        y,
        mean,
        mean + std * ndtri(LEVELS)[:, None],
        table.unit,
        density=-nlpd(y, mean, std, average=False),
        crps=crps_gaussian(y, mean, std),
    )
    scores["own"] |= {"nlpd_rounded": rounded_normal(y, mean, std, width), "rounded_to": width}
    return scores


def class_scores(table: Drawn, probabilities: np.ndarray, classes: np.ndarray) -> dict[str, float]:
    """Return scores of probabilities, one column for each class."""
    return {
        "nlpd": nlpd_of_probabilities(table.y_test, probabilities, classes=classes),
        "accuracy": float(np.mean(classes[probabilities.argmax(axis=1)] == table.y_test)),
    }


def standardised(table: Drawn) -> np.ndarray:
    """Return the training target with mean 0 and deviation 1."""
    return (table.y - table.y.mean()) / table.unit


def kept_out(table: Drawn) -> tuple[np.ndarray, np.ndarray]:
    """Return rows for a peer to stop by, a tenth (of a few rows up to a half), and the others."""
    n = len(table.y)
    count = max(round(0.1 * n), min(_FEW_KEPT_OUT, n // 2))
    out, rest = np.split(np.random.default_rng(0).permutation(n), [count])
    return out, rest


def as_numbers() -> Any:
    """Return what makes numbers of any table: indicators of categories and of gaps, medians in these."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

    filled = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    indicators = OneHotEncoder(
        max_categories=_MOST_INDICATORS, handle_unknown="infrequent_if_exist", sparse_output=False
    )
    columns = make_column_transformer(
        (filled, make_column_selector(dtype_include="number")),
        (indicators, make_column_selector(dtype_exclude="number")),
    )
    return make_pipeline(FunctionTransformer(dates_as_numbers), columns, StandardScaler())


def linear(table: Drawn) -> dict[str, Any]:
    """Return what scikit-learn's Bayesian linear regression, or logistic regression, has."""
    from sklearn.linear_model import BayesianRidge, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    inputs = StandardScaler() if isinstance(table.X, np.ndarray) else as_numbers()
    if table.classes:
        model = make_pipeline(inputs, LogisticRegression(max_iter=1000))
        model.fit(table.X, table.y)
        return class_scores(table, model.predict_proba(table.X_test), model.classes_)
    model = make_pipeline(inputs, BayesianRidge()).fit(table.X, standardised(table))
    return gaussian_scores(table, *model.predict(table.X_test, return_std=True))
