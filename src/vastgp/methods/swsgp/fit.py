"""What the sparse-within-sparse estimators share: arguments, inducing inputs, fit, posterior."""

from __future__ import annotations

import abc
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vastgp.data import Rows
from vastgp.data.minibatch import generator, minibatch_indices
from vastgp.data.neighbours import METHODS as SEARCHES
from vastgp.data.neighbours import load_faiss
from vastgp.estimators.arguments import check_choice, check_flag, check_positive, seed_from
from vastgp.estimators.base import BaseGP, Fit
from vastgp.estimators.checkpoints import checkpoint_of
from vastgp.estimators.first_hyperparameters import first_hyperparameters
from vastgp.estimators.inducing_inputs import check_inputs
from vastgp.fitting.inducing_points import METHODS, select_inducing
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.swsgp.posterior import SwsgpPosterior
from vastgp.methods.swsgp.sparse import SparseFit, build_sparse, fit_sparse, given_means
from vastgp.methods.swsgp.state import COVARIANCES, PRIORS, SwsgpOptions
from vastgp.methods.swsgp.training import SwsgpFit, fit_swsgp

INDUCING = ("fixed", "learned")
SOLVERS = ("auto", "sparse", "stochastic")
# Memory of the sparse solver for each row and neighbour, and how much of it `solver="auto"` uses.
_SPARSE_BYTES, _MOST_SPARSE_BYTES = 48, 6_000_000_000
# Without a word: a quarter of the rows as inducing inputs, at most so many, and so many neighbours.
_SHARE, _MOST_INDUCING, _NEIGHBORS = 4, 10_000, 32
# A covariance of all inducing variables has this many entries at most.
_MOST_FULL = 4096
# Up to so many inducing inputs k-means places them, with so many rows.
_MOST_CLUSTERED, _CLUSTERED_ROWS = 1000, 20_000
_MOST_STEPS = 20_000
# What numbers drawn for inducing inputs are for.
_ORDER = 11


