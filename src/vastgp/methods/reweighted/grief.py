"""Grid-structured eigenfunctions: a compact basis of a kernel from a grid too large to store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np

from vastgp._arguments import AtLeast, OneOf, Optional, Positive
from vastgp.bases.grid_eigenfunctions import GridEigenfunctionBasis
from vastgp.bases.largest_products import check_num_basis, most_functions
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
from vastgp.estimators.first_hyperparameters import Beginning, find_first
from vastgp.estimators.grid_basis import as_product, check_product, grid_points
from vastgp.estimators.searches import Subset
from vastgp.fitting.run import Answer, Run
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.kernels import Sum
from vastgp.likelihoods import Gaussian
from vastgp.methods.reweighted.base import (
    CHAIN_ARGUMENTS,
    NOISE_FLOOR,
    START_ROWS,
    TYPE_II_ARGUMENTS,
    FixedBasisRegressor,
)
from vastgp.methods.reweighted.evidence import EvidenceData
from vastgp.methods.reweighted.fixed_basis import weight_prior
from vastgp.methods.reweighted.grief_evidence import GriefLearning
from vastgp.methods.reweighted.inference import infer
from vastgp.methods.reweighted.model import Features
from vastgp.methods.reweighted.options import (
    FEATURE_PRIORS,
    INFERENCES,
    SUBSET,
    MarkovChains,
    TypeII,
    WeightsPrior,
)
from vastgp.methods.reweighted.weight_priors import ScalePrior, WeightPrior

_MOST_FUNCTIONS = 1000
# Rows that the kernel is learned on; what the exact process before may use of the budget.
_EVIDENCE_ROWS, _START_SHARE = 5000, 0.3
_ROWS = 5  # purpose of random numbers


class GriefRegressor(FixedBasisRegressor):
    """Regression with the leading eigenfunctions of a product kernel, found on a grid of inducing points (GP-GRIEF).

    The grid has ``grid_size`` points for every input, 10^18 of them for elevators: far too many to store, but for a
    kernel that is a product over the inputs an eigenfunction is a product, too, and the largest eigenvalues are found
    input by input. The functions know where there are no data as well as where there are. One pass over the rows then
    sums up what is needed of them; after it, nothing costs more for more rows.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        A product over the inputs: ``RBF`` (the default), products of RBFs, or a `GridKernel` with one part for each
        input. A name stands for the product of one kernel of that form for each input.
    num_eigenfunctions : int, optional
        ``p``. None: 1000, or as many as the grid has points.
    grid_size : int, default 10
        Inducing points of an input, or its different values where these are fewer.
    grid_placement : {"even", "k-means"}, default "even"
        Evenly spaced from the least to the largest value of an input; or centres of clusters of its values and both
        extremes.
    inference : {"type-ii", "type-i", "nuts", "mala"} or TypeII, NUTS or MALA, default "type-ii"
        Type II learns the kernel's hyperparameters and the noise by the evidence: of some rows while the functions
        move, of all rows for amplitude and noise. Type I holds the functions, gives every weight a prior variance of
        its own, and averages over these and the noise by Markov chains, those of ``NUTS`` where nothing else is said:
        better where data are few. It needs ``pip install vastgp[mcmc]``. Iterations, chains and their steps are on the
        objects, see `vastgp.options`.
    prior : {"diagonal", "orthogonal", "spectral"} or an object of these, optional
        Of type-I inference alone: a variance for each eigenfunction's weight, O(p^3) an evaluation (DiagonalWeights);
        for each function after they were made orthogonal on the data, O(p) (OrthogonalWeights); or the latter turned by
        reflections (SpectralWeights), see `ReweightedBasisRegressor`. None: orthogonal, which is as good as diagonal
        (within 0.02 nats a row) in seconds, where that takes an hour with 1000 functions.
    hyperparameters : {"subset"} or Subset, default "subset"
        ``rows`` random rows (5000) that the kernel is learned on in type-II inference, or its lengthscales chosen on in
        type-I inference, after an exact Gaussian process on 1000 of them; time is O(rows p^2) a step. ``noise_floor``:
        least noise variance relative to the variance of the target (1e-6).
    max_seconds : float, optional
        Wall-clock budget of ``fit``. Where it does not do for the one pass over the rows, the sums are of those read.
    checkpoint : path or SaveTo, optional
        File to save the fit to while it works, and to resume from when it exists; see `vastgp.options.SaveTo`.
    random_state : int, RandomState or None, default 0
    dtype : {"float64", "float32"}, default "float64"
        Of features; sums and inference are in float64.
    verbose : bool, default False
        Show progress when a fit takes more than two seconds at a terminal.

    Attributes
    ----------
    num_eigenfunctions_ : int
        Eigenfunctions in use.
    grid_shape_ : tuple of int
        Inducing points of every input; their product is the size of the grid.
    posterior_ : WeightMixture, or ArviZ data
        With type-I inference all draws of the hyperparameters (``arviz.InferenceData``; ``xarray.DataTree`` from ArviZ
        1 on).
    r_hat_, ess_ : float
        Type I: largest R-hat and smallest effective sample size of the hyperparameters.
    log_evidence_ : float
        Type II: of all rows, in nats.
    statistics_ : SufficientStatistics
        What was summed over the rows.

    References
    ----------
    Evans, T. W., Nair, P. B. (2018). Scalable Gaussian processes with grid-structured eigenfunctions (GP-GRIEF). ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import GriefRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(300, 2))
    >>> y = np.sin(X[:, 0]) * np.cos(X[:, 1])
    >>> model = GriefRegressor(num_eigenfunctions=50).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    >>> model.grid_shape_
    (10, 10)
    """

    _compiling_seconds: ClassVar[float] = 6.0
    _moved: ClassVar[Mapping[str, str]] = (
        CHAIN_ARGUMENTS
        | TYPE_II_ARGUMENTS
        | {
            "num_reflections": "prior=SpectralWeights(num_reflections=...)",
            "evidence_rows": "hyperparameters=Subset(rows=...)",
        }
    )

    def __init__(
        self,
        kernel: KernelLike = None,
        num_eigenfunctions: Annotated[
            int | None, Positive(integer=True, none="at most 1000")
        ] = None,
        *,
        grid_size: Annotated[int, AtLeast(2)] = 10,
        grid_placement: Annotated[str, OneOf("even", "k-means")] = "even",
        inference: Annotated[str | TypeII | MarkovChains, INFERENCES] = "type-ii",
        prior: Annotated[str | WeightsPrior | None, Optional(FEATURE_PRIORS)] = None,
        hyperparameters: Annotated[str | Subset, SUBSET] = "subset",
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float64",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.num_eigenfunctions = num_eigenfunctions
        self.grid_size = grid_size
        self.grid_placement = grid_placement
        self.inference = inference
        self.prior = prior
        self.hyperparameters = hyperparameters
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        how = self._how()
        self._search()
        self._check_libraries(how)
        if isinstance(how, MarkovChains):
            refuse_given("inference", how, rows_per_step=None)
        elif self.prior is not None:
            raise ValueError(
                f"prior={self.prior!r} has no effect with type-II inference, which learns the kernel: leave it out, or "
                "set inference='type-i'."
            )

    def _check_inputs(self, num_features: int) -> None:
        check_product(self.kernel, num_features)

    def _how(self) -> Any:
        how = INFERENCES.resolve("inference", self.inference)
        return how.given(max_iter=100, tol=1e-4) if isinstance(how, TypeII) else how

    def _weights(self) -> Any:
        return FEATURE_PRIORS.resolve("prior", "orthogonal" if self.prior is None else self.prior)

    # ------------------------------------------------------------ fit

    def _begins_with(self, kernel: Any, data: Any) -> bool:
        del data
        return not isinstance(kernel, Sum)  # which does not factor over the inputs

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        scaling, how = self.standardizer_, self._how()
        search = self._search(rows=_EVIDENCE_ROWS, noise_floor=NOISE_FLOOR)
        axes = grid_points(rows, scaling, int(self.grid_size), self.grid_placement)
        if self.num_eigenfunctions is not None:
            sizes = [len(axis) for axis in axes]
            check_num_basis(self.num_eigenfunctions, sizes, "num_eigenfunctions")
        count = most_functions(axes, self.num_eigenfunctions or _MOST_FUNCTIONS)
        # in random order: the first are a sample too
        generator = np.random.default_rng([run.seed, _ROWS])
        X, y = rows.take(generator.permutation(rows.n)[: search.rows])
        assert y is not None
        X, y = scaling.transform_X(X), scaling.transform_y(y)
        beginning = Beginning(
            replace(search, rows=min(search.rows, START_ROWS)),
            "rbf" if self.kernel is None else self.kernel, rows, scaling, run, _START_SHARE,
        )  # fmt: skip
        kernel, likelihood = find_first(beginning, lambda y: Gaussian(1.0))
        assert isinstance(likelihood, Gaussian)
        noise = float(likelihood.noise_variance)
        learning = GriefLearning(X, y, axes, count, search.noise_floor)
        type_ii = isinstance(how, TypeII)
        starts = learning.best_lengthscales(as_product(kernel, rows.d), noise, run)
        learned = None
        kernel, noise = starts[0]
        if type_ii:
            learned, basis = learning.learn(starts, how, run)
            kernel, noise = learned.params[0], float(learned.params[1].noise_variance)
        else:
            basis = GridEigenfunctionBasis.build(kernel, axes, count)
        # refuses one of another length before the rows are summed
        self._weights().mean_of(basis.num_basis)
        self._set_grid(basis)
        features = Features(basis, kernel, noise)
        yield from self._of_rows(features, rows, run, learned)

    def _inferred(
        self,
        features: Features,
        statistics: SufficientStatistics,
        run: Run,
        learned: Any = None,
    ) -> Iterator[Answer]:
        how, weights = self._how(), self._weights()

        def make_prior(data: EvidenceData) -> WeightPrior:
            if isinstance(how, TypeII):
                return ScalePrior.make(features.noise_variance)
            return weight_prior(weights, data, features.noise_variance)

        found = infer(
            features, statistics, make_prior, weights.mean_of(statistics.num_basis), how, run,
            noise_floor=self._search(noise_floor=NOISE_FLOOR).noise_floor, learned=learned,
        )  # fmt: skip
        yield from self._gaussian(found, statistics)

    def _set_grid(self, basis: GridEigenfunctionBasis) -> None:
        self.num_eigenfunctions_, self.grid_shape_ = basis.num_basis, basis.sizes

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore_state(state, arrays)
        self._set_grid(self._model.features.basis)
