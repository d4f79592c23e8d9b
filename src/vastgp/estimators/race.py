"""Which answer a fit keeps: the method's own, or a simpler one that says more of rows that neither has seen.

Beside the method's answer stand Bayesian linear regression (linear functions of other likelihoods), and the exact
posterior of some rows at the hyperparameters that the method began with. A fit that its budget ended in the middle, or
that went astray, hands over the one of them that predicts rows best.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import numpy as np

from vastgp import _accelerator
from vastgp.data import Rows, processes
from vastgp.data.padding import padded_size
from vastgp.estimators.few_rows import SURE, average_of_few
from vastgp.estimators.judging import (
    ASTRAY,
    ASTRAY_OF_KERNEL,
    CLEARLY,
    DOUBT,
    OWN,
    Judge,
    Judged,
    expected,
    kept,
)
from vastgp.estimators.simple_answers import LINEAR, SIMPLE, SUBSET, SUBSET_ROWS, simple_answer
from vastgp.fitting.run import Answer, OutOfTime, Run
from vastgp.likelihoods import Gaussian

AVERAGE = "average"
CALLED = {
    OWN: "the method itself",
    LINEAR: "a linear function of the inputs",
    SUBSET: "the exact posterior of some rows",
    AVERAGE: "the average over linear functions and the process",
}
# Seconds of a budget that posteriors and their comparison take after the method's work.
_FOR_THE_END, _SHARE_FOR_THE_END = 1.0, 0.05
# Of those of several classes, for each class and row up to a thousand: some forty rounds of sites (digits, ten classes:
# 3.3 s of the linear answer and 1.2 of the subset).
_OF_CLASS_AND_ROW, _MOST_OF_CLASSES = 3.5e-4, 1000
_FOR_LINE = "The evidence of these rows is for a linear function"
_FOR_AVERAGE = "These few rows leave open whether their function is linear, or how it varies: that is averaged over"
_FOR_EXACT = "Between the rows this contradicts the exact posterior of all of them"
_FOR_BEHIND = (
    "Between the rows the average over linear functions and a process expects more of a line"
)
# What ends a method's work, and leaves the simple answers: a matrix without a factor, or a state without numbers.
_NUMERICAL = (np.linalg.LinAlgError, FloatingPointError)
# Seconds that a method takes at least where its programs are compiled, and for which, of which sizes, they are in this
# process: those for other numbers of rows or inputs are others, and those of an accelerator.
_WARM = 0.3
# Times as long as a CPU's programs those of an accelerator take to compile (an H200: fits of 20 to 60 s had 5 to 31 s).
_ON_DEVICE = 3.0
_compiled: set[tuple[type, int, int, bool]] = set()


def race(model: Any, rows: Rows, run: Run) -> Answer:
    """Fit the model, set the attributes of the best answer, and return it.

    Parameters
    ----------
    model : BaseGP
        The copy that the fit works on.
    rows : Rows
    run : Run

    Raises
    ------
    FactorizationError, FloatingPointError
        Where the method has no answer and no other is to be had.
    """
    judge = Judge(model, rows, run)
    run.judged = judge.spared

    def simple(name: str) -> list[Judged]:
        # of few rows, but for the part that stands in for a method without an answer
        with _accelerator.left_out(name == LINEAR or own is not None):
            try:
                with run.timed("comparison"):
                    answer = SIMPLE[name](model, judge.training, run, own)
                    if answer is not None and name == SUBSET:
                        answer = judge.at_best_scale(answer, model, run)
            except _NUMERICAL:
                return []  # the others stand
            return [] if answer is None else [judge(name, answer, model, run)]

    # while rows are kept out something stands before the method begins, whatever becomes of it
    failure, own = None, None
    found, exact = simple(LINEAR) if judge.spared else [], []
    run.hold_back(_seconds_for_the_end(model, judge.training.n, run))
    on_device = _accelerator.is_present()
    program = type(model), padded_size(judge.training.n), judge.training.d, on_device
    warm = program in _compiled or model._compiles_nothing(judge.training)
    run.needs = _WARM if warm else seconds_of_compiling(model)
    try:
        last = model._last_answer(judge.training, run)
        found.append(judge.widened(judge(OWN, last, model, run), model, run))
        own = found[-1].answer
        _compiled.add(program)
    except (*_NUMERICAL, OutOfTime) as error:
        failure = error
    line, is_open, lines = False, False, []
    if not judge.spared:
        # its evidence has spoken against one noise, which the simple answers have
        varies = own is not None and own.likelihood.num_latent > 1
        with run.timed("comparison"):
            few = None if varies else average_of_few(model, judge.training, run)
        if few is not None:
            answer = simple_answer(few.kernel, few.likelihood, few.posterior)
            exact = [judge(AVERAGE, answer, model, run)]
        elif own is not None and own.evidence is not None and not varies:
            lines = simple(LINEAR)
        line = processes.agreed(_surely_line(own, lines) if few is None else few.is_linear)
        is_open = processes.agreed(few is not None and few.is_open)
    if own is not None and not exact and _is_beside_exact(found[-1], judge.training, run):
        exact = [each for each in simple(SUBSET) if each.is_exact_of(judge.training)]
    behind = None
    if own is not None and exact:
        lines = simple(LINEAR) if exact[0].name == AVERAGE else []
        behind = _behind(found[-1], lines, exact, judge, model, run)
    if not judge.spared:
        finished = own is not None and own.converged and np.isfinite(found[0].score)
        if finished and not (line or is_open or behind):
            return _keep(model, found[0], found, judge)
        found += lines or simple(LINEAR)
        if line and found and found[-1].name == LINEAR:
            return _keep_for(model, found[-1], found, judge, own, _FOR_LINE)
    if is_open or behind:
        because = behind if behind and not is_open else _FOR_AVERAGE
        best = _of_all(exact[0], rows, judge, model, run, own)
        return _keep_for(model, best, found + exact, judge, own, because)
    found += exact or simple(SUBSET)
    if not found:
        assert failure is not None
        raise failure
    best = _of_all(_best(found, judge.apart), rows, judge, model, run, own)
    return _keep(model, best, found, judge, own, failure)


def seconds_of_compiling(model: Any) -> float:
    """Return what compiling the programs of a model takes in a new process, where its work is done."""
    return float(model._compiling_seconds * (_ON_DEVICE if _accelerator.is_present() else 1.0))


def _seconds_for_the_end(model: Any, n: int, run: Run) -> float:
    """Return the seconds that the simple answers and their comparison take after the method's work."""
    classes = len(getattr(model, "classes_", ()))
    several = classes * min(n, _MOST_OF_CLASSES) * _OF_CLASS_AND_ROW if classes > 2 else 0.0
    return max(_FOR_THE_END, _SHARE_FOR_THE_END * (run.max_seconds or 0.0), several)


