"""Any likelihood for the block solver: one Gaussian site a row, found by natural gradients.

Sites turn the likelihood into Gaussian observations ``linear / precision`` with noise variances ``1 / precision``: the
system of `vastgp.training.block` with weighted rows, whose mean and samples in turn say what the sites should be
(conjugate-computation variational inference, Khan and Lin 2017; eqs. (9)-(13) of t-SVGP, Adam et al. 2021).
Where rows are few the marginal variances come from a factorisation, otherwise from the posterior samples: their
relative error of ``sqrt(2 / S)`` enters the sites through the curvature of ``log p(y | f)`` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis
from vastgp.likelihoods import Likelihood
from vastgp.objectives.basis_evidence import BasisDualEvidence
from vastgp.objectives.dual_evidence import Sites, local_sites
from vastgp.objectives.least_squares import gram_product
from vastgp.training.block import advance, begin, worst_error
from vastgp.training.block_systems import RowSystem, prior_draws
from vastgp.training.checkpoint import Checkpoint
from vastgp.training.history import History
from vastgp.training.loop import LoopResult, Stop, run_chunks

# Up to here a factorisation in float64 finds the sites: some ten of them, a second each at most.
MOST_EXACT = 3000
# Precisions in float32: the root of the least one still leaves digits. A site of less says nothing, and as it is the
# residual ``alpha`` that holds the mean in place, raising its precision does not move the mean.
_LEAST_PRECISION = 1e-6
# Products between two updates of the sites: those are worth little before the function has followed.
_MOST_PRODUCTS = 8
_LEAST_RATE = 0.125


class SiteRows(NamedTuple):
    """Rows as their sites make them: targets ``linear / precision``, weights ``precision``, unit noise.

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

    def noise_slope(self, noise_variance: float) -> float:
        """Return 0: all that the sites say is in their rows."""
        return 0.0


class SiteFit(NamedTuple):
    """Sites at their fixed point.

    Attributes
    ----------
    sites : Sites
        Of every row, in the precision of the rows.
    dual : Array of shape (1 + S, n), or None
        ``u`` with ``Phi^T u`` the mean's weights and what the samples learned: where the last solution is to start.
    draws : Array of shape (S, n), or None
        `prior_draws` of the rows, for the system that the sites make.
    loop : LoopResult, or None
        How they were found; None where a factorisation did.
    """

    sites: Sites
    dual: Float[Array, "C n"] | None
    draws: Float[Array, "S n"] | None
    loop: LoopResult | None


class _State(NamedTuple):
    linear: Float[Array, " n"]
    precision: Float[Array, " n"]
    dual: Float[Array, "C n"]
    image: Float[Array, "C n"]  # Phi Phi^T dual
    rate: Float[Array, ""]
    change: Float[Array, ""]


def find_sites(
    basis: RandomFourierBasis,
    likelihood: Likelihood,
    X: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, " n"],
    *,
    num_samples: int,
    seed: int,
    rank: int,
    tol: float,
    max_iter: int | None = None,
    max_seconds: float | None = None,
    checkpoint: Checkpoint | None = None,
    verbose: bool = False,
) -> SiteFit:
    """Find each row's site for a likelihood and a basis with fixed hyperparameters.

    Parameters
    ----------
    basis : RandomFourierBasis
        In the precision of ``X``.
    likelihood : Likelihood
    X, y : ndarray
        Standardised rows, in memory; targets in the units of the likelihood.
    num_samples, seed, rank
        As in `vastgp.training.block_systems.RowSystem`.
    tol : float
        Converged when an update moves the mean at the rows by less than this many posterior standard deviations (root
        mean square), and no more standard deviations of the sites are missing of the solution.
    max_iter : int or None
        Most updates.
    max_seconds, checkpoint, verbose
        As in `vastgp.training.loop.run_chunks`.
    """
    if len(y) <= MOST_EXACT:
        found = BasisDualEvidence(X, y, basis).solve(basis.kernel, likelihood)
        sites = found.sites.at_least(_LEAST_PRECISION, found.mean)
        return SiteFit(Sites(*(part.astype(X.dtype) for part in sites)), None, None, None)
    with precision(str(X.dtype)):
        search = _Search(basis, likelihood, jnp.asarray(X), jnp.asarray(y), num_samples, seed, rank, tol)  # fmt: skip
        state, loop = run_chunks(
            search.update,
            search.start(),
            max_iter=max_iter,
            chunk=1,
            max_seconds=max_seconds,
            checkpoint=checkpoint,
            should_stop=search.decide,
            label="likelihood",
            verbose=verbose,
        )
    return SiteFit(Sites(state.linear, state.precision), state.dual, search.draws, loop)


