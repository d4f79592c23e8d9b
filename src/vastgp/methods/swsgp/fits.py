"""Fits of sparse-within-sparse Gaussian processes: what the regressor and the classifier share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np

from vastgp._arguments import Positive
from vastgp.data import Rows, processes
from vastgp.data.minibatch import standardised_rows
from vastgp.estimators.base import BaseGP
from vastgp.estimators.first_hyperparameters import Beginning, find_first
from vastgp.estimators.inducing_inputs import InducingInputs, given_inputs, inducing_attributes
from vastgp.estimators.judging import OWN
from vastgp.estimators.searches import SEARCHES, Fixed, Learn, Subset, moved_to
from vastgp.fitting.inducing_points import METHODS
from vastgp.fitting.run import Answer, Run
from vastgp.kernels import Sum
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.swsgp.fit import Inputs, distinct, fit_neighbourhoods, placed
from vastgp.methods.swsgp.nearest import Asked, check_nearest, fit_nearest
from vastgp.methods.swsgp.nearest_posterior import NearestPosterior
from vastgp.methods.swsgp.options import (
    SOLVERS,
    LocalSteps,
    Nearest,
    Sparse,
    check_options,
    plain_options,
)
from vastgp.solvers.neighbour_posterior import NeighbourPosterior

# Memory of the sparse solver for each row and neighbour, and how much of it `solver="auto"` uses.
_SPARSE_BYTES, _MOST_SPARSE_BYTES = 48, 6_000_000_000
# Without a word: a quarter of the rows as inducing inputs, at most so many, and so many neighbours.
_SHARE, _MOST_INDUCING, _NEIGHBORS = 4, 10_000, 32
# A covariance of all inducing variables has this many entries at most; without a word there are so many of them.
_MOST_FULL, _FULL = 4096, 512
_START = {"rows": 2000, "noise_floor": 1e-3}
# Where rows are predicted from their nearest others, kernel and noise are learned from there on by these, in systems
# that need no more noise than that; and so many rows are kept.
_NEAREST, _MOST_NEAREST = {"rows": 1000, "noise_floor": 1e-8}, 1_000_000
# From more rows on they are learned in few steps, which a sum of kernels takes twice as long for: one that another fit
# found is not begun with (60 s: protein 0.07 nats with Matern-3/2 and -0.03 with a sum, kin40k -1.62 and -1.46).
_MOST_WITH_SUMS = 3000
# Of the budget, for first hyperparameters; where they are only the first.
_FOR_START, _FOR_FIRST = 0.5, 0.25

CountLike = Annotated[
    int | None, Positive(integer=True, none="a quarter of the rows, at most 10,000")
]
NeighborsLike = Annotated[int | None, Positive(integer=True, none=f"{_NEIGHBORS}")]
InputsLike = Annotated[str | list[list[float]] | np.ndarray, InducingInputs("auto", *METHODS)]
SolverLike = Annotated[str | Sparse | LocalSteps | Nearest, SOLVERS]
SearchLike = Annotated[str | Subset | Learn | Fixed, SEARCHES]
_FIELDS = {
    "covariance": "covariance",
    "prior": "prior",
    "row_batch": "row_batch",
    "max_iter": "max_steps",
    "learning_rate": "rate",
    "inducing": "learn_inducing",
}
_SHARED = ("taper", "predict_neighbors", "neighbor_search", "jitter", "tol")
MOVED = (
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
        return NearestPosterior if self.solver_ == "nearest" else NeighbourPosterior

    def _resolved(self) -> tuple[Any, Any]:
        """Return what ``hyperparameters`` and ``solver`` stand for; "auto" where rows decide."""
        search = SEARCHES.resolve("hyperparameters", self.hyperparameters)
        solver = SOLVERS.resolve("solver", self.solver)
        return search, Nearest() if solver == "auto" and self._prefers_nearest(search) else solver

    def _prefers_nearest(self, search: Any) -> bool:
        """Whether nothing that is asked for stands against predictions from the nearest rows."""
        return False

    def _begins_with(self, kernel: Any, data: Any) -> bool:
        of_nearest = isinstance(self._resolved()[1], Nearest)
        return not (isinstance(kernel, Sum) and of_nearest and data.n > _MOST_WITH_SUMS)

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
        least = getattr(search, "noise_floor", None) or 0.0
        if not fixed:
            start = _NEAREST if isinstance(solver, Nearest) else _START
            search = search.given(**start)
        share = _FOR_FIRST if isinstance(solver, Nearest) else _FOR_START
        sums = not isinstance(solver, Nearest) or rows.n <= _MOST_WITH_SUMS
        beginning = Beginning(search, self.kernel, rows, scaling, run, share, sums)
        if isinstance(solver, Nearest):
            normal = self._of_normal_noise() if self._varies_by_itself else self
            kernel, likelihood = find_first(beginning, normal._first_likelihood)
            assert isinstance(likelihood, Gaussian)  # see `check_nearest`
            asked = Asked(
                inputs.size,
                self.num_neighbors,
                solver,
                floor=None if fixed else search.noise_floor,
                free=self.kernel is None,
                varies=self._varies_by_itself,
                least=least,
            )
            yield fit_nearest(rows, scaling, (kernel, likelihood), asked, run)
            return
        first = find_first(beginning, self._first_likelihood)
        Z = placed(rows, scaling, first[0], inputs, run.seed)
        options = plain_options(solver, search, min(neighbors, len(Z)), fixed)
        yield fit_neighbourhoods(
            rows, scaling, first, Z, options, run, sparse=isinstance(solver, Sparse), dtype=self.dtype
        )  # fmt: skip

    def _can_spare(self, left: int, run: Run) -> bool:
        del run
        return self.num_inducing is None or self.num_inducing <= left

    def _end_race(self, own: dict[str, Any] | None, out: Rows | None) -> None:
        super()._end_race(own, out)
        if out is not None and self.answer_ == OWN:
            self._take_in(out)

    def _take_in(self, rows: Rows, seconds: float | None = None) -> bool:
        posterior = self.posterior_
        if self.answer_ != OWN or not isinstance(posterior, NearestPosterior):
            return super()._take_in(rows, seconds)
        if processes.count() > 1 or self.num_inducing is not None:
            return False  # each has some of the rows, or there are as many as were asked for
        if len(posterior.Z) + rows.n > _MOST_NEAREST:
            return False
        # they are looked up with the others: that takes no time
        X, y = standardised_rows(rows, self.standardizer_, np.arange(rows.n))
        self.posterior_ = posterior.given_also(X, y)
        self.__dict__ |= inducing_attributes(self.posterior_.Z, self.standardizer_)
        return True

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