def _of_all(
    best: Judged, rows: Rows, judge: Judge, model: Any, run: Run, own: Answer | None
) -> Judged:
    """Return a simple answer with the rows that judged it: of few each counts, and it costs next to nothing."""
    if not judge.spared or best.name not in SIMPLE or rows.n > SUBSET_ROWS:
        return best
    try:
        with run.timed("comparison"):
            answer = SIMPLE[best.name](model, rows, run, own)
    except _NUMERICAL:
        return best
    assert answer is not None  # there was one of fewer rows
    if best.name == SUBSET:
        answer = judge.at_same_scale(answer)
    return best._replace(answer=answer, attributes=kept(best.name, answer, model, run).__dict__)


def _behind(
    own: Judged, lines: list[Judged], exact: list[Judged], judge: Judge, model: Any, run: Run
) -> str | None:
    """Return why an answer gives way to the exact posterior of all rows, in whose eyes it is wrong between them."""
    rows = judge.imagined(exact[0], model, run)

    def loses(rival: Judged, most: float) -> bool:
        return not mine >= expected(rival, rows, model, run) - most  # NaN loses

    mine = expected(own, rows, model, run)
    # functions of no kernel are no approximation of the process
    most = ASTRAY if model._has_own_prior else ASTRAY_OF_KERNEL
    if own.answer.kernel is not None and loses(exact[0], most):
        return _FOR_EXACT
    return _FOR_BEHIND if lines and loses(lines[0], CLEARLY) else None


