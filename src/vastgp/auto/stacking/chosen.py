"""Whether the models of a race are better together than the best of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vastgp.auto.calibration import exceeds
from vastgp.auto.candidates import Candidate
from vastgp.auto.leaderboard import Entry
from vastgp.auto.race import Judged, Ran, scores_of
from vastgp.auto.stacking.mixture import mixed_moments
from vastgp.auto.stacking.model import Stack
from vastgp.auto.stacking.weights import (
    left_out_log_density,
    mixed_log_density,
    parts_to_keep,
    stacking_weights,
)
from vastgp.estimators.mixed_predictive import mixed_scores

# With fewer held-out rows than this, weights are noise.
_LEAST_ROWS = 50


def stack_of(
    ran: Sequence[Ran], winner: int, y: np.ndarray, *, classes: bool, y_scale: float, seed: int
) -> Ran | None:
    """Return a stack of models of a race; None where it is not clearly better than the winner.

    Better by more than one standard error of the paired difference, with weights that other rows gave.

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
    if len(able) < 2 or len(y) < _LEAST_ROWS or best.judged.weight is not None:
        return None
    parts = [one.judged for one in able if one.judged is not None]
    density = np.column_stack([part.log_density for part in parts])
    kept = parts_to_keep(density)
    if len(kept) < 2:
        return None
    gain = left_out_log_density(density[:, kept], seed) - best.judged.log_density
    if not exceeds(gain):
        return None
    members = tuple(able[number] for number in kept)
    weights = stacking_weights(density[:, kept])
    judged = mixed([parts[number] for number in kept], weights, y, classes)
    return _ran(members, weights, judged, classes, y_scale)


def _can_join(one: Ran, best: Ran) -> bool:
    """Whether a model has densities at the same rows, on the same scale, as the winner."""
    if one.judged is None or best.judged is None or one.warp != best.warp:
        return False
    # quantiles of counts come in steps, which a mixture of models does not look for
    if one.model.likelihood_.counts or best.model.likelihood_.counts:
        return False
    return one.judged.log_density.shape == best.judged.log_density.shape


def mixed(parts: Sequence[Judged], weights: np.ndarray, y: np.ndarray, classes: bool) -> Judged:
    """Return what a stack says of held-out rows, of what its parts say."""
    density = mixed_log_density(np.column_stack([part.log_density for part in parts]), weights)
    scores = np.stack([part.scores for part in parts])
    if classes:
        proba = np.tensordot(weights, scores, axes=1)
        guess = np.argmax(proba, axis=1)
        wrong = (guess != y).astype(np.float64)
        return Judged(density, wrong, proba, guess.astype(np.float64), np.zeros(len(y)))
    mean, std = mixed_moments(
        np.stack([part.mean for part in parts]), np.stack([part.std for part in parts]), weights
    )
    return Judged(density, (y - mean) ** 2, mixed_scores(scores, weights), mean, std)


def _ran(
    members: tuple[Ran, ...], weights: np.ndarray, judged: Judged, classes: bool, y_scale: float
) -> Ran:
    first = members[0]
    shares = (f"{one.candidate.name} {w:.0%}" for one, w in zip(members, weights, strict=True))
    name = f"stack of {', '.join(shares)}"
    entry = Entry(
        name, first.warp.name, max(one.entry.rows for one in members), sum(one.entry.seconds for one in members),
        note="weights by held-out log density", **scores_of(judged, classes, y_scale),
    )  # fmt: skip
    model = Stack([one.model for one in members], weights)
    return Ran(Candidate(name, ""), first.warp, entry, judged, model, members)
