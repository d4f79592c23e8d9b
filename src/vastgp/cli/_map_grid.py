"""The grid of a map of stations: a spacing or a file, edges and times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vastgp.cli._errors import BadInput
from vastgp.cli._grid_files import SUFFIXES

_MOST_POINTS = 200_000_000
# Degrees without a station where a map may end: stations with narrower gaps are all around the Earth.
_WIDE_GAP = 60.0


def step_of(grid: str) -> float | None:
    """Read a spacing; None of a file."""
    try:
        step = float(grid)
    except ValueError:
        path = Path(grid)
        if path.suffix.lower() in SUFFIXES and path.exists():
            return None
        raise BadInput(
            f"--grid {grid!r} is no number and no NetCDF file or Zarr folder that is there. Give the spacing of the "
            "map, such as 0.25, or a file with its coordinates."
        ) from None
    if not 0.0 < step < float("inf"):
        raise BadInput(f"--grid {grid}: a spacing is above zero.")
    return step


def edges_of(bounds: str | None) -> tuple[float, ...] | None:
    if bounds is None:
        return None
    try:
        edges = tuple(float(part) for part in bounds.split(","))
    except ValueError:
        edges = ()
    if len(edges) != 4 or not (edges[0] < edges[2] and edges[1] < edges[3]):
        raise BadInput(
            f"--bounds {bounds!r}: expected west, south, east and north with commas between, such as -10,35,30,70; "
            "east of the date line longitudes go on beyond 180."
        )
    return edges


def grid_of(
    grid: str,
    step: float | None,
    edges: tuple[float, ...] | None,
    at: list[str] | None,
    readings: Any,
) -> Any:
    """The grid of the map, which is refused before anything is fitted if it is no grid of these readings."""
    from vastgp.auto.stations.targets import make_target

    found = with_times(Path(grid) if step is None else spanned(readings, step, edges), readings, at)
    make_target(found, readings, {})
    return found


def spanned(readings: Any, step: float, edges: tuple[float, ...] | None) -> dict[str, Any]:
    """The coordinates of a map with a spacing."""
    import numpy as np

    space = readings.space
    if edges is None:
        south, north = readings.place[:, 0].min(), readings.place[:, 0].max()
        west, east = _west_and_east(readings.place[:, 1], space.sphere)
        # edges that are whole steps
        west, south, east, north = (
            float(to(value / step) * step)
            for to, value in zip(
                (np.floor, np.floor, np.ceil, np.ceil), (west, south, east, north), strict=True
            )
        )
        if space.sphere:
            south, north = max(south, -90.0), min(north, 90.0)
            # all around, each meridian once; what goes on beyond 360 degrees begins west of 0
            east = min(east, west + (np.ceil(360.0 / step - 1e-6) - 1.0) * step)
            turn = 360.0 * (east > 360.0)
            west, east = west - turn, east - turn
    else:
        west, south, east, north = edges
    sizes = [int((end - begin) / step + 1e-6) + 1 for begin, end in ((south, north), (west, east))]
    if sizes[0] * sizes[1] > _MOST_POINTS:
        raise BadInput(
            f"--grid {step:g} makes a map of {sizes[0]:,} x {sizes[1]:,} points. Take a wider spacing or "
            "--bounds."
        )
    down, across = (
        begin + step * np.arange(size) for begin, size in zip((south, west), sizes, strict=True)
    )
    return {space.first: down, space.second: across}


def _west_and_east(longitudes: Any, sphere: bool) -> tuple[float, float]:
    """The ends of a map of stations: on the Earth it begins east of the widest gap between them, if that is wide.

    Of stations across the date line it goes on beyond 180 degrees.
    """
    from vastgp.data.coordinates import eastwards

    if sphere:
        west, extent = eastwards(longitudes)
        if 360.0 - extent >= _WIDE_GAP:
            return west, west + extent
    return float(longitudes.min()), float(longitudes.max())


def with_times(grid: Any, readings: Any, at: list[str] | None) -> Any:
    """The grid with the times that are asked for."""
    import numpy as np

    if readings.time is None:
        if at:
            raise BadInput("--at is of readings with times: name their column with --time.")
        return grid
    times: Any = None
    if at and readings.dated:
        from vastgp.auto.stations.targets import dates_as_read

        try:
            # each in a form of its own
            times = np.concatenate([dates_as_read(np.array([one]), "--at", readings) for one in at])
        except ValueError as error:
            raise BadInput(
                f"{error} Expected dates such as 2024-07-01, or in the form of the readings."
            ) from None
    elif at:
        try:
            times = np.array(at, float)
        except ValueError:
            raise BadInput(f"--at {' '.join(at)}: expected numbers.") from None
    if isinstance(grid, dict):
        return {readings.time: readings.when.max() if times is None else times, **grid}
    if times is None:
        return grid
    from vastgp.data.dataset_files import open_dataset

    with open_dataset(grid) as dataset:
        loaded = dataset.load()
    return loaded.drop_dims(readings.time, errors="ignore").assign_coords({readings.time: times})
