"""Checkpoints of a fit that is done in several parts, each with a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vastgp.data import Rows
from vastgp.estimators.serialise import fit_fingerprint
from vastgp.fitting.checkpoint import Checkpoint

# Parameters that say how long to work and what to show, not what is computed.
_NOT_OF_THE_RESULT = ("max_seconds", "max_iter", "verbose", "checkpoint", "checkpoint_seconds")


def checkpoint_of(model: Any, rows: Rows, seed: int, suffix: str = "") -> Checkpoint | None:
    """Return where a part of the fit is saved, or None where nothing is.

    Parameters
    ----------
    model : estimator
        With the arguments ``checkpoint`` and ``checkpoint_seconds``.
    rows : Rows
        Training rows.
    seed : int
        As drawn.
    suffix : str
        Of the part; the last one has none.
    """
    if model.checkpoint is None:
        return None
    params = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if name not in _NOT_OF_THE_RESULT
    }
    return Checkpoint(
        f"{model.checkpoint}{suffix}",
        model.checkpoint_seconds,
        fingerprint=fit_fingerprint(type(model).__name__, params, rows, seed),
    )


def finish_before(model: Any, *suffixes: str) -> None:
    """Remove the files of the parts before the last one, once that is complete."""
    if model.checkpoint is not None and not Path(model.checkpoint).expanduser().exists():
        for suffix in suffixes:
            Path(f"{model.checkpoint}{suffix}").expanduser().unlink(missing_ok=True)
