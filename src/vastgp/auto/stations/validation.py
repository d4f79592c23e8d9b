"""Cross-validation of maps: whole stations, blocks of space or spans of time are left out, beside rows at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp._arguments import AtLeast, OneOf, Positive
from vastgp.auto.stations.readings import Readings, once
from vastgp.data.coordinates import EARTH_RADIUS
from vastgp.fitting.progress import Progress
from vastgp.metrics import coverage, nlpd, rmse

WAYS = ("station", "block", "time", "row")
# A block is so many lengthscales wide, or narrower by this factor, at most so many times: millimetres of the Earth.
_LENGTHSCALES, _SHRINK, _MOST_SHRINKS = 2.0, 1.5, 60


@dataclass(frozen=True)
class CrossValidation:
    """What predictions of readings that were left out are worth.

    Attributes
    ----------
    by : str
        What was left out together.
    parts : int
        How many of them there are: stations, blocks, spans or rows.
    folds : int
    block_km : float or None
        Size of a block.
    scores : dict of str to float
        ``rmse``, ``nlpd`` (in nats) and ``coverage`` of 95 % intervals.
    by_rows : dict of str to float
        The same where rows at random are left out.
    y, mean, std : ndarray of shape (n,)
        Of each reading, in the order of the table's rows that have a value: its value, and what models that had not
        seen it say.
    fold : ndarray of int, shape (n,)
    """

    by: str
    parts: int
    folds: int
    block_km: float | None
    scores: dict[str, float]
    by_rows: dict[str, float]
    y: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    fold: np.ndarray

    @property
    def times_worse(self) -> float:
        """RMSE over that by rows."""
        return self.scores["rmse"] / self.by_rows["rmse"]

    def __str__(self) -> str:
        noun = {"station": "stations", "block": "blocks", "time": "spans of time", "row": "rows"}
        size = "" if self.block_km is None else f" of {self.block_km:.3g} km"
        lines = [
            f"{self.parts:,} {noun[self.by]}{size} left out in {self.folds} parts: {_words(self.scores)}"
        ]
        if self.by != "row":
            lines.append(f"rows left out at random: {_words(self.by_rows)}")
            lines.append(
                f"RMSE is {self.times_worse:.2f} times that by rows, NLPD "
                f"{self.scores['nlpd'] - self.by_rows['nlpd']:+.3f} nats."
            )
        return "\n".join(lines)


def _words(scores: dict[str, float]) -> str:
    return (
        f"RMSE {scores['rmse']:.4g}, NLPD {scores['nlpd']:.4g}, 95 % intervals hold "
        f"{100.0 * scores['coverage']:.1f} %"
    )


def cross_validated(model: Any, by: Any, folds: Any, block_km: Any) -> CrossValidation:
    """Cross-validate a fitted `StationGP`, see there."""
    OneOf(*WAYS)("by", by)
    AtLeast(2)("folds", folds)
    Positive(none="twice the lengthscale, or less")("block_km", block_km)
    readings = model.readings_
    labels, size = _labels(model, by, folds, block_km)
    folds_ = folds_by_label(labels, int(folds), in_order=by == "time")
    mean, std = left_out(model, folds_)
    found = _scores(readings.y, mean, std)
    rows = found
    if by != "row":
        apart = folds_by_label(np.arange(len(readings)), int(folds))
        rows = _scores(readings.y, *left_out(model, apart))
    parts = len(np.unique(labels))
    number = int(folds_.max()) + 1
    return CrossValidation(by, parts, number, size, found, rows, readings.y, mean, std, folds_)


def left_out(model: Any, folds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of each reading by models that have not seen its fold.

    Parameters
    ----------
    model : StationGP
    folds : ndarray of int, shape (n,)
    """
    readings = model.readings_
    X = model._encoded_readings()
    mean, std = np.empty(len(X)), np.empty(len(X))
    with Progress("cross-validation", bool(model.verbose)) as progress:
        for number in range(int(folds.max()) + 1):
            out = folds == number
            given = model._conditioned(X, np.flatnonzero(~out))
            _, H, noise = readings.of_rows(out)
            mean[out], std[out] = model._moments(X[out], H, True, given, noise)
            progress.update((number + 1) / (int(folds.max()) + 1))
    return mean, std


def _scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    return {
        "rmse": float(rmse(y, mean)),
        "nlpd": float(nlpd(y, mean, std)),
        "coverage": float(coverage(y, mean, std)),
    }


