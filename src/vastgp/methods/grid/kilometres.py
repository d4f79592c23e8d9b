"""Lengthscales along latitude and longitude in kilometres."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    around = math.cos(math.radians(_mean_latitude(groups, template.coords)))
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


def _mean_latitude(groups: Sequence[Group], coords: Mapping[Any, Any]) -> float:
    """Return the mean of the latitudes, those of the equator where there are none.

    Those of the inputs, or else those beside them: a field along one parallel has no input of latitude.
    """
    inputs = {one.name: one.values for group in groups for one in group.coordinates}
    beside = {str(name): one.values for name, one in coords.items() if name not in inputs}
    for name, values in (inputs | beside).items():
        attrs = coords[name].attrs if name in coords else {}
        if values.dtype.kind in "fiu" and is_latitude(name, attrs):
            return float(np.mean(np.abs(values.astype(np.float64))))
    return 0.0
