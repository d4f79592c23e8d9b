"""Fields on grids as hypothesis draws them: any type, shape, scale, gaps and coordinates. Each is a few words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xarray as xr
from hypothesis import strategies as st

from odd_tables import mostly

Generator = np.random.Generator


@dataclass(frozen=True)
class Axis:
    """One dimension.

    Attributes
    ----------
    size : int
    kind : str
        One of `AXES`.
    exponent : int
        Numbers are in units of ten to that.
    """

    size: int = 6
    kind: str = "even"
    exponent: int = 0


@dataclass(frozen=True)
class OddField:
    """What a field is drawn from.

    Attributes
    ----------
    axes : tuple of Axis
        Dimensions ``"a"``, ``"b"``, ...
    values : str
        One of `VALUES`.
    exponent : int
        The scale of the values is ten to that.
    shift : float
        Their mean, in scales.
    gaps : str
        One of `GAPS`.
    dtype : str
    seed : int
    """

    axes: tuple[Axis, ...] = (Axis(),)
    values: str = "smooth"
    exponent: int = 0
    shift: float = 0.0
    gaps: str = "none"
    dtype: str = "float64"
    seed: int = 0

    def draw(self) -> xr.DataArray:
        """Return the field."""
        generator = np.random.default_rng([self.seed, 27])
        shape = tuple(axis.size for axis in self.axes)
        names = "abcd"[: len(shape)]
        coords = {
            name: AXES[axis.kind](generator, axis.size, 10.0**axis.exponent)
            for name, axis in zip(names, self.axes, strict=True)
        }
        coords = {name: points for name, points in coords.items() if points is not None}
        values = (VALUES[self.values](generator, shape) + self.shift) * 10.0**self.exponent
        values = np.where(GAPS[self.gaps](generator, shape), np.nan, values)
        with np.errstate(all="ignore"):
            values = _as_dtype(values, self.dtype)
        return xr.DataArray(values, dims=tuple(names), coords=coords, name="odd")


def _as_dtype(values: np.ndarray, dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        values = np.clip(np.nan_to_num(np.round(values)), limits.min / 2, limits.max / 2)
    return values.astype(kind)


def _times(generator: Generator, size: int, scale: float) -> np.ndarray:
    seconds = np.cumsum(generator.integers(1, 10**6, size=size))
    return np.datetime64("1999-12-31", "ns") + seconds.astype("timedelta64[s]")


def _repeated(generator: Generator, size: int, scale: float) -> np.ndarray:
    points = np.arange(float(size))
    points[-1] = points[0]
    return points * scale


def _with(value: object) -> Callable[[Generator, int, float], np.ndarray]:
    def draw(generator: Generator, size: int, scale: float) -> np.ndarray:
        points = np.arange(float(size)) * scale
        points[size // 2] = value
        return points

    return draw


# Points of a dimension: generator, how many, and in what unit.
AXES: dict[str, Callable[[Generator, int, float], np.ndarray | None]] = {
    "even": lambda g, n, s: np.arange(float(n)) * s,
    "uneven": lambda g, n, s: np.cumsum(g.exponential(size=n)) * s,
    "descending": lambda g, n, s: -np.cumsum(g.exponential(size=n)) * s,
    "in any order": lambda g, n, s: g.permutation(n) * s,
    "two clusters": lambda g, n, s: np.sort(g.integers(2, size=n) + 1e-7 * g.normal(size=n)) * s,
    "one far": lambda g, n, s: np.append(np.arange(float(n - 1)), 1e6) * s,
    "far from zero": lambda g, n, s: (1e9 + np.arange(float(n))) * s,
    "integers": lambda g, n, s: np.arange(n) - 3,
    "unsigned": lambda g, n, s: np.arange(n).astype(np.uint8),
    "float32": lambda g, n, s: (np.arange(float(n)) * np.clip(s, 1e-30, 1e30)).astype(np.float32),
    "booleans": lambda g, n, s: np.arange(n) % 2 == 1,
    "times": _times,
    "durations": lambda g, n, s: np.arange(n).astype("timedelta64[h]").astype("timedelta64[ns]"),
    "labels": lambda g, n, s: np.array([f"output {i}" for i in range(n)]),
    "objects": lambda g, n, s: np.array([f"o{i}" for i in range(n)], dtype=object),
    "without": lambda g, n, s: None,
    "repeated": _repeated,
    "a NaN": _with(np.nan),
    "an infinity": _with(np.inf),
}  # fmt: skip


def _smooth(generator: Generator, shape: tuple[int, ...]) -> np.ndarray:
    found = np.zeros(shape)
    for axis, size in enumerate(shape):
        wave = np.sin(np.arange(size) / 3.0 + generator.uniform(0, 6))
        found = found + wave.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return found


def _one_far(generator: Generator, shape: tuple[int, ...]) -> np.ndarray:
    values = _smooth(generator, shape)
    values.flat[0] = 1e6
    return values


VALUES: dict[str, Callable[[Generator, tuple[int, ...]], np.ndarray]] = {
    "smooth": lambda g, s: _smooth(g, s) + 0.2 * g.normal(size=s),
    "without noise": _smooth,
    "noise": lambda g, s: g.normal(size=s),
    "constant": lambda g, s: np.ones(s),
    "almost constant": lambda g, s: 1.0 + 1e-13 * g.normal(size=s),
    "cauchy": lambda g, s: g.standard_cauchy(size=s),
    "lognormal": lambda g, s: np.exp(4.0 * g.normal(size=s)),
    "one far": _one_far,
    "two values": lambda g, s: (_smooth(g, s) > 0).astype(float),
    "counts": lambda g, s: g.poisson(0.1, size=s).astype(float),
    "an infinity": lambda g, s: np.where(np.arange(np.prod(s)).reshape(s) == 1, np.inf, _smooth(g, s)),
}  # fmt: skip

# Where nothing was observed.
GAPS: dict[str, Callable[[Generator, tuple[int, ...]], np.ndarray]] = {
    "none": lambda g, s: np.zeros(s, bool),
    "some": lambda g, s: g.uniform(size=s) < 0.3,
    "most": lambda g, s: g.uniform(size=s) < 0.9,
    "all": lambda g, s: np.ones(s, bool),
    "all but one": lambda g, s: np.arange(np.prod(s)).reshape(s) > 0,
    "all but two": lambda g, s: np.arange(np.prod(s)).reshape(s) > 1,
    "a half": lambda g, s: np.arange(np.prod(s)).reshape(s) < np.prod(s) // 2,
    "a slice": lambda g, s: np.arange(s[0]).reshape(-1, *[1] * (len(s) - 1)) + np.zeros(s) == 1,
}  # fmt: skip

_DTYPES = ("float64", "float32", "float16", "int64", "int16", "uint8", "bool", "complex128", "object")  # fmt: skip
# Few shapes, as each is compiled for.
_SIZES = (1, 2, 3, 6, 12)


@st.composite
def odd_fields(draw: st.DrawFn, sizes: tuple[int, ...] = _SIZES, dimensions: int = 3) -> OddField:
    """Strategy of fields."""
    exponents = mostly(0, st.integers(-150, 150))
    axes = st.builds(
        Axis,
        st.sampled_from(sizes),
        mostly("even", st.sampled_from(sorted(AXES))),
        exponents,
    )
    return OddField(
        axes=tuple(draw(st.lists(axes, min_size=1, max_size=dimensions))),
        values=draw(mostly("smooth", st.sampled_from(sorted(VALUES)))),
        exponent=draw(exponents),
        shift=draw(mostly(0.0, st.sampled_from([1.0, -3.0, 1e3, -1e6, 1e9]))),
        gaps=draw(mostly("some", st.sampled_from(sorted(GAPS)))),
        dtype=draw(mostly("float64", st.sampled_from(_DTYPES))),
        seed=draw(st.integers(0, 10**6)),
    )
