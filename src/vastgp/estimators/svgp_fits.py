"""What the estimators with inducing points share: arguments, first hyperparameters, fit, posterior."""

from __future__ import annotations

import abc
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.data.minibatch import minibatch_indices
from vastgp.estimators.arguments import (
    check_choice,
    check_fixed,
    check_positive,
    fixed_kernel,
    fixed_noise_variance,
    seed_from,
)
from vastgp.estimators.base import BaseGP, Fit
from vastgp.estimators.class_weight import check_class_weight, weights_by_class
from vastgp.estimators.classifier import BaseGPClassifier
from vastgp.estimators.qsgp_arguments import check_likelihood
from vastgp.estimators.regressor import BaseGPRegressor
from vastgp.kernels import Kernel
from vastgp.likelihoods import Bernoulli, Gaussian, Likelihood, Poisson, Softmax
from vastgp.likelihoods.bernoulli import LINKS
from vastgp.objectives.svgp_bound import SiteSums, posterior_of, prior_factor
from vastgp.posteriors.svgp import InducingPosterior
from vastgp.training.block_sites import most_rows
from vastgp.training.dual_start import start_from_dual_evidence
from vastgp.training.inducing_points import METHODS, select_inducing
from vastgp.training.start import start_from_exact_gp
from vastgp.training.svgp import fit_inducing
from vastgp.training.svgp_passes import InducingFit, InducingOptions

# Inducing points where `num_inducing` is left open, and rows that they are chosen from.
_MOST_INDUCING, _CHOSEN_FROM = 512, 20_000
_MOST_STEPS, _MOST_PASSES, _MOST_PASSES_ALONE = 2000, 10, 100
_CHECKED_ROWS = 65_536
_TILE_ENTRIES = 2**21


