"""Files that rows come from: .npy, .npz, .csv, .parquet and folders of it."""

from __future__ import annotations

import errno
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vastgp.data.arrow_errors import arrow_errors
from vastgp.data.csv_files import open_csv
from vastgp.data.spool import MEMORY_BUDGET, disk_full_error, temporary_file
from vastgp.data.tables import Table, from_batches
from vastgp.data.validate import listed

_NPY = {".npy"}
_NPZ = {".npz"}
_PARQUET = {".parquet", ".pq"}
_CSV = {".csv", ".tsv", ".txt"}
_FORMATS = ".npy, .npz, .csv (also .csv.gz), .parquet, or a folder of .parquet files"

# Readers of pandas for others.
_READERS = {
    ".xlsx": "read_excel", ".xls": "read_excel", ".ods": "read_excel", ".json": "read_json",
    ".feather": "read_feather", ".orc": "read_orc", ".dta": "read_stata", ".sav": "read_spss",
    ".sas7bdat": "read_sas",
}  # fmt: skip


def suffix_of(path: Path) -> str:
    """The suffix that tells the format: of ``rows.csv.gz`` it is ``.csv``."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if len(suffixes) > 1 and suffixes[-1] in {".gz", ".bz2", ".zst"} and suffixes[-2] in _CSV:
        return suffixes[-2]
    return suffixes[-1] if suffixes else ""


def check_exists(path: Path, argument: str) -> None:
    """Raise ``FileNotFoundError`` with what is there instead."""
    if path.exists():
        return
    parent = path.parent
    if not parent.is_dir():
        hint = f"the folder {parent} does not exist either"
    else:
        same_kind = sorted(
            other.name for other in parent.iterdir() if suffix_of(other) == suffix_of(path)
        )
        hint = (
            f"in that folder there are {listed(same_kind)}"
            if same_kind
            else f"nothing like it is in {parent.resolve()}"
        )
    raise FileNotFoundError(
        errno.ENOENT, f"{argument}: no such file; {hint}. Check the name", str(path)
    )


def unknown_format_error(path: Path, argument: str) -> ValueError:
    """No reader for this suffix."""
    reader = _READERS.get(suffix_of(path))
    instead = "" if reader is None else f" Or read it with pandas.{reader} and give the DataFrame."
    return ValueError(
        f"{argument}={str(path)!r} has no known format (suffix {path.suffix!r}). Expected {_FORMATS}.{instead}"
    )


def is_table_file(path: Path) -> bool:
    """Whether a path is a file of named columns, or a folder of such files."""
    return path.is_dir() or suffix_of(path) in _PARQUET | _CSV


def open_table_file(path: Path, *, empty_as_text: bool = False) -> Table:
    """The table in a Parquet or CSV file, or in a folder of Parquet files.

    Parameters
    ----------
    path
        The file or folder.
    empty_as_text
        Whether a column of a CSV file that begins with many empty rows is read as text, of which numbers can be made,
        rather than as numbers, which text further down is not.
    """
    if path.is_dir() or suffix_of(path) in _PARQUET:
        return _open_parquet(path)
    return open_csv(path, empty_as_text)


# ---------------------------------------------------------------- NumPy's own formats


def open_npy(path: Path, argument: str) -> np.ndarray:
    """The array of a .npy file, as a memory map."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        raise ValueError(
            f"{argument}={str(path)!r} is no array of numbers in NumPy's .npy format: {error}. It may be cut off, or "
            "hold Python objects. Write it again with numpy.save and a numeric dtype."
        ) from error


def open_matrix(path: Path) -> np.ndarray:
    """The inputs in a file of arrays: the array of a .npy file, or X of a .npz file."""
    return open_npz(path, ["X"])["X"] if suffix_of(path) == ".npz" else open_npy(path, "X")


def open_npz(
    path: Path, names: Sequence[str], memory_budget: float = MEMORY_BUDGET
) -> dict[str, np.ndarray]:
    """Some arrays of a .npz file, the large ones unpacked to temporary memory maps.

    Parameters
    ----------
    path
        The file.
    names
        Arrays to read; those that are not there are left out of the result.
    memory_budget
        Larger arrays (bytes) are mapped instead of read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                name: _unpack(archive, archive.getinfo(f"{name}.npy"), path, memory_budget)
                for name in names
                if f"{name}.npy" in archive.namelist()
            }
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise ValueError(
            f"{str(path)!r} is no .npz file of numeric arrays: {error}. It may be cut off, or hold Python objects. "
            "Write it again with numpy.savez(path, X=X, y=y)."
        ) from error


def npz_names(path: Path) -> list[str]:
    """Names of the arrays in a .npz file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"{str(path)!r} is no .npz file: {error}. Write it again with numpy.savez."
        ) from error


