"""What an optimiser asked for, and was answered: a resumed fit replays it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from vastgp.fitting.checkpoint import Saved
from vastgp.fitting.history import History
from vastgp.fitting.progress import Progress


class Evaluations:
    """Values and slopes at the points where an optimiser of SciPy asked for them.

    Such an optimiser keeps its state to itself. It asks for the same points again when it is given the same answers, so
    that a resumed fit goes on to the bit where it was by replaying what is recorded here.
    """

    def __init__(
        self, run: Any, name: str, share: float, label: str, until: float = np.inf
    ) -> None:
        self.run, self.name, self.share, self.label = run, name, share, label
        self.until = until
        file = run.checkpoint
        saved = None if file is None else file.phases.get(name)
        self._began = run.elapsed() if saved is None else saved.began
        self._rows: list[np.ndarray] = [] if saved is None else list(saved.arrays["rows"])
        self._asked = 0
        self.seconds = 0.0

    @property
    def max_seconds(self) -> float | None:
        """The share of what was left of the budget when the phase began."""
        limit = self.run.max_seconds
        if limit is None:
            return None
        return self.share * max(min(limit, self.until) - self._began, 0.0)

    def __call__(
        self, point: np.ndarray, compute: Callable[[], tuple[float, np.ndarray]]
    ) -> tuple[float, np.ndarray]:
        """Return value and slope at a point, recorded or computed now; ``seconds`` is then when that was."""
        # half of the file, where points have very many coordinates
        digest = float(zlib.crc32(point.tobytes()))
        if self._asked < len(self._rows):
            row = self._rows[self._asked]
            if row[2] == digest:
                self._asked += 1
                self.seconds = float(row[0])
                return float(row[1]), row[3:].copy()
            del self._rows[self._asked :]  # an optimiser of another version: it goes its own way
        with self.run.timed(self.name):
            value, slope = compute()
        self.seconds = self.run.elapsed() - self._began
        self._asked += 1
        file = self.run.checkpoint
        if file is not None:
            self._rows.append(np.concatenate([[self.seconds, value, digest], slope]))
            if file.due():
                self._keep()
                file.write()
        return value, slope

    def end(self, history: History) -> None:
        """Note that the optimiser has ended, and what it recorded."""
        self.run.histories[self.name] = history
        if self.run.checkpoint is not None:
            self._keep()

    def progress(self) -> Progress:
        """Return the line to show while the optimiser works."""
        return Progress(self.label, self.run.verbose)

    def _keep(self) -> None:
        file = self.run.checkpoint
        assert file is not None
        before = file.phases.get(self.name)
        if before is None or before.num_iter != len(self._rows):
            file.forget_after(self.name)
        file.phases[self.name] = Saved(
            arrays={"rows": np.stack(self._rows)} if self._rows else {"rows": np.zeros((0, 3))},
            num_iter=len(self._rows),
            seconds=self.seconds,
            began=self._began,
        )
