"""`vastgp map`: readings of stations in, a map with its uncertainty out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vastgp.cli._errors import BadInput, close_match, explained
from vastgp.cli._grid_files import check_out, write_grid
from vastgp.cli._map_grid import edges_of, grid_of, step_of
from vastgp.cli._names import OF_MAP
from vastgp.cli._options import Debug, Force

_DATA, _MAP, _MODEL = "Readings", "Map", "Model"


def map_stations(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="STATIONS", help="Readings: CSV, Parquet, or a NetCDF file of points."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write: .nc or .zarr.")
    ],
    grid: Annotated[
        str,
        typer.Option(
            "--grid",
            metavar="STEP|FILE",
            help="Spacing of the map in degrees (in units of a plane), or a NetCDF file or Zarr folder whose "
            "coordinates are those of the map and which has the covariates.",
            rich_help_panel=_MAP,
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target", "-t", metavar="COLUMN", help="Values to map.", rich_help_panel=_DATA
        ),
    ] = None,
    lat: Annotated[
        str | None,
        typer.Option(
            "--lat", metavar="COLUMN", help="Latitude, degrees; or y.", rich_help_panel=_DATA
        ),
    ] = None,
    lon: Annotated[
        str | None,
        typer.Option(
            "--lon", metavar="COLUMN", help="Longitude, degrees; or x.", rich_help_panel=_DATA
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="COLUMN", help="Times: dates or numbers.", rich_help_panel=_DATA
        ),
    ] = None,
    covariates: Annotated[
        str | None,
        typer.Option(
            "--covariates",
            metavar="COLUMNS",
            help="Columns with a linear trend, such as height, with commas between (names with a comma in double "
            "quotes); --grid FILE must have them.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    station: Annotated[
        str | None,
        typer.Option(
            "--station", metavar="COLUMN", help="Name of the station.", rich_help_panel=_DATA
        ),
    ] = None,
    noise_std: Annotated[
        str | None,
        typer.Option(
            "--noise-std",
            metavar="COLUMN",
            help="Known standard deviation of each reading's error.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    bounds: Annotated[
        str | None,
        typer.Option(
            "--bounds",
            metavar="W,S,E,N",
            help="Edges of the map; those of the stations unless given.",
            rich_help_panel=_MAP,
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Time of the map, such as 2024-07-01; repeatable. The last one of the readings unless given.",
            rich_help_panel=_MAP,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Also a picture: .png or .svg.", rich_help_panel=_MAP
        ),
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option(
            "--max-seconds", metavar="S", help="Budget of the fit; 60.", rich_help_panel=_MODEL
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method", metavar="NAME", help="auto, exact, swsgp, ...", rich_help_panel=_MODEL
        ),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            "--kernel",
            "-k",
            metavar="NAME",
            help="Of place and time: matern32, or a sum such as matern32 + matern32.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    validate: Annotated[
        str | None,
        typer.Option(
            "--cross-validate",
            metavar="WHAT",
            help="Say how well readings are predicted that were left out by station, block, time or row.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Of everything random.", rich_help_panel=_MODEL)
    ] = 0,
    model_out: Annotated[
        Path | None,
        typer.Option("--save-model", metavar="FILE", help="Also write the fitted model."),
    ] = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Map the readings of stations, with the uncertainty of every value.

    The output has variables mean and std with CF attributes; std is that of a new reading, noise included. It appears
    whole or not at all.
    """
    with explained(debug, OF_MAP):
        from vastgp.auto.stations.readings import read_readings
        from vastgp.cli._console import say
        from vastgp.cli._estimators import make_estimator
        from vastgp.cli._files import existing, writable
        from vastgp.cli._selection import names_in

        existing(source, "The readings")
        others: dict[str, Path | None] = {
            "the file of readings": source,
            "that of --grid": Path(grid),
        }
        check_out(out, force, others)
        others["the file of --out"] = out
        for path, option in ((model_out, "--save-model"), (plot, "--plot")):
            if path is not None:
                writable(path, option, force=force, others=others)
                others[f"the file of {option}"] = path
        step = step_of(grid)
        names = names_in("--covariates", covariates)
        if step is not None and names:
            raise BadInput(
                f"--grid {grid}: a spacing has no {', '.join(names)}, which --covariates names. Give --grid a NetCDF "
                "file with the coordinates of the map and these as variables."
            )
        _check_validation(validate, time)
        edges = edges_of(bounds)
        if edges is not None and step is None:
            raise BadInput(
                "--bounds are of a --grid that is a spacing; the file of --grid has its own edges."
            )
        options = {
            "max_seconds": max_seconds,
            "method": method,
            "kernel": kernel,
            "random_state": seed or None,
        }
        model = make_estimator("StationGP", options, [])
        of_readings = (source, target, lat, lon, time, names or None, station, noise_std)
        wanted = grid_of(grid, step, edges, at, read_readings(*of_readings))
        model.fit(*of_readings)
        found = model.predict(wanted)
        found.attrs |= {
            "title": f"{model.readings_.target} of {source.name}, mapped",
            "history": f"mapped by vastgp map from {source.name}",
        }
        write_grid(found, out)
        if model_out is not None:
            model.save(model_out)
        if plot is not None:
            _draw(model, found, plot)
        show(model, str(out), found)
        if validate is not None:
            say(str(model.cross_validate(validate)), wrap=True)


