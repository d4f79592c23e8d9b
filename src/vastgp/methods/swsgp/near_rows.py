"""Rows of a fit and those nearest to them: what kernel and noise are learned by, and what judges neighbourhoods."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from vastgp.data import nearly_repeated, observations
from vastgp.data.minibatch import fixed_indices
from vastgp.fitting.clock import now
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.kernels.metric import metric_lengthscales
from vastgp.methods.swsgp.local_scale import Scattered
from vastgp.methods.swsgp.nearest_posterior import NearestPosterior
from vastgp.methods.swsgp.neighbour_evidence import nearest_of, nearest_others
from vastgp.methods.swsgp.options import Nearest

# Numbers of neighbours that are compared, where none is given.
LADDER = (64, 128, 256, 512)
# More are taken where each row says so many nats more, and that by more than one standard error.
_LEAST_GAIN = 0.01
# Rows that kernel and noise are learned by, with so many neighbours; one in so many is conditioned on farther ones.
_LEARNERS, NEAR, _ONE_IN_FAR = 4096, 48, 4
# The first of these judge numbers of neighbours and the amplitude.
_JUDGES = 1000
# With scales of their own, what is known of these before is worth so many observations.
WORTH = 4.0
# A use of the seed, see `fixed_indices`.
_LEARNING = 121
# Twice the neighbours take about so many times as long, and their program so many seconds.
_SLOWER, _COMPILING = 5.0, 0.5


class NearRows:
    """Some rows of the fit, and the rows nearest to them in the metric of a kernel.

    All rows are looked through for as many as are ever asked for; when lengthscales have moved, those are ranked anew.

    Attributes
    ----------
    X : ndarray of shape (n, d)
    chosen : ndarray of int, shape (J,)
    """

    def __init__(self, X: np.ndarray, solver: Nearest, seed: int) -> None:
        self.X, self.solver = X, solver
        self.chosen = fixed_indices(seed, _LEARNING, len(X), _LEARNERS)
        self._ranked = np.empty((len(self.chosen), 0), np.int32)
        self._scales: np.ndarray | None = None

    def search(self, kernel: Kernel) -> None:
        """Look through all rows."""
        search = self.solver.neighbor_search
        self._ranked = nearest_others(kernel, self.X, self.chosen, LADDER[-1], search)
        self._scales = self._metric(kernel)

    def of(self, kernel: Kernel, count: int) -> np.ndarray:
        """Return the nearest others, (J, count)."""
        if self._scales is None:
            self.search(kernel)
        elif not np.array_equal(self._scales, self._metric(kernel)):
            most = self._ranked.shape[1]
            self._ranked = nearest_of(kernel, self.X, self.chosen, self._ranked, most)
            self._scales = self._metric(kernel)
        return self._ranked[:, :count]

    def without_repetitions(
        self, near: np.ndarray, rows: slice = slice(None)
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return nearest others, for two of each four rows those first that do not repeat them, and how many these are.

        New rows repeat some of the fit, nearly, or none, and what the nearest ones say has to be right for both.

        Parameters
        ----------
        near : ndarray of int, shape (J, h)
            Of the chosen rows.
        rows : slice
            Those of them that are asked for.
        """
        near = near[rows]
        other = self._groups[near] != self._groups[self.chosen[rows]][:, None]
        other[np.arange(len(self.chosen))[rows] % 4 < 2] = True
        repeated = np.flatnonzero(~other.all(axis=1))
        if len(repeated):
            order = np.argsort(~other[repeated], axis=1, kind="stable")
            near = near.copy()
            near[repeated] = np.take_along_axis(near[repeated], order, axis=1)
        return near, other.sum(axis=1)

    @cached_property
    def _groups(self) -> np.ndarray:
        return nearly_repeated(self.X)

    def _metric(self, kernel: Kernel) -> np.ndarray:
        return np.asarray(metric_lengthscales(kernel, self.X.shape[1]))

    def at_all_distances(self, kernel: Kernel) -> np.ndarray:
        """Return what learning conditions rows on: the nearest others, and for some rows nearer and farther ones.

        Rows that are all near say next to nothing of a lengthscale much longer than they are apart, of which depends
        what is said of gaps and beyond the rows.
        """
        whole, _ = self.without_repetitions(self.of(kernel, LADDER[-1]))
        most = whole.shape[1]
        found = whole[:, : min(NEAR, most)].copy()
        if most > NEAR:
            # NEAR ranks, the distances between them growing
            ranks = np.geomspace(1.0, most, NEAR) - 1.0 + np.arange(NEAR) * 1e-6
            ranks = np.maximum(np.floor(ranks).astype(int), np.arange(NEAR))
            found[::_ONE_IN_FAR] = whole[::_ONE_IN_FAR, ranks]
        return found


