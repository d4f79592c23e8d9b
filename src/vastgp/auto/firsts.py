"""First hyperparameters, found once for all candidates of a race that begin with the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vastgp.auto.candidates import Candidate
from vastgp.auto.trees import process_of
from vastgp.auto.warps import Own
from vastgp.data import Rows
from vastgp.fitting.run import First

Key = tuple[int, Own, bool]


class Shape(NamedTuple):
    """Of the rows that a model is fitted to: their number, that of their columns, and which of these are one input."""

    rows: int
    columns: int
    tied: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, rows: Rows, tied: Sequence[Sequence[int]]) -> Shape:
        """Return that of encoded rows."""
        return cls(rows.n, rows.d, tuple(tuple(each) for each in tied))


@dataclass
class Firsts:
    """What the models of a race began with: kernel and likelihood of highest evidence on some of their rows.

    The search for them takes most of a short fit, and is the same for all models with the same rows, inputs, scale of
    the target and likelihood. A model with another likelihood begins its search at the kernel that is known, and so
    does one of other rows (whose deviations are others, as those of another fold), and one after a search that the
    clock ended. Other rows may be of other columns, as they hold other levels: there it begins anew.
    """

    _found: dict[Key, dict[type, tuple[First, Shape]]] = field(default_factory=dict)

    def begin_at(self, first: First, candidate: Candidate, shape: Shape) -> None:
        """Let the search for a candidate's first fold begin at what something else has found for such rows."""
        known = self._found.setdefault((0, Own(), candidate.on_trees), {})
        known[type(first.likelihood)] = first, shape

    @contextmanager
    def shared(
        self, model: Any, candidate: Candidate, number: int, shape: Shape, warp: Own
    ) -> Iterator[None]:
        """Hand what is known to a model, and keep what its fit, the block, finds.

        Parameters
        ----------
        model : estimator
            Not fitted yet.
        candidate : Candidate
        number : int
            Of the fold, or `vastgp.auto.trees.WHOLE`.
        shape : Shape
            Of the rows that it is fitted to.
        warp : Own
            Scale of the target.
        """
        if "kernel" in candidate.params or candidate.begins_at is not None:
            yield
            return
        known = self._found.setdefault((number, warp, candidate.on_trees), {})
        # of most of the same rows, where nothing is known of these
        other = {} if known else self._found.get((0, warp, candidate.on_trees), {})
        process = process_of(model)
        process._known_firsts = tuple(
            found._replace(complete=bool(known) and found.complete and of == shape)
            for found, of in (known or other).values()
            if of[1:] == shape[1:]
        )
        yield
        found = getattr(process, "_first_found", None)
        if found is not None:
            known[type(found.likelihood)] = found, shape
