"""Grids written to files, whole or not at all."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vastgp.cli._errors import BadInput

SUFFIXES = (".nc", ".nc4", ".zarr")
_OF_TIMES = ("units", "calendar")


def check_out(out: Path, force: bool, inputs: Mapping[str, Path | None]) -> None:
    """Refuse a place to write to that is no format, there already, or an input of the command."""
    from vastgp.cli._files import check_suffix, refuse_existing, refuse_others, require_folder

    check_suffix(out, "--out", SUFFIXES)
    refuse_others(out, "--out", inputs)
    refuse_existing(out, "--out", force)
    if out.is_dir() != (out.suffix.lower() == ".zarr") and out.exists():
        raise BadInput(f"--out {str(out)!r} is there and of another kind; choose another name.")
    require_folder(out.parent, f"--out {str(out)!r} cannot be written")


def write_grid(filled: Any, out: Path) -> None:
    """Write beside the place, then take it."""
    from vastgp.data.whole_files import written_whole

    filled = _encoded(filled)
    if out.suffix.lower() != ".zarr":
        with written_whole(out) as partial:
            filled.to_netcdf(partial, engine="h5netcdf")
        return
    partial = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    old = out.with_name(f".{out.name}.{os.getpid()}.old")
    try:
        with warnings.catch_warnings():
            # a summary of all variables, which older readers look for, is no part of Zarr 3 yet: readers may ignore it
            warnings.filterwarnings("ignore", message="Consolidated metadata")
            filled.to_zarr(partial, mode="w")
        if out.exists():
            os.replace(out, old)
        os.replace(partial, out)
    except BaseException:
        if old.exists() and not out.exists():
            os.replace(old, out)
        raise
    finally:
        for folder in (partial, old):
            shutil.rmtree(folder, ignore_errors=True)


def _encoded(filled: Any) -> Any:
    """Return a Dataset with how its variables are written, by the conventions of climate files.

    Latitude, longitude and times that only their names and values tell have units and standard names; text is of any
    length, for which Zarr has a type. How the input was packed is no business of the output; times keep their units and
    calendar. Coordinates and what belongs to them miss nothing, and the latter have no coordinates of their own (CF
    1.11, sections 2.5.1 and 7.1).
    """
    from vastgp.data.cf_attributes import of_coordinate
    from vastgp.data.grid_fields import names_beside

    filled = filled.assign_coords(filled.coords)  # attributes of the caller's stay
    for name, variable in filled.coords.items():
        variable.attrs = of_coordinate(name, variable.variable)
        if variable.dtype.kind == "U":
            filled[name] = variable.astype(object)
    times = {
        name: {key: variable.encoding[key] for key in _OF_TIMES if key in variable.encoding}
        for name, variable in filled.variables.items()
        if "since" in str(variable.encoding.get("units", ""))
    }
    for name, variable in filled.variables.items():  # bounds of cells have the units of their times
        bounds = variable.attrs.get("bounds")
        if name in times and bounds in filled.variables:
            times[bounds] = times[name]
    filled, beside = filled.drop_encoding(), names_beside(filled)
    for name, encoding in times.items():
        filled[name].encoding.update(encoding)
    for name in {*filled.coords, *beside}:
        filled[name].encoding["_FillValue"] = None
    for name in beside:
        filled[name].encoding["coordinates"] = None
    return filled
