"""What estimators with a fixed basis share: statistics, inference of two kinds, predictions, new rows."""

from __future__ import annotations

import abc
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.data.archive import above, below
from vastgp.estimators.arguments import check_choice, check_positive, seed_from
from vastgp.estimators.base import Fit
from vastgp.estimators.first_hyperparameters import start_rows
from vastgp.estimators.regressor import BaseGPRegressor, _targets
from vastgp.estimators.statistics import gather_with_progress
from vastgp.kernels import Kernel, from_spec, to_spec
from vastgp.likelihoods import Gaussian
from vastgp.objectives.reweighted_evidence import prepare
from vastgp.objectives.sufficient_statistics import SufficientStatistics
from vastgp.objectives.weight_priors import WeightPrior
from vastgp.posteriors.draws import import_arviz, inference_data
from vastgp.posteriors.module_state import module_from_state, module_to_state
from vastgp.posteriors.weight_mixture import WeightMixture
from vastgp.training.chain_diagnosis import Chains, import_blackjax, warn_of_chains
from vastgp.training.history import History
from vastgp.training.hyperparameter_chains import CHUNK, SAMPLERS, ChainPlan, HyperPosterior
from vastgp.training.lbfgs import LbfgsResult
from vastgp.training.loop import OUT_OF_TIME
from vastgp.training.progress import Progress
from vastgp.training.reweighted import draw_hyperparameters, maximise_hyperparameters
from vastgp.training.start import Start, start_from_exact_gp

INFERENCES = ("type-ii", "type-i")
# Warm-up, steps and thinning by sampler: those of section 5.4.2 for MALA.
_PLANS = {"nuts": (400, 400, 1), "mala": (1000, 10_000, 50)}


@dataclass(frozen=True)
class Features:
    """A basis and the kernel and noise that it was made for, in standardised units.

    ``learned`` is how they were learned, where that was not by the exact Gaussian process of the start.
    """

    basis: Any
    kernel: Kernel
    noise_variance: float
    learned: LbfgsResult | None = None


