"""What an answer must be, whatever the table: the invariants that fuzzing holds every estimator to."""

from __future__ import annotations

import dataclasses
import re
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import vastgp
from odd_fields import OddField
from odd_stations import OddStations
from odd_tables import OddTable
from vastgp.likelihoods import Gaussian, StudentT
from vastgp.options import (
    MALA,
    Block,
    Evidence,
    Inducing,
    Learn,
    MeanField,
    Natural,
    Stochastic,
    TypeII,
)


def _inducing(distinct: int) -> dict[str, Any]:
    return {"num_inducing": min(16, distinct)}


# Little work and no budget in seconds, so that the answer is the same on every machine; by the number of distinct rows.
# What follows a comma tells options of one estimator apart.
QUICK: dict[str, Callable[[int], dict[str, Any]]] = {
    "ExactGPRegressor": lambda n: {"restarts": 1, "max_iter": 30},
    "SVGPRegressor": lambda n: {"solver": Natural(max_steps=20), **_inducing(n)},
    "TSVGPRegressor": lambda n: {"solver": Natural(max_steps=20), **_inducing(n)},
    "DirectRegressor": lambda n: {"num_basis": 64, "family": MeanField(max_iter=20)},
    "DirectNetworkRegressor": lambda n: {"hidden": 1, "restarts": 2, "max_iter": 20, "support": 5},
    "GriefRegressor": lambda n: {"grid_size": 4, "inference": TypeII(20)},
    "RandomFeatureGPRegressor": lambda n: {"num_basis": 100, "hyperparameters": Learn(steps=5)},
    "IterativeGPRegressor": lambda n: {"hyperparameters": Learn(steps=2)},
    "ReweightedBasisRegressor": lambda n: {"num_basis": 40, "inference": TypeII(20)},
    "RelevanceVectorRegressor": lambda n: {},
    "SWSGPRegressor": lambda n: {"num_neighbors": min(8, n), **_inducing(n)},
    "QSGPRegressor": lambda n: {"num_basis": 200, "solver": Block(64)},
    "QSGPRegressor, stochastic": lambda n: {"num_basis": 64, "solver": Stochastic(max_steps=200)},
    "QSGPRegressor, inducing": lambda n: {
        "num_basis": min(16, n), "basis": Inducing(max_steps=200),
    },
    "QSGPRegressor, student-t": lambda n: {**QUICK["QSGPRegressor"](n), "likelihood": "student-t"},
    "QSGPRegressor, laplace": lambda n: {**QUICK["QSGPRegressor"](n), "likelihood": "laplace"},
    "QSGPRegressor, poisson": lambda n: {**QUICK["QSGPRegressor"](n), "likelihood": "poisson"},
    "TSVGPRegressor, poisson-log-normal": lambda n: {
        **QUICK["TSVGPRegressor"](n), "likelihood": "poisson-log-normal",
    },
    "ExactGPRegressor, heteroskedastic": lambda n: {
        **QUICK["ExactGPRegressor"](n), "likelihood": "heteroskedastic",
    },
    "SVGPClassifier": lambda n: {"solver": Natural(max_steps=20), **_inducing(n)},
    "TSVGPClassifier": lambda n: {"solver": Natural(max_steps=20), **_inducing(n)},
    "DirectClassifier": lambda n: {"num_basis": 32, "family": MeanField(max_iter=20)},
    "ReweightedBasisClassifier": lambda n: {"num_basis": 15, "inference": MALA(2, 50, 150, 3)},
    "SWSGPClassifier": lambda n: {"num_neighbors": min(8, n), **_inducing(n)},
    "QSGPClassifier": lambda n: {"num_basis": 200, "solver": Block(64)},
    "GPRegressor": lambda n: {"max_seconds": None, "max_work": 2000},
    "GPClassifier": lambda n: {"max_seconds": None, "max_work": 2000},
}  # fmt: skip


def quick(name: str, X: np.ndarray) -> Any:
    """Return an estimator by name whose fit to these rows takes little work."""
    made = getattr(vastgp, name.partition(",")[0])
    return made(**QUICK[name](len({row.tobytes() for row in X})))