class Judges:
    """Some rows of the fit, of which each is predicted from its nearest others.

    Parameters
    ----------
    y : ndarray
        Targets of all rows, see `vastgp.data.observations`.
    near : NearRows
    varies : bool
        Whether rows may have scales of their own.
    """

    def __init__(self, y: np.ndarray, near: NearRows, varies: bool) -> None:
        self._y, self._all, self._varies, self.chosen = y, near, varies, near.chosen

    def scattered(self, posterior: NearestPosterior, seconds: float | None) -> Scattered:
        """Return what rows are off by: of all learners, or of fewer where these take longer than some seconds.

        Of rows that others repeat, nearly, every second one is told by those that do not: new rows are of both kinds.
        """
        began = now()
        found = self._rows(posterior, slice(0, _JUDGES), True)
        more = len(self.chosen) > _JUDGES
        if not more or (seconds is not None and seconds < 2.0 * (now() - began)):
            return found
        return found.and_of(self._rows(posterior, slice(_JUDGES, None), True))

    def _rows(self, posterior: NearestPosterior, rows: slice, apart: bool = False) -> Scattered:
        chosen, count = self.chosen[rows], posterior.num_neighbors
        near = self._all.of(posterior.kernel, LADDER[-1])
        if apart:
            near, others = self._all.without_repetitions(near, rows)
            enough = others >= min(count, near.shape[1])
            return posterior.scattered(chosen[enough], near[enough, :count])
        return posterior.scattered(chosen, near[rows, :count])

    def scores(self, posterior: NearestPosterior) -> np.ndarray:
        """Return the log density of each, in nats, in standardised units."""
        if len(self._y) < 2:
            return np.zeros(1)
        found = self._rows(posterior, slice(0, _JUDGES))
        if posterior.scale is not None:
            return posterior.scale.log_density(found)
        return found.on_own_scale(WORTH, NEAR) if self._varies else found.log_density()

    def factor(self, posterior: NearestPosterior, doubt: float = 0.0) -> float:
        """Return the factor of all variances by which they are likeliest; one where some errors are known.

        And one where it is not so many of its standard errors from that, ``sqrt(2 / m)`` of m rows.
        """
        y = self._y
        if len(y) < 2 or (observations.has_own_noise(y) and np.any(y[:, 2])):
            return 1.0
        rows = self._rows(posterior, slice(0, _JUDGES))
        found = rows.factor
        sure = abs(np.log(found)) >= doubt * np.sqrt(2.0 / len(rows.off))
        return found if sure else 1.0

    def mean_density(self, posterior: NearestPosterior) -> float:
        """Return the mean log density, with the best factor of all variances where rows have no scale of their own."""
        found = self._rows(posterior, slice(0, _JUDGES))
        scores = (
            found.on_own_scale(WORTH, NEAR)
            if self._varies
            else found.times(found.factor).log_density()
        )
        mean = float(np.mean(scores))
        return mean if np.isfinite(mean) else -np.inf

    def with_neighbors(self, posterior: NearestPosterior, run: Run) -> NearestPosterior:
        """Return the posterior with as many neighbours as are of use, and as there is time to look at."""
        self.scores(posterior)  # its program is compiled
        began = now()
        best = self.scores(posterior)
        took = now() - began
        for size in LADDER[1:]:
            left = run.seconds_left(0.5)
            if size > len(self._y) or (left is not None and left < _SLOWER * took + _COMPILING):
                break
            began = now()
            tried = replace(posterior, num_neighbors=size)
            scores = self.scores(tried)
            took = now() - began
            gain = scores - best
            error = float(np.std(gain) / np.sqrt(len(gain)))
            if np.mean(gain) <= max(_LEAST_GAIN, error):
                break
            posterior, best = tried, scores
        return posterior