class BaseReweightedRegressor(BaseGPRegressor, abc.ABC):
    """Base of the regressors whose basis stays as it is while hyperparameters of its weights are inferred.

    A subclass has ``_make_features(rows) -> Features`` and ``_make_prior(features, data) -> WeightPrior``, beside the
    constructor arguments that are read here.
    """

    # constructor arguments of all subclasses
    kernel: Any
    inference: Any
    sampler: Any
    num_chains: Any
    num_warmup: Any
    num_steps: Any
    thin: Any
    num_components: Any
    start_rows: Any
    noise_floor: Any
    max_iter: Any
    tol: Any
    max_seconds: Any
    random_state: Any
    draws_: dict[str, np.ndarray] | None

    # ------------------------------------------------------------ what a method supplies

    @abc.abstractmethod
    def _make_features(self, rows: Rows) -> Features:
        """Return the basis."""

    @abc.abstractmethod
    def _make_prior(self, features: Features, data: Any) -> WeightPrior:
        """Return the family of priors of the weights."""

    def _prior_mean(self, num_basis: int) -> np.ndarray:
        """Return the prior mean of the weights."""
        return np.zeros(num_basis)

    # ------------------------------------------------------------ fit

    def _check_params(self) -> None:
        check_choice("inference", self.inference, INFERENCES)
        check_choice("sampler", self.sampler, SAMPLERS)
        for name in ("noise_floor", "tol"):
            check_positive(name, getattr(self, name))
        for name in ("num_chains", "num_components", "start_rows", "max_iter"):
            check_positive(name, getattr(self, name), integer=True)
        for name, default in zip(
            ("num_warmup", "num_steps", "thin"),
            ("400 or 1000", "400 or 10,000", "1 or 50"),
            strict=True,
        ):
            check_positive(
                name, getattr(self, name), integer=True, none=f"{default}, for NUTS and MALA"
            )
        check_positive("max_seconds", self.max_seconds, none="no limit")
        if self.inference == "type-i":  # before any work
            import_blackjax()
            import_arviz()

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
        with precision("float64"):
            data = prepare(statistics, mean)
        prior = self._make_prior(features, data)
        target = HyperPosterior(prior, data)
        start = prior.start()
        start[0] = np.log(features.noise_variance)
        self.statistics_, self._features, self._target = statistics, features, target
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
        posterior = WeightMixture(features.basis, prior, data, found.params[None], mean)
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
        if chains.reason == OUT_OF_TIME:
            mixed = False
        else:
            mixed = warn_of_chains(chains, type(self).__name__, 1.05, 100.0)
        theta = _spread_over(chains.theta, self.num_components)
        self._predictor = WeightMixture(
            self._features.basis, target.prior, target.data, theta, mean
        )
        self._set_draws(chains)
        return self._as_fit(
            self._predictor, self._inference_data(), chains.num_steps, mixed, chains.reason, chains.history
        )  # fmt: skip

    def _plan(self) -> ChainPlan:
        warmup, steps, thin = _PLANS[self.sampler]
        warmup = self.num_warmup or warmup
        steps, thin = self.num_steps or steps, self.thin or thin
        warmup, steps = (CHUNK * -(-count // CHUNK) for count in (warmup, steps))
        return ChainPlan(self.sampler, self.num_chains, warmup, steps, thin)

    def _set_draws(self, chains: Chains) -> None:
        self.draws_ = {
            "theta": chains.theta,
            "lp": chains.log_density,
            "acceptance_rate": chains.acceptance,
            "diverging": chains.diverging,
        }
        self.r_hat_, self.ess_ = float(np.max(chains.r_hat)), float(np.min(chains.ess))

    def _inference_data(self) -> Any:
        """Return all draws for ArviZ, in the units of inputs and target."""
        assert self.draws_ is not None
        named = self._target.prior.named(self.draws_["theta"])
        scaling = self.standardizer_
        factors = {"variance": scaling.y_scale**2, "lengthscales": scaling.x_scale}
        for name in named:
            if name == "noise_variance":
                named[name] = named[name] * scaling.y_scale**2
            elif not name.endswith("variances") and name != "relative_variance":
                named[name] = named[name] * factors.get(name.rpartition(".")[2], 1.0)
        stats = {name: value for name, value in self.draws_.items() if name != "theta"}
        return inference_data(named, stats)

    def _as_fit(
        self, predictor: WeightMixture, posterior: Any, n_iter: int, converged: bool, reason: str, history: History
    ) -> Fit:  # fmt: skip
        theta = predictor.theta
        kernel = self._kernel_of(theta)
        noise = Gaussian(float(np.mean(predictor.noise_variances)))
        return Fit(kernel, noise, posterior, n_iter, converged, reason, history)

    def _kernel_of(self, theta: np.ndarray) -> Kernel:
        """Return the kernel to report: at the draw whose hyperparameters are nearest to their mean."""
        centre = np.argmin(np.sum((theta - theta.mean(axis=0)) ** 2, axis=1))
        found = self._target.prior.kernel_at(theta[centre])
        return self._features.kernel if found is None else found

    # ------------------------------------------------------------ new rows

    def statistics(self, X: Any, y: Any = None) -> SufficientStatistics:
        """Return the sums over some rows of this model's features, for `update`: here or in another process.

        Parameters
        ----------
        X, y
            As in ``fit``.
        """
        check_is_fitted(self, "posterior_")
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
        self._check_params()
        self._began = time.perf_counter()
        total = self.statistics_ + statistics
        self._seed, self._learned = seed_from(self.random_state), None
        with precision(self.dtype):
            fit = self._infer(self._features, total)
        scaling = self.standardizer_
        self.kernel_ = fit.kernel.in_units(scaling.x_scale, scaling.y_scale)
        self.likelihood_ = fit.likelihood.in_units(scaling.y_scale)
        self.posterior_, self.n_iter_ = fit.posterior, int(fit.n_iter)
        self.converged_, self.stop_reason_ = bool(fit.converged), fit.reason
        self.history_ = fit.history
        self.fit_seconds_ += time.perf_counter() - self._began
        del self._began
        return self

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

    def _latent(self, X: np.ndarray, with_variance: bool) -> tuple[np.ndarray, np.ndarray | None]:
        if with_variance:
            return self._predictor.mean_and_latent_variance(X)
        return self._predictor.mean(X), None

    def _sample_latent(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        return self._predictor.samples(X, num_samples, seed)

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
        if self._predictor.num_components == 1:
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

    def __getstate__(self) -> dict[str, Any]:
        # all of these come back with the posterior
        derived = ("_learned", "_predictor", "_target", "_features", "statistics_", "draws_")
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in derived}

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        predictor = self._predictor
        parts = {
            "basis": module_to_state(self._features.basis),
            "prior": module_to_state(self._target.prior),
            "data": module_to_state(self._target.data),
            "statistics": self.statistics_.to_state(),
            "kernel": to_spec(self._features.kernel),
        }
        state: dict[str, Any] = {name: plain for name, (plain, _) in parts.items()}
        arrays: dict[str, np.ndarray] = {}
        for name, (_, own) in parts.items():
            arrays |= above(f"{name}/", own)
        arrays |= {
            "theta": predictor.theta, "mean": predictor.mean_weights, "factor": predictor.factor,
            "prior_mean": predictor.prior_mean,
        }  # fmt: skip
        state["noise"] = self._features.noise_variance
        state["log_evidence"] = getattr(self, "log_evidence_", None)
        state["mixing"] = None if self.draws_ is None else [self.r_hat_, self.ess_]
        if self.draws_ is not None:
            arrays |= above("draws/", self.draws_)
        return state, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        def module(name: str) -> Any:
            return module_from_state(state[name], below(f"{name}/", arrays))

        with precision("float64"):
            basis, prior, data = module("basis"), module("prior"), module("data")
            self._target = HyperPosterior(prior, data)
        kernel = from_spec(state["kernel"], below("kernel/", arrays))
        self._features = Features(basis, kernel, state["noise"])
        self.statistics_ = SufficientStatistics.from_state(
            state["statistics"], below("statistics/", arrays)
        )
        self._predictor = WeightMixture(
            basis, prior, data, arrays["theta"], arrays["prior_mean"], (arrays["mean"], arrays["factor"])
        )  # fmt: skip
        if state["log_evidence"] is not None:
            self.log_evidence_ = state["log_evidence"]
        self.draws_ = below("draws/", arrays) or None
        self.posterior_ = self._predictor
        if self.draws_ is not None:
            self.r_hat_, self.ess_ = state["mixing"]
            self.posterior_ = self._inference_data()


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


def _spread_over(theta: np.ndarray, count: int) -> np.ndarray:
    """Return so many draws, spread evenly over all chains: (chains, draws, D) to (count, D)."""
    flat = np.swapaxes(theta, 0, 1).reshape(-1, theta.shape[-1])
    if len(flat) <= count:
        return flat
    return flat[np.linspace(0, len(flat) - 1, count).round().astype(np.int64)]
