"""Rows of a fit and those nearest to them: what kernel and noise are learned by, and what judges neighbourhoods."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from vastgp.data import nearly_repeated, observations
from vastgp.data.minibatch import fixed_indices
from vastgp.fitting.clock import now
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.kernels.metric import metric_lengthscales
from vastgp.likelihoods import Gaussian
from vastgp.methods.swsgp.local_scale import Scattered
from vastgp.methods.swsgp.nearest_posterior import NearestPosterior
from vastgp.methods.swsgp.neighbour_evidence import (
    NeighbourEvidence,
    nearest_of,
    nearest_others,
)
from vastgp.methods.swsgp.options import Nearest

# Numbers of neighbours that are compared, where none is given.
LADDER = (64, 128, 256, 512)
# More are taken where each row says so many nats more, and that by more than one standard error.
_LEAST_GAIN = 0.01
# Rows that kernel and noise are learned by, with so many neighbours; one in so many is conditioned on farther ones.
# Of many inputs there are fewer, as each pair of rows takes as long as there are inputs, but as many as judge.
_LEARNERS, NEAR, _ONE_IN_FAR = 4096, 48, 4
_FEW_INPUTS = 64
# The first of these judge numbers of neighbours and the amplitude, fewer where there is no time for that: of kin40k
# those who saw 512 neighbours said 0.16 nats more than those who stopped at 256. Scales of rows' own are found by so
# many at least.
_JUDGES, _FEW, _FEWEST = 1000, 250, 500
# With scales of their own, what is known of these before is worth so many observations.
WORTH = 4.0
# Lengthscales that have moved so many times as far as others may have other nearest rows.
_MOVED = 1.05
# A use of the seed, see `fixed_indices`.
_LEARNING = 121
# Twice the neighbours take about so many times as long, and their program so many seconds.
_SLOWER, _COMPILING = 5.0, 0.5


class NearRows:
    """Some rows of the fit, and the rows nearest to them in the metric of a kernel.

    All rows are looked through for as many as are ever asked for; when lengthscales have moved, those are ranked anew,
    and after a while it is time to look through all again.

    Attributes
    ----------
    num_rows : int
        Rows of the fit.
    X, y : ndarray
        The rows that numbers are of, see `vastgp.data.observations`: those of the fit.
    num_chosen : int
    places : ndarray of int, shape (J,)
        Which of the chosen rows are here: all.
    chosen : ndarray of int, shape (J,)
        Their numbers.
    seconds : float
        What looking through all rows took.
    """

    def __init__(self, X: Any, y: Any, solver: Nearest, seed: int) -> None:
        self.X, self.y, self.solver, self.num_rows = X, y, solver, len(X)
        learners = max(min(_LEARNERS, _LEARNERS * _FEW_INPUTS // X.shape[1]), _JUDGES)
        self.chosen = fixed_indices(seed, _LEARNING, len(X), learners)
        self.num_chosen = len(self.chosen)
        self.places = np.arange(self.num_chosen)
        self._ranked = np.empty((len(self.chosen), 0), np.int32)
        self._scales: np.ndarray | None = None
        self._searched_by: np.ndarray | None = None
        self.seconds = 0.0

    def search(self, kernel: Kernel) -> None:
        """Look through all rows."""
        began = now()
        self._look_through(kernel)
        self._scales = self._searched_by = self._metric(kernel)
        self.seconds = now() - began

    def _look_through(self, kernel: Kernel) -> None:
        search = self.solver.neighbor_search
        self._ranked = nearest_others(kernel, self.X, self.chosen, self._wanted, search)

    def may_be_others(self, kernel: Kernel) -> bool:
        """Whether the nearest of all rows may be others than the nearest of those that were found.

        They are the same while all lengthscales have grown alike.
        """
        if self._searched_by is None or self._wanted == self.num_rows - 1:
            return False
        moved = self._metric(kernel) / self._searched_by
        return bool(np.max(moved) > _MOVED * np.min(moved))

    @property
    def _wanted(self) -> int:
        """As many neighbours as are ever asked for, or all others."""
        return min(LADDER[-1], self.num_rows - 1)

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
        self, near: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return nearest others, for two of each four rows those first that do not repeat them, and how many these are.

        New rows repeat some of the fit, nearly, or none, and what the nearest ones say has to be right for both.

        Parameters
        ----------
        near : ndarray of int, shape (J, h)
            Of the chosen rows.
        rows : ndarray of int
            Those of them that are asked for.
        """
        near = near[rows]
        groups = self._groups
        other = groups[near] != groups[self.chosen[rows]][:, None]
        other[self.places[rows] % 4 < 2] = True
        repeated = np.flatnonzero(~other.all(axis=1))
        if len(repeated):
            order = np.argsort(~other[repeated], axis=1, kind="stable")
            near = near.copy()
            near[repeated] = np.take_along_axis(near[repeated], order, axis=1)
        return near, other.sum(axis=1)

    @cached_property
    def _groups(self) -> np.ndarray:
        """A number for each row, the same where they repeat each other."""
        return nearly_repeated(self.X)

    def _metric(self, kernel: Kernel) -> np.ndarray:
        return np.asarray(metric_lengthscales(kernel, self.X.shape[1]))

    def at_all_distances(self, kernel: Kernel) -> np.ndarray:
        """Return what learning conditions rows on: the nearest others, and for some rows nearer and farther ones.

        Rows that are all near say next to nothing of a lengthscale much longer than they are apart, of which depends
        what is said of gaps and beyond the rows.
        """
        every = np.arange(len(self.chosen))
        whole, _ = self.without_repetitions(self.of(kernel, LADDER[-1]), every)
        most = whole.shape[1]
        found = whole[:, : min(NEAR, most)].copy()
        if most > NEAR:
            # NEAR ranks, the distances between them growing
            ranks = np.geomspace(1.0, most, NEAR) - 1.0 + np.arange(NEAR) * 1e-6
            ranks = np.maximum(np.floor(ranks).astype(int), np.arange(NEAR))
            some = np.flatnonzero(self.places % _ONE_IN_FAR == 0)
            found[some] = whole[some[:, None], ranks]
        return found

    def evidence(self, kernel: Kernel, worth: float | None = None) -> NeighbourEvidence:
        """Return how likely the chosen rows are as a function of kernel and noise, the neighbours those of a kernel."""
        near = self.at_all_distances(kernel)
        return NeighbourEvidence(self.X, self.y, self.chosen, near, self.solver.jitter, worth)

    def posterior(self, params: tuple[Kernel, Gaussian], neighbors: int) -> NearestPosterior:
        """Return what all rows say, with so many neighbours."""
        return NearestPosterior.of_targets(params, self.X, self.y, neighbors, self.solver)

    def scattered(
        self, posterior: NearestPosterior, rows: np.ndarray, near: np.ndarray
    ) -> Scattered:
        """Return what some of the chosen rows are off by, given others: of those that are here."""
        return posterior.scattered(self.chosen[rows], near)

    def of_all(self, rows: np.ndarray, found: Scattered) -> Scattered:
        """Return what chosen rows are off by in the order of their places, those here being some of them."""
        del rows
        return found

    @property
    def inputs(self) -> np.ndarray:
        """The rows of the fit that are here."""
        return self.X

    @property
    def has_errors(self) -> bool:
        """Whether rows have known errors."""
        return observations.has_errors(self.y)


