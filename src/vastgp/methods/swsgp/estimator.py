"""Sparse-within-sparse Gaussian processes: very many inducing inputs, of which each row sees the nearest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np

from vastgp._arguments import Positive
from vastgp.data import Rows
from vastgp.estimators.arguments import (
    CheckpointLike,
    Dtype,
    KernelLike,
    MaxSeconds,
    Seed,
    Verbose,
)
from vastgp.estimators.base import BaseGP
from vastgp.estimators.classes import MOVED_TO_CLASSES, ClassesLike
from vastgp.estimators.first_hyperparameters import Beginning, find_first
from vastgp.estimators.inducing_inputs import InducingInputs, given_inputs, inducing_attributes
from vastgp.estimators.likelihood_regressor import LikelihoodRegressor
from vastgp.estimators.searches import SEARCHES, Fixed, Learn, Subset, moved_to
from vastgp.estimators.sharing import SharedRows
from vastgp.estimators.varying_noise import FitsVaryingNoise
from vastgp.estimators.weighted_classes import WeightedClassifier
from vastgp.fitting.inducing_points import METHODS
from vastgp.fitting.run import Answer, Run
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.swsgp.fit import Inputs, distinct, fit_neighbourhoods, placed
from vastgp.methods.swsgp.nearest import check_nearest, fit_nearest
from vastgp.methods.swsgp.nearest_posterior import NearestPosterior
from vastgp.methods.swsgp.options import (
    SOLVERS,
    LocalSteps,
    Nearest,
    Sparse,
    check_options,
    plain_options,
)
from vastgp.methods.swsgp.posterior import SwsgpPosterior

# Memory of the sparse solver for each row and neighbour, and how much of it `solver="auto"` uses.
_SPARSE_BYTES, _MOST_SPARSE_BYTES = 48, 6_000_000_000
# Without a word: a quarter of the rows as inducing inputs, at most so many, and so many neighbours.
_SHARE, _MOST_INDUCING, _NEIGHBORS = 4, 10_000, 32
# A covariance of all inducing variables has this many entries at most; without a word there are so many of them.
_MOST_FULL, _FULL = 4096, 512
_START = {"rows": 2000, "noise_floor": 1e-3}
# Where rows are predicted from their nearest others, kernel and noise are learned from there on by these, in systems
# that need no more noise than that; and so many rows are kept.
_NEAREST, _MOST_NEAREST = {"rows": 1000, "noise_floor": 1e-6}, 1_000_000
# Of the budget, for first hyperparameters; where they are only the first.
_FOR_START, _FOR_FIRST = 0.5, 0.25

_Count = Annotated[int | None, Positive(integer=True, none="a quarter of the rows, at most 10,000")]
_Neighbors = Annotated[int | None, Positive(integer=True, none=f"{_NEIGHBORS}")]
_Inputs = Annotated[str | list[list[float]] | np.ndarray, InducingInputs("auto", *METHODS)]
_Solver = Annotated[str | Sparse | LocalSteps | Nearest, SOLVERS]
_Search = Annotated[str | Subset | Learn | Fixed, SEARCHES]
_FIELDS = {
    "covariance": "covariance",
    "prior": "prior",
    "row_batch": "row_batch",
    "max_iter": "max_steps",
    "learning_rate": "rate",
    "inducing": "learn_inducing",
}
_SHARED = ("taper", "predict_neighbors", "neighbor_search", "jitter", "tol")
_MOVED = (
    moved_to("Subset")
    | {old: f"solver=LocalSteps({new}=...)" for old, new in _FIELDS.items()}
    | {name: f"solver=Sparse({name}=...) or LocalSteps({name}=...)" for name in _SHARED}
)


class SwsgpFits(BaseGP):
    """Fits of the regressor and the classifier."""

    _beside_posterior = ("diagnosis", "solver")

    kernel: Any
    num_inducing: Any
    num_neighbors: Any
    inducing_inputs: Any
    hyperparameters: Any
    solver: Any

    def _first_likelihood(self, y: np.ndarray) -> Likelihood:
        raise NotImplementedError

    @property
    def _is_normal(self) -> bool:
        """Whether noise is normal, with one variance or with one that varies."""
        return False

    @property
    def _varies_by_itself(self) -> bool:
        return False

    @property
    def _posterior_class(self) -> Any:
        return NearestPosterior if self.solver_ == "nearest" else SwsgpPosterior

    def _resolved(self) -> tuple[Any, Any]:
        """Return what ``hyperparameters`` and ``solver`` stand for."""
        search = SEARCHES.resolve("hyperparameters", self.hyperparameters)
        return search, SOLVERS.resolve("solver", self.solver)

    def _check_params(self) -> None:
        search, solver = self._resolved()
        check_options(solver, search, self.dtype)
        if isinstance(solver, Nearest):
            check_nearest(self.likelihood, self.inducing_inputs, normal=self._is_normal)

    # ------------------------------------------------------------ fit

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        search, solver = self._resolved()
        scaling = self.standardizer_
        inputs = self._inputs(rows, solver)
        neighbors = self._neighbors(inputs.size, solver)
        if solver == "auto":
            solver = _solver_of(rows.n, inputs.size, neighbors, search)
        fixed = isinstance(search, Fixed)
        if not fixed:
            start = _NEAREST if isinstance(solver, Nearest) else _START
            search = search.given(**start)
        share = _FOR_FIRST if isinstance(solver, Nearest) else _FOR_START
        beginning = Beginning(search, self.kernel, rows, scaling, run, share)
        if isinstance(solver, Nearest):
            normal = self._of_normal_noise() if self._varies_by_itself else self
            kernel, likelihood = find_first(beginning, normal._first_likelihood)
            assert isinstance(likelihood, Gaussian)  # see `check_nearest`
            yield fit_nearest(
                rows, scaling, (kernel, likelihood), inputs.size, self.num_neighbors, solver, run,
                floor=None if fixed else search.noise_floor, free=self.kernel is None,
                varies=self._varies_by_itself,
            )  # fmt: skip
            return
        first = find_first(beginning, self._first_likelihood)
        Z = placed(rows, scaling, first[0], inputs, run.seed)
        options = plain_options(solver, search, min(neighbors, len(Z)), fixed)
        yield fit_neighbourhoods(
            rows, scaling, first, Z, options, run, sparse=isinstance(solver, Sparse), dtype=self.dtype
        )  # fmt: skip

    def _can_spare(self, left: int) -> bool:
        return self.num_inducing is None or self.num_inducing <= left

    def _inputs(self, rows: Rows, solver: Any) -> Inputs:
        """Return inducing inputs as they are asked for; refuse those that cannot be."""
        covariance = getattr(solver, "covariance", "diagonal")
        Z = given_inputs(self.inducing_inputs, self.num_inducing, rows.d)
        if Z is not None:
            _refuse_twice(Z)
            count = len(Z)
        elif self.num_inducing is None and isinstance(solver, Nearest):
            count = min(rows.n, _MOST_NEAREST)
        elif self.num_inducing is None:
            count = max(min(rows.n, 100), min(rows.n // _SHARE, _MOST_INDUCING))
            if covariance == "full":
                count = min(count, _FULL)
        else:
            count = int(self.num_inducing)
            if count > rows.n:
                raise ValueError(
                    f"num_inducing={count} is more than the {rows.n} rows of X: inducing inputs are chosen among rows, "
                    f"each once. Give at most {rows.n}, or inducing_inputs of your own."
                )
        if covariance == "full" and count > _MOST_FULL:
            raise ValueError(
                f"covariance='full' keeps {count} x {count} numbers for {count} inducing inputs, and a step reads "
                f"{count} of them for each neighbour. Set covariance='diagonal', or num_inducing={_MOST_FULL}."
            )
        if Z is None:
            return Inputs(None, self.inducing_inputs, count, self.num_inducing is not None)
        return Inputs(self.standardizer_.transform_X(Z), "given", count, True)

    def _neighbors(self, count: int, solver: Any) -> int:
        """Return the number of neighbours; refuse more than there are."""
        neighbors = min(_NEIGHBORS, count) if self.num_neighbors is None else self.num_neighbors
        predict = getattr(solver, "predict_neighbors", None)
        for name, asked in (("num_neighbors", neighbors), ("predict_neighbors", predict)):
            if asked is not None and asked > count:
                raise ValueError(
                    f"{name}={asked} is more than the {count} inducing inputs: a row cannot see more than there are. "
                    f"Give at most {count}, or raise num_inducing."
                )
        return int(neighbors)

    # ------------------------------------------------------------ predict

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore_state(state, arrays)
        self.__dict__ |= inducing_attributes(self.posterior_.Z, self.standardizer_)


def _solver_of(n: int, count: int, neighbors: int, search: Any) -> Sparse | LocalSteps:
    """Return the solver that ``"auto"`` stands for: sparse where its matrices are not too large."""
    if _SPARSE_BYTES * (n + count) * neighbors <= _MOST_SPARSE_BYTES:
        return Sparse()
    asked = {"max_steps": getattr(search, "steps", None), "rate": getattr(search, "rate", None)}
    return LocalSteps(**{name: value for name, value in asked.items() if value is not None})


def _refuse_twice(Z: np.ndarray) -> None:
    """Raise ValueError for inducing inputs of which two are the same."""
    if len(distinct(Z)) == len(Z):
        return
    _, where = np.unique(Z, axis=0, return_inverse=True)
    where = where.ravel()
    a, b = np.flatnonzero(where == np.flatnonzero(np.bincount(where) > 1)[0])[:2]
    raise ValueError(
        f"inducing_inputs has {len(Z)} rows of which {len(distinct(Z))} differ; rows {a} and {b} are the same. Two "
        "inducing variables at one place have no covariance of their own: give each place once, for example "
        "np.unique(inducing_inputs, axis=0)."
    )


def _is_shared(model: SWSGPRegressor) -> bool:
    """Whether several processes share the rows of a model."""
    return not model._is_varying and not isinstance(model._resolved()[1], Nearest)


class SWSGPRegressor(FitsVaryingNoise, LikelihoodRegressor, SwsgpFits):
    """Regression with up to hundreds of thousands of inducing inputs, a few of which are active at a time.

    Each row sees the ``num_neighbors`` inducing inputs nearest to it, by the kernel's own lengthscales, in training and
    in prediction. A step reads and changes what its rows see and nothing else: with a diagonal covariance and fixed
    inducing inputs, its time does not depend on how many there are.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `QSGPRegressor`: None is the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on some rows.
        Sums and products are allowed.
    num_inducing : int, optional
        Number M of inducing inputs, at most the number of rows. None: a quarter of the rows, at least 100 and at most
        10,000 (512 with a full covariance). As many as rows: each row is one.
    num_neighbors : int, optional
        Inducing inputs H that a row sees. None: 32, or all. With all of them the method is SVGP.
    likelihood : {"gaussian", "heteroskedastic", "laplace", "student-t", "poisson", "poisson-log-normal"} or \