class _Search:
    """Updates of sites, each followed by products that let mean and samples follow."""

    def __init__(
        self,
        basis: RandomFourierBasis,
        likelihood: Likelihood,
        X: Array,
        y: Array,
        num_samples: int,
        seed: int,
        rank: int,
        tol: float,
    ) -> None:
        self._basis, self._X, self._y, self._tol = basis, X, y, tol
        self._likelihood = as_dtype(likelihood, X.dtype)
        self._options: dict[str, Any] = {"num_samples": num_samples, "seed": seed, "rank": rank}
        self.draws = prior_draws(basis, self._X, num_samples, seed)

    def start(self) -> _State:
        """Return the prior, and the sites that belong to it: a search without time still leaves some."""
        n, dtype = len(self._y), self._X.dtype
        empty = jnp.zeros((1 + self._options["num_samples"], n), dtype)
        one, far = jnp.ones((), dtype), jnp.full((), jnp.inf, dtype)
        nothing = jnp.zeros(n, dtype)
        state = _State(nothing, nothing, empty, jnp.zeros_like(empty), one, far)
        sites, _ = self._next_sites(state)
        return state._replace(linear=sites.linear, precision=sites.precision)

    def _variance(self, state: _State) -> Array:
        return jnp.mean((self.draws - state.image[1:]) ** 2, axis=0)

    def _next_sites(self, state: _State) -> tuple[Sites, float]:
        """Return the sites that mean and samples ask for, and the fit to the data."""
        mean = state.image[0]
        bound, better = local_sites(self._likelihood, self._y, mean, self._variance(state))
        sites = Sites(state.linear, state.precision).toward(better, state.rate)
        return sites.at_least(_LEAST_PRECISION, mean), float(jnp.sum(bound))

    def update(self, state: _State, first: int, count: int) -> tuple[_State, Mapping[str, float]]:
        """Take ``count`` updates."""
        record: dict[str, float] = {}
        for _ in range(count):
            state, record = self._once(state)
        return state, record

    def _once(self, state: _State) -> tuple[_State, dict[str, float]]:
        sites, fit = self._next_sites(state)
        rows = SiteRows.of(self._X, sites)
        system = RowSystem(self._basis, 1.0, rows, draws=self.draws, **self._options)
        solution = state.dual / system.scale
        solved = begin(system, solution, system.scale * state.image + solution)
        products = 0
        while products == 0 or (
            products < _MOST_PRODUCTS and worst_error(system, solved) > 0.5 * self._tol
        ):
            solved, products = advance(system, solved), products + 1
        dual = solved.solution * system.scale
        image = gram_product(system.blocks, self._X, dual)
        # in posterior standard deviations, and as a whole step would move it
        moved = (image[0] - state.image[0]) ** 2 / self._variance(state)
        change = jnp.sqrt(jnp.mean(moved)) / state.rate
        # updates that grow go too far
        grown = change > state.change
        slower, faster = (
            jnp.maximum(0.5 * state.rate, _LEAST_RATE),
            jnp.minimum(1.5 * state.rate, 1.0),
        )
        rate = jnp.where(grown, slower, faster)
        record = {
            "objective": fit,
            "change": float(change),
            "residual": worst_error(system, solved),
            "products": float(products),
            "rate": float(state.rate),
        }
        return _State(sites.linear, sites.precision, dual, image, rate, change), record

    def decide(self, now: Mapping[str, float], history: History) -> Stop | None:
        """Stop when an update no longer moves the mean."""
        if not np.isfinite(now["change"]):
            return Stop(
                "the sites are not finite: check the targets for extreme values, or use dtype='float64'",
                converged=False,
            )
        if now["change"] <= self._tol and now["residual"] <= self._tol:
            return Stop(
                f"the sites have converged: they move by {now['change']:.2g} <= tol = {self._tol:g}"
            )
        return None