def _unpack(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, memory_budget: float
) -> np.ndarray:
    with archive.open(member) as stream:
        if member.file_size <= memory_budget:
            return np.lib.format.read_array(stream, allow_pickle=False)
        shape, fortran, dtype = _read_header(stream)
        with temporary_file() as file:
            try:
                shutil.copyfileobj(stream, file, 1 << 20)
                file.flush()
            except OSError as error:
                raise disk_full_error(
                    error, f"{member.filename} of {path}", member.file_size
                ) from error
            return np.memmap(
                file, dtype=dtype, mode="r", shape=shape, order="F" if fortran else "C"
            )


def _read_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(stream)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"version {version} of the .npy format")
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("Python objects cannot be read without pickle")
    return shape, fortran, dtype


# ---------------------------------------------------------------- Parquet


def _open_parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.dataset as ds

    where = f"the folder {str(path)!r}" if path.is_dir() else f"{str(path)!r}"
    files = [path]
    if path.is_dir():
        files = _parquet_files(path)
    with arrow_errors(where):
        dataset = ds.dataset(
            [os.fspath(file) for file in files],
            format="parquet",
            partitioning=ds.partitioning(flavor="hive"),  # a folder named key=value is a column key
            partition_base_dir=os.fspath(path),
        )
        fragments = list(dataset.get_fragments())
        # The first file alone does not settle the types: another may have fractions where it has whole numbers.
        schemas = [fragment.physical_schema for fragment in fragments]
        schema = pa.unify_schemas([*schemas, dataset.schema], promote_options="permissive")
        ends = np.cumsum([fragment.metadata.num_rows for fragment in fragments])
        num_rows = int(ends[-1])

    def part(some: slice) -> Table:
        def batches(columns: Sequence[str], rows: int) -> Iterator[Any]:
            for fragment, end in zip(fragments, ends, strict=True):
                before = int(end) - fragment.metadata.num_rows
                here = slice(max(some.start - before, 0), min(some.stop, int(end)) - before)
                if here.start < here.stop:
                    fixed = ds.get_partition_keys(fragment.partition_expression)
                    yield from _read_parquet(fragment.path, columns, rows, fixed, here)

        def place(number: int) -> str:
            row = some.start + number
            which = int(np.searchsorted(ends, row, side="right"))
            own = row - int(ends[which]) + fragments[which].metadata.num_rows
            return f"row {row}" + (
                f" (row {own} of {fragments[which].path!r})" if len(fragments) > 1 else ""
            )

        found = from_batches(schema, batches, where, num_rows=some.stop - some.start)
        found.place = place
        return found

    table = part(slice(0, num_rows))
    table.part = part
    return table


def _parquet_files(folder: Path) -> list[Path]:
    """Return the files of a table in a folder, in the order of their names.

    What begins with a dot or an underscore is no part of it, as Spark and Arrow have it: what a job that failed has
    left, logs of a table's versions, what a file manager keeps. A folder named _key=value is one.
    """

    def is_part(name: str) -> bool:
        return not name.startswith((".", "_")) or ("=" in name and not name.startswith("."))

    files = [file for file in folder.rglob("*") if file.suffix.lower() in _PARQUET]
    parts = [file for file in files if all(map(is_part, file.relative_to(folder).parts))]
    found = sorted(file for file in parts if file.is_file())
    if not found:
        hidden = f" but {listed(sorted(map(str, files)), 3)}, which are hidden" if files else ""
        raise ValueError(
            f"The folder {str(folder)!r} has no .parquet files{hidden}. Expected {_FORMATS}."
        )
    return found


def _read_parquet(
    path: str, columns: Sequence[str], rows: int, fixed: dict[str, Any], here: slice
) -> Iterator[Any]:
    """Batches of some rows of one file. Columns in ``fixed`` are not in it, but have one value for all of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Read page by page. The default reads row groups ahead: 2.2 GB at the peak for a file of 2 GB, against 0.1 GB.
    with (
        arrow_errors(repr(path)),
        pq.ParquetFile(
            path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
        ) as file,
    ):
        stored = [name for name in columns if name not in fixed]
        missing = [name for name in stored if name not in file.schema_arrow.names]
        if missing:
            raise ValueError(
                f"{path!r} lacks the columns {listed(missing)}, which other files of the folder have. Remove it from "
                "the folder, or write it again with all columns."
            )
        sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
        ends = np.cumsum(sizes)
        starts = ends - sizes
        groups = np.flatnonzero((ends > here.start) & (starts < here.stop))
        at = int(starts[groups[0]])
        for read in file.iter_batches(rows, row_groups=groups.tolist(), columns=stored):
            begin, end = np.clip([here.start - at, here.stop - at], 0, read.num_rows)
            at += read.num_rows
            if begin == end:
                continue
            batch = read.slice(begin, end - begin)
            arrays = [
                pa.array(np.full(batch.num_rows, fixed[name]))
                if name in fixed
                else batch.column(name)
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
