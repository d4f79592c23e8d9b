"""First hyperparameters, found once for all candidates of a race that begin with the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vastgp.auto.candidates import Candidate
from vastgp.auto.trees import process_of
from vastgp.auto.warps import Own
from vastgp.fitting.run import First

Key = tuple[int, Own, bool]


@dataclass
class Firsts:
    """What the models of a race began with: kernel and likelihood of highest evidence on some of their rows.

    The search for them takes most of a short fit, and is the same for all models with the same rows, inputs, scale of
    the target and likelihood. A model with another likelihood begins its search at the kernel that is known, and so
    does one of other rows (whose deviations are others, as those of another fold), and one after a search that the
    clock ended.
    """

    _found: dict[Key, dict[type, tuple[First, int]]] = field(default_factory=dict)

    @contextmanager
    def shared(
        self, model: Any, candidate: Candidate, number: int, rows: int, warp: Own
    ) -> Iterator[None]:
        """Hand what is known to a model, and keep what its fit, the block, finds.

        Parameters
        ----------
        model : estimator
            Not fitted yet.
        candidate : Candidate
        number : int
            Of the fold, or `vastgp.auto.trees.WHOLE`.
        rows : int
            That it is fitted to.
        warp : Own
            Scale of the target.
        """
        if "kernel" in candidate.params:
            yield
            return
        known = self._found.setdefault((number, warp, candidate.on_trees), {})
        # of most of the same rows, where nothing is known of these
        other = {} if known else self._found.get((0, warp, candidate.on_trees), {})
        process = process_of(model)
        process._known_firsts = tuple(
            found._replace(complete=bool(known) and found.complete and of == rows)
            for found, of in (known or other).values()
        )
        yield
        found = getattr(process, "_first_found", None)
        if found is not None:
            known[type(found.likelihood)] = found, rows
