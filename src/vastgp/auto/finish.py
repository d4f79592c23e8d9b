"""The end of a fit: what won the race, fitted to all rows in the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vastgp.auto.candidates import Candidate
from vastgp.auto.firsts import Firsts, Shape
from vastgp.auto.folds import some_rows
from vastgp.auto.inputs import Groups, Inputs
from vastgp.auto.race import FAILURES, fit_one
from vastgp.auto.stacking import Stack
from vastgp.auto.track import Ran
from vastgp.auto.trees import WHOLE, Grove, process_of
from vastgp.auto.warps import Own
from vastgp.data import Rows
from vastgp.estimators.judging import OWN
from vastgp.estimators.race import AVERAGE
from vastgp.estimators.simple_answers import LINEAR
from vastgp.fitting.run import First
from vastgp.likelihoods import Gaussian

# The winner is fitted again, to all rows, where there is this share of the time that it took before.
_WORTH_AGAIN = 0.7
# A stack without some of its members is still what the race judged where the others have this share of the weights.
_MOST_OF_A_STACK = 0.7
# Noise is much of a model's uncertainty from this share of its variance on, and another one beyond this factor.
_MUCH_NOISE, _OTHER_NOISE = 0.1, 4.0
# The shortest budget of a last fit.
_LEAST_SECONDS = 0.5


@dataclass(frozen=True)
class Whole:
    """All rows, and the time that there is for them.

    Attributes
    ----------
    inputs : Inputs
    y : ndarray of shape (n,), or with noise of the rows
    grove : Grove
        Trees for models that have some.
    deadline : float or None
        Time of ``time.perf_counter``.
    taught_by : callable
        Gives those of the rows that models are fitted to.
    firsts : Firsts
        What the members of a stack began with.
    """

    inputs: Inputs
    y: np.ndarray
    grove: Grove
    deadline: float | None
    taught_by: Callable[[Rows], Rows] = lambda rows: rows
    firsts: Firsts = field(default_factory=Firsts)

    def rows(self) -> tuple[Rows, Groups]:
        """Return the encoded rows that models are fitted to, and which columns are one input."""
        rows, tied = self.inputs.whole(self.y)
        return self.taught_by(rows), tied

    @property
    def seconds_left(self) -> float | None:
        """Until the deadline."""
        if self.deadline is None:
            return None
        return max(self.deadline - time.perf_counter(), _LEAST_SECONDS)


def with_names_of(best: Ran | None, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that the winner is or is made of, as they were before the race; the first without one."""
    if best is None:
        return [candidates[0]]
    by_name = {one.name: one for one in candidates}
    return [by_name[one.candidate.name] for one in best.members or (best,)]


def most_rows_of(candidates: Sequence[Candidate]) -> int | None:
    """Return the most rows that any of the candidates is given; None for all."""
    most = [one.most_rows for one in candidates]
    return None if None in most else max(rows for rows in most if rows is not None)


def fit_to_all(best: Ran | None, candidates: Sequence[Candidate], whole: Whole, warp: Own) -> Any:
    """Return the winner fitted to all rows; None where that of the race is as good as can be had.

    Parameters
    ----------
    best : Ran or None
        None where there was no race.
    candidates : sequence of Candidate
        What the winner is made of, see `with_names_of`.
    whole : Whole
    warp : Own
    """
    if best is None:
        return _fit(None, candidates[0], whole, warp, whole.seconds_left)
    members = best.members or (best,)
    before = [one.entry.seconds / max(1, whole.inputs.folds) for one in members]
    left = whole.seconds_left
    if left is not None and left <= _WORTH_AGAIN * sum(before):
        return None
    given = zip(members, candidates, strict=True)
    if any(many.most_rows is not None and many.most_rows < one.entry.rows for one, many in given):
        return None  # of a budget in rows fewer are left than the race's models saw
    found, kept = [], []
    for number, (one, candidate) in enumerate(zip(members, candidates, strict=True)):
        left = whole.seconds_left
        if left is not None:
            left *= before[number] / max(sum(before[number:]), 1e-9)
        try:
            model = _fit(one, candidate, whole, warp, left)
        except FAILURES:
            continue
        if not _falls_short(model, one):
            found.append(model)
            kept.append(number)
    if len(members) == 1:
        return found[0] if found else None
    # members of a race's stack are in the order of its weights
    if float(np.sum(best.model.weights[kept])) < _MOST_OF_A_STACK:
        return None  # what is left of it has not been judged
    if len(found) == 1:
        return found[0]
    varying = best.model.varying
    return Stack(
        found, best.model.weights[kept], None if varying is None else varying.of_parts(kept)
    )


