"""Lines and tables on the terminal."""

from __future__ import annotations

import functools
import os
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_NAME = 40  # which is not broken into lines
_SHORT_NAME = 16  # letters that a name in a table has at least on a line
CLOSED_PIPE = 141  # nobody reads any more, as shells count it


def console(*, stderr: bool = False) -> Console:
    """A console on the stream as it is now; rich takes colour and width from it."""
    return _kind()(stderr=stderr, highlight=False)


@functools.cache
def _kind() -> type[Console]:
    """Return rich's console, with an end of its own where what it writes to is closed, as by ``| head``."""
    from rich.console import Console

    class OurConsole(Console):
        def on_broken_pipe(self) -> None:
            # else Python says at its end that it could not write the rest
            with open(os.devnull, "w", encoding="utf-8") as nowhere:
                os.dup2(nowhere.fileno(), self.file.fileno())
            raise SystemExit(CLOSED_PIPE)

    return OurConsole


def message(kind: str, text: str, *, style: str) -> None:
    """One line on standard error: `Error: ...`. It is not broken, so that it can be searched."""
    from rich.text import Text

    line = Text.assemble((f"{kind}: ", f"bold {style}"), (text, style))
    console(stderr=True).print(line, soft_wrap=True)


def say(text: str, *, style: str = "", wrap: bool = False, indent: int = 0) -> None:
    """One line on standard output; it is not broken unless asked, since it may hold a path."""
    from rich.padding import Padding
    from rich.text import Text

    line = Text(text, style=style)
    console().print(Padding(line, (0, 0, 0, indent)) if indent else line, soft_wrap=not wrap)


def heading(text: str) -> None:
    """A line that opens a block of output."""
    say(text, style="bold")


def facts(rows: Sequence[tuple[str, str]]) -> None:
    """Name and value, one pair a line, the values in one column."""
    from rich.text import Text

    out, width = console(), max(len(name) for name, _ in rows)
    for name, value in rows:
        line = Text.assemble(("  " + name.ljust(width) + "  ", "dim"), value)
        out.print(line, soft_wrap=True)


def wrapped(rows: Sequence[tuple[str, ...]]) -> None:
    """Name and text, one pair a line, or with further columns between; long text goes on below itself."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    whole = max(len(row[0]) for row in rows) <= _LONGEST_NAME
    for number in range(len(rows[0])):
        first = number == 0
        grid.add_column(style="dim" if first else "", overflow="fold", no_wrap=first and whole)
    for row in rows:
        # as text, since rich takes the brackets of names such as `depth [m]` for markup in strings
        grid.add_row(*map(Text, ("  " + row[0], *row[1:])))
    console().print(grid)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """A table: the first column is text, the others are numbers, which are never broken.

    Where the terminal is too narrow for that, lines are wider than it: what is cut off or goes on below can be read,
    and parts of a number below each other are other numbers.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    out, names = console(), [row[0] for row in rows]
    longest = max(map(cell_len, [columns[0], *names]))
    least = max(len(columns[0]), min(longest, _SHORT_NAME))
    cells = [max((len(row[i]) for row in rows), default=0) for i in range(1, len(columns))]
    beside = 3 * len(columns) + 1  # a space on each side of every column, and what is between them
    # heads in one line where there is room, else a word in each
    for pieces in ([[name] for name in columns[1:]], [name.split() for name in columns[1:]]):
        widths = [max([cell, *map(len, head)]) for cell, head in zip(cells, pieces, strict=True)]
        room = out.width - sum(widths) - beside
        if room >= least:
            break
    first = min(longest, max(room, least))
    out.width = max(out.width, first + sum(widths) + beside)
    head = Text(title) if title else None
    grid = Table(title=head, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for i, (name, width) in enumerate(zip(columns, [first, *widths], strict=True)):
        grid.add_column(Text(name), justify="right" if i else "left", width=width, overflow="fold")
    for row in rows:
        grid.add_row(*map(Text, (_hanging(row[0], first), *row[1:])))  # see `wrapped`
    out.print(grid, crop=False)


def _hanging(name: str, width: int) -> str:
    """A name in lines of so many letters, of which all but the first begin further right: they are one name."""
    from rich.cells import cell_len

    start = name[: len(name) - len(name.lstrip(" *"))]
    if cell_len(name) <= width:
        return name
    # letters of some scripts are two wide
    letters = width if cell_len(name) == len(name) else width // 2
    further = " " * (len(start) + 2)
    rest = name[len(start) :]
    return textwrap.fill(rest, letters, initial_indent=start, subsequent_indent=further)


def number(value: Any, digits: int = 4) -> str:
    """A number to `digits` significant digits; None and NaN as a dash."""
    if value is None or value != value:
        return "-"
    value = value + 0.0  # of -0.0 makes 0.0
    return f"{value:.{digits}g}" if abs(value) < 1e5 else f"{value:.3e}"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 99.5:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def plural(count: int, noun: str) -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