class Judges:
    """Some rows of the fit, of which each is predicted from its nearest others.

    Parameters
    ----------
    near : NearRows
    varies : bool
        Whether rows may have scales of their own.
    """

    def __init__(self, near: NearRows, varies: bool) -> None:
        self._all, self._varies = near, varies

    def scattered(self, posterior: NearestPosterior, seconds: float | None) -> Scattered:
        """Return what rows are off by: of all learners, or of fewer where these take longer than some seconds.

        Of rows that others repeat, nearly, every second one is told by those that do not: new rows are of both kinds.
        """
        began, start, found = now(), 0, None
        every = self._all.num_chosen
        for stop in sorted({min(rows, every) for rows in (_FEWEST, _JUDGES, every)}):
            if found is not None:
                # the first time there was a program to compile
                expected = 0.5 * (now() - began) * stop / start
                if seconds is not None and seconds < expected:
                    break
            rows = self._rows(posterior, start, stop, apart=True, enough=True)
            found = rows if found is None else found.and_of(rows)
            start = stop
        assert found is not None
        return found

    def _rows(
        self,
        posterior: NearestPosterior,
        start: int,
        stop: int,
        *,
        apart: bool = False,
        enough: bool = False,
    ) -> Scattered:
        """Return what the chosen rows of some places are off by.

        Every second one of them is told by those that do not repeat it where they are ``apart``, and left out where
        there are not ``enough`` of these.
        """
        places, count = self._all.places, posterior.num_neighbors
        near = self._all.of(posterior.kernel, LADDER[-1])
        rows = np.flatnonzero((places >= start) & (places < stop))
        if apart:
            near, others = self._all.without_repetitions(near, rows)
            kept = others >= (min(count, near.shape[1]) if enough else 0)
            rows, near = rows[kept], near[kept, :count]
        else:
            near = near[rows, :count]
        return self._all.of_all(rows, self._all.scattered(posterior, rows, near))

    def scores(
        self, posterior: NearestPosterior, *, apart: bool = False, few: bool = False
    ) -> np.ndarray:
        """Return the log density of each, in nats, in standardised units; ``apart`` as above, ``few`` of the first."""
        if self._all.num_rows < 2:
            return np.zeros(1)
        found = self._rows(posterior, 0, _FEW if few else _JUDGES, apart=apart)
        if posterior.scale is not None:
            return posterior.scale.log_density(found)
        return found.on_own_scale(WORTH, NEAR) if self._varies else found.log_density()

    def factor(self, posterior: NearestPosterior, doubt: float = 0.0) -> float:
        """Return the factor of all variances by which they are likeliest; one where some errors are known.

        And one where it is not so many of its standard errors from that, ``sqrt(2 / m)`` of m rows.
        """
        if self._all.num_rows < 2 or self._all.has_errors:
            return 1.0
        rows = self._rows(posterior, 0, _JUDGES)
        found = rows.factor
        sure = abs(np.log(found)) >= doubt * np.sqrt(2.0 / len(rows.off))
        return found if sure else 1.0

    def mean_density(self, posterior: NearestPosterior) -> float:
        """Return the mean log density, with the best factor of all variances where rows have no scale of their own."""
        found = self._rows(posterior, 0, _JUDGES)
        scores = (
            found.on_own_scale(WORTH, NEAR)
            if self._varies
            else found.times(found.factor).log_density()
        )
        mean = float(np.mean(scores))
        return mean if np.isfinite(mean) else -np.inf

    def mean_square(self, posterior: NearestPosterior) -> float:
        """Return the mean square of what they are off by; infinite where that is no number."""
        square = float(np.mean(self._rows(posterior, 0, _JUDGES).off ** 2))
        return square if np.isfinite(square) else np.inf

    def with_neighbors(self, posterior: NearestPosterior, run: Run) -> NearestPosterior:
        """Return the posterior with as many neighbours as are of use, and as there is time to look at.

        Of use also where no row is repeated: sixty-four rows of five places say less than those of sixty.
        """
        self.scores(posterior, apart=True)  # its program is compiled
        began = now()
        best, few = self.scores(posterior, apart=True), False
        took = now() - began
        for size in LADDER[1:]:
            left, expected = run.seconds_left(0.5), _SLOWER * took
            if left is not None and left < expected + _COMPILING and not few:
                few, expected = True, expected * _FEW / _JUDGES
                best = best[:_FEW]
            if size > self._all.num_rows or (left is not None and left < expected + _COMPILING):
                break
            began = now()
            tried = replace(posterior, num_neighbors=size)
            scores = self.scores(tried, apart=True, few=few)
            took = now() - began
            gain = scores - best
            error = float(np.std(gain) / np.sqrt(len(gain)))
            if np.mean(gain) <= max(_LEAST_GAIN, error):
                break
            posterior, best = tried, scores
        return posterior
