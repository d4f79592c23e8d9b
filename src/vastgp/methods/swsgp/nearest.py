"""Each row is predicted from the training rows nearest to it: every row is an inducing input, and nothing is solved.

With inducing inputs at all rows the sparse-within-sparse posterior of a row needs no variational distribution: what is
known there are the targets, whose noise is known. Given the H rows nearest to ``x`` (Vecchia 1988; Allison, Stephenson
and others 2023, "Leveraging locality and robustness to achieve massively scalable Gaussian process regression"),

    f(x) | y  ~  N(k^T (K + N)^-1 y,  k(x, x) - k^T (K + N)^-1 k),      N the noise variances of these rows.

Kernel and noise are those by which some rows are likeliest, each given its nearest others: the evidence of few rows,
which are far from each other, says little of what the function does between near ones. Or by which they are likeliest
each given the nearest before it, see `vastgp.methods.swsgp.ordered_evidence`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vastgp.data import Rows, Standardizer, observations
from vastgp.data.minibatch import fixed_indices, standardised_rows
from vastgp.estimators.inducing_inputs import inducing_attributes
from vastgp.fitting.best_fit import fit_evidence
from vastgp.fitting.clock import now
from vastgp.fitting.history import History
from vastgp.fitting.run import Answer, Run
from vastgp.kernels import RBF, Kernel, Matern32, Matern52
from vastgp.kernels.metric import metric_lengthscales
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.swsgp.neighbour_evidence import NeighbourEvidence, nearest_of, nearest_others
from vastgp.methods.swsgp.options import Nearest
from vastgp.methods.swsgp.ordered_evidence import learn_in_order
from vastgp.methods.swsgp.posterior import SwsgpPosterior

# Numbers of neighbours that are compared, where none is given.
_LADDER = (64, 128, 256, 512)
# More are taken where each row says so many nats more, and that by more than one standard error.
_LEAST_GAIN = 0.01
# Rows that kernel and noise are learned by, with so many neighbours, found anew after so many steps, so often.
_LEARNERS, _NEAR, _STEPS, _ROUNDS = 2048, 32, 15, 8
_TOL = 1e-3
# One in so many is conditioned on farther ones as well.
_ONE_IN_FAR = 4
# What is left of the budget for that, of which a round has half, and for a second search of all rows; and seconds below
# which its program is not worth to be compiled, or there is one round, and one form of kernel.
_FOR_LEARNING, _OF_A_ROUND, _FOR_SEARCH = 0.6, 0.5, 0.1
_LEAST_SECONDS, _SECONDS_OF_ROUNDS = 2.5, 6.0
# The first of these judge numbers of neighbours and the amplitude.
_JUDGES = 1000
# Standard errors by which a factor of all variances must differ from one that most rows agree with.
_DOUBT = 3.0
# Forms of kernel that are compared where none is given.
_FORMS = (RBF, Matern52, Matern32)
# Uses of the seed, see `fixed_indices`.
_SEEN, _LEARNING = 120, 121
# Twice the neighbours take about so many times as long, and their program so many seconds.
_SLOWER, _COMPILING = 5.0, 0.5


def check_nearest(likelihood: Any, inducing_inputs: Any, classes: bool) -> None:
    """Refuse what ``solver="nearest"`` is not for.

    Parameters
    ----------
    likelihood, inducing_inputs
        Of the estimator.
    classes : bool
        Whether that is a classifier.
    """
    if classes or not (likelihood == "gaussian" or isinstance(likelihood, Gaussian)):
        raise ValueError(
            "solver='nearest' takes the targets of neighbouring rows for the function with normal noise, and "
            f"likelihood={likelihood!r} is another. Set solver='sparse', or leave it out."
        )
    if not (isinstance(inducing_inputs, str) and inducing_inputs == "auto"):
        raise ValueError(
            "inducing_inputs has no effect with solver='nearest', whose inducing inputs are the rows: leave it out, or "
            "set solver='sparse'."
        )


def fit_nearest(
    rows: Rows,
    standardizer: Standardizer,
    first: tuple[Kernel, Gaussian],
    count: int,
    neighbors: int | None,
    solver: Nearest,
    run: Run,
    *,
    floor: float | None,
    free: bool,
) -> Answer:
    """Keep the rows that predictions are made from, and find kernel, noise and the number of neighbours.

    Parameters
    ----------
    rows, standardizer
    first : tuple of Kernel and Gaussian
        In standardised units.
    count : int
        How many of the rows are kept, random ones where there are more.
    neighbors : int or None
        None: found.
    solver : Nearest
    run : Run
    floor : float or None
        Least noise variance; None: kernel and noise are the user's, and stay.
    free : bool
        Whether the kernel may have another form than the one that it begins with.
    """
    kept = np.sort(fixed_indices(run.seed, _SEEN, rows.n, count))
    X, y = standardised_rows(rows, standardizer, kept)
    near = _Near(X, solver, run.seed)
    judges = _Judges(y, near)
    history, steps, learned = History(), 0, True
    if floor is not None and len(X) > 1:
        if free:
            first = run.once("form of kernel", lambda: _of_best_form(first, judges, run))
        if solver.evidence == "ordered":
            first, history, steps, learned = learn_in_order(first, X, y, solver, run, floor, free)
        else:
            first, history, steps, learned = _learn(first, y, near, run, floor)
    size = min(neighbors or _LADDER[0], len(X))
    posterior = _posterior(first, X, y, size, solver)

    def settled() -> dict[str, Any]:
        # what the clock has a say in is kept in the file of the fit
        found = posterior if neighbors else judges.with_neighbors(posterior, run)
        # what most rows say in order of the amplitude is doubted by few rows where these are sure
        doubt = _DOUBT if solver.evidence == "ordered" and learned else 0.0
        scale = 1.0 if floor is None else judges.scale(found, doubt)
        return {"neighbors": found.num_neighbors, "scale": scale}

    ends = run.once("neighbours", settled)
    scale = float(ends["scale"])
    params = first[0].in_units(1.0, scale**0.5), Gaussian(scale * float(first[1].noise_variance))
    index = posterior.index
    posterior = _posterior(params, X, y, int(ends["neighbors"]), solver)
    posterior.__dict__["index"] = index  # of the same lengthscales
    scores = judges.scores(posterior)
    many = f"{posterior.num_neighbors} nearest of {len(X)} rows"
    reason = f"each row is predicted from the {many}"
    if not learned:
        reason = f"kernel and noise were not learned to the end; {reason}"
    diagnosis = {
        "objective": float(np.mean(scores)),
        "objective_se": float(np.std(scores) / np.sqrt(len(scores))),
        "searches": 1,
        "recall": float(index.recall),
        "stale": 0.0,
        "neighbors": posterior.num_neighbors,
        "scale": scale,
    }
    return Answer(
        *params,
        lambda: posterior,
        steps,
        reason,
        learned,
        history,
        advice=f"give more time (max_seconds); without a limit there are {_ROUNDS} rounds of {_STEPS} steps.",
        attributes={"diagnosis_": diagnosis, "solver_": "nearest"}
        | inducing_attributes(X, standardizer),
    )


class _Near:
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
        self._ranked = nearest_others(kernel, self.X, self.chosen, _LADDER[-1], search)
        self._scales = self._metric(kernel)

    def of(self, kernel: Kernel, count: int, rows: int | None = None) -> np.ndarray:
        """Return the nearest others of the first rows, (rows, count)."""
        if self._scales is None:
            self.search(kernel)
        elif not np.array_equal(self._scales, self._metric(kernel)):
            most = self._ranked.shape[1]
            self._ranked = nearest_of(kernel, self.X, self.chosen, self._ranked, most)
            self._scales = self._metric(kernel)
        return self._ranked[:rows, :count]

    def _metric(self, kernel: Kernel) -> np.ndarray:
        return np.asarray(metric_lengthscales(kernel, self.X.shape[1]))

    def at_all_distances(self, kernel: Kernel) -> np.ndarray:
        """Return what learning conditions rows on: the nearest others, and for some rows nearer and farther ones.

        Rows that are all near say next to nothing of a lengthscale much longer than they are apart, of which depends
        what is said of gaps and beyond the rows.
        """
        whole = self.of(kernel, _LADDER[-1])
        most = whole.shape[1]
        found = whole[:, : min(_NEAR, most)].copy()
        if most > _NEAR:
            # _NEAR ranks, the distances between them growing
            ranks = np.geomspace(1.0, most, _NEAR) - 1.0 + np.arange(_NEAR) * 1e-6
            ranks = np.maximum(np.floor(ranks).astype(int), np.arange(_NEAR))
            found[::_ONE_IN_FAR] = whole[::_ONE_IN_FAR, ranks]
        return found


def _of_best_form(
    first: tuple[Kernel, Gaussian], judges: _Judges, run: Run
) -> tuple[Kernel, Gaussian]:
    """Return the kernel in the form by which rows are likeliest given their nearest others, and the noise.

    Rows that are far from each other do not tell how smooth a function is (houseelectric: RBF has the highest evidence
    of 1000 rows, and 0.6 nats a row less than Matern-3/2 between near ones).
    """
    kernel, noise = first
    left = run.seconds_left(_FOR_LEARNING)
    if type(kernel) not in _FORMS or (left is not None and left < _SECONDS_OF_ROUNDS):
        return first
    scales, variance = np.asarray(kernel.lengthscales), np.asarray(kernel.variance)  # type: ignore[attr-defined]
    tried = [(kernel, noise)]
    for form in _FORMS:
        if form is not type(kernel):
            # a rougher function of the same slopes has longer lengthscales
            grouped = kernel.inputs  # type: ignore[attr-defined]
            tried += [(form(factor * scales, variance, grouped), noise) for factor in (1.0, 2.0)]
    return max(tried, key=judges.best_density)


def _learn(
    first: tuple[Kernel, Gaussian], y: np.ndarray, near: _Near, run: Run, floor: float
) -> tuple[tuple[Kernel, Gaussian], History, int, bool]:
    """Return kernel and noise by which some rows are likeliest given their nearest others, and how that ended."""
    steps, ended, history = 0, False, History()
    again, rounds, until = run.once("search of neighbours", lambda: _search(first[0], near, run))
    for number in range(rounds):
        if number == 1 and again:
            near.search(first[0])  # lengthscales have moved
        evidence = NeighbourEvidence(
            near.X, y, near.chosen, near.at_all_distances(first[0]), near.solver.jitter
        )
        left, share = run.seconds_left(), 1.0
        if left is not None:
            mine = max(until - run.elapsed(), 0.0) * (1.0 if number == rounds - 1 else _OF_A_ROUND)
            share = min(mine / max(left, 1e-9), 1.0)
        try:
            found = fit_evidence(
                evidence, first, noise_floor=floor, max_iter=_STEPS, tol=_TOL,
                record=run.evaluations(f"nearest others, {number + 1}", share=share),
            )  # fmt: skip
        except FactorizationError:
            return first, history, steps, False  # those of the rows' evidence stand
        first, steps, history = found.params, steps + found.num_iter, found.history
        ended = found.converged
        if ended and found.num_iter < _STEPS // 3:
            break
    return first, history, steps, ended


def _search(kernel: Kernel, near: _Near, run: Run) -> list[Any]:
    """Look through all rows; return whether there is time for that again, how many rounds there are, and until when.

    There is one round where its program takes most of the time, and none where it takes more.
    """
    learning = run.seconds_left(_FOR_LEARNING)
    if learning is not None and learning < _LEAST_SECONDS:
        return [False, 0, 0.0]
    began = now()
    near.search(kernel)
    took = now() - began
    another, learning = run.seconds_left(_FOR_SEARCH), run.seconds_left(_FOR_LEARNING)
    short = learning is not None and learning < _SECONDS_OF_ROUNDS
    until = np.inf if learning is None else run.elapsed() + learning
    return [another is None or took < another, 1 if short else _ROUNDS, until]


def _posterior(
    params: tuple[Kernel, Gaussian], X: np.ndarray, y: np.ndarray, neighbors: int, solver: Nearest
) -> SwsgpPosterior:
    noise = observations.noise_variances(y, float(params[1].noise_variance))
    return SwsgpPosterior(
        params[0], X, observations.targets(y)[:, None], np.zeros((len(X), 1)), neighbors, solver.jitter,
        search=solver.neighbor_search, noise=np.broadcast_to(noise, len(X)).copy(),
    )  # fmt: skip


class _Judges:
    """Some rows of the fit, of which each is predicted from its nearest others."""

    def __init__(self, y: np.ndarray, near: _Near) -> None:
        self._y, self._all = y, near
        self.chosen = near.chosen[:_JUDGES]

    def _moments(self, posterior: SwsgpPosterior) -> tuple[np.ndarray, np.ndarray]:
        """Return how far targets are from the means by their nearest others, and variances of observations."""
        near = self._all.of(posterior.kernel, posterior.num_neighbors, _JUDGES)
        mine = replace(posterior, num_neighbors=near.shape[1])
        mean, variance = mine.given_neighbours(posterior.Z[self.chosen], near)
        assert posterior.noise is not None
        off = observations.targets(self._y)[self.chosen] - mean
        return off, variance + posterior.noise[self.chosen]

    def scores(self, posterior: SwsgpPosterior) -> np.ndarray:
        """Return the log density of each, in nats, in standardised units."""
        if len(self._y) < 2:
            return np.zeros(1)
        off, variance = self._moments(posterior)
        return -0.5 * (np.log(2.0 * np.pi * variance) + off**2 / variance)

    def scale(self, posterior: SwsgpPosterior, doubt: float = 0.0) -> float:
        """Return the factor of all variances by which they are likeliest; one where some errors are known.

        And one where it is not so many of its standard errors from that, ``sqrt(2 / m)`` of m rows.
        """
        y = self._y
        if len(y) < 2 or (observations.has_own_noise(y) and np.any(y[:, 2])):
            return 1.0
        off, variance = self._moments(posterior)
        # max_s  -1/2 log(s v) - z^2 / (2 s)  is at s = mean z^2
        found = float(np.mean(off**2 / variance))
        sure = found > 0.0 and abs(np.log(found)) >= doubt * np.sqrt(2.0 / len(off))
        return found if sure else 1.0

    def best_density(self, params: tuple[Kernel, Gaussian]) -> float:
        """Return the mean log density at kernel and noise, with the best factor of all variances; some neighbours."""
        all_rows, solver = self._all.X, self._all.solver
        posterior = _posterior(params, all_rows, self._y, min(_NEAR, len(all_rows)), solver)
        off, variance = self._moments(posterior)
        found = -0.5 * (np.mean(np.log(variance)) + np.log(np.mean(off**2 / variance)))
        return float(found) if np.isfinite(found) else -np.inf

    def with_neighbors(self, posterior: SwsgpPosterior, run: Run) -> SwsgpPosterior:
        """Return the posterior with as many neighbours as are of use, and as there is time to look at."""
        self.scores(posterior)  # its program is compiled
        began = now()
        best = self.scores(posterior)
        took = now() - began
        for size in _LADDER[1:]:
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
