"""QSGP: Gaussian process regression with any number of rows and basis functions."""

from __future__ import annotations

from typing import Any

from vastgp.estimators.first_hyperparameters import (
    check_given,
)
from vastgp.estimators.likelihood_arguments import (
    check_arguments,
    check_likelihood,
    check_training,
    refuse_learning,
)
from vastgp.estimators.likelihood_regressor import LikelihoodRegressor
from vastgp.likelihoods import Gaussian
from vastgp.methods.qsgp.fit import QSGPFits
from vastgp.methods.qsgp.inducing.estimator import check_basis


class QSGPRegressor(LikelihoodRegressor, QSGPFits):
    """Gaussian process regression with random Fourier features regenerated from (seed, index).

    The kernel is approximated by ``num_basis`` random features that are never stored: millions of them fit a laptop.
    Two solvers find the posterior of their weights:

    - ``"block"``: conjugate gradients with exact residuals in passes over blocks of features, for the mean and for
      ``num_samples`` posterior samples together. It converges to the exact posterior of the model; its samples give
      variances, correlations and `sample_y`. Memory: some vectors of length ``min(n, m)`` per sample.
    - ``"stochastic"``: the quadruply stochastic variational inference of Evans and Nair: a step costs the same
      whatever n and m are, the covariance is a chevron with ``dense_columns`` dense columns. For data beyond the
      block solver.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `ExactGPRegressor`. None: the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on
        ``start_rows`` rows.
    num_basis : int, optional
        Number of basis functions m, even. None: four per row, at least 2000 and at most 100,000; 20,000 beyond 200,000
        rows, where a pass costs more. With ``basis="inducing"``: so many random training rows become inducing inputs.
    basis : {"fourier", "inducing", "grief"}, default "fourier"
        ``"inducing"``: kernel functions at inducing inputs, whose weights have the prior precision ``K(Z, Z)``. With
        all training rows as inducing inputs the posterior mean is that of the exact Gaussian process; the covariance is
        diagonal, and intervals among the rows are somewhat too wide. Gaussian likelihood and stochastic solver only.
        ``"grief"``: the leading eigenfunctions of a product kernel on a grid of ten points for each input, which need
        far fewer functions than waves do where inputs are few or the function is smooth; a name stands for a product
        of one such kernel for each input. Block solver only, hyperparameters as they start. Up to a few thousand of
        them, `GriefRegressor` learns its hyperparameters too.
    inducing_inputs : array-like of shape (m, d), optional
        Inducing inputs, in the units of X. None: all training rows, while these take less than 1 GB; or ``num_basis``
        of them, chosen at random.
    augment : bool, default True
        Inducing basis: add a basis function at each test input when its variance is predicted (Proposition 4), so
        that it becomes that of the prior far from all rows. Without, it falls to zero there.
    isotropic : bool, default False
        One lengthscale for all inputs, which are then scaled together by their root mean variance: for inputs of one
        kind, such as pixels or coordinates, of which there may be hundreds. Otherwise each input has its own of both.
    likelihood : {"gaussian", "laplace", "student-t", "poisson", "poisson-log-normal"} or Likelihood, default "gaussian"
        How observations scatter around the function. ``"laplace"`` and ``"student-t"`` bear outliers; ``"poisson"`` is
        for counts, whose logarithmic rate is the function, ``"poisson-log-normal"`` for counts whose rates also vary
        from row to row. A name stands for default values, from which learning starts; an object of
        `vastgp.likelihoods` for its own, in units of the target.
    solver : {"auto", "block", "stochastic"}, default "auto"
        ``"auto"`` is the block solver unless its vectors exceed 8 GB.
    hyperparameters : {"subset", "learn", "fixed"}, default "subset"
        ``"subset"``: kernel and noise of highest evidence on ``start_rows`` random rows, which takes seconds.
        ``"learn"`` goes on from there with all rows. ``"fixed"``: those given, in the units of inputs and target.
    noise_std : float, optional
        Standard deviation of Gaussian noise in units of the target; needed with ``"fixed"``, refused otherwise.
    noise_floor : float, default 1e-3
        Least noise variance relative to the variance of the target. The evidence of a smooth kernel on few rows can
        drive the noise so low that float32 cannot solve the system.
    start_rows : int, default 2000
        Rows of the first hyperparameters. From 2000 on, three parts of 1000 are fitted and the best of them is refined
        on all of these rows, as the evidence of 1000 rows can have several optima. Where basis functions are few, they
        are refined by the evidence of the model with random features: see `BasisEvidence`.
    frequencies : {"plain", "orthogonal", "qmc"}, default "plain"
        How frequencies are drawn: independent, orthogonal in runs of d, or from a scrambled Halton sequence.
    num_samples : int, default 32
        Posterior samples of the block solver: the error of each predicted latent variance is ``sqrt(2 / num_samples)``.
    rank : int, optional
        Size of the block solver's preconditioner. None: chosen by a count of operations and memory.
    learning_steps : int, default 20
        Steps of the block solver's learning on all rows, each about six passes.
    dense_columns : int, default 0
        Stochastic solver: dense columns of the chevron covariance; 0 is mean-field.
    row_batch : int, default 500
        Stochastic solver: rows in a step, as in the paper.
    basis_batch : int, optional
        Stochastic solver: basis functions in each random set of a step. None: 10,000 as in the paper; with inducing
        inputs 100,000 where they are the training rows, else 3000.
    control_rank : int, default 1000
        Stochastic solver: support rows of the control variate and of the preconditioner; 0 for neither. The paper
        has 500; 1000 reached the same error in less time.
    validation_fraction : float, default 0.0
        Stochastic solver: share of the rows (at most 1000) kept out of the training to stop it when their error no
        longer falls. 0: it stops when the residual at the support rows no longer does.
    max_iter : int, optional
        Most products (block, None: 300) or steps (stochastic, None: 100,000 as in the paper).
    tol : float, default 0.1
        Block: converged when what is missing of mean and samples at the training rows (root mean square) is below this
        many standard deviations of the noise: at 0.1 it adds one per cent to the variance of an observation.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked after each product or chunk of steps. The block solver's variance
        includes what was left undone when it stopped early, see `vastgp.solvers.block`.
    checkpoint : path, optional
        File to save the state of the fit to, and to resume from when it exists.
    checkpoint_seconds : float, default 30.0
        Time between two writes.
    random_state : int, RandomState or None, default 0
    dtype : {"float32", "float64"}, default "float32"
    verbose : bool, default False

    Attributes
    ----------
    solver_ : str
        The solver used.
    num_basis_ : int
        Number of basis functions.
    diagnosis_ : dict
        What to look at before trusting the fit: residuals, samples, relative standard error of the variance, ...

    References
    ----------
    Evans, T. W., Nair, P. B. (2020). Quadruply Stochastic Gaussian Processes. arXiv:2006.03015.
    Lin, J. A. et al. (2024). Improving linear system solvers for hyperparameter optimisation in iterative GPs.
    Wenger, J. et al. (2022). Posterior and computational uncertainty in Gaussian processes.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import QSGPRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> model = QSGPRegressor("rbf").fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.05)
    True
    """

    def __init__(
        self,
        kernel: Any = None,
        num_basis: Any = None,
        *,
        basis: Any = "fourier",
        inducing_inputs: Any = None,
        augment: Any = True,
        isotropic: Any = False,
        likelihood: Any = "gaussian",
        solver: Any = "auto",
        hyperparameters: Any = "subset",
        noise_std: Any = None,
        noise_floor: Any = 1e-3,
        start_rows: Any = 2000,
        frequencies: Any = "plain",
        num_samples: Any = 32,
        rank: Any = None,
        learning_steps: Any = 20,
        dense_columns: Any = 0,
        row_batch: Any = 500,
        basis_batch: Any = None,
        control_rank: Any = 1000,
        validation_fraction: Any = 0.0,
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
        self.basis = basis
        self.inducing_inputs = inducing_inputs
        self.augment = augment
        self.isotropic = isotropic
        self.likelihood = likelihood
        self.solver = solver
        self.hyperparameters = hyperparameters
        self.noise_std = noise_std
        self.noise_floor = noise_floor
        self.start_rows = start_rows
        self.frequencies = frequencies
        self.num_samples = num_samples
        self.rank = rank
        self.learning_steps = learning_steps
        self.dense_columns = dense_columns
        self.row_batch = row_batch
        self.basis_batch = basis_batch
        self.control_rank = control_rank
        self.validation_fraction = validation_fraction
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        check_arguments(self)
        check_training(self)
        likelihood = check_likelihood(self)
        check_basis(self, likelihood)
        check_given(self, likelihood)
        if not isinstance(likelihood, Gaussian):
            refuse_learning(self, likelihood)
