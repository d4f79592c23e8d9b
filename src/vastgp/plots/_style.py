"""Colours and axes shared by the plots."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

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
    margin = share * (high - low)
    if not (low - margin < low and high < high + margin):  # equal, but for rounding
        margin = max(1.0, share * abs(high))
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
    return _no_formula(_cut(_printable(name), most))


def plain_names(names: Iterable[object], most: int = 28) -> list[str]:
    """Names of users as labels side by side: those that would be cut to the same are cut in their middle.

    Where some are the same even so, as times of several days are, all have up to twice as many letters.
    """
    texts = [_printable(name) for name in names]
    for letters in range(most, 2 * most + 1):
        alike: dict[str, set[str]] = {}
        for text in texts:
            alike.setdefault(_cut(text, letters), set()).add(text)
        labels = [_cut(text, letters, len(alike[_cut(text, letters)]) > 1) for text in texts]
        if len(set(labels)) == len(set(texts)):
            break
    return list(map(_no_formula, labels))


def as_dates(values: Any) -> np.ndarray:
    """Return an array in which dates of Python's and of pandas are NumPy's, each by its own clock."""
    array = np.asarray(values)
    if array.dtype.kind != "O" or not array.size:
        return array
    listed = array.tolist()
    if not all(one is None or isinstance(one, datetime.date) for one in listed):
        return array
    plain = [one.replace(tzinfo=None) if hasattr(one, "tzinfo") else one for one in listed]
    return np.array(plain, dtype="datetime64[us]")


def date_labels(dates: np.ndarray) -> list[str]:
    """Dates with as much of their times as they have."""
    there = dates[~np.isnat(dates)]
    for unit in ("D", "m", "s", "us", "ns"):
        shown = dates.astype(f"M8[{unit}]")
        if np.array_equal(shown[~np.isnat(dates)], there):
            break
    return ["missing" if np.isnat(one) else str(one).replace("T", " ") for one in shown]


def number_labels(values: np.ndarray, digits: int = 5) -> list[str]:
    """Numbers in as few digits as tell them apart, and in no fewer than so many."""
    distinct = len(np.unique(values))
    for more in range(digits, 18):
        labels = [f"{value:.{more}g}" for value in values.tolist()]
        if len(set(labels)) >= distinct:
            break
    return labels


def _printable(name: object) -> str:
    text = " ".join(str(name).split())
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _cut(text: str, most: int, in_middle: bool = False) -> str:
    if len(text) <= most:
        return text
    tail = (most - 1) // 2 if in_middle else 0
    return text[: most - 1 - tail] + "…" + text[len(text) - tail :]


def _no_formula(text: str) -> str:
    return text.replace("$", r"\$")


def band(ax: Axes, x: Any, low: Any, high: Any, **style: Any) -> None:
    """The area between two curves; at a single place, where an area has no width, a bar."""
    if len(x) == 1:
        ax.vlines(x, low, high, **(style | {"lw": 7.0}))
    else:
        ax.fill_between(x, low, high, **(style | {"lw": 0}))


def single(x: Any) -> dict[str, Any]:
    """The style of a curve that has a single point, which without a mark is invisible."""
    return {"marker": "_", "ms": 12, "mew": 2} if len(x) == 1 else {}


def readable_dates(axis: Any, values: np.ndarray) -> None:
    """Dates along an axis in as few letters as tell them apart."""
    if values.dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(minticks=3, maxticks=7)
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator))


def _room_of_power(ax: Axes) -> float:
    """Points that matplotlib takes above the axes for the power of ten, or the offset, of the vertical scale."""
    formatter = ax.yaxis.get_major_formatter()
    formatter.format_ticks(ax.yaxis.get_majorticklocs().tolist())
    return 12.0 if formatter.get_offset() else 0.0


def legend_above(ax: Axes, columns: int) -> None:
    """A legend between title and axes, where it hides no data."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    labels = ax.get_legend_handles_labels()[1]
    rows, room = -(-len(labels) // columns), _room_of_power(ax)
    points = ax.get_figure(root=True).dpi_scale_trans  # type: ignore[union-attr]
    legend = ax.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        bbox_transform=ax.transAxes + ScaledTranslation(0.0, room / 72.0, points),
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
    ax.set_title(ax.get_title(loc="left"), fontsize=11, loc="left", pad=8 + room + 15.5 * rows)
