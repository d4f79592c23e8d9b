"""What the front door does for any target: models race on a table, the winner is fitted to all rows and calibrated."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from vastgp._arguments import check_arguments
from vastgp.auto.budget import RACE, dealt
from vastgp.auto.candidates import Candidate, alone
from vastgp.auto.finish import Whole, fit_to_all, is_alike, most_rows_of, with_names_of
from vastgp.auto.fitted import FittedFrontDoor
from vastgp.auto.folds import Fold, folds_of, some_rows, with_every_class, with_every_gap
from vastgp.auto.inputs import Inputs, as_new, names_of_inputs
from vastgp.auto.many_rows import affordable, asking_in_time
from vastgp.auto.race import board_of, rows_seen, run_alone, run_race
from vastgp.auto.reading_targets import check_rows, check_values
from vastgp.auto.report.kept import (
    NO_ROWS,
    Kept,
    held_out_columns,
    importance_of_race,
    some_encoded,
    spent_by,
)
from vastgp.auto.series import folds_in_time, stretches, to_go_on_from
from vastgp.auto.stacking import stack_of
from vastgp.auto.support import RangeCheck
from vastgp.auto.taken_in import take_in, together
from vastgp.auto.track import Judged, Ran, Track
from vastgp.auto.trees import Grove, seconds_for_trees
from vastgp.auto.warps import Own
from vastgp.data import Exposure, Rows, observations
from vastgp.data.own_noise import OwnNoise
from vastgp.data.tables import open_frame
from vastgp.estimators.arguments import seed_from
from vastgp.estimators.sharing import check_processes

# Fewer rows than this are fitted once, without a race: there is nothing to judge by.
_LEAST_ROWS = 20
# Kept for what comes after the last fit.
_FOR_THE_END = 0.5
HELD_OUT_KEPT = 2000


class FrontDoor(FittedFrontDoor):
    """Base of `GPRegressor` and `GPClassifier`.

    A subclass says which candidates run, how a model is judged, and how predictions are calibrated.
    """

    # ------------------------------------------------------------ what a subclass supplies

    @abc.abstractmethod
    def _read_target(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray | None, str | None]:
        """Return targets as numbers, NaN where they are missing, those for the encoder, and the column's name."""

    @abc.abstractmethod
    def _candidates(self, rows: Rows, tied: Sequence[Sequence[int]]) -> list[Candidate]:
        """Return what may run; ``tied`` are the columns that are one input, for all inputs or for none."""

    def _warps(self, y: np.ndarray, seed: int) -> list[Own]:
        """Return the scales of the target to try."""
        del y, seed
        return [Own()]

    def _alone(self, track: Track, found: Sequence[Candidate], seconds: float) -> Candidate:
        """Return the candidate that runs where there is time for one."""
        del track
        return alone(found, seconds)

    @abc.abstractmethod
    def _judge(self, model: Any, warp: Own, rows: Rows) -> Judged:
        """Return what a model says of held-out rows."""

    @abc.abstractmethod
    def _calibration(self, judged: Judged | None, y: np.ndarray, seed: int) -> Any:
        """Return the calibration by held-out rows; none without them."""

    def _folds(self, inputs: Inputs, n: int, seed: int, budget: float | None) -> list[Fold]:
        """Return which rows are held out; none of few."""
        self._in_time, self._dates_alone = None, False
        if n < _LEAST_ROWS:
            return []
        repetitions = inputs.repetitions()
        # of few places there is nothing to judge by
        if repetitions.few_places:
            return []
        each = None if budget is None else budget / self._num_functions
        times = inputs.times()
        going_on = to_go_on_from(times, self.hold_out)
        if times is not None:
            self._in_time, self._dates_alone = going_on is not None, times.alone
        if going_on is not None:
            return folds_in_time(going_on.years, each)
        return with_every_gap(folds_of(n, seed, each, repetitions.groups), inputs.gaps())

    @property
    def _num_functions(self) -> int:
        """Functions of one model: a fit takes so many times as long."""
        return 1

    # ------------------------------------------------------------ fit

    @property
    def _work(self) -> int | None:
        """Rows that may be handed to models; None where seconds are the budget."""
        return self.max_work

    @property
    def _seconds(self) -> float | None:
        """Budget of the whole fit; None without a limit, or where rows are the budget."""
        return None if self.max_work is not None else self.max_seconds

    def _taught_by(self, rows: Rows) -> Rows:
        """Return those of training rows that models are fitted to."""
        return rows

    def _as_shown(self, ran: list[Ran], track: Track, y: np.ndarray) -> list[Ran]:
        """Return what ran with the scores that the leaderboard shows."""
        del track, y
        return ran

    def _judge_of_race(self, best: Ran) -> Callable[[np.ndarray, np.ndarray], Judged]:
        """Return what judges encoded rows and their targets by the race's model of the last fold."""
        return partial(self._judge_of, best.model, best.warp)

    def _look_at(self, targets: np.ndarray, rows: np.ndarray, own: OwnNoise | Exposure) -> None:
        """Look at the targets of rows, by their numbers, and at what these have of their own, before any model does."""

    def _fit_whole(self, X: Any, y: Any, own_noise: OwnNoise | Exposure) -> Any:
        """Fit on a copy, which takes the place of the estimator when it is complete."""
        began = time.perf_counter()
        check_arguments(self)
        work = clone(self)
        work.__dict__ |= {
            name: value for name, value in self.__dict__.items() if name.startswith("_")
        }
        check_processes(work)
        work._fit(X, y, began, own_noise)
        work.fit_seconds_ = time.perf_counter() - began
        self.__dict__ = work.__dict__
        return self

    def _fit(self, X: Any, y: Any, began: float, own_noise: OwnNoise | Exposure) -> None:
        seed = seed_from(self.random_state)
        X, own_noise = own_noise.read_columns(open_frame(X))
        targets, for_encoder, self.target_name_ = self._read_target(X, y)
        self.n_rows_dropped_ = int(np.sum(np.isnan(targets)))
        counts = own_noise.counting(np.isfinite(targets))
        check_rows(int(counts.sum()), self.n_rows_dropped_, self.target_name_)
        present = np.flatnonzero(counts)
        encoder = self._encoder_asked()
        inputs = Inputs.of(X, encoder, self.target_name_, present, for_encoder, len(targets))
        classes = targets[present] if self._classes else None
        inputs = asking_in_time(affordable(inputs, classes, self._seconds, seed), self._seconds)
        taken = inputs.in_table()
        self.n_rows_left_out_ = len(present) - len(taken)
        counts[:] = False
        counts[taken] = True
        targets = own_noise.of_targets(targets, counts)
        self._look_at(targets, taken, own_noise)
        self.target_range_ = _extremes(targets)
        check_values(observations.targets(targets), self.target_range_, self.target_name_)
        budget = self._seconds
        deadline = None if budget is None else began + float(budget) - _FOR_THE_END
        held = self._folds(inputs, len(targets), seed, budget)
        if self._classes:
            held = with_every_class(held, observations.targets(targets))
        self._find(inputs, targets, held, seed, deadline)

    def _find(
        self,
        inputs: Inputs,
        targets: np.ndarray,
        held: list[Fold],
        seed: int,
        deadline: float | None,
    ) -> Ran | None:
        """Find a model for opened inputs, by the rows of the folds; return what won the race, if there was one."""

        def encoded(number: int) -> tuple[Rows, Rows, Sequence[Sequence[int]]]:
            training, held_out, tied = inputs.fold(
                number, held[number].training, held[number].held_out, targets
            )
            return self._taught_by(training), held_out, tied

        grove = Grove(
            inputs,
            int(np.max(observations.targets(targets))) + 1 if self._classes else 0,
            seed,
            seconds_for_trees(self._seconds),
            bool(self._in_time),
        )
        whole = Whole(inputs, targets, grove, deadline, self._taught_by)
        first, tied = encoded(0)[::2] if held else whole.rows()
        track = Track(held, encoded, self._judge, seed, self._classes, grove.of_fold)
        if held:
            groups, _, design = inputs.repetitions()
            if self._in_time and (times := inputs.times()) is not None:
                # what few paths were like narrows no interval of others
                groups, design = stretches(times.years, held), True
            track = replace(track, groups=groups, design=design)
        # before the race, as it may be another pass over a file
        self.kept_ = Kept(columns=held_out_columns(inputs, track.order[:HELD_OUT_KEPT]))
        candidates = self._candidates(first, tied)
        ran, winner = self._stacked(
            *self._run(track, candidates, targets, deadline), track, targets
        )
        shown = self._as_shown(ran, track, targets)
        self.leaderboard_ = replace(
            board_of(shown, winner, self._classes), note=self._notes_of_leaderboard
        )
        if held and winner is None:
            notes = "; ".join(f"{one.candidate.name}: {one.entry.note}" for one in ran)
            raise ValueError(f"No model could be fitted to these rows. {notes}")
        best = None if winner is None else ran[winner]
        again = with_names_of(best, candidates)
        if self._work is not None:
            spent = sum(one.entry.rows for one in ran if not one.members) * len(held)
            most = max((self._work - spent) // len(again), 2)
            again = [one.with_at_most(most) for one in again]
        self._settle(best, again, whole, track)
        return best

    def _run(
        self, track: Track, candidates: list[Candidate], y: np.ndarray, deadline: float | None
    ) -> tuple[list[Ran], int | None]:
        """Run the race, or one model where there is no time for more."""
        if not track.folds:
            return [], None
        left = None if deadline is None else deadline - time.perf_counter()
        warps = self._warps(y, track.seed)
        deal = dealt(left, len(y), candidates, len(warps))
        common: dict[str, Any] = {"y_scale": _deviation(y), "verbose": bool(self.verbose)}
        if deadline is not None and not deal.races:
            of_scales = candidates[0] if deal.compares_scales else None
            chosen = self._alone(track, candidates, deadline - time.perf_counter())
            left = deadline - time.perf_counter()  # a comparison takes some of it
            quick = next((one for one in candidates if one.quick), None)
            return run_alone(track, chosen, of_scales, quick, warps, left, **common)
        if self._work is not None:
            most = int(RACE * self._work / (len(candidates) * len(track.folds)))
            candidates = [one.with_at_most(max(most, 2)) for one in candidates]
        until = None if deal.of_race is None else time.perf_counter() + deal.of_race
        return run_race(track, candidates, warps, deadline=until, least=deal.least, **common)

    def _stacked(
        self, ran: list[Ran], winner: int | None, track: Track, y: np.ndarray
    ) -> tuple[list[Ran], int | None]:
        """Return what ran with a stack of it, and its number, where that is better than the winner alone."""
        if winner is None or len(ran) == 1:
            return ran, winner
        found = stack_of(
            ran, winner, observations.targets(y)[track.order], classes=self._classes,
            y_scale=_deviation(y), seed=track.seed,
        )  # fmt: skip
        return (ran, winner) if found is None else ([*ran, found], len(ran))

    def _settle(
        self,
        best: Ran | None,
        candidates: Sequence[Candidate],
        whole: Whole,
        track: Track,
    ) -> None:
        """Fit the winner to all rows if there is time, and calibrate it by the rows that were held out."""
        seed, order, inputs, y = track.seed, track.order, whole.inputs, whole.y
        importance: tuple[Any, ...] = ((), NO_ROWS)
        if best is not None:
            judge = self._judge_of_race(best)
            importance = importance_of_race(judge, inputs, whole.deadline, seed)
        self.warp_ = Own() if best is None else best.warp
        model = self._fitted_to_all(best, candidates, whole)
        if model is None:
            assert best is not None
            last = inputs.folds - 1
            self.model_, self.encoder_ = best.model, inputs.encoder_of_fold(last)
            rows, shown = inputs.training_rows(last), inputs.held_out_rows(last).X
            if self._takes_in(whole):
                rows = together(rows, inputs.held_out_rows(last))
        else:
            self.model_, self.encoder_ = model, inputs.encoder_of_whole
            rows = inputs.whole(y)[0]
            shown = rows.X[order] if len(order) else rows.X
            rows = some_rows(rows, most_rows_of(candidates), seed, self._classes)
        held_out = observations.targets(y)[order]
        judged = None if best is None else best.judged
        alike = model is None or best is None or is_alike(model, best)
        telling = judged if alike or self.calibrate != "auto" else None
        self.calibration_ = self._calibration(telling, held_out, seed)
        self.held_out_ = {}
        if judged is not None:
            self.held_out_ = self._of_held_out(judged, held_out, inputs, track)
        self.kept_ = replace(
            self.kept_, encoded=some_encoded(as_new(self.encoder_, shown), seed),
            importance=importance[0], without=importance[1],
            rows=len(y), rows_used=rows_seen(self.model_, rows.n), spent=() if model is None else spent_by(model),
        )  # fmt: skip
        self._remember(rows, inputs, seed)

    def _of_held_out(
        self, judged: Judged, y: np.ndarray, inputs: Inputs, track: Track
    ) -> dict[str, np.ndarray]:
        """Return what is kept of the held-out rows; of those that are the last, which were forecast together."""
        found = judged.to_arrays(y, inputs.in_table(track.order), HELD_OUT_KEPT)
        if judged.found:
            found |= zip(
                ("low", "high"), self._intervals_of(judged)[:, :HELD_OUT_KEPT], strict=True
            )
        return found | ({"span": track.span[:HELD_OUT_KEPT]} if self._in_time else {})

    def _intervals_of(self, judged: Judged) -> np.ndarray:
        """Return the ends of calibrated intervals of held-out rows, (2, n), of a target that has some."""
        raise NotImplementedError

    def _fitted_to_all(
        self, best: Ran | None, candidates: Sequence[Candidate], whole: Whole
    ) -> Any:
        """Return the winner fitted to all rows; None where that of the race is to stay."""
        return fit_to_all(best, candidates, whole, self.warp_)

    def _takes_in(self, whole: Whole) -> bool:
        """Condition the race's model on the rows that judged it, too, if it can; return whether it did."""
        if self._work is not None:
            return False  # rows are what it has
        held_out = self._taught_by(whole.inputs.held_out_rows(whole.inputs.folds - 1))
        return take_in(self.model_, held_out, self.encoder_, self.warp_, whole.seconds_left)

    def _remember(self, rows: Rows, inputs: Inputs, seed: int) -> None:
        """Keep what the training rows cover, and what their columns are called."""
        names = names_of_inputs(self.encoder_, rows.d)
        X = as_new(self.encoder_, rows.X)
        self.support_ = RangeCheck.fit(X, self._lengthscales(), names, seed)
        self.n_features_in_ = inputs.num_columns
        if inputs.names is not None:
            self.feature_names_in_ = np.asarray(inputs.names, dtype=object)

    def _judge_of(self, model: Any, warp: Own, X: np.ndarray, y: np.ndarray) -> Judged:
        return self._judge(model, warp, Rows(X, y, checked=True))


def _deviation(y: np.ndarray) -> float:
    """Return the deviation of targets, one where they are constant."""
    return float(np.std(observations.targets(y))) or 1.0


def _extremes(y: np.ndarray) -> tuple[float, float]:
    found = observations.targets(y)
    return float(found.min()), float(found.max())
