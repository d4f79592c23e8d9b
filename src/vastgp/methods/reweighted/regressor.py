"""Regression with any fixed basis whose weights' prior is learned, or averaged over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np

from vastgp._arguments import OneOf, Positive
from vastgp.data import Rows
from vastgp.estimators.arguments import (
    CheckpointLike,
    Dtype,
    KernelLike,
    MaxSeconds,
    Seed,
    Verbose,
    refuse_given,
)
from vastgp.estimators.first_hyperparameters import (
    Beginning,
    check_all_targets,
    find_first,
    first_counts,
)
from vastgp.estimators.searches import Subset
from vastgp.fitting.run import Answer, Run
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.likelihoods import Gaussian, Likelihood, Poisson, PoissonLogNormal
from vastgp.methods.reweighted.base import (
    BASIS_ARGUMENTS,
    CHAIN_ARGUMENTS,
    NOISE_FLOOR,
    TYPE_II_ARGUMENTS,
    ChosenBasis,
    FixedBasisRegressor,
)
from vastgp.methods.reweighted.fixed_basis import FixedBasis
from vastgp.methods.reweighted.inference import infer, infer_latent
from vastgp.methods.reweighted.latent_chains import LatentRows
from vastgp.methods.reweighted.latent_values import Counts
from vastgp.methods.reweighted.mixtures import LatentMixture, WeightMixture
from vastgp.methods.reweighted.model import Features
from vastgp.methods.reweighted.options import (
    BASES,
    INFERENCES,
    PRIORS,
    SUBSET,
    LaplaceBasis,
    MarkovChains,
    TypeII,
    WeightsPrior,
)

# Mode of the hyper-prior of the logarithmic rates' variance beside the function, at least: functions and latent values
# hold each other the more, the less of it there is.
_LEAST_VARIANCE = 0.03


class ReweightedBasisRegressor(FixedBasisRegressor, ChosenBasis):
    """Regression with a basis that stays fixed while the prior of its weights moves.

    With fixed functions, sums over the rows are made once. After that an evaluation of the evidence and of all its
    derivatives costs the same for a thousand rows and for a billion, so that there is time to average over
    hyperparameters (type I) and not only to maximise over them (type II). New rows update a fitted model.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        What the basis is made for, at the hyperparameters of an exact Gaussian process on some rows. None: RBF.
    num_basis : int, optional
        Functions ``m``. None: 500, or fewer where there are not so many.
    basis : {"random-fourier", "laplace", "interpolation", "relevance", "grief"} or LaplaceBasis, default \
