"""Where learning on a grid begins: lengthscales and noise read off the differences between neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vastgp.data.coordinates import EARTH_RADIUS
from vastgp.data.grid import Group
from vastgp.fitting.candidates import default_values
from vastgp.kernels import (
    Constant,
    Coregionalisation,
    Cyclic,
    GridKernel,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    OnSphere,
    Periodic,
    Product,
    Stationary,
    Sum,
)

# Differences are gathered over this many pairs of points at each lag.
_PAIRS = 20_000
# Lags tried, as a geometric series over the points of an axis.
_LAGS = 12
_LEAST_NOISE, _MOST_NOISE = 1e-3, 0.5
# A rougher kernel of the same field has a longer lengthscale.
_LONGER = 1.3
_ROUGHER: dict[type[Kernel], type[Stationary]] = {Matern52: Matern32, Matern32: Matern12}


def start_values(
    tensor: np.ndarray,
    axes: Sequence[np.ndarray],
    noise_floor: float,
    errors: np.ndarray | None = None,
    seed: int = 0,
) -> tuple[list[np.ndarray], float]:
    """Return lengthscales for every axis, one an input, and a noise variance.

    Half the variance of standardised values lies between points that are a lengthscale apart, roughly: the lag at
    which the mean of ``1/2 (y(x) - y(z))^2`` along one axis passes half its plateau. What it has at the shortest lags
    bounds the noise. Where errors are known, what they add to a squared difference is taken from it, and differences
    count the less the more that is.

    Parameters
    ----------
    tensor : ndarray of shape (m_1, ..., m_d)
        Standardised values, NaN in the gaps.
    axes : sequence of ndarray of shape (m_l, d_l)
    noise_floor : float
    errors : ndarray of shape (m_1, ..., m_d), optional
        Known error variances.
    seed : int
    """
    generator = np.random.default_rng(seed)
    scales, nuggets = [], []
    for position, points in enumerate(axes):
        rows, known = (
            None if part is None else np.moveaxis(part, position, 0).reshape(len(points), -1)
            for part in (tensor, errors)
        )
        assert rows is not None
        scale, nugget = _along(rows, points, known, generator)
        scales.append(scale)
        nuggets.append(nugget)
    noise = 0.5 * min(nuggets)
    return scales, float(np.clip(noise, max(_LEAST_NOISE, noise_floor), _MOST_NOISE))


def _along(
    rows: np.ndarray,
    points: np.ndarray,
    errors: np.ndarray | None,
    generator: np.random.Generator,
) -> tuple[np.ndarray, float]:
    """Return a lengthscale for every input of one axis, and half the mean squared difference of neighbours."""
    size, others = rows.shape
    spread = np.ptp(points, axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    first = generator.integers(size, size=_PAIRS * 4)
    if points.shape[1] == 1:
        # short and long lags alike
        lags = np.unique(np.geomspace(1, max(size - 1, 1), _LAGS).astype(int))
        second = first + generator.choice(lags, size=first.size)
        keep = second < size
        first, second = first[keep], second[keep]
    else:
        second = generator.integers(size, size=first.size)
    column = generator.integers(others, size=first.size)
    difference = rows[first, column] - rows[second, column]
    distance = np.sqrt(np.sum(((points[first] - points[second]) / spread) ** 2, axis=1))
    seen = np.isfinite(difference) & (distance > 0)
    if seen.sum() < 10:
        return 0.2 * spread, 0.1
    half, counts = 0.5 * difference[seen] ** 2, np.ones(int(seen.sum()))
    if errors is not None:
        known = 0.5 * (errors[first, column] + errors[second, column])[seen]
        # standardised values: half a squared difference has a variance of about (1 + known)^2
        half, counts = half - known, (1.0 + known) ** -2.0
    order = np.argsort(distance[seen], kind="stable")
    parts = np.array_split(order, min(_LAGS, max(seen.sum() // 20, 1)))
    lags = np.array([distance[seen][part].mean() for part in parts])
    means = np.array([np.average(half[part], weights=counts[part]) for part in parts])
    plateau = max(float(np.max(means)), 1e-12)
    above = np.flatnonzero(means >= 0.5 * plateau)
    scale = lags[above[0]] if above.size else lags[-1]
    return scale * spread, max(float(means[0]), 0.0)


def kernel_from(
    specs: Sequence[Any],
    groups: Sequence[tuple[str, ...]],
    scales: Sequence[np.ndarray],
    num_outputs: Sequence[int | None],
    cyclic: Sequence[bool],
) -> GridKernel:
    """Return the kernel that learning starts from.

    Parameters
    ----------
    specs : sequence of Kernel, str or None
        A kernel keeps its own hyperparameters, in units of the coordinates; a name stands for start values.
    groups : sequence of tuple of str
    scales : sequence of ndarray
        Lengthscales for every axis.
    num_outputs : sequence of int or None
        Number of labels of an axis of labels.
    cyclic : sequence of bool
        Whether an axis is longitude all around, where a name stands for the kernel of that name around the circle.
    """
    parts = [
        _part(spec, scale, count, around)
        for spec, scale, count, around in zip(specs, scales, num_outputs, cyclic, strict=True)
    ]
    return GridKernel(parts, groups)


def _part(spec: Any, scale: np.ndarray, num_outputs: int | None, cyclic: bool) -> Kernel:
    from vastgp.kernels import from_name

    if num_outputs is not None:
        return spec if isinstance(spec, Coregionalisation) else Coregionalisation(num_outputs)
    if isinstance(spec, Kernel):
        return spec.with_ard(len(scale))
    named = from_name("matern52" if spec is None else spec).with_ard(len(scale))
    if isinstance(named, (Sum, Product)):
        named = default_values(named, 1)  # equal parts would stay equal
    named = named.in_units(scale, 1.0)
    return _closed(named) if cyclic else named


def _closed(kernel: Kernel) -> Kernel:
    """Return a kernel around the circle of longitudes: each part of a sum or product is one."""
    if isinstance(kernel, (Sum, Product)):
        return type(kernel)(tuple(_closed(part) for part in kernel.parts))
    return Cyclic(kernel=kernel) if isinstance(kernel, Stationary) else kernel


def rougher_in_time(
    kernel: GridKernel, specs: Sequence[Any], groups: Sequence[Group]
) -> GridKernel | None:
    """Return a kernel with a derivative less along times that none was given for; None where there are no such times.

    How rough a field is in time is what its deviations in long gaps and beyond its end hang on: with one derivative too
    many 95 % intervals of withheld months held 91 %.
    """
    parts, found = list(kernel.parts), False
    for i, (spec, group) in enumerate(zip(specs, groups, strict=True)):
        part = parts[i]
        rougher = _ROUGHER.get(type(part))
        if spec is None and group.is_time and rougher is not None and isinstance(part, Stationary):
            start = _LONGER * np.asarray(part.lengthscales)
            parts[i], found = rougher(start, np.asarray(part.variance)), True
    return GridKernel(parts, kernel.groups, kernel.variance) if found else None


def bounds(kernel: GridKernel, axes: Sequence[np.ndarray]) -> tuple[GridKernel, GridKernel]:
    """Return the least and the largest hyperparameters: a tenth of the finest spacing to a hundred ranges."""
    low, high = [], []
    for part, points in zip(kernel.parts, axes, strict=True):
        least, most = _reach(points)
        low.append(_bounded(part, least, False))
        high.append(_bounded(part, most, True))
    return (
        GridKernel(low, kernel.groups, 1e-4),
        GridKernel(high, kernel.groups, 1e4),
    )


def _reach(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    least, most = np.empty(points.shape[1]), np.empty(points.shape[1])
    for j, column in enumerate(points.T):
        steps = np.diff(np.unique(column))
        least[j] = 0.1 * steps.min() if steps.size else 0.1
        most[j] = 100.0 * np.ptp(column) if steps.size else 10.0
    return least, most


def _bounded(part: Kernel, reach: np.ndarray, upper: bool) -> Kernel:
    """Return a kernel of the same form whose hyperparameters are bounds."""
    import equinox as eqx

    if isinstance(part, Cyclic):
        return Cyclic(part.period, _bounded(part.kernel, reach, upper))
    if isinstance(part, OnSphere):
        # degrees of latitude become kilometres
        reach = reach[:1] * (math.pi / 180.0 * EARTH_RADIUS)
        return OnSphere(_bounded(part.kernel, reach, upper))
    if isinstance(part, (Sum, Product)):
        return type(part)(tuple(_bounded(each, reach, upper) for each in part.parts))
    if isinstance(part, Coregionalisation):
        size, pairs = len(np.asarray(part.diagonal)), len(np.asarray(part.below))
        values = (1e2, np.exp(30.0)) if upper else (1e-3, np.exp(-30.0))
        return Coregionalisation(
            diagonal=np.full(size, values[0]), below=np.full(pairs, values[1]), unit=part.unit
        )
    variance = np.asarray(1e4 if upper else 1e-4)
    if isinstance(part, Constant):
        return Constant(variance)
    if isinstance(part, Periodic):
        reach = np.full(len(reach), 1e2 if upper else 5e-2)
    lengthscales = (
        np.broadcast_to(reach, np.shape(part.lengthscales))
        if isinstance(part, (Stationary, Periodic))
        else reach
    )
    bounded = eqx.tree_at(
        lambda k: (k.lengthscales, k.variance), part, (np.array(lengthscales), variance)
    )
    if hasattr(bounded, "alpha"):
        bounded = eqx.tree_at(lambda k: k.alpha, bounded, np.asarray(1e3 if upper else 1e-2))
    return bounded
