"""Pieces of HTML. Whatever comes from a person goes through `text`; the other functions take HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

# Nothing is fetched and nothing runs, whatever the page holds: browsers keep to it even if a name slipped through.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
NOTHING = "–"


def text(value: Any) -> str:
    """Any value as text of a page: escaped, without the control characters that HTML does not have."""
    shown = "".join(c if c.isprintable() or c in "\n\t\xa0" else "�" for c in str(value))
    return html.escape(shown)


def shortened(shown: str, most: int) -> str:
    """A text of at most so many letters, of which the last says that there are more."""
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def number(value: Any, digits: int = 4) -> str:
    """A number for people: four digits, commas from 10,000 on (1984 is a year), a dash for what is missing."""
    if value is None or isinstance(value, str):
        return text(value or NOTHING)
    value = float(value)
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) < 10**digits:  # 99.7 of two digits is 100
        value = float(f"{value:.{digits}g}")
    if value == 0.0:
        return "0"
    if value == int(value) and abs(value) < 1e9:
        shown = f"{int(value):,}" if abs(value) >= 1e4 else f"{int(value)}"
    elif 10**digits <= abs(value) < 1e9:
        shown = f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.0f}"
    else:
        shown = f"{value:.{digits}g}"
    return shown.replace("-", "−")


def percent(share: Any) -> str:
    """A fraction as percentage."""
    return NOTHING if share is None or math.isnan(float(share)) else f"{100.0 * float(share):.1f} %"


def seconds(value: Any) -> str:
    """A time, of minutes from two minutes on."""
    if value is None:
        return NOTHING
    value = float(value)
    if value >= 120.0:
        return f"{value / 60.0:.1f} min"
    return f"{value:.2g} s" if value < 10.0 else f"{value:.0f} s"


def paragraphs(lines: Iterable[Any], kind: str = "") -> str:
    """Texts of a person's as paragraphs."""
    mark = f' class="{kind}"' if kind else ""
    return "".join(f"<p{mark}>{text(line)}</p>\n" for line in lines if line)


def items(lines: Iterable[Any], kind: str = "") -> str:
    """Texts as a list."""
    mark = f' class="{kind}"' if kind else ""
    return f"<ul{mark}>\n" + "".join(f"<li>{text(line)}</li>\n" for line in lines) + "</ul>\n"


def section(name: str, title: str, body: str) -> str:
    """A card with a heading."""
    return f'<section id="{name}">\n<h2>{title}</h2>\n{body}</section>\n'


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[int] = (), kept: Any = ()
) -> str:
    """A table of HTML cells; columns without any entry are left out.

    `numeric` are the columns set to the right, `kept` the rows that are marked.
    """
    rows = [list(row) for row in rows]
    used = [
        j for j in range(len(heads)) if j == 0 or any(row[j] not in ("", NOTHING) for row in rows)
    ]
    top = "".join(f'<th scope="col"{_number(j in numeric)}>{text(heads[j])}</th>' for j in used)
    body = ""
    for k, row in enumerate(rows):
        cells = "".join(_cell(row[j], heads[j], j in numeric) for j in used)
        body += f"<tr{' class=' + chr(34) + 'kept' + chr(34) if k in kept else ''}>{cells}</tr>\n"
    return f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n"


def _cell(content: str, head: str, numeric: bool) -> str:
    kinds = [kind for kind, on in (("number", numeric), ("none", content in ("", NOTHING))) if on]
    mark = f' class="{" ".join(kinds)}"' if kinds else ""
    return f'<td{mark} data-label="{text(head)}"><span>{content}</span></td>'


def _number(on: bool) -> str:
    return ' class="number"' if on else ""


def figure(svg: str, caption: str, kind: str = "") -> str:
    """A drawing with words below."""
    marked = f' class="{kind}"' if kind else ""
    return f"<figure{marked}>\n{svg}\n<figcaption>{text(caption)}</figcaption>\n</figure>\n"


def figures(drawn: Sequence[str]) -> str:
    """Drawings side by side, as many as there is room for."""
    return f'<div class="figures">\n{"".join(drawn)}</div>\n' if drawn else ""
