"""The trees of a race: grown once for the rows of a fold, for all candidates that read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vastgp.auto.inputs import Inputs, as_new
from vastgp.auto.series import column_of_times
from vastgp.auto.trees.grown import Grown, grow
from vastgp.auto.warps import Own
from vastgp.data import Rows, observations

# Stands for the number of a fold where all rows are meant.
WHOLE = -1


@dataclass
class Grove:
    """Trees for the training rows of folds.

    Attributes
    ----------
    inputs : Inputs
    classes : int
        Their number; 0 for a target of numbers.
    seed : int
    seconds : float, optional
        What trees may take each time that they are grown, see `grow`.
    in_time : bool
        Whether rows are to be continued in time. Trees are not told of it then: they know nothing of what comes after
        the last, and what they say of rows between others would be trusted there.
    """

    inputs: Inputs
    classes: int
    seed: int
    seconds: float | None = None
    in_time: bool = False
    _of_parts: dict[tuple[int, int, Own], Grown] = field(default_factory=dict)

    def of_fold(self, number: int, rows: Rows, warp: Own) -> Grown:
        """Return the trees for some of a fold's training rows, on a scale of the target; they are kept.

        Parameters
        ----------
        number : int
            Of the fold.
        rows : Rows
            The same ones wherever they are as many.
        warp : Own
        """
        return self._kept(number, self.inputs.encoder_of_fold(number), rows, warp)

    def of_whole(self, rows: Rows, warp: Own) -> Grown:
        """Return the trees for rows of the whole table; they are kept, too."""
        return self._kept(WHOLE, self.inputs.encoder_of_whole, rows, warp)

    def _kept(self, number: int, encoder: Any, rows: Rows, warp: Own) -> Grown:
        key = number, rows.n, warp
        if key not in self._of_parts:
            self._of_parts[key] = self._grow(encoder, rows, warp)
        return self._of_parts[key]

    def _grow(self, encoder: Any, rows: Rows, warp: Own) -> Grown:
        y, weight = _targets_and_weights(rows.y, warp, bool(self.classes))
        # directions that tell apart the rows with a gap are of training rows alone
        X = as_new(encoder, np.asarray(rows.X))
        when = column_of_times(encoder, X) if self.in_time else None
        if when is not None:
            X = X.copy()
            X[:, when.outputs[0]] = 0.0  # the same everywhere: no tree asks for it
        return grow(X, y, weight=weight, classes=self.classes, seed=self.seed, seconds=self.seconds)


def _targets_and_weights(
    y: np.ndarray, warp: Own, classes: bool = False
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return targets on a scale, and the weight of each row where rows have noise or an exposure of their own.

    A squared error counts by the inverse of its variance ``v / w_i + e_i^2``. ``v`` is that of the targets around their
    mean, as it is for the first tree: the noise alone is not known yet.
    """
    if observations.has_exposure(y) and classes:
        weight = observations.exposures(y)
        return observations.targets(y), weight / weight.mean()
    if observations.has_exposure(y):
        # a rate y / e has the variance rate / e where y is Poisson's
        exposure = observations.exposures(y)
        return observations.targets(y) / exposure, exposure / exposure.mean()
    if not observations.has_own_noise(y):
        return np.asarray(warp.forward(y)), None
    variance = observations.mean_and_variance(y)[1] or 1.0
    weight = 1.0 / observations.noise_variances(y, variance)
    # on another scale than its own only where rows have weights and no errors
    return np.asarray(warp.forward(observations.targets(y))), weight / weight.mean()
