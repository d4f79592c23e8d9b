"""Gaussian process regression with a few thousand random Fourier features, solved directly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np

from vastgp._arguments import OneOf, Optional, Positive
from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.bases.draws import KINDS
from vastgp.data import Rows
from vastgp.data.minibatch import spread_indices
from vastgp.data.processes import from_first
from vastgp.estimators.arguments import (
    CheckpointLike,
    Dtype,
    KernelLike,
    MaxSeconds,
    Seed,
    Verbose,
    check_fixed_model,
    check_spectrum,
)
from vastgp.estimators.evidence_fits import (
    LEARN_ARGUMENTS,
    Params,
    first_params,
    learn_params,
    search_of,
    unfinished_learning,
)
from vastgp.estimators.own_noise import FitsOwnNoise
from vastgp.estimators.searches import SEARCHES, Fixed, Learn, Subset
from vastgp.fitting.exact_ascent import climb_exact_evidence
from vastgp.fitting.history import History
from vastgp.fitting.loop import LoopResult
from vastgp.fitting.run import Answer, Run
from vastgp.likelihoods import Gaussian
from vastgp.methods.random_feature.evidence import evidence_of_first, feature_sums
from vastgp.methods.random_feature.learning import FeatureEvidence, tiles_of
from vastgp.methods.random_feature.options import DEBIASES, Even, SingleSample
from vastgp.methods.random_feature.posterior import FeaturePosterior
from vastgp.solvers.block import standardised
from vastgp.solvers.plan import operations_where_arrays_lie

# Up to here the telescoping sum ends at the exact evidence, of which one Cholesky factorisation is made now and then.
_EXACT_ROWS = 3000
# Up to here slopes without noise are float64's: by those of float32 none of three climbs of 2000 rows came to its end,
# which searched on in their rounding (15 to 54 s; so 9 to 22).
_PRECISE_ROWS = 10_000
_LEARNING_SHARE = 0.9
# Of what is left, for the sums of the posterior; Gram matrices that a step of learning takes as long as (180,000 rows:
# 8 s, sums 2 to 3); and rows that take no time to speak of.
_SUMS_SHARE, _OF_STEP, _FEWEST_ROWS = 0.4, 4.0, 2000
# Uses of the seed, see `spread_indices`.
_OF_SUMS, _OF_LEARNING = 121, 122
# Least noise variance that is learned, relative to the variance of the target; most steps of learning by exact slopes,
# those that they usually take, and their end; steps by noisy slopes.
_NOISE_FLOOR, _STEPS, _USUAL_STEPS, _TOL, _NOISY_STEPS = 1e-4, 200, 30, 1e-4, 30
_TILE_ENTRIES = 8_000_000


class RandomFeatureGPRegressor(FitsOwnNoise):
    """Regression with random Fourier features: time ``n m^2``, memory ``m^2``, full covariance of the weights.

    The simplest large-scale method, and the baseline of its debiased form. Learning by the evidence of the features
    overfits, as they are biased towards it; ``debias="single-sample"`` learns by unbiased slopes, at a larger variance.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `ExactGPRegressor`; None: the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on some
        rows, or a sum of two where that is likelier by far.
    num_basis : int, default 1000
        Features m, even. A pass over the rows costs ``n m^2``, and the factorisation ``m^3``.
    debias : {None, "single-sample"} or SingleSample, default None
        Slopes of learning. None: of the evidence of this model, its frequencies held. ``"single-sample"``: of the
        evidence with some features and one random difference of the sum that telescopes to ``num_basis`` features or,
        up to 3000 rows, to the exact evidence; `vastgp.options.SingleSample` says with how many. Its steps are noisy:
        take many more of them.
    frequencies : {"plain", "orthogonal", "qmc"}, default "plain"
        How frequencies are drawn: independent, orthogonal in runs of d, or from a scrambled Halton sequence.
    hyperparameters : {"learn", "subset", "fixed"} or Learn, Subset or Fixed, default "learn"
        As in `IterativeGPRegressor`, with a noise variance of at least 1e-4 of the target's. With ``debias=None``
        slopes are exact, and there are at most 200 steps of L-BFGS, which have no rate and climb the evidence times the
        weak prior of `ExactGPRegressor`; otherwise there are 30 steps of Adam.
    tol : float, optional
        With ``debias=None`` learning has converged where no slope of the log evidence per row, by the logarithm of a
        hyperparameter, is larger. None: 1e-4.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, at most 90 % of it for learning. Where there is no time for all rows, fewer are
        learned on, spread over all, and if need be the posterior is of fewer, which ``stop_reason_`` says.
    checkpoint : path or SaveTo, optional
        File to save the state of the fit to, and to resume from when it exists; see `vastgp.options.SaveTo`.
    random_state : int, RandomState or None, default 0
    dtype : {"float32", "float64"}, default "float32"
        Of the features; factorisations are in float64.
    verbose : bool, default False

    Attributes
    ----------
    log_evidence_ : float
        Log evidence of the training targets under the features, in nats and in their own units.

    See Also
    --------
    vastgp.QSGPRegressor : with any number of features.

    References
    ----------
    Rahimi, A., Recht, B. (2007). Random features for large-scale kernel machines. NeurIPS.
    Potapczynski, A. et al. (2021). Bias-free scalable Gaussian processes via randomized truncations. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import RandomFeatureGPRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> model = RandomFeatureGPRegressor("rbf", num_basis=200).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.05)
    True
    """

    _posterior_class = FeaturePosterior
    _beside_posterior = ("log_evidence",)
    _compiling_seconds: ClassVar[float] = 6.0
    _moved: ClassVar[Mapping[str, str]] = LEARN_ARGUMENTS | {
        "max_iter": "hyperparameters=Learn(steps=...)",
        "first_basis": "debias=SingleSample(first_basis=...)",
        "basis_step": "debias=SingleSample(basis_step=...)",
    }

    def __init__(
        self,
        kernel: KernelLike = None,
        num_basis: Annotated[int, Even()] = 1000,
        *,
        debias: Annotated[str | SingleSample | None, Optional(DEBIASES)] = None,
        frequencies: Annotated[str, OneOf(*KINDS)] = "plain",
        hyperparameters: Annotated[str | Subset | Learn | Fixed, SEARCHES] = "learn",
        tol: Annotated[float | None, Positive(none="1e-4")] = None,
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float32",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.debias = debias
        self.frequencies = frequencies
        self.hyperparameters = hyperparameters
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        search = self._search()
        check_fixed_model(search, self.kernel)
        learns = isinstance(search, Learn)
        for name, needs in (("debias", "learns"), ("tol", "learns by slopes without noise")):
            value = getattr(self, name)
            if value is not None and not (learns and (name == "debias" or self.debias is None)):
                raise ValueError(
                    f"{name}={value!r} has no effect but where a fit {needs}: leave it out, or set "
                    f"hyperparameters='learn'{'' if name == 'debias' else ' and debias=None'}."
                )

    def _check_inputs(self, num_features: int) -> None:
        check_spectrum(self.kernel, num_features, self.num_basis)

    def _search(self) -> Any:
        steps = _STEPS if self.debias is None else _NOISY_STEPS
        return search_of(self.hyperparameters, noise_floor=_NOISE_FLOOR, steps=steps)

    def _least_rows(self) -> int:
        return 1 if isinstance(self._search(), Fixed) else 2

    def _tile_rows(self) -> int:
        return max(256, _TILE_ENTRIES // self.num_basis)

    # ------------------------------------------------------------ fit

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        search, scaling = self._search(), self.standardizer_
        params = first_params(search, self.kernel, rows, scaling, run)
        X, y = standardised(rows, scaling, self.dtype)
        loop = LoopResult(1, 0.0, True, "kernel and noise as given or of some rows", History())
        steps = search.steps if isinstance(search, Learn) else 0
        usual = steps if self.debias is not None else min(steps or 0, _USUAL_STEPS)
        for_sums, for_learning, share = self._affordable(rows.n, usual, run)
        if isinstance(search, Learn):
            some = _spread(X, y, for_learning, run.seed, _OF_LEARNING)
            params, loop = self._learn(search, params, *some, run, share)
        X, y = _spread(X, y, for_sums, run.seed, _OF_SUMS)
        kernel, likelihood = params
        noise = float(likelihood.noise_variance)
        basis = RandomFourierBasis(
            as_dtype(kernel, self.dtype), seed_key(run.seed), self.num_basis, self.frequencies
        )
        sums = feature_sums(basis, tiles_of(X, y, self.num_basis), len(X), noise)
        part = evidence_of_first(sums, basis, self.num_basis, noise)
        if len(loop.history) == 0:
            loop.history.append(1, 0.0, {"objective": part.value, "objective_se": 0.0})
        # a density per unit of the target, of n targets
        log_evidence = float(part.value - len(X) * np.log(scaling.y_scale))
        reason = loop.reason
        if for_sums < rows.n:
            reason += f"; max_seconds was enough for {for_sums} of {rows.n} rows"
        yield Answer(
            kernel,
            likelihood,
            lambda: FeaturePosterior(basis, part.solution, part.factor, noise),
            max(loop.num_iter, 1),
            reason,
            loop.converged and for_sums == rows.n,
            loop.history,
            advice=unfinished_learning(loop, steps or 0),
            attributes={"log_evidence_": log_evidence},
            cut=min(for_sums, for_learning) < rows.n,
        )

    def _affordable(self, n: int, steps: int | None, run: Run) -> tuple[int, int, float]:
        """Return of how many rows the posterior is, on how many it is learned, and in which share of what is left.

        A Gram matrix of m features takes ``2 m^2`` operations a row. All steps of learning are worth more than all
        rows: one of 180,000 took longer than 15 seconds had.
        """
        left = run.seconds_left()
        if left is None and not run.has("rows"):
            return n, n, _LEARNING_SHARE

        def sizes() -> list[float]:
            if left is None:
                return [n, n, _LEARNING_SHARE]
            in_time = left * operations_where_arrays_lie() / (2.0 * float(self.num_basis) ** 2)
            sums = min(n / max(in_time, 1.0), _SUMS_SHARE if steps else _LEARNING_SHARE)
            share = _LEARNING_SHARE - sums
            rows = sums * in_time, share * in_time / (_OF_STEP * steps) if steps else n
            return from_first(np.array([*rows, share])).tolist()

        *rows, share = run.once("rows", sizes, is_cut=lambda found: min(found[:2]) < n)
        sums, learning = (min(n, max(_FEWEST_ROWS, round(each))) for each in rows)
        return sums, learning, share

    def _learn(
        self, search: Learn, params: Params, X: np.ndarray, y: np.ndarray, run: Run, share: float
    ) -> tuple[Params, LoopResult]:
        """Learn kernel and noise by slopes of the features' evidence, or of the exact one."""
        debias = None if self.debias is None else DEBIASES.resolve("debias", self.debias)
        dtype = "float64" if debias is None and len(y) <= _PRECISE_ROWS else self.dtype
        X, y = (np.asarray(each, dtype) for each in (X, y))
        quarter, eighth = (2 * max(1, self.num_basis // (2 * part)) for part in (4, 8))
        least = 2 * len(params[0].spectral_terms())  # a sum needs a frequency of each part
        estimate = FeatureEvidence(
            X, y,
            num_basis=self.num_basis,
            debiased=debias is not None,
            first_basis=max(least, getattr(debias, "first_basis", None) or quarter),
            basis_step=getattr(debias, "basis_step", None) or eighth,
            exact=len(y) <= _EXACT_ROWS,
            seed=run.seed,
            frequencies=self.frequencies,
        )  # fmt: skip
        if debias is not None:
            return learn_params(estimate, params, search, len(y), run, share=share)
        assert search.steps is not None
        assert search.noise_floor is not None
        with precision(dtype):
            kernel, noise_variance, loop = climb_exact_evidence(
                estimate, params, run,
                steps=search.steps, noise_floor=search.noise_floor, tol=self.tol or _TOL, share=share,
            )  # fmt: skip
        return (kernel, Gaussian(noise_variance)), loop


def _spread(
    X: np.ndarray, y: np.ndarray, most: int, seed: int, use: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return so many rows, spread over all; all of them, not copied, where there are no more."""
    if most >= len(y):
        return X, y
    some = spread_indices(seed, use, len(y), most)
    return X[some], y[some]
