"""The front door for targets with heaps: a race of classifiers, one of regressors, and what both say together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vastgp._warn import warn
from vastgp.auto.calibration import Calibration, Conformal, Identity
from vastgp.auto.candidates import Candidate
from vastgp.auto.class_candidates import classifier_of
from vastgp.auto.classifier import GPClassifier
from vastgp.auto.distribution import FARTHEST, SHOWN_LEVEL, Distribution, interval_levels
from vastgp.auto.finish import Whole
from vastgp.auto.folds import Fold
from vastgp.auto.heaps.distribution import (
    HeapedDistribution,
    heaped_log_density,
    heaped_moments,
    heaped_scores,
    nearest_scores,
)
from vastgp.auto.heaps.rule import TWO_PART, Heap
from vastgp.auto.inputs import Inputs
from vastgp.auto.reading_targets import called_target
from vastgp.auto.several import SeveralTargets
from vastgp.auto.track import Judged, Ran, Track, scores_of
from vastgp.data import Rows, observations
from vastgp.data.archive import above, below
from vastgp.data.observations import has_errors
from vastgp.data.row_weights import with_log_weights
from vastgp.estimators.arguments import seed_from

# Share of the budget for which part a row is of: the rest has scales of the target and more candidates to compare.
_SHARE = 1.0 / 3.0


@dataclass(frozen=True)
class Racing:
    """What is known of the first part while the second is looked for.

    Attributes
    ----------
    best : Ran
        What won the race of the classifiers; its model is of the last fold.
    proba : ndarray of shape (m, K + 1)
        Calibrated probabilities at the held-out rows, in the order of the folds.
    """

    best: Ran
    proba: np.ndarray


class TwoParts(SeveralTargets):
    """What the front door for numbers does where a target has heaps: ``model_`` is of the rest, ``at_heap_`` of which.

    Both read the same encoded rows and are judged by the same held-out ones.
    """

    likelihood: Any
    calibrate: Any
    calibration_: Calibration
    heap_: Heap | None
    at_heap_: GPClassifier | None
    rest_calibration_: Calibration | None
    interval_calibration_: Calibration | None
    _racing: Racing | None = None

    # ------------------------------------------------------------ whether there are heaps

    def _heap_of(self, targets: np.ndarray, counts: bool) -> Heap | None:
        """Return the heaps of a target that is to be modelled in two parts; None of others."""
        if isinstance(self.likelihood, str) and self.likelihood == TWO_PART:
            self._refuse(targets)
            return Heap.asked(observations.targets(targets), called_target(self.target_name_))
        automatic = isinstance(self.likelihood, str) and self.likelihood == "auto"
        if not automatic or self.method != "auto" or observations.has_exposure(targets):
            return None
        found = Heap.of(observations.targets(targets), counts)
        if found is None or not has_errors(targets):
            return found
        why = "known errors"
        warn(
            f"{found.in_words(called_target(self.target_name_)).split(':')[0]}, but {why} cannot be had with a model "
            "of two parts: all rows are modelled by one density, of which nothing is right at the repeated value. "
            f"Leave {why} out, or set likelihood='gaussian' to say that this is meant."
        )
        return None

    def _refuse(self, targets: np.ndarray) -> None:
        """Refuse what a model of two parts cannot have."""
        for given, what, why in (
            (observations.has_exposure(targets), "exposure", "is of counts, whose zeros have a law of their own"),
            (has_errors(targets), "noise_std", "leaves open which rows are at the repeated value"),
        ):  # fmt: skip
            if given:
                raise ValueError(
                    f"likelihood={TWO_PART!r} and {what} were given together: {what} {why}. Leave one of them out."
                )

    @property
    def _law(self) -> Any:
        """The likelihood that is asked for: of the rest, where there are two parts."""
        asked = isinstance(self.likelihood, str) and self.likelihood == TWO_PART
        return "auto" if asked else self.likelihood

    # ------------------------------------------------------------ fit

    def _find(
        self, inputs: Inputs, targets: np.ndarray, held: list[Fold], seed: int, deadline: float | None
    ) -> Ran | None:  # fmt: skip
        self.at_heap_ = self.rest_calibration_ = self.interval_calibration_ = None
        if self.heap_ is None:
            return super()._find(inputs, targets, held, seed, deadline)
        y = observations.targets(targets)
        rest = y[~self.heap_.holds(y)]
        # how far the rest reaches says no heap, such as a -999 among prices
        self.target_range_ = float(rest.min()), float(rest.max())
        which = self.at_heap_ = self._classifier(observations.has_own_noise(targets))
        which._in_time = self._in_time
        began = time.perf_counter()
        until = None if deadline is None else began + _SHARE * (deadline - began)
        classes = self.heap_.classes_of(y)
        best = which._find(inputs, with_log_weights(targets, classes), held, seed, until)
        assert best is not None
        assert best.judged is not None
        which.fit_seconds_ = time.perf_counter() - began
        self._racing = Racing(best, which.calibration_.transform(best.judged.scores))
        targets = self._with_weights_of_rest(targets)
        parts = [(fold.training, fold.held_out) for fold in held]
        found = super()._find(inputs.for_targets(targets, parts), targets, held, seed, deadline)
        del self._racing  # back to the class's own: None
        return found

    def _with_weights_of_rest(self, targets: np.ndarray) -> np.ndarray:
        """Return targets, their weights divided by the mean of those of the rest: its noise is of such a row."""
        if not observations.has_own_noise(targets):
            return targets
        assert self.heap_ is not None
        rest, found = ~self.heap_.holds(targets[:, 0]), targets.copy()
        found[:, 1] *= np.mean(1.0 / targets[rest, 1])
        return found

    def _weights_of_score(self, y: np.ndarray) -> np.ndarray | None:
        """Return what rows count in scores, where there are heaps and weights: the same in both parts."""
        if self.heap_ is None or not observations.has_own_noise(y):
            return None
        return 1.0 / observations.inverse_weights(y)

    def _classifier(self, weighted: bool) -> GPClassifier:
        """Return what is to tell which part a row is of."""
        assert self.heap_ is not None
        which = GPClassifier(
            method=classifier_of(self.method, weighted), max_seconds=self.max_seconds,
            max_work=None if self.max_work is None else max(int(_SHARE * self.max_work), 2),
            calibrate=None if self.calibrate in (None, "conformal") else "auto",
            encoder=self.encoder, space=self.space, random_state=self.random_state, verbose=self.verbose,
        )  # fmt: skip
        which.classes_, which.target_name_ = self.heap_.labels, self.target_name_
        which.target_range_ = (0.0, float(len(self.heap_.values)))
        which.n_rows_dropped_ = self.n_rows_dropped_
        which.n_rows_left_out_ = self.n_rows_left_out_
        return which

    @property
    def _work(self) -> int | None:
        whole = self.max_work
        return whole if whole is None or self.heap_ is None else max(int((1.0 - _SHARE) * whole), 2)

    def _taught_by(self, rows: Rows) -> Rows:
        if self.heap_ is None:
            return rows
        rest = np.flatnonzero(~self.heap_.holds(observations.targets(np.asarray(rows.y))))
        return Rows(np.asarray(rows.X)[rest], np.asarray(rows.y)[rest], checked=True)

    def _fitted_to_all(
        self, best: Ran | None, candidates: Sequence[Candidate], whole: Whole
    ) -> Any:
        # both parts read what one encoder makes: where one stays that of the race, the other does
        which = self.at_heap_
        if which is not None and which.encoder_ is not whole.inputs.encoder_of_whole:
            return None
        return super()._fitted_to_all(best, candidates, whole)

    def _settle(
        self, best: Ran | None, candidates: Sequence[Candidate], whole: Whole, track: Track
    ) -> None:
        super()._settle(best, candidates, whole, track)
        which, heap, racing = self.at_heap_, self.heap_, self._racing
        if which is None or heap is None or racing is None:
            return
        assert best is not None
        assert best.judged is not None
        y = observations.targets(whole.y)[track.order]
        if self.encoder_ is not which.encoder_:
            which.model_, which.encoder_ = racing.best.model, self.encoder_
            which.calibration_ = which._calibration(
                racing.best.judged, heap.classes_of(y), track.seed
            )
        self.rest_calibration_, self.calibration_ = self.calibration_, Identity()
        judged = self._together(best.judged, racing.proba, y)
        if self.calibrate == "conformal":
            finite = np.clip(best.judged.scores, -FARTHEST, FARTHEST)
            nearest = nearest_scores(np.asarray(heap.values), racing.proba, y, finite)
            self.interval_calibration_ = Conformal.fit(nearest, best.judged.places.shares())
        self.held_out_ = self._of_held_out(judged, y, whole.inputs, track)

    # ------------------------------------------------------------ what both parts say

    def _of_rest(self, y: np.ndarray) -> np.ndarray:
        """Return which held-out rows are at no heap, (n,): the regressor is calibrated by them."""
        return np.ones(len(y), dtype=bool) if self.heap_ is None else ~self.heap_.holds(y)

    def _of_parts(self, judged: Judged, X: np.ndarray, y: np.ndarray) -> Judged:
        """Return what the whole says of rows, of what its regressor does.

        In the race of the regressors the first part's term of the score is the same for all: it is left out.
        """
        if self.heap_ is None:
            return judged
        if self._racing is not None:
            density = np.where(self.heap_.holds(y), 0.0, judged.log_density)
            return replace(judged, log_density=density)
        return self._together(judged, self._proba_of_parts(X), y)

    def _proba_of_parts(self, X: np.ndarray) -> np.ndarray:
        assert self.at_heap_ is not None
        return self.at_heap_._proba(Rows(X, checked=True))

    def _together(self, judged: Judged, proba: np.ndarray, y: np.ndarray) -> Judged:
        """Return what both parts say of rows together.

        Parameters
        ----------
        judged : Judged
            By the rest, before its calibration.
        proba : ndarray of shape (n, K + 1)
        y : ndarray of shape (n,)
        """
        assert self.heap_ is not None
        values = np.asarray(self.heap_.values)
        calibration = Identity() if self.rest_calibration_ is None else self.rest_calibration_
        finite = np.clip(judged.scores, -FARTHEST, FARTHEST)
        density = judged.log_density + calibration.log_density_change(finite)
        mean, std = heaped_moments(values, proba, judged.mean, judged.std * calibration.std_factor)
        ends = np.cumsum([len(one.model.mean) for one in judged.found])
        found = tuple(
            HeapedDistribution(replace(one, calibration=calibration), values, own)
            for one, own in zip(judged.found, np.split(proba, ends[:-1]), strict=False)
        )
        return Judged(
            heaped_log_density(values, proba, y, density),
            (y - mean) ** 2,
            heaped_scores(values, proba, y, calibration.scores(finite)),
            mean,
            std,
            judged.weight,
            of_places=judged.of_places,
            found=found,
        )

    def _intervals_of(self, judged: Judged) -> np.ndarray:
        """Return the ends of calibrated intervals of held-out rows, (2, n), as a report shows them."""
        levels = interval_levels(SHOWN_LEVEL)
        return np.concatenate([self._calibrated(one).quantiles(levels) for one in judged.found], 1)

    def _calibrated(
        self, found: Distribution | HeapedDistribution
    ) -> Distribution | HeapedDistribution:
        if isinstance(found, HeapedDistribution):
            return replace(found, intervals=self.interval_calibration_)
        return replace(found, calibration=self.calibration_)

    def _as_shown(self, ran: list[Ran], track: Track, y: np.ndarray) -> list[Ran]:
        if self._racing is None or self.heap_ is None:
            return super()._as_shown(ran, track, y)
        held = observations.targets(y)[track.order]
        return [self._with_scores(one, self._racing.proba, held) for one in ran]

    def _with_scores(self, one: Ran, proba: np.ndarray, y: np.ndarray) -> Ran:
        """Return a candidate with the scores of the whole, the winner of the classifiers beside it."""
        if one.judged is None:
            return one
        assert self.heap_ is not None
        judged, rest = self._together(one.judged, proba, y), ~self.heap_.holds(y)
        scores = scores_of(judged, False, 1.0)
        # a density has a unit, a mass has none
        unit = float(np.std(y)) or 1.0
        rest = judged.by_place(rest)
        scores["nlpd_standardised"] = scores["nlpd"] - float(np.mean(rest) * np.log(unit))
        return replace(one, entry=replace(one.entry, **scores), judged=judged)

    def _judge_of_race(self, best: Ran) -> Callable[[np.ndarray, np.ndarray], Judged]:
        plain, racing, which = super()._judge_of_race(best), self._racing, self.at_heap_
        if racing is None or which is None:
            return plain

        def judge(X: np.ndarray, y: np.ndarray) -> Judged:
            raw = which._of_all(racing.best.model, racing.best.model.predict_proba(X))
            proba = which.calibration_.transform(raw)
            return self._together(plain(X, y), proba, observations.targets(y))

        return judge

    def _whole_of(self, rest: Distribution, X: np.ndarray) -> Distribution | HeapedDistribution:
        """Return the distribution of both parts at encoded rows, of that of the rest."""
        if self.heap_ is None:
            return rest
        assert self.rest_calibration_ is not None
        calibrated = replace(rest, calibration=self.rest_calibration_)
        return HeapedDistribution(
            calibrated,
            np.asarray(self.heap_.values),
            self._proba_of_parts(X),
            self.interval_calibration_,
        )

    def _with_heaps_drawn(self, drawn: np.ndarray, X: np.ndarray, random_state: Any) -> np.ndarray:
        """Return samples of the rest, (n, s), in which each row is at a heap with its probability."""
        if self.heap_ is None:
            return drawn
        values = np.asarray(self.heap_.values)
        reached = np.cumsum(self._proba_of_parts(X), axis=1)
        place = np.random.default_rng([seed_from(random_state), 6]).uniform(size=drawn.shape)
        part = np.sum(place[:, :, None] >= reached[:, None, :-1], axis=2)
        return np.where(part < len(values), values[np.minimum(part, len(values) - 1)], drawn)

    @property
    def _words_of_parts(self) -> str:
        """What the leaderboard's scores are of, where there are two parts."""
        which = self.at_heap_
        if self.heap_ is None or which is None:
            return ""
        values = ", ".join(f"{value:g}" for value in self.heap_.values)
        first = which.leaderboard_[0]
        return (
            f"models of the rows elsewhere than at {values}; which these are, {first.method} says (log loss "
            f"{first.nlpd:.4g}, at_heap_.leaderboard_). Scores are of both together: log mass at {values}, log "
            "density elsewhere"
        )

    # ------------------------------------------------------------ files

    def _to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        header, arrays = super()._to_file()
        which = vars(self).get("at_heap_")
        if which is None:
            return header, arrays
        of_which, own = which._to_file()
        return header | {"at_heap": of_which}, arrays | above("at_heap/", own)

    def _more_of_parts(self) -> dict[str, Any]:
        """Return what a file's header says of the parts."""
        if self.heap_ is None or self.rest_calibration_ is None:
            return {}
        found = {
            "heap": self.heap_.to_dict(),
            "rest_calibration": self.rest_calibration_.to_state(),
        }
        if self.interval_calibration_ is not None:
            found["interval_calibration"] = self.interval_calibration_.to_state()
        return found

    def _read_parts(self, header: dict[str, Any]) -> None:
        """Set what `_more_of_parts` wrote."""
        self.heap_ = self.at_heap_ = None
        self.rest_calibration_ = self.interval_calibration_ = None
        if "interval_calibration" in header:
            self.interval_calibration_ = self._calibration_from(header["interval_calibration"])
        if "heap" in header:
            self.heap_ = Heap.from_dict(header["heap"])
            self.rest_calibration_ = self._calibration_from(header["rest_calibration"])

    @classmethod
    def _from_file(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        model = super()._from_file(header, arrays)
        if "at_heap" in header:
            model.at_heap_ = GPClassifier._from_file(header["at_heap"], below("at_heap/", arrays))
            model.leaderboard_ = replace(model.leaderboard_, note=model._notes_of_leaderboard)
        return model