"random-fourier"
        Waves with frequencies drawn from the kernel's spectrum; sines on a box around the data, eigenfunctions of the
        Laplace operator (for few inputs; ``LaplaceBasis(box_margin=...)`` of `vastgp.options` says how wide the box
        is); the kernel's interpolant between random training inputs; kernel functions at random training inputs, as in
        relevance vector machines; eigenfunctions on a grid, see `GriefRegressor`.
    prior : {"kernel", "diagonal", "orthogonal", "spectral"} or an object of these, default "kernel"
        Of the weights. ``"kernel"``: that of a kernel whose few hyperparameters are inferred, by importance weights of
        the waves or the kernel matrix of the interpolation points (the first three bases). ``"diagonal"``: a variance
        for each weight (both waves of a frequency share theirs). ``"orthogonal"``: a variance for each function after
        they were made orthogonal on the data, O(m) an evaluation in place of O(m^3). ``"spectral"``: any covariance of
        these, by reflections. The objects, ``KernelWeights``, ``DiagonalWeights``, ``OrthogonalWeights`` and
        ``SpectralWeights`` of `vastgp.options`, hold a prior mean and the number of reflections.
    inference : {"type-ii", "type-i", "nuts", "mala"} or TypeII, NUTS or MALA, default "type-ii"
        Highest evidence, or Markov chains (``pip install vastgp[mcmc]``), by NUTS where nothing else is said. A
        variance for each weight is more than the evidence of few rows can tell: use type I there. Iterations, chains
        and their steps are on the objects, see `vastgp.options`.
    likelihood : {"gaussian", "poisson-log-normal"}, default "gaussian"
        The second: counts whose rates are ``exp(f(x) + eps)`` times a constant, ``eps`` normal, of a variance that
        is inferred. It has type-I inference alone, by chains over hyperparameters and latent values as in
        `ReweightedBasisClassifier`, best with ``inference="mala"``; sums over the rows do not tell of counts, so that
        new ones need another fit.
    hyperparameters : {"subset"} or Subset, default "subset"
        ``rows`` random rows (1000) whose exact Gaussian process says which kernel the basis is made for, and the least
        noise variance, ``noise_floor`` (1e-6), relative to the variance of the target.
    max_seconds, checkpoint, random_state, dtype, verbose
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

    _moved: ClassVar[Mapping[str, str]] = CHAIN_ARGUMENTS | TYPE_II_ARGUMENTS | BASIS_ARGUMENTS
    _compiling_seconds: ClassVar[float] = 5.0

    def __init__(
        self,
        kernel: KernelLike = None,
        num_basis: Annotated[int | None, Positive(integer=True, none="at most 500")] = None,
        *,
        basis: Annotated[str | LaplaceBasis, BASES] = "random-fourier",
        prior: Annotated[str | WeightsPrior, PRIORS] = "kernel",
        inference: Annotated[str | TypeII | MarkovChains, INFERENCES] = "type-ii",
        likelihood: Annotated[str, OneOf("gaussian", "poisson-log-normal")] = "gaussian",
        hyperparameters: Annotated[str | Subset, SUBSET] = "subset",
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float64",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.basis = basis
        self.prior = prior
        self.inference = inference
        self.likelihood = likelihood
        self.hyperparameters = hyperparameters
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        how, fixed = self._how(), self._fixed()
        self._search()
        fixed.check()
        if not self._counts:
            refuse_given("inference", how, rows_per_step=None)
        elif isinstance(how, TypeII):
            raise ValueError(
                f"likelihood={self.likelihood!r} and inference={self.inference!r}: the evidence of counts is not known "
                "by sums over the rows. Set inference='mala' (or 'type-i'), or use QSGPRegressor or TSVGPRegressor."
            )
        else:
            refuse_given("prior", fixed.prior, mean=None)
        self._check_libraries(how)

    def _how(self) -> Any:
        how = INFERENCES.resolve("inference", self.inference)
        return how.given(max_iter=200, tol=1e-5) if isinstance(how, TypeII) else how

    @property
    def _counts(self) -> bool:
        return self.likelihood != "gaussian"

    def _scales_target(self) -> bool:
        return not self._counts

    def _simple_likelihood(self, y: np.ndarray) -> Likelihood:
        return first_counts(Poisson(), y) if self._counts else super()._simple_likelihood(y)

    def _open_training(self, X: Any, y: Any) -> Rows:
        rows = super()._open_training(X, y)
        return check_all_targets(rows, PoissonLogNormal()) if self._counts else rows

    # ------------------------------------------------------------ fit

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        fixed, scaling = self._fixed(), self.standardizer_
        beginning = self._beginning(rows, run, NOISE_FLOOR)
        if self._counts:
            yield from self._of_counts(fixed, beginning, rows, run)
            return
        kernel, noise = find_first(beginning, lambda _: Gaussian(1.0))
        assert isinstance(noise, Gaussian)
        first = float(noise.noise_variance)
        features = fixed.make(kernel, first, rows, scaling, run.seed, self.dtype)
        yield from self._of_rows(features, rows, run)

    def _inferred(
        self, features: Features, statistics: SufficientStatistics, run: Run, learned: Any = None
    ) -> Iterator[Answer]:
        fixed = self._fixed()
        found = infer(
            features, statistics, lambda data: self._make_prior(features, data),
            fixed.prior.mean_of(statistics.num_basis), self._how(), run,
            noise_floor=self._search(noise_floor=NOISE_FLOOR).noise_floor, learned=learned,
        )  # fmt: skip
        yield from self._gaussian(found, statistics)

    def _of_counts(
        self, fixed: FixedBasis, beginning: Beginning, rows: Rows, run: Run
    ) -> Iterator[Answer]:
        scaling = self.standardizer_
        kernel, first = find_first(beginning, lambda y: first_counts(PoissonLogNormal(), y))
        assert isinstance(first, PoissonLogNormal)
        # the variance's hyper-prior has its mode where the bound is highest
        noise = max(float(first.variance), _LEAST_VARIANCE)
        features = fixed.make(kernel, noise, rows, scaling, run.seed, self.dtype)
        statistics = self._gather(rows, features.basis)
        for found in infer_latent(
            features, statistics, lambda data: self._make_prior(features, data),
            lambda data: LatentRows(rows, scaling, features.basis, data, self.dtype),
            Counts(float(first.rate)), self._how(), run,
        ):  # fmt: skip
            likelihood = PoissonLogNormal(first.rate, found.model.noise_variance)
            yield self._answer(found, statistics, likelihood)

    def _check_takes_rows(self) -> None:
        if self._counts:
            raise ValueError(
                f"likelihood={self.likelihood!r}: sums over the rows do not tell of counts, so that new rows cannot be "
                "added. Fit again with all rows."
            )

    @property
    def weights_(self) -> np.ndarray:
        """Posterior mean of the weights."""
        predictor = self._model.predictor
        assert isinstance(predictor, (WeightMixture, LatentMixture))
        return np.asarray(predictor.mean_weights)
