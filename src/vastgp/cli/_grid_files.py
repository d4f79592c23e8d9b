"""Grids written to files, whole or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from vastgp.cli._errors import BadInput

SUFFIXES = (".nc", ".nc4", ".zarr")


def check_out(out: Path, force: bool) -> None:
    """Refuse a place to write to that is no format, or there already."""
    from vastgp.cli._files import require_folder

    if out.suffix.lower() not in SUFFIXES:
        raise BadInput(
            f"--out {str(out)!r}: the ending names the format, one of {', '.join(SUFFIXES)}; got "
            f"{out.suffix or 'none'!r}."
        )
    if out.exists() and not force:
        raise BadInput(
            f"--out {str(out)!r} exists; choose another name, or replace it with --force."
        )
    if out.is_dir() != (out.suffix.lower() == ".zarr") and out.exists():
        raise BadInput(f"--out {str(out)!r} is there and of another kind; choose another name.")
    require_folder(out.parent, f"--out {str(out)!r} cannot be written")


def write_grid(filled: Any, out: Path) -> None:
    """Write beside the place, then take it."""
    from vastgp.data.whole_files import written_whole

    filled = filled.drop_encoding()  # how the input was packed is no business of the output
    if out.suffix.lower() != ".zarr":
        with written_whole(out) as partial:
            filled.to_netcdf(partial, engine="h5netcdf")
        return
    partial = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    old = out.with_name(f".{out.name}.{os.getpid()}.old")
    try:
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
