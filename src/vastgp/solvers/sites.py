"""Any likelihood for the block solver: one Gaussian site a row, found by natural gradients.

Sites turn the likelihood into Gaussian observations ``linear / precision`` with noise variances ``1 / precision``: the
system of `vastgp.solvers.block` with weighted rows, whose mean and samples in turn say what the sites should be
(conjugate-computation variational inference, Khan and Lin 2017; eqs. (9)-(13) of t-SVGP, Adam et al. 2021).
Where rows are few the marginal variances come from a factorisation, otherwise from the posterior samples: their
relative error of ``sqrt(2 / S)`` enters the sites through the curvature of ``log p(y | f)`` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import as_dtype, precision
from vastgp.bases import PairedBasis
from vastgp.data import processes
from vastgp.fitting.dual_evidence import Sites, most_rate
from vastgp.fitting.history import History
from vastgp.fitting.loop import OUT_OF_TIME, LoopResult, Stop
from vastgp.fitting.run import Run
from vastgp.likelihoods import Likelihood
from vastgp.solvers.basis_evidence import BasisDualEvidence
from vastgp.solvers.block import advance, begin, worst_error
from vastgp.solvers.joint_system import JointSystem
from vastgp.solvers.plan import rows_of_functions
from vastgp.solvers.row_system import RowSystem, prior_draws, shared_row_product
from vastgp.solvers.site_updates import (
    LEAST_PRECISION,
    State,
    moved,
    next_sites,
    scaled_start,
    unscaled,
)

# Up to here a factorisation in float64 finds the sites: some ten of them, a second each at most.
MOST_EXACT = 3000
# Products between two updates of the sites: those are worth little before the function has followed.
_MOST_PRODUCTS = 8


class SiteRows(NamedTuple):
    """Rows as the sites of a function make them: targets ``linear / precision``, weights ``precision``, unit noise.

    Attributes
    ----------
    X : Array of shape (n, d)
    y : Array of shape (n,)
    weights : Array of shape (n,)
    """

    X: Any
    y: Any
    weights: Any

    @classmethod
    def of(cls, X: Any, sites: Sites) -> SiteRows:
        """Return the rows that some sites make."""
        return cls(X, sites.linear / sites.precision, sites.precision)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def noise_shares(self) -> None:
        """None: there is no noise beside the sites."""
        return None

    def noise_slope(self, noise_variance: float) -> float:
        """Return 0: all that the sites say is in their rows."""
        return 0.0


class SiteFit(NamedTuple):
    """Sites at their fixed point.

    Attributes
    ----------
    sites : Sites
        Of every row, in the precision of the rows; (n,), or (C, n) for C functions.
    dual : Array of shape (C (1 + S), n), or None
        ``u`` with ``Phi^T u`` the mean's weights and what the samples learned: where the last solution is to start.
    system : RowSystem or JointSystem
        That the sites make.
    loop : LoopResult, or None
        How they were found; None where factorisations did.
    """

    sites: Sites
    dual: Float[Array, "k n"] | None
    system: RowSystem | JointSystem
    loop: LoopResult | None


def find_sites(
    basis: PairedBasis,
    likelihood: Likelihood,
    X: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, " n"],
    run: Run,
    *,
    num_samples: int,
    rank: int,
    tol: float,
    max_iter: int | None = None,
) -> SiteFit:
    """Find each row's site for a likelihood and a basis with fixed hyperparameters.

    Parameters
    ----------
    basis : PairedBasis
        In the precision of ``X``.
    likelihood : Likelihood
    X, y : ndarray
        Standardised rows, in memory; targets in the units of the likelihood.
    run : Run
        Its phase is called "sites".
    num_samples, rank
        As in `vastgp.solvers.row_system.RowSystem`, whose seed is that of the run.
    tol : float
        Converged when an update moves the mean at the rows by less than this many posterior standard deviations (root
        mean square), and no more standard deviations of the sites are missing of the solution.
    max_iter : int or None
        Most updates.
    """
    options: dict[str, Any] = {"num_samples": num_samples, "seed": run.seed, "rank": rank}
    if len(y) <= rows_of_functions(MOST_EXACT, likelihood):
        found = BasisDualEvidence(X, y, basis).solve(basis.kernel, likelihood)
        loop = None if found.settled else _unsettled(found.bound)
        sites = found.sites.at_least(LEAST_PRECISION, found.mean)
        sites = Sites(*(part.astype(X.dtype) for part in sites))
        with precision(str(X.dtype)):
            return SiteFit(sites, None, site_system(basis, X, sites, None, **options), loop)
    with precision(str(X.dtype)):
        search = _Search(basis, likelihood, jnp.asarray(X), jnp.asarray(y), tol, options, run)
        state, loop = run.steps(
            "sites",
            search.update,
            search.start(),
            max_iter=max_iter,
            chunk=1,
            should_stop=search.decide,
            label="likelihood",
        )
        sites = Sites(state.linear, state.precision)
        # What is unsolved of a mean is in its sites since the last system was made, see `moved`. There was none where a
        # fit resumed at its end, or had no time.
        system = site_system(
            search.basis, search.X, sites, search.draws, like=search.system, **options
        )
    if likelihood.num_latent == 1:
        sites = Sites(*(np.asarray(part)[0] for part in sites))
    return SiteFit(sites, state.dual, system, loop)


def site_system(
    basis: PairedBasis,
    X: Any,
    sites: Sites,
    draws: Sequence[Float[Array, "S n"]] | None,
    *,
    num_samples: int,
    seed: int,
    rank: int,
    like: RowSystem | JointSystem | None = None,
) -> RowSystem | JointSystem:
    """Return the system that sites make, of all functions together where there are several.

    The prior draws of one function are independent of those of another. ``like`` is a system of the same precisions,
    whose preconditioner serves.
    """
    linear, precision = (np.atleast_2d(part) for part in sites)
    made: Sequence[RowSystem | None] = (
        like.systems if isinstance(like, JointSystem) else [like] * len(linear)
    )
    if rank < len(X):  # as many bytes for all preconditioners as for one
        rank = max(1, rank // len(linear))
    systems = [
        RowSystem(
            basis,
            1.0,
            SiteRows.of(X, Sites(linear[c], precision[c])),
            num_samples=num_samples,
            seed=_seed_of(seed, c),
            rank=rank,
            draws=None if draws is None else draws[c],
            precondition=getattr(made[c], "precondition", None),
        )
        for c in range(len(linear))
    ]
    return systems[0] if len(systems) == 1 else JointSystem(systems)


def _seed_of(seed: int, function: int) -> int:
    """Return the seed of a function's draws: the first one has the seed itself."""
    if function == 0:
        return seed
    return int(np.random.SeedSequence([seed, function]).generate_state(1, np.uint64)[0])


