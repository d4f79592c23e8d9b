"""What runs in a race, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vastgp.auto.candidates import Candidate
from vastgp.auto.firsts import Firsts
from vastgp.auto.folds import Fold
from vastgp.auto.leaderboard import Entry
from vastgp.auto.trees import Grown
from vastgp.auto.warps import Own
from vastgp.data import Places, Rows


@dataclass(frozen=True)
class Track:
    """What all candidates run on.

    Attributes
    ----------
    folds : list of Fold
    encoded : callable
        ``encoded(number)`` gives the encoded training and held-out rows of a fold, and which columns are one input.
    judge : callable
        ``judge(model, warp, rows)`` gives log densities, and what else is known of each row, see `Judged`.
    seed : int
    classes : bool
    grown : callable, optional
        ``grown(number, rows, warp)`` gives trees for training rows of a fold; None where no candidate has trees.
    firsts : Firsts
        What candidates began with.
    groups : ndarray of int, optional
        Which rows of the table repeat each other, see `vastgp.data.repeated`; None where none do.
    design : bool
        Whether rows are of a few places, see `vastgp.data.Repetitions`.
    tell : callable, optional
        Is told what share of a candidate's folds is done.
    """

    folds: Sequence[Fold]
    encoded: Callable[[int], tuple[Rows, Rows, Sequence[Sequence[int]]]]
    judge: Callable[[Any, Own, Rows], Judged]
    seed: int
    classes: bool
    grown: Callable[[int, Rows, Own], Grown] | None = None
    firsts: Firsts = field(default_factory=Firsts)
    groups: np.ndarray | None = None
    design: bool = False
    tell: Callable[[float], None] = lambda share: None

    @property
    def order(self) -> np.ndarray:
        """Places of the held-out rows of all folds, in the order of the folds."""
        return np.concatenate([fold.held_out for fold in self.folds] or [np.zeros(0, np.int64)])

    @property
    def span(self) -> np.ndarray:
        """Number of the fold that each held-out row is of, in the order of the folds."""
        return np.repeat(np.arange(len(self.folds)), [len(fold.held_out) for fold in self.folds])

    @property
    def places(self) -> Places:
        """Which held-out rows are of one place, in the order of the folds."""
        found = Places.of(self.groups, self.order, self.design)
        if not self.folds:
            return found
        rows = np.concatenate([self.folds[0].training, self.folds[0].held_out])
        return replace(found, others=Places.of(self.groups, rows).count - found.count)


@dataclass(frozen=True)
class Judged:
    """What a model says of held-out rows.

    Attributes
    ----------
    log_density : ndarray of shape (n,)
        In units of the target.
    off : ndarray of shape (n,)
        Squared errors, or whether the class is wrong.
    scores : ndarray of shape (n,), or (n, C)
        Normal scores of the targets, or probabilities of the classes.
    mean, std : ndarray of shape (n,)
        Predicted, in units of the target; of classes the labels' numbers and nothing.
    weight : ndarray of shape (n,), optional
        What each row counts in scores; None: all alike.
    spread : ndarray of shape (n,), optional
        Deviations on the scale of the model, without what is known of a row's own error; None for classes.
    of_places : Places, optional
        Which rows are of one place, and count as one; None: each has its own.
    found : tuple of Distribution or HeapedDistribution
        Distributions of the rows of each fold, in the order of the rows; none of classes.
    """

    log_density: np.ndarray
    off: np.ndarray
    scores: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    weight: np.ndarray | None = None
    spread: np.ndarray | None = None
    of_places: Places | None = None
    found: tuple[Any, ...] = ()

    @property
    def places(self) -> Places:
        """Which rows are of one place."""
        return self.of_places or Places(np.arange(len(self.log_density)))

    def by_place(self, values: np.ndarray) -> np.ndarray:
        """Return a value for each place, of those of rows, (n,): their mean is the (weighted) mean over places."""
        return self.places.means(values, self.weight)

    @classmethod
    def joined(cls, parts: Sequence[Judged]) -> Judged:
        """Return what is known of the rows of all folds, in the order of the folds."""
        names = [name for name in cls.__dataclass_fields__ if getattr(parts[0], name) is not None]
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in names
            if name != "found"
        }
        return cls(**joined, found=tuple(one for part in parts for one in part.found))

    def to_arrays(self, y: np.ndarray, rows: np.ndarray, most: int) -> dict[str, np.ndarray]:
        """Return what is remembered of them: the record of calibration and the report are made of it.

        Parameters
        ----------
        y : ndarray of shape (n,)
            Targets.
        rows : ndarray of int, shape (n,)
            Their numbers in the table.
        most : int
            The first so many rows are kept.
        """
        found = {"row": rows, "y": np.asarray(y, np.float64), "mean": self.mean, "std": self.std}
        found |= {"scores": self.scores, "log_density": self.log_density}
        return {name: values[:most] for name, values in found.items()}


@dataclass(frozen=True)
class Ran:
    """A candidate that has run.

    Attributes
    ----------
    candidate : Candidate
    warp : Own
    entry : Entry
    judged : Judged or None
        None where it failed.
    model : estimator or None
        Fitted to the last fold.
    members : tuple of Ran
        Those that it is made of, where it is a stack, see `vastgp.auto.stacking`.
    stacks : bool
        Whether it may be part of a stack: not where it only compared scales of the target, on a few of the rows.
    """

    candidate: Candidate
    warp: Own
    entry: Entry
    judged: Judged | None = None
    model: Any = None
    members: tuple[Ran, ...] = ()
    stacks: bool = True


def scores_of(judged: Judged, classes: bool, y_scale: float) -> dict[str, Any]:
    """Return the scores of an entry, means over places of held-out rows: rows that repeat each other count as one."""
    loss = -judged.by_place(judged.log_density)
    off, inside = judged.by_place(judged.off), judged.by_place
    finite = np.isfinite(loss)
    # a loss has squares only up to 1e154: it is measured in a power of two, which rounds nothing
    unit = 2.0 ** (np.frexp(np.max(np.abs(loss), initial=1.0, where=finite))[1] - 1)
    found = {
        "nlpd": float(np.mean(loss)) if finite.all() else np.inf,
        "nlpd_error": float(unit * np.std(loss[finite] / unit) / np.sqrt(max(finite.sum(), 1))),
        "error": float(np.mean(off)) if classes else float(np.sqrt(np.mean(off))),
    }
    found["nlpd_standardised"] = found["nlpd"] - (0.0 if classes else float(np.log(y_scale)))
    if not classes:
        found["coverage"] = float(np.mean(inside(np.abs(judged.scores) < 1.959964)))
    return found
