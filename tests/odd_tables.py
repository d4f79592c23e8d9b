"""Tables as hypothesis draws them: any type, shape and scale, with what makes a fit go wrong. Each is a few numbers.

A table is a small frozen object, so that one that ever failed is written down as an example in one line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

Generator = np.random.Generator

# New rows of a table, at most.
_NEW_ROWS = 500


@dataclass(frozen=True)
class Column:
    """One input.

    Attributes
    ----------
    kind : str
        One of `COLUMNS`.
    exponent : int
        Its scale is ten to that.
    shift : float
        Its mean, in scales.
    """

    kind: str = "normal"
    exponent: int = 0
    shift: float = 0.0


@dataclass(frozen=True)
class OddTable:
    """What a table is drawn from.

    Attributes
    ----------
    rows : int
    columns : tuple of Column
    target : str
        One of `TARGETS`.
    exponent : int
        The target's scale is ten to that.
    shift : float
        Its mean, in scales.
    repeated : float
        Share of the rows that repeat others.
    dtype : str
        Of the inputs, as they are handed over.
    seed : int
    """

    rows: int
    columns: tuple[Column, ...] = (Column(),)
    target: str = "smooth"
    exponent: int = 0
    shift: float = 0.0
    repeated: float = 0.0
    dtype: str = "float64"
    seed: int = 0

    def draw(self, more: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return training rows and ``more`` new ones of the same law: inputs and targets, inputs and targets."""
        # as many are drawn whatever is asked for, so that the training rows are the same
        generator, n, total = (
            np.random.default_rng([self.seed, 26]),
            self.rows,
            self.rows + _NEW_ROWS,
        )
        raw = np.empty((total, 0))
        for column in self.columns:
            values = COLUMNS[column.kind](generator, total, raw)
            raw = np.concatenate([raw, values.reshape(total, -1)], axis=1)
        if self.repeated:
            again = np.flatnonzero(generator.uniform(size=n) < self.repeated)
            raw[again] = raw[generator.integers(n, size=len(again))]
        target = TARGETS[self.target](generator, raw)
        widths = [_width(column) for column in self.columns]
        scale = np.repeat([10.0**column.exponent for column in self.columns], widths)
        shift = np.repeat([column.shift for column in self.columns], widths)
        with np.errstate(all="ignore"):
            X = _as_dtype((raw + shift) * scale, self.dtype)
        y = (target + self.shift) * 10.0**self.exponent
        return X[:n], y[:n], X[n : n + more], y[n : n + more]

    def labels(self, kind: str, count: int) -> np.ndarray:
        """Return labels of the training rows: ``count`` classes along the target, named as ``kind`` says."""
        _, y, _, _ = self.draw()
        rank = np.argsort(np.argsort(y, kind="stable"), kind="stable")
        return LABELS[kind](rank * count // len(y))


def _width(column: Column) -> int:
    return 3 if column.kind == "one-hot" else 1


def _as_dtype(X: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "object":
        return X.astype(object)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        most = float(np.finfo(kind).max)
        return np.clip(X, -most, most).astype(kind)
    if kind.kind == "b":
        return X > 0
    limits = np.iinfo(kind)
    # in a float64 the largest integers of 64 bits are one more than they may be
    return np.clip(np.round(X), float(limits.min) / 2, float(limits.max) / 2).astype(kind)


def _last(generator: Generator, n: int, so_far: np.ndarray) -> np.ndarray:
    return so_far[:, -1] if so_far.shape[1] else generator.normal(size=n)


def _one_far(generator: Generator, n: int) -> np.ndarray:
    values = generator.normal(size=n)
    values[0] = 1e6
    return values


COLUMNS: dict[str, Callable[[Generator, int, np.ndarray], np.ndarray]] = {
    "normal": lambda g, n, so: g.normal(size=n),
    "uniform": lambda g, n, so: g.uniform(size=n),
    "cauchy": lambda g, n, so: g.standard_cauchy(size=n),
    "lognormal": lambda g, n, so: np.exp(4.0 * g.normal(size=n)),
    "constant": lambda g, n, so: np.ones(n),
    "almost constant": lambda g, n, so: 1.0 + 1e-13 * g.normal(size=n),
    "two values": lambda g, n, so: g.integers(2, size=n).astype(float),
    "integers": lambda g, n, so: g.integers(10, size=n).astype(float),
    "counts": lambda g, n, so: g.poisson(0.1, size=n).astype(float),
    "one-hot": lambda g, n, so: np.eye(3)[g.integers(3, size=n)],
    "row number": lambda g, n, so: np.arange(n, dtype=float),
    "one far": lambda g, n, so: _one_far(g, n),
    "copy": lambda g, n, so: _last(g, n, so).copy(),
    "almost copy": lambda g, n, so: _last(g, n, so) * (1.0 + 1e-9 * g.normal(size=n)),
    "sum": lambda g, n, so: so.sum(axis=1) if so.shape[1] else g.normal(size=n),
    "clusters": lambda g, n, so: g.integers(3, size=n) + 1e-7 * g.normal(size=n),
}  # fmt: skip


def _smooth(generator: Generator, raw: np.ndarray) -> np.ndarray:
    """Waves along one direction of ranks: of standard deviation about one, whatever the inputs' law."""
    rank = np.stack(
        [np.searchsorted(np.sort(column), column) / max(len(column), 2) for column in raw.T], axis=1
    )
    return np.sin(3.0 * rank @ generator.normal(size=raw.shape[1]) + generator.uniform(0, 6)) * 1.4


def _line(generator: Generator, raw: np.ndarray) -> np.ndarray:
    spread = raw.std(axis=0)
    return (raw - raw.mean(axis=0)) / np.where(spread > 0, spread, 1.0) @ np.ones(raw.shape[1])


TARGETS: dict[str, Callable[[Generator, np.ndarray], np.ndarray]] = {
    "smooth": lambda g, X: _smooth(g, X) + 0.3 * g.normal(size=len(X)),
    "without noise": _smooth,
    "noise": lambda g, X: g.normal(size=len(X)),
    "line": _line,
    "noisy line": lambda g, X: _line(g, X) + 0.3 * g.normal(size=len(X)),
    "constant": lambda g, X: np.ones(len(X)),
    "constant but one": lambda g, X: (np.arange(len(X)) == 1).astype(float),
    "two values": lambda g, X: (_smooth(g, X) > 0).astype(float),
    "integers": lambda g, X: g.poisson(np.exp(_smooth(g, X))).astype(float),
    "cauchy": lambda g, X: g.standard_cauchy(size=len(X)),
    "outlier": lambda g, X: _smooth(g, X) + _one_far(g, len(X)),
    "input": lambda g, X: X[:, 0].copy(),
    "unequal": lambda g, X: _smooth(g, X) + g.normal(size=len(X)) * np.exp(X[:, 0].clip(-3, 3)),
}  # fmt: skip

LABELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "integers": lambda k: k,
    "far integers": lambda k: k * 10**9 - 10**12,
    "text": lambda k: np.array([f"klasse {i}" for i in range(300)])[k],
    "objects": lambda k: np.array([f"c{i}" for i in range(300)], dtype=object)[k],
    "floats": lambda k: k.astype(float),
    "booleans": lambda k: k > 0,
    "unsigned": lambda k: k.astype(np.uint8),
}

_DTYPES = ("float64", "float32", "float16", "int64", "int8", "uint16", "bool", "object")
# Few shapes, as each is compiled for.
_ROWS = (2, 3, 5, 12, 40, 120, 300)
_MORE_ROWS = (*_ROWS, 1000, 3000)


def mostly(usual: object, rare: st.SearchStrategy) -> st.SearchStrategy:
    """The usual value in about half of the cases."""
    return st.one_of(st.just(usual), rare)


_SHIFTS = mostly(0.0, st.sampled_from([1.0, -3.0, 1e3, -1e6, 1e9]))
_EXPONENTS = mostly(0, st.integers(-150, 150))


@st.composite
def odd_tables(draw: st.DrawFn, rows: tuple[int, ...] = _ROWS, columns: int = 4) -> OddTable:
    """Strategy of tables."""
    chosen = draw(
        st.lists(
            st.builds(Column, st.sampled_from(sorted(COLUMNS)), _EXPONENTS, _SHIFTS),
            min_size=1,
            max_size=columns,
        )
    )
    return OddTable(
        rows=draw(st.sampled_from(rows)),
        columns=tuple(chosen),
        target=draw(st.sampled_from(sorted(TARGETS))),
        exponent=draw(_EXPONENTS),
        shift=draw(_SHIFTS),
        repeated=draw(st.sampled_from([0.0, 0.0, 0.5, 0.95])),
        dtype=draw(mostly("float64", st.sampled_from(_DTYPES))),
        seed=draw(st.integers(0, 10**6)),
    )
