"""Grid-structured eigenfunctions: a compact basis of a kernel from a grid too large to store."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.bases.grid_eigenfunctions import (
    GridEigenfunctionBasis,
    check_num_basis,
    most_functions,
)
from vastgp.data import Rows
from vastgp.estimators.arguments import check_choice, check_positive
from vastgp.estimators.grid_basis import as_product, check_product, grid_points
from vastgp.fitting.candidates import default_values
from vastgp.fitting.lbfgs import LbfgsResult
from vastgp.fitting.progress import Progress
from vastgp.fitting.start import fit_evidence
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.reweighted.base import BaseReweightedRegressor
from vastgp.methods.reweighted.fit import Features
from vastgp.methods.reweighted.grief_evidence import GriefEvidence
from vastgp.methods.reweighted.weight_priors import (
    DiagonalPrior,
    OrthogonalPrior,
    ScalePrior,
    SpectralPrior,
    WeightPrior,
)

PLACEMENTS = ("even", "k-means")
WEIGHT_PRIORS = ("diagonal", "orthogonal", "spectral")
_MOST_FUNCTIONS = 1000
# From so many rows on, type-I inference orthogonalises the basis (section 5.4.2).
_MANY_ROWS = 1_000_000
# Lengthscales that are tried first, relative to those of an exact process and to equal ones; how many of them type-II
# learning starts from, and iterations before the best is chosen: on slump, yacht and concrete the first start alone
# ended up to 600 nats below the best of several. On kegg type-I inference has an RMSE of 0.31 with the process's own,
# of 0.15 with the best.
_LENGTHSCALES, _TRIED, _FIRST_ITERATIONS = (1.0, 2.0, 4.0, 8.0, 16.0), 4, 10


class GriefRegressor(BaseReweightedRegressor):
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
    inference : {"type-ii", "type-i"}, default "type-ii"
        Type II learns the kernel's hyperparameters and the noise by the evidence: of ``evidence_rows`` rows while the
        functions move, of all rows for amplitude and noise. Type I holds the functions, gives every weight a prior
        variance of its own, and averages over these and the noise by Markov chains: better where data are few.
        It needs ``pip install vastgp[mcmc]``.
    grid_placement : {"even", "k-means"}, default "even"
        Evenly spaced from the least to the largest value of an input; or centres of clusters of its values and both
        extremes.
    prior : {"diagonal", "orthogonal", "spectral"}, optional
        Of type-I inference: of the weights of the eigenfunctions, O(p^3) an evaluation; of the functions made
        orthogonal on the data, O(p); or the latter turned by reflections, see `ReweightedBasisRegressor`. None:
        diagonal up to a million rows, then orthogonal.
    evidence_rows : int, default 5000
        Random rows that hyperparameters are learned on in type-II inference; time is O(evidence_rows p^2) a step.
    sampler : {"nuts", "mala"}, default "nuts"
        Of type-I inference, as the next five. NUTS needs few steps, each of many gradients; MALA (of the thesis) many
        steps of one gradient.
    num_chains : int, default 4
    num_warmup, num_steps, thin : int, optional
        Steps of the warm-up, steps after it, and which of these are draws. None: 400, 400, 1 for NUTS and 1000, 10,000,
        50 for MALA.
    num_components : int, default 50
        Draws that predictions average over.
    num_reflections : int, default 4
        Of ``prior="spectral"``.
    start_rows : int, default 1000
        Rows of the exact Gaussian process whose hyperparameters come first.
    noise_floor : float, default 1e-6
        Least noise variance relative to the variance of the target.
    max_iter : int, default 100
        Most iterations of L-BFGS.
    tol : float, default 1e-4
        Learning has converged when no derivative of the log evidence per row, by the logarithm of a hyperparameter, is
        larger.
    max_seconds : float, optional
        Wall-clock budget of ``fit``. The one pass over the rows is done in any case.
    random_state : int, RandomState or None, default 0
    dtype : {"float64", "float32"}, default "float64"
        Of features; sums and inference are in float64.
    verbose : bool, default False

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

    def __init__(
        self,
        kernel: Any = None,
        num_eigenfunctions: Any = None,
        *,
        grid_size: Any = 10,
        inference: Any = "type-ii",
        grid_placement: Any = "even",
        prior: Any = None,
        evidence_rows: Any = 5000,
        sampler: Any = "nuts",
        num_chains: Any = 4,
        num_warmup: Any = None,
        num_steps: Any = None,
        thin: Any = None,
        num_components: Any = 50,
        num_reflections: Any = 4,
        start_rows: Any = 1000,
        noise_floor: Any = 1e-6,
        max_iter: Any = 100,
        tol: Any = 1e-4,
        max_seconds: Any = None,
        random_state: Any = 0,
        dtype: Any = "float64",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.num_eigenfunctions = num_eigenfunctions
        self.grid_size = grid_size
        self.inference = inference
        self.grid_placement = grid_placement
        self.prior = prior
        self.evidence_rows = evidence_rows
        self.sampler = sampler
        self.num_chains = num_chains
        self.num_warmup = num_warmup
        self.num_steps = num_steps
        self.thin = thin
        self.num_components = num_components
        self.num_reflections = num_reflections
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
        check_choice("grid_placement", self.grid_placement, PLACEMENTS)
        if self.prior is not None:
            check_choice("prior", self.prior, WEIGHT_PRIORS)
        check_positive(
            "num_eigenfunctions", self.num_eigenfunctions, integer=True, none="at most 1000"
        )
        for name in ("evidence_rows", "num_reflections"):
            check_positive(name, getattr(self, name), integer=True)
        whole = isinstance(self.grid_size, (int, np.integer))
        if not whole or isinstance(self.grid_size, bool) or self.grid_size < 2:
            raise ValueError(
                f"grid_size must be an integer of at least 2, received {self.grid_size!r}."
            )

    def _check_inputs(self, num_features: int) -> None:
        check_product(self.kernel, num_features)

    # ------------------------------------------------------------ the basis

    def _make_features(self, rows: Rows) -> Features:
        scaling = self.standardizer_
        axes = grid_points(rows, scaling, int(self.grid_size), self.grid_placement)
        if self.num_eigenfunctions is not None:
            sizes = [len(axis) for axis in axes]
            check_num_basis(self.num_eigenfunctions, sizes, "num_eigenfunctions")
        count = most_functions(axes, self.num_eigenfunctions or _MOST_FUNCTIONS)
        start = self._start(rows, "rbf" if self.kernel is None else self.kernel)
        chosen = np.sort(
            np.random.default_rng(self._seed).choice(
                rows.n, min(rows.n, self.evidence_rows), replace=False
            )
        )
        X, y = rows.take(chosen)
        assert y is not None
        evidence = GriefEvidence(scaling.transform_X(X), scaling.transform_y(y), axes, count)
        starts = self._starts(evidence, as_product(start.kernel, rows.d), start.noise_variance)
        (kernel, noise), found = starts[0], None
        if self.inference == "type-ii":
            found = self._maximise(evidence, starts[:_TRIED])
            kernel, noise = found.params[0], float(found.params[1].noise_variance)
        basis = GridEigenfunctionBasis.build(kernel, axes, count)
        self._set_grid(basis)
        return Features(basis, kernel, noise, found)

    def _starts(
        self, evidence: GriefEvidence, kernel: Kernel, noise: float
    ) -> list[tuple[Kernel, float]]:
        """Return kernels of several lengthscales and noise variances, that of highest evidence first.

        A kernel of few functions is smoother than the process with all of them, whose hyperparameters are given.
        """
        equal = default_values(kernel, self.n_features_in_)
        found = [
            evidence.scaled(start.in_units(factor, 1.0), noise, self.noise_floor)
            for start in (kernel, equal)
            for factor in _LENGTHSCALES
        ]
        return [each[1:] for each in sorted(found, key=lambda each: -each[0])]

    def _maximise(self, evidence: GriefEvidence, starts: list[tuple[Kernel, float]]) -> LbfgsResult:
        """Return the hyperparameters of highest evidence: some iterations from each start, the best to its end."""
        shared: dict[str, Any] = {"noise_floor": self.noise_floor, "tol": self.tol}
        first = min(_FIRST_ITERATIONS, int(self.max_iter))
        found: list[LbfgsResult] = []
        with Progress("hyperparameters", bool(self.verbose)) as progress:

            def told(step: int, value: float) -> None:
                progress.update(step / self.max_iter, f"log evidence {value:.6g}")

            for number, (kernel, noise) in enumerate(starts):
                left = self._seconds_left(self.max_seconds)
                if found and left is not None and left <= 0:
                    break
                try:
                    found.append(
                        fit_evidence(
                            evidence, (kernel, Gaussian(noise)), max_iter=first,
                            # half of the time, if they need it
                            max_seconds=None if left is None else left / (2 * len(starts) - number), **shared,
                        )
                    )  # fmt: skip
                except FactorizationError:
                    if not found and number == len(starts) - 1:
                        raise
            best = max(found, key=lambda each: each.value)
            left = self._seconds_left(self.max_seconds)
            if left is not None and left <= 0:
                return best
            return fit_evidence(
                evidence,
                best.params,
                max_iter=int(self.max_iter),
                max_seconds=left,
                on_iteration=told,
                **shared,
            )

    def _set_grid(self, basis: GridEigenfunctionBasis) -> None:
        self.num_eigenfunctions_, self.grid_shape_ = basis.num_basis, basis.sizes

    # ------------------------------------------------------------ the prior

    def _make_prior(self, features: Features, data: Any) -> WeightPrior:
        noise = features.noise_variance
        if self.inference == "type-ii":
            return ScalePrior.make(noise)
        kind = self.prior
        if kind is None:
            kind = "diagonal" if float(data.num_rows) <= _MANY_ROWS else "orthogonal"
        if kind == "diagonal":
            return DiagonalPrior.make(data.num_basis, noise)
        if kind == "orthogonal":
            return OrthogonalPrior.make(data.rank, noise)
        return SpectralPrior.make(data.rank, noise, int(self.num_reflections))

    def _kernel_of(self, theta: np.ndarray) -> Kernel:
        kernel = self._features.kernel
        if isinstance(self._target.prior, ScalePrior):
            # the amplitude that all rows asked for
            return kernel.in_units(1.0, float(np.exp(0.5 * theta[0, 1])))
        return kernel

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore_state(state, arrays)
        self._set_grid(self._features.basis)
