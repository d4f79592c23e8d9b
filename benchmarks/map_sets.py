"""Stations and gaps for `maps.py`: readings that are given, and places whose readings are withheld.

A set is a dictionary of arrays, as it is handed to programs of other environments: `inputs` and `new` with a column for
each of `names`, `y` and `y_new`, `slice` and `slice_new` (numbers of the slices of a field, which programs of two
dimensions fill one by one; of stations all nought), and `sphere`: whether the first two inputs are degrees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from grid_fields import FIELDS, stored
from stations import made

Set = dict[str, Any]


def _split(names: str, inputs: np.ndarray, y: np.ndarray, given: int, withheld: int) -> Set:
    """Draw stations and withheld places of what is observed."""
    order = np.random.default_rng(0).permutation(len(y))
    first, second = order[:given], order[given : given + withheld]
    return {
        "names": names.split(), "inputs": inputs[first], "y": y[first],
        "new": inputs[second], "y_new": y[second], "sphere": True,
        "slice": np.zeros(len(first), int), "slice_new": np.zeros(len(second), int),
    }  # fmt: skip


def globe(given: int) -> Set:
    """Return stations of `stations.py`, with heights."""
    data = made(given + 5000)
    inputs = np.column_stack([data[name] for name in ("lat", "lon", "height")])
    found = _split("lat lon height", inputs, data["value"], 0, 0)
    first, second = slice(0, given), slice(given, None)
    return found | {
        "inputs": inputs[first], "y": data["value"][first],
        "new": inputs[second], "y_new": data["value"][second],
        "slice": np.zeros(given, int), "slice_new": np.zeros(5000, int),
    }  # fmt: skip


def orca2() -> Set:
    """Return cells of an ocean model's curvilinear grid as stations, each place once."""
    with stored("ocean_temperature_orca2") as z:
        inputs = np.column_stack([z["nav_lat"].ravel(), z["nav_lon"].ravel()]).astype(float)
        y = z["temperature"].ravel().astype(float)
    seen = np.flatnonzero(np.isfinite(y))
    _, first = np.unique(inputs[seen], axis=0, return_index=True)
    seen = seen[first]
    return _split("lat lon", inputs[seen], y[seen], 4000, 5000)


def _cells(field: xr.DataArray) -> tuple[np.ndarray, np.ndarray]:
    """Return latitude, longitude and time, and values, of the observed cells of a cube."""
    when, lat, lon = np.meshgrid(*(field[dim].values for dim in field.dims), indexing="ij")
    inputs = np.column_stack([lat.ravel(), lon.ravel(), when.ravel()]).astype(float)
    y = field.values.ravel()
    return inputs[np.isfinite(y)], y[np.isfinite(y)]


def of_slice(name: str, given: int) -> Set:
    """Return stations at cells of the first slice of a cube; all its other cells are withheld."""
    inputs, y = _cells(FIELDS[name][0]()[:1])
    return _split("lat lon", inputs[:, :2], y, given, len(y) - given)


def of_cube(name: str, given: int) -> Set:
    """Return readings at cells and times of a cube."""
    return _split("lat lon time", *_cells(FIELDS[name][0]()), given, 5000)


def gaps(name: str) -> Set:
    """Return a gap field of `grid_fields.py`: its cells, and those withheld."""
    whole, hidden = field_of(name)
    sizes = whole.shape[-2:]
    first, second = np.meshgrid(*(whole[dim].values for dim in whole.dims[-2:]), indexing="ij")
    cells = np.stack([first.ravel(), second.ravel()], axis=1).astype(float)
    values, out = (one.reshape(-1, sizes[0] * sizes[1]) for one in (whole.values, hidden))
    number, cell = np.nonzero(np.isfinite(values) & ~out)
    number_out, cell_out = np.nonzero(out)
    sphere = "lat" in whole.dims
    return {
        "names": ["lat", "lon"] if sphere else ["y", "x"], "sphere": sphere,
        "inputs": cells[cell], "y": values[number, cell], "slice": number,
        "new": cells[cell_out], "y_new": values[number_out, cell_out], "slice_new": number_out,
    }  # fmt: skip


def field_of(name: str) -> tuple[xr.DataArray, np.ndarray]:
    """Return a field and which of its cells are withheld, as in `grid_fields.py`."""
    make, share = FIELDS[name]
    whole = make()
    draw = np.random.default_rng(0).uniform(size=whole.shape)
    return whole, np.isfinite(whole.values) & (draw < share)


SETS: dict[str, Callable[[], Set]] = {
    "globe, 5,000": lambda: globe(5000),
    "globe, 20,000": lambda: globe(20_000),
    "orca2": orca2,
    "sst, a month": lambda: of_slice("sst_ostia", 2000),
    "air, a year": lambda: of_slice("air_temperature", 600),
    "sst, months": lambda: of_cube("sst_ostia", 5000),
    "air, years": lambda: of_cube("air_temperature", 5000),
}
GAPS = {"gaps of sst": "sst_ostia", "gaps of air": "air_temperature", "gaps of soap film": "piv_soapfilm"}  # fmt: skip
SETS |= {key: lambda name=name: gaps(name) for key, name in GAPS.items()}  # type: ignore[misc]
