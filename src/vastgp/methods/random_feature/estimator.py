"""Gaussian process regression with a few thousand random Fourier features, solved directly."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vastgp._precision import as_dtype
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.bases.draws import KINDS
from vastgp.data import Rows
from vastgp.estimators.arguments import check_choice, check_positive, seed_from
from vastgp.estimators.base import Fit
from vastgp.estimators.evidence_fits import EvidenceFits
from vastgp.fitting.history import History
from vastgp.methods.random_feature.evidence import evidence_of_first, feature_sums
from vastgp.methods.random_feature.learning import FeatureEvidence, tiles_of
from vastgp.methods.random_feature.posterior import FeaturePosterior
from vastgp.solvers.block import standardised

# Up to here the telescoping sum ends at the exact evidence, of which one Cholesky factorisation is made now and then.
_EXACT_ROWS = 3000
_LEARNING_SHARE = 0.9
_TILE_ENTRIES = 8_000_000


class RandomFeatureGPRegressor(EvidenceFits):
    """Regression with random Fourier features: time ``n m^2``, memory ``m^2``, full covariance of the weights.

    The simplest large-scale method, and the baseline of its debiased form. Learning by the evidence of the features
    overfits, as they are biased towards it; ``debias="single-sample"`` learns by unbiased slopes, at a larger variance.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `ExactGPRegressor`; None: the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on
        ``start_rows`` rows.
    num_basis : int, default 1000
        Features m, even. A pass over the rows costs ``n m^2``, and the factorisation ``m^3``.
    debias : {None, "single-sample"}, default None
        Slopes of learning. None: of the evidence of this model, its frequencies held. ``"single-sample"``: of the
        evidence with ``first_basis`` features and one random difference of the sum that telescopes to ``num_basis``
        features or, up to 3000 rows, to the exact evidence. Its steps are noisy: take many more of them.
    first_basis : int, optional
        Features of the first term, even. None: a quarter of ``num_basis``.
    basis_step : int, optional
        Features that are added from term to term, even. None: an eighth of ``num_basis``.
    frequencies : {"plain", "orthogonal", "qmc"}, default "plain"
        How frequencies are drawn: independent, orthogonal in runs of d, or from a scrambled Halton sequence.
    isotropic : bool, default False
        One lengthscale and one scale for all inputs.
    hyperparameters : {"learn", "subset", "fixed"}, default "learn"
        As in `IterativeGPRegressor`.
    noise_std : float, optional
        Standard deviation of the noise in units of the target; needed with ``"fixed"``, refused otherwise.
    noise_floor : float, default 1e-4
        Least noise variance that may be learned, relative to the variance of the target.
    start_rows : int, default 1000
        Rows of the first hyperparameters, by their exact evidence.
    max_iter : int, default 30
        Steps of Adam on all rows. The last third of them is averaged.
    learning_rate : float, default 0.1
        Of Adam at the start, on logarithms.
    tol : float, default 1e-4
        With ``debias=None`` learning ends before, where the slope of the log evidence per row, by the logarithms of the
        hyperparameters, is shorter.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, at most 90 % of it for learning.
    checkpoint : path, optional
        File, with ``.learning`` added to its name, to save the state of learning to and to resume from when it exists.
    checkpoint_seconds : float, default 30.0
        Time between two writes.
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

    def __init__(
        self,
        kernel: Any = None,
        num_basis: Any = 1000,
        *,
        debias: Any = None,
        first_basis: Any = None,
        basis_step: Any = None,
        frequencies: Any = "plain",
        isotropic: Any = False,
        hyperparameters: Any = "learn",
        noise_std: Any = None,
        noise_floor: Any = 1e-4,
        start_rows: Any = 1000,
        learning_rate: Any = 0.1,
        max_iter: Any = 30,
        tol: Any = 1e-4,
        max_seconds: Any = None,
        checkpoint: Any = None,
        checkpoint_seconds: Any = 30.0,
        random_state: Any = 0,
        dtype: Any = "float32",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.debias = debias
        self.first_basis = first_basis
        self.basis_step = basis_step
        self.frequencies = frequencies
        self.isotropic = isotropic
        self.hyperparameters = hyperparameters
        self.noise_std = noise_std
        self.noise_floor = noise_floor
        self.start_rows = start_rows
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        super()._check_params()
        if self.debias is not None and self.debias != "single-sample":
            raise ValueError(f"debias must be None or 'single-sample', received {self.debias!r}.")
        check_choice("frequencies", self.frequencies, KINDS)
        check_positive("max_iter", self.max_iter, integer=True)
        for name in ("num_basis", "first_basis", "basis_step"):
            value = getattr(self, name)
            none = None if name == "num_basis" else "a share of num_basis"
            check_positive(name, value, integer=True, none=none)
            if value is not None and value % 2:
                raise ValueError(
                    f"{name} must be even (cosines and sines come in pairs), received {value}."
                )

    def _tile_rows(self) -> int:
        return max(256, _TILE_ENTRIES // self.num_basis)

    # ------------------------------------------------------------ fit

    def _fit_rows(self, rows: Rows) -> Fit:
        seed = seed_from(self.random_state)
        kernel, likelihood = self._first_hyperparameters(rows, seed)
        X, y = standardised(rows, self.standardizer_, self.dtype)
        num_iter, converged = 1, True
        reason, history = "kernel and noise as given or of start_rows rows", History()
        if self.hyperparameters == "learn":
            quarter = 2 * max(1, self.num_basis // 8)
            least = 2 * len(kernel.spectral_terms())  # a sum needs a frequency of each part
            estimate = FeatureEvidence(
                X, y,
                num_basis=self.num_basis,
                debias=self.debias,
                first_basis=max(least, self.first_basis or quarter),
                basis_step=self.basis_step or 2 * max(1, self.num_basis // 16),
                exact=rows.n <= _EXACT_ROWS,
                seed=seed,
                frequencies=self.frequencies,
            )  # fmt: skip
            kernel, likelihood, loop = self._climb(
                estimate, kernel, likelihood, rows, seed,
                steps=self.max_iter, share=_LEARNING_SHARE, tol=None if self.debias else self.tol,
            )  # fmt: skip
            num_iter, converged, reason = loop.num_iter, loop.converged, loop.reason
            history = loop.history
            if not converged:
                warnings.warn(
                    f"RandomFeatureGPRegressor did not converge: {reason}; "
                    f"{self._unfinished_learning(loop, self.max_iter)}.",
                    ConvergenceWarning,
                    stacklevel=3,
                )
        noise = float(likelihood.noise_variance)
        narrow = as_dtype(kernel, self.dtype)
        basis = RandomFourierBasis(narrow, seed_key(seed), self.num_basis, self.frequencies)
        sums = feature_sums(basis, tiles_of(X, y, self.num_basis))
        part = evidence_of_first(sums, basis, self.num_basis, noise)
        scale = self.standardizer_.y_scale
        # a density per unit of the target, of n targets
        self.log_evidence_ = float(part.value - rows.n * np.log(scale))
        if len(history) == 0:
            history.append(1, 0.0, {"objective": part.value, "objective_se": 0.0})
        posterior = FeaturePosterior(basis, part.solution, part.factor, noise)
        return Fit(kernel, likelihood, posterior, num_iter, converged, reason, history)

    # ------------------------------------------------------------ files

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self.posterior_.to_state()
        return state | {"log_evidence": self.log_evidence_}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.log_evidence_ = state["log_evidence"]
        self.posterior_ = FeaturePosterior.from_state(state, arrays)
