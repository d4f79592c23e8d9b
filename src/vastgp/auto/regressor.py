"""`GPRegressor`: a table of numbers to predict, and a model for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vastgp.auto import candidates
from vastgp.auto.calibration import (
    Calibration,
    Identity,
    calibration_from_state,
    check_method,
    fit_calibration,
)
from vastgp.auto.calibration_record import CalibrationRecord, calibration_record
from vastgp.auto.counts import are_counts, have_a_law
from vastgp.auto.exposures import FittedExposure, check_counts, refuse_noise
from vastgp.auto.heaps import TWO_PART
from vastgp.auto.messages import warn_of_index
from vastgp.auto.predictions import Predictions
from vastgp.auto.reading_targets import numbers_and_name
from vastgp.auto.report.places import grouped
from vastgp.auto.several import several_targets
from vastgp.auto.stacking.by_spread import finite_spread
from vastgp.auto.track import Judged
from vastgp.auto.warps import Own, warps_to_try
from vastgp.data import Exposure, Rows, observations
from vastgp.data.observations import has_errors
from vastgp.data.own_noise import OwnNoise
from vastgp.data.tables import open_frame
from vastgp.estimators.arguments import seed_from
from vastgp.estimators.likelihood_arguments import chosen_likelihood

_OWN_LAWS = ("auto", TWO_PART)
_OF_COUNTS = "of counts: scores are of the probability of each whole number, by laws of counts and normal ones alike"
_NO_CONFORMAL = (
    "calibrate='conformal' and {} were given together: conformal intervals hold what they say for new rows that "
    "scatter as held-out ones do, and these have noise of their own, which new rows have not. Set calibrate='auto' or "
    "'scale', which know of it. Where weights are ratios of densities of inputs, since new rows are distributed "
    "otherwise, leave them out here, and see vastgp.auto.calibration.Conformal."
)


class GPRegressor(Predictions):
    """Gaussian processes for a table of any kind: encodes it, races models, calibrates the winner.

    Parameters
    ----------
    method : str, default "auto"
        "auto" races models that suit the table; the name of one (``"qsgp"``, ``"exact"``, ...) fits that one.
    max_seconds : float or None, default 60.0
        Budget of `fit`: half of it is for the race (65 % up to 1500 rows), the rest for the winner on all rows.
        None: until all have converged.
    max_work : int, optional
        A budget in rows instead of seconds, so that the same seed and data give the same result on any machine: so many
        are handed to models in all, half of them in the race. ``max_seconds`` is then not looked at.
    likelihood : str or Likelihood, default "auto"
        "auto": normal noise, and where the race finds them better, heavy tails, noise that varies, or for counts
        Poisson likelihoods; a target with heaps, values that many rows have exactly, is modelled in two parts, see
        `vastgp.auto.heaps`. "two-part" asks for that: the most frequent value is a heap then, if none stands out.
        Otherwise as in `TSVGPRegressor`, and without heaps.
    calibrate : {"auto", "scale", "student", "isotonic", "conformal", None}, default "auto"
        How intervals are corrected by held-out rows, see `vastgp.auto.calibration`; "auto" takes what predicts them
        best. "conformal" is refused where rows have unequal weights or known errors: they are not as new rows are.
    encoder : transformer, optional
        What makes numbers of the table; None: `vastgp.auto.TableEncoder`. Any transformer of scikit-learn's kind will
        do.
    space : (str or int, str or int) or mapping, optional
        Two columns that are a place, such as ``("lat", "lon")``: one input with one lengthscale, on the sphere where
        they are called latitude and longitude, see `vastgp.auto.TableEncoder`.
    hold_out : {"auto", "random", "last"}, default "auto"
        Which rows judge models and calibrate intervals: random ones, or the last by the first column of dates or years,
        which tell of forecasts. "auto": the last where rows are a series, one a day or a month without gaps, since new
        rows can only lie beyond it; a table with many rows a day is judged by random ones unless "last" is asked for.
    random_state : int, Generator or None, default 0
        Of the rows held out, and of all models.
    verbose : bool, default False
        Whether to show progress.

    Attributes
    ----------
    model_ : estimator
        The winner, fitted to encoded rows.
    leaderboard_ : Leaderboard
        What ran, with its scores on held-out rows; the winner first.
    lengthscales_km_ : dict
        Lengthscale of a place on the Earth in kilometres, by its name.
    encoder_ : transformer
    encoding_ : tuple of Column
        What was done with each column.
    warp_ : Own
        Scale that the target is modelled on: its own, logarithms, or powers.
    calibration_ : Calibration
    calibration_record_ : CalibrationRecord or None
        How often intervals held the held-out rows, by deviation and by input.
    importance_ : list of (str, float, float)
        Which inputs matter: loss of held-out log density, in nats a row, when one is shuffled, and its standard error.
    support_ : RangeCheck
        What the training rows cover, see `outside` and `drift`.
    n_rows_dropped_ : int
        Rows without a target.
    n_rows_left_out_ : int
        Rows with one that had no part in the fit: of more than the budget, or the memory, is for it takes some at
        random, see `vastgp.auto.many_rows`.
    heap_ : Heap or None
        Values that many rows have exactly, with their numbers of rows, where the target is modelled in two parts.
    at_heap_ : GPClassifier or None
        What tells which rows have them; ``model_``, ``warp_`` and the rest of these attributes are then of the other
        rows, and scores and ``calibration_record_`` of both parts together.
    rest_calibration_ : Calibration or None
        Of the levels of the rest; ``calibration_``, of the whole, is then none.
    interval_calibration_ : Calibration or None
        Of the levels of quantiles of a target with heaps, where ``calibrate="conformal"``.
    exposure_ : FittedExposure or None
        What is known of the exposures of the training rows; ``exposure_name_`` is the name of their column.
    outputs_ : dict
        Only of several targets: the fitted `GPRegressor` of each, by its name (by its number where ``y`` was an array).
        The attributes above are then dicts by target as well.
    kernel_, likelihood_, converged_, stop_reason_, n_iter_, history_, fit_seconds_
        Of the winner.

    Examples
    --------
    >>> import vastgp
    >>> model = vastgp.GPRegressor(max_seconds=60).fit("sales.parquet", "price")    # doctest: +SKIP
    >>> model.predict_interval("new.parquet", level=0.9)                            # doctest: +SKIP
    """

    # ------------------------------------------------------------ fit

    def fit(
        self,
        X: Any,
        y: Any = None,
        noise_std: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
    ) -> Any:
        """Find a model for a table, within the budget.

        Parameters
        ----------
        X : table, path or array-like of shape (n, p)
            A pandas, polars or Arrow table, the path of a Parquet or CSV file or of a folder of Parquet files, or an
            array. Columns may be numbers, booleans, categories, text, dates; values may be missing.
        y : array-like of shape (n,) or (n, k), str, or list of k str
            The target, or the name of its column. Rows whose target is missing are left out, and counted. Of several
            targets each has a model of its own (``outputs_``), found in its share of the budget.
        noise_std : array-like of shape (n,) or (n, k), str or list of k str, optional
            Known standard deviation of each row's own error, in units of the target, which adds to the learned noise;
            or the name of its column, which then is no input.
        sample_weight : array-like of shape (n,) or str, optional
            Weight of each row, or the name of its column: its learned noise has the variance ``sigma^2 / weight``.
            Rows of weight zero are left out. Of a target with heaps a row also counts by its weight where it is learned
            which rows are at one, and in scores.
        exposure : array-like of shape (n,) or (n, k), str or list of k str, optional
            For counts: how long, how much or how many each row's count was taken of, in any unit, above zero; or the
            name of its column, which then is no input. Row i has the mean ``exposure[i] * rate(x_i)``, and models of
            counts race, Poisson's and such that scatter more.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For what cannot be used; the message names the column or argument, what it held and what to do.
        """
        if not isinstance(self.likelihood, str) or self.likelihood not in _OWN_LAWS:
            name = type(self).__name__
            chosen_likelihood(self.likelihood, name, several=True, also=_OWN_LAWS)
        if exposure is not None:
            refuse_noise(noise_std, sample_weight)
        warn_of_index(X)
        X = open_frame(X)
        targets = several_targets(X, y)
        if targets is not None:
            return self._fit_several(targets, noise_std, sample_weight, exposure)
        own = OwnNoise(noise_std, sample_weight) if exposure is None else Exposure(exposure)
        return self._fit_whole(X, y, own)

    def _read_target(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, str | None]:
        check_method(self.calibrate)
        numbers, name = numbers_and_name(X, y)
        return numbers, numbers, name

    def _look_at(self, targets: np.ndarray, rows: np.ndarray, own: OwnNoise | Exposure) -> None:
        self.exposure_ = None
        if self.calibrate == "conformal" and observations.has_own_noise(targets):
            raise ValueError(
                _NO_CONFORMAL.format("noise_std" if has_errors(targets) else "sample_weight")
            )
        self._counts = are_counts(observations.targets(targets))
        self.heap_ = self._heap_of(targets, self._counts)
        self._counts &= self.heap_ is None
        if isinstance(own, Exposure):
            check_counts(targets, rows, self.target_name_)
            self.exposure_ = FittedExposure.of(own, targets)

    def _candidates(self, rows: Rows, tied: Sequence[Sequence[int]]) -> list[candidates.Candidate]:
        if observations.has_exposure(rows.y):
            return candidates.of_exposure(
                rows.n, rows.d, method=self.method, likelihood=self._law, seconds=self._seconds
            )
        if self.method != "auto":
            return [candidates.named(self.method, False, self._law)]
        asked = isinstance(self._law, str) and self._law == "auto" and not self._in_time
        return candidates.regressors(
            rows.n,
            rows.d,
            tied=any(len(group) > 1 for group in tied),
            counts=self._counts,
            lawful=self._counts
            and asked
            and have_a_law(rows, seed_from(self.random_state), self._seconds),
            likelihood=self._law,
            own_noise=observations.has_own_noise(rows.y),
            exact_rows=candidates.most_exact_rows(self.max_seconds, self.max_work is None, rows.n),
            seconds=self._seconds,
            series=bool(self._in_time),
            dates_alone=self._dates_alone,
        )

    def _warps(self, y: np.ndarray, seed: int) -> list[Own]:
        if self.heap_ is not None:
            rest = observations.targets(y)
            return warps_to_try(rest[~self.heap_.holds(rest)], seed)
        normal = isinstance(self.likelihood, str) and self.likelihood in ("auto", "gaussian")
        # known errors are in units of the target as it is, and exposures are of counts
        plain = y.ndim > 1 or self._counts
        return (
            warps_to_try(y, seed, series=bool(self._in_time)) if normal and not plain else [Own()]
        )

    def _judge(self, model: Any, warp: Own, rows: Rows) -> Judged:
        of_model = model.distribution(rows.X)
        spread = finite_spread(of_model.std, of_model.quantiles)
        if observations.has_own_noise(rows.y):
            of_model = of_model.with_noise_of(rows.y)
        elif observations.has_exposure(rows.y):
            of_model = of_model.with_exposure_of(rows.y)
        found = self._in_units(of_model, model, warp, Identity())
        y = np.asarray(observations.targets(rows.y))
        judged = Judged(
            found.log_density(y),
            (y - found.mean) ** 2,
            found.normal_scores(y),
            found.mean,
            found.std,
            self._weights_of_score(rows.y),
            spread,
            found=(found,),
        )
        return self._of_parts(judged, rows.X, y)

    def _calibration(self, judged: Judged | None, y: np.ndarray, seed: int) -> Calibration:
        if judged is None or self.calibrate is None:
            return Identity()
        if self.calibrate == "conformal" and self.heap_ is not None:
            return Identity()  # the same rows tell how far the intervals of both parts reach
        if self.calibrate == "auto" and (self._counts or self.model_.likelihood_.counts):
            return Identity()  # levels of counts come in steps, which no map of levels can move
        rest = self._of_rest(y)
        return fit_calibration(judged.scores[rest], self.calibrate, seed, judged.places.some(rest))

    def _calibration_from(self, state: Any) -> Calibration:
        return calibration_from_state(state)

    @property
    def _classes(self) -> bool:
        return False

    # ------------------------------------------------------------ what is known of it

    def _numbers_of(self, X: Any, y: Any) -> np.ndarray:
        return numbers_and_name(X, y)[0]

    @property
    def exposure_name_(self) -> str | None:
        """Name of the column of exposures; None where they were given as an array, or where there are none."""
        check_is_fitted(self, "model_")
        return None if self.exposure_ is None else self.exposure_.name

    @property
    def _note_of_leaderboard(self) -> str:
        given = self.exposure_
        if given is not None:
            return f"of counts with {given.called}, each at its own"
        return _OF_COUNTS if self._counts else self._words_of_parts

    def _more_header(self) -> dict[str, Any]:
        given = None if self.exposure_ is None else self.exposure_.to_dict()
        return {"exposure": given, "counts": self._counts} | self._more_of_parts()

    def _read_more(self, header: dict[str, Any]) -> None:
        given = header.get("exposure")
        self.exposure_ = None if given is None else FittedExposure(**given)
        self._counts = header.get("counts", False)
        self._read_parts(header)

    @property
    def calibration_record_(self) -> CalibrationRecord | None:
        """How often intervals held the held-out rows; None where none were held out."""
        from scipy.special import ndtr

        check_is_fitted(self, "model_")
        held = self.held_out_
        if not held:
            return None
        scores = self.calibration_.scores(held["scores"])
        table = grouped(self.kept_.columns)
        return calibration_record(held["y"], held["mean"], held["std"], ndtr(scores), *table)
