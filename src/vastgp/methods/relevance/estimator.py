"""Relevance vector regression: a sparse sum of kernel functions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vastgp.data import Rows
from vastgp.data.minibatch import minibatch_indices
from vastgp.estimators.arguments import check_flag, check_positive, seed_from
from vastgp.estimators.base import Fit
from vastgp.estimators.first_hyperparameters import start_rows
from vastgp.estimators.inducing_inputs import check_inputs
from vastgp.estimators.regressor import BaseGPRegressor
from vastgp.fitting.start import start_from_exact_gp
from vastgp.likelihoods import Gaussian
from vastgp.methods.relevance.posterior import RelevancePosterior
from vastgp.methods.relevance.training import RelevanceOptions, fit_relevance

# Without num_basis, at most so many training rows become candidates.
_MOST_CANDIDATES = 20_000
_MOST_ITERATIONS = 5000


class RelevanceVectorRegressor(BaseGPRegressor):
    """Regression by few kernel functions, chosen by the evidence: one prior precision for every candidate.

    The function is ``sum_j w_j k(x, z_j)`` with independent weights ``w_j ~ N(0, 1 / s_j)``. Maximising the evidence
    bound over the precisions ``s`` (and the noise) sends most of them to infinity; the rest are the relevance vectors.
    Prediction needs these alone, so it is fast and the model is small, whatever the number of training rows.

    The price is the variance: it is that of a sum of few functions, which falls to zero away from the relevance
    vectors. Do not rely on intervals far from the data; Gaussian processes are there for that.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `ExactGPRegressor`; its lengthscales are those of highest evidence of a Gaussian process on ``start_rows``
        rows. Basis functions have height one: the kernel's variance plays no part.
    num_basis : int, optional
        Candidates: so many random training rows. None: all of them, up to 20,000.
    inducing_inputs : array-like of shape (m, d), optional
        Candidates of your own instead, in the units of X.
    isotropic : bool, default False
        One lengthscale for all inputs, see `QSGPRegressor`.
    dense_columns : int, optional
        Full columns of the chevron factor of the weights' covariance. None: all of them, the exact posterior. With
        few the bound is lower. Noisy sinc, n = 500, noise 0.1: 7 functions and an error of 0.016 with all, 8 and
        0.018 with ten, 5 and 0.095 with none (mean-field).
    max_precision : float, default 1e4
        Candidates of larger precision are taken out; in units of the standardised target, as in the paper.
    start_rows : int, default 1000
        Rows of the first hyperparameters.
    noise_floor : float, default 1e-6
        Least noise variance relative to the variance of the target.
    row_batch : int, default 10,000
        Rows that a set of candidates is judged by, where there are several sets.
    basis_batch : int, default 1000
        Candidates in a set. Up to so many candidates there is one set, all rows count, and nothing is random.
    max_iter : int, optional
        Most iterations. None: 5000.
    tol : float, default 0.01
        Converged when the bound moves by less than so many nats in ten iterations.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked after every ten iterations.
    random_state : int, RandomState or None, default 0
    dtype : {"float32", "float64"}, default "float64"
        Of predictions; the fit is in float64.
    verbose : bool, default False

    Attributes
    ----------
    relevance_ : ndarray of shape (k,)
        Prior precisions ``s_j`` of the weights that are left, standardised target: the smaller, the more a function
        may contribute.
    relevance_vectors_ : ndarray of shape (k, d)
        Their inputs, in the units of X.
    num_basis_ : int
        Candidates.

    References
    ----------
    Tipping, M. E. (2001). Sparse Bayesian learning and the relevance vector machine. JMLR 1.
    Evans, T. W., Nair, P. B. (2020). Quadruply Stochastic Gaussian Processes. arXiv:2006.03015, appendix I.3.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import RelevanceVectorRegressor
    >>> X = np.linspace(-10, 10, 200)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * np.random.default_rng(0).normal(size=200)
    >>> model = RelevanceVectorRegressor("rbf").fit(X, y)
    >>> len(model.relevance_vectors_) < 20
    True
    """

    def __init__(
        self,
        kernel: Any = None,
        num_basis: Any = None,
        *,
        inducing_inputs: Any = None,
        isotropic: Any = False,
        dense_columns: Any = None,
        max_precision: Any = 1e4,
        start_rows: Any = 1000,
        noise_floor: Any = 1e-6,
        row_batch: Any = 10_000,
        basis_batch: Any = 1000,
        max_iter: Any = None,
        tol: Any = 0.01,
        max_seconds: Any = None,
        random_state: Any = 0,
        dtype: Any = "float64",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.inducing_inputs = inducing_inputs
        self.isotropic = isotropic
        self.dense_columns = dense_columns
        self.max_precision = max_precision
        self.start_rows = start_rows
        self.noise_floor = noise_floor
        self.row_batch = row_batch
        self.basis_batch = basis_batch
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        for name in ("max_precision", "noise_floor", "tol"):
            check_positive(name, getattr(self, name))
        for name in ("start_rows", "row_batch", "basis_batch"):
            check_positive(name, getattr(self, name), integer=True)
        check_positive("num_basis", self.num_basis, integer=True, none="all training rows")
        check_positive("max_iter", self.max_iter, integer=True, none=f"{_MOST_ITERATIONS}")
        check_positive("max_seconds", self.max_seconds, none="no limit")
        check_flag("isotropic", self.isotropic)
        q = self.dense_columns
        whole = isinstance(q, (int, np.integer)) and not isinstance(q, bool)
        if q is not None and (not whole or q < 0):
            raise ValueError(
                f"dense_columns must be an integer of at least 0, or None (all columns); received {q!r}."
            )
        if self.inducing_inputs is not None and self.num_basis is not None:
            raise ValueError(
                f"num_basis={self.num_basis!r} and inducing_inputs were both given: there is one candidate for each "
                "inducing input. Leave one of them out."
            )

    def _candidates(self, rows: Rows, seed: int) -> np.ndarray:
        """Return standardised inputs of the candidates."""
        if self.inducing_inputs is not None:
            return self.standardizer_.transform_X(check_inputs(self.inducing_inputs, rows.d))
        size = min(self.num_basis or _MOST_CANDIDATES, rows.n)
        chosen = np.sort(minibatch_indices(seed, 1, rows.n, size))
        return self.standardizer_.transform_X(rows.take(chosen)[0])

    def _fit_rows(self, rows: Rows) -> Fit:
        seed, scaling = seed_from(self.random_state), self.standardizer_
        candidates = self._candidates(rows, seed)
        start = start_from_exact_gp(
            self.kernel, *start_rows(self, rows, seed), max_rows=self.start_rows, seed=seed,
            noise_floor=self.noise_floor, isotropic=bool(self.isotropic),
            max_seconds=self._seconds_left(self.max_seconds),
        )  # fmt: skip
        kernel = start.kernel.in_units(1.0, float(start.kernel.total_variance()) ** -0.5)
        fit = fit_relevance(
            rows,
            scaling,
            kernel,
            candidates,
            start.noise_variance,
            RelevanceOptions(
                self.dense_columns,
                self.max_precision,
                self.noise_floor,
                self.row_batch,
                self.basis_batch,
            ),
            tol=self.tol,
            max_iter=self.max_iter or _MOST_ITERATIONS,
            max_seconds=self._seconds_left(self.max_seconds),
            seed=seed,
            verbose=bool(self.verbose),
        )
        self.num_basis_ = len(candidates)
        best = fit.posterior
        posterior = RelevancePosterior(
            kernel, candidates[fit.indices], best.mean, best.factor, fit.precision
        )
        self._set_relevance(posterior)
        loop = fit.loop
        if not loop.converged:
            warnings.warn(
                f"RelevanceVectorRegressor did not converge: {loop.reason}; {len(fit.indices)} functions are left, of "
                "which more may be irrelevant. Give more time (max_seconds, max_iter), or a larger tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return Fit(
            kernel, Gaussian(fit.noise_variance), posterior, loop.num_iter, loop.converged, loop.reason, loop.history
        )  # fmt: skip

    def _set_relevance(self, posterior: RelevancePosterior) -> None:
        scaling = self.standardizer_
        self.relevance_ = posterior.precision
        self.relevance_vectors_ = posterior.inputs * scaling.x_scale + scaling.x_mean

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self.posterior_.to_state()
        return state | {"num_basis": self.num_basis_}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.num_basis_ = state["num_basis"]
        self.posterior_ = RelevancePosterior.from_state(state, arrays)
        self._set_relevance(self.posterior_)
