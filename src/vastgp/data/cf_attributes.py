"""Attributes of predictions by the conventions for climate files (CF 1.11): those of the values that still hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vastgp.data.coordinates import is_latitude, is_longitude

CONVENTIONS = "CF-1.11"
LATITUDE = {"standard_name": "latitude", "units": "degrees_north"}
LONGITUDE = {"standard_name": "longitude", "units": "degrees_east"}
# What a file says of how it stores values, of the range of those that it has, and of variables beside them.
_OF_THE_INPUT = {
    "_FillValue", "missing_value", "_Unsigned", "scale_factor", "add_offset", "valid_min", "valid_max",
    "valid_range", "actual_range", "ancillary_variables",
}  # fmt: skip
_FLAGS = {"flag_values", "flag_masks", "flag_meanings"}
# Attributes of variables that say nothing of a whole file (CF 1.11, appendix A).
_OF_VARIABLES = _OF_THE_INPUT | _FLAGS | {
    "axis", "bounds", "calendar", "cell_measures", "cell_methods", "climatology", "compress", "coordinates",
    "formula_terms", "grid_mapping", "leap_month", "leap_year", "long_name", "month_lengths", "positive",
    "standard_error_multiplier", "standard_name", "units", "units_metadata",
}  # fmt: skip
# Units in which a deviation is a difference of temperatures, and not a temperature (CF 1.11, section 3.1.2).
_OF_TEMPERATURE = {
    "k", "kelvin", "degk", "deg_k", "degree_k", "degrees_k", "degree_kelvin", "degrees_kelvin",
    "celsius", "degc", "deg_c", "degreec", "degreesc", "degree_c", "degrees_c", "degree_celsius", "degrees_celsius",
    "fahrenheit", "degf", "deg_f", "degreef", "degreesf", "degree_f", "degrees_f", "degree_fahrenheit",
    "degrees_fahrenheit", "°c", "°f",
}  # fmt: skip


def of_mean(attrs: Mapping[Any, Any], std: str | None) -> dict[Any, Any]:
    """Return attributes of a predicted mean: those of the values, and the name of its deviations, if any."""
    kept = {key: value for key, value in attrs.items() if key not in _OF_THE_INPUT}
    return kept if std is None else kept | {"ancillary_variables": std}


def of_std(attrs: Mapping[Any, Any], name: Any) -> dict[Any, Any]:
    """Return attributes of standard deviations: units and cells of the values, and the modifier of the standard name.

    Parameters
    ----------
    attrs : mapping
        Of the values.
    name : object
        What they are called where they have no long name.
    """
    kept = {key: at for key, at in attrs.items() if key not in _OF_THE_INPUT | _FLAGS}
    standard = kept.pop("standard_name", None)
    if isinstance(standard, str) and len(standard.split()) == 1:  # at most one modifier
        kept["standard_name"] = f"{standard} standard_error"
    called = kept.get("long_name") or name or "the value"
    kept["long_name"] = f"standard deviation of a prediction of {called}"
    if str(kept.get("units", "")).lower() in _OF_TEMPERATURE:
        kept["units_metadata"] = "temperature: difference"
    return kept


def of_named(attrs: Mapping[Any, Any], name: Any) -> dict[Any, Any]:
    """Return attributes of a mean with a long name, where nothing says what it is of."""
    if "long_name" in attrs or "standard_name" in attrs:
        return dict(attrs)
    return {**attrs, "long_name": f"predicted mean of {name or 'the value'}"}


def of_coordinate(name: Any, variable: Any) -> dict[Any, Any]:
    """Return attributes of a coordinate of a file, with what its name and its values say and they do not.

    Degrees of latitude and longitude have units and a standard name (sections 4.1 and 4.2), and times along a dimension
    a standard name (4.4).
    """
    attrs, dims = dict(variable.attrs), variable.dims
    if variable.dtype.kind in "fiu":
        for known, more in ((is_latitude, LATITUDE), (is_longitude, LONGITUDE)):
            if known(str(name), attrs):
                return attrs | {key: at for key, at in more.items() if key not in attrs}
        return attrs
    dates = variable.dtype.kind == "M" or (
        variable.dtype.kind == "O"
        and variable.size
        and hasattr(variable.values.flat[0], "calendar")
    )
    return {"standard_name": "time"} | attrs if dates and dims == (name,) else attrs


def of_file(attrs: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return attributes of a Dataset of predictions: those that may be of a whole file, and the conventions kept."""
    kept = {key: value for key, value in attrs.items() if key not in _OF_VARIABLES}
    return kept | {"Conventions": CONVENTIONS}
