"""Fields that repeat their first column at the end, 360 degrees on: one meridian, whose values count once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from vastgp.data.grid import Group

# Values of one meridian agree to what packing and single precision leave, relative to the largest.
_AGREE = 1e-5


def columns_twice(groups: Sequence[Group]) -> Iterator[tuple[int, int, int]]:
    """Yield the number of a group, and the two positions along it that are one meridian."""
    for axis, group in enumerate(groups):
        twice = group.coordinates[0].meridian_twice() if len(group.coordinates) == 1 else None
        if twice is not None and group.on_axes:
            yield axis, *twice


def counted_once(values: np.ndarray, groups: Sequence[Group]) -> np.ndarray:
    """Return values of which a column that comes twice has gaps in its second place where the first has a value.

    Parameters
    ----------
    values : ndarray of shape (m_1, ..., m_d)
        NaN in the gaps.
    groups : sequence of Group

    Raises
    ------
    ValueError
        Where the two columns differ, with the name of the dimension.
    """
    for axis, first, second in columns_twice(groups):
        values = np.moveaxis(values.copy(), axis, 0)
        one, other = values[first], values[second]
        both = np.isfinite(one) & np.isfinite(other)
        apart = np.abs(one[both] - other[both])
        largest = np.max(np.abs(one[both]), initial=0.0)
        if np.any(apart > _AGREE * largest):
            coordinate = groups[axis].coordinates[0]
            name, at = coordinate.name, coordinate.values
            raise ValueError(
                f"coordinate {name!r} has {at[first]} and {at[second]} (positions {first} and {second}), which are one "
                f"meridian, and the values there differ in {int(np.sum(apart > _AGREE * largest))} cells. Drop one of "
                f"the two: array.drop_isel({name}={second}); predictions at either longitude are the same."
            )
        values[second] = np.where(np.isnan(one), other, np.nan)
        values = np.moveaxis(values, 0, axis)
    return values


def joined(values: np.ndarray, groups: Sequence[Group]) -> np.ndarray:
    """Return values that are counted once, or their errors, with all of a column that comes twice in its first place.

    Parameters
    ----------
    values : ndarray of shape (m_1, ..., m_d)
        By `counted_once`.
    groups : sequence of Group
    """
    for axis, first, second in columns_twice(groups):
        values = np.moveaxis(values.copy(), axis, 0)
        values[first] = np.where(np.isnan(values[first]), values[second], values[first])
        values[second] = np.nan
        values = np.moveaxis(values, 0, axis)
    return values
