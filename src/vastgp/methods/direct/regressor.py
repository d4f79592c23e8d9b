"""DIRECT: regression with discrete weights whose posterior is a table of small integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.estimators.arguments import fixed_noise_variance, seed_from
from vastgp.estimators.base import Fit
from vastgp.estimators.first_hyperparameters import start_rows
from vastgp.estimators.regressor import BaseGPRegressor
from vastgp.estimators.statistics import gather_with_progress
from vastgp.fitting.start import start_from_exact_gp
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.methods.direct.arguments import check_direct, check_noise
from vastgp.methods.direct.fit import DirectFits, FittedWeights
from vastgp.methods.direct.model import QuadraticLikelihood
from vastgp.methods.direct.posterior import DiscretePosterior
from vastgp.methods.direct.start import noise_of_highest_evidence


class DirectRegressor(BaseGPRegressor, DirectFits):
    """Regression with random Fourier features whose weights take a few values each.

    The prior of every weight is a discrete relaxation of its normal one, the posterior approximation a product of
    categorical distributions or a mixture of such products. Its evidence bound is computed exactly (Theorem 7.1), so
    it is maximised by L-BFGS without sampling, and from the sums ``y^T y, Phi^T y, Phi^T Phi`` alone: after one pass
    over the rows the time does not depend on their number. Posterior samples are integers of four bits and often zero;
    `export` writes them, with quantised features, as a C program that needs no floating point.

    Where weights are as fine as floating point numbers, `QSGPRegressor` is more accurate; this is for devices that
    cannot carry it.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `QSGPRegressor`.
    num_basis : int, optional
        Basis functions; of random Fourier features an even number. None: 2000 as in the thesis, or four per row where
        that is less.
    basis : {"fourier", "grief"}, default "fourier"
        ``"grief"``: the leading eigenfunctions of the kernel on a grid of ten points for each input, as in
        `GriefRegressor`; the kernel must be a product over the inputs (RBF by default). They are fewer for the same
        error where there are few inputs, and cannot be exported as integers.
    support : int or array-like, default 15
        What a weight can be: so many values evenly spaced over three standard deviations of its prior to either side,
        or the values themselves in these units (powers of two, for example). Up to 16 can be exported.
    learn_support : bool, optional
        Learn one spacing for each weight: all its values are multiplied by it, and samples stay four-bit integers. It
        recovers most of what rounding costs. None: with the normal prior; False: values as in the thesis.
    prior : {"gaussian", "uniform"} or array-like, default "gaussian"
        Masses of the values, ``(k,)``, or ``(p, k)`` for a mixture of ``p`` factorised priors (Theorem 7.4). The
        normal density at the values, by default.
    prior_weights : array-like of shape (p,), optional
        Weights of the parts of a mixture.
    q : {"mean-field", "mixture"}, default "mean-field"
        Approximate posterior: independent weights, or ``components`` of these.
    components : int, default 5
    noise : {"fixed", "learned"}, default "fixed"
        ``"fixed"``: weights are fitted at the noise variance of highest evidence of normal weights on all rows; that
        of predictions has the error added that their rounding makes at the training rows. ``"learned"``: a discrete
        prior over the noise variance (15 values, a factor of ten to either side of it) as in Theorem 7.1. Mean-field
        bounds prefer too much noise where there are more basis functions than rows.
    objective : {"bound", "unbiased"}, default "bound"
        Of mixtures, whose entropy has no closed form: the bound of Theorem 7.3, or stochastic gradients with unbiased
        estimates of its slope (7.27), ``draws`` of each component a step.
    draws : int, default 64
    start : {"posterior", "prior"}, default "posterior"
        Where the weights start: the posterior of normal weights, rounded with its correlations and improved weight by
        weight; or the prior, as in the thesis, from where many rows lead to poor local maxima.
    isotropic : bool, default False
        As in `QSGPRegressor`.
    hyperparameters : {"subset", "fixed"}, default "subset"
        ``"subset"``: kernel of highest evidence on ``start_rows`` rows, noise as above. ``"fixed"``: those given, in
        the units of inputs and target.
    noise_std : float, optional
        Needed with ``hyperparameters="fixed"``, refused otherwise.
    noise_floor : float, default 1e-4
        Least noise variance relative to that of the target.
    start_rows : int, default 1000
        As in the thesis.
    frequencies : {"plain", "orthogonal", "qmc"}, default "plain"
    keep_statistics : bool, default True
        Keep the sums over the rows, ``8 m^2`` bytes twice, for `partial_fit`. They are part of a saved model.
    max_iter : int, default 1000
        Most iterations of L-BFGS, or steps of stochastic gradients.
    tol : float, default 1e-5
        Converged when an iteration raises the bound by less than so many nats per row (or that share of it).
    max_seconds : float, optional
        Wall-clock budget of ``fit``; the pass over the rows is not cut short.
    random_state : int, RandomState or None, default 0
    dtype : {"float32", "float64"}, default "float32"
        Of the features; sums and bounds are in float64.
    verbose : bool, default False

    Attributes
    ----------
    elbo_ : float
        The evidence bound that was reached, in nats and standardised units; for mixtures a bound or an estimate of it.
    num_basis_ : int
    noise_values_, noise_probabilities_ : ndarray of shape (s,)
        What the noise variance can be, in squared units of the target, and the posterior probability of each.
    statistics_ : SufficientStatistics
        With ``keep_statistics``.

    References
    ----------
    Evans, T. W., Nair, P. B. (2018). Discretely Relaxing Continuous Variables for Tractable Variational Inference.
    NeurIPS. Evans, T. W. (2022), doctoral thesis, chapter 7.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import DirectRegressor
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> model = DirectRegressor("rbf", num_basis=50).fit(X, np.sin(2 * X[:, 0]))
    >>> bool(abs(model.predict([[0.5]])[0] - np.sin(1.0)) < 0.1)
    True
    >>> model.posterior_.codes(4, seed=0).dtype, model.posterior_.codes(4, seed=0).shape
    (dtype('int8'), (4, 50))
    """

    def __init__(
        self,
        kernel: Any = None,
        num_basis: Any = None,
        *,
        basis: Any = "fourier",
        support: Any = 15,
        learn_support: Any = None,
        prior: Any = "gaussian",
        prior_weights: Any = None,
        q: Any = "mean-field",
        components: Any = 5,
        noise: Any = "fixed",
        objective: Any = "bound",
        draws: Any = 64,
        start: Any = "posterior",
        isotropic: Any = False,
        hyperparameters: Any = "subset",
        noise_std: Any = None,
        noise_floor: Any = 1e-4,
        start_rows: Any = 1000,
        frequencies: Any = "plain",
        keep_statistics: Any = True,
        max_iter: Any = 1000,
        tol: Any = 1e-5,
        max_seconds: Any = None,
        random_state: Any = 0,
        dtype: Any = "float32",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.basis = basis
        self.support = support
        self.learn_support = learn_support
        self.prior = prior
        self.prior_weights = prior_weights
        self.q = q
        self.components = components
        self.noise = noise
        self.objective = objective
        self.draws = draws
        self.start = start
        self.isotropic = isotropic
        self.hyperparameters = hyperparameters
        self.noise_std = noise_std
        self.noise_floor = noise_floor
        self.start_rows = start_rows
        self.frequencies = frequencies
        self.keep_statistics = keep_statistics
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        check_direct(self)
        check_noise(self)

    # ------------------------------------------------------------ fit

    def _fit_rows(self, rows: Rows) -> Fit:
        seed = seed_from(self.random_state)
        kernel, noise_variance = self._first_hyperparameters(rows, seed)
        basis, kernel = self._make_basis(kernel, rows, seed)
        statistics = gather_with_progress(self, rows, basis)
        likelihood = _quadratic(statistics)
        if self.hyperparameters == "subset":
            noise_variance = noise_of_highest_evidence(likelihood, noise_variance, self.noise_floor)
        noise = np.array([noise_variance])
        if self.noise == "learned":
            noise = self._noise_values(noise_variance)
        weights = self._fit_weights(likelihood, rows.n, noise_variance, seed, noise=noise)
        proof = self._proof_rows(rows, seed)
        return self._of_weights(weights, basis, kernel, noise, statistics, proof)

    def _first_hyperparameters(self, rows: Rows, seed: int) -> tuple[Kernel, float]:
        """Return kernel and noise variance in standardised units."""
        if self.hyperparameters == "fixed":
            noise_variance = fixed_noise_variance(self.noise_std, self.standardizer_)
            return self._given_kernel(), noise_variance
        X, y = start_rows(self, rows, seed)
        start = start_from_exact_gp(
            self._wanted_kernel(), X, y, max_rows=self.start_rows, seed=seed, noise_floor=self.noise_floor,
            isotropic=bool(self.isotropic), max_seconds=self._seconds_left(self.max_seconds),
        )  # fmt: skip
        return start.kernel, start.noise_variance

    def _of_weights(
        self,
        weights: FittedWeights,
        basis: Any,
        kernel: Kernel,
        noise: np.ndarray,
        statistics: SufficientStatistics,
        proof: np.ndarray,
    ) -> Fit:
        self._warn_unless_converged([weights.fit])
        y_scale = self.standardizer_.y_scale
        self.noise_values_ = noise * y_scale**2
        self.noise_probabilities_ = weights.noise_probabilities
        self.elbo_ = float(weights.fit.objective)
        if self.keep_statistics:
            self.statistics_ = statistics
        elif hasattr(self, "statistics_"):
            del self.statistics_
        posterior = DiscretePosterior(
            basis, weights.values, weights.probabilities, weights.mixture, proof
        )
        fit = weights.fit
        noise_variance = float(weights.noise_probabilities @ noise)
        if self.noise == "fixed":  # a learned one has seen it
            noise_variance += weights.rounding
        return Fit(
            kernel,
            Gaussian(noise_variance),
            posterior,
            fit.num_iter,
            fit.converged,
            fit.reason,
            fit.history,
        )

    def partial_fit(self, X: Any, y: Any = None) -> Any:
        """Add rows to the model: their sums are added to those of the rows before, and the weights fitted again.

        Scaling, kernel and values of the weights stay those of the first rows; the noise is learned again where it
        was. The time does not depend on how many rows there were before.

        Parameters
        ----------
        X, y
            As in ``fit``, which this is when there is no model yet.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            When the sums were not kept (``keep_statistics``), or for data that do not match those of the fit.
        """
        if not hasattr(self, "posterior_"):
            return self.fit(X, y)
        self._check_params()
        statistics = getattr(self, "statistics_", None)
        if statistics is None:
            raise ValueError(
                "the sums over the rows of the fit were not kept, so no rows can be added to them. Set "
                "keep_statistics=True and fit again."
            )
        rows = self._open(X, y, require_y=True)
        posterior = self.posterior_
        with precision(self.dtype):
            statistics = statistics + gather_with_progress(self, rows, posterior.basis)
            noise = self.noise_values_ / self.standardizer_.y_scale**2
            variance = float(self.noise_probabilities_ @ noise)
            weights = self._fit_weights(
                _quadratic(statistics), statistics.num_rows, variance, seed_from(self.random_state),
                noise=noise,
            )  # fmt: skip
            kernel = posterior.basis.kernel
            fit = self._of_weights(
                weights, posterior.basis, kernel, noise, statistics, posterior.rows
            )
        self._take_fit(fit)
        return self

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = super()._state()
        arrays |= {"noise": self.noise_values_, "noise_probabilities": self.noise_probabilities_}
        return state | {"elbo": self.elbo_}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore_state(state, arrays)
        self.elbo_ = state["elbo"]
        self.noise_values_ = arrays["noise"]
        self.noise_probabilities_ = arrays["noise_probabilities"]

    def moments(self, X: Any, order: int = 4) -> np.ndarray:
        """Return central moments of the function, exact: ``E[(f - E f)^p]`` for ``p = 1 ... order``.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
        order : int, default 4

        Returns
        -------
        ndarray of shape (order, n)
            In powers of the target's unit; the second one is the latent variance.
        """
        check_is_fitted(self, "posterior_")
        if isinstance(order, bool) or not isinstance(order, (int, np.integer)) or order < 1:
            raise ValueError(f"order must be a positive integer, received {order!r}.")
        with precision(self.dtype):
            parts = [
                self.posterior_.central_moments(tile, int(order))
                for tile, _ in self._tiles(self._open(X))
            ]
        powers = self.standardizer_.y_scale ** np.arange(1, order + 1)
        return np.concatenate(parts, axis=1) * powers[:, None]


def _quadratic(statistics: SufficientStatistics) -> QuadraticLikelihood:
    return QuadraticLikelihood(
        float(statistics.num_rows), statistics.square, statistics.target, statistics.gram
    )
