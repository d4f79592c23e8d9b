"""NetCDF files and Zarr folders, as xarray opens them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def open_dataset(path: Path, **options: Any) -> Any:
    """Open a NetCDF file or a Zarr folder; the caller closes what is returned, by ``with``.

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
        if path.is_dir():
            return xr.open_zarr(path)
        return xr.open_dataset(path, engine="h5netcdf", **options)
    except (ImportError, ModuleNotFoundError) as error:
        raise ImportError(f"{error} NetCDF and Zarr need pip install 'vastgp[grid]'.") from error
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{str(path)!r} is no NetCDF 4 file and no Zarr folder that can be read: {error}"
        ) from error
