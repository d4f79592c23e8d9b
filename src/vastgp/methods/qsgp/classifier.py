"""QSGP: Gaussian process classification with any number of basis functions."""

from __future__ import annotations

from typing import Any

from vastgp.estimators.arguments import check_choice
from vastgp.estimators.likelihood_arguments import check_arguments, check_count, refuse_learning
from vastgp.estimators.weighted_classes import WeightedClassifier
from vastgp.likelihoods import Bernoulli
from vastgp.methods.qsgp.fit import QSGPFits


class QSGPClassifier(WeightedClassifier, QSGPFits):
    """Classification with Gaussian processes of random Fourier features.

    Two classes: ``P(second class | x) = g(f(x))`` with the logistic or the normal distribution function ``g``. More:
    one function for each class and ``P(class c | x) = exp(f_c(x)) / sum_k exp(f_k(x))`` (softmax), with one kernel for
    all. The posterior of the functions is found by one of two solvers:

    - ``"block"``: Gaussian sites, one for each row (the dual parameters of t-SVGP), turn the problem into regression
      with weighted rows, whose mean and ``num_samples`` samples the block solver of `QSGPRegressor` finds.
    - ``"stochastic"``: the quadruply stochastic variational inference of Evans and Nair, whose steps cost the same
      whatever n and m are, with a diagonal covariance, or a chevron of ``dense_columns`` for two classes. The latent
      variance of a diagonal one is too large where there are far more basis functions than rows:
      ``predict_proba(X, method="median")`` does without it, as in the paper.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `QSGPRegressor`; the evidence is its variational lower bound.
    num_basis : int, optional
        As in `QSGPRegressor`.
    isotropic : bool, default False
        One lengthscale for all inputs, which are then scaled together, as in `QSGPRegressor`.
    link : {"logit", "probit"}, default "logit"
        ``"probit"`` is for two classes.
    class_weight : dict, "balanced" or None, default None
        What a row of each class counts in the fit: a number for each label, or ``n / (C count)`` so that every class
        counts the same. Probabilities are then those of a world where classes are that frequent.
    solver : {"auto", "block", "stochastic"}, default "auto"
        ``"auto"`` is the block solver unless its vectors exceed 8 GB.
    hyperparameters : {"subset", "learn", "fixed"}, default "subset"
        ``"subset"``: the kernel of highest evidence bound on ``start_rows`` random rows, at most 1000. ``"learn"`` goes
        on from there with all rows (stochastic solver). ``"fixed"``: the one given, in the units of the inputs.
    start_rows, frequencies, num_samples, rank, row_batch, basis_batch, control_rank
        As in `QSGPRegressor`.
    dense_columns : int, default 0
        Stochastic solver, two classes: dense columns of the chevron covariance; 0 is mean-field.
    bound : {"plug-in", "strict"}, default "plug-in"
        Stochastic solver: how the likelihood is estimated from sampled basis functions. ``"strict"`` is a lower bound
        of the evidence whatever the sample, and far from tight unless ``basis_batch`` is near ``num_basis``.
    max_iter, max_seconds, checkpoint, checkpoint_seconds
        As in `QSGPRegressor`.
    tol : float, default 0.1
        Converged when an update of the sites moves the function at the training rows (root mean square) by less than
        this many standard deviations of the sites, and that much is missing of its solution.
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
    >>> X = np.random.default_rng(0).uniform(-3, 3, (300, 1))
    >>> model = QSGPClassifier("rbf").fit(X, np.where(np.sin(X[:, 0]) > 0, "above", "below"))
    >>> model.predict([[1.5], [-1.5]]).tolist()
    ['above', 'below']
    >>> bool(model.predict_proba([[1.5]])[0, 0] > 0.9)
    True
    """

    def __init__(
        self,
        kernel: Any = None,
        num_basis: Any = None,
        *,
        isotropic: Any = False,
        link: Any = "logit",
        class_weight: Any = None,
        solver: Any = "auto",
        hyperparameters: Any = "subset",
        start_rows: Any = 1000,
        frequencies: Any = "plain",
        num_samples: Any = 32,
        rank: Any = None,
        row_batch: Any = 500,
        basis_batch: Any = 10_000,
        control_rank: Any = 1000,
        dense_columns: Any = 0,
        bound: Any = "plug-in",
        max_iter: Any = None,
        tol: Any = 0.1,
        max_seconds: Any = None,
        checkpoint: Any = None,
        checkpoint_seconds: Any = 30.0,
        random_state: Any = 0,
        dtype: Any = "float32",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.isotropic = isotropic
        self.link = link
        self.class_weight = class_weight
        self.solver = solver
        self.hyperparameters = hyperparameters
        self.start_rows = start_rows
        self.frequencies = frequencies
        self.num_samples = num_samples
        self.rank = rank
        self.row_batch = row_batch
        self.basis_batch = basis_batch
        self.control_rank = control_rank
        self.dense_columns = dense_columns
        self.bound = bound
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        check_choice("bound", self.bound, ("plug-in", "strict"))
        check_arguments(self)
        check_count("dense_columns", self.dense_columns)
        self._check_classes()
        refuse_learning(self, Bernoulli(self.link))
