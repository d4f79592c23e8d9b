"""Tables of any kind for models of the default method: parts of them, rows encoded by batches, what is odd."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from vastgp.data import Rows
    from vastgp.data.tables import Table

# Rows that drift is judged by; more would not make its words sharper.
_DRIFT_ROWS = 20_000


def is_front_door(model: Any) -> bool:
    """Whether a model is one of the default method: it takes tables of any kind."""
    from vastgp.estimators.registry import FRONT_DOOR

    return type(model).__name__ in FRONT_DOOR


# ---------------------------------------------------------------- parts of a table


def open_any(path: Path, names: Sequence[str], numbers: Sequence[str]) -> Table:
    """Open a table file with these inputs of any type, and targets and exposures.

    Parameters
    ----------
    path : Path
        Parquet (file or folder) or CSV.
    names : sequence of str
        Inputs.
    numbers : sequence of str
        Targets and exposures.
    """
    from vastgp.data import files

    inputs = files.open_table_file(path, empty_as_text=True)
    plain = files.open_table_file(path)

    def frames(columns: Sequence[str], rows: int) -> Iterator[Any]:
        # a target whose first rows are empty is a number, where an input may yet be text
        return (plain if set(columns) <= set(numbers) else inputs).frames(columns, rows)

    held = {name: words for name, words in inputs.not_numeric.items() if name not in numbers}
    held |= {name: words for name, words in plain.not_numeric.items() if name in numbers}
    return dataclasses.replace(inputs, names=[*names, *numbers], frames=frames, not_numeric=held)


def rows_of(source: Any, rows: np.ndarray) -> Any:
    """Return some rows of a table or array, in their order; those of a table are picked out as they are read.

    Parameters
    ----------
    source : Table or ndarray
    rows : ndarray of int
        Their numbers, ascending.
    """
    if isinstance(source, np.ndarray):
        return source[rows]

    def frames(columns: Sequence[str], size: int) -> Iterator[Any]:
        first = 0
        for frame in source.frames(columns, size):
            begin, end = np.searchsorted(rows, [first, first + len(frame)])
            here = rows[begin:end] - first
            first += len(frame)
            if len(here):
                yield frame[here]

    return dataclasses.replace(source, frames=frames, num_rows=len(rows))


# ---------------------------------------------------------------- rows for a model


@dataclass
class RawRows:
    """Rows as they are, which the model's encoder encodes as they are read: a file is never in memory as a whole.

    Attributes
    ----------
    source : Table, str or ndarray
        Whatever the encoder reads.
    encoder : TableEncoder
    present : ndarray of bool, optional
        Which rows are wanted; all without.
    target_name : str, optional
    exposure : ndarray of shape (n,) or float, optional
        Of all rows that are read, where there are counts of their own to predict.
    """

    source: Any
    encoder: Any
    present: np.ndarray | None = None
    target_name: str | None = None
    exposure: Any = None

    @property
    def n_read(self) -> int | None:
        """Rows to read, where that is known before."""
        from vastgp.auto.source import open_source

        return open_source(self.source).num_rows

    @property
    def n_left_out(self) -> int:
        """Rows that are read and not wanted."""
        return 0 if self.present is None else int(np.sum(~self.present))

    def batches(self, rows: int) -> Iterator[tuple[int, Rows]]:
        """Yield how many rows have been read, and the encoded ones that are wanted."""
        from vastgp.auto.inputs import EncodedRows
        from vastgp.data.exposure import exposed_rows

        done = 0
        for X in self.encoder.transform_batches(self.source, rows):
            here = np.arange(done, done + len(X))
            done += len(X)
            chosen = slice(None) if self.present is None else self.present[here]
            if not len(here[chosen]):
                continue
            some: Rows = EncodedRows(X[chosen], checked=True)
            if self.exposure is not None:
                of_all = np.ndim(self.exposure) == 0
                own = self.exposure if of_all else self.exposure[here[chosen]]
                some = exposed_rows(some, None, own)
            yield done, some


def inputs_of(model: Any) -> list[str] | None:
    """Names of the columns that a model of the default method reads; None where it was fitted to an array."""
    if getattr(model, "feature_names_in_", None) is None:
        return None
    from vastgp.auto.space import names_of

    return [name for column in model.encoding_ if column.kept for name in names_of(column)]


# ---------------------------------------------------------------- what is odd about rows


class Watch:
    """Counts rows outside of what a model was trained on, and keeps some to judge drift by.

    Parameters
    ----------
    model : GPRegressor or GPClassifier
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._generator = np.random.default_rng(0)
        self._keys, self._kept = np.zeros(0), np.zeros((0, 0))
        self.rows = self.outside = 0

    def over(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Look at batches of encoded rows as they pass."""
        for some in batches:
            self.look(some)
            yield some

    def look(self, some: Any) -> np.ndarray:
        """Return which rows of a batch lie outside."""
        found = np.asarray(self._model.outside(some))
        self.rows += len(found)
        self.outside += int(found.sum())
        # a sample of all rows, each as likely: those with the smallest of random keys
        keys = np.concatenate([self._keys, self._generator.uniform(size=len(found))])
        kept = np.concatenate([self._kept, some.X]) if len(self._kept) else np.asarray(some.X)
        if len(keys) > _DRIFT_ROWS:
            chosen = np.argpartition(keys, _DRIFT_ROWS)[:_DRIFT_ROWS]
            keys, kept = keys[chosen], kept[chosen]
        self._keys, self._kept = keys, kept
        return found

    def drift(self) -> list[str]:
        """Return in words how the rows differ from the training rows."""
        from vastgp.auto.inputs import EncodedRows

        return list(self._model.drift(EncodedRows(self._kept, checked=True)))

    def in_words(self) -> str:
        """Return how many rows lie outside."""
        if not self.outside:
            return "no row lies outside what the model was trained on"
        return (
            f"{self.outside:,} of {self.rows:,} row{'s' * (self.rows != 1)} "
            f"lie{'s' * (self.outside == 1)} outside what the model was trained on"
        )
