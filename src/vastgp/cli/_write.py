"""Predictions to a file, batch by batch: Parquet, CSV or npz by the ending of its name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vastgp.data.whole_files import written_whole

SUFFIXES = (".parquet", ".csv", ".npz")
COLUMNS = ("mean", "std", "lower_95", "upper_95")


class Sink(Protocol):
    """Takes the predictions of one batch of rows after the other."""

    def write(self, mean: np.ndarray, std: np.ndarray) -> None:
        """Append one batch."""


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


def _interval(mean: np.ndarray, std: np.ndarray) -> dict[str, np.ndarray]:
    """The four columns of a batch, float64."""
    from vastgp.metrics._vectors import half_width

    mean, std = np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
    half = half_width(0.95) * std
    return dict(zip(COLUMNS, (mean, std, mean - half, mean + half), strict=True))


class _Table:
    """Parquet or CSV through pyarrow: a batch is on the disk before the next is made."""

    def __init__(self, path: Path, *, csv: bool) -> None:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet

        schema = pa.schema([(name, pa.float64()) for name in COLUMNS])
        # As text: pyarrow would take its own view of names with special characters.
        target = str(path)
        self._make: Any = pa.record_batch
        self._writer: Any = (
            pyarrow.csv.CSVWriter(target, schema)
            if csv
            else pyarrow.parquet.ParquetWriter(target, schema)
        )

    def __enter__(self) -> _Table:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, mean: np.ndarray, std: np.ndarray) -> None:
        self._writer.write_batch(self._make(_interval(mean, std)))


class _Arrays:
    """npz needs whole columns: 32 bytes a row are kept until the end."""

    def __init__(self) -> None:
        self._batches: list[dict[str, np.ndarray]] = []

    def write(self, mean: np.ndarray, std: np.ndarray) -> None:
        self._batches.append(_interval(mean, std))

    def columns(self) -> dict[str, np.ndarray]:
        empty = [np.empty(0)]
        return {
            name: np.concatenate([batch[name] for batch in self._batches] or empty)
            for name in COLUMNS
        }
