"""Models from files."""

from __future__ import annotations

import os
from typing import Any

from vastgp.data import read_archive
from vastgp.estimators.registry import ESTIMATORS, estimator_class


def load(path: str | os.PathLike[str]) -> Any:
    """Return the fitted model that ``model.save(path)`` wrote.

    Its predictions are those of the saved model to the last bit, on the same machine. A file can only hold numbers:
    loading runs no code from it.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    BaseGP
        A fitted estimator of the class that was saved.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    ValueError
        When the file is damaged, holds no model, or was written by a newer vastgp.
    """
    header, arrays = read_archive(path)
    if header.get("kind") != "model":
        raise ValueError(
            f"{os.fspath(path)!r} is a vastgp {header.get('kind', 'file')}, not a model. "
            "Give a file written by model.save."
        )
    name = header["estimator"]
    if name not in ESTIMATORS:
        raise ValueError(
            f"{os.fspath(path)!r} holds a model of class {name!r}, which this vastgp does not have (it has "
            f"{', '.join(ESTIMATORS)}). It was written by vastgp {header.get('vastgp', '?')}: install that version."
        )
    return estimator_class(name)._from_file(header, arrays)
