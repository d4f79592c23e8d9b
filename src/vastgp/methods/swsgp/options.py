"""How SWSGP is fitted: arguments on objects, and the plain options that the numerics read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from vastgp._arguments import Flag, Named, OneOf, Options, Positive
from vastgp.data.neighbours import METHODS as SEARCHES
from vastgp.data.neighbours import load_faiss
from vastgp.estimators.arguments import refuse_given
from vastgp.estimators.searches import Learn

PRIORS = ("neighborhoods", "ordered")
COVARIANCES = ("diagonal", "full")
EVIDENCES = ("neighbors", "ordered")
_JITTER, _RATE, _STEPS = 1e-8, 0.01, 20_000
# Rounding of a factorisation asks for so much on the diagonal, relative to the prior variance and for each neighbour.
_ROUNDING = {"float32": 2e-7, "float64": 4e-16}


@dataclass(frozen=True)
class Sparse(Options):
    """The bound's maximum by sparse linear algebra: one pass over the rows, nothing random.

    For the ordered prior, a diagonal covariance and inducing inputs that stay. Hyperparameters are learned by
    `LocalSteps` in between, whose steps and rate are those of ``hyperparameters=Learn(steps=..., rate=...)``.

    Parameters
    ----------
    taper : bool, default False
        Whether a neighbour's weight fades as it gets to the border of the neighbourhood. The mean is then continuous;
        without, it jumps where one neighbour takes another's place.
    predict_neighbors : int, optional
        Inducing inputs that a row to predict sees. None: as in training.
    neighbor_search : {"auto", "exact", "approximate"}, default "auto"
        ``"exact"``: a k-d tree, or all distances in many dimensions. ``"approximate"``: an index of faiss (extra
        ``neighbors``) whose recall is measured, see ``diagnosis_``. ``"auto"``: approximate beyond 20,000 inducing
        inputs in more than five dimensions, if faiss is installed.
    jitter : float, default 1e-8
        On the diagonal of a neighbourhood's matrix, relative to the prior variance; never less than what rounding asks
        for.
    tol : float, default 1e-4
        Relative residual of the systems, and least gain of a Newton step for each row.
    """

    taper: Annotated[bool, Flag()] = False
    predict_neighbors: Annotated[int | None, Positive(integer=True, none="num_neighbors")] = None
    neighbor_search: Annotated[str, OneOf(*SEARCHES)] = "auto"
    jitter: Annotated[float, Positive()] = _JITTER
    tol: Annotated[float, Positive()] = 1e-4


@dataclass(frozen=True)
class LocalSteps(Options):
    """The paper's Algorithm 1: Adam on minibatches, whose steps cost the same whatever the numbers of rows and inputs.

    Parameters
    ----------
    covariance : {"diagonal", "full"}, default "diagonal"
        Of the inducing variables. ``"full"`` has ``M^2`` numbers, and a step costs ``O(M H^2)`` a row.
    prior : {"ordered", "neighborhoods"}, default "ordered"
        How the prior counts in the bound. ``"neighborhoods"`` is the paper's: the divergence of a row's neighbourhood,
        averaged over rows. With few neighbours among many inducing inputs it counts little, and the function follows
        the noise. ``"ordered"``: a prior in which each inducing variable depends on its nearest predecessors, which
        makes the objective a bound of the evidence.
    learn_inducing : bool, default False
        Whether the bound moves the inducing inputs.
    row_batch : int, default 64
        Rows of a step, those of all processes together; where there are no more than that, all of them.
    max_steps : int, default 20,000
        Steps at most.
    rate : float, default 0.01
        Of Adam, on everything that is learned.
    taper, predict_neighbors, neighbor_search, jitter
        As in `Sparse`.
    tol : float, default 1e-4
        Converged when 1000 steps gain less of the bound than this for each row, or less than their noise.
    """

    covariance: Annotated[str, OneOf(*COVARIANCES)] = "diagonal"
    prior: Annotated[str, OneOf(*PRIORS)] = "ordered"
    learn_inducing: Annotated[bool, Flag()] = False
    row_batch: Annotated[int, Positive(integer=True)] = 64
    max_steps: Annotated[int, Positive(integer=True)] = _STEPS
    rate: Annotated[float, Positive()] = _RATE
    taper: Annotated[bool, Flag()] = False
    predict_neighbors: Annotated[int | None, Positive(integer=True, none="num_neighbors")] = None
    neighbor_search: Annotated[str, OneOf(*SEARCHES)] = "auto"
    jitter: Annotated[float, Positive()] = _JITTER
    tol: Annotated[float, Positive()] = 1e-4


@dataclass(frozen=True)
class Nearest(Options):
    """Each row is predicted from the training rows nearest to it, whose targets are what is known there.

    Every row is an inducing input, and there is nothing to solve: a fit takes as long as the search for kernel and
    noise, whatever the rows, and a prediction ``O(H^3)`` with H neighbours. Where ``num_neighbors`` is not given, 64,
    128, 256 or 512 are taken, as many as rows of the fit gain by when each is predicted from its nearest others; these
    correct noise and amplitude as well. For regression with normal noise. The mean jumps where one neighbour takes
    another's place.

    Parameters
    ----------
    neighbor_search : {"auto", "exact", "approximate"}, default "auto"
        As in `Sparse`.
    jitter : float, default 1e-8
        On the diagonal of a neighbourhood's matrix beside the noise, relative to the prior variance.
    evidence : {"neighbors", "ordered"}, default "neighbors"
        What kernel and noise are learned by: 4096 rows given the nearest of all others; or up to 8192 given the nearest
        of those before them in a random order, which is Vecchia's evidence and says of long lengthscales what rows far
        apart do. That costs more; where no kernel is given, a sum of a short and a long one and a
        rougher one are compared as well. For fields in few dimensions.
    """

    neighbor_search: Annotated[str, OneOf(*SEARCHES)] = "auto"
    jitter: Annotated[float, Positive()] = _JITTER
    evidence: Annotated[str, OneOf(*EVIDENCES)] = "neighbors"


SOLVERS = Named({"auto": None, "sparse": Sparse, "stochastic": LocalSteps, "nearest": Nearest})


@dataclass(frozen=True)
class SwsgpOptions:
    """How to fit.

    Attributes
    ----------
    num_neighbors : int
        H.
    covariance : {"diagonal", "full"}
    prior : {"neighborhoods", "ordered"}
        How the prior is counted, see `vastgp.methods.swsgp.bound`.
    row_batch : int
        Rows of a step; with the ordered prior, also its inducing inputs whose divergence counts.
    learning_rate : float
        Of Adam.
    half_life : float
        Steps after which the learning rate has fallen by ``sqrt(2)``; it falls like ``1 / sqrt(1 + t / half_life)``.
    max_steps : int
    learn, move : bool
        Whether hyperparameters are learned, and inducing inputs.
    given : bool
        Whether hyperparameters are those of the user.
    taper : bool
        Whether the weights of neighbours fade towards the border of the neighbourhood.
    jitter : float
        Relative to the prior variance.
    search : {"auto", "exact", "approximate"}
        How neighbours are found.
    stale_share : float
        Share of neighbours that may have changed before all are searched again.
    noise_floor : float
        Least noise variance.
    predict_neighbors : int or None
        None: `num_neighbors`.
    tol : float
        As in the options of the solvers.
    """

    num_neighbors: int
    covariance: str = "diagonal"
    prior: str = "ordered"
    row_batch: int = 64
    learning_rate: float = _RATE
    half_life: float = np.inf
    max_steps: int = _STEPS
    learn: bool = True
    move: bool = False
    given: bool = False
    taper: bool = False
    jitter: float = 1e-6
    search: str = "auto"
    stale_share: float = 0.02
    noise_floor: float = 1e-3
    predict_neighbors: int | None = None
    tol: float = 1e-4

    def least_jitter(self, dtype: str) -> float:
        """Return the jitter, or what rounding asks for where that is more."""
        return max(self.jitter, _ROUNDING[dtype] * self.num_neighbors)


def check_options(solver: Any, search: Any, dtype: str) -> None:
    """Raise ValueError for what would have no effect, and for a search of neighbours that cannot be.

    Parameters
    ----------
    solver : "auto", Sparse, LocalSteps or Nearest
    search : Subset, Learn or Fixed
    dtype : str
    """
    if isinstance(solver, LocalSteps) and isinstance(search, Learn):
        instead = {"steps": "solver=LocalSteps(max_steps=...)", "rate": "solver=LocalSteps(rate=...)"}  # fmt: skip
        refuse_given("hyperparameters", search, **instead)
    exact = isinstance(solver, Nearest) or (
        isinstance(solver, Sparse) and not isinstance(search, Learn)
    )
    if exact and dtype != "float64":
        name = "nearest" if isinstance(solver, Nearest) else "sparse"
        raise ValueError(
            f"dtype={dtype!r} has no effect with solver={name!r}, which works in float64: leave it out, or set "
            "solver='stochastic'."
        )
    if isinstance(solver, Nearest) and isinstance(search, Learn):
        raise ValueError(
            "hyperparameters='learn' goes on by stochastic steps, which solver='nearest' does not take: it learns "
            "kernel and noise on some rows. Set hyperparameters=Subset(rows=...) for more of them, or "
            "solver='stochastic'."
        )
    if solver != "auto" and solver.neighbor_search == "approximate":
        load_faiss()


def plain_options(solver: Any, search: Any, num_neighbors: int, given: bool) -> SwsgpOptions:
    """Return what the numerics read of checked arguments.

    Parameters
    ----------
    solver : Sparse or LocalSteps
    search : Subset or Learn, or Fixed
    num_neighbors : int
    given : bool
        Whether hyperparameters are those of the user.
    """
    shared = {
        "learn": isinstance(search, Learn),
        "given": given,
        "taper": solver.taper,
        "jitter": solver.jitter,
        "search": solver.neighbor_search,
        "predict_neighbors": solver.predict_neighbors,
        "noise_floor": getattr(search, "noise_floor", None) or SwsgpOptions.noise_floor,
        "tol": solver.tol,
    }
    options = SwsgpOptions(num_neighbors, **shared)
    if isinstance(solver, Sparse):
        return dataclasses.replace(
            options,
            max_steps=getattr(search, "steps", None) or _STEPS,
            learning_rate=getattr(search, "rate", None) or _RATE,
        )
    return dataclasses.replace(
        options,
        covariance=solver.covariance,
        prior=solver.prior,
        row_batch=solver.row_batch,
        learning_rate=solver.rate,
        max_steps=solver.max_steps,
        move=solver.learn_inducing,
    )