class InducingFits(BaseGP):
    """Fits of the estimators with inducing points; a subclass says how by `_options`."""

    # constructor arguments that only some have
    noise_floor: Any = 1e-3
    num_e_steps: Any = 1
    num_m_steps: Any = 1
    step_rate: Any = None

    @abc.abstractmethod
    def _options(self) -> InducingOptions:
        """Return how to fit."""

    def _shared_options(self, **of_method: Any) -> InducingOptions:
        learn = self.hyperparameters == "learn"
        return InducingOptions(
            num_e_steps=self.num_e_steps,
            num_m_steps=self.num_m_steps,
            step_rate=self.step_rate,
            learning_rate=self.learning_rate,
            learn=learn,
            move=bool(self.learn_inducing) and learn,
            row_batch=self.row_batch,
            jitter=self.jitter,
            passes=_MOST_PASSES if learn else _MOST_PASSES_ALONE,
            noise_floor=self.noise_floor,
            **of_method,
        )

    @abc.abstractmethod
    def _first_likelihood(self, y: np.ndarray) -> Likelihood:
        """Return where the likelihood's hyperparameters start, or those that are fixed, in standardised units."""

    # ------------------------------------------------------------ arguments

    def _check_inducing(self) -> None:
        """Refuse bad constructor arguments of those that all have."""
        for name in ("tol", "learning_rate", "jitter", "noise_floor"):
            check_positive(name, getattr(self, name))
        for name in ("row_batch", "start_rows", "num_e_steps", "num_m_steps"):
            check_positive(name, getattr(self, name), integer=True)
        check_positive(
            "num_inducing", self.num_inducing, integer=True, none="512, or one for each row"
        )
        check_positive("max_iter", self.max_iter, integer=True, none=f"{_MOST_STEPS}")
        check_positive("max_seconds", self.max_seconds, none="no limit")
        check_choice("hyperparameters", self.hyperparameters, ("learn", "subset", "fixed"))
        for name in ("isotropic", "learn_inducing"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False, received {getattr(self, name)!r}.")
        if isinstance(self.inducing, str):
            check_choice("inducing", self.inducing, METHODS)
        rate = self.step_rate
        if rate is None:
            return
        check_positive("step_rate", rate)
        if rate > 1:
            raise ValueError(
                f"step_rate must be at most 1, a whole natural-gradient step; received {rate!r}."
            )

    def _given_points(self) -> np.ndarray | None:
        """Return inducing points that were given, in the units of the inputs."""
        if isinstance(self.inducing, str):
            return None
        try:
            Z = np.asarray(self.inducing, dtype=np.float64)
            good = Z.ndim == 2 and len(Z) > 0 and bool(np.all(np.isfinite(Z)))
        except (TypeError, ValueError):
            good = False
        if not good:
            raise ValueError(
                f"inducing must be one of {METHODS}, or a finite array with an inducing point in each row; received "
                f"{self.inducing!r}."
            )
        if Z.shape[1] != self.n_features_in_:
            raise ValueError(
                f"inducing has {Z.shape[1]} columns, but X has {self.n_features_in_} features: give one inducing point "
                "in each row, in the units of X."
            )
        if self.num_inducing is not None and self.num_inducing != len(Z):
            raise ValueError(
                f"num_inducing={self.num_inducing}, but inducing holds {len(Z)} points. Leave num_inducing out."
            )
        return Z

    def _num_points(self, n: int) -> int:
        if self.num_inducing is None:
            return min(n, _MOST_INDUCING)
        if self.num_inducing > n:
            raise ValueError(
                f"num_inducing={self.num_inducing} is more than the {n} rows of X: as many as rows are exact already. "
                f"Give at most {n}, or leave it out."
            )
        return int(self.num_inducing)

    # ------------------------------------------------------------ fit

    def _fit_rows(self, rows: Rows) -> Fit:
        given = self._given_points()
        count = len(given) if given is not None else self._num_points(rows.n)
        options = self._options()
        if options.untied and rows.n > options.row_batch:
            raise ValueError(
                f"sites='full' keeps a site for each row and uses all of them in every step, and X has {rows.n} rows, "
                f"more than row_batch={options.row_batch}. Set sites='tied', or raise row_batch."
            )
        seed = seed_from(self.random_state)
        kernel, likelihood = self._first_hyperparameters(rows, seed)
        if given is not None:
            Z = self.standardizer_.transform_X(given)
        else:
            assert isinstance(self.inducing, str)
            most = min(rows.n, max(count, _CHOSEN_FROM))
            chosen = np.sort(minibatch_indices(seed, 1, rows.n, most))
            X = self.standardizer_.transform_X(rows.take(chosen)[0])
            Z = select_inducing(self.inducing, kernel, X, count, seed)
        fit = fit_inducing(
            rows,
            self.standardizer_,
            kernel,
            likelihood,
            Z,
            options,
            max_iter=self.max_iter or _MOST_STEPS,
            tol=self.tol,
            max_seconds=self._seconds_left(self.max_seconds),
            seed=seed,
            dtype=self.dtype,
            verbose=bool(self.verbose),
        )
        return self._of(fit, options)

    def _of(self, fit: InducingFit, options: InducingOptions) -> Fit:
        with precision("float64"):
            lower = np.asarray(prior_factor(fit.kernel, jnp.asarray(fit.Z), options.jitter))
            q = posterior_of(SiteSums(*map(jnp.asarray, fit.sums)))
            posterior = InducingPosterior(
                fit.kernel, fit.Z, lower, np.asarray(q.mean), np.asarray(q.factor)
            )
        self.diagnosis_ = {
            "bound": fit.bound,
            "damped_steps": fit.damped,
            "passes": fit.num_passes,
        }
        self._set_points(fit.Z)
        if not fit.loop.converged:
            warnings.warn(
                f"{type(self).__name__} did not converge: {fit.loop.reason}; the bound may still grow, see history_. "
                "Give more time (max_seconds, max_iter), or a larger tol.",
                ConvergenceWarning,
                stacklevel=5,
            )
        loop = fit.loop
        return Fit(
            fit.kernel, fit.likelihood, posterior, loop.num_iter, loop.converged, loop.reason,
            loop.history,
        )  # fmt: skip

    def _set_points(self, Z: np.ndarray) -> None:
        """Set the inducing points in the units of the inputs."""
        scaling = self.standardizer_
        self.inducing_points_ = Z * scaling.x_scale + scaling.x_mean
        self.num_inducing_ = len(Z)

    def _first_hyperparameters(self, rows: Rows, seed: int) -> tuple[Kernel, Likelihood]:
        """Return kernel and likelihood in standardised units: given, or of highest evidence on some rows."""
        scaling = self.standardizer_
        chosen = np.sort(minibatch_indices(seed, 0, rows.n, min(rows.n, self.start_rows)))
        X, y = rows.take(chosen)
        assert y is not None
        X, y = scaling.transform_X(X), scaling.transform_y(y)
        likelihood = self._first_likelihood(y)
        if self.hyperparameters == "fixed":
            return fixed_kernel(self.kernel, scaling, self.isotropic), likelihood
        options: dict[str, Any] = {
            "seed": seed,
            "noise_floor": self.noise_floor,
            "isotropic": bool(self.isotropic),
            "max_seconds": self._seconds_left(self.max_seconds),
        }
        if isinstance(likelihood, Gaussian):
            start = start_from_exact_gp(self.kernel, X, y, max_rows=self.start_rows, **options)
            return start.kernel, Gaussian(start.noise_variance)
        most = min(self.start_rows, most_rows(1000, likelihood))
        kernel, likelihood, _ = start_from_dual_evidence(
            self.kernel, likelihood, X, y, max_rows=most, **options
        )
        return kernel, likelihood

    # ------------------------------------------------------------ predict

    def _tile_rows(self) -> int:
        functions = self.likelihood_.num_latent
        return max(256, _TILE_ENTRIES // (self.num_inducing_ * functions))

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self.posterior_.to_state()
        return state | {"diagnosis": self.diagnosis_}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.diagnosis_ = state["diagnosis"]
        self.posterior_ = InducingPosterior.from_state(state, arrays)
        self._set_points(self.posterior_.Z)


class InducingRegressor(BaseGPRegressor, InducingFits):
    """Likelihoods of targets that are numbers."""

    def _check_params(self) -> None:
        self._check_inducing()
        likelihood = check_likelihood(self)
        gaussian = isinstance(likelihood, Gaussian)
        check_fixed(self, needs_noise=gaussian)
        if gaussian:
            return
        if self.noise_std is not None:
            raise ValueError(
                f"noise_std={self.noise_std!r} is of the Gaussian likelihood; give the {likelihood.name} one as an "
                "object with its own hyperparameters."
            )
        if self.hyperparameters == "fixed" and isinstance(self.likelihood, str):
            raise ValueError(
                f"hyperparameters='fixed' needs those of the likelihood too: give likelihood as an object, for example "
                f"vastgp.likelihoods.{type(likelihood).__name__}(...), not the name {self.likelihood!r}."
            )

    def _scales_target(self) -> bool:
        return check_likelihood(self).scales_target

    def _first_likelihood(self, y: np.ndarray) -> Likelihood:
        scaling = self.standardizer_
        if self.hyperparameters == "fixed" and self.noise_std is not None:
            return Gaussian(fixed_noise_variance(self.noise_std, scaling))
        likelihood = check_likelihood(self)
        if not isinstance(self.likelihood, str):
            return likelihood.in_units(1.0 / scaling.y_scale)
        if isinstance(likelihood, Poisson):
            return Poisson(max(float(np.mean(y)), 1.0 / len(y)))
        return likelihood

    def _open_training(self, X: Any, y: Any) -> Rows:
        rows = super()._open_training(X, y)
        likelihood = check_likelihood(self)
        if not likelihood.scales_target:
            for _, targets in rows.batches(_CHECKED_ROWS):
                likelihood.check_targets(targets)
        return rows


class InducingClassifier(BaseGPClassifier, InducingFits):
    """Likelihoods of labels."""

    def _check_params(self) -> None:
        check_choice("link", self.link, LINKS)
        self._check_inducing()
        check_fixed(self, needs_noise=False)
        check_class_weight(self.class_weight)

    def _first_likelihood(self, y: np.ndarray) -> Likelihood:
        if len(self.classes_) == 2:
            return Bernoulli(self.link, class_weights=self._class_weights)
        return Softmax(len(self.classes_), class_weights=self._class_weights)

    def _fit_rows(self, rows: Rows) -> Fit:
        if self.link == "probit" and len(self.classes_) > 2:
            raise ValueError(
                f"link='probit' is for two classes, and y holds {len(self.classes_)}: set link='logit', whose "
                "generalisation is the softmax."
            )
        assert rows.y is not None
        self._class_weights = weights_by_class(self.class_weight, self.classes_, rows.y)
        try:
            return super()._fit_rows(rows)
        finally:
            del self._class_weights