Likelihood, default "gaussian"
        As in `QSGPRegressor`.
    inducing_inputs : {"auto", "kmeans", "greedy", "random"} or array of shape (M, d), default "auto"
        Where they are: centres of k-means (k-means++), rows of largest remaining variance (pivoted Cholesky), random
        rows, or points in the units of the inputs. ``"auto"``: k-means up to 1000 of them, random rows beyond.
    hyperparameters : {"subset", "learn", "fixed"} or Subset, Learn or Fixed, default "subset"
        ``"subset"``: those of highest evidence on 2000 rows, in three parts that are compared, as the evidence of 1000
        rows can have several optima. ``"learn"`` goes on from there on all rows, by stochastic steps. ``"fixed"``:
        those given, in the units of inputs and target. Objects of `vastgp.options`.
    solver : {"auto", "sparse", "stochastic", "nearest"} or Sparse, LocalSteps or Nearest, default "auto"
        How the inducing variables are found, see `vastgp.options`. ``"sparse"``: the bound's maximum by sparse linear
        algebra; one pass over the rows. ``"stochastic"``: the paper's Algorithm 1, Adam on minibatches
        (``LocalSteps``). ``"nearest"``: each row is predicted from the targets of the rows nearest to it, of which
        ``num_inducing`` are kept (all, up to a million): normal noise alone, with ``"heteroskedastic"`` function and
        noise on the scale that near rows have (`vastgp.likelihoods.LocallyScaled`); most
        accurate where there are many rows near each other. ``"auto"``: sparse where it takes less than 6 GB.
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
        In the units of the inputs.
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

    _moved: ClassVar[Mapping[str, str]] = _MOVED
    _learns_from_known = True
    _shared_rows = SharedRows(
        "by solvers of inducing variables, with noise that does not vary", _is_shared
    )

    def __init__(
        self,
        kernel: KernelLike = None,
        num_inducing: _Count = None,
        num_neighbors: _Neighbors = None,
        *,
        likelihood: str | Likelihood = "gaussian",
        inducing_inputs: _Inputs = "auto",
        hyperparameters: _Search = "subset",
        solver: _Solver = "auto",
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

    _moved: ClassVar[Mapping[str, str]] = _MOVED | MOVED_TO_CLASSES
    _shared_rows = SharedRows()

    def __init__(
        self,
        kernel: KernelLike = None,
        num_inducing: _Count = None,
        num_neighbors: _Neighbors = None,
        *,
        likelihood: ClassesLike = "logit",
        inducing_inputs: _Inputs = "auto",
        hyperparameters: _Search = "subset",
        solver: _Solver = "auto",
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
