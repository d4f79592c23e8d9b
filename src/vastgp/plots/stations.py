"""Maps from stations as pictures: mean beside deviation with the stations on them; the variogram of readings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vastgp._warn import warn
from vastgp.plots._style import (
    ACCENT,
    DATA,
    MODEL,
    REFERENCE,
    given_or_new,
    new_axes,
    plain,
    plain_text,
    subset,
)
from vastgp.plots.fields import field_map

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

_MOST_STATIONS = 5000


def station_map(
    predicted: Any,
    model: Any | None = None,
    *,
    at: Mapping[str, int] | None = None,
    coastlines: bool = True,
    axes: list[Axes] | None = None,
) -> list[Axes]:
    """Draw maps of the mean and of the standard deviation, with the stations as dots.

    Parameters
    ----------
    predicted : xarray.Dataset
        ``mean`` and ``std`` on a grid, as ``StationGP.predict`` returns them.
    model : StationGP, optional
        Its stations are drawn: on the mean in the colour of their readings where they have one each, as rings on the
        deviation.
    at : mapping of str to int, optional
        Positions along the dimensions that the map does not show; the first ones without it.
    coastlines : bool, default True
        Whether coastlines are drawn, where cartopy is installed.
    axes : list of two Axes, optional
        A new figure without it.

    Returns
    -------
    list of matplotlib.axes.Axes
    """
    if axes is None:
        axes = new_axes(2, width=5.6, height=3.6)
    axes = field_map(predicted, at=at, axes=axes)
    for ax in axes:
        limits = ax.get_xlim(), ax.get_ylim()
        if model is not None:
            _draw_stations(ax, model, limits[0], filled=ax is axes[0])
        if coastlines and (model is None or model.readings_.space.sphere):
            _draw_coastlines(ax, limits[0])
        ax.set(xlim=limits[0], ylim=limits[1])
    return axes


def _draw_stations(ax: Axes, model: Any, limits: tuple[float, float], filled: bool) -> None:
    readings = model.readings_
    places, first, count = np.unique(readings.place, axis=0, return_index=True, return_counts=True)
    shown = subset(len(places), _MOST_STATIONS, 0)
    down, across = places[shown].T
    if readings.space.sphere:
        across = np.mod(across - limits[0], 360.0) + limits[0]  # by the convention of the map
    mesh: Any = ax.collections[0]
    size = float(np.clip(2000.0 / len(shown), 3.0, 22.0))
    if filled and count.max() == 1 and not readings.covariates:
        colours = readings.y[first][shown]
        ax.scatter(
            across, down, size, c=colours, cmap=mesh.get_cmap(), norm=mesh.norm,
            edgecolors="white", linewidths=0.4,
        )  # fmt: skip
    else:
        ax.scatter(across, down, size, c="none", edgecolors="white", linewidths=0.7, alpha=0.8)


def _draw_coastlines(ax: Axes, limits: tuple[float, float]) -> None:
    """Draw coastlines where cartopy is installed and has them; their file may have to come from the network."""
    try:
        from cartopy.feature import COASTLINE
    except ImportError:
        return
    try:
        parts = [part for one in COASTLINE.geometries() for part in getattr(one, "geoms", [one])]
        lines = [np.asarray(getattr(part, "coords", part)) for part in parts]
    except Exception as error:
        warn(f"coastlines could not be read by cartopy and are left out: {error}")
        return
    for line in lines:
        for turn in (-360.0, 0.0, 360.0):
            across = line[:, 0] + turn
            if across.max() >= limits[0] and across.min() <= limits[1]:
                ax.plot(across, line[:, 1], color="black", lw=0.6)


def variogram_plot(variogram: Any, *, target_name: str = "", ax: Axes | None = None) -> Axes:
    """Draw the empirical semivariogram with its numbers of pairs, and the learned kernel and noise through it.

    Parameters
    ----------
    variogram : Variogram or StationGP
        As ``StationGP.variogram`` returns it; of a fitted model that with its defaults.
    target_name : str, default ""
        For the labels.
    ax : Axes, optional
        A new figure without it.

    Returns
    -------
    matplotlib.axes.Axes
    """
    ax = given_or_new(ax, width=6.4, height=4.2)
    if hasattr(variogram, "variogram"):
        variogram = variogram.variogram()
    distance, pairs = variogram.distance, variogram.pairs
    at, curve = variogram.curve
    if len(at):
        ax.plot(at, curve, color=MODEL, lw=1.8, label="learned kernel and noise")
    else:
        ax.plot(
            distance, variogram.learned, color=MODEL, lw=1.8, label="learned, of the same pairs"
        )
    ax.axhline(variogram.noise, color=REFERENCE, lw=1.0, ls="--", label="noise (nugget)")
    size = 18.0 + 60.0 * np.sqrt(pairs / pairs.max())
    ax.scatter(distance, variogram.semivariance, size, color=DATA, zorder=3, label="readings")
    few = pairs < 30  # of fewer a mean square is hardly known
    if few.any():
        ax.scatter(
            distance[few], variogram.semivariance[few], size[few], color=ACCENT, zorder=4,
            label="fewer than 30 pairs",
        )  # fmt: skip
    top = 1.15 * max(float(variogram.semivariance.max()), float(np.max(curve, initial=0.0)))
    ax.set(xlim=np.array([-0.02, 1.03]) * float(distance.max()), ylim=(0.0, top))
    for x, y, count in zip(distance, variogram.semivariance, pairs, strict=True):
        ax.annotate(
            _count(int(count)), (x, y), (0, 8), textcoords="offset points", ha="center", fontsize=7,
            color=REFERENCE,
        )  # fmt: skip
    unit = f" ({variogram.unit})" if variogram.unit else ""
    of = f" of {plain_text(target_name)}" if target_name else ""
    plain(
        ax,
        title="Variogram, with numbers of pairs",
        xlabel=f"distance{unit}",
        ylabel=f"semivariance{of}",
    )
    ax.legend(loc="lower right", frameon=False, fontsize=9)
    return ax


def _count(pairs: int) -> str:
    return str(pairs) if pairs < 1000 else f"{pairs / 1000:.3g}k"
