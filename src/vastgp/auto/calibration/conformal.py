"""Central intervals that hold what they say whatever the model: split-conformal ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr

from vastgp.auto.calibration.maps import Calibration, Isotonic


@dataclass(frozen=True, eq=False)
class Conformal(Calibration):
    """Split-conformal central intervals from normalised scores (Vovk et al. 2005; Lei et al. 2018, section 5.2).

    The interval of level c has the radius of the ``ceil((n + 1) c)``-th smallest ``|z|`` of n held-out rows. If these
    rows and the new one are exchangeable, it holds the new target with a probability of at least c, whatever the model
    and the distribution (and of at most ``c + 1 / (n + 1)`` without ties). The probability is over the held-out rows
    as well as the new one, and over all new rows alike: it is no promise for each kind of row. Levels above ``n / (n +
    1)`` would need more rows: their intervals are infinite, and `levels` gives 0 and 1. Quantiles are the ends of
    these intervals.

    **Weights.** The level is then a share of the weight: the radius is the smallest of those whose rows and the ones
    below hold ``c (w_1 + ... + w_n + w)`` of it, w being that of the new row, which counts as infinitely far off. Two
    kinds have a guarantee:

    - Rows of one place count as one, each by one over their number, and the new row is of another place, with weight
      one: if places are exchangeable, and the rows within each are, the interval holds the new target with a
      probability of at least c (Lee, Barber and Willett 2023, "Distribution-free inference with hierarchical data").
    - New rows are distributed otherwise than held-out ones, and the weights are the ratios of both densities of the
      inputs, up to a factor that all have in common: the interval holds the new target with a probability of at least
      c where ``w`` is the new row's own ratio (Tibshirani, Barber, Candes and Ramdas 2019, corollary 1), hence also
      where it is a larger one, such as the largest that any row can have.

    Weights that are precisions, as ``sample_weight`` of `GPRegressor`, are neither: such rows scatter otherwise than a
    new one, and nothing is promised.

    The intervals are steps and have no density. `scores` and the density are those of the smooth symmetrical map
    (`Isotonic` of the scores and their mirror images), of which the steps are the empirical version.

    Attributes
    ----------
    radii : ndarray of shape (n,)
        ``|z|``, sorted.
    weight : ndarray of shape (n,), optional
        Of these rows, in their order; None: one each. To the smooth map each is as many rows.
    own : float
        Weight of the new row.
    """

    radii: np.ndarray
    weight: np.ndarray | None = None
    own: float = 1.0
    smooth: Isotonic = field(init=False, repr=False, compare=False)
    name: ClassVar[str] = "conformal"

    def __post_init__(self) -> None:
        both = np.concatenate([self.radii, -self.radii])
        smooth = Isotonic.fit(both, None if self.weight is None else np.tile(self.weight, 2))
        object.__setattr__(self, "smooth", smooth)

    @classmethod
    def fit(cls, z: np.ndarray, weight: np.ndarray | None = None, own: float = 1.0) -> Conformal:
        """Return the intervals of held-out scores.

        Parameters
        ----------
        z : ndarray of shape (n,)
        weight : ndarray of shape (n,), optional
            Not negative; None: one each.
        own : float, default 1.0
            Weight of a new row.

        Raises
        ------
        ValueError
            For weights that are negative, no numbers, or all zero.
        """
        order = np.argsort(np.abs(z), kind="stable")
        if weight is None:
            return cls(np.abs(z)[order])
        given = np.append(np.asarray(weight, np.float64), own)
        good = np.all(np.isfinite(given) & (given >= 0.0)) and np.any(given[:-1])
        if len(given) != len(z) + 1 or not good:
            raise ValueError(
                f"weight: expected {len(z)} finite numbers that are not negative nor all zero, and one such as own; "
                f"received {np.shape(weight)} from {np.min(given):.4g} to {np.max(given):.4g}"
            )
        return cls(np.abs(z)[order], given[:-1][order], float(own))

    def scores(self, z: Any) -> Any:
        """Return those of the smooth map."""
        return self.smooth.scores(z)

    def log_slope(self, z: Any) -> Any:
        """Return that of the smooth map."""
        return self.smooth.log_slope(z)

    def base_scores(self, z: Any) -> Any:
        """Return the ends of the central intervals, infinite where there are too few rows."""
        z = np.asarray(z, dtype=np.float64)
        central = ndtr(np.abs(z)) - ndtr(-np.abs(z))
        reached = np.arange(1.0, len(self.radii) + 1.0)
        if self.weight is not None:
            reached = np.cumsum(self.weight)
        total = (reached[-1] if len(reached) else 0.0) + self.own
        # 20 x 0.95 is 19 and not the 20 that rounding of the level would make of it
        place = np.searchsorted(reached, total * (central - 1e-10))
        radius = np.append(self.radii, np.inf)[place]
        return np.where(z == 0.0, 0.0, np.where(z > 0.0, radius, -radius))

    def to_state(self) -> dict[str, Any]:
        """Return the radii, and their weights where they have some."""
        state = {"name": self.name, "radii": self.radii.tolist()}
        if self.weight is not None:
            state |= {"weight": self.weight.tolist(), "own": self.own}
        return state
