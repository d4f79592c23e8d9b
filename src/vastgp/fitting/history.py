"""What a fit recorded on its way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_PHASE = "phase:"


@dataclass
class History:
    """Diagnostics of a fit, one record per chunk of steps.

    Attributes
    ----------
    steps : list of int
        Steps done when the record was made.
    seconds : list of float
        Wall-clock seconds of training when the record was made, those before a resume included.
    values : dict of str to list of float
        The diagnostics by name, each as long as ``steps``; NaN where a record did not have one. A stochastic quantity
        ``q`` has its standard error in ``q_se``.
    phases : dict of str to History
        The records of the other phases of the fit, such as the search for hyperparameters before it.
    spent : dict of str to float
        Wall-clock seconds of the fit by phase; ``"compilation"`` happens within the others. Of this process alone, and
        not kept in files.

    Examples
    --------
    >>> history = History()
    >>> history.append(100, 0.5, {"objective": -1.25})
    >>> history["objective"], history.steps
    ([-1.25], [100])
    """

    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    phases: dict[str, History] = field(default_factory=dict, repr=False)
    spent: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    def append(self, step: int, seconds: float, diagnostics: Mapping[str, Any]) -> None:
        """Add one record; a diagnostic that is new starts with NaN for the records before it."""
        for name in diagnostics:  # in their order, the same in every process
            self.values.setdefault(name, [math.nan] * len(self))
        self.steps.append(int(step))
        self.seconds.append(float(seconds))
        for name, column in self.values.items():
            column.append(float(diagnostics.get(name, math.nan)))

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, name: str) -> list[float]:
        try:
            return self.values[name]
        except KeyError:
            known = ", ".join(sorted(self.values)) or "nothing yet"
            raise KeyError(f"history has no {name!r}; it holds {known}.") from None

    def __contains__(self, name: str) -> bool:
        return name in self.values

    @property
    def objective(self) -> list[float]:
        """The objective at each record."""
        return self["objective"]

    @property
    def objective_se(self) -> list[float]:
        """Standard error of the objective at each record; zero for a method that computes it exactly."""
        return self.values.get("objective_se", [0.0] * len(self))

    def last(self, name: str) -> float:
        """Return the latest value of a diagnostic, NaN when there is none."""
        column = self.values.get(name)
        return column[-1] if column else math.nan

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the records as plain lists by name, as a data frame's constructor takes them."""
        return {
            "steps": list(self.steps),
            "seconds": list(self.seconds),
            **{name: list(column) for name, column in self.values.items()},
        }

    @classmethod
    def from_dict(cls, columns: Mapping[str, Any]) -> History:
        """Return the history that `to_dict` or `to_arrays` wrote."""
        phases: dict[str, dict[str, Any]] = {}
        for name in [name for name in columns if name.startswith(_PHASE)]:
            phase, _, column = name.removeprefix(_PHASE).rpartition("/")
            phases.setdefault(phase, {})[column] = columns[name]
        columns = {name: column for name, column in columns.items() if not name.startswith(_PHASE)}
        values = {
            name: [float(entry) for entry in column]
            for name, column in columns.items()
            if name not in ("steps", "seconds")
        }
        return cls(
            [int(step) for step in columns["steps"]],
            [float(entry) for entry in columns["seconds"]],
            values,
            {name: cls.from_dict(of_phase) for name, of_phase in phases.items()},
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the records as arrays by name, for a file that keeps every bit (NaN included)."""
        arrays = {
            name: np.asarray(column, dtype=np.int64 if name == "steps" else np.float64)
            for name, column in self.to_dict().items()
        }
        for phase, history in self.phases.items():
            arrays |= {f"{_PHASE}{phase}/{name}": a for name, a in history.to_arrays().items()}
        return arrays