# Whose functions have the kernel's variance before there are data; others approximate it.
_OF_THE_KERNEL = ("ExactGPRegressor", "SVGPRegressor", "TSVGPRegressor")
# An error that helps names what it is about.
_NAMES = re.compile(r"\b(X|y|column|target|kernel|hyperparameters|num_\w+|noise_std)\b")
_NAMES_OF_FIELDS = re.compile(
    r"\bdata_array\b|\b(coordinate|dimension|with|kernels has) '?[abcd]\b"
)
_NAMES_OF_STATIONS = re.compile(r"'(seen|lat|lon|x|y|when|h\d)'|\b(target|place|station)s?\b")
_NOT_OURS = re.compile(r"/(jax|jaxlib|numpy|scipy|sklearn|equinox|optax)/")


class Refused(Exception):
    """The table was refused as it should be."""


@contextmanager
def no_strange_warnings() -> Iterator[None]:
    """Raise AssertionError for warnings from inside NumPy, SciPy or JAX."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for each in caught:
        strange = issubclass(each.category, RuntimeWarning) or _NOT_OURS.search(each.filename)
        assert not strange, (
            f"{each.category.__name__} at {Path(each.filename).name}:{each.lineno}: {each.message}"
        )


def asked(
    what: str, call: Callable[[], Any], may_refuse: bool = False, names: re.Pattern[str] = _NAMES
) -> Any:
    """Return what a call returns; AssertionError for any error but a refusal that names an argument."""
    try:
        with no_strange_warnings():
            return call()
    except AssertionError:
        raise
    except ValueError as error:
        plain = type(error) is ValueError
        if may_refuse and plain and names.search(str(error)):
            raise Refused(str(error)) from None
        raise AssertionError(f"{what}: {_brief(error)}") from error
    except Exception as error:
        raise AssertionError(f"{what}: {_brief(error)}") from error


def _brief(error: Exception) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "vastgp" in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}: {error}"


def finite(what: str, *values: Any) -> None:
    """AssertionError for what is no number."""
    for value in values:
        bad = ~np.isfinite(np.asarray(value, dtype=np.float64))
        assert not bad.any(), f"{what}: {int(bad.sum())} of {bad.size} are no numbers"


def check_regressor(name: str, table: OddTable, many: int = 25) -> Any:
    """Fit a table and hold the answer to what every regressor promises; return the model.

    Raises
    ------
    Refused
        Where the table cannot be fitted, and the error says why.
    AssertionError
        For all else.
    """
    if "poisson" in name:
        table = dataclasses.replace(table, target="integers", exponent=0, shift=0.0)
    X, y, new, target = table.draw(many)
    model = asked("fit", lambda: quick(name, X).fit(X, y), may_refuse=True)
    mean, std = asked("predict", lambda: _mean_and_spread(model, new))
    finite("mean", mean)
    finite("std", std)
    assert np.all(std > 0), f"std: {np.min(std):.3g}"
    # the ends of float64 are no place for a density
    finite("log density", asked("log density", lambda: model.log_predictive_density(new, target)))
    check_parts(lambda rows: np.stack(_mean_and_spread(model, rows), 1), new, _unit(y))
    check_file(model, lambda one: one.predict(new, return_std=True))
    if name != "GPRegressor":
        _check_latent(name, model, new, std)
    # the front door reads whole numbers as what they may mean, and halves as another thing
    if X.dtype == np.float64 and name != "GPRegressor" and "poisson" not in name:
        _check_units(name, table, mean, std)
    if name == "ExactGPRegressor":
        _check_order(name, table, mean, std)
    return model


def _mean_and_spread(model: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and deviations, or where the law of the noise has none, what a normal one has between quartiles."""
    mean, std = model.predict(rows, return_std=True)
    if isinstance(model, vastgp.GPRegressor):
        return mean, std  # states half the distance between two levels then
    likelihood = model.likelihood_
    if isinstance(likelihood, StudentT) and likelihood.degrees_of_freedom <= 2:
        assert np.all(np.isinf(std)), f"a deviation of {likelihood}"
        low, high = model.predict_quantiles(rows, [0.25, 0.75]).T
        return mean, (high - low) / 1.349
    return mean, std


def check_classifier(name: str, table: OddTable, labels: np.ndarray) -> Any:
    """The same of a classifier."""
    X, _, new, _ = table.draw(25)
    model = asked("fit", lambda: quick(name, X).fit(X, labels), may_refuse=True)
    found = asked("predict_proba", lambda: model.predict_proba(new))
    finite("probabilities", found)
    assert found.shape == (len(new), len(np.unique(labels)))
    assert np.all(found >= 0) and np.allclose(found.sum(axis=1), 1.0, atol=1e-6), "no probabilities"
    assert np.all(np.isin(asked("predict", lambda: model.predict(new)), np.unique(labels)))
    finite("log density", asked("log density", lambda: model.log_predictive_density(X, labels)))
    check_parts(model.predict_proba, new, 1.0)
    check_file(model, lambda one: (one.predict_proba(new),))
    return model


