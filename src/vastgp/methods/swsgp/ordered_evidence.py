"""Kernel and noise by which rows are likeliest, each given the nearest of those before it in a random order.

``p(y) = prod_i p(y_i | y_1, .., y_(i-1))`` is the evidence. With the H nearest rows before i in the place of all it is
Vecchia's (1988), whose terms are those of `NeighbourEvidence`. In a random order, which is nearly as good as any
(Guinness 2018, "Permutation and grouping methods for sharpening Gaussian process approximations"), the first rows are
far from each other and the last ones near: long lengthscales and the amplitude count as in the evidence, of which rows
given the nearest of all others say next to nothing. With H = n - 1 it is the evidence, given the first row.

Of very many rows some terms are taken: of any of them the slope has the mean zero at the kernel that drew the rows.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from vastgp.data.minibatch import fixed_indices
from vastgp.data.neighbours import NeighbourIndex, nearest_predecessors
from vastgp.fitting.best_fit import fit_evidence, fit_from_best
from vastgp.fitting.clock import now
from vastgp.fitting.history import History
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel, Matern12
from vastgp.kernels.metric import metric_lengthscales
from vastgp.kernels.stationary import Stationary
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.swsgp.neighbour_evidence import NeighbourEvidence
from vastgp.methods.swsgp.options import Nearest

# Rows that the end is learned by, and those that forms of kernel are compared by; neighbours of each.
_LEARNERS, _COARSE, _NEAR = 8192, 2048, 32
# Of more rows, the share of them that are the first; of the others half are among all rows.
_FIRST_SHARE = 0.25
# Steps of each start, and of the end; neighbours are found anew where lengthscales have moved against each other by
# this factor, so often.
_STEPS, _LAST_STEPS, _MOVED, _SEARCHES = 15, 60, 1.25, 3
_TOL = 3e-4
# A short and a long kernel in the place of one: factors of lengthscales and of the variance. A rougher one is longer.
_NESTED, _ROUGHER = ((0.4, 0.3), (2.5, 0.7)), (4.0, 2.0)
# Of what is left of the budget; with less than this there is no use in it.
_SHARE, _LEAST_SECONDS = 0.7, 4.0
# The use of the seed for the order, see `fixed_indices`.
_ORDER = 122

# Why kernel and noise are not those of the end.
LATE = "max_seconds ended the learning of kernel and noise"
UNSETTLED = "kernel and noise were not learned to the end"

Params = tuple[Kernel, Gaussian]


def learn_in_order(
    first: Params,
    X: np.ndarray,
    y: np.ndarray,
    solver: Nearest,
    run: Run,
    floor: float,
    free: bool,
) -> tuple[Params, History, int, str]:
    """Return kernel and noise of highest ordered evidence, its values, the steps, and why these are not all, if so.

    Parameters
    ----------
    first : tuple of Kernel and Gaussian
        Where to begin, in standardised units.
    X, y : ndarray
        Standardised rows.
    solver : Nearest
    run : Run
    floor : float
        Least noise variance.
    free : bool
        Whether kernels of other forms are tried.
    """
    if len(X) < 3:
        return first, History(), 0, UNSETTLED
    left = run.seconds_left(_SHARE)
    deadline = None if left is None else now() + left

    def has(seconds: float, name: str) -> bool:
        def is_left() -> bool:
            return deadline is None or deadline - now() >= seconds

        # what comes after is found anew where a resumed fit has more
        return bool(run.once(name, is_left, is_cut=lambda found: not found))

    if not has(_LEAST_SECONDS, "time to learn in order"):
        return first, History(), 0, LATE
    order = fixed_indices(run.seed, _ORDER, len(X), len(X))

    def evidence(kernel: Kernel, most: int) -> NeighbourEvidence:
        chosen, near = given_predecessors(kernel, X, order, most, solver.neighbor_search)
        return NeighbourEvidence(X, y, chosen, near, solver.jitter)

    try:
        best = fit_from_best(
            [(kernel, first[1]) for kernel in (_forms(first[0]) if free else [first[0]])],
            evidence(first[0], _COARSE),
            lambda: evidence(first[0], _LEARNERS),
            noise_floor=floor, max_iter=_LAST_STEPS, first_iter=_STEPS, tol=_TOL, deadline=deadline,
            record=lambda name: run.evaluations(f"in order, {name}"),
        )  # fmt: skip
        steps, before = best.num_iter, first[0]
        for number in range(1, _SEARCHES):
            if not _moved(before, best.params[0], X.shape[1]):
                break
            if not has(0.0, f"time to learn in order, search {number + 1}"):
                break
            before = best.params[0]
            best = fit_evidence(
                evidence(before, _LEARNERS), best.params, noise_floor=floor, max_iter=_LAST_STEPS, tol=_TOL,
                max_seconds=None if deadline is None else max(deadline - now(), 0.0),
                record=run.evaluations(f"in order, search {number + 1}"),
            )  # fmt: skip
            steps += best.num_iter
    except FactorizationError:
        return first, History(), 0, UNSETTLED  # those of the rows' evidence stand
    unfinished = LATE if best.message == OUT_OF_TIME else UNSETTLED
    return best.params, best.history, steps, "" if best.converged else unfinished


def given_predecessors(
    kernel: Kernel, X: np.ndarray, order: np.ndarray, most: int, search: str = "auto"
) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers of rows, and of those that each is given: the nearest before it in an order.

    Of up to ``most`` rows all but the first few, which have not as many before them. Of more the first quarter of
    ``most``, and some at every distance: of each doubling of the rows as many, and half of all in the last of them.

    Parameters
    ----------
    kernel : Kernel
        Whose lengthscales the distance has.
    X : ndarray of shape (n, d)
    order : ndarray of int, shape (n,)
    most : int
    search : {"auto", "exact", "approximate"}

    Returns
    -------
    chosen : ndarray of int, shape (J,)
    near : ndarray of int, shape (J, h)
    """
    scales, n = metric_lengthscales(kernel, X.shape[1]), len(order)
    points = X[order]
    first = n if n <= most else max(int(_FIRST_SHARE * most), 1)
    count = max(min(_NEAR, first // 2), 1)
    places = [np.arange(count, first)]
    found = [nearest_predecessors(points[:first], scales, count, search)[count:]]
    doublings = int(np.ceil(np.log2(n / first)))
    edges = np.geomspace(first, n, doublings + 1).astype(int) if doublings else [n]
    for number, (start, stop) in enumerate(pairwise(edges), start=1):
        last = number == doublings
        size = (most - first) * (0.5 if doublings > 1 else 1.0) / (1 if last else doublings - 1)
        # rows are in random order: the next ones are as good as any
        here = np.arange(start, min(start + int(size), stop))
        places.append(here)
        found.append(NeighbourIndex(points[:start], scales, search).query(points[here], count))
    return order[np.concatenate(places)], order[np.concatenate(found)]


def _forms(kernel: Kernel) -> list[Kernel]:
    """Return a kernel, the sum of a short and a long one of its form, and a rougher one.

    Fields have structure of several sizes (nested variograms). What one kernel makes of two of them is rough.
    """
    if not isinstance(kernel, Stationary) or not hasattr(kernel, "variance"):
        return [kernel]
    scales, variance = np.asarray(kernel.lengthscales), np.asarray(kernel.variance)
    form = type(kernel)
    short, long = (
        form(scale * scales, share * variance, kernel.inputs) for scale, share in _NESTED
    )
    longer, larger = _ROUGHER
    rougher = (
        [] if form is Matern12 else [Matern12(longer * scales, larger * variance, kernel.inputs)]
    )
    return [kernel, short + long, *rougher]


def _moved(before: Kernel, after: Kernel, num_features: int) -> bool:
    """Whether lengthscales have moved against each other: others are nearest then."""
    one, other = (metric_lengthscales(kernel, num_features) for kernel in (before, after))
    ratio = other / one
    return bool(ratio.max() > _MOVED * ratio.min())
