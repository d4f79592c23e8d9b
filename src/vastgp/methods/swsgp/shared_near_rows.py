"""Rows that some rows are predicted from, where several processes have the rows of the fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vastgp.data import processes
from vastgp.data.repetitions import Cells
from vastgp.data.shared_neighbours import SharedNeighbours
from vastgp.data.shared_rows import SharedArray
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.methods.swsgp.local_scale import Scattered
from vastgp.methods.swsgp.near_rows import NearRows
from vastgp.methods.swsgp.nearest_posterior import NearestPosterior
from vastgp.methods.swsgp.neighbour_evidence import NeighbourEvidence, others, part_of_tiles
from vastgp.methods.swsgp.options import Nearest
from vastgp.methods.swsgp.shared_posterior import SharedNearestPosterior


class SharedNearRows(NearRows):
    """`NearRows` where each process has a part of the rows of the fit, and works on some of the chosen ones.

    ``X`` and ``y`` are a table of these and of all that are near to them, which may be anyone's; numbers are places in
    it. Its size does not depend on how many rows the fit has.
    """

    def __init__(self, X: SharedArray, y: SharedArray, solver: Nearest, seed: int) -> None:
        super().__init__(X, y, solver, seed)
        self._rows, self._targets = X, y
        self.places = part_of_tiles(self.num_chosen)
        self._numbers = self.chosen[self.places]
        # inputs and targets of those that are chosen here, with a part of what all are told
        self._known = np.column_stack([X[self.chosen], y[self.chosen]])[self.places]
        self.X, self.y = self._known[:, :-1], self._known[:, -1]
        self.chosen = np.arange(len(self.places))
        self._cells: list[Cells | None] = []

    def _look_through(self, kernel: Kernel) -> None:
        own, scales = self._rows.local, self._metric(kernel)
        index = SharedNeighbours(
            own, np.column_stack([own, self._targets.local]), scales, self.solver.neighbor_search
        )
        # looked for once, by all together
        self._cells = self._cells or [Cells.of(self._rows)]
        wanted = self._wanted
        numbers, table = self._numbers, self._known
        near = np.empty((len(numbers), wanted), np.int64)
        for found in index.near(self._known[:, :-1], wanted + 1):
            mask = others(found.numbers, self._numbers[found.rows])
            near[found.rows] = found.numbers[mask].reshape(-1, wanted)
            numbers, first = np.unique(
                np.concatenate([numbers, found.numbers[mask]]), return_index=True
            )
            table = np.concatenate([table, found.values[mask]])[first]
        numbers, first = np.unique(numbers, return_index=True)
        self.X, self.y = table[first, :-1], table[first, -1]
        self.chosen = np.searchsorted(numbers, self._numbers)
        self._ranked = np.searchsorted(numbers, near).astype(np.int32)

    @property
    def _groups(self) -> np.ndarray:
        cells = self._cells[0]
        # of whole numbers none repeats another
        return np.arange(len(self.X)) if cells is None else cells.keys(self.X)

    def evidence(self, kernel: Kernel, worth: float | None = None) -> NeighbourEvidence:
        """Return how likely the chosen rows of all processes are, of which each has a part."""
        near = self.at_all_distances(kernel)
        return NeighbourEvidence(
            self.X, self.y, self.chosen, near, self.solver.jitter, worth, of_all=self.num_chosen
        )

    def posterior(self, params: tuple[Kernel, Gaussian], neighbors: int) -> NearestPosterior:
        """Return what the rows of all processes say."""
        local = self._rows.local, self._targets.local
        return SharedNearestPosterior.of_targets(params, *local, neighbors, self.solver)

    def scattered(self, posterior: Any, rows: np.ndarray, near: np.ndarray) -> Scattered:
        """Return what some of the rows that are chosen here are off by, given others."""
        noise = np.full(len(self.X), posterior.noise_variance)
        table = posterior.of_rows(np.column_stack([self.X, self.y, noise]))
        return super().scattered(table, rows, near)

    def of_all(self, rows: np.ndarray, found: Scattered) -> Scattered:
        """Return what chosen rows of all processes are off by."""
        order = np.argsort(np.concatenate(processes.gathered(self.places[rows])))
        told = {
            name: np.concatenate(processes.gathered(own))[order]
            for name, own in vars(found).items()
        }
        return replace(found, **told)

    @property
    def inputs(self) -> np.ndarray:
        """The rows of the fit that this process has."""
        return np.asarray(self._rows.local)

    @property
    def has_errors(self) -> bool:
        """Whether rows have known errors: not where processes share them."""
        return False
