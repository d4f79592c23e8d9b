"""Files of vastgp that somebody has changed: any value or array of them another one, the checksum right again."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np

from vastgp.data import read_archive, write_archive

Generator = np.random.Generator

_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 3, 10**6, 10**13, 2**70, -0.5, 1e308, float("nan"), float("inf"), "", "x", "RBF",
    "../../etc/passwd", [], [1], [[]], {}, {"kernel": []}, {"options": ["Block", {"rank": -1}]}, {"array": True},
)  # fmt: skip


# Values are nested hundreds of levels deep once, not again inside that: Python's own writer has an end there.
_DEEP = 100


def damaged(path: Path, whole: Path, generator: Generator) -> str:
    """Write a changed copy of a file; return what was changed."""
    if generator.uniform() < 0.2:
        return _bytes(path, whole.read_bytes(), generator)
    header, arrays = read_archive(whole)
    header, done = copy.deepcopy(header), []
    for _ in range(int(generator.integers(1, 4))):
        if arrays and generator.uniform() < 0.3:
            done.append(_array(arrays, generator))
        else:
            done.append(_value(header, generator))
    write_archive(path, header, arrays)
    return "; ".join(done)


def _bytes(path: Path, data: bytes, generator: Generator) -> str:
    """Cut off, lengthened, or some bytes others."""
    kind = generator.choice(["cut", "longer", "flipped"])
    if kind == "cut":
        data = data[: generator.integers(len(data))]
    elif kind == "longer":
        data += generator.bytes(int(generator.integers(1, 100)))
    else:
        changed = bytearray(data)
        for _ in range(int(generator.integers(1, 5))):
            changed[generator.integers(min(len(changed), 4000))] = int(generator.integers(256))
        data = bytes(changed)
    path.write_bytes(data)
    return str(kind)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the places of all values inside a value."""
    inside: list[tuple[Any, ...]] = []
    if len(path) > _DEEP:  # what was nested before
        return [path]
    if isinstance(value, dict):
        inside = [place for key, each in value.items() for place in _places(each, (*path, key))]
    elif isinstance(value, list):
        inside = [
            place for key, each in enumerate(value[:50]) for place in _places(each, (*path, key))
        ]
    return ([path] if path else []) + inside


def _value(header: dict[str, Any], generator: Generator) -> str:
    """Change one value of the header, wherever it is."""
    # as often near the top, where most is decided, as far below
    places = _places(header)
    depth = int(generator.integers(1, max(len(each) for each in places) + 1))
    places = [each for each in places if len(each) == depth]
    place = places[generator.integers(len(places))]
    owner: Any = header
    for key in place[:-1]:
        owner = owner[key]
    how = generator.choice(["other", "other", "other", "gone", "nested", "swapped"])
    if how == "gone":
        del owner[place[-1]]
    elif how == "nested" and len(place) <= _DEEP:
        inner: Any = owner[place[-1]]
        for _ in range(int(generator.integers(1, 300))):
            inner = [inner]
        owner[place[-1]] = inner
    elif how == "swapped":
        keys = list(owner) if isinstance(owner, dict) else range(len(owner))
        other = list(keys)[generator.integers(len(keys))]
        owner[place[-1]], owner[other] = owner[other], owner[place[-1]]
    else:
        owner[place[-1]] = copy.deepcopy(_VALUES[generator.integers(len(_VALUES))])
        return f"{place} = {owner[place[-1]]!r}"
    return f"{place} {how}"


def _array(arrays: dict[str, np.ndarray], generator: Generator) -> str:
    """Change one array."""
    name = sorted(arrays)[generator.integers(len(arrays))]
    array = arrays[name]
    how = str(
        generator.choice(["gone", "renamed", "flat", "cut", "empty", "nan", "int8", "bool", "more"])
    )
    if how == "gone":
        del arrays[name]
    elif how == "renamed":
        arrays[name + "x"] = arrays.pop(name)
    elif how == "more":
        arrays[name] = np.stack([array, array])
    else:
        change = {
            "flat": lambda: array.reshape(-1),
            "cut": lambda: array.reshape(-1)[: array.size // 2],
            "empty": lambda: array.reshape(-1)[:0],
            "nan": lambda: np.full(array.shape, np.nan),
            "int8": lambda: np.zeros(array.shape, np.int8),
            "bool": lambda: np.ones(array.shape, bool),
        }  # fmt: skip
        arrays[name] = change[how]()
    return f"array {name} {how}"
