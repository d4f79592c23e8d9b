"""Predictions to a file, batch by batch: Parquet, CSV or npz by the ending of its name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vastgp.data.whole_files import written_whole

SUFFIXES = (".parquet", ".csv", ".npz")
Columns = dict[str, np.ndarray]


class Sink(Protocol):
    """Takes the predictions of one batch of rows after the other."""

    def write(self, columns: Columns) -> None:
        """Append one batch: vectors of one length by the names of their columns."""


@contextlib.contextmanager
def predictions_file(path: Path) -> Iterator[Sink]:
    """Open `path` for predictions; it appears when the block ends without an error, and not before."""
    with written_whole(path) as partial:
        if path.suffix.lower() == ".npz":
            arrays = _Arrays()
            yield arrays
            with partial.open("wb") as file:
                np.savez(file, **arrays.columns())  # type: ignore[arg-type]
            return
        sink = _Table(partial, csv=path.suffix.lower() == ".csv")
        with sink:
            yield sink


class _Table:
    """Parquet or CSV through pyarrow: a batch is on the disk before the next is made."""

    def __init__(self, path: Path, *, csv: bool) -> None:
        # As text: pyarrow would take its own view of names with special characters.
        self._path, self._csv = str(path), csv
        self._writer: Any = None

    def __enter__(self) -> _Table:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, columns: Columns) -> None:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet

        batch = pa.record_batch(columns)
        if self._writer is None:
            writer: Any = pyarrow.csv.CSVWriter if self._csv else pyarrow.parquet.ParquetWriter
            self._writer = writer(self._path, batch.schema)
        self._writer.write_batch(batch)


class _Arrays:
    """npz needs whole columns: they are kept until the end."""

    def __init__(self) -> None:
        self._batches: list[Columns] = []

    def write(self, columns: Columns) -> None:
        self._batches.append(columns)

    def columns(self) -> Columns:
        return {
            name: np.concatenate([batch[name] for batch in self._batches])
            for name in self._batches[0]
        }
