"""Rules of the conventions for climate files (CF 1.11) that a file of predictions is subject to, by their sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*$")
TIME = re.compile(
    r"(microseconds?|milliseconds?|seconds?|minutes?|hours?|days?) since -?\d{1,4}-\d{1,2}-\d{1,2}([ T].*)?$"
)
CALENDARS = {
    "standard", "gregorian", "proleptic_gregorian", "noleap", "365_day", "all_leap", "366_day", "360_day",
    "julian", "utc", "tai", "none",
}  # fmt: skip
MODIFIERS = {"detection_minimum", "number_of_observations", "standard_error", "status_flag"}
# A unit of UDUNITS, with a power: what the tests and common products have.
SYMBOL = re.compile(
    r"((?:da|[yzafpnumcdhkMGTPEZY])?(?:m|g|s|K|Pa|J|W|N|mol|Hz|bar|A|V|l|L)|kg|degC|degF|degree_?s?_?(?:C|Celsius|north|east|N|E|T)?"
    r"|degrees(?:_north|_east|_true|_celsius|_fahrenheit)?|[cC]elsius|[kK]elvin|kilo[gm]\w+|met(?:er|re)s?|seconds?"
    r"|minutes?|hours?|days?|percent|%|radians?|psu|ppm|1|\d+(?:\.\d+)?)(?:\^|\*\*)?(-?\d+)?$"
)
# Attributes that only variables have (appendix A).
OF_VARIABLES = {
    "_FillValue", "missing_value", "add_offset", "scale_factor", "valid_min", "valid_max", "valid_range",
    "actual_range", "ancillary_variables", "axis", "bounds", "calendar", "cell_measures", "cell_methods", "climatology",
    "coordinates",
    "flag_values", "flag_meanings", "flag_masks", "formula_terms", "grid_mapping", "long_name", "positive",
    "standard_name", "standard_error_multiplier", "units", "units_metadata",
}  # fmt: skip
METHODS = {
    "point", "sum", "maximum", "maximum_absolute_value", "median", "mid_range", "minimum", "minimum_absolute_value",
    "mean", "mean_absolute_value", "mean_of_upper_decile", "mode", "range", "root_mean_square", "standard_deviation",
    "sum_of_squares", "variance",
}  # fmt: skip


def violations(path: Any) -> list[str]:
    """Return what of a NetCDF file or a Zarr folder is against the rules, each with the section of the conventions."""
    engine = "zarr" if Path(path).is_dir() else "h5netcdf"
    with xr.open_dataset(path, engine=engine, decode_cf=False) as dataset:
        return _File(dataset.load()).all()


class _File:
    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.variables = dict(dataset.variables)
        self.auxiliary = self._named("coordinates")
        self.bounds = self._named("bounds") | self._named("climatology")
        self.mappings = self._named("grid_mapping")
        self.measures = self._named("cell_measures")
        self.axes = {name for name, one in self.variables.items() if one.dims == (name,)}
        self.coordinates = self.axes | self.auxiliary
        apart = self.coordinates | self.bounds | self.mappings | self.measures
        self.fields = {name for name in self.variables if name not in apart}

    def _named(self, key: str) -> set[str]:
        texts = [str(one.attrs.get(key, "")) for one in self.variables.values()]
        return {word for text in texts for word in text.split() if not word.endswith(":")}

    def all(self) -> list[str]:
        found = list(self.of_the_file())
        for name, variable in self.variables.items():
            for rules in (self.of_units, self.of_names, self.of_missing, self.of_references):
                found += [f"{name}: {text}" for text in rules(name, variable)]
        for name in self.coordinates & set(self.variables):
            found += [f"{name}: {text}" for text in self.of_a_coordinate(name)]
        for name in self.bounds & set(self.variables):
            found += [f"{name}: {text}" for text in self.of_bounds(name)]
        for name in self.fields:
            found += [f"{name}: {text}" for text in self.of_a_field(name)]
        return found

    def of_the_file(self) -> Iterator[str]:
        attrs = self.dataset.attrs
        if not re.search(r"\bCF-1\.\d+\b", str(attrs.get("Conventions", ""))):
            yield "2.6.1: no Conventions attribute with CF-1.x"
        for key in ("title", "history"):
            if not (isinstance(attrs.get(key), str) and attrs[key]):
                yield f"2.6.2: no {key} (recommended)"
        for name in sorted(set(attrs) & OF_VARIABLES):
            yield f"appendix A: {name} is no attribute of a file"
        for name in [*self.variables, *self.dataset.dims]:
            if not NAME.match(str(name)):
                yield f"2.3: {name!r} is no name of letters, digits and underscores"
        for axis in "XYZT":
            having = [n for n in self.axes if self.variables[n].attrs.get("axis") == axis]
            if len(having) > 1:
                yield f"4: axis {axis} twice ({having})"

    def of_units(self, name: str, variable: xr.Variable) -> Iterator[str]:
        units, own = variable.attrs.get("units"), variable.dtype.kind in "fiu"
        if units is None:
            if name in self.fields and own:
                yield "3.1: no units"
            if name in self.coordinates and own and "standard_name" in variable.attrs:
                yield "3.1: no units"
            return
        if not isinstance(units, str):
            yield f"3.1: units {units!r} are no text"
        elif "since" in units:
            if not TIME.match(units):
                yield f"4.4: units {units!r} are no span since a date"
            if variable.attrs.get("calendar", "standard") not in CALENDARS:
                yield f"4.4.1: calendar {variable.attrs['calendar']!r}"
        elif not all(SYMBOL.match(word) for word in re.split(r"[ ./]+", units)):
            yield f"3.1: units {units!r} are none that UDUNITS reads"
        metadata = variable.attrs.get("units_metadata")
        if metadata not in (
            None, *(f"temperature: {a}" for a in ("on_scale", "difference", "unknown")),
        ):  # fmt: skip
            yield f"3.1.2: units_metadata {metadata!r}"

    def of_names(self, name: str, variable: xr.Variable) -> Iterator[str]:
        standard = variable.attrs.get("standard_name")
        if standard is None:
            return
        base, *modifiers = str(standard).split(" ")
        if not re.match(r"[a-z][a-z0-9_]*$", base):
            yield f"3.3: standard_name {standard!r}"
        if len(modifiers) > 1 or set(modifiers) - MODIFIERS:
            yield f"appendix C: modifier {modifiers}"

    def of_missing(self, name: str, variable: xr.Variable) -> Iterator[str]:
        marks = [key for key in ("_FillValue", "missing_value") if key in variable.attrs]
        if name in self.axes | self.bounds and marks:
            yield f"2.5.1: {marks} on a coordinate or its bounds"
        for key in marks:
            if np.asarray(variable.attrs[key]).dtype != variable.dtype:
                yield f"2.5.1: {key} has another type than the variable"
        if (
            name in self.coordinates | self.bounds
            and variable.dtype.kind == "f"
            and not np.all(np.isfinite(variable.values))
        ):
            yield "2.5.1: a coordinate misses values"
        low, high = (variable.attrs.get(key) for key in ("valid_min", "valid_max"))
        low, high = variable.attrs.get("valid_range", (low, high))
        with np.errstate(invalid="ignore"):
            if (low is not None and np.any(variable.values < low)) or (
                high is not None and np.any(variable.values > high)
            ):
                yield "2.5.1: values outside of the valid range count as missing"

    def of_references(self, name: str, variable: xr.Variable) -> Iterator[str]:
        sections = {
            "coordinates": "5",
            "bounds": "7.1",
            "climatology": "7.4",
            "ancillary_variables": "3.4",
        }
        sections |= {"grid_mapping": "5.6", "cell_measures": "7.2"}
        elsewhere = str(self.dataset.attrs.get("external_variables", "")).split()
        for key, section in sections.items():
            words = str(variable.attrs.get(key, "")).split()
            for word in words:
                if word.endswith(":"):
                    continue
                if word not in self.variables:
                    if key != "cell_measures" or word not in elsewhere:
                        yield f"{section}: {key} names {word!r}, which is not there"
                elif key in ("coordinates", "ancillary_variables", "cell_measures") and not (
                    set(self.variables[word].dims) <= set(variable.dims)
                ):
                    yield f"{section}: {key} names {word!r}, which has other dimensions"
                elif (
                    key == "grid_mapping" and "grid_mapping_name" not in self.variables[word].attrs
                ):
                    yield f"5.6: {word!r} has no grid_mapping_name"
        if "coordinates" in variable.attrs and name in self.bounds | self.mappings | self.axes:
            yield "5: coordinates of what is no data variable"

    def of_a_coordinate(self, name: str) -> Iterator[str]:
        variable = self.variables[name]
        if variable.dtype.kind not in "fiu":
            return
        if name in self.axes and len(variable) > 1:
            steps = np.diff(variable.values)
            if not (np.all(steps > 0) or np.all(steps < 0)):
                yield "1.3: not monotonic"
        standard, units = (variable.attrs.get(key) for key in ("standard_name", "units"))
        for text, names in (("latitude", ("lat", "latitude")), ("longitude", ("lon", "longitude"))):
            if name.lower() in names and (standard is None or units is None):
                yield f"4.1: {text} without units or standard name"
        if name in self.axes and "since" in str(units) and standard is None:
            yield "4.4: a time axis without a standard name (recommended)"
        known = {"latitude": "degrees?_?(north|N)$", "longitude": "degrees?_?(east|E)$"}
        if standard in known and not re.match(known[standard], str(units)):
            yield f"4.1: {standard} in {units!r}"
        if standard == "latitude" and np.any(np.abs(variable.values) > 90.0):
            yield "4.1: latitude beyond 90 degrees"

    def of_bounds(self, name: str) -> Iterator[str]:
        variable = self.variables[name]
        (parent,) = (
            n for n, one in self.variables.items() if name in (one.attrs.get("bounds"), one.attrs.get("climatology"))
        )  # fmt: skip
        owner = self.variables[parent]
        if variable.dims[:-1] != owner.dims:
            yield f"7.1: dimensions {variable.dims} for those of {parent!r} and vertices"
            return
        for key in ("units", "calendar", "standard_name", "axis"):
            if key in variable.attrs and variable.attrs[key] != owner.attrs.get(key):
                yield f"7.1: {key} is another one than that of {parent!r}"
        if variable.shape[-1] == 2 and owner.attrs.get("bounds") == name:
            low, high = np.min(variable.values, axis=-1), np.max(variable.values, axis=-1)
            if np.any((owner.values < low) | (owner.values > high)):
                yield f"7.1: {parent!r} lies outside of its cells"

    def of_a_field(self, name: str) -> Iterator[str]:
        attrs = self.variables[name].attrs
        dims = set(self.variables[name].dims)
        projected = {"projection_x_coordinate", "projection_y_coordinate"}
        for dim in dims & self.axes:
            if (
                self.variables[dim].attrs.get("standard_name") in projected
                and "grid_mapping" not in attrs
            ):
                yield f"5.6: {dim!r} is of a projection, and there is no grid_mapping"
        if "cell_methods" in attrs:
            text = re.sub(r"\([^)]*\)", "", str(attrs["cell_methods"]))
            found = re.findall(r"((?:\w+: )+)(\w+)((?: (?:where|over|within) \w+)*)", text)
            if not found or "".join(a + b + c for a, b, c in found).replace(
                " ", ""
            ) != text.replace(" ", ""):
                yield f"7.3: cell_methods {attrs['cell_methods']!r}"
            for of, method, _ in found:
                if method not in METHODS:
                    yield f"7.3: method {method!r}"
                there = [self.variables[n] for n in self.coordinates & set(self.variables)]
                known = dims | self.coordinates | {"area"}
                known |= {str(one.attrs.get("standard_name")) for one in there}
                for word in of.replace(":", " ").split():
                    if word not in known:
                        yield f"7.3: cell_methods of {word!r}"
        if not any(key in attrs for key in ("long_name", "standard_name")):
            yield "3.2: neither long_name nor standard_name (recommended)"
