"""QSGP: Gaussian process regression with any number of rows and basis functions."""

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
from vastgp.estimators.likelihood_regressor import LikelihoodRegressor
from vastgp.estimators.searches import SEARCHES, Fixed, Learn, Subset
from vastgp.estimators.sharing import SharedRows
from vastgp.estimators.varying_noise import FitsVaryingNoise
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.qsgp.estimator import QSGPFits
from vastgp.methods.qsgp.inducing.options import Inducing
from vastgp.methods.qsgp.options import BASES, MOVED, SOLVERS, Block, NumBasis
from vastgp.methods.qsgp.stochastic.options import Stochastic


def _is_shared(model: QSGPRegressor) -> bool:
    chosen = model._chosen()
    apart = isinstance(chosen.solver, Stochastic) or isinstance(chosen.basis, Inducing)
    return not (apart or model._is_varying)


class QSGPRegressor(FitsVaryingNoise, LikelihoodRegressor, QSGPFits):
    """Gaussian process regression with random Fourier features regenerated from (seed, index).

    The kernel is approximated by ``num_basis`` random features that are never stored: millions of them fit a laptop.
    Two solvers find the posterior of their weights:

    - ``"block"``: conjugate gradients with exact residuals in passes over blocks of features, for the mean and for some
      posterior samples together. It converges to the exact posterior of the model; its samples give variances,
      correlations and `sample_y`. Memory: some vectors of length ``min(n, m)`` per sample.
    - ``"stochastic"``: the quadruply stochastic variational inference of Evans and Nair: a step costs the same
      whatever n and m are, the covariance is a chevron with some dense columns. For data beyond the block solver.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `ExactGPRegressor`. None: the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on some
        rows, or a sum of two where that is likelier by far.
    num_basis : int, optional
        Number of basis functions m, even. None: four per row, at most 100,000 and at least 30,000, or 25 per row where
        that is less (but 2000); 20,000 beyond 200,000 rows, where a pass costs more. With ``basis="inducing"``: so many
        random training rows become inducing inputs.
    basis : {"fourier", "inducing", "grief"} or Fourier or Inducing, default "fourier"
        ``"fourier"``: random Fourier features; ``Fourier(frequencies=...)`` of `vastgp.options` says how they are
        drawn.
        ``"inducing"``: kernel functions at inducing inputs, whose weights have the prior precision ``K(Z, Z)``. With
        all training rows as inducing inputs the posterior mean is that of the exact Gaussian process; the covariance is
        diagonal: intervals are too wide among the rows, and too narrow in gaps. Gaussian likelihood only, and a solver
        of its own, whose steps are on ``Inducing(...)``, as are the inputs where they are given.
        ``"grief"``: the leading eigenfunctions of a product kernel on a grid of ten points for each input, which need
        far fewer functions than waves do where inputs are few or the function is smooth; a name stands for a product
        of one such kernel for each input. Block solver only, hyperparameters as they start. Up to a few thousand of
        them, `GriefRegressor` learns its hyperparameters too.
    likelihood : {"gaussian", "heteroskedastic", "laplace", "student-t", "poisson", "poisson-log-normal", \
"negative-binomial"} or Likelihood, default "gaussian"
        How observations scatter around the function. ``"laplace"`` and ``"student-t"`` bear outliers; ``"poisson"`` is
        for counts, whose logarithmic rate is the function, ``"poisson-log-normal"`` and ``"negative-binomial"`` for
        counts whose rates also vary from row to row, by a log-normal factor or by a gamma one. A name stands for
        default values, from which learning starts; an object of `vastgp.likelihoods` for its own, in units of the
        target. ``"heteroskedastic"``: normal noise whose variance is a function of the inputs, as in
        `ExactGPRegressor`; block solver only.
    solver : {"auto", "block", "stochastic"} or Block or Stochastic, default "auto"
        ``"auto"`` is the block solver unless its vectors exceed 8 GB. Samples, ranks, batches and steps are on the
        objects, see `vastgp.options`.
    hyperparameters : {"subset", "learn", "fixed"} or Subset, Learn or Fixed, default "subset"
        ``"subset"``: kernel and noise of highest evidence on some random rows (2000), which takes seconds: parts of
        1000 are fitted, a third one where two do not agree, and the best of them is refined on all of these rows, as
        the evidence of 1000 rows can have several optima. Where basis functions are few, they are refined by the
        evidence of the model with random features: see `BasisEvidence`. ``"learn"`` goes on from there with all rows:
        block, of some hundred rows at most 200 steps of L-BFGS on their evidence, of more 20 steps of Adam at a rate of
        0.1, each about six passes; stochastic, a step of 1e-3 beside every fifth one of the weights.
        ``"fixed"``: those given, in the units of inputs and target. The objects of `vastgp.options` hold rows, steps,
        rate, ``noise_std``, and the least noise variance (1e-3 of the target's: the evidence of a smooth kernel on few
        rows can drive it so low that float32 cannot solve the system).
    tol : float, default 0.1
        Block: converged when what is missing of mean and samples at the training rows (root mean square) is below this
        many standard deviations of the noise: at 0.1 it adds one per cent to the variance of an observation. Learning
        has converged when it leaves half of its square to gain, in nats for each row (0.005), by an estimate of noisy
        slopes, or when exact slopes are below a tenth of its square.
        Stochastic: converged when a record of the residual gains less than a hundredth of this many of them.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked after each product or chunk of steps: a quarter of it at most for first
        hyperparameters, a third of the rest for the preconditioner. The block solver's variance includes what was left
        undone when it stopped early, see `vastgp.solvers.block`.
    checkpoint : path or SaveTo, optional
        File to save the state of the fit to, and to resume from when it exists; see `vastgp.options.SaveTo`.
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

    _moved: ClassVar[Mapping[str, str]] = MOVED
    _start_rows = 2000
    _bases = BASES
    _learns_from_known = True
    _shared_rows = SharedRows(
        "with Fourier features, solver='block' and noise that does not vary", _is_shared
    )

    def __init__(
        self,
        kernel: KernelLike = None,
        num_basis: NumBasis = None,
        *,
        basis: Annotated[str | Fourier | Inducing, BASES] = "fourier",
        likelihood: str | Likelihood = "gaussian",
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
        return Gaussian(1.0) if self._is_varying else self._chosen_likelihood()

    def _of_normal_noise(self) -> QSGPRegressor:
        alone = super()._of_normal_noise()
        if alone.solver == "auto":
            alone.solver = "block"
        return alone

    def _check_params(self) -> None:
        super()._check_params()
        chosen = self._chosen()
        for what, wrong, instead in (
            ("basis='inducing'", isinstance(chosen.basis, Inducing), "basis='fourier'"),
            ("solver='stochastic'", isinstance(chosen.solver, Stochastic), "solver='block'"),
        ):
            if self._is_varying and wrong:
                raise ValueError(
                    f"likelihood='heteroskedastic' is not available with {what}, which takes no noise of the rows' "
                    f"own. Set {instead}."
                )
        self._check_given(self._chosen().search)
