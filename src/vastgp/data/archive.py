"""One file for models and checkpoints: arrays in safetensors, one JSON header, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import uuid
import zlib
from pathlib import Path
from typing import Any

import numpy as np

FORMAT_NAME = "vastgp"
# Counts changes that an older vastgp could not read.
FORMAT_VERSION = 1

_KINDS = "fiub"  # floating point, integers, booleans
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def write_archive(
    path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, np.ndarray]
) -> None:
    """Write a header and arrays to one file, which is afterwards either the new one whole or the old one untouched.

    The data go to a temporary file in the same folder, are forced to the disk, and take the file's place in one step.

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
    OSError
        When the folder is missing or cannot be written to, or the disk is full. The old file is intact and the
        temporary one is gone.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT,
            f"the folder {path.parent} does not exist: make it first, or choose another place",
            str(path),
        )
    if path.is_dir():
        raise IsADirectoryError(
            errno.EISDIR, "this is a folder: give the name of a file", str(path)
        )
    plain = {name: _plain(name, array) for name, array in arrays.items()}
    document = json.dumps({"version": FORMAT_VERSION, "header": header}, default=_json_number)
    _remove_leftovers(path)
    partial = path.with_name(f".{path.name}.{_host()}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        _write_and_sync(
            partial, {FORMAT_NAME: document, "crc32": str(_checksum(document, plain))}, plain
        )
        os.replace(partial, path)
    except OSError as error:
        needed = len(document) + sum(array.nbytes for array in plain.values())
        if error.errno in _FULL:
            raise OSError(
                error.errno,
                f"{os.strerror(error.errno)}: writing it takes {needed:,} bytes beside the old file, which is intact. "
                f"Make room in {path.parent} or choose another place",
                str(path),
            ) from error
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
    _sync_folder(path.parent)


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

    path = Path(path)
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
    except (ValueError, TypeError, KeyError) as error:
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
        crc = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, crc)
    return crc


def _write_and_sync(partial: Path, metadata: dict[str, str], arrays: dict[str, np.ndarray]) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(arrays, partial, metadata=metadata)
    except SafetensorError as error:
        # The library wraps the system's error in a sentence; its number says whether the disk is full.
        number = re.search(r"(?:os error|code:) (\d+)", str(error))
        if number is None:
            raise
        raise OSError(
            int(number.group(1)), os.strerror(int(number.group(1))), str(partial)
        ) from error
    descriptor = os.open(partial, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make the new name outlive a loss of power; systems that cannot sync a folder do without."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "host"


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of this file whose writer, a process of this machine, was killed."""
    pattern = re.compile(
        rf"\.{re.escape(path.name)}\.{re.escape(_host())}\.(\d+)\.[0-9a-f]{{8}}\.tmp"
    )
    for other in path.parent.iterdir():
        match = pattern.fullmatch(other.name)
        if match and not _is_running(int(match.group(1))):
            with contextlib.suppress(OSError):
                other.unlink()


def _is_running(pid: int) -> bool:
    if os.name != "posix":
        return True  # no harmless way to ask: leave the file alone
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


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
