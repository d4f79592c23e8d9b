"""A model's year of climate as a file has it, and options that fill it in a moment."""

import numpy as np
import xarray as xr

FAST = (
    "--kernel",
    "time=rbf",
    "--kernel",
    "lat=rbf",
    "--set",
    "criterion=gcv",
    "--set",
    "max_iter=3",
    "--set",
    "tol=1",
)
EAST = {"units": "degrees_east"}


def climate(calendar="noleap", **changes):
    """Two fields of a model's year as a file has them: packed, bounds, a grid mapping, cell measures, a flag."""
    rng = np.random.default_rng(0)
    months = xr.date_range("1850-01-01", periods=13, freq="MS", calendar=calendar, use_cftime=True)
    lat = np.array([60.0, 50.0, 40.0, 30.0])
    wave = 280.0 + 8.0 * np.sin(np.arange(12) / 2)[:, None] * np.cos(lat / 20)
    tas, tos = (
        np.where(rng.uniform(size=wave.shape) < 0.2, np.nan, wave + a) for a in (0.0, -273.0)
    )
    grid = ("time", "lat")
    both = {
        "grid_mapping": "crs",
        "cell_measures": "area: areacella",
        "cell_methods": "area: mean time: mean",
    }
    dataset = xr.Dataset(
        {
            "tas": (grid, tas, {"units": "K", "standard_name": "air_temperature", "actual_range": [270.0, 271.0],
                                "ancillary_variables": "flag", "valid_range": [279.0, 281.0]} | both),
            "tos": (grid, tos, {"units": "degC", "long_name": "temperature of the sea"} | both),
            "flag": (grid, np.isnan(tas).astype(np.int8), {"standard_name": "air_temperature status_flag"}),
            "time_bnds": (("time", "nv"), np.stack([months[:-1], months[1:]], axis=1)),
            "lat_bnds": (("lat", "nv"), np.stack([lat - 5, lat + 5], axis=1)),
            "areacella": (("lat",), np.cos(np.deg2rad(lat)), {"units": "m2", "standard_name": "cell_area"}),
            "crs": ((), 0, {"grid_mapping_name": "latitude_longitude"}),
        },
        coords={
            "time": ("time", months[:-1], {"standard_name": "time", "axis": "T", "bounds": "time_bnds"}),
            "lat": ("lat", lat, {"units": "degrees_north", "standard_name": "latitude", "axis": "Y",
                            "bounds": "lat_bnds"}),
            "height": ((), 2.0, {"units": "m", "standard_name": "height", "axis": "Z", "positive": "up"}),
            "season": ("time", ["DJF", "DJF", *(["MAM"] * 3), *(["JJA"] * 3), *(["SON"] * 3), "DJF"]),
        },
        attrs={"Conventions": "CF-1.6", "title": "a year", "institution": "here", "history": "1850: made"},
    )  # fmt: skip
    dataset["tas"].encoding = {
        "dtype": "int16",
        "scale_factor": 0.01,
        "add_offset": 280.0,
        "_FillValue": -32768,
    }
    dataset["time"].encoding = {"units": "days since 1849-12-01", "calendar": calendar}
    return dataset.assign(changes)


def raw(path):
    engine = "zarr" if path.is_dir() else "h5netcdf"
    with xr.open_dataset(path, engine=engine, decode_cf=False) as found:
        return found.load()