def _unsettled(bound: float) -> LoopResult:
    """Return how a search by factorisations ended that did not find the best sites."""
    history = History()
    history.append(0, 0.0, {"objective": bound})
    reason = (
        f"the sites of the likelihood did not settle, the bound of the evidence being {bound:g}"
    )
    return LoopResult(0, 0.0, False, reason, history)


class _Search:
    """Updates of sites, each followed by products that let mean and samples follow."""

    def __init__(
        self,
        basis: PairedBasis,
        likelihood: Likelihood,
        X: Array,
        y: Array,
        tol: float,
        options: dict[str, Any],
        run: Run,
    ) -> None:
        self._run = run
        self.basis = basis.stored(X.shape[1], X.dtype)
        self.X, self._y, self._tol = X, y, tol
        self._likelihood = as_dtype(likelihood, X.dtype)
        self._options = options
        self.system: RowSystem | JointSystem | None = None
        self._functions, self._most = likelihood.num_latent, most_rate(likelihood)
        self.draws = tuple(
            prior_draws(self.basis, X, options["num_samples"], _seed_of(options["seed"], c))
            for c in range(self._functions)
        )

    def start(self) -> State:
        """Return the prior, and the sites that belong to it: a search without time still leaves some."""
        n, dtype = len(self._y), self.X.dtype
        columns = self._functions * (1 + self._options["num_samples"])
        # put there as they are: `jnp.zeros` compiles a program for each
        shapes = (self._functions, n), (columns, n)
        nothing, empty = (jax.device_put(np.zeros(shape, dtype)) for shape in shapes)
        rate, far, none = (
            jax.device_put(np.full((), value, dtype)) for value in (self._most, np.inf, 0.0)
        )
        state = State(nothing, nothing, empty, empty, rate, far, none)
        sites, _ = self._next_sites(state)
        return state._replace(linear=sites.linear, precision=sites.precision)

    def _next_sites(self, state: State) -> tuple[Sites, Array]:
        return next_sites(self._likelihood, self._y, self.draws, state)

    def update(self, state: State, first: int, count: int) -> tuple[State, Mapping[str, float]]:
        """Take ``count`` updates."""
        record: dict[str, float] = {}
        for _ in range(count):
            state, record = self._once(state)
        return state, record

    def _once(self, state: State) -> tuple[State, dict[str, float]]:
        sites, fit = self._next_sites(state)
        self.system = None  # its preconditioner is as large as the next one
        system = site_system(self.basis, self.X, sites, self.draws, **self._options)
        solved = begin(system, *scaled_start(state, system.scale))
        products = 0
        # Of several functions a product takes seconds. What is unsolved is uncertain, so the last update may end early.
        while products == 0 or (
            products < _MOST_PRODUCTS
            and processes.agreed(
                worst_error(system, solved) > 0.5 * self._tol and not self._run.out_of_time
            )
        ):
            solved, products = advance(system, solved), products + 1
        dual = unscaled(solved.solution, system.scale)
        ones = jax.device_put(np.ones(len(self._y), self.X.dtype))
        nothing = np.zeros((), self.X.dtype)
        image = shared_row_product(system.blocks, self.X, ones, nothing, dual)
        self.system = system
        new = moved(
            self._most,
            self._likelihood,
            self._y,
            self.draws,
            state,
            fit,
            sites.precision,
            dual,
            image,
        )
        record = {
            "objective": float(fit),
            "change": float(new.change),
            "residual": worst_error(system, solved),
            "products": float(products),
            "rate": float(state.rate),
            "step": float(new.step),
        }
        return new, record

    def decide(self, last: Mapping[str, float], history: History) -> Stop | None:
        """Stop when an update no longer moves the mean."""
        if not np.isfinite(last["change"]):
            return Stop(
                "the sites are not finite: check the targets for extreme values, or use dtype='float64'",
                converged=False,
            )
        if last["change"] <= self._tol and last["residual"] <= self._tol:
            return Stop(
                f"the sites have converged: they move by {last['change']:.2g} <= tol = {self._tol:g}",
                converged=True,
            )
        # an update of which there is time for less than half is not begun
        left, took = self._run.seconds_left(), np.diff([0.0, *history.seconds])[-1]
        if processes.agreed(left is not None and left < 0.5 * took):
            return Stop(OUT_OF_TIME)
        return None
