"""What the process of place and time is given, and the trend that it begins with."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.auto import candidates
from vastgp.auto.encoder import TableEncoder
from vastgp.auto.race import fit_one
from vastgp.auto.stations.kriging import kriging
from vastgp.auto.stations.process import PlaceProcess
from vastgp.auto.stations.readings import Readings, once
from vastgp.auto.warps import Own
from vastgp.data import Rows
from vastgp.data.minibatch import fixed_indices
from vastgp.data.own_noise import OwnNoise

# Of the budget, and the rows that a first trend is learned of.
_FIRST_SHARE, _FIRST_ROWS, _LEAST_SECONDS = 0.1, 1000, 1.0
# The use of the seed for these rows, see `fixed_indices`.
_FIRST_TREND = 240


def check_places(readings: Readings) -> None:
    if len(np.unique(once(readings.place, readings.space), axis=0)) > 1:
        return
    first, second = readings.place[0]
    names = f"{readings.space.first} {first:g}, {readings.space.second} {second:g}"
    if len(readings) == 1:
        raise ValueError(
            f"{readings.where} has one reading with a value, at {names}. A map needs several stations."
        )
    raise ValueError(
        f"All {len(readings)} readings of {readings.where} are at one place, {names}. A map needs several; a series of "
        "one station is for GPRegressor, with its time as an input."
    )


def inputs_of(readings: Readings, place: Any = None, when: Any = None) -> Any:
    """Return places and times as a table for the encoder.

    Parameters
    ----------
    readings : Readings
    place : ndarray of shape (m, 2), optional
        Those of the readings without.
    when : ndarray of shape (m,), optional
    """
    import pyarrow as pa

    at = readings.place if place is None else place
    moments = readings.when if place is None else when
    columns = {readings.space.first: at[:, 0], readings.space.second: at[:, 1]}
    if readings.time is not None:
        columns[readings.time] = moments
    return pa.table(columns)


def encoded(process: PlaceProcess, place: Any, when: Any, readings: Readings) -> np.ndarray:
    """Return the inputs of the process at places and times."""
    return process.encoder_.transform(inputs_of(readings, place, when))


def encoder_of(readings: Readings) -> TableEncoder:
    """Return what makes inputs of places and times, not fitted."""
    pair = (readings.space.first, readings.space.second)
    return TableEncoder(space={"lat": pair[0], "lon": pair[1]} if readings.space.sphere else pair)


def first_trend(
    readings: Readings, asked: dict[str, Any], seed: int, budget: float | None
) -> np.ndarray:
    """Return a first trend at all readings, by generalised least squares of some of them.

    The race learns its kernel of what this leaves: what is left of the trend is far less than what least squares would
    leave, which take all that place explains for noise.
    """
    rows = np.sort(fixed_indices(seed, _FIRST_TREND, len(readings), _FIRST_ROWS))
    encoder = encoder_of(readings)
    X = encoder.fit_transform(inputs_of(readings))[rows]
    y, H, noise = readings.of_rows(rows)
    centred = np.column_stack([H - H.mean(axis=0), np.ones(len(H))])
    plain = y - centred @ np.linalg.lstsq(centred, y, rcond=None)[0]
    candidate = candidates.named("exact", False, "auto")
    params = {name: value for name, value in asked.items() if name == "kernel"}
    seconds = None if budget is None else max(_FIRST_SHARE * budget, _LEAST_SECONDS)
    model = candidate.make(seed=seed, seconds=seconds, tied=encoder.tied_, **params)
    fit_one(model, Rows(X, _with_noise(plain, noise), checked=True), Own())
    found = kriging(model, encoder.tied_, X, y, H, noise, readings.covariates)
    return (readings.beside - found.shift) @ found.trend()[0]


def _with_noise(y: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
    return y if noise is None else OwnNoise(noise, None).of_targets(y, np.ones(len(y), bool))
