"""Warnings that point at the caller's line, however deep in the library they arise."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

# Frames of these belong to the library, to what calls it on a person's behalf, or to what checks its annotations under
# test.
_OURS = {
    "vastgp",
    "typechecking",
    "jaxtyping",
    "beartype",
    "equinox",
    "jax",
    "contextlib",
    "sklearn",
}


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the place from which the library was called."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _module(frame) in _OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
