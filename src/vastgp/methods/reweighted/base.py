"""What regressors with a fixed basis share: statistics, inference of two kinds, new rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.data.archive import above, below
from vastgp.estimators.arguments import check_choice, check_positive, seed_from
from vastgp.estimators.base import Fit, as_answer
from vastgp.estimators.first_hyperparameters import start_rows
from vastgp.estimators.regressor import BaseGPRegressor, _targets
from vastgp.estimators.statistics import gather_with_progress
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import LbfgsResult
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.progress import Progress
from vastgp.fitting.run import Answer, Run
from vastgp.fitting.start import Start, start_from_exact_gp
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.likelihoods import Gaussian
from vastgp.methods.reweighted.fit import Features, ReweightedFits
from vastgp.methods.reweighted.hyperparameter_chains import HyperPosterior
from vastgp.methods.reweighted.training import draw_hyperparameters, maximise_hyperparameters
from vastgp.methods.reweighted.weight_mixture import WeightMixture

INFERENCES = ("type-ii", "type-i")


class BaseReweightedRegressor(BaseGPRegressor, ReweightedFits):
    """Base of the regressors, see `ReweightedFits`: targets with Gaussian noise enter by sums over the rows alone."""

    # constructor arguments of all subclasses
    inference: Any
    max_iter: Any
    tol: Any
    _predictor: WeightMixture

    # ------------------------------------------------------------ fit

    def _check_params(self) -> None:
        check_choice("inference", self.inference, INFERENCES)
        self._check_chains()
        check_positive("tol", self.tol)
        check_positive("max_iter", self.max_iter, integer=True)
        if self.inference == "type-i":
            self._check_libraries()

    def _start(self, rows: Rows, kernel: Any) -> Start:
        """Return the hyperparameters of an exact Gaussian process on some rows."""
        seed = seed_from(self.random_state)
        return start_from_exact_gp(
            kernel, *start_rows(self, rows, seed), max_rows=self.start_rows, seed=seed, noise_floor=self.noise_floor,
            max_seconds=self._seconds_left(self.max_seconds),
        )  # fmt: skip

    def _fit_rows(self, rows: Rows) -> Fit:
        self._seed = seed_from(self.random_state)
        features = self._make_features(rows)
        self._learned = features.learned
        statistics = gather_with_progress(self, rows, features.basis)
        return self._infer(features, statistics)

    def _infer(self, features: Features, statistics: SufficientStatistics) -> Fit:
        """Infer hyperparameters from statistics alone, and remember what new rows will need."""
        mean = self._prior_mean(statistics.num_basis)
        target = self._aim(features, statistics, mean)
        start = target.prior.start()
        start[0] = np.log(features.noise_variance)
        self.statistics_ = statistics
        if self.inference == "type-i":
            return self._draw(target, start, mean)
        found = maximise_hyperparameters(
            target, start, noise_floor=self.noise_floor, with_prior=False, max_iter=self.max_iter,
            tol=self.tol, max_seconds=self._seconds_left(self.max_seconds),
        )  # fmt: skip
        self.draws_ = None
        found = _both(self._learned, found)
        if not found.converged and found.message != OUT_OF_TIME:
            warnings.warn(
                f"{type(self).__name__} did not converge: {found.message}, after {found.num_iter} iterations. Raise "
                f"max_iter (now {self.max_iter}) or tol (now {self.tol:g}).",
                ConvergenceWarning,
                stacklevel=4,
            )
        if len(found.history) == 0:  # the start was the optimum
            found.history.append(1, 0.0, {"objective": found.value})
        self.log_evidence_ = found.value - statistics.num_rows * float(np.log(statistics.y_scale))
        posterior = WeightMixture(
            features.basis, target.prior, target.data, found.params[None], mean
        )
        self._predictor = posterior
        return self._as_fit(
            posterior, posterior, max(found.num_iter, 1), found.converged, found.message, found.history
        )  # fmt: skip

    def _draw(self, target: HyperPosterior, start: np.ndarray, mean: np.ndarray) -> Fit:
        plan = self._plan()
        with Progress("chains", bool(self.verbose)) as progress:
            chains = draw_hyperparameters(
                target, start, plan, noise_floor=self.noise_floor, seed=self._seed,
                max_seconds=self._seconds_left(self.max_seconds), on_chunk=progress.update,
            )  # fmt: skip
        mixed = self._use(chains, mean)
        return self._as_fit(
            self._predictor, self._inference_data(), chains.num_steps, mixed, chains.reason, chains.history
        )  # fmt: skip

    def _as_fit(
        self, predictor: WeightMixture, posterior: Any, n_iter: int, converged: bool, reason: str, history: History
    ) -> Fit:  # fmt: skip
        theta = predictor.theta
        kernel = self._kernel_of(theta)
        noise = Gaussian(float(np.mean(predictor.noise_variances)))
        return Fit(kernel, noise, posterior, n_iter, converged, reason, history)

    # ------------------------------------------------------------ new rows

    def _check_takes_rows(self) -> None:
        """Refuse new rows where sums over them do not say what they have to say."""

    def statistics(self, X: Any, y: Any = None) -> SufficientStatistics:
        """Return the sums over some rows of this model's features, for `update`: here or in another process.

        Parameters
        ----------
        X, y
            As in ``fit``.
        """
        check_is_fitted(self, "posterior_")
        self._check_takes_rows()
        return gather_with_progress(self, self._open(X, y, require_y=True), self._features.basis)

    def update(self, statistics: SufficientStatistics) -> Any:
        """Add sums over new rows to those of the fit, and infer again: at a cost that does not depend on the rows.

        The basis and the scaling stay those of the first fit. They may suit rows that come later from elsewhere less
        well; ``fit`` begins anew.

        Parameters
        ----------
        statistics : SufficientStatistics
            From `statistics` of this model, or of one loaded from its file.

        Returns
        -------
        self
        """
        check_is_fitted(self, "posterior_")
        self._check_takes_rows()
        # rows are counted once, however often the update is tried: an unfinished one leaves the model as it was
        return self._fit_whole(
            lambda work: work.statistics_ + statistics,
            lambda work, total, run: work._answers_again(total, run),
            keep=True,
        )

    def _answers_again(self, total: SufficientStatistics, run: Run) -> Iterator[Answer]:
        self._run, self._seed, self._learned = run, run.seed, None
        fit = self._infer(self._features, total)
        del self._run
        yield as_answer(fit)

    def partial_fit(self, X: Any, y: Any = None) -> Any:
        """Add rows to a fitted model, or fit it to these.

        Parameters
        ----------
        X, y
            As in ``fit``.

        Returns
        -------
        self
        """
        if not hasattr(self, "posterior_"):
            return self.fit(X, y)
        return self.update(self.statistics(X, y))

    # ------------------------------------------------------------ predictions

    def log_predictive_density(self, X: Any, y: Any = None) -> np.ndarray:
        """Return ``log p(y | x, training data)`` of each row: with type-I inference the density of the mixture.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
        y : array-like of shape (n,) or str

        Returns
        -------
        ndarray of shape (n,)
            In nats; a density per unit of the target.
        """
        check_is_fitted(self, "posterior_")
        if self._predictor.num_components == 1 or not isinstance(self.likelihood_, Gaussian):
            return super().log_predictive_density(X, y)
        rows = self._open(X, y, require_y=True)
        target = self.standardizer_.transform_y(_targets(rows))
        parts, start = [], 0
        for tile, _ in self._tiles(rows):
            with precision(self.dtype):
                parts.append(self._predictor.log_density(tile, target[start : start + len(tile)]))
            start += len(tile)
        return np.concatenate(parts) - np.log(self.standardizer_.y_scale)

    # ------------------------------------------------------------ files

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = super()._state()
        state["statistics"], own = self.statistics_.to_state()
        state["log_evidence"] = getattr(self, "log_evidence_", None)
        return state, arrays | above("statistics/", own)

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore_state(state, arrays)
        self.statistics_ = SufficientStatistics.from_state(
            state["statistics"], below("statistics/", arrays)
        )
        if state["log_evidence"] is not None:
            self.log_evidence_ = state["log_evidence"]


def _both(first: LbfgsResult | None, second: LbfgsResult) -> LbfgsResult:
    """Return the second of two runs with what the first one, of the functions themselves, has to say."""
    if first is None:
        return second
    return replace(
        second,
        num_iter=first.num_iter + second.num_iter,
        converged=first.converged and second.converged,
        message=second.message if first.converged else first.message,
        history=first.history,
    )
