"""The target as `TableEncoder` uses it: numbers to average by level, or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from vastgp.auto.source import Source
from vastgp.auto.values import form_of_objects, objects_as
from vastgp.data import column_names
from vastgp.data.open import target_from_path
from vastgp.data.tables import as_labels, column_named


def numeric_target(source: Source, y: Any) -> tuple[np.ndarray | None, str | None]:
    """Return the target as numbers, None where it is none, and the name of its column where it is in the table.

    Parameters
    ----------
    source
        The table.
    y
        None, an array, the name of a column, or the path of a .npy file.
    """
    if y is None:
        return None, None
    name = None
    y = y if source.table is None else column_named(y, source.names)
    if isinstance(y, str | os.PathLike):
        text = os.fspath(y)
        if source.table is not None and text in source.names:
            name, y = text, source.table.labels(text)
        elif text.lower().endswith(".npy"):
            y = target_from_path(Path(text), f"{source.where} has no column of that name")
        else:
            raise column_names.missing_target_error(text, source.names, source.where)
    return _numbers(as_labels(y)), name


def _numbers(y: np.ndarray) -> np.ndarray | None:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        return None
    if y.dtype.kind == "O":
        form = form_of_objects(y)
        return objects_as(y, form).data if form in ("numbers", "booleans") else None
    return y.astype(np.float64) if y.dtype.kind in "biuf" else None
