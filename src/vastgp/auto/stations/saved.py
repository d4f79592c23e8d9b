"""A fitted `StationGP` in a file: the process, the trend with what it is given, and the readings."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

import vastgp
from vastgp.auto.space import Space
from vastgp.auto.stacking import model_from_file
from vastgp.auto.stations.kriging import Kriging
from vastgp.auto.stations.nearest_kriging import NearestKriging
from vastgp.auto.stations.process import PlaceProcess
from vastgp.auto.stations.readings import Readings
from vastgp.data.archive import above, below
from vastgp.estimators.saved import several_from_file, several_to_file
from vastgp.estimators.serialise import decode_params, encode_params

# Larger arrays that occur several times are stored once: the factor that process and trend have in common.
_SHARED = 1 << 16
_OF_KRIGING = ("shift", "scale", "coefficients", "covariance")


def to_file(model: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and arrays."""
    params, arrays = encode_params(model.get_params(deep=False))
    process, process_arrays = model.process_._to_file()
    smoothers, smoother_arrays = several_to_file(model.kriging_.smoothers, "smoother/")
    readings, reading_arrays = _readings_to_state(model.readings_)
    found = (
        above("params/", arrays)
        | above("process/", process_arrays)
        | above("readings/", reading_arrays)
        | {f"kriging/{name}": getattr(model.kriging_, name) for name in _OF_KRIGING}
        | smoother_arrays
    )
    found, shared = _once(found)
    header = {
        "kind": "model",
        "vastgp": vastgp.__version__,
        "estimator": type(model).__name__,
        "params": params,
        "process": process,
        "smoothers": smoothers,
        "readings": readings,
        "std_factor": model.std_factor_,
        "fit_seconds": model.fit_seconds_,
        "shared": shared,
    }
    if isinstance(model.kriging_, NearestKriging):
        header["trend_readings"] = model.kriging_.trend_readings
    return header, found


def read_from(cls: Any, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Return the model that `to_file` described."""
    arrays = arrays | {name: arrays[other] for name, other in header["shared"].items()}
    model = cls(**decode_params(header["params"], below("params/", arrays)))
    model.process_ = PlaceProcess._from_file(header["process"], below("process/", arrays))
    smoothers = tuple(several_from_file(model_from_file, header["smoothers"], arrays, "smoother/"))
    of_kriging = below("kriging/", arrays)
    parts: dict[str, Any] = {"model": model.process_.model_, "smoothers": smoothers}
    parts |= {name: of_kriging[name] for name in _OF_KRIGING}
    readings = _readings_from_state(header["readings"], below("readings/", arrays))
    trend_readings = header.get("trend_readings")
    if trend_readings is None:
        model.kriging_ = Kriging(**parts)
    else:
        scaled = (readings.beside - of_kriging["shift"]) / of_kriging["scale"]
        model.kriging_ = NearestKriging(**parts, scaled=scaled, trend_readings=trend_readings)
    model.readings_ = readings
    model.std_factor_, model.fit_seconds_ = header["std_factor"], header["fit_seconds"]
    return model


def _once(arrays: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return large arrays once each, and for the names of others that are equal the name of the first."""
    first: dict[Any, str] = {}
    kept, shared = {}, {}
    for name, array in arrays.items():
        key = name
        if array.nbytes >= _SHARED:
            content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
            key = first.setdefault((array.dtype.str, array.shape, content), name)
        if key == name:
            kept[name] = array
        else:
            shared[name] = key
    return kept, shared


def _readings_to_state(readings: Readings) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    arrays = {
        "y": readings.y,
        "place": readings.place,
        "beside": readings.beside,
        "station": readings.station,
    }
    if readings.when is not None:
        when = readings.when
        arrays["when"] = when.astype(np.int64) if readings.dated else when
    if readings.noise is not None:
        arrays["noise"] = readings.noise
    space = readings.space
    plain = {
        "where": readings.where,
        "space": [space.first, space.second, space.sphere],
        "target": readings.target,
        "time": readings.time,
        "dated": readings.dated,
        "form": readings.form,
        "covariates": list(readings.covariates),
        "dropped": readings.dropped,
        "attrs": {
            name: {key: str(value) for key, value in attrs.items()}
            for name, attrs in readings.attrs.items()
        },
    }
    return plain, arrays


def _readings_from_state(plain: dict[str, Any], arrays: dict[str, np.ndarray]) -> Readings:
    when = arrays.get("when")
    if when is not None and plain["dated"]:
        when = when.view("datetime64[us]")
    return Readings(
        plain["where"],
        Space(*plain["space"]),
        plain["target"],
        plain["time"],
        tuple(plain["covariates"]),
        arrays["y"],
        arrays["place"],
        when,
        arrays["beside"],
        arrays.get("noise"),
        arrays["station"],
        plain["dropped"],
        plain["attrs"],
        plain.get("form", "dates" if plain["dated"] else "numbers"),
    )
