"""What the estimators with inducing points share: arguments, first hyperparameters, fit, posterior."""

from __future__ import annotations

import abc
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.data.minibatch import minibatch_indices
from vastgp.estimators.arguments import check_choice, check_flag, check_positive, seed_from
from vastgp.estimators.base import BaseGP, Fit
from vastgp.estimators.checkpoints import checkpoint_of
from vastgp.estimators.first_hyperparameters import (
    check_given,
    first_hyperparameters,
)
from vastgp.estimators.likelihood_arguments import check_likelihood
from vastgp.estimators.likelihood_regressor import LikelihoodRegressor
from vastgp.estimators.weighted_classes import WeightedClassifier
from vastgp.fitting.inducing_points import METHODS, select_inducing
from vastgp.kernels import Kernel
from vastgp.kernels.metric import shortened
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.svgp.bound import SiteSums, coordinates, posterior_of
from vastgp.methods.svgp.collapsed_bound import best_scales
from vastgp.methods.svgp.passes import SVGPFit, SVGPOptions
from vastgp.methods.svgp.posterior import SVGPPosterior
from vastgp.methods.svgp.training import Budget, fit_svgp

# Inducing points where `num_inducing` is left open, and rows that they are chosen from.
_MOST_INDUCING, _CHOSEN_FROM = 512, 20_000
# Rows that amplitude and noise of the start are scaled by.
_SCALED_BY = 8192
_MOST_STEPS, _MOST_PASSES, _MOST_PASSES_ALONE = 2000, 10, 100
_TILE_ENTRIES = 2**21
# Lengthscales that steps of learning start from, at most, in standard deviations of the input. Few rows cannot tell an
# input that matters little from one that does not, and steps find back too slowly from far away: kegg, where half of 20
# inputs started at several hundred, ended at an NLPD of -1.02, and at -1.07 from ten.
_LONGEST = 10.0


class SVGPFits(BaseGP):
    """Fits of the estimators with inducing points; a subclass says how by `_options`."""

    # constructor arguments that only some have
    noise_floor: Any = 1e-3
    num_e_steps: Any = 1
    num_m_steps: Any = 1
    step_rate: Any = None

    @abc.abstractmethod
    def _options(self) -> SVGPOptions:
        """Return how to fit."""

    def _shared_options(self, **of_method: Any) -> SVGPOptions:
        learn = self.hyperparameters == "learn"
        return SVGPOptions(
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
        for name in ("tol", "learning_rate", "jitter", "noise_floor", "checkpoint_seconds"):
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
            check_flag(name, getattr(self, name))
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
        kernel, likelihood = first_hyperparameters(self, rows, seed, self._first_likelihood)
        if options.learn:
            kernel = shortened(kernel, _LONGEST)
        if given is not None:
            Z = self.standardizer_.transform_X(given)
        else:
            assert isinstance(self.inducing, str)
            most = min(rows.n, max(count, _CHOSEN_FROM))
            chosen = np.sort(minibatch_indices(seed, 1, rows.n, most))
            X = self.standardizer_.transform_X(rows.take(chosen)[0])
            Z = select_inducing(self.inducing, kernel, X, count, seed)
        if self.hyperparameters == "learn" and isinstance(likelihood, Gaussian):
            kernel, likelihood = self._scaled(rows, kernel, likelihood, Z, seed)
        fit = fit_svgp(
            rows,
            self.standardizer_,
            kernel,
            likelihood,
            Z,
            options,
            Budget(
                max_iter=self.max_iter or _MOST_STEPS,
                tol=self.tol,
                max_seconds=self._seconds_left(self.max_seconds),
                checkpoints=lambda suffix: checkpoint_of(self, rows, seed, suffix),
                verbose=bool(self.verbose),
            ),
            seed=seed,
            dtype=self.dtype,
        )
        return self._of(fit, options)

    def _scaled(
        self, rows: Rows, kernel: Kernel, likelihood: Gaussian, Z: np.ndarray, seed: int
    ) -> tuple[Kernel, Gaussian]:
        """Return amplitude and noise of highest bound with these inducing points, on some rows."""
        chosen = np.sort(minibatch_indices(seed, 2, rows.n, min(rows.n, _SCALED_BY)))
        X, y = rows.take(chosen)
        assert y is not None
        scaling = self.standardizer_
        kernel, noise = best_scales(
            kernel, float(likelihood.noise_variance), Z, scaling.transform_X(X), scaling.transform_y(y),
            jitter=self.jitter, noise_floor=self.noise_floor,
        )  # fmt: skip
        return kernel, Gaussian(noise)

    def _of(self, fit: SVGPFit, options: SVGPOptions) -> Fit:
        with precision("float64"):
            here = coordinates(fit.kernel, jnp.asarray(fit.Z), options.jitter)
            q = posterior_of(SiteSums(*map(jnp.asarray, fit.sums)))
            if not (np.all(np.isfinite(q.mean)) and np.all(np.isfinite(q.root))):
                raise FloatingPointError(
                    f"the fit ended without a finite posterior, in {self.dtype}. Raise jitter or noise_floor, or set "
                    "dtype='float64'."
                )
            posterior = SVGPPosterior(
                fit.kernel, fit.Z, *map(np.asarray, (here.inverse, q.mean, q.root))
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

    # ------------------------------------------------------------ predict

    def covariance(self, X: Any) -> np.ndarray:
        """Return the posterior covariance of the function between rows, in memory quadratic in their number.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path

        Returns
        -------
        ndarray of shape (n, n), or (C, n, n) with several functions
            In squared units of the target, where it is scaled. Its diagonal is the square of the standard deviation
            that ``return_std="latent"`` gives.
        """
        check_is_fitted(self, "posterior_")
        inputs = np.concatenate([tile for tile, _ in self._tiles(self._open(X))])
        found = self.posterior_.covariance(inputs) * self.standardizer_.y_scale**2
        return self.likelihood_.location(found)

    def _tile_rows(self) -> int:
        functions = self.likelihood_.num_latent
        return max(256, _TILE_ENTRIES // (self.num_inducing_ * functions))

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self.posterior_.to_state()
        return state | {"diagnosis": self.diagnosis_}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.diagnosis_ = state["diagnosis"]
        self.posterior_ = SVGPPosterior.from_state(state, arrays)
        self._set_points(self.posterior_.Z)


class SparseRegressor(LikelihoodRegressor, SVGPFits):
    """Likelihoods of targets that are numbers."""

    # whether a likelihood may have more than one function
    several_functions = True

    def _check_params(self) -> None:
        self._check_inducing()
        check_given(self, check_likelihood(self))


class SparseClassifier(WeightedClassifier, SVGPFits):
    """Likelihoods of labels."""

    def _check_params(self) -> None:
        self._check_inducing()
        self._check_classes()
