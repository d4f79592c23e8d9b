"""Which values of a target are heaps."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import nbinom

from vastgp.auto.warps import warps_to_try

# What asks for two parts where the rule sees none.
TWO_PART = "two-part"
# A heap has this share of the rows, and so many at least: fewer tell nothing of when it happens.
_LEAST_SHARE, _LEAST_ROWS = 0.05, 10
# Rounding to a width w puts about n w f(v) rows on v, and about as many on the values beside it: no value has several
# times what any other has, unless w is so wide that few values are left.
_ABOVE = 5.0
# Those of the rest are many, and none is frequent: the rest is continuous but for rounding.
_REST_ROWS, _REST_VALUES, _MOST_OF_REST = 20, 20, 0.1
# Where most rows are at heaps a density of all is one of these: the rest may be rounded to few values, some frequent.
_MOST, _FEWER_VALUES, _MORE_OF_REST = 0.5, 10, 0.3
_MOST_HEAPS = 3
# Whole numbers are likelier by two parts than by a law of counts where they are by so many nats a row, whatever goes
# with the inputs. Of 218 such columns in packages of R hours and weeks of work, cigarettes a day, gifts, ratings of 0
# to 100 and areas of porches are by 0.1 to 1.1; visits, publications and arrests, which are counts, by 0.07 at most.
_LIKELIER = 0.1
# Between these sizes of the law.
_LOG_SIZES = -6.0, 6.0


@dataclass(frozen=True)
class Heap:
    """The heaps of a target.

    Attributes
    ----------
    values : tuple of float
        Where they are, in the order of ``labels``.
    counts : tuple of int
        Rows at each.
    rows : int
        Rows with a target.
    """

    values: tuple[float, ...]
    counts: tuple[int, ...]
    rows: int

    @classmethod
    def of(cls, y: np.ndarray, counts: bool = False) -> Heap | None:
        """Return the heaps of a target; None of one without.

        A value is a heap if 5 % of the rows or more, and at least ten, have exactly it, and if they are five times as
        many as have any value that is no heap, of which there are at least twenty, none with more than a tenth of the
        rest; ten and three tenths where more than half of the rows are at heaps, as of how far one can see from an
        airport, ten miles mostly. At most three heaps are looked for. A law of counts has many zeros by itself: whole
        numbers that look like counts have heaps, these or zero alone, where two parts make all of them likelier than
        such a law does.

        Parameters
        ----------
        y : ndarray of shape (n,)
        counts : bool, default False
            Whether the target looks like counts.
        """
        found = cls._by_frequency(y)
        if not counts:
            return found
        found = cls._at_zero(y) if found is None else found
        if found is None or gain_over_law(y, found) < _LIKELIER:
            return None
        return found

    @classmethod
    def _by_frequency(cls, y: np.ndarray) -> Heap | None:
        values, rows = _most_frequent(y)
        for k in range(min(_MOST_HEAPS, len(values) - 1), 0, -1):
            rest = len(y) - int(rows[:k].sum())
            least = max(_LEAST_SHARE * len(y), _LEAST_ROWS, _ABOVE * rows[k])
            most = rest < (1.0 - _MOST) * len(y)
            fewest, frequent = (
                (_FEWER_VALUES, _MORE_OF_REST) if most else (_REST_VALUES, _MOST_OF_REST)
            )
            continuous = len(values) - k >= fewest and rows[k] <= frequent * rest
            if rows[k - 1] >= least and rest >= _REST_ROWS and continuous:
                return cls._at(values[:k], rows[:k], len(y))
        return None

    @classmethod
    def _at_zero(cls, y: np.ndarray) -> Heap | None:
        """Return zero as the heap where it is the most frequent of many values."""
        values, rows = _most_frequent(y)
        rest = len(y) - int(rows[0])
        enough = rows[0] >= max(_LEAST_SHARE * len(y), _LEAST_ROWS) and rest >= _REST_ROWS
        many = len(values) > _REST_VALUES
        return (
            cls._at(values[:1], rows[:1], len(y)) if values[0] == 0.0 and enough and many else None
        )

    @classmethod
    def asked(cls, y: np.ndarray, called: str) -> Heap:
        """Return the heaps of a target that the user says has some: by the rule, or its most frequent value.

        Raises
        ------
        ValueError
            Where no value has ten rows, or not twenty rows have another.
        """
        found = cls.of(y)
        if found is not None:
            return found
        values, rows = _most_frequent(y)
        if rows[0] < _LEAST_ROWS or len(y) - rows[0] < _REST_ROWS:
            raise ValueError(
                f"likelihood={TWO_PART!r} is for a target of which many rows have exactly one value, such as 0, and "
                f"others another: at least {_LEAST_ROWS} and {_REST_ROWS} rows. Of {called} the most frequent value, "
                f"{values[0]:g}, is in {rows[0]} of {len(y)} rows. Leave likelihood out."
            )
        return cls._at(values[:1], rows[:1], len(y))

    @classmethod
    def _at(cls, values: np.ndarray, rows: np.ndarray, n: int) -> Heap:
        order = sorted(range(len(values)), key=lambda k: _label(float(values[k])))
        return cls(tuple(float(values[k]) for k in order), tuple(int(rows[k]) for k in order), n)

    @property
    def labels(self) -> np.ndarray:
        """Names of the classes, sorted: the heaps, and last what is at none."""
        return np.array([*map(_label, self.values), "elsewhere"])

    @property
    def rest(self) -> int:
        """Rows at no heap."""
        return self.rows - sum(self.counts)

    def classes_of(self, y: np.ndarray) -> np.ndarray:
        """Return the number of each row's class, (n,): that of its heap, or the last one."""
        found = np.full(len(y), float(len(self.values)))
        for k, value in enumerate(self.values):
            found[y == value] = k
        return found

    def holds(self, y: np.ndarray) -> np.ndarray:
        """Return which targets are at a heap, (n,)."""
        return np.isin(y, self.values)

    def in_words(self, called: str = "the target") -> str:
        """Return a sentence for people."""
        shares = [
            f"{count / self.rows:.0%} of the {self.rows:,} rows have exactly {value:g}"
            for value, count in zip(self.values, self.counts, strict=True)
        ]
        return (
            f"Of {called} {', and '.join(shares)}: a model of two parts says how likely that is, and what the "
            f"other {self.rest:,} rows' distribution is."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Heap:
        """Return what `to_dict` described."""
        return cls(tuple(plain["values"]), tuple(plain["counts"]), plain["rows"])


def gain_over_law(y: np.ndarray, heap: Heap) -> float:
    """Return by how many nats a row whole numbers are likelier by heaps and a density than by a law of counts.

    Without inputs: the shares of the heaps and a normal density of the rest on the scale where that is likeliest,

        log p / n = sum_k s_k log s_k - s_rest (log std t + 1/2 + 1/2 log 2 pi - mean log dt/dy),

    and a negative binomial law of their mean, with the size that makes them likeliest.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Whole numbers from zero on.
    heap : Heap
    """
    values, rows = np.unique(y, return_counts=True)
    shares, mean = rows / len(y), float(np.mean(y))

    def misfit(log_size: float) -> float:
        size = np.exp(log_size)
        return -float(shares @ nbinom.logpmf(values, size, size / (size + mean)))

    of_law = minimize_scalar(misfit, bounds=_LOG_SIZES, method="bounded").fun
    of_heaps = np.array([*heap.counts, heap.rest]) / heap.rows
    rest = y[~heap.holds(y)]
    of_rest = min(
        float(np.log(np.std(warp.forward(rest))) - np.mean(warp.log_slope(rest)))
        for warp in warps_to_try(rest)
    )
    parts = -np.sum(of_heaps * np.log(of_heaps))
    return float(of_law - parts - of_heaps[-1] * (of_rest + 0.5 + 0.5 * np.log(2.0 * np.pi)))


def _label(value: float) -> str:
    return f"at {value!r}".removesuffix(".0")


def _most_frequent(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values and how many rows have each, the most frequent first."""
    values, rows = np.unique(y, return_counts=True)
    order = np.argsort(-rows, kind="stable")
    return values[order], rows[order]
