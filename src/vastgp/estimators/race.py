"""Which answer a fit keeps: the method's own, or a simpler one that says more of rows that neither has seen.

Beside the method's answer stand Bayesian linear regression (linear functions of other likelihoods), and the exact
posterior of some rows at the hyperparameters that the method began with. A fit that its budget ended in the middle, or
that went astray, hands over the one of them that predicts rows best.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from vastgp import _accelerator
from vastgp.data import (
    Places,
    Rows,
    held_out_indices,
    observations,
    processes,
    repeated,
    without,
)
from vastgp.data.minibatch import fixed_indices, standardised_rows
from vastgp.data.padding import padded_size
from vastgp.estimators.few_rows import average_of_few, num_places
from vastgp.estimators.simple_answers import (
    LINEAR,
    MORE_ROWS,
    SIMPLE,
    SUBSET,
    SUBSET_ROWS,
    simple_answer,
)
from vastgp.fitting.run import Answer, OutOfTime, Run
from vastgp.likelihoods import Gaussian
from vastgp.solvers.exact_posterior import ExactPosterior
from vastgp.solvers.linear_model import LinearPosterior

OWN, AVERAGE = "own", "average"
CALLED = {
    OWN: "the method itself",
    LINEAR: "a linear function of the inputs",
    SUBSET: "the exact posterior of some rows",
    AVERAGE: "the average over linear functions and the process",
}
# From `_least_to_spare` of the model on some rows are kept out of the fit to judge by, more of fewer rows than this; of
# fewer still none can be spared, unless many are copies: by their targets, which they have twice, whoever follows them
# is best, and sure of what is between them (wine, 240 of 1440 rows: relevance vectors had a mean log density of 2.2
# there, and of -74 at new rows).
_MANY, _LEAST_WITH_COPIES, _COPIES = 2000, 400, 0.05
_SPARED, _SPARED_OF_FEWER, _MOST_SPARED = 0.05, 0.1, 500
# Numbers in inputs up to which rows are looked through for others that repeat them: a second, and four times the memory
# that they take. Of more rows, and of those in files, each is kept out by itself.
_COMPARED_ENTRIES = 20_000_000
# The method's own answer gives way to one that is better by this many nats a row; where it has converged also by twice
# the standard error of that.
_CLEARLY, _DOUBT = 0.02, 2.0
# Share of rows kept out that are to be within so many deviations of the exact posterior of some rows.
_HELD, _WITHIN = 0.93, 1.96
# From here on a method that takes more rows later has its own answer: of 90 rows of twelve places its intervals held
# 54 % of rows elsewhere.
_FEWER_PLACES = 50
# An answer of few rows is held against the average of what they leave open, on so many targets drawn from that where
# there are no rows: it gives way where it expects them by so many nats a row less.
_IMAGINED, _ASTRAY = 500, 0.5
# Seconds of a budget that posteriors and their comparison take after the method's work.
_FOR_THE_END, _SHARE_FOR_THE_END = 1.0, 0.05
_FOR_LINE = "The evidence of these few rows is for a linear function"
_FOR_AVERAGE = "These few rows leave open whether their function is linear, or how it varies: that is averaged over"
_FOR_EXACT = "Between the rows this contradicts the exact posterior of all of them"
_FOR_BEHIND = (
    "Between the rows the average over linear functions and a process expects more of a line"
)
# What ends a method's work, and leaves the simple answers: a matrix without a factor, or a state without numbers.
_NUMERICAL = (np.linalg.LinAlgError, FloatingPointError)
# Seconds that a method takes at least where its programs are compiled, and for which, of which sizes, they are in this
# process: those for other numbers of rows or inputs are others.
_WARM = 0.3
# Times as long as a CPU's programs those of an accelerator take to compile (an H200: fits of 20 to 60 s had 5 to 31 s).
_ON_DEVICE = 3.0
_compiled: set[tuple[type, int, int]] = set()
# Uses of the seed, see `fixed_indices`.
_JUDGING_ROWS, _IMAGINING = 112, 113


class Judged(NamedTuple):
    """An answer, the fitted attributes that it makes, and mean log densities at the places that judge.

    ``fair`` says that each was given without its own target; ``left_out`` are those that were, of an answer that others
    of its rows are compared with as it is.
    """

    name: str
    answer: Answer
    attributes: dict[str, Any]
    scores: np.ndarray
    fair: bool = False
    left_out: np.ndarray | None = None

    @property
    def score(self) -> float:
        """Mean log density; minus infinity where there is none."""
        return _mean(self.scores)

    def is_exact_of(self, rows: Rows) -> bool:
        """Return whether it is the exact posterior of all rows."""
        return _is_of_all(self.attributes["posterior_"], rows)

    @property
    def of_others(self) -> float:
        """The same, each without its own target where that is known."""
        return _mean(self.scores if self.left_out is None else self.left_out)


def _is_of_all(posterior: Any, rows: Rows) -> bool:
    return isinstance(posterior, ExactPosterior) and len(posterior.X) == rows.n


def _mean(scores: np.ndarray) -> float:
    mean = float(np.mean(scores))
    return mean if np.isfinite(mean) else -np.inf


class Judge:
    """Rows kept out of the fit, or rows of it where there are few, and what an answer says of them."""

    def __init__(self, model: Any, rows: Rows, seed: int) -> None:
        groups = _repetitions(rows) if rows.n >= _LEAST_WITH_COPIES else None
        enough = rows.n >= model._least_to_spare
        self.spared = enough or (groups is not None and _has_copies(rows))
        if self.spared:
            share = _SPARED if rows.n >= _MANY else _SPARED_OF_FEWER
            chosen = held_out_indices(rows.n, share, seed, _MOST_SPARED, groups)
            self.spared = model._can_spare(rows.n - len(chosen))
        # the exact posterior of some rows has then seen few of those that judge
        self.apart = self.spared or rows.n >= 2 * MORE_ROWS
        if self.spared:
            self.training = without(rows, chosen)
        else:
            chosen = np.sort(fixed_indices(seed, _JUDGING_ROWS, rows.n, _MOST_SPARED))
            self.training, groups = rows, None
        self.chosen = chosen
        self._places = Places.of(groups, chosen)
        self.rows = self._with(*rows.take(chosen))

    def __call__(self, name: str, answer: Answer, model: Any, run: Run) -> Judged:
        """Return an answer and its scores; the model is left as it was."""
        trial = model._copy(keep=True)
        trial.answer_ = name
        with run.timed("posterior"):
            trial._keep(answer, run)
        alone = name == SUBSET and not self.spared and _is_of_all(trial.posterior_, self.training)
        if alone:
            # rows of the fit would flatter whoever follows them: each is given by all others
            scores = trial.posterior_.leave_one_out().log_density[self.chosen]
        else:
            scores = _densities(trial, self.rows, run)
        left_out, likelihood = None, answer.likelihood
        # of few rows the line is an average, of which there is no such thing
        line = isinstance(trial.posterior_, LinearPosterior)
        if line and not self.spared and isinstance(likelihood, Gaussian):
            # of 1875 rows with 300 columns a line said 0.2 nats more than of new ones
            X, y = standardised_rows(self.rows, trial.standardizer_, np.arange(self.rows.n))
            given = trial.posterior_.leave_one_out(X, y, float(likelihood.noise_variance))
            left_out = self._places.means(given.log_density)
        fair = alone or self.spared
        scores = self._places.means(scores)
        return Judged(name, answer, trial.__dict__, scores, fair, left_out)

    def at_best_scale(self, answer: Answer, model: Any) -> Answer:
        """Return the exact posterior of some rows with all variances times what rows kept out say of them.

        ``log p(y_i | s) = -1/2 z_i^2 / s - 1/2 log s`` is largest at the mean of ``z_i^2``, squares of distances in
        deviations; but 95 % intervals are to hold most of the rows, whatever a few far ones make of that.
        """
        posterior, likelihood = answer.posterior(), answer.likelihood
        if not isinstance(likelihood, Gaussian) or not isinstance(posterior, ExactPosterior):
            return answer
        if not self.spared or observations.has_own_noise(self.training.y):
            return answer
        X, y = standardised_rows(self.rows, model.standardizer_, np.arange(self.rows.n))
        mean, variance = posterior.mean_and_latent_variance(X)
        z = processes.from_first((y - mean) / np.sqrt(variance + float(likelihood.noise_variance)))
        squares = self._places.means(z**2)
        scale, error = float(np.mean(squares)), float(np.std(squares)) / len(squares) ** 0.5
        if not abs(scale - 1.0) > _DOUBT * error:
            scale = 1.0
        scale = max(scale, float(np.quantile(squares, _HELD)) / _WITHIN**2)
        if scale == 1.0 or not np.isfinite(scale):
            return answer
        scaled = posterior.at_scale(scale)
        return simple_answer(scaled.kernel, Gaussian(scaled.noise_variance), scaled)

    def is_astray(self, own: Judged, rival: Judged, exact: Judged, model: Any, run: Run) -> bool:
        """Return whether an answer contradicts the exact posterior of the same rows where there are none.

        There are inputs whose columns are those of the rows, each in an order of its own, and targets drawn from the
        exact posterior: what the answer's mean log density lacks there is its divergence from that. A method of few
        functions, or with a search of its own, can follow rows closely and be sure of what is between them. A rival
        that is not the exact posterior is one that an answer is not to be behind.
        """
        generator = np.random.default_rng([run.seed, _IMAGINING])
        X = self.training.take(np.arange(self.training.n))[0]
        X = np.stack([generator.choice(column, _IMAGINED) for column in X.T], axis=1)
        trials = []
        for each in (own, rival, exact):
            trials.append(object.__new__(type(model)))
            trials[-1].__dict__ = each.attributes
        levels = generator.uniform(size=(1, _IMAGINED))
        places = self._with(X, np.zeros(_IMAGINED))
        y = trials[2]._reader("_predictive")(places).quantiles(levels)[0]
        rows = self._with(X, y)
        scores = [float(np.mean(_densities(trial, rows, run))) for trial in trials[:2]]
        doubt = _ASTRAY if rival is exact else _CLEARLY
        return not scores[0] >= scores[1] - doubt  # NaN is astray

    def _with(self, X: np.ndarray, y: Any) -> Rows:
        """Return rows with the names of these."""
        return Rows(X, y, self.training.feature_names, self.training.target_name, checked=True)


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
    judge = Judge(model, rows, run.seed)

    def simple(name: str) -> list[Judged]:
        try:
            with run.timed("comparison"):
                answer = SIMPLE[name](model, judge.training, run, own)
                if answer is not None and name == SUBSET:
                    answer = judge.at_best_scale(answer, model)
        except _NUMERICAL:
            return []  # the others stand
        return [] if answer is None else [judge(name, answer, model, run)]

    # while rows are kept out something stands before the method begins, whatever becomes of it
    failure, own = None, None
    found, exact = simple(LINEAR) if judge.spared else [], []
    run.hold_back(max(_FOR_THE_END, _SHARE_FOR_THE_END * (run.max_seconds or 0.0)))
    program = type(model), padded_size(judge.training.n), judge.training.d
    compiling = model._compiling_seconds * (_ON_DEVICE if _accelerator.is_present() else 1.0)
    run.needs = _WARM if program in _compiled else compiling
    try:
        last = model._last_answer(judge.training, run)
        found.append(judge(OWN, last, model, run))
        own = last
        _compiled.add(program)
    except (*_NUMERICAL, OutOfTime) as error:
        failure = error
    # a method that takes more rows later may have some of them now, unless it has no answer to add them to
    grows = own is not None and hasattr(model, "partial_fit")
    line = is_open = False
    if not judge.spared:
        # its evidence has spoken against one noise, which the simple answers have
        varies = own is not None and own.likelihood.num_latent > 1
        held = not varies and (not grows or num_places(judge.training) < _FEWER_PLACES)
        with run.timed("comparison"):
            few = average_of_few(model, judge.training, run) if held else None
        if few is not None:
            answer = simple_answer(few.kernel, few.likelihood, few.posterior)
            exact = [judge(AVERAGE, answer, model, run)]
        line = processes.agreed(few is not None and few.is_linear and not grows)
        is_open = processes.agreed(few is not None and few.is_open and not grows)
    beside = own is not None and not grows and _is_beside_exact(found[-1], judge.training, run)
    if beside and not exact:
        exact = [each for each in simple(SUBSET) if each.is_exact_of(judge.training)]
    astray, lines = False, []
    if own is not None and exact:
        # functions of no kernel are no approximation of the process: they are not to be behind a line, in its eyes
        lines = simple(LINEAR) if own.kernel is None else []
        rival = (lines or exact)[0]
        astray = judge.is_astray(found[-1], rival, exact[0], model, run)
    if not judge.spared:
        finished = own is not None and own.converged and np.isfinite(found[0].score)
        if finished and not (line or is_open or astray):
            return _keep(model, found[0], found)
        found += lines or simple(LINEAR)
        if line and found and found[-1].name == LINEAR:
            return _keep_for(model, found[-1], found, own, _FOR_LINE)
    if is_open or astray:
        because = _FOR_AVERAGE if is_open else _FOR_BEHIND if lines else _FOR_EXACT
        return _keep_for(model, exact[0], found + exact, own, because)
    found += exact or simple(SUBSET)
    if not found:
        assert failure is not None
        raise failure
    return _keep(model, _best(found, judge.apart), found, own, failure)


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


def _repetitions(rows: Rows) -> np.ndarray | None:
    """Return the group of each row, see `repeated`; None where there are none, or they would cost too much."""
    if not rows.in_memory or rows.n * rows.d > _COMPARED_ENTRIES:
        return None
    return repeated(rows.take(np.arange(rows.n))[0])


def _has_copies(rows: Rows) -> bool:
    """Return whether many of some rows repeat another to the last digit, target included."""
    X, y = rows.take(np.arange(rows.n))
    return len(np.unique(np.column_stack([X, y]), axis=0)) <= (1.0 - _COPIES) * rows.n  # type: ignore[list-item]


def _densities(model: Any, rows: Rows, run: Run) -> np.ndarray:
    """Return what a fitted model says of rows (of several processes, the first), its time counted as comparison."""
    with run.timed("comparison"), np.errstate(all="ignore"):
        return processes.from_first(model._log_densities(rows))


def _best(found: list[Judged], apart: bool) -> Judged:
    """Return the answer of the highest score: the method's own unless another is clearly better.

    Where the method has converged, at its full size, it must be so beyond doubt. Rows of the fit itself flatter whoever
    follows them most closely: unless the judging rows are ``apart`` from most of those of the rivals, a method gives
    way only where it says less than linear functions do, or than who is given each row by the others.
    """
    own = next((each for each in found if each.name == OWN), None)
    others = [each for each in found if each.name != OWN]
    best = max(others, key=lambda each: each.of_others, default=own)
    assert best is not None
    if own is None or not np.isfinite(own.score):
        return best
    rival, needed = max(found, key=lambda each: each.score), _CLEARLY
    if rival is own:
        return own
    if not apart:
        rivals = [each for each in found if each.name == LINEAR or each.fair]
        rival = max(rivals, key=lambda each: each.score, default=best)
    if own.answer.converged and not own.answer.cut:
        error = float(np.std(rival.scores - own.scores)) / np.sqrt(len(own.scores))
        needed = max(needed, _DOUBT * error)
    return own if rival.score - own.score < needed else best


def _keep_for(
    model: Any, best: Judged, found: list[Judged], own: Answer | None, because: str
) -> Answer:
    """Set the attributes of a simple answer of few rows, whatever the scores of these are."""
    answer = _keep(model, best, found, own)
    ended = "" if own is None else f"{own.reason.rstrip('.')}. "
    model.stop_reason_ = f"{ended}{because}, which is the answer"
    model.converged_ = own is not None and own.converged
    return replace(answer, reason=model.stop_reason_, converged=model.converged_)


def _keep(
    model: Any,
    best: Judged,
    found: list[Judged],
    own: Answer | None = None,
    failure: Exception | None = None,
) -> Answer:
    """Set the attributes of an answer, and say why it is not the method's own, where it is not."""
    of_method = next((each.attributes for each in found if each.name == OWN), {})
    # what the method found of itself stays readable
    steps = {name: of_method[name] for name in ("n_iter_", "history_") if name in of_method}
    model.__dict__ = {**of_method, **best.attributes, **steps}
    model.scores_ = {each.name: each.score for each in found}
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
