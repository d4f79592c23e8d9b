"""Checkpoints of the parts of a fit, for methods that return one `Fit`."""

from __future__ import annotations

from typing import Any

from vastgp.fitting.checkpoint import Phase


def checkpoint_of(model: Any, name: str) -> Phase | None:
    """Return where a part of the fit is saved, or None where nothing is."""
    file = model._run.checkpoint
    return None if file is None else file.phase(name)
