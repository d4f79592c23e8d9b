"""Some rows of a source, and columns that are taken out of a table once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from vastgp.auto.source import Source, block_rows
from vastgp.auto.values import Values
from vastgp.data.tables import LateTextError

# Numbers of a table whose columns are kept as they were taken out of it.
_REMEMBERED = 2_000_000


def remembered(source: Source) -> Source:
    """Return a source whose columns are taken out of a small table once, however often it is read.

    A fold reads all rows three times, and taking out a column takes as long as reading some ten thousand numbers: of
    2000 columns and 100 rows that was half of a race. Tables of more numbers are as they were.
    """
    rows = source.num_rows
    if rows is None or rows * len(source.names) > _REMEMBERED:
        return source
    kept: dict[tuple[str, int, str | None], list[Values]] = {}

    def read(wanted: Sequence[str], size: int, zones: Mapping[str, str]) -> Iterator[list[Values]]:
        size = min(size, rows)
        keys = {name: (name, size, zones.get(name)) for name in wanted}
        new = [name for name, key in keys.items() if key not in kept]
        if new:
            blocks = list(source.read(new, size, zones))
            for number, name in enumerate(new):
                kept[keys[name]] = [block[number] for block in blocks]
        columns = [kept[keys[name]] for name in wanted]
        yield from (list(block) for block in zip(*columns, strict=True))

    return dataclasses.replace(source, read=read)


def part_of(source: Source, rows: np.ndarray) -> Source:
    """Return some rows of a source, in its order; they are picked out as blocks come.

    Parameters
    ----------
    source : Source
    rows : ndarray of int
        Their numbers, ascending.
    """

    def read(wanted: Sequence[str], size: int, zones: Mapping[str, str]) -> Iterator[list[Values]]:
        first = 0
        for block in source.read(wanted, size, zones):
            count = len(block[0])
            begin, end = np.searchsorted(rows, [first, first + count])
            here = rows[begin:end] - first
            first += count
            if len(here) == count:
                yield block
            elif len(here):
                yield [values.of_rows(here) for values in block]
            if end == len(rows):
                return

    return dataclasses.replace(source, num_rows=len(rows), read=read, table=None)


def held(source: Source, rows: np.ndarray, target: str | None) -> Source:
    """Return some rows of a source, read now and kept: a file with very many others is not read again for them.

    Parameters
    ----------
    source : Source
    rows : ndarray of int
        Their numbers, ascending.
    target : str or None
        A column that is not kept, nor are those that nothing can be made of.
    """
    part = part_of(source, rows)
    names = [name for name in source.names if name != target and name not in source.refused]
    size = block_rows(len(names))

    def columns(wanted: Sequence[str], zones: Mapping[str, str]) -> list[list[Values]]:
        while True:
            try:
                return list(part.read(wanted, size, zones))
            except LateTextError:  # it is text now, all of it
                continue

    kept = columns(names, {})
    place = {name: j for j, name in enumerate(names)}

    def read(wanted: Sequence[str], most: int, zones: Mapping[str, str]) -> Iterator[list[Values]]:
        # moments by the clocks of another zone than their own
        moved = {
            name: [block[0] for block in columns([name], zones)]
            for name in wanted
            if name in zones and any(zones[name] != block[place[name]].zone for block in kept)
        }
        for number, block in enumerate(kept):
            found = [
                moved[name][number] if name in moved else block[place[name]] for name in wanted
            ]
            for start in range(0, len(found[0]), most):
                if len(found[0]) <= most:
                    yield found
                else:
                    yield [values.of_rows(slice(start, start + most)) for values in found]

    return dataclasses.replace(part, read=read)
