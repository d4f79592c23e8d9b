"""Readings at stations as hypothesis draws them: odd tables whose rows have places, and some of them times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from odd_tables import OddTable, odd_tables

Generator = np.random.Generator
Places = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class OddStations:
    """What readings are drawn from.

    Attributes
    ----------
    table : OddTable
        Its columns are covariates.
    place : str
        One of `PLACES`.
    time : str
        One of `TIMES`.
    covariates : bool
        Whether the columns are used.
    """

    table: OddTable = field(default_factory=lambda: OddTable(12))
    place: str = "Europe"
    time: str = "none"
    covariates: bool = True

    def draw(self, more: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return columns of the readings, those of ``more`` new places, and the other arguments of a fit."""
        X, y, new, _ = self.table.draw(more)
        generator, n = np.random.default_rng([self.table.seed, 28]), len(y)
        first, second = PLACES[self.place](generator, n + more)
        names = ("x", "y") if self.place == "plane" else ("lat", "lon")
        columns = dict(zip(names, (first, second), strict=True))
        given: dict[str, Any] = dict(zip(("lat", "lon"), names, strict=True))
        when = TIMES[self.time](generator, n + more)
        if when is not None:
            columns["when"], given["time"] = when, "when"
        if self.covariates:
            beside = np.concatenate([X, new]).astype(np.float64)
            columns |= {f"h{number}": column for number, column in enumerate(beside.T)}
            given["covariates"] = [f"h{number}" for number in range(beside.shape[1])]
        readings = {name: values[:n] for name, values in columns.items()} | {"seen": y}
        return readings, {name: values[n:] for name, values in columns.items()}, given


def _sphere(g: Generator, n: int) -> Places:
    return np.degrees(np.arcsin(g.uniform(-1.0, 1.0, n))), g.uniform(-180.0, 180.0, n)


PLACES: dict[str, Callable[[Generator, int], Places]] = {
    "Europe": lambda g, n: (g.uniform(36.0, 60.0, n), g.uniform(-10.0, 30.0, n)),
    "Earth": _sphere,
    "to 360": lambda g, n: (g.uniform(-60.0, 60.0, n), g.uniform(0.0, 360.0, n)),
    "poles": lambda g, n: (g.choice([-90.0, 90.0, 89.9999], n), g.uniform(-180.0, 180.0, n)),
    "date line": lambda g, n: (g.uniform(-1.0, 1.0, n), g.choice([-180.0, 180.0, 179.99], n)),
    "few": lambda g, n: (g.choice([10.0, 10.5, 47.0], n), g.choice([5.0, 5.5], n)),
    "metres apart": lambda g, n: (48.0 + 1e-5 * g.normal(size=n), 11.0 + 1e-5 * g.normal(size=n)),
    "one meridian": lambda g, n: (g.uniform(-80.0, 80.0, n), np.full(n, 13.0)),
    "plane": lambda g, n: (1e5 * g.uniform(size=n), 1e5 * g.uniform(size=n) + 4e6),
}  # fmt: skip

TIMES: dict[str, Callable[[Generator, int], np.ndarray | None]] = {
    "none": lambda g, n: None,
    "numbers": lambda g, n: g.uniform(0.0, 10.0, n),
    "days": lambda g, n: np.datetime64("2021-03-01") + g.integers(0, 900, n),
    "seconds": lambda g, n: np.datetime64("2021-03-01T00:00:00") + g.integers(0, 3600, n),
    "one day": lambda g, n: np.full(n, np.datetime64("2021-03-01")),
}  # fmt: skip


def odd_stations(rows: tuple[int, ...], columns: int = 2) -> st.SearchStrategy[OddStations]:
    """Strategy of readings."""
    return st.builds(
        OddStations,
        odd_tables(rows, columns),
        st.sampled_from(sorted(PLACES)),
        st.sampled_from(["none", "none", *sorted(TIMES)]),
        st.booleans(),
    )