class SwsgpFits(BaseGP):
    """Fits of the regressor and the classifier; they have the same arguments but for those of the likelihood."""

    # constructor argument of the regressor
    noise_floor: Any = 1e-3

    @abc.abstractmethod
    def _first_likelihood(self, y: np.ndarray) -> Likelihood:
        """Return where the likelihood's hyperparameters start, or those that are fixed, in standardised units."""

    # ------------------------------------------------------------ arguments

    def _check_neighbourhoods(self) -> None:
        """Refuse bad constructor arguments, of those that both estimators have."""
        for name in ("tol", "learning_rate", "jitter", "noise_floor", "checkpoint_seconds"):
            check_positive(name, getattr(self, name))
        for name in ("row_batch", "start_rows"):
            check_positive(name, getattr(self, name), integer=True)
        count = "a quarter of the rows, at most 10,000"
        check_positive("num_inducing", self.num_inducing, integer=True, none=count)
        check_positive("num_neighbors", self.num_neighbors, integer=True, none=f"{_NEIGHBORS}")
        check_positive(
            "predict_neighbors", self.predict_neighbors, integer=True, none="num_neighbors"
        )
        check_positive("max_iter", self.max_iter, integer=True, none=f"{_MOST_STEPS}")
        check_positive("max_seconds", self.max_seconds, none="no limit")
        check_choice("hyperparameters", self.hyperparameters, ("learn", "subset", "fixed"))
        check_choice("covariance", self.covariance, COVARIANCES)
        check_choice("inducing", self.inducing, INDUCING)
        check_choice("prior", self.prior, PRIORS)
        check_choice("solver", self.solver, SOLVERS)
        check_choice("neighbor_search", self.neighbor_search, SEARCHES)
        for name in ("isotropic", "taper"):
            check_flag(name, getattr(self, name))
        if isinstance(self.inducing_inputs, str):
            check_choice("inducing_inputs", self.inducing_inputs, ("auto", *METHODS))
        if self.neighbor_search == "approximate":
            load_faiss()

    def _check_sizes(self, rows: Rows, given: np.ndarray | None) -> tuple[int, int]:
        """Return numbers of inducing inputs and of neighbours; refuse those that cannot be."""
        if given is not None:
            count = len(given)
            if self.num_inducing is not None and self.num_inducing != count:
                raise ValueError(
                    f"num_inducing={self.num_inducing}, but inducing_inputs holds {count} rows. Leave num_inducing out."
                )
        elif self.num_inducing is None:
            count = max(min(rows.n, 100), min(rows.n // _SHARE, _MOST_INDUCING))
            if self.covariance == "full":
                count = min(count, 512)
        else:
            count = int(self.num_inducing)
            if count > rows.n:
                raise ValueError(
                    f"num_inducing={count} is more than the {rows.n} rows of X: inducing inputs are chosen among rows, "
                    f"each once. Give at most {rows.n}, or inducing_inputs of your own."
                )
        if self.covariance == "full" and count > _MOST_FULL:
            raise ValueError(
                f"covariance='full' keeps {count} x {count} numbers for {count} inducing inputs, and a step reads "
                f"{count} of them for each neighbour. Set covariance='diagonal', or num_inducing={_MOST_FULL}."
            )
        neighbors = (
            min(_NEIGHBORS, count) if self.num_neighbors is None else int(self.num_neighbors)
        )
        for name, asked in (
            ("num_neighbors", neighbors),
            ("predict_neighbors", self.predict_neighbors),
        ):
            if asked is not None and asked > count:
                raise ValueError(
                    f"{name}={asked} is more than the {count} inducing inputs: a row cannot see more than there are. "
                    f"Give at most {count}, or raise num_inducing."
                )
        return count, neighbors

    def _given_inputs(self) -> np.ndarray | None:
        """Return inducing inputs that were given, standardised; refuse those that cannot be."""
        if isinstance(self.inducing_inputs, str):
            return None
        Z = check_inputs(self.inducing_inputs, self.n_features_in_)
        first, where = np.unique(Z, axis=0, return_inverse=True)
        if len(first) < len(Z):
            where = where.ravel()
            twice = int(np.flatnonzero(np.bincount(where) > 1)[0])
            a, b = np.flatnonzero(where == twice)[:2]
            raise ValueError(
                f"inducing_inputs has {len(Z)} rows of which {len(first)} differ; rows {a} and {b} are the same. Two "
                "inducing variables at one place have no covariance of their own: give each place once, for example "
                "np.unique(inducing_inputs, axis=0)."
            )
        return self.standardizer_.transform_X(Z)

    # ------------------------------------------------------------ fit

    def _fit_rows(self, rows: Rows) -> Fit:
        given = self._given_inputs()
        count, neighbors = self._check_sizes(rows, given)
        seed = seed_from(self.random_state)
        kernel, likelihood = first_hyperparameters(self, rows, seed, self._first_likelihood)
        Z = self._place(rows, kernel, count, seed) if given is None else given
        neighbors = min(neighbors, len(Z))
        # the ordered prior lets each depend on those before it, and an order without pattern keeps those near
        Z = Z[generator(seed, 0, _ORDER).permutation(len(Z))]
        options = self._options(neighbors)
        solver = self._solver(rows, len(Z), options)
        found = None
        if solver == "sparse":
            found, likelihood = self._solve(rows, kernel, likelihood, Z, options)
            if not options.learn:
                return self._of_sparse(found, kernel, likelihood, Z, options)
        fit = fit_swsgp(
            rows,
            self.standardizer_,
            kernel,
            likelihood,
            Z,
            options,
            max_iter=self.max_iter or _MOST_STEPS,
            tol=self.tol,
            max_seconds=self._seconds_left(self.max_seconds),
            checkpoint=checkpoint_of(self, rows, seed),
            seed=seed,
            dtype=self.dtype,
            verbose=bool(self.verbose),
            start=None if found is None else (found.mean, found.variances),
        )
        if found is not None:
            found, likelihood = self._solve(rows, fit.kernel, fit.likelihood, Z, options)
            fit = replace(fit, likelihood=likelihood, mean=found.mean, spread=found.variances)
        stuck = found is None and _explains_nothing(fit, options, rows.n)
        return self._of(fit, options, stuck)

    def _options(self, neighbors: int) -> SwsgpOptions:
        return SwsgpOptions(
            neighbors,
            covariance=self.covariance,
            prior=self.prior,
            row_batch=int(self.row_batch),
            learning_rate=float(self.learning_rate),
            learn=self.hyperparameters == "learn",
            move=self.inducing == "learned",
            taper=bool(self.taper),
            jitter=float(self.jitter),
            search=self.neighbor_search,
            noise_floor=float(self.noise_floor),
        )

    def _solver(self, rows: Rows, count: int, options: SwsgpOptions) -> str:
        """Return how the inducing variables are found; refuse the sparse solver for what it does not do."""
        refused = {
            "prior": (options.prior != "ordered", "prior='ordered'"),
            "covariance": (options.covariance != "diagonal", "covariance='diagonal'"),
            "inducing": (options.move, "inducing='fixed'"),
        }
        wrong = [name for name, (bad, _) in refused.items() if bad]
        needed = _SPARSE_BYTES * (rows.n + count) * options.num_neighbors
        if self.solver == "auto":
            fits = not wrong and needed <= _MOST_SPARSE_BYTES
            return "sparse" if fits else "stochastic"
        if self.solver == "sparse" and wrong:
            name = wrong[0]
            raise ValueError(
                f"{name}={getattr(self, name)!r} is not available with solver='sparse'. Set {refused[name][1]}, or use "
                "solver='stochastic'."
            )
        return str(self.solver)

    def _solve(
        self,
        rows: Rows,
        kernel: Kernel,
        likelihood: Likelihood,
        Z: np.ndarray,
        options: SwsgpOptions,
    ) -> tuple[SparseFit, Likelihood]:
        """Return mean and variances, and the likelihood that they go with."""
        system = build_sparse(
            rows, self.standardizer_, kernel, Z, options, verbose=bool(self.verbose)
        )
        left = self._seconds_left(self.max_seconds)
        found = fit_sparse(system, likelihood, tol=self.tol, max_seconds=left)
        learned = self.hyperparameters != "fixed" and isinstance(likelihood, Gaussian)
        if learned and not found.loop.converged:
            return given_means(system, found, options.noise_floor)
        return found, likelihood

    def _of_sparse(
        self,
        found: SparseFit,
        kernel: Kernel,
        likelihood: Likelihood,
        Z: np.ndarray,
        options: SwsgpOptions,
    ) -> Fit:
        self.solver_ = "sparse"
        posterior = self._posterior(kernel, Z, found.mean, found.variances, options, "float64")
        self.diagnosis_ = {
            "objective": found.bound,
            "objective_se": 0.0,
            "residual": found.residual,
            "recall": found.recall,
        }
        self._set_inputs(Z)
        self._warn_unless_converged(
            found.loop.converged,
            found.loop.reason,
            f"residual {found.residual:.2g} (tol = {self.tol:g}). Give more time (max_seconds), or a larger tol.",
        )
        loop = found.loop
        return Fit(
            kernel, likelihood, posterior, loop.num_iter, loop.converged, loop.reason, loop.history
        )  # fmt: skip

    def _posterior(
        self,
        kernel: Kernel,
        Z: np.ndarray,
        mean: np.ndarray,
        spread: np.ndarray,
        options: SwsgpOptions,
        dtype: str,
    ) -> SwsgpPosterior:
        neighbors = min(self.predict_neighbors or options.num_neighbors, len(Z))
        jitter = options.least_jitter(dtype)
        return SwsgpPosterior(
            kernel, Z, mean, spread, int(neighbors), jitter, options.taper, options.search
        )

    def _warn_unless_converged(self, converged: bool, reason: str, advice: str) -> None:
        if not converged:
            warnings.warn(
                f"{type(self).__name__} did not converge: {reason}; {advice}",
                ConvergenceWarning,
                stacklevel=6,
            )

    def _place(self, rows: Rows, kernel: Kernel, count: int, seed: int) -> np.ndarray:
        """Return inducing inputs in standardised units: none twice."""
        method = self.inducing_inputs
        if method == "auto":
            method = "kmeans" if count <= _MOST_CLUSTERED else "random"
        most = rows.n if method == "random" else min(rows.n, max(count, _CLUSTERED_ROWS))
        if method == "random":
            # somewhat more than asked for, as rows may repeat
            most = min(rows.n, count + max(100, count // 10))
        chosen = np.sort(minibatch_indices(seed, 1, rows.n, most))
        X = _distinct(self.standardizer_.transform_X(rows.take(chosen)[0]))
        if len(X) < count and most < rows.n:
            chosen = np.arange(rows.n)
            X = _distinct(self.standardizer_.transform_X(rows.take(chosen)[0]))
        if len(X) < count:
            if self.num_inducing is not None:
                raise ValueError(
                    f"num_inducing={self.num_inducing}, but X has {len(X)} distinct rows: two inducing inputs at one "
                    f"place are one. Give at most {len(X)}, or leave it out."
                )
            count = len(X)
        return _distinct(select_inducing(str(method), kernel, X, count, seed))

    def _of(self, fit: SwsgpFit, options: SwsgpOptions, stuck: bool) -> Fit:
        self.solver_ = "stochastic"
        posterior = self._posterior(fit.kernel, fit.Z, fit.mean, fit.spread, options, self.dtype)
        loop, history = fit.loop, fit.loop.history
        self.diagnosis_ = {
            "objective": history.last("objective"),
            "objective_se": history.last("objective_se"),
            "searches": int(fit.searches),
            "recall": float(fit.recall),
            "stale": float(fit.stale),
        }
        self._set_inputs(fit.Z)
        converged, reason = loop.converged and not stuck, loop.reason
        advice = "the bound may still grow, see history_. Give more time (max_seconds, max_iter), or a larger tol."
        if stuck:
            reason = "the bound ended below that of noise alone"
            advice = (
                "inducing inputs much closer than a lengthscale hold each other, and single steps do not move them. "
                "Take solver='sparse' where it applies, fewer inducing inputs, or more steps (max_iter)."
            )
        self._warn_unless_converged(converged, reason, advice)
        return Fit(fit.kernel, fit.likelihood, posterior, loop.num_iter, converged, reason, history)

    def _set_inputs(self, Z: np.ndarray) -> None:
        """Set the inducing inputs in the units of the inputs."""
        scaling = self.standardizer_
        self.inducing_points_ = Z * scaling.x_scale + scaling.x_mean
        self.num_inducing_ = len(Z)

    # ------------------------------------------------------------ predict

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self.posterior_.to_state()
        return state | {"diagnosis": self.diagnosis_, "solver": self.solver_}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.diagnosis_, self.solver_ = state["diagnosis"], state["solver"]
        self.posterior_ = SwsgpPosterior.from_state(state, arrays)
        self._set_inputs(self.posterior_.Z)


def _distinct(X: np.ndarray) -> np.ndarray:
    """Return the rows that differ, in their order."""
    _, first = np.unique(X, axis=0, return_index=True)
    return X[np.sort(first)]


def _explains_nothing(fit: SwsgpFit, options: SwsgpOptions, n: int) -> bool:
    """Whether the bound is below the evidence of a standardised target as noise alone, by more than it scatters.

    Known of Gaussian noise, and of the ordered prior, whose objective is a bound of the evidence.
    """
    if options.prior != "ordered" or not isinstance(fit.likelihood, Gaussian):
        return False
    history = fit.loop.history
    noise_alone = -0.5 * n * (np.log(2.0 * np.pi) + 1.0)
    return bool(history.last("objective") + 3.0 * history.last("objective_se") < noise_alone)
