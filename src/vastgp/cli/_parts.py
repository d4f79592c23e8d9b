"""``vastgp predict --processes``: each process predicts its part of the rows, to a file of its own in one folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vastgp.cli._errors import BadInput
from vastgp.cli._files import refuse_existing, require_folder
from vastgp.cli._processes import run_in_processes, which_of

# What tells a process in which folder its file goes.
_VARIABLE = "VASTGP_PARTS"


@dataclass(frozen=True)
class Part:
    """The part of the rows that this process predicts, of several.

    Attributes
    ----------
    number, count : int
    folder : Path
        Where its file goes.
    """

    number: int
    count: int
    folder: Path

    @classmethod
    def own(cls) -> Part | None:
        """Return that of this process; None where it is alone."""
        folder, which = os.environ.get(_VARIABLE), which_of()
        return None if folder is None or which is None else cls(*which[:2], Path(folder))

    def file(self, suffix: str) -> Path:
        """Return where its predictions are written; names are in the order of the rows."""
        return self.folder / f"part-{self.number:05d}{suffix}"

    def rows(self, n: int) -> slice:
        """Return which of all rows are its own.

        Raises
        ------
        BadInput
            Where there are fewer rows than processes.
        """
        if n < self.count:
            raise BadInput(
                f"--processes {self.count}: there are {n} rows. Give no more processes than rows."
            )
        return slice(self.number * n // self.count, (self.number + 1) * n // self.count)

    def tell(self, told: dict[str, Any]) -> None:
        """Leave word of what was predicted, for `predict_in_parts`."""
        self.file(".json").write_text(json.dumps(told))


def predict_in_parts(count: int, out: Path, force: bool) -> list[dict[str, Any]]:
    """Run this command in so many processes; return what each told, once the folder ``out`` has all their files."""
    with _whole_folder(out, force) as folder:
        run_in_processes(count, environment={_VARIABLE: str(folder)})
        files = sorted(folder.glob("part-*.json"))
        told = [json.loads(file.read_text()) for file in files]
        for file in files:
            file.unlink()
    return told


@contextlib.contextmanager
def _whole_folder(out: Path, force: bool) -> Iterator[Path]:
    """Give a folder beside ``out``, which takes its place when the block ends well, and is removed otherwise."""
    refuse_existing(out, "--out", force)
    if out.exists() and not _is_of_parts(out):
        raise BadInput(
            f"--out {str(out)!r} with --processes is a folder of one file a process, and what is there is none: choose "
            "another name."
        )
    require_folder(out.parent, f"--out {str(out)!r} cannot be written")
    partial = out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}.tmp")
    partial.mkdir()
    try:
        yield partial
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _is_of_parts(folder: Path) -> bool:
    """Whether a folder holds nothing but what this command writes: it alone is replaced."""
    return folder.is_dir() and all(
        entry.is_file() and entry.name.startswith("part-") for entry in folder.iterdir()
    )
