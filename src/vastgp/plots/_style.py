"""Colours and axes shared by the plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vastgp.metrics._vectors import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito (2008): told apart by readers with any of the common colour vision deficiencies.
# They also differ in lightness, so a grey print keeps the distinction.
MODEL = "#0072B2"  # blue: what the model says
DATA = "#1A1A1A"  # near black: what was observed
ACCENT = "#D55E00"  # vermilion: what the reader should compare
REFERENCE = "#6F6F6F"  # grey: the ideal, bands of chance


def new_axes(columns: int = 1, *, width: float = 5.6, height: float = 4.2) -> list[Axes]:
    """Axes side by side on a new figure whose labels keep clear of each other."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(
        1, columns, figsize=(width * columns, height), layout="constrained", squeeze=False
    )
    return list(axes[0])


def given_or_new(ax: Axes | None, *, width: float = 5.6, height: float = 4.2) -> Axes:
    """The axes that a caller gave, or new ones on a figure of their own."""
    return new_axes(width=width, height=height)[0] if ax is None else ax


def plain(ax: Axes, *, title: str, xlabel: str, ylabel: str) -> None:
    """Label the axes and take away the lines that carry no information."""
    ax.set_title(title, fontsize=11, loc="left")
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.spines[["top", "right"]].set_visible(False)


def subset(n: int, most: int, seed: int) -> np.ndarray:
    """Row numbers of at most `most` of `n` rows: a cloud of more points shows no more."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size=most, replace=False))


def padded(*values: FloatArray, share: float = 0.04) -> tuple[float, float]:
    """Limits that hold all values with a margin."""
    low, high = min(v.min() for v in values), max(v.max() for v in values)
    margin = share * (high - low) or 1.0
    return float(low - margin), float(high + margin)


def drawable(
    low: FloatArray, high: FloatArray, *values: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Ends of intervals as they can be drawn: infinite ones somewhat beyond all that is finite."""
    found = np.concatenate([low, high, *values])
    bottom, top = padded(found[np.isfinite(found)], share=0.1)
    return np.clip(low, bottom, top), np.clip(high, bottom, top)


def percent(share: float) -> str:
    """A fraction as percentage with a space, as on the axes."""
    return f"{100.0 * share:.3g} %"


def plain_text(name: object, most: int = 28) -> str:
    """A name of a user's as a label: short, printable, and with dollar signs that begin no formula."""
    text = " ".join(str(name).split())
    text = "".join(c if c.isprintable() else "\ufffd" for c in text)
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")


def legend_above(ax: Axes, columns: int) -> None:
    """A legend between title and axes, where it hides no data."""
    from matplotlib.lines import Line2D

    labels = ax.get_legend_handles_labels()[1]
    rows = -(-len(labels) // columns)
    legend = ax.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        frameon=False,
        borderpad=0.2,
        borderaxespad=0.1,
        columnspacing=1.2,
        handlelength=1.6,
    )
    for handle in legend.legend_handles:
        if isinstance(handle, Line2D) and handle.get_marker() == ".":
            handle.set_alpha(0.9)  # the points of a cloud are too faint alone
            handle.set_markersize(7)
    ax.set_title(ax.get_title(loc="left"), fontsize=11, loc="left", pad=8 + 15.5 * rows)
