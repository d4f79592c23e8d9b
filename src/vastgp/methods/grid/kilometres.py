"""Lengthscales along latitude and longitude in kilometres."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vastgp.data.coordinates import EARTH_RADIUS, is_latitude, is_longitude
from vastgp.data.grid import Group
from vastgp.kernels import Cyclic, GridKernel, OnSphere, Stationary

# Of a degree of latitude.
_DEGREE = math.pi / 180.0 * EARTH_RADIUS


def lengthscales_in_km(
    kernel: GridKernel, groups: Sequence[Group], template: Any
) -> dict[str, float]:
    """Return the lengthscales of inputs in degrees, in kilometres, by name.

    Those of longitude are along the parallel of the mean latitude of the grid, where there is one: a product of kernels
    has one number of degrees for all parallels. Sums and products of kernels have several lengthscales, and are left
    out.

    Parameters
    ----------
    kernel : GridKernel
    groups : sequence of Group
    template : xarray.Dataset
        Coordinates of the fit, whose attributes tell which are in degrees.
    """
    attrs = {str(name): coordinate.attrs for name, coordinate in template.coords.items()}
    around = math.cos(math.radians(_mean_latitude(groups, attrs)))
    result: dict[str, float] = {}
    for part, group in zip(kernel.parts, groups, strict=True):
        if isinstance(part, OnSphere):
            result[", ".join(group.names)] = float(np.ravel(part.kernel.lengthscales)[0])
            continue
        shape = part.kernel if isinstance(part, Cyclic) else part
        if not isinstance(shape, Stationary):
            continue
        scales = np.broadcast_to(np.ravel(shape.lengthscales), (len(group.names),))
        for name, scale in zip(group.names, scales, strict=True):
            if is_latitude(name, attrs.get(name, {})):
                result[name] = float(scale) * _DEGREE
            elif is_longitude(name, attrs.get(name, {})):
                result[name] = float(scale) * _DEGREE * around
    return result


def _mean_latitude(groups: Sequence[Group], attrs: dict[str, Any]) -> float:
    """Return the mean of the latitudes, those of the equator where there are none."""
    for group in groups:
        for coordinate in group.coordinates:
            if is_latitude(coordinate.name, attrs.get(coordinate.name, {})):
                return float(np.mean(np.abs(coordinate.values.astype(np.float64))))
    return 0.0
