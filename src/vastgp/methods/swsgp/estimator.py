"""Sparse-within-sparse Gaussian processes: very many inducing inputs, of which each row sees the nearest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from vastgp.data import processes
from vastgp.estimators.arguments import (
    CheckpointLike,
    Dtype,
    KernelLike,
    MaxSeconds,
    Seed,
    Verbose,
)
from vastgp.estimators.classes import MOVED_TO_CLASSES, ClassesLike
from vastgp.estimators.likelihood_regressor import LikelihoodRegressor
from vastgp.estimators.searches import Fixed, Learn
from vastgp.estimators.sharing import SharedRows
from vastgp.estimators.varying_noise import FitsVaryingNoise
from vastgp.estimators.weighted_classes import WeightedClassifier
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.swsgp.fits import (
    MOVED,
    CountLike,
    InputsLike,
    NeighborsLike,
    SearchLike,
    SolverLike,
    SwsgpFits,
)
from vastgp.methods.swsgp.options import Nearest


def _is_shared(model: SWSGPRegressor) -> bool:
    """Whether several processes share the rows of a model."""
    solver = model._resolved()[1]
    if isinstance(solver, Nearest):
        return solver.evidence == "neighbors"
    return not model._is_varying


class SWSGPRegressor(FitsVaryingNoise, LikelihoodRegressor, SwsgpFits):
    """Regression with up to hundreds of thousands of inducing inputs, a few of which are active at a time.

    Each row sees the ``num_neighbors`` inducing inputs nearest to it, by the kernel's own lengthscales, in training and
    in prediction. A step reads and changes what its rows see and nothing else: with a diagonal covariance and fixed
    inducing inputs, its time does not depend on how many there are. With normal noise, and nothing asked of the
    inducing inputs, these are all rows, and what is known there are their targets (``solver="nearest"``).

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `QSGPRegressor`: None is the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on some rows,
        or a sum of two where that is likelier by far (of at most 3000 rows where it predicts from the nearest ones).
        Sums and products are allowed.
    num_inducing : int, optional
        Number M of inducing inputs, at most the number of rows. None: all rows, up to a million, with
        ``solver="nearest"``; else a quarter of the rows, at least 100 and at most 10,000 (512 with a full covariance).
        As many as rows: each row is one.
    num_neighbors : int, optional
        Inducing inputs H that a row sees. None: 64 to 512 with ``solver="nearest"``, as rows gain by; else 32, or all.
        With all of them the method is SVGP.
    likelihood : {"gaussian", "heteroskedastic", "laplace", "student-t", "poisson", "poisson-log-normal", \
"negative-binomial"} or Likelihood, default "gaussian"
        As in `QSGPRegressor`.
    inducing_inputs : {"auto", "kmeans", "greedy", "random"} or array of shape (M, d), default "auto"
        Where they are: centres of k-means (k-means++), rows of largest remaining variance (pivoted Cholesky), random
        rows, or points in the units of the inputs. ``"auto"``: k-means up to 1000 of them, random rows beyond.
    hyperparameters : {"subset", "learn", "fixed"} or Subset, Learn or Fixed, default "subset"
        ``"subset"``: those of highest evidence on 2000 rows, in up to three parts that are compared, as the evidence
        of 1000 rows can have several optima. ``"learn"`` goes on from there on all rows, by stochastic steps.
        ``"fixed"``: those given, in the units of inputs and target. Objects of `vastgp.options`.
    solver : {"auto", "sparse", "stochastic", "nearest"} or Sparse, LocalSteps or Nearest, default "auto"
        How the inducing variables are found, see `vastgp.options`. ``"sparse"``: the bound's maximum by sparse linear
        algebra; one pass over the rows. ``"stochastic"``: the paper's Algorithm 1, Adam on minibatches
        (``LocalSteps``). ``"nearest"``: each row is predicted from the targets of the rows nearest to it, of which
        ``num_inducing`` are kept (all, up to a million): normal noise alone, with ``"heteroskedastic"`` function and
        noise on the scale that near rows have (`vastgp.likelihoods.LocallyScaled`); most
        accurate where there are many rows near each other. ``"auto"``: nearest for normal noise where inducing inputs
        and the search for hyperparameters are left to it, in one process; else sparse where that takes less than 6 GB.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked every 50 steps, or at every iteration of a linear solver. Noise and
        variances of a fit that it ended are those of its means.
    checkpoint : path or SaveTo, optional
        File to save the fit to while it works, and to resume from when it exists; see `vastgp.options.SaveTo`.
    random_state : int, RandomState or None, default 0
    dtype : {"float64", "float32"}, default "float64"
        Of stochastic steps; all else is in float64. ``"float32"`` takes about half the time and needs a larger jitter,
        which it gets.
    verbose : bool, default False

    Attributes
    ----------
    inducing_points_ : ndarray of shape (M, d)
        In the units of the inputs; of several processes with ``solver="nearest"`` those that this one has.
    num_inducing_ : int
    solver_ : str
        The one that found the hyperparameters or, where these were not learned, the inducing variables.
    diagnosis_ : dict
        ``"objective"``, ``"objective_se"``: bound, or its estimate over the last steps; ``"residual"``: of the sparse
        solver; ``"searches"``: how often all neighbours were searched anew as lengthscales or inducing inputs had
        moved; ``"stale"``: share of neighbours that had changed at the last look; ``"recall"``: share of true
        neighbours that the index finds, 1 when exact.

    References
    ----------
    Tran, G.-L., Milios, D., Michiardi, P., Filippone, M. (2021). Sparse within sparse Gaussian processes using neighbor
    information. ICML.
    Wu, L., Pleiss, G., Cunningham, J. P. (2022). Variational nearest neighbor Gaussian process. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import SWSGPRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, (300, 1))
    >>> model = SWSGPRegressor("rbf", 50, 8).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.1)
    True
    """

    _moved: ClassVar[Mapping[str, str]] = MOVED
    _learns_from_known = True
    _shared_rows = SharedRows(
        "with noise that does not vary, or solver=Nearest(evidence='neighbors')", _is_shared
    )

    def __init__(
        self,
        kernel: KernelLike = None,
        num_inducing: CountLike = None,
        num_neighbors: NeighborsLike = None,
        *,
        likelihood: str | Likelihood = "gaussian",
        inducing_inputs: InputsLike = "auto",
        hyperparameters: SearchLike = "subset",
        solver: SolverLike = "auto",
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float64",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.num_inducing = num_inducing
        self.num_neighbors = num_neighbors
        self.likelihood = likelihood
        self.inducing_inputs = inducing_inputs
        self.hyperparameters = hyperparameters
        self.solver = solver
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        super()._check_params()
        self._check_given(self._resolved()[0])

    @property
    def _is_normal(self) -> bool:
        return self._is_varying or isinstance(self._chosen_likelihood(), Gaussian)

    def _prefers_nearest(self, search: Any) -> bool:
        of_its_own = self.num_inducing is None and isinstance(self.inducing_inputs, str)
        return (
            of_its_own
            and self.inducing_inputs == "auto"
            and self.dtype == "float64"
            and not isinstance(search, Learn | Fixed)
            and self._is_normal
            and processes.count() == 1
        )

    @property
    def _varies_by_itself(self) -> bool:
        # from the nearest rows: their scale is of function and noise together
        return self._is_varying and isinstance(self._resolved()[1], Nearest)


class SWSGPClassifier(WeightedClassifier, SwsgpFits):
    """Classification with up to hundreds of thousands of inducing inputs, a few of which are active at a time.

    See `SWSGPRegressor`. Two classes have one latent function, more have one each.

    Parameters
    ----------
    likelihood : {"logit", "probit"} or Classes, default "logit"
        The link, ``"probit"`` for two classes; ``Classes(class_weight=...)`` of `vastgp.options` weighs the rows.
    kernel, num_inducing, num_neighbors, inducing_inputs, hyperparameters, solver, max_seconds, checkpoint, \
