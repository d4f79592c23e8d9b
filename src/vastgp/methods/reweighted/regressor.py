"""Regression with any fixed basis whose weights' prior is learned, or averaged over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vastgp.data import Rows
from vastgp.estimators.arguments import check_choice, seed_from
from vastgp.estimators.base import Fit
from vastgp.estimators.first_hyperparameters import check_all_targets
from vastgp.likelihoods import PoissonLogNormal
from vastgp.methods.reweighted.base import BaseReweightedRegressor
from vastgp.methods.reweighted.fit import Features
from vastgp.methods.reweighted.latent_fits import ROWS_PER_STEP, LatentFits
from vastgp.methods.reweighted.latent_values import Counts

LIKELIHOODS = ("gaussian", "poisson-log-normal")
# Mode of the hyper-prior of the logarithmic rates' variance beside the function, at least: functions and latent values
# hold each other the more, the less of it there is.
_LEAST_VARIANCE = 0.03


class ReweightedBasisRegressor(BaseReweightedRegressor, LatentFits):
    """Regression with a basis that stays fixed while the prior of its weights moves.

    With fixed functions, sums over the rows are made once. After that an evaluation of the evidence and of all its
    derivatives costs the same for a thousand rows and for a billion, so that there is time to average over
    hyperparameters (type I) and not only to maximise over them (type II). New rows update a fitted model.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        What the basis is made for, at the hyperparameters of an exact Gaussian process on ``start_rows`` rows. None:
        RBF.
    num_basis : int, optional
        Functions ``m``. None: 500, or fewer where there are not so many.
    basis : {"random-fourier", "laplace", "interpolation", "relevance", "grief"}, default "random-fourier"
        Waves with frequencies drawn from the kernel's spectrum; sines on a box around the data, eigenfunctions of the
        Laplace operator (for few inputs); the kernel's interpolant between random training inputs; kernel functions at
        random training inputs, as in relevance vector machines; eigenfunctions on a grid, see `GriefRegressor`.
    prior : {"kernel", "diagonal", "orthogonal", "spectral"}, default "kernel"
        Of the weights. ``"kernel"``: that of a kernel whose few hyperparameters are inferred, by importance weights of
        the waves or the kernel matrix of the interpolation points (the first three bases). ``"diagonal"``: a variance
        for each weight (both waves of a frequency share theirs). ``"orthogonal"``: a variance for each function after
        they were made orthogonal on the data, O(m) an evaluation in place of O(m^3). ``"spectral"``: any covariance of
        these, by ``num_reflections`` reflections.
    inference : {"type-ii", "type-i"}, default "type-ii"
        Highest evidence, or Markov chains (``pip install vastgp[mcmc]``). A variance for each weight is more than the
        evidence of few rows can tell: use type I there.
    likelihood : {"gaussian", "poisson-log-normal"}, default "gaussian"
        The second: counts whose rates are ``exp(f(x) + eps)`` times a constant, ``eps`` normal, of a variance that
        is inferred. It has ``inference="type-i"`` alone, by chains over hyperparameters and latent values as in
        `ReweightedBasisClassifier`, best with ``sampler="mala"``; sums over the rows do not tell of counts, so that new
        ones need another fit.
    rows_per_step : int, default 500
        Of counts, see `ReweightedBasisClassifier`.
    prior_mean : ndarray of shape (m,), optional
        Prior mean of the weights (section 5.2.5), for example ``weights_`` of an earlier fit with the same basis.
        None: zero.
    num_reflections : int, default 4
        Householder reflections of ``prior="spectral"``.
    box_margin : float, default 0.5
        How far the box of ``basis="laplace"`` reaches beyond the data, relative to half their range.
    sampler, num_chains, num_warmup, num_steps, thin, num_components
        Of type-I inference, see `GriefRegressor`.
    start_rows, noise_floor, max_iter, tol, max_seconds, random_state, dtype, verbose
        See `GriefRegressor`.

    Attributes
    ----------
    weights_ : ndarray of shape (m,)
        Posterior mean of the weights, standardised target.
    posterior_, r_hat_, ess_, log_evidence_, statistics_
        See `GriefRegressor`.

    References
    ----------
    Evans, T. W. Scaling Gaussian processes with tensor algebra and stochastic inference. Thesis, University of Toronto,
    chapter 5.
    Solin, A., Sarkka, S. (2020). Hilbert space methods for reduced-rank Gaussian process regression. Statistics and
    Computing 30.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import ReweightedBasisRegressor
    >>> X = np.linspace(0.0, 6.0, 200)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = ReweightedBasisRegressor("rbf", 50, basis="laplace").fit(X[:100], y[:100])
    >>> model = model.partial_fit(X[100:], y[100:])
    >>> model.statistics_.num_rows
    200
    """

    def __init__(
        self,
        kernel: Any = None,
        num_basis: Any = None,
        *,
        basis: Any = "random-fourier",
        prior: Any = "kernel",
        inference: Any = "type-ii",
        likelihood: Any = "gaussian",
        prior_mean: Any = None,
        rows_per_step: Any = ROWS_PER_STEP,
        num_reflections: Any = 4,
        box_margin: Any = 0.5,
        sampler: Any = "nuts",
        num_chains: Any = 4,
        num_warmup: Any = None,
        num_steps: Any = None,
        thin: Any = None,
        num_components: Any = 50,
        start_rows: Any = 1000,
        noise_floor: Any = 1e-6,
        max_iter: Any = 200,
        tol: Any = 1e-5,
        max_seconds: Any = None,
        random_state: Any = 0,
        dtype: Any = "float64",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.basis = basis
        self.prior = prior
        self.inference = inference
        self.likelihood = likelihood
        self.prior_mean = prior_mean
        self.rows_per_step = rows_per_step
        self.num_reflections = num_reflections
        self.box_margin = box_margin
        self.sampler = sampler
        self.num_chains = num_chains
        self.num_warmup = num_warmup
        self.num_steps = num_steps
        self.thin = thin
        self.num_components = num_components
        self.start_rows = start_rows
        self.noise_floor = noise_floor
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        super()._check_params()
        self._check_basis()
        self._check_rows_per_step()
        check_choice("likelihood", self.likelihood, LIKELIHOODS)
        if self._counts and self.inference != "type-i":
            raise ValueError(
                f"likelihood={self.likelihood!r} and inference={self.inference!r}: the evidence of counts is not known "
                "by sums over the rows. Set inference='type-i' (and sampler='mala'), or use QSGPRegressor or "
                "TSVGPRegressor."
            )
        if self._counts and self.prior_mean is not None:
            raise ValueError("prior_mean is of likelihood='gaussian'; leave it None for counts.")

    @property
    def _counts(self) -> bool:
        return bool(self.likelihood != "gaussian")

    def _scales_target(self) -> bool:
        return not self._counts

    def _open_training(self, X: Any, y: Any) -> Rows:
        rows = super()._open_training(X, y)
        return check_all_targets(rows, PoissonLogNormal()) if self._counts else rows

    # ------------------------------------------------------------ counts

    def _fit_rows(self, rows: Rows) -> Fit:
        if not self._counts:
            return super()._fit_rows(rows)
        self._seed = seed_from(self.random_state)
        start = self._latent_start(rows, PoissonLogNormal())
        first = start.likelihood
        assert isinstance(first, PoissonLogNormal)
        # the variance's hyper-prior has its mode where the bound is highest
        noise = max(float(first.variance), _LEAST_VARIANCE)
        features = Features(*self._make_basis(start.kernel, rows), noise)
        fit, self.statistics_ = self._fit_latent(rows, features, Counts(float(first.rate)), first)
        variance = float(np.mean(self._predictor.noise_variances))
        return replace(fit, likelihood=PoissonLogNormal(first.rate, variance))

    def _check_takes_rows(self) -> None:
        if self._counts:
            raise ValueError(
                f"likelihood={self.likelihood!r}: sums over the rows do not tell of counts, so that new rows cannot be "
                "added. Fit again with all rows."
            )

    # ------------------------------------------------------------ the basis

    def _make_features(self, rows: Rows) -> Features:
        start = self._start(rows, self._wanted_kernel())
        basis, kernel = self._make_basis(start.kernel, rows)
        self._check_prior_mean(basis.num_basis)
        return Features(basis, kernel, start.noise_variance)

    def _check_prior_mean(self, num_basis: int) -> None:
        if self.prior_mean is None:
            return
        mean = np.asarray(self.prior_mean, dtype=np.float64)
        if mean.shape != (num_basis,) or not np.all(np.isfinite(mean)):
            raise ValueError(
                f"prior_mean has shape {mean.shape}. Expected ({num_basis},): a finite number for each of the "
                f"{num_basis} basis functions."
            )

    def _prior_mean(self, num_basis: int) -> np.ndarray:
        if self.prior_mean is None:
            return np.zeros(num_basis)
        return np.asarray(self.prior_mean, dtype=np.float64)

    @property
    def weights_(self) -> np.ndarray:
        """Posterior mean of the weights."""
        return np.asarray(self._predictor.mean_weights)