def _is_beside_exact(own: Judged, rows: Rows, run: Run) -> bool:
    """Return whether an answer can be held against the exact posterior of all rows, at what the method began with.

    That costs next to nothing, the answer is another, and the method has learned nothing but an amplitude since.
    """
    normal, kernel = isinstance(own.answer.likelihood, Gaussian), own.answer.kernel
    if not normal or kernel is None or run.first is None:
        return False
    if rows.n > SUBSET_ROWS or own.is_exact_of(rows):
        return False
    kernels = [
        each.in_units(1.0, float(each.total_variance()) ** -0.5) for each in (kernel, run.first[0])
    ]
    return bool(eqx.tree_equal(*kernels, rtol=1e-4))


def _surely_line(own: Answer | None, lines: list[Judged]) -> bool:
    """Return whether the evidence is for a line, with next to no doubt, of answers that have one: classes and counts.

    Of thirty tables of 80 to 450 rows and two to seven classes one, where it was 29 nats: the line's loss was 0.03 and
    the method's 0.69. Where the line was ahead by up to two it was so on new rows of one in three. The bound of a fit
    that has not come to its end is no evidence.
    """
    evidence = lines[0].answer.evidence if lines else None
    if own is None or own.evidence is None or evidence is None or not own.converged:
        return False
    return bool(evidence - own.evidence > np.log(SURE / (1.0 - SURE)))


def _best(found: list[Judged], apart: bool) -> Judged:
    """Return the answer of the highest score: the method's own unless another is clearly better.

    Where the method has converged, at its full size, it must be so beyond doubt; where it was sure of what is not so,
    the best is kept. Rows of the fit itself flatter whoever follows them most closely: unless the judging rows are
    ``apart`` from most of those of the rivals, a method gives way only where it says less than linear functions do, or
    than who is given each row by the others.
    """
    own = next((each for each in found if each.name == OWN), None)
    others = [each for each in found if each.name != OWN]
    best = max(others, key=lambda each: each.of_others, default=own)
    assert best is not None
    if own is None or not np.isfinite(own.score):
        return best
    rival, needed = max(found, key=lambda each: each.score), CLEARLY
    if rival is own or own.wider:
        return rival
    if not apart:
        rivals = [each for each in found if each.name == LINEAR or each.fair]
        if own.fair:  # then all are given each row by the others
            rivals = [each._replace(scores=each.scores_of_others) for each in rivals]
        rival = max(rivals, key=lambda each: each.score, default=best)
    if own.answer.converged and not own.answer.cut:
        error = float(np.std(rival.scores - own.scores)) / np.sqrt(len(own.scores))
        needed = max(needed, DOUBT * error)
    return own if rival.score - own.score < needed else best


def _keep_for(
    model: Any,
    best: Judged,
    found: list[Judged],
    judge: Judge,
    own: Answer | None,
    because: str,
) -> Answer:
    """Set the attributes of a simple answer of few rows, whatever the scores of these are."""
    answer = _keep(model, best, found, judge, own)
    ended = "" if own is None else f"{own.reason.rstrip('.')}. "
    model.stop_reason_ = f"{ended}{because}, which is the answer"
    model.converged_ = own is not None and own.converged
    return replace(answer, reason=model.stop_reason_, converged=model.converged_)


def _keep(
    model: Any,
    best: Judged,
    found: list[Judged],
    judge: Judge,
    own: Answer | None = None,
    failure: Exception | None = None,
) -> Answer:
    """Set the attributes of an answer, and say why it is not the method's own, where it is not."""
    of_method = next((each.attributes for each in found if each.name == OWN), {})
    # what the method found of itself stays readable
    steps = {name: of_method[name] for name in ("n_iter_", "history_") if name in of_method}
    model.__dict__ = {**of_method, **best.attributes, **steps}
    model.scores_ = {each.name: each.score for each in found}
    model._end_race(None if best.name == OWN else of_method or None, judge.out)
    if best.name == OWN:
        return best.answer
    ended = f"{failure}" if own is None else own.reason
    mine = "" if own is None else f" ({model.scores_[OWN]:.4g})"
    told = best.of_others if own is None else best.score
    reason = (
        f"{ended.rstrip('.')}. {CALLED[best.name].capitalize()} predicts rows better, by mean log density "
        f"{told:.4g}{mine}, and is the answer"
    )
    model.stop_reason_, model.converged_ = reason, False
    advice = "" if own is None or own.converged else own.advice
    if isinstance(failure, OutOfTime):
        advice = "give more time (max_seconds)."
    return replace(best.answer, reason=reason, advice=advice)
