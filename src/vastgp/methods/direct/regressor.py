"""DIRECT: regression with discrete weights whose posterior is a table of small integers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vastgp._arguments import Positive, is_number
from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.data.archive import above, below
from vastgp.estimators.arguments import (
    CheckpointLike,
    Dtype,
    KernelLike,
    MaxSeconds,
    Seed,
    Tolerance,
    Verbose,
    check_fixed_model,
    fixed_noise_variance,
    refuse_given,
)
from vastgp.estimators.bases import Fourier
from vastgp.estimators.first_hyperparameters import find_first
from vastgp.estimators.regressor import BaseGPRegressor
from vastgp.estimators.searches import Fixed, Subset
from vastgp.estimators.sharing import SharedRows
from vastgp.estimators.statistics import TakesSums, gather
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Answer, Run
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.methods.direct.base import BASES, NOISE_FLOOR, SEARCHES, DirectBase
from vastgp.methods.direct.fit import FittedWeights, fit_weights, noise_values
from vastgp.methods.direct.model import QuadraticLikelihood
from vastgp.methods.direct.options import (
    FAMILIES,
    MeanField,
    Mixture,
    SupportArgument,
    resolved_family,
)
from vastgp.methods.direct.posterior import DiscretePosterior
from vastgp.methods.direct.start import noise_of_highest_evidence

# Of what is left of the budget: the sums over the rows.
_SUMS = 0.7


class DirectRegressor(TakesSums, DirectBase, BaseGPRegressor):
    """Regression with random Fourier features whose weights take a few values each.

    The prior of every weight is a discrete relaxation of its normal one, the posterior approximation a product of
    categorical distributions or a mixture of such products. Its evidence bound is computed exactly (Theorem 7.1), so it
    is maximised by Newton's method without sampling, and from the sums ``y^T y, Phi^T y, Phi^T Phi`` alone: after one
    pass over the rows the time does not depend on their number. Posterior samples are integers of four bits and often
    zero; `export` writes them, with quantised features, as a C program that needs no floating point.

    Where weights are as fine as floating point numbers, `QSGPRegressor` is more accurate; this is for devices that
    cannot carry it.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `QSGPRegressor`.
    num_basis : int, optional
        Basis functions; of random Fourier features an even number. None: 2000 as in the thesis, or four per row where
        that is less.
    basis : {"fourier", "grief"} or Fourier, default "fourier"
        Random Fourier features, see `vastgp.options.Fourier`. ``"grief"``: the leading eigenfunctions of the kernel on
        a grid of ten points for each input, as in `GriefRegressor`; the kernel must be a product over the inputs (RBF
        by default). They are fewer for the same error where there are few inputs, and cannot be exported as integers.
    support : int, array-like or Support, default 15
        What a weight can be: so many values evenly spaced over three standard deviations of its prior to either side,
        or the values themselves in these units; with their prior masses, and whether spacings are learned (as they are
        with the normal prior), a `vastgp.options.Support`.
    family : {"mean-field", "mixture"} or MeanField or Mixture, default "mean-field"
        The approximate posterior: independent weights, or several components of these; `vastgp.options.MeanField` and
        `vastgp.options.Mixture` say how it is fitted.
    hyperparameters : {"subset", "fixed"} or Subset or Fixed, default "subset"
        ``"subset"``: kernel of highest evidence on 1000 rows as in the thesis (``Subset(rows=...)``), then the noise of
        highest evidence of normal weights on all rows, at least 1e-4 of the target's variance
        (``Subset(noise_floor=...)``). ``Fixed(noise_std=...)``: as given, in the units of inputs and target.
    tol : float, default 1e-5
        Converged when a step of Newton's method would raise the bound by less than so many nats per row. With a learned
        noise, or a prior of several parts: when the steps that follow would, by how gains shrink. Of a mixture: when
        ten steps together gained less than a tenth of that.
    max_seconds : float, optional
        Wall-clock budget of ``fit``. Where it ends within the pass over the rows, the model is of those that were read.
    checkpoint : path or SaveTo, optional
        File to save the fit to while it works, and to resume from when it exists; see `vastgp.options.SaveTo`.
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
        Sums over the rows, ``8 m^2`` bytes twice, for `partial_fit`. They are part of a saved model; ``del
        model.statistics_`` before `save` makes a small file.

    References
    ----------
    Evans, T. W., Nair, P. B. (2018). Discretely Relaxing Continuous Variables for Tractable Variational Inference.
    NeurIPS. Evans, T. W. (2022), doctoral thesis, chapter 7.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import DirectRegressor
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=200)
    >>> model = DirectRegressor("rbf", num_basis=50).fit(X, y)
    >>> bool(abs(model.predict([[0.5]])[0] - np.sin(1.0)) < 0.1)
    True
    >>> model.posterior_.codes(4, seed=0).dtype, model.posterior_.codes(4, seed=0).shape
    (dtype('int8'), (4, 50))
    """

    _learns = True
    _shared_rows = SharedRows()

    def __init__(
        self,
        kernel: KernelLike = None,
        num_basis: Annotated[
            int | None, Positive(integer=True, none="chosen by the number of rows")
        ] = None,
        *,
        basis: Annotated[str | Fourier, BASES] = "fourier",
        support: SupportArgument = 15,
        family: Annotated[str | MeanField | Mixture, FAMILIES] = "mean-field",
        hyperparameters: Annotated[str | Subset | Fixed, SEARCHES] = "subset",
        tol: Tolerance = 1e-5,
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float32",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.basis = basis
        self.support = support
        self.family = family
        self.hyperparameters = hyperparameters
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        super()._check_params()
        check_fixed_model(self._search(), self.kernel)
        refuse_given("family", resolved_family(self.family), logistic_bound=None)

    # ------------------------------------------------------------ fit

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        search, scaling = self._search(), self.standardizer_
        given = search.noise_std if isinstance(search, Fixed) else None
        first = Gaussian(1.0 if given is None else fixed_noise_variance(given, scaling))
        kernel, likelihood = find_first(self._beginning(rows, run), lambda _: first)
        assert isinstance(likelihood, Gaussian)
        noise_variance = float(likelihood.noise_variance)
        basis, kernel = self._make_basis(kernel, rows, run.seed)
        statistics = gather(rows, scaling, basis, self.dtype, run, share=_SUMS)
        if given is None:
            noise_variance = run.once(
                "noise",
                lambda: noise_of_highest_evidence(
                    _quadratic(statistics), noise_variance, search.noise_floor, run.deadline
                ),
                is_cut=lambda _: run.out_of_time,
            )
        noise = np.array([noise_variance])
        if resolved_family(self.family).learn_noise:
            noise = noise_values(noise_variance, getattr(search, "noise_floor", NOISE_FLOOR))
        proof = self._proof_rows(rows, run.seed)
        late = None
        if statistics.num_rows < rows.n:
            late = f"{OUT_OF_TIME}, by {statistics.num_rows} of {rows.n} rows"
        for weights in self._weights(statistics, noise, noise_variance, run):
            yield self._answer(weights, (basis, kernel, noise, statistics, proof), late)

    def _weights(
        self, statistics: SufficientStatistics, noise: np.ndarray, noise_variance: float, run: Run
    ) -> Iterator[FittedWeights]:
        likelihood, recipe = _quadratic(statistics), self._recipe(statistics.num_rows)
        return fit_weights(likelihood, noise, noise_variance, recipe, run)

    def _answer(
        self,
        weights: FittedWeights,
        known: tuple[Any, Kernel, np.ndarray, SufficientStatistics, np.ndarray],
        late: str | None = None,
    ) -> Answer:
        basis, kernel, noise, statistics, proof = known
        fit = weights.fit
        noise_variance = float(weights.noise_probabilities @ noise)
        if len(noise) == 1:  # a learned one has seen it
            noise_variance += weights.rounding
        return Answer(
            kernel,
            Gaussian(noise_variance),
            lambda: DiscretePosterior(
                basis, weights.values, weights.probabilities, weights.mixture, proof
            ),
            fit.num_iter,
            late or fit.reason,
            fit.converged and late is None,
            fit.history,
            self._advice,
            {
                "num_basis_": basis.num_basis,
                "noise_values_": noise * self.standardizer_.y_scale**2,
                "noise_probabilities_": weights.noise_probabilities,
                "elbo_": float(fit.objective),
                "statistics_": statistics,
            },
        )

    def _check_takes_rows(self) -> None:
        if not hasattr(self, "statistics_"):
            raise ValueError(
                "the sums over the rows of the fit were deleted, so no rows can be added to them. Fit again, and keep "
                "statistics_."
            )

    def _basis_of_sums(self) -> Any:
        return self.posterior_.basis

    def _answers_of_sums(self, statistics: SufficientStatistics, run: Run) -> Iterator[Answer]:
        """Give answers of the weights and, where it was learned, of the noise."""
        posterior = self.posterior_
        noise = self.noise_values_ / self.standardizer_.y_scale**2
        noise_variance = float(self.noise_probabilities_ @ noise)
        known = (posterior.basis, posterior.basis.kernel, noise, statistics, posterior.rows)
        for weights in self._weights(statistics, noise, noise_variance, run):
            yield self._answer(weights, known)

    # ------------------------------------------------------------ files

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "posterior_" in state:  # which holds them, too
            state.pop("statistics_", None)
        return state

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = super()._state()
        arrays |= {"noise": self.noise_values_, "noise_probabilities": self.noise_probabilities_}
        statistics = getattr(self, "statistics_", None)
        if statistics is not None:
            state["statistics"], own = statistics.to_state()
            arrays |= above("statistics/", own)
        return state, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore_state(state, arrays)
        self.noise_values_ = arrays["noise"]
        self.noise_probabilities_ = arrays["noise_probabilities"]
        if "statistics" in state:
            own = below("statistics/", arrays)
            self.statistics_ = SufficientStatistics.from_state(state["statistics"], own)

    # ------------------------------------------------------------ what a fit knows

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
        self._check_own("moments")
        if not is_number(order, whole=True) or order < 1:
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
