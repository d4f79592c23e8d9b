"""Errors as one line that says what to do, with the exit code of their kind."""

from __future__ import annotations

import atexit
import contextlib
import difflib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import typer

from vastgp.cli._console import message
from vastgp.cli._names import as_options

BAD_INPUT = 2  # the user can repair it: a file, a column, an option
FAILURE = 1  # the input was fine and the work did not succeed
INTERRUPTED = 130  # by Ctrl-C, as shells count it


class BadInput(Exception):
    """Something that the user gave cannot be used; the text says what to give instead."""


@contextlib.contextmanager
def explained(debug: bool, options: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a command; turn what it raises into one line and an exit code, and warnings into lines.

    Parameters
    ----------
    debug : bool
        Print the traceback too.
    options : mapping, optional
        Arguments of the library -> options of this command, by which messages name them.
    """
    options = options or {}

    def show_warning(text: Warning | str, *_: Any) -> None:
        words = as_options(" ".join(str(text).split()), options)
        message("Warning", words, style="yellow")

    for stream in (sys.stdout, sys.stderr):
        if hasattr(
            stream, "reconfigure"
        ):  # a name that the terminal has no letters for is shown all the same
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # for developers, not users
        warnings.showwarning = show_warning  # type: ignore[assignment]
        try:
            yield
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            message("Interrupted", "no result was written.", style="red")
            atexit.register(_leave_at_once, INTERRUPTED)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if debug:
                import traceback

                traceback.print_exc()
            code, text = diagnosis(error, options)
            message("Error", text, style="red")
            raise typer.Exit(code) from None


def _leave_at_once(code: int) -> None:
    """End the process without tearing the interpreter down.

    Compiled code that was interrupted may still run in threads of XLA; taking the interpreter away beneath them was
    seen to end in a segmentation fault after the message.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def diagnosis(error: Exception, options: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit code and one line for an exception.

    Validation throughout the library raises ValueError; paths that the user gave raise one of a few
    kinds of OSError; a matrix that cannot be factorised is a failure though NumPy derives it from
    ValueError. Whatever is left is unexpected.
    """
    import numpy as np

    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, BadInput):
        return BAD_INPUT, text
    text = as_options(text, options or {})
    if isinstance(
        error, FileNotFoundError | IsADirectoryError | NotADirectoryError | PermissionError
    ):
        return BAD_INPUT, f"{error.filename}: {error.strerror}." if error.filename else text
    if isinstance(error, MemoryError):
        smaller = "give fewer rows, or a coarser grid"
        if options is not None and "batch_rows" in options:
            smaller = "lower --batch-rows"
        if options is None or "num_basis" in options:
            smaller = "lower --num-basis, or use --dtype float32"
        return FAILURE, f"Out of memory ({text}); {smaller}."
    if isinstance(error, OSError | FloatingPointError | np.linalg.LinAlgError):
        return FAILURE, text
    if isinstance(error, ValueError):
        return BAD_INPUT, text
    return FAILURE, f"Unexpected {type(error).__name__}: {text} (--debug shows where)."


def with_article(name: str) -> str:
    """``an ExactGPRegressor``, ``a QSGPRegressor``."""
    return f"{'an' if name[:1] in 'AEIO' else 'a'} {name}"


def close_match(name: str, choices: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` when one of the choices is much like `name`, else nothing."""
    choices = list(choices)
    by_case = [choice for choice in choices if choice.lower() == name.lower()]
    found = by_case or difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    return f" Did you mean {found[0]!r}?" if found else ""
