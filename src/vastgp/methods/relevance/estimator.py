"""Relevance vector regression: a sparse sum of kernel functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np

from vastgp._arguments import Positive
from vastgp.data import Rows
from vastgp.data.minibatch import fixed_indices
from vastgp.estimators.arguments import (
    CheckpointLike,
    Dtype,
    KernelLike,
    MaxSeconds,
    Seed,
    Tolerance,
    Verbose,
)
from vastgp.estimators.few_rows import FEW_ROWS
from vastgp.estimators.first_hyperparameters import Beginning, find_first
from vastgp.estimators.inducing_inputs import check_inputs
from vastgp.estimators.regressor import BaseGPRegressor
from vastgp.estimators.searches import Subset
from vastgp.fitting.run import Answer, Run
from vastgp.likelihoods import Gaussian
from vastgp.methods.relevance.options import SEARCHES, SOLVERS, Pruning
from vastgp.methods.relevance.posterior import RelevancePosterior
from vastgp.methods.relevance.training import fit_relevance

# Without num_basis, at most so many training rows become candidates; the number of this use of a seed.
_MOST_CANDIDATES, _CANDIDATES = 20_000, 2
_ROWS, _NOISE_FLOOR = 1000, 1e-6


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
        As in `ExactGPRegressor`; its lengthscales are those of highest evidence of a Gaussian process on some rows.
        Basis functions have height one: the kernel's variance plays no part.
    num_basis : int, optional
        Candidates: so many random training rows. None: all of them, up to 20,000.
    inducing_inputs : array-like of shape (m, d), optional
        Candidates of your own instead, in the units of X.
    hyperparameters : {"subset"} or Subset, default "subset"
        ``Subset(rows=...)``: of how many rows the first hyperparameters are (1000). ``Subset(noise_floor=...)``: least
        noise variance relative to the variance of the target (1e-6).
    solver : {"pruning"} or Pruning, default "pruning"
        How candidates are taken out, see `vastgp.options.Pruning`.
    tol : float, default 0.01
        Converged when the bound moves by less than so many nats in ten iterations, and by its slopes and curvatures no
        more is left to gain. Functions that add less to it are taken out one by one, so that another ``tol`` is another
        number of them.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked after every ten iterations.
    checkpoint : path or SaveTo, optional
        File to save the fit to while it works, and to resume from when it exists; see `vastgp.options.SaveTo`.
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

    _moved: ClassVar[Mapping[str, str]] = {
        "dense_columns": "solver=Pruning(dense_columns=...)",
        "max_precision": "solver=Pruning(max_precision=...)",
        "row_batch": "solver=Pruning(row_batch=...)",
        "basis_batch": "solver=Pruning(basis_batch=...)",
        "max_iter": "solver=Pruning(max_steps=...)",
        "isotropic": "hyperparameters=Subset(isotropic=...)",
        "start_rows": "hyperparameters=Subset(rows=...)",
        "noise_floor": "hyperparameters=Subset(noise_floor=...)",
    }

    _posterior_class = RelevancePosterior
    # functions are chosen by the rows: the exact posterior of these is another
    _least_to_spare: ClassVar[int] = FEW_ROWS + 1
    _has_own_prior: ClassVar[bool] = True
    _beside_posterior = ("num_basis",)

    def __init__(
        self,
        kernel: KernelLike = None,
        num_basis: Annotated[int | None, Positive(integer=True, none="all training rows")] = None,
        *,
        inducing_inputs: Any = None,
        hyperparameters: Annotated[str | Subset, SEARCHES] = "subset",
        solver: Annotated[str | Pruning, SOLVERS] = "pruning",
        tol: Tolerance = 0.01,
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float64",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.inducing_inputs = inducing_inputs
        self.hyperparameters = hyperparameters
        self.solver = solver
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        if self.inducing_inputs is not None and self.num_basis is not None:
            raise ValueError(
                f"num_basis={self.num_basis!r} and inducing_inputs were both given: there is one candidate for each "
                "inducing input. Leave one of them out."
            )

    def _candidates(self, rows: Rows, seed: int) -> np.ndarray:
        """Return standardised inputs of the candidates."""
        if self.inducing_inputs is not None:
            return self.standardizer_.transform_X(check_inputs(self.inducing_inputs, rows.d))
        size = self.num_basis or _MOST_CANDIDATES
        chosen = np.sort(fixed_indices(seed, _CANDIDATES, rows.n, size))
        return self.standardizer_.transform_X(rows.take(chosen)[0])

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        scaling, candidates = self.standardizer_, self._candidates(rows, run.seed)
        search = SEARCHES.resolve("hyperparameters", self.hyperparameters)
        search = search.given(rows=_ROWS, noise_floor=_NOISE_FLOOR)
        kernel, likelihood = find_first(
            Beginning(search, self.kernel, rows, scaling, run), lambda _: Gaussian(1.0)
        )
        assert isinstance(likelihood, Gaussian)
        kernel = kernel.in_units(1.0, float(kernel.total_variance()) ** -0.5)
        fit = fit_relevance(
            rows, scaling, kernel, candidates, float(likelihood.noise_variance),
            SOLVERS.resolve("solver", self.solver), run, noise_floor=search.noise_floor, tol=self.tol,
        )  # fmt: skip
        best, loop = fit.posterior, fit.loop
        posterior = RelevancePosterior(
            kernel, candidates[fit.indices], best.mean, best.factor, fit.precision
        )
        yield Answer(
            kernel,
            Gaussian(fit.noise_variance),
            lambda: posterior,
            loop.num_iter,
            loop.reason,
            loop.converged,
            loop.history,
            f"{len(fit.indices)} functions are left, of which more may be irrelevant. Give more time (max_seconds), "
            "more steps (max_steps of solver), or a larger tol.",
            {"num_basis_": len(candidates)} | self._relevance(posterior),
        )

    def _relevance(self, posterior: RelevancePosterior) -> dict[str, np.ndarray]:
        """Return the fitted attributes that say which functions are left."""
        scaling = self.standardizer_
        vectors = posterior.inputs * scaling.x_scale + scaling.x_mean
        return {"relevance_": posterior.precision, "relevance_vectors_": vectors}

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore_state(state, arrays)
        self.__dict__.update(self._relevance(self.posterior_))
