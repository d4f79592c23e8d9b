"""One file for models and checkpoints: arrays in safetensors, one JSON header, whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from vastgp.data import processes
from vastgp.data.whole_files import DISK_FULL, written_whole

FORMAT_NAME = "vastgp"
# Counts changes that an older vastgp could not read.
FORMAT_VERSION = 1

_KINDS = "fiub"  # floating point, integers, booleans


def write_archive(
    path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, np.ndarray]
) -> None:
    """Write a header and arrays to one file, which is afterwards either the new one whole or the old one untouched.

    The data go to a temporary file in the same folder, are forced to the disk, and take the file's place in one step
    (that of its target, where it is a link).

    Parameters
    ----------
    path
        File to write or to replace.
    header
        What JSON can hold: numbers (NaN and infinities too), strings, lists, dictionaries with strings as keys. NumPy
        numbers are welcome.
    arrays
        Arrays of floating point numbers, integers or booleans, of any shape (also none, also empty).

    Raises
    ------
    TypeError
        For arrays of other types, or values in the header that JSON does not have.
    ValueError
        When the path is a pipe or a device.
    OSError
        When the folder is missing or cannot be written to, or the disk is full. The old file is intact and the
        temporary one is gone.
    """
    plain = {name: _plain(name, array) for name, array in arrays.items()}
    document = json.dumps({"version": FORMAT_VERSION, "header": header}, default=_json_number)
    metadata = {FORMAT_NAME: document, "crc32": str(_checksum(document, plain))}
    try:
        with written_whole(path) as partial:
            _write(partial, metadata, plain)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        needed = len(document) + sum(array.nbytes for array in plain.values())
        raise OSError(
            error.errno,
            f"{os.strerror(error.errno)}: writing it takes {needed:,} bytes beside the old file, which is intact. "
            "Make room in its folder or choose another place",
            str(path),
        ) from error


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file of `write_archive`, and check that it is what was written.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    header : dict
    arrays : dict of ndarray

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    ValueError
        When the file is cut off, damaged, of another program, or of a newer vastgp.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path).expanduser()
    if not path.is_file():
        reason = (
            "this is a folder, not a file"
            if path.is_dir()
            else "no such file: check the name and the folder"
        )
        raise FileNotFoundError(errno.ENOENT, reason, str(path))
    if path.stat().st_size == 0:
        raise ValueError(_damaged(path, "it is empty"))
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            text = metadata.get(FORMAT_NAME, "")
            header = _header(path, text)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
    except SafetensorError as error:
        raise ValueError(_damaged(path, f"it is no complete safetensors file: {error}")) from error
    if str(_checksum(text, arrays)) != metadata.get("crc32"):
        raise ValueError(_damaged(path, "its checksum does not match"))
    return header, arrays


def read_archive_together(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """Return what `read_archive` reads, told by process 0 to all where there are several; None where there is no file.

    Raises
    ------
    ValueError
        As `read_archive`, in every process.
    """

    def read() -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        place = Path(path).expanduser()
        return read_archive(place) if processes.number() == 0 and place.exists() else None

    found = processes.together(read)
    if processes.count() == 1:
        return found
    header, arrays = found or ({}, {})
    text = processes.texts("" if found is None else json.dumps([header, list(arrays)]))[0]
    if not text:
        return None
    header, names = json.loads(text)
    nothing = np.zeros(0, np.uint8)
    return header, {name: processes.from_first(arrays.get(name, nothing)) for name in names}


# ---------------------------------------------------------------- reading


def _header(path: Path, text: str) -> dict[str, Any]:
    if not text:
        raise ValueError(
            f"{path} is a safetensors file, but not one of vastgp (its metadata has no {FORMAT_NAME!r} entry). "
            "Give a file that vastgp saved."
        )
    try:
        document = json.loads(text)
        version, header = document["version"], document["header"]
        header.keys()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(_damaged(path, f"its header cannot be read: {error!r}")) from error
    if not isinstance(version, int) or version < 1:
        raise ValueError(_damaged(path, f"its format version is {version!r}"))
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {version}, and this vastgp reads versions up to {FORMAT_VERSION}: the file was "
            "written by a newer vastgp. Upgrade vastgp (pip install --upgrade vastgp) and load it again."
        )
    return header


def _damaged(path: Path, reason: str) -> str:
    return (
        f"{path} is not a complete file of vastgp: {reason}. It was cut off, damaged, or made by another program. Copy "
        "it again from its source, or fit and save the model again (a checkpoint: delete it and start over)."
    )


# ---------------------------------------------------------------- writing


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    """The array as contiguous native memory of a type that the format has."""
    array = np.asarray(array)
    if array.dtype.kind not in _KINDS or array.dtype.itemsize > 8:
        raise TypeError(
            f"arrays[{name!r}] has dtype {array.dtype}. Expected floating point numbers of up to 64 bits, integers or "
            "booleans; keep strings and structure in the header."
        )
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _json_number(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(
        f"The header holds {type(value).__name__} {value!r}, which JSON does not have. Put arrays among the arrays, "
        "and numbers, strings, lists and dictionaries into the header."
    )


def _checksum(document: str, arrays: dict[str, np.ndarray]) -> int:
    """CRC-32 of the header and of names, types, shapes and values of the arrays, in the order of their names."""
    crc = zlib.crc32(document.encode())
    for name in sorted(arrays):
        array = arrays[name]
        crc = zlib.crc32(f"{name}|{array.dtype.name}|{array.shape}|".encode(), crc)
        crc = zlib.crc32(_bytes(array), crc)
    return crc


def _write(partial: Path, metadata: dict[str, str], arrays: dict[str, np.ndarray]) -> None:
    """Write the format of safetensors: the length of a JSON header, the header, and the arrays it describes.

    The library's own writer goes by a temporary file of its own, which stays when the process is killed.
    """
    header: dict[str, Any] = {"__metadata__": metadata}
    # widest numbers first, so that every array begins at a multiple of its width
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    end = 0
    for name in order:
        array = arrays[name]
        start, end = end, end + array.nbytes
        kind = (
            "BOOL" if array.dtype.kind == "b" else f"{array.dtype.kind}{8 * array.dtype.itemsize}"
        )
        header[name] = {
            "dtype": kind.upper(),
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with partial.open("xb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            file.write(_bytes(arrays[name]))


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def below(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays whose names start with ``prefix``, without it."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def above(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays with ``prefix`` before their names."""
    return {f"{prefix}{name}": array for name, array in arrays.items()}
