"""The posterior of an exact Gaussian process with Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from vastgp import _accelerator
from vastgp._precision import precision
from vastgp._warn import warn
from vastgp.data import observations
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.kernels import Kernel, from_spec, to_spec
from vastgp.kernels.matrices import covariance, device_covariance, prior_variances
from vastgp.linalg.cholesky import JITTERS, Cholesky, factorize
from vastgp.linalg.panel_folder import SpilledCholesky
from vastgp.linalg.panels import PANEL_ROWS
from vastgp.solvers.exact_factor import (
    VARIANCE_ERROR,
    Clock,
    Factored,
    explained,
    factor_exactly,
)
from vastgp.solvers.large_factor import RemadeFactor
from vastgp.solvers.left_out import LeftOut
from vastgp.solvers.row_covariance import Refined, RowCovariance, refine

# Rows up to which the factor is made as one matrix in float64; of more it is in panels, which no file keeps.
DENSE_ROWS = 5000
# A joint sample factorises the covariance of its rows.
_MOST_SAMPLED_ROWS = 10_000
# Added to the diagonal of that covariance, relative to the prior variance: where the data leave nothing open, rounding
# leaves this much.
_SAMPLE_JITTER = 1e-10
# Where the factor is in float32 that covariance is known to a hundredth of itself.
_MORE_JITTERS = (*JITTERS, 1e-4, 1e-2)
# Right-hand sides that are solved for at a time.
_COLUMNS = 256
# Numbers of a cross-covariance that the host makes in less time than an accelerator's program takes to compile.
_ON_HOST = 1 << 22
# A few entries of the inverse's diagonal say whether the others need refinement.
_CHECKED = 32


@dataclass(frozen=True)
class ExactPosterior:
    """Posterior of ``f ~ GP(0, kernel)`` given ``y = f(X) + e``, ``e ~ N(0, noise_variance)``.

    All in the units of ``X`` and ``y``: standardised ones inside an estimator. Means are in float64; variances too, but
    where the factor is in float32 they are right to a hundredth of themselves with the noise's
    (`vastgp.solvers.exact_factor`).

    Attributes
    ----------
    kernel : Kernel
    noise_variance : float
    X : ndarray of shape (n, d)
        Training inputs.
    weights : ndarray of shape (n,)
        ``A^-1 y`` with ``A = K + noise_variance I``.
    factor : Cholesky, PanelCholesky or RemadeFactor
        Of ``A``, or of a matrix nearby.
    y : ndarray of shape (n,), or (n, 3) with noise of the rows' own
        Targets.
    refined : bool
        Whether what the factor says of variances is refined with the matrix itself.
    """

    kernel: Kernel
    noise_variance: float
    X: np.ndarray
    weights: np.ndarray
    factor: Any
    y: np.ndarray = field(default_factory=lambda: np.zeros(0))
    refined: bool = False

    @classmethod
    def condition_many(
        cls,
        kernel: Kernel,
        noise_variance: float,
        X: Any,
        y: Any,
        dtype: str = "auto",
        *,
        seed: int = 0,
        panel_rows: int = PANEL_ROWS,
        clock: Clock | None = None,
        spill: Path | None = None,
    ) -> tuple[ExactPosterior, Factored]:
        """Return the posterior given very many rows, and what is known of its factor.

        The factor is made in panels: half the memory, no second copy, and in float32 where that will do.

        Parameters
        ----------
        kernel, noise_variance, X, y
            As in `condition`.
        dtype, seed, panel_rows, clock, spill
            See `factor_exactly`: where it is stopped, the posterior is that of the leading rows.

        Raises
        ------
        FactorizationError
            When no factor is good enough.
        """
        X, y = np.ascontiguousarray(X, np.float64), np.asarray(y, np.float64)
        matrix = RowCovariance.observed(kernel, noise_variance, X, y)
        found = factor_exactly(
            matrix, observations.targets(y), dtype,
            seed=seed, panel_rows=panel_rows, clock=clock, spill=spill,
        )  # fmt: skip
        n = found.factor.size
        made = cls(
            kernel, float(noise_variance), X[:n], found.weights, found.factor, y[:n], found.refined
        )
        return made, found

    @classmethod
    def condition(
        cls, kernel: Kernel, noise_variance: float, X: Any, y: Any
    ) -> tuple[ExactPosterior, float]:
        """Return the posterior given data, and the log evidence.

        Raises
        ------
        FactorizationError
            When the covariance matrix cannot be factorised.
        """
        evidence = ExactEvidence(X, y)
        value, factor, weights = evidence.solve(kernel, noise_variance)
        made = cls(kernel, float(noise_variance), evidence.X, weights, factor, evidence.observed)
        return made, value

    def given_also(self, X: np.ndarray, y: np.ndarray) -> tuple[ExactPosterior, float]:
        """Return the posterior given further rows, with one factor of all, and the log evidence; see `condition`."""
        rows = np.concatenate([self.X, X]), np.concatenate([self.y, y])
        return self.condition(self.kernel, self.noise_variance, *rows)

    def at_best_scale(self) -> tuple[ExactPosterior, float, float]:
        """Return the posterior with variances of kernel and noise times their best common factor, it, and the gain.

        ``log p(y | s A) = -1/2 y^T A^-1 y / s - n/2 log s + const`` is largest at ``s = y^T A^-1 y / n``, where it is
        ``n (s - 1 - log s) / 2`` above that at ``s = 1``.
        """
        scale = self.best_scale
        gain = 0.5 * len(self.y) * (scale - 1.0 - float(np.log(scale)))
        return self.at_scale(scale), scale, gain

    @property
    def best_scale(self) -> float:
        """The best common factor of the variances of kernel and noise, see `at_best_scale`."""
        return float(observations.targets(self.y) @ self.weights) / len(self.y)

    def at_scale(self, scale: float) -> ExactPosterior:
        """Return the posterior with variances of kernel and noise times a factor. Means stay.

        The factor of the matrix is that of the new posterior; this one is of no use afterwards.
        """
        root = scale**0.5
        if isinstance(self.factor, Cholesky):
            factor: Any = Cholesky(root * self.factor.lower, scale * self.factor.jitter)
        else:
            factor = self.factor
            factor.scale(root)
        return replace(
            self,
            kernel=self.kernel.in_units(1.0, root),
            noise_variance=scale * self.noise_variance,
            weights=self.weights / scale,
            factor=factor,
        )

    @cached_property
    def matrix(self) -> RowCovariance:
        """``A``, which is not stored."""
        return RowCovariance.observed(self.kernel, self.noise_variance, self.X, self.y)

    def mean(self, X: Any) -> np.ndarray:
        """Return the posterior mean at each row of ``X``."""
        return self._mean_of(self._cross(X))

    def mean_and_latent_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the function at each row of ``X``.

        ``k(x, x) - k(x, X) A^-1 k(X, x)`` (Rasmussen & Williams 2006, eq. 2.26).
        """
        cross, prior = self._cross(X), prior_variances(self.kernel, X)
        variance = prior - self._explained(cross, prior)
        return self._mean_of(cross), np.maximum(variance, 0.0)

    def leave_one_out(self) -> LeftOut:
        """Return what all other rows say of each one, its own noise included.

        ``mu_i = y_i - [A^-1 y]_i / [A^-1]_ii`` and ``s_i^2 = 1 / [A^-1]_ii`` (Rasmussen & Williams 2006, eq. 5.12),
        with the kernel and noise of all. The diagonal takes as many operations as the factor did.
        """
        if not len(self.y):
            raise ValueError(
                "this posterior was saved by a version that kept no targets, which leave_one_out needs: fit again."
            )
        precision = self.factor.inverse_diagonal()
        if self._is_rounded:
            some = np.linspace(0, len(self.X) - 1, min(_CHECKED, len(self.X))).astype(np.int64)
            exact = self._refined_diagonal(some)
            if np.max(np.abs(precision[some] / exact - 1.0)) > VARIANCE_ERROR:
                precision = self._refined_diagonal(np.arange(len(self.X)))
        return LeftOut.of(observations.targets(self.y), self.weights / precision, 1.0 / precision)

    def samples(self, X: Any, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function at the rows of ``X``, shape (rows, num_samples).

        Raises
        ------
        ValueError
            When there are more rows than the dense covariance of a joint sample is made for.
        """
        if len(X) > _MOST_SAMPLED_ROWS:
            raise ValueError(
                f"X has {len(X)} rows; joint samples of an exact Gaussian process are made for at most "
                f"{_MOST_SAMPLED_ROWS}. Sample fewer rows, or use QSGPRegressor, whose samples are functions."
            )
        left = self.covariance(X)
        prior = float(self.kernel.total_variance())
        root = factorize(
            left,
            _SAMPLE_JITTER * prior,
            what="the posterior covariance of the rows to sample",
            jitters=_MORE_JITTERS if self._is_rounded else JITTERS,
        )
        normals = np.random.default_rng(seed).standard_normal((len(X), num_samples))
        return self.mean(X)[:, None] + np.tril(root.lower) @ normals

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays.

        A factor of some thousand rows is kept, not made again on loading: its last bits depend on machine and threads.
        One in panels takes gigabytes and is made when it is asked for: the mean does not need it.
        """
        spec, arrays = to_spec(self.kernel)
        state = {
            "kernel": spec,
            "noise_variance": self.noise_variance,
            "refined": self.refined,
        }
        arrays = arrays | {"X": self.X, "weights": self.weights, "y": self.y}
        if isinstance(self.factor, Cholesky):
            packed = self.factor.lower[np.tril_indices(len(self.X))]
            return state | {"jitter": self.factor.jitter}, arrays | {"factor": packed}
        of_factor = {"dtype": str(self.factor.dtype), "panel_rows": self.factor.panel_rows}
        where = self.factor
        if isinstance(where, SpilledCholesky):
            of_factor |= {"folder": str(where.place.resolve()), "unit": where.unit}
        elif isinstance(where, RemadeFactor) and where.folder is not None:
            of_factor |= {"folder": where.folder, "unit": where.unit}
        return state | {"remade": of_factor}, arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> ExactPosterior:
        """Return the posterior that `to_state` wrote."""
        kernel, X = from_spec(state["kernel"], arrays), arrays["X"]
        noise, y = state["noise_variance"], arrays.get("y", np.zeros(0))
        factor: Any
        if "remade" in state:
            matrix = RowCovariance.observed(kernel, noise, X, y)
            factor = RemadeFactor(matrix, **state["remade"])
        else:
            n = len(X)
            lower = np.zeros((n, n), order="F")
            lower[np.tril_indices(n)] = arrays["factor"]
            factor = Cholesky(lower, state["jitter"])
        return cls(kernel, noise, X, arrays["weights"], factor, y, state.get("refined", False))

    def covariance(self, X: Any) -> np.ndarray:
        """Return the posterior covariance of the function between the rows of ``X``."""
        prior, right = covariance(self.kernel, X, X), covariance(self.kernel, self.X, X)
        if not self.refined:
            half = self.factor.half_solve(right)
            return prior - _gram(half)
        taken, variances = np.empty(prior.shape), np.diagonal(prior)
        for here in _parts(len(prior)):
            # b_j^T A^-1 r_i is at most the root of both quadratic forms
            share = VARIANCE_ERROR**2 / variances[here]
            taken[here] = self._refine(right[:, here].T, variances[here], share).solution @ right
        return prior - 0.5 * (taken + taken.T)

    def _explained(self, cross: Any, prior: np.ndarray) -> np.ndarray:
        """Return ``k^T A^-1 k`` of each row of ``cross``."""
        if not self.refined:
            with precision("float64"):
                return explained(self.factor, cross.T)
        cross = np.asarray(cross)
        parts = [self._refine(cross[here], prior[here]).value for here in _parts(len(cross))]
        return np.concatenate(parts)

    def _refine(self, right: np.ndarray, prior: np.ndarray, share: Any = None) -> Refined:
        """Solve for right-hand sides until what is missing is a share of variance and noise, or of its square."""

        def most_left(value: np.ndarray) -> np.ndarray:
            variance = np.maximum(prior - value, _SAMPLE_JITTER * prior)
            if share is None:
                return VARIANCE_ERROR * (variance + self.noise_variance)
            return share * variance**2

        found = refine(self.matrix, self.factor, right, most_left)
        if not found.reached:
            warn(
                f"standard deviations did not converge in {found.steps} steps of refinement and may be too wide; "
                "dtype='float64' needs none.",
                RuntimeWarning,
            )
        return found

    def _refined_diagonal(self, rows: np.ndarray) -> np.ndarray:
        """Return ``[A^-1]_ii`` of some rows."""
        found = np.empty(len(rows))
        for here in _parts(len(rows)):
            right = np.zeros((len(rows[here]), len(self.X)))
            right[np.arange(len(right)), rows[here]] = 1.0
            solved = refine(self.matrix, self.factor, right, lambda v: 0.1 * VARIANCE_ERROR * v)
            found[here] = solved.value
        return found

    @property
    def _is_rounded(self) -> bool:
        """Whether the factor is that of a matrix nearby."""
        return self.refined or (
            not isinstance(self.factor, Cholesky) and self.factor.dtype != np.float64
        )

    def _cross(self, X: Any) -> Any:
        """Return ``K(X, X_n)``; many numbers on an accelerator, where there is one."""
        if _accelerator.is_present() and len(X) * len(self.X) > _ON_HOST:
            return device_covariance(self.kernel, X, self.X)
        return covariance(self.kernel, X, self.X)

    def _mean_of(self, cross: Any) -> np.ndarray:
        if isinstance(cross, np.ndarray):
            return cross @ self.weights
        with precision("float64"):
            return np.asarray(cross @ jnp.asarray(self.weights))


def _parts(count: int) -> list[slice]:
    return [slice(start, min(start + _COLUMNS, count)) for start in range(0, count, _COLUMNS)]


def _gram(half: np.ndarray) -> np.ndarray:
    """Return ``half^T half`` in float64, without a copy of all of it."""
    if half.dtype == np.float64:
        return half.T @ half
    total = np.zeros((half.shape[1], half.shape[1]))
    for start in range(0, len(half), PANEL_ROWS):
        part = half[start : start + PANEL_ROWS].astype(np.float64)
        total += part.T @ part
    return total
