"""Figures as parts of a page: SVG with text as text, and colours that the page decides."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from vastgp.plots._style import ACCENT, DATA, MODEL, REFERENCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What a page sets in its style sheet; without it, each is as drawn. matplotlib's own black is for text and axes.
_VARIABLES = {
    "#000000": "ink",
    "#ffffff": "card",
    DATA: "ink",
    MODEL: "model",
    ACCENT: "accent",
    REFERENCE: "reference",
}


def svg_figure(
    draw: Callable[[Axes], Any],
    *,
    alt: str,
    name: str,
    width: float = 4.5,
    height: float = 3.5,
) -> str:
    """Return an ``<svg>`` element of one plot, to stand in an HTML page.

    Parameters
    ----------
    draw : callable
        Draws on the axes that it is given, as all functions of this package do.
    alt : str
        What the figure shows, for those who do not see it.
    name : str
        Letters and digits, distinct among the figures of a page: names within figures begin with it.
    width, height : float
        Of the drawing in inches: on the page it is as wide as its place, and letters of 10 points are 10 pixels high
        where a drawing of 4.5 inches has 324 pixels.

    Returns
    -------
    str
        Without script, style sheet, address or date; the same for the same figure. Text is text. Colours are custom
        properties ``--ink``, ``--card``, ``--model``, ``--accent`` and ``--reference`` with those drawn as defaults.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    stream = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 10.0}):
        draw(figure.subplots())
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    inner = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    inner = re.sub(r"<!--.*?-->", "", inner, flags=re.DOTALL)
    inner = re.sub(r"<(metadata|style)\b.*?</\1>", "", inner, flags=re.DOTALL)
    inner = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", inner)
    # the font is that of the page
    inner = re.sub(r"font-family: [^;\"]*;? ?", "", inner)
    inner = re.sub(r"(?<=: )#[0-9a-fA-F]{6}\b(?=[^<>]*>)", _variable, inner)
    box = f"0 0 {72.0 * width:.6g} {72.0 * height:.6g}"
    lines = 'stroke-linejoin="round" stroke-linecap="butt"'  # of matplotlib's style sheet
    return (
        f'<svg viewBox="{box}" {lines} role="img" aria-label="{escape(alt)}">{inner.strip()}</svg>'
    )


def _variable(match: re.Match[str]) -> str:
    colour = match.group()
    for drawn, variable in _VARIABLES.items():
        if colour.lower() == drawn.lower():
            return f"var(--{variable}, {drawn})"
    return colour