random_state, dtype, verbose
        As in `SWSGPRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Labels, sorted.
    inducing_points_, num_inducing_, solver_, diagnosis_
        As in `SWSGPRegressor`.

    References
    ----------
    Tran, G.-L., Milios, D., Michiardi, P., Filippone, M. (2021). Sparse within sparse Gaussian processes using neighbor
    information. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import SWSGPClassifier
    >>> X = np.random.default_rng(0).uniform(-3, 3, (200, 1))
    >>> y = np.where(np.sin(X[:, 0]) > 0, "above", "below")
    >>> model = SWSGPClassifier("rbf", 20, 8).fit(X, y)
    >>> model.predict([[1.5], [-1.5]]).tolist()
    ['above', 'below']
    """

    _moved: ClassVar[Mapping[str, str]] = MOVED | MOVED_TO_CLASSES
    _shared_rows = SharedRows()

    def __init__(
        self,
        kernel: KernelLike = None,
        num_inducing: CountLike = None,
        num_neighbors: NeighborsLike = None,
        *,
        likelihood: ClassesLike = "logit",
        inducing_inputs: InputsLike = "auto",
        hyperparameters: SearchLike = "subset",
        solver: SolverLike = "auto",
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float64",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.num_inducing = num_inducing
        self.num_neighbors = num_neighbors
        self.likelihood = likelihood
        self.inducing_inputs = inducing_inputs
        self.hyperparameters = hyperparameters
        self.solver = solver
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        super()._check_params()
        self._check_classes()