def _fit(
    ran: Ran | None, candidate: Candidate, whole: Whole, warp: Own, seconds: float | None
) -> Any:
    """Return a candidate fitted to all rows, or to as many as it is given."""
    seed = whole.grove.seed
    began = time.perf_counter()
    rows, tied = whole.rows()
    rows = some_rows(rows, candidate.most_rows, seed, bool(whole.grove.classes))
    grown = whole.grove.of_whole(rows, warp) if candidate.on_trees else None
    if seconds is not None:
        seconds = max(seconds - (time.perf_counter() - began), _LEAST_SECONDS)
    kernel = None if candidate.goes_on else _kernel_of(ran)
    model = candidate.make(seed=seed, seconds=seconds, tied=tied, kernel=kernel, grown=grown)
    with whole.firsts.shared(model, candidate, WHOLE, Shape.of(rows, tied), warp):
        if candidate.goes_on:
            _go_on(model, ran)
        fit_one(model, rows, warp)
    return model


def is_alike(model: Any, ran: Ran) -> bool:
    """Whether how the race's answer was off says something of that of the fit to all rows: it is one of the same kind.

    Nor does it where noise was much of what the race's was uncertain of, and is another now: of 30 rows on a line in 33
    inputs nothing tells how small it is, and what narrowed intervals there by a hundred let those of 37 hold none.
    """
    if model.answer_ != ran.model.answer_:
        return False
    laws = model.likelihood_, ran.model.likelihood_
    if (
        ran.judged is None
        or ran.judged.spread is None
        or any(type(law) is not Gaussian for law in laws)
    ):
        return True
    now, then = (float(law.noise_variance) for law in laws)
    if then < _MUCH_NOISE * float(np.median(ran.judged.spread)) ** 2:
        return True
    return bool(abs(np.log(now / then)) <= np.log(_OTHER_NOISE))


def _falls_short(model: Any, ran: Ran) -> bool:
    """Whether the last fit had too little time for what that of the race had: the method's own answer, or its noise."""
    if model.converged_:
        return False
    other = type(model.likelihood_) is not type(ran.model.likelihood_)
    return other or (ran.model.answer_ == OWN and model.answer_ != OWN)


def _go_on(model: Any, ran: Ran | None) -> None:
    """Let a model begin with kernel and noise of the race as they are, where that has found some."""
    kernel = _kernel_of(ran)
    if ran is None or kernel is None:
        return
    likelihood = ran.model.likelihood_.in_units(1.0 / ran.model.standardizer_.y_scale)
    process_of(model)._known_firsts = (First(kernel, likelihood.to_fit),)


def _kernel_of(ran: Ran | None) -> Any:
    """Return where a search begins again, in standardised units; None where the race found nothing of its own.

    The kernel of an average is its prior, lines and process together: learned as the kernel of one process it was sure
    of 182 rows whose average was not (NLPD of new ones 1.63, of the average 1.40; intervals held 84 and 96 %).
    """
    if ran is None or ran.model is None or ran.model.answer_ in (LINEAR, AVERAGE):
        return None
    kernel = ran.model.kernel_
    if kernel is None:
        return None
    scaling = ran.model.standardizer_
    return kernel.in_units(1.0 / scaling.x_scale, 1.0 / scaling.y_scale)