def folds_by_label(labels: np.ndarray, folds: int, *, in_order: bool = False) -> np.ndarray:
    """Return the fold of each row: rows of one label are in one, and all have about the same number of rows.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
    folds : int
        Fewer where there are fewer labels.
    in_order : bool, default False
        Whether folds are spans of labels rather than random ones.
    """
    of_row = np.unique(labels, return_inverse=True)[1].ravel()
    count = np.bincount(of_row)
    order = np.arange(len(count))
    if not in_order:
        order = np.random.default_rng(0).permutation(len(count))
    middle = np.cumsum(count[order]) - 0.5 * count[order]
    found = np.empty(len(count), np.int64)
    found[order] = np.minimum((middle * folds / len(labels)).astype(np.int64), folds - 1)
    return np.unique(found[of_row], return_inverse=True)[1].ravel()


def _labels(model: Any, by: str, folds: int, block_km: Any) -> tuple[np.ndarray, float | None]:
    readings: Readings = model.readings_
    if by == "row":
        return np.arange(len(readings)), None
    if by == "station":
        stations = len(np.unique(readings.station))
        if stations < 2:
            raise ValueError("by='station' needs two stations, and all readings are of one.")
        return readings.station, None
    if by == "time":
        if readings.when is None:
            raise ValueError(
                "by='time' needs times, and the model was fitted without: fit(..., time='...')."
            )
        times, of_each = np.unique(readings.when, return_inverse=True)
        if len(times) < 2:
            moment = times[0].astype("datetime64[s]") if readings.dated else times[0]
            raise ValueError(f"by='time' needs two times, and all readings are of {moment}.")
        return of_each.ravel(), None
    if block_km is not None:
        found = blocks(readings, float(block_km))
        if len(np.unique(found)) < 2:
            raise ValueError(
                f"block_km={block_km!r}: all readings are in one block of that size. Give a smaller one."
            )
        return found, float(block_km)
    return _blocks_of_folds(model, folds)


def _blocks_of_folds(model: Any, folds: int) -> tuple[np.ndarray, float]:
    """Return blocks of two lengthscales, or smaller ones until there are as many as folds, or as places.

    Linear functions have no lengthscale: what is left out is as large as the folds leave it.
    """
    readings: Readings = model.readings_
    places = len(np.unique(once(readings.place, readings.space), axis=0))
    scales = model.process_._told_lengthscales()
    size = _extent(readings)
    if scales is not None:
        size = _LENGTHSCALES * float(scales[_first_column(model)])
    found = blocks(readings, size)
    for _ in range(_MOST_SHRINKS):
        if len(np.unique(found)) >= min(folds, places):
            break
        size /= _SHRINK
        found = blocks(readings, size)
    if len(np.unique(found)) < 2:
        raise ValueError(
            f"by='block' needs places apart, and all {places} are in one block of {size:.1e}. Leave out rows: by='row'."
        )
    return found, size


def _extent(readings: Readings) -> float:
    """Return a size that holds all readings: the Earth's half circumference, or the longer side of a plane."""
    if readings.space.sphere:
        return np.pi * EARTH_RADIUS
    return float(np.ptp(readings.place, axis=0).max()) or 1.0


def _first_column(model: Any) -> int:
    """Return the number of the first encoded column of the place."""
    return next(one.outputs[0] for one in model.encoding_ if one.kind == "place")


def blocks(readings: Readings, size: float) -> np.ndarray:
    """Return the number of each reading's cell: of about equal areas, ``size`` km wide and high (units of a plane).

    On the Earth bands of latitude are cut into ``2 pi R cos(latitude) / size`` parts, rounded: the area of one is that
    of the others to within the rounding.
    """
    first, second = readings.place.T
    if not readings.space.sphere:
        cells = np.floor(np.column_stack([first, second]) / size).astype(np.int64)
    else:
        bands = max(round(np.pi * EARTH_RADIUS / size), 1)
        band = np.clip(((first + 90.0) / 180.0 * bands).astype(np.int64), 0, bands - 1)
        middle = np.deg2rad((band + 0.5) / bands * 180.0 - 90.0)
        around = np.maximum(np.round(2.0 * np.pi * EARTH_RADIUS * np.cos(middle) / size), 1.0)
        part = np.floor(np.mod(second, 360.0) / 360.0 * around).astype(np.int64)
        cells = np.column_stack([band, np.minimum(part, around.astype(np.int64) - 1)])
    return np.unique(cells, axis=0, return_inverse=True)[1].ravel()