def show(model: Any, title: str, found: Any = None) -> None:
    """Print what a model of stations learned, and of which map."""
    from vastgp.cli._console import duration, facts, heading, number, plural

    readings = model.readings_
    rows: list[tuple[str, str]] = []
    if found is not None:
        sizes = ", ".join(f"{name}: {size}" for name, size in found["mean"].sizes.items())
        rows.append(("map", f"{plural(found['mean'].size, 'point')} ({sizes})"))
    rows.append(
        (
            "readings",
            f"{plural(len(readings), 'reading')} of {plural(model.n_stations_, 'station')}",
        )
    )
    if readings.dropped:
        rows.append(("left out", f"{plural(readings.dropped, 'row')} without a value"))
    for name, scale in model.lengthscales_km_.items():
        rows.append(("place", f"{name}: lengthscale {number(scale, 3)} km"))
    for name, (slope, error) in model.trend_.items():
        rows.append(("trend", f"{number(slope)} +- {number(error, 2)} for each unit of {name}"))
    rows += [
        ("kernel", str(model.kernel_)),
        ("noise", f"standard deviation {number(model.noise_std_)}"),
        ("method", f"{model.method_}, {duration(model.fit_seconds_)}"),
    ]
    heading(title)
    facts(rows)


def summary(model: Any) -> dict[str, Any]:
    """What a model of stations learned, as plain data."""
    readings = model.readings_
    return {
        "method": type(model).__name__,
        "target": readings.target,
        "readings": len(readings),
        "stations": model.n_stations_,
        "rows_dropped": readings.dropped,
        "winner": model.method_,
        "kernel": str(model.kernel_),
        "lengthscales_km": model.lengthscales_km_,
        "trend": {name: list(pair) for name, pair in model.trend_.items()},
        "noise_std": model.noise_std_,
        "std_factor": model.std_factor_,
        "seconds": model.fit_seconds_,
    }


def _check_validation(by: str | None, time: str | None) -> None:
    """Refuse before the fit what cannot be left out after it."""
    from vastgp.auto.stations.validation import WAYS

    if by is not None and by not in WAYS:
        raise BadInput(
            f"--cross-validate {by!r}: expected one of {', '.join(WAYS)}.{close_match(by, WAYS)}"
        )
    if by == "time" and time is None:
        raise BadInput(
            "--cross-validate time is of readings with times: name their column with --time."
        )


def _draw(model: Any, found: Any, plot: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from vastgp.plots import station_map

    try:
        figure: Any = station_map(found, model)[0].figure
        when = _first_time(found, model.readings_.time)
        if when:
            figure.suptitle(when)
        figure.savefig(plot, dpi=150)
    finally:
        plt.close("all")


def _first_time(found: Any, time: str | None) -> str:
    """Say of which time a picture is, which has the first one of the map; nothing of a map without times."""
    import numpy as np

    from vastgp.plots._style import plain_text

    if time is None or time not in found.coords:
        return ""
    values = np.ravel(found[time].values)
    first = values[0].astype("M8[s]") if values.dtype.kind == "M" else values[0]
    among = f", the first of {len(values)}" if len(values) > 1 else ""
    return plain_text(f"{time} {first}".removesuffix("T00:00:00") + among, 80)
