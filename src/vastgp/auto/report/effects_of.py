"""Effects of a front door's strongest inputs, on the target's scale and in the units of the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from vastgp.auto.columns import Column
from vastgp.auto.encoder import TableEncoder
from vastgp.auto.heaps import HeapedDistribution
from vastgp.auto.report.explain import effects
from vastgp.auto.report.kept import groups_of
from vastgp.auto.report.places import places_of
from vastgp.auto.report.rows import About
from vastgp.auto.stacking.mixture import mixed_moments, mixture_parts
from vastgp.data import Rows

_SHOWN = 6
# Where it is not known which inputs matter, the six that move the prediction most among so many.
_LOOKED_AT = 12
# Rows that an effect is averaged over: an exact process predicts all of them at each of 25 places.
_AVERAGED = 100


def importance_with_lengthscales(model: Any, about: About) -> list[tuple[Any, ...]]:
    """Return importance with each input's lengthscale, where its columns share one."""
    scales = model._told_lengthscales()
    groups = {} if scales is None else groups_of(model.encoder_, len(scales))
    found: list[tuple[Any, ...]] = []
    for name, loss, error in about.importance:
        here = np.unique(scales[groups[name]]) if name in groups else np.zeros(0)
        found.append((name, loss, error, float(here[0]) if len(here) == 1 else None))
    return found


def effects_of(model: Any, about: About, strongest: Sequence[str]) -> tuple[str, list[Any]]:
    """Return what the effects are on, and those of at most six inputs.

    Parameters
    ----------
    model : GPRegressor or GPClassifier
    about : About
    strongest : sequence of str
        Inputs in their order; empty where it is not known.
    """
    X = about.encoded[:: max(1, len(about.encoded) // _AVERAGED)]
    if not len(X):
        return "", []
    groups = groups_of(model.encoder_, X.shape[1])
    wanted = [name for name in strongest if name in groups] or list(groups)[:_LOOKED_AT]
    places, called, places_missing = {}, {}, set()
    if isinstance(model.encoder_, TableEncoder):
        columns: dict[str, Column] = {column.name: column for column in model.encoder_.columns_}
        for name in wanted:
            found = places_of(columns[name], about.columns[name]) if name in about.columns else None
            if found is None:
                places_missing.add(name)
            else:
                called[name], places[name] = found[0], found[1:]
    wanted = [name for name in wanted if name not in places_missing]
    wanted = wanted[:_SHOWN] if strongest else wanted
    effect_of, predict = _of_classes(model, X) if model._classes else _of_numbers(model)
    shown = effects(predict, X, {name: groups[name] for name in wanted}, places=places)
    if not strongest:
        shown = sorted(shown, key=lambda one: -float(np.ptp(one[2])))[:_SHOWN]
    return effect_of, [(called.get(name, name), *rest) for name, *rest in shown]


def _of_numbers(model: Any) -> tuple[str, Any]:
    """Return what is shown, and the function's mean and deviation as a function of encoded rows, in target units."""

    def predict(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = model._distribution(Rows(X, checked=True))
        # with heaps the function is that of the rest, which counts by its probability
        heaped = isinstance(found, HeapedDistribution)
        rest, share = (found.rest, found.probabilities[:, -1]) if heaped else (found, 1.0)
        means, stds, weights = [], [], []
        for part, weight in mixture_parts(rest.model):
            alone = dataclasses.replace(rest, model=part)
            means.append(alone.mean)
            stds.append(0.5 * np.abs(_moved(alone, 1.0) - _moved(alone, -1.0)))
            weights.append(weight)
        std = mixed_moments(np.stack(means), np.stack(stds), np.array(weights))[1]
        return found.mean, share * std

    return "" if model.exposure_ is None else "count of one unit of exposure", predict


def _moved(found: Any, deviations: float) -> np.ndarray:
    """Return the predicted mean with the function moved by so many of its posterior deviations.

    Half the distance between up and down is the function's deviation where the mean is linear in it, and on another
    scale or under another link a good guess of it.
    """
    of_model = found.model
    mean, variance = np.asarray(of_model.latent_mean), np.asarray(of_model.latent_variance)
    step = deviations * np.sqrt(np.maximum(variance, 0.0))
    if step.ndim > 1:
        step[1:] = 0.0  # further functions are those of the noise
    moved = dataclasses.replace(of_model, latent_mean=mean + step)
    return np.asarray(dataclasses.replace(found, model=moved).mean)


def _of_classes(model: Any, X: np.ndarray) -> tuple[str, Any]:
    """Return which class's probability is shown, and it as a function of encoded rows."""

    def probabilities(rows: np.ndarray) -> np.ndarray:
        raw = model._of_all(model.model_, model.model_.predict_proba(rows))
        return np.asarray(model.calibration_.transform(raw))

    classes = model.classes_
    # of two classes the second; of more the one whose probability differs most between rows
    shown = 1 if len(classes) == 2 else int(np.argmax(np.std(probabilities(X), axis=0)))
    return (
        f"probability of {classes[shown]}",
        lambda rows: (probabilities(rows)[:, shown], np.zeros(len(rows))),
    )