def check_field(field: OddField) -> Any:
    """The same of `vastgp.GridGP`, on a grid with gaps."""
    array = field.draw()

    def fit(values: Any) -> Any:
        # short; predictions of learned hyperparameters are looked at, not these
        return vastgp.GridGP(max_iter=10, criterion=Evidence(num_probes=2)).fit(values)

    model = asked("fit", lambda: fit(array), may_refuse=True, names=_NAMES_OF_FIELDS)
    found = asked("predict", model.predict)
    latent = asked("latent", lambda: model.predict(return_std="latent"))["std"]
    assert found["mean"].dims == array.dims and found["mean"].shape == array.shape
    finite("mean", found["mean"])
    finite("std", found["std"], latent)
    assert np.all(found["std"] > 0), f"std: {float(found['std'].min()):.3g}"
    assert np.all(latent <= found["std"] * (1 + 1e-6)), (
        "the function is less certain than an observation"
    )
    density = asked("log density", lambda: model.log_predictive_density(array))
    assert np.array_equal(np.isnan(density), np.isnan(array)), "densities are not of the values"
    finite("log density", density.values[~np.isnan(density.values)])
    finite("samples", asked("samples", lambda: model.sample_y(n_samples=2)))
    unit = float(np.max(found["std"]))
    # a dimension of one point is none of the model's
    kept = [dim for dim in array.dims if dim in array.coords and array.sizes[dim] > 1]
    first = {dim: found[dim].values[:2] for dim in kept}
    _same_field(
        "a part is predicted otherwise", unit, found.isel({dim: slice(0, 2) for dim in first}),
        asked("predict a part", lambda: model.predict(first, variance="exact")) if first else found,
    )  # fmt: skip
    check_file(model, lambda one: one.predict().to_array().values[None])
    # learning of few steps ends elsewhere with outputs in another order
    outputs = [dim for dim in kept if array[dim].dtype.kind in "UO"]
    turned = array.isel({dim: slice(None, None, -1) for dim in kept if dim not in outputs})
    again = asked("fit, turned", lambda: fit(turned)).predict()
    _same_field("turned, the answer is another", unit, found, again.reindex_like(found))
    # what is constant has no scale: a field, or an output of it
    spread = array.std([dim for dim in array.dims if dim not in outputs]).values
    varies = np.all(spread > 1e-12 * float(np.abs(array).max()))
    if array.dtype == np.float64 and abs(field.exponent) <= 100 and varies:
        again = asked("fit in other units", lambda: fit(array * 0.125)).predict() * 8.0
        _same_field("in other units the answer is another", unit, found, again)
    return model


def check_stations(stations: OddStations) -> Any:
    """The same of `vastgp.StationGP`, at new places."""
    readings, new, given = stations.draw(25)

    def fit(unit: float) -> Any:
        model = vastgp.StationGP(max_seconds=None)
        table = pd.DataFrame(readings | {"seen": unit * readings["seen"]})
        return model.fit(table, "seen", **given)

    def predict(model: Any, places: Any, kind: Any = True) -> np.ndarray:
        found = model.predict(pd.DataFrame(places), return_std=kind)
        return np.stack([found["mean"], found["std"]], 1)

    model = asked("fit", lambda: fit(1.0), may_refuse=True, names=_NAMES_OF_STATIONS)
    found = asked("predict", lambda: predict(model, new))
    latent = asked("latent", lambda: predict(model, new, "latent"))
    finite("mean and std", found, latent)
    assert np.all(found[:, 1] > 0), f"std: {found[:, 1].min():.3g}"
    assert np.all(latent[:, 1] <= found[:, 1] * (1 + 1e-6)), (
        "the function is less certain than a reading"
    )
    rows = np.arange(25)
    unit = _unit(readings["seen"])
    check_parts(
        lambda some: predict(model, {name: values[some] for name, values in new.items()}),
        rows,
        unit,
    )
    check_file(model, lambda one: predict(one, new).T)
    return model


