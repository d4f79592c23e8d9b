"""QSGP: Gaussian process classification with any number of basis functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from vastgp.estimators.arguments import (
    CheckpointLike,
    Dtype,
    KernelLike,
    MaxSeconds,
    Seed,
    Tolerance,
    Verbose,
)
from vastgp.estimators.bases import Fourier
from vastgp.estimators.classes import MOVED_TO_CLASSES, ClassesLike
from vastgp.estimators.searches import SEARCHES, Fixed, Learn, Subset
from vastgp.estimators.sharing import SharedRows
from vastgp.estimators.weighted_classes import WeightedClassifier
from vastgp.likelihoods import Bernoulli, Likelihood
from vastgp.methods.qsgp.estimator import QSGPFits
from vastgp.methods.qsgp.options import CLASS_BASES, MOVED, SOLVERS, Block, NumBasis
from vastgp.methods.qsgp.stochastic.options import Stochastic


class QSGPClassifier(WeightedClassifier, QSGPFits):
    """Classification with Gaussian processes of random Fourier features.

    Two classes: ``P(second class | x) = g(f(x))`` with the logistic or the normal distribution function ``g``. More:
    one function for each class and ``P(class c | x) = exp(f_c(x)) / sum_k exp(f_k(x))`` (softmax), with one kernel for
    all. The posterior of the functions is found by one of two solvers:

    - ``"block"``: Gaussian sites, one for each row (the dual parameters of t-SVGP), turn the problem into regression
      with weighted rows, whose mean and samples the block solver of `QSGPRegressor` finds.
    - ``"stochastic"``: the quadruply stochastic variational inference of Evans and Nair, whose steps cost the same
      whatever n and m are, with a diagonal covariance, or a chevron of some dense columns for two classes. The latent
      variance of a diagonal one is too large where there are far more basis functions than rows:
      ``predict_proba(X, method="median")`` does without it, as in the paper.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `QSGPRegressor`; the evidence is its variational lower bound.
    num_basis : int, optional
        As in `QSGPRegressor`.
    basis : {"fourier", "grief"} or Fourier, default "fourier"
        As in `QSGPRegressor`.
    likelihood : {"logit", "probit"} or Classes, default "logit"
        The link, ``"probit"`` for two classes; ``Classes(class_weight=...)`` of `vastgp.options` weighs the rows of
        each class. Probabilities are then those of a world where classes are that frequent.
    solver : {"auto", "block", "stochastic"} or Block or Stochastic, default "auto"
        As in `QSGPRegressor`, and ``"stochastic"`` where ``max_seconds`` leaves the block solver too little time. How
        the stochastic solver estimates the likelihood from sampled basis functions is ``bound`` of its object.
    hyperparameters : {"subset", "learn", "fixed"} or Subset, Learn or Fixed, default "subset"
        ``"subset"``: the kernel of highest evidence bound on some random rows, at most 1000. ``"learn"`` goes on from
        there with all rows (stochastic solver). ``"fixed"``: the one given, in the units of the inputs.
    tol : float, default 0.1
        Converged when an update of the sites moves the function at the training rows (root mean square) by less than
        this many standard deviations of the sites, and that much is missing of its solution.
    max_seconds, checkpoint
        As in `QSGPRegressor`.
    random_state : int, RandomState or None, default 0
    dtype : {"float32", "float64"}, default "float32"
    verbose : bool, default False

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Labels, sorted; with two of them the function is that of the second one.
    solver_, num_basis_
        As in `QSGPRegressor`.
    diagnosis_ : dict
        What to look at before trusting the fit. With the stochastic solver ``"sampling_gap"`` is how far the sampled
        objective lies from the one with all basis functions, as a share of it: beyond some per cent, raise
        ``basis_batch``.

    References
    ----------
    Evans, T. W., Nair, P. B. (2020). Quadruply Stochastic Gaussian Processes. arXiv:2006.03015.
    Adam, V., Chang, P. E., Khan, M. E., Solin, A. (2021). Dual parameterization of sparse variational
    Gaussian processes. NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import QSGPClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (300, 1))
    >>> y = np.where(np.sin(X[:, 0]) + 0.5 * rng.normal(size=300) > 0, "above", "below")
    >>> model = QSGPClassifier("rbf").fit(X, y)
    >>> model.predict([[1.5], [-1.5]]).tolist()
    ['above', 'below']
    >>> bool(model.predict_proba([[1.5]])[0, 0] > 0.9)
    True
    """

    _moved: ClassVar[Mapping[str, str]] = MOVED | MOVED_TO_CLASSES
    _start_rows = 1000
    _bases = CLASS_BASES
    _shared_rows = SharedRows(
        "with solver='block'", lambda model: not isinstance(model._chosen().solver, Stochastic)
    )

    def __init__(
        self,
        kernel: KernelLike = None,
        num_basis: NumBasis = None,
        *,
        basis: Annotated[str | Fourier, CLASS_BASES] = "fourier",
        likelihood: ClassesLike = "logit",
        solver: Annotated[str | Block | Stochastic, SOLVERS] = "auto",
        hyperparameters: Annotated[str | Subset | Learn | Fixed, SEARCHES] = "subset",
        tol: Tolerance = 0.1,
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float32",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.basis = basis
        self.likelihood = likelihood
        self.solver = solver
        self.hyperparameters = hyperparameters
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _declared_likelihood(self) -> Likelihood:
        return Bernoulli(self._classes.link)

    def _check_params(self) -> None:
        self._check_classes()
        super()._check_params()
