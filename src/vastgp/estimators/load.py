"""Models from files."""

from __future__ import annotations

import os
from typing import Any

import vastgp
from vastgp.data import read_archive
from vastgp.data.validate import listed
from vastgp.estimators.registry import ESTIMATORS, FRONT_DOOR, MAPS, estimator_class


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
        When the file is damaged, holds no model, or one of another version that this one cannot read.
    """
    header, arrays = read_archive(path)
    where = f"{os.fspath(path)!r}"
    if header.get("kind") != "model":
        raise ValueError(
            f"{where} is a vastgp {header.get('kind', 'file')}, not a model. Give a file written by model.save."
        )
    name, theirs = header.get("estimator"), f"vastgp {header.get('vastgp', '?')}"
    if not isinstance(name, str) or name not in ESTIMATORS | FRONT_DOOR | MAPS:
        raise ValueError(
            f"{where} holds a model of class {name!r}, which this vastgp does not have (it has "
            f"{', '.join(ESTIMATORS)}). It was written by {theirs}: install that version."
        )
    made = estimator_class(name)
    params = header.get("params")
    known = made._get_param_names()
    unknown = [key for key in params if key not in known] if isinstance(params, dict) else []
    if unknown:
        moved = getattr(made, "_moved", {})
        now = "".join(f" {key!r}: {moved[key]}." for key in unknown if key in moved)
        raise ValueError(
            f"{where} holds a {name} with the arguments {listed(unknown)}, which that of this vastgp "
            f"{vastgp.__version__} does not have.{now} It was written by {theirs}: load it with that version, or fit "
            "the model again."
        )
    try:
        return made._from_file(header, arrays)
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # whatever a file can lack or hold in another form
        raise ValueError(
            f"{where} was written by {theirs} and holds no {name} that vastgp {vastgp.__version__} can read: "
            f"{error!r}. It was made by another version or by another program: load it with that version, or fit and "
            "save the model again."
        ) from error
