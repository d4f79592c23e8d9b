"""NetCDF files, Zarr folders and GRIB files, as xarray opens them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

GRIB = (".grib", ".grib1", ".grib2", ".grb", ".grb2")


def open_dataset(path: Path, **options: Any) -> Any:
    """Open a NetCDF file, a Zarr folder or a GRIB file (by its name); the caller closes it, by ``with``.

    Parameters
    ----------
    path : Path
        Of a file, or of a folder.
    **options
        Of ``xarray.open_dataset``, for files: ``chunks``.

    Raises
    ------
    ImportError
        Where the libraries for such files are not installed.
    ValueError
        For a file that is none of these.
    """
    import xarray as xr

    try:
        if path.suffix.lower() in GRIB and not path.is_dir():
            return _open_grib(xr, path, options)
        if not path.is_dir():
            return xr.open_dataset(path, engine="h5netcdf", **options)
        dataset = xr.open_zarr(path)
        for variable in dataset.variables.values():  # as NetCDF files have it
            variable.encoding.setdefault("source", str(path))
        return dataset
    except (ImportError, ModuleNotFoundError) as error:
        if path.suffix.lower() in GRIB:
            raise
        raise ImportError(f"{error} NetCDF and Zarr need pip install 'vastgp[grid]'.") from error
    except (OSError, ValueError, KeyError) as error:
        units = re.search(r"unable to decode time units '([^']*)'", str(error))
        if units is not None:
            raise ValueError(
                f"{str(path)!r} has times in {units[1]!r}, of which no dates can be made. Months and years are not all "
                "of one length and so no spans of time: write the coordinate in days (hours, minutes, seconds) since a "
                "date, with the attribute 'calendar'. Months are spans in the calendar '360_day' alone."
            ) from error
        raise ValueError(
            f"{str(path)!r} is no NetCDF 4 file and no Zarr folder that can be read: {error}"
        ) from error


def _open_grib(xr: Any, path: Path, options: dict[str, Any]) -> Any:
    if importlib.util.find_spec("cfgrib") is None:
        raise ImportError(
            f"{str(path)!r} is a GRIB file, which xarray opens with cfgrib. Install it: pip install cfgrib."
        )
    try:
        # without an index file beside it: folders of data are often not to be written to
        return xr.open_dataset(path, engine="cfgrib", backend_kwargs={"indexpath": ""}, **options)
    except Exception as error:  # cfgrib and eccodes raise what they like
        raise ValueError(
            f"{str(path)!r} is no GRIB file that cfgrib can read as one dataset: {error}. Where it holds several kinds "
            "of levels, open it with xarray.open_dataset(path, engine='cfgrib', backend_kwargs={'filter_by_keys': "
            "...}) and fit that."
        ) from error
