"""Whether the models of a race are better together than the best of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from vastgp.auto.calibration import exceeds
from vastgp.auto.candidates import Candidate
from vastgp.auto.leaderboard import Entry
from vastgp.auto.stacking.by_spread import BySpread
from vastgp.auto.stacking.mixture import Mixture, mixed_moments
from vastgp.auto.stacking.model import Stack
from vastgp.auto.stacking.weights import (
    left_out_log_density,
    mixed_log_density,
    parts_to_keep,
    stacking_weights,
)
from vastgp.auto.track import Judged, Ran, scores_of
from vastgp.auto.trees import process_of
from vastgp.estimators.mixed_predictive import mixed_scores
from vastgp.estimators.simple_answers import SUBSET

# With fewer held-out rows than this, weights are noise.
_LEAST_ROWS = 50
_ALL = slice(None)


def stack_of(
    ran: Sequence[Ran], winner: int, y: np.ndarray, *, classes: bool, y_scale: float, seed: int
) -> Ran | None:
    """Return a stack of models of a race; None where it is not clearly better than the winner.

    Better by more than one standard error of the paired difference, with weights that other rows gave. Weights that
    fall with the deviation that a model states take the place of such that are the same everywhere by the same rule.

    Parameters
    ----------
    ran : sequence of Ran
    winner : int
        Number of the model that is best alone.
    y : ndarray of shape (n,)
        Targets of the held-out rows, in the order of their folds.
    classes : bool
    y_scale : float
        Deviation of the targets.
    seed : int
    """
    best = ran[winner]
    assert best.judged is not None
    able = [one for one in ran if _can_join(one, best)]
    # of weighted rows none: the weights of a stack are of rows that count alike
    places = best.judged.places
    if len(able) < 2 or places.count < _LEAST_ROWS or best.judged.weight is not None:
        return None
    parts = [one.judged for one in able if one.judged is not None]
    density = np.column_stack([part.log_density for part in parts])
    spread, share = _spreads(parts), places.shares()

    def of(others: Any) -> np.ndarray | None:
        return None if share is None else share[others]

    def plain(numbers: Any, others: Any = _ALL, here: Any = _ALL) -> np.ndarray:
        return stacking_weights(density[others][:, numbers], of(others))

    def by_spread(numbers: Any, others: Any = _ALL, here: Any = _ALL) -> np.ndarray:
        assert spread is not None
        found = BySpread.fit(density[others][:, numbers], spread[others][:, numbers], of(others))
        return found.at(spread[here][:, numbers])

    weigh = plain if spread is None else by_spread
    kept = parts_to_keep(
        density, lambda numbers: mixed_log_density(density[:, numbers], weigh(numbers)), places
    )
    if len(kept) < 2:
        return None
    left_out = left_out_log_density(density[:, kept], seed, partial(plain, kept), places)
    weights, varying = plain(kept), None
    if spread is not None:
        of_rows = left_out_log_density(density[:, kept], seed, partial(by_spread, kept), places)
        if exceeds(places.means(of_rows - left_out)):
            left_out, weights = of_rows, by_spread(kept)
            varying = BySpread.fit(density[:, kept], spread[:, kept], share)
    if not exceeds(places.means(left_out - best.judged.log_density)):
        return None
    shares = np.atleast_2d(weights).mean(axis=0)
    order = np.argsort(-shares, kind="stable")  # as in a `Stack`
    members = tuple(able[number] for number in kept[order])
    varying = None if varying is None else varying.of_parts(order)
    judged = mixed([parts[number] for number in kept[order]], weights[..., order], y, classes)
    model = Stack([one.model for one in members], shares[order], varying)
    return _ran(members, model, judged, classes, y_scale)


def _spreads(parts: Sequence[Judged]) -> np.ndarray | None:
    """Return the deviations that models state of held-out rows, (n, K); None where they have none that are numbers."""
    found = [part.spread for part in parts if part.spread is not None]
    if len(found) < len(parts):
        return None
    spread = np.column_stack(found)
    return spread if np.all(np.isfinite(spread) & (spread > 0.0)) else None


def _can_join(one: Ran, best: Ran) -> bool:
    """Whether a model has densities at the same rows, on the same scale, as the winner."""
    if one.judged is None or best.judged is None or one.warp != best.warp or not one.stacks:
        return False
    # the exact posterior of some rows, which stood in for a method that had no answer of its own: in the last fit it
    # would take that method's time again
    if one is not best and process_of(one.model).answer_ == SUBSET:
        return False
    # quantiles of counts come in steps, which a mixture of models does not look for
    if one.model.likelihood_.counts or best.model.likelihood_.counts:
        return False
    return one.judged.log_density.shape == best.judged.log_density.shape


def mixed(parts: Sequence[Judged], weights: np.ndarray, y: np.ndarray, classes: bool) -> Judged:
    """Return what a stack says of held-out rows, of what its parts say; weights are (K,), or (n, K) of each row."""
    density = mixed_log_density(np.column_stack([part.log_density for part in parts]), weights)
    scores = np.stack([part.scores for part in parts])
    if classes:
        proba = np.tensordot(weights, scores, axes=1)
        guess = np.argmax(proba, axis=1)
        wrong = (guess != y).astype(np.float64)
        judged = Judged(density, wrong, proba, guess.astype(np.float64), np.zeros(len(y)))
        return replace(judged, of_places=parts[0].of_places)
    mean, std = mixed_moments(
        np.stack([part.mean for part in parts]), np.stack([part.std for part in parts]), weights.T
    )
    judged = Judged(density, (y - mean) ** 2, mixed_scores(scores, weights.T), mean, std)
    found = tuple(_distributions(parts, weights))
    return replace(judged, of_places=parts[0].of_places, found=found)


def _distributions(parts: Sequence[Judged], weights: np.ndarray) -> Iterator[Any]:
    """Yield the distributions of a stack at the rows of each fold, of those of its parts."""
    first = 0
    for of_fold in zip(*(part.found for part in parts), strict=True):
        here = slice(first, first := first + len(of_fold[0].model.mean))
        own = weights if weights.ndim == 1 else weights[here].T
        yield replace(of_fold[0], model=Mixture(tuple(one.model for one in of_fold), own))


def _ran(
    members: tuple[Ran, ...], model: Stack, judged: Judged, classes: bool, y_scale: float
) -> Ran:
    first = members[0]
    shares = zip(members, model.weights, strict=True)
    name = f"stack of {', '.join(f'{one.candidate.name} {share:.0%}' for one, share in shares)}"
    how = "weights by held-out log density"
    how += "" if model.varying is None else ", less where a model's deviation is large"
    entry = Entry(
        name, first.warp.name, max(one.entry.rows for one in members), sum(one.entry.seconds for one in members),
        note=how, **scores_of(judged, classes, y_scale),
    )  # fmt: skip
    return Ran(Candidate(name, ""), first.warp, entry, judged, model, members)
