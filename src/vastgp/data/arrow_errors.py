"""What Arrow says of a file that it cannot read, in words that name the file and what to do."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

# What Arrow says, and what to say instead; the first that is found counts.
_CAUSES = (
    (
        re.compile(r"magic bytes|footer|not a parquet file|thrift", re.IGNORECASE),
        "it is cut off, or is no Parquet file whatever its name says. Copy or write it again",
    ),
    (
        re.compile(r"truncated compressed stream|unexpected end", re.IGNORECASE),
        "it is cut off: the compressed data end too early. Copy or compress it again",
    ),
    (
        re.compile(r"inflate failed|decompress|not in gzip format|header check", re.IGNORECASE),
        "it is not compressed as its name says. Give it the right ending (.csv for plain text), or compress it again",
    ),
    (
        re.compile(r"invalid UTF-?8", re.IGNORECASE),
        "some text is no UTF-8. Save the file with that encoding: iconv -f latin1 -t utf8 does so",
    ),
    (
        re.compile(r"Expected (\d+) columns, got (\d+): (?P<line>.*)", re.DOTALL),
        "a line has another number of columns than the first. Correct it: it may have a quote that is not closed, a "
        "separator within a value, or be the end of a file that is cut off",
    ),
)


@contextlib.contextmanager
def arrow_errors(where: str) -> Iterator[None]:
    """Arrow's errors about the content of a file, as ``ValueError`` that names it."""
    import pyarrow as pa

    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where} cannot be read: a column name is no UTF-8 ({error}). Save the file with that encoding: "
            "iconv -f latin1 -t utf8 does so."
        ) from error
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        pa.ArrowKeyError,
        OSError,
    ) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's own: no permission, a broken disk
        raise ValueError(f"{where} cannot be read: {_in_words(str(error))}") from error


def _in_words(said: str) -> str:
    said = said.rstrip(".")
    for pattern, words in _CAUSES:
        if pattern.search(said):
            return f"{words} ({said})."
    return f"{said}. The file may be cut off or not what its name says."
