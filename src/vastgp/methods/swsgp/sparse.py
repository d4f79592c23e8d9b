"""Mean and variances of the inducing variables by sparse linear algebra, for given hyperparameters.

With the ordered prior of `vastgp.methods.swsgp.bound` everything in the bound is sparse: the function at the
rows is ``A u`` with H entries in a row of ``A``, and the prior's precision is ``Q = (I - B)^T V^-1 (I - B)`` with H
entries in a row of ``B``. For a diagonal covariance the bound's maximum is then the solution of

    (A^T L A + Q) m = A^T (L f + alpha),      1 / s_j = sum_i L_i A_ij^2 + Q_jj

with the sites ``alpha_i = E[d log p / df]`` and ``L_i = -E[d^2 log p / df^2]`` at the current moments: with Gaussian
noise once, with other likelihoods by Newton steps. Nothing is random, and one pass over the rows makes all that is
needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from vastgp.data import observations, processes
from vastgp.fitting.clock import now
from vastgp.fitting.damped_updates import SETTLED, Ascent, DampedUpdates, decide
from vastgp.fitting.history import History
from vastgp.fitting.loop import OUT_OF_TIME, LoopResult, Stop
from vastgp.fitting.noise_left import noise_left
from vastgp.fitting.run import Run
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.swsgp.solution import MOST_ITERATIONS, solution
from vastgp.methods.swsgp.sparse_system import SparseSystem

# Newton steps at most, those that were not taken included, and rounds of `given_means`.
_MOST_STEPS, _ROUNDS = 100, 3
# How far beyond its tolerance a solution may be and count as one (rounding in systems of close inducing inputs); least
# precision of a site.
_LOOSEST, _LEAST_PRECISION = 10.0, 1e-6


@dataclass(frozen=True)
class SparseFit:
    """What was found.

    Attributes
    ----------
    mean, variances : ndarray of shape (M, C)
    bound : float
        There, of all rows.
    residual : float
        Of the last systems, relative to their right-hand sides: the largest.
    loop : LoopResult
        Of the Newton steps: converged where they had settled and the last system was solved to its tolerance.
    recall : float
        Share of true neighbours that the index finds.
    """

    mean: np.ndarray
    variances: np.ndarray
    bound: float
    residual: float
    loop: LoopResult
    recall: float = 1.0


class _Point(NamedTuple):
    """A `Found` whose sites are the mean and the inverse variances of the inducing variables.

    Attributes
    ----------
    sites : tuple of ndarray of shape (M, C)
    bound : float
    better : tuple of ndarray
        What the sites of the rows ask for; the sites themselves where nobody asked.
    residual : float
        Of the systems that were solved for ``better``.
    """

    sites: tuple[np.ndarray, np.ndarray]
    bound: Any
    better: tuple[np.ndarray, np.ndarray]
    residual: Any


class _Newton:
    """Damped Newton steps on the bound of a system, of a state `Ascent`."""

    def __init__(
        self, system: SparseSystem, likelihood: Likelihood, tol: float, deadline: float
    ) -> None:
        self.system, self.likelihood, self.tol, self.deadline = system, likelihood, tol, deadline
        self.own, self.squares = system.prior_diagonal()[:, None], system.squares()
        self.exact = isinstance(likelihood, Gaussian)
        self.updates = DampedUpdates(
            self._evaluate, most=1.0, least_gain=tol * system.num_rows, prepare=self._asked
        )

    def start(self, given: tuple[np.ndarray, np.ndarray] | None) -> Ascent:
        """Return the state at given mean and variances, or at mean zero with what the prior alone would choose."""
        if given is not None:
            return self.updates.start((given[0], 1.0 / given[1]))
        m = np.zeros((self.system.A.shape[1], self.likelihood.num_latent))
        return self.updates.start((m, self.own + 0.0 * m))

    def _evaluate(self, sites: tuple[np.ndarray, np.ndarray]) -> _Point:
        m, precisions = sites
        bound = self.system.bound(self.likelihood, m, 1.0 / precisions)
        return _Point(sites, np.float64(bound), sites, np.float64(np.nan))

    def _asked(self, here: _Point) -> _Point:
        m, precisions = here.sites
        mean, variance = self.system.moments(m, 1.0 / precisions)
        sites = self.system.at_targets(self.likelihood, "sites", mean, variance)
        # rows first, also where there is one function
        mean, alpha, beta = (np.atleast_2d(np.asarray(part)).T for part in (mean, *sites))
        # a site of negative precision would leave no maximum: what remains is a step along the slope
        beta = np.maximum(beta, _LEAST_PRECISION)
        diagonal = processes.added(self.squares @ beta) + self.own
        with np.errstate(invalid="ignore"):  # of averages that overflow
            right = beta * mean + alpha
        if processes.added(np.count_nonzero(~np.isfinite(right))):
            return here._replace(better=(np.full_like(m, np.nan), diagonal))
        solved = [
            solution(self.system, beta[:, c], right[:, c], diagonal[:, c], m[:, c], self.tol, self.deadline)
            for c in range(m.shape[1])
        ]  # fmt: skip
        target = np.stack([one for one, _ in solved], axis=1)
        residual = np.float64(max(error for _, error in solved))
        return here._replace(better=(target, diagonal), residual=residual)

    def chunk(self, state: Ascent, first: int, count: int) -> tuple[Ascent, Mapping[str, Any]]:
        """Do one step."""
        # of the system that the step came from, where no other was solved since
        residual, state = state.found.residual, self.updates.step(state)
        if self.exact and not state.shortened:
            state = state._replace(end=np.int64(SETTLED))
        if np.isfinite(state.found.residual):
            residual = state.found.residual
        state = state._replace(found=state.found._replace(residual=residual))
        return state, {"objective": state.found.bound, "residual": residual, "end": state.end}

    def decide(self, record: Mapping[str, float], _: History) -> Stop | None:
        """Stop when a step gains next to nothing, or none can be taken."""
        ended = decide(record["end"], record["objective"])
        if ended is None or not ended.converged:
            return ended
        if record["residual"] <= _LOOSEST * self.tol:
            if self.exact:
                return Stop("the bound's maximum is the solution of one system", True)
            return ended
        if now() > self.deadline:
            return Stop(OUT_OF_TIME, converged=False)
        return Stop(
            f"stopped after {MOST_ITERATIONS} iterations of conjugate gradients", converged=False
        )


def fit_sparse(
    system: SparseSystem,
    likelihood: Likelihood,
    *,
    tol: float,
    run: Run,
    name: str = "sparse solution",
    start: tuple[np.ndarray, np.ndarray] | None = None,
) -> SparseFit:
    """Return the bound's maximum over mean and variances.

    Parameters
    ----------
    system : SparseSystem
    likelihood : Likelihood
    tol : float
        Newton steps end when one gains less than this for each row; relative residual of the systems.
    run : Run
    name : str
        Of the phase.
    start : tuple of ndarray of shape (M, C), optional
        Mean and variances to start from.
    """
    deadline = np.inf if run.deadline is None else run.deadline
    newton = _Newton(system, likelihood, tol, deadline)
    state, loop = run.steps(
        name, newton.chunk, newton.start(start), max_iter=_MOST_STEPS, chunk=1, should_stop=newton.decide
    )  # fmt: skip
    (m, precisions), bound, _, residual = state.found
    return SparseFit(m, 1.0 / precisions, float(bound), float(residual), loop, system.recall)


def given_means(
    system: SparseSystem, fit: SparseFit, noise_floor: float
) -> tuple[SparseFit, Gaussian]:
    """Return the variances and the noise of highest bound for the means of a fit that was stopped.

    Variances know how many rows there are, not how far the means have come: with the noise of a converged fit they
    would be certain of means that explain nothing. Each of the two is found given the other.
    """
    own, squares, s = system.prior_diagonal()[:, None], system.squares(), fit.variances
    for _ in range(_ROUNDS):
        mean, variance = system.moments(fit.mean, s)
        # numbers of all rows, in each process: that is short beside the fit, and seldom
        y, mean, variance = (
            np.concatenate(processes.gathered(part)) for part in (system.y, mean, variance)
        )
        noise = noise_left(y, mean, variance, noise_floor)
        each = np.broadcast_to(observations.noise_variances(system.y, noise), len(system.y))
        s = 1.0 / (processes.added(squares @ (1.0 / each)[:, None]) + own)
    likelihood = Gaussian(noise)
    return replace(fit, variances=s, bound=system.bound(likelihood, fit.mean, s)), likelihood
