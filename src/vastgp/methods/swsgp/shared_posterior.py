"""The posterior from the nearest rows where these lie with several processes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.data import processes
from vastgp.data.shared_neighbours import SharedNeighbours
from vastgp.kernels.metric import metric_lengthscales
from vastgp.methods.swsgp.nearest_posterior import NearestPosterior


@dataclass(frozen=True)
class SharedNearestPosterior(NearestPosterior):
    """`NearestPosterior` of the rows of all processes, of which each has a part.

    Predictions are made by all processes together: each asks for rows of its own, as many as it likes, and each looks
    for the nearest rows of all others among its own. What a row's neighbours say its own process works out.

    Attributes
    ----------
    Z, mean_u, spread, noise
        Of the rows that this process has.
    """

    @property
    def of_all_processes(self) -> bool:
        """Whether all processes are asked together."""
        return True

    @property
    def neighbours(self) -> SharedNeighbours:
        """The rows of all processes, with their targets and noise variances."""
        # made by all together, which a lock of `cached_property` would keep threads from
        known: SharedNeighbours | None = self.__dict__.get("_neighbours")
        if known is None:
            self._check_together()
            assert self.noise is not None
            values = np.column_stack([self.Z, self.mean_u, self.noise])
            scales = metric_lengthscales(self.kernel, self.Z.shape[1])
            known = SharedNeighbours(self.Z, values, scales, self.search)
            self.__dict__["_neighbours"] = known
        return known

    @property
    def recall(self) -> float:
        """Share of the nearest rows that are found."""
        return self.neighbours.recall

    def given_neighbours(
        self, X: np.ndarray, found: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the function at rows, as `NearestPosterior` does."""
        assert found is None, "numbers are of rows that this process may not have"
        shape = (len(X),) if self.scale is None else (2, len(X))
        mean, variance = np.empty(shape), np.empty(shape)
        for near in self.neighbours.near(np.asarray(X, np.float64), self.num_neighbors):
            size, count, width = near.values.shape
            table = self.of_rows(near.values.reshape(size * count, width))
            moments = table.given_neighbours(
                X[near.rows], np.arange(size * count).reshape(size, count)
            )
            mean[..., near.rows], variance[..., near.rows] = moments
        return mean, variance

    def of_rows(self, known: np.ndarray) -> NearestPosterior:
        """Return the posterior of some rows that this process was told: inputs, target and noise variance of each."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields |= {
            "Z": known[:, :-2],
            "mean_u": known[:, -2:-1],
            "spread": np.zeros((len(known), 1)),
            "noise": known[:, -1],
        }
        return NearestPosterior(**fields)

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Refuse joint samples, for which one process would need what is near the rows of all."""
        raise ValueError(
            "sample_y: the training rows of solver='nearest' lie with several processes, and joint samples are drawn "
            "by one that has them all. Fit in one process, or with solver='sparse'."
        )

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Refuse to be kept: a file has all rows."""
        raise ValueError(
            f"this model predicts from training rows of which each of {processes.count()} processes has a part "
            "(solver='nearest'), and a file or a pickle would hold those of one. Predict in this program, or fit in "
            "one process, or with solver='sparse', which every process has whole."
        )

    def _check_together(self) -> None:
        if processes.count() == 1:
            raise ValueError(
                "this model was fitted by several processes, each of which has a part of the rows that it predicts "
                "from, and this program is one process. Predict in the program that fitted it."
            )
