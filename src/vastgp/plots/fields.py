"""Fields on grids as pictures: mean, standard deviation and gaps as maps; a point's series with its band."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vastgp.metrics._vectors import half_width
from vastgp.plots._style import (
    DATA,
    MODEL,
    REFERENCE,
    band,
    given_or_new,
    legend_above,
    new_axes,
    percent,
    plain,
    plain_names,
    plain_text,
    readable_dates,
    single,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matplotlib.axes import Axes

_NUMBERS = "fiumM"  # kinds of coordinates that are places on an axis themselves


def field_map(
    predicted: Any,
    observed: Any | None = None,
    *,
    at: Mapping[str, int] | None = None,
    axes: list[Axes] | None = None,
) -> list[Axes]:
    """Draw maps of the observed values with their gaps, of the mean and of the standard deviation.

    Parameters
    ----------
    predicted : xarray.Dataset
        ``mean`` and ``std``, as ``GridGP.predict`` returns them.
    observed : xarray.DataArray, optional
        What was observed, NaN in the gaps, on the same grid; a map of its own with gaps in grey.
    at : mapping of str to int, optional
        Positions along the dimensions that the map does not show; the first ones without it. The map has the last
        two dimensions that are not named.
    axes : list of Axes, optional
        Two of them, three with ``observed``; a new figure without it.

    Returns
    -------
    list of matplotlib.axes.Axes
    """
    mean = _variable(predicted, "mean")
    at = _positions(mean, dict(at or {}), 2)
    fields = [("mean", mean.isel(at)), ("standard deviation", _variable(predicted, "std").isel(at))]
    if observed is not None:
        fields.insert(0, ("observed", _like(mean, observed, mean.dims).isel(at)))
    axes = new_axes(len(fields), width=4.6, height=3.8) if axes is None else list(axes)
    if len(axes) != len(fields):
        raise ValueError(f"axes: expected {len(fields)}, one for each map, got {len(axes)}")
    # One scale for what was observed and the mean; where nothing was, as under clouds, it is the mean's.
    both = np.stack([field.values for name, field in fields if name != "standard deviation"])
    there = both[np.isfinite(both)]
    scale = {"vmin": there.min(), "vmax": there.max()} if there.size else {}
    for ax, (name, field) in zip(axes, fields, strict=True):
        spread = name == "standard deviation"
        down, across = (field[dim] for dim in field.dims)
        mesh = ax.pcolormesh(
            _edges(across), _edges(down), np.ma.masked_invalid(field.values), shading="flat",
            cmap="cividis" if spread else "viridis", rasterized=True, **({} if spread else scale),
        )  # fmt: skip
        for axis, coordinate in ((ax.xaxis, across), (ax.yaxis, down)):
            _tell(axis, coordinate)
        ax.set_facecolor("0.8")  # gaps
        gaps = int(np.isnan(field.values).sum())
        title = f"{name}, {percent(gaps / field.size)} gaps" if gaps else name
        plain(ax, title=title, xlabel=_label(across), ylabel=_label(down))
        bar = ax.figure.colorbar(mesh, ax=ax, shrink=0.9)
        bar.set_label(_label(predicted["mean"], name=""))
    return axes


def series_plot(
    predicted: Any,
    observed: Any | None = None,
    *,
    along: str | None = None,
    at: Mapping[str, int] | None = None,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw the mean and the band of new observations along one dimension, with what was observed.

    Parameters
    ----------
    predicted : xarray.Dataset
        ``mean`` and ``std``, as ``GridGP.predict`` returns them.
    observed : xarray.DataArray, optional
        Observed values with the same dimensions, those at the place that is drawn; their range along the series may be
        another one (a forecast's past).
    along : str, optional
        The dimension to draw along; the first without it.
    at : mapping of str to int, optional
        Positions along the other dimensions; the first ones without it.
    level : float, default 0.95
        Probability of the band.
    ax : Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    mean = _variable(predicted, "mean")
    along = str(mean.dims[0]) if along is None else along
    if along not in mean.dims:
        raise ValueError(f"along: expected one of {tuple(map(str, mean.dims))}, got {along!r}")
    others = {str(dim): 0 for dim in mean.dims if dim != along} | dict(at or {})
    at = _positions(mean, others, 1)
    centre, spread = mean.isel(at), _variable(predicted, "std").isel(at)
    x, half = centre[along].values, half_width(level)
    ax = given_or_new(ax, width=8.0)
    low, high = (centre + sign * half * spread for sign in (-1, 1))
    band(
        ax, x, low.values, high.values, color=MODEL, alpha=0.25,
        label=f"{percent(level)} of new observations",
    )  # fmt: skip
    ax.plot(x, centre.values, color=MODEL, lw=1.6, label="mean", **single(x))
    if observed is not None:
        seen = _like(mean.isel({dim: [i] for dim, i in at.items()}), observed, list(at))
        seen = seen.isel(dict.fromkeys(at, 0))
        style: dict[str, Any] = {"color": DATA, "ms": 2.5, "alpha": 0.8, "mew": 0}
        ax.plot(seen[along].values, seen.values, "o", label="observations", **style)
        gaps = np.isnan(seen.values)
        if gaps.any() and gaps.mean() < 0.5:
            rug = np.full(int(gaps.sum()), 0.01)
            ax.plot(
                seen[along].values[gaps], rug, "|", color=REFERENCE, ms=7, label="gaps",
                transform=ax.get_xaxis_transform(),
            )  # fmt: skip
    ax.margins(x=0.01)
    readable_dates(ax.xaxis, x)
    plain(ax, title="", xlabel=_label(mean[along]), ylabel=_label(mean, name=""))
    legend_above(ax, columns=4)
    return ax


def _variable(predicted: Any, name: str) -> Any:
    if not hasattr(predicted, "data_vars") or name not in predicted:
        raise ValueError(
            f"predicted: expected a Dataset with {name!r}, as GridGP.predict returns it, got "
            f"{type(predicted).__name__}"
        )
    return predicted[name]


def _like(mean: Any, observed: Any, dims: Iterable[Any]) -> Any:
    """Return observed values at the coordinates that predictions have along some dimensions, in their order."""
    if hasattr(observed, "data_vars") or not hasattr(observed, "isel"):
        raise ValueError(
            f"observed: expected a DataArray with the dimensions of predicted, {tuple(map(str, mean.dims))}, got "
            f"{type(observed).__name__}"
        )
    if set(observed.dims) != set(mean.dims):
        raise ValueError(
            f"observed: expected the dimensions of predicted, {tuple(map(str, mean.dims))}, got "
            f"{tuple(map(str, observed.dims))}"
        )
    return observed.isel({dim: _places(mean, observed, dim) for dim in dims}).transpose(*mean.dims)


def _places(mean: Any, observed: Any, dim: Any) -> np.ndarray:
    """Return where along a dimension observed values are at the coordinates of predictions."""
    if dim in mean.indexes and dim in observed.indexes:
        wanted = mean.indexes[dim]
        found = np.asarray(observed.indexes[dim].get_indexer(wanted))
        if np.any(found < 0):
            first = wanted[int(np.argmax(found < 0))]
            raise ValueError(
                f"observed: expected the grid of predicted, and it has no values at {dim} = {first}"
            )
        return found
    if mean.sizes[dim] > observed.sizes[dim]:
        raise ValueError(
            f"observed: expected the grid of predicted, {mean.sizes[dim]} values along {dim}, got {observed.sizes[dim]}"
        )
    return np.arange(mean.sizes[dim])


def _positions(mean: Any, at: dict[str, int], shown: int) -> dict[str, int]:
    """Return positions along all dimensions but the last ones that are not named."""
    unknown = set(at) - set(map(str, mean.dims))
    if unknown:
        raise ValueError(
            f"at: expected names among {tuple(map(str, mean.dims))}, got {sorted(unknown)}"
        )
    free = [str(dim) for dim in mean.dims if dim not in at]
    if len(free) < shown:
        raise ValueError(
            f"at: expected to leave {shown} dimensions to draw, left {len(free)} of {tuple(mean.dims)}"
        )
    return at | dict.fromkeys(free[: len(free) - shown], 0)


def _edges(coordinate: Any) -> Any:
    """Edges of the cells around a coordinate: halfway between neighbours, and a unit or a day around a single one."""
    x = _numbers(coordinate)
    dates = x.dtype.kind == "M"
    x = x.astype("M8[us]" if dates else np.float64)
    half = np.diff(x) / 2
    if not half.size:
        half = np.array([np.timedelta64(12, "h").astype("m8[us]") if dates else 0.5])
    return np.concatenate([x[:1] - half[:1], x[:-1] + half[: len(x) - 1], x[-1:] + half[-1:]])


def _tell(axis: Any, coordinate: Any) -> None:
    """Ticks of dates in few letters, and those of names by these."""
    values = coordinate.values
    readable_dates(axis, values)
    if values.dtype.kind in _NUMBERS:
        return
    shown = np.arange(0, len(values), -(-len(values) // 12))
    upright = axis.axis_name == "y"
    turned: dict[str, Any] = {} if upright else {"rotation": 40, "ha": "right"}
    axis.set_ticks(shown, plain_names(values[shown].tolist(), 14), **turned)


def _numbers(coordinate: Any) -> Any:
    values = coordinate.values
    return values if values.dtype.kind in _NUMBERS else np.arange(len(values))


def _label(array: Any, name: str | None = None) -> str:
    units = array.attrs.get("units")
    name = str(array.name) if name is None else name
    return plain_text(f"{name} ({units})" if units and name else units or name, 60)