def _same_field(what: str, unit: float, one: Any, other: Any) -> None:
    for name in ("mean", "std"):
        mine, theirs = one[name].values, other[name].transpose(*one[name].dims).values
        gap = np.max(np.abs(mine - theirs) / (np.abs(mine) + unit))
        assert gap < 1e-4, f"{what}, by {gap:.2g} in {name}"


def _unit(y: np.ndarray) -> float:
    return float(np.std(y / np.max(np.abs(y))) * np.max(np.abs(y))) if np.any(y) else 1.0


def _check_units(name: str, table: OddTable, mean: np.ndarray, std: np.ndarray) -> None:
    """Units that are powers of two round nothing: the answer is the same to the last bit."""
    if max(abs(table.exponent), *(abs(column.exponent) for column in table.columns)) > 100:
        return  # what is small or large already may have no number in another unit
    X, y, new, _ = table.draw(len(mean))
    if np.ptp(y) <= 1e-12 * np.abs(y).max() or np.any(
        np.ptp(X, axis=0) <= 1e-12 * np.abs(X).max(axis=0)
    ):
        return  # what is constant has no scale
    # rows of whole numbers alone are taken to come again, so that they are to stay whole
    powers = [3, 5, 9] if np.array_equal(X, np.round(X)) else [3, -5, 9]
    factors = 2.0 ** np.resize(powers, X.shape[1])
    model = asked("fit in other units", lambda: quick(name, X).fit(X * factors, y * 0.125))
    found = _mean_and_spread(model, new * factors)
    for mine, theirs in zip((mean, std), found, strict=True):
        gap = np.max(np.abs(8.0 * theirs - mine) / (np.abs(mean) + std))
        assert gap < 1e-5, f"in other units the answer is another, by {gap:.2g}"


def _check_order(name: str, table: OddTable, mean: np.ndarray, std: np.ndarray) -> None:
    """The order of the rows says nothing."""
    X, y, new, _ = table.draw(len(mean))
    order = np.random.default_rng(0).permutation(len(y))
    model = asked("fit in another order", lambda: quick(name, X).fit(X[order], y[order]))
    # a thousandth of a deviation, or a millionth of the target's where hardly any noise is left
    gap = np.max(np.abs(model.predict(new) - mean) / np.maximum(std, 1e-3 * np.std(y)))
    assert gap < 1e-3, f"in another order of the rows the answer is another, by {gap:.2g}"


def _check_latent(name: str, model: Any, new: np.ndarray, std: np.ndarray) -> None:
    """Deviations lie between those of the noise and of the prior with the noise."""
    _, latent = asked("latent", lambda: model.predict(new, return_std="latent"))
    finite("latent std", latent)
    likelihood = model.likelihood_
    # of heavy tails quartiles are no deviation, and of counts the function is the logarithm of the rate
    if not isinstance(likelihood, StudentT) and not likelihood.counts:
        assert np.all(latent <= std * (1 + 1e-6)), (
            "the function is less certain than an observation"
        )
    if isinstance(likelihood, Gaussian):
        noise = float(np.sqrt(likelihood.noise_variance)) if likelihood.noise_variance else 0.0
        assert np.all(std >= noise * (1 - 1e-4)), f"std {std.min():.4g} below noise {noise:.4g}"
    kernel = model.kernel_
    if name in _OF_THE_KERNEL and kernel is not None and kernel.constant_variance:
        prior = float(np.sqrt(kernel.total_variance()))
        assert np.all(latent <= prior * (1 + 1e-3)), f"{latent.max():.4g} above prior {prior:.4g}"
    finite("samples", asked("samples", lambda: model.sample_y(new, 2)))


def check_parts(predict: Callable[[np.ndarray], np.ndarray], new: np.ndarray, unit: float) -> None:
    """Each row's prediction is its own; ``predict`` gives one row for each."""
    whole = predict(new)[3:10]
    part = asked("predict a part", lambda: predict(new[3:10]))
    gap = np.max(np.abs(part - whole) / (np.abs(whole) + unit))
    assert gap < 1e-4, f"a part is predicted otherwise, by {gap:.2g}"


def check_file(model: Any, answers: Callable[[Any], Any]) -> None:
    """Saved and loaded, a model answers the same to the last bit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.vastgp"
        asked("save", lambda: model.save(path))
        again = asked("load", lambda: vastgp.load(path))
    for mine, theirs in zip(answers(model), answers(again), strict=True):
        assert np.array_equal(mine, theirs), "loaded, it answers otherwise"
