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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, identity
from scipy.sparse.linalg import LinearOperator, cg
from threadpoolctl import threadpool_limits

from vastgp._precision import precision
from vastgp.data import Rows, Standardizer, observations
from vastgp.data.neighbours import NeighbourIndex, nearest_predecessors
from vastgp.fitting.clock import now
from vastgp.fitting.damped_updates import SETTLED, Ascent, DampedUpdates, decide
from vastgp.fitting.history import History
from vastgp.fitting.loop import OUT_OF_TIME, LoopResult, Stop
from vastgp.fitting.noise_left import noise_left
from vastgp.fitting.progress import Progress
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.kernels.metric import metric_lengthscales
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.likelihoods.rowwise import by_rows
from vastgp.methods.swsgp.bound import local_weights
from vastgp.methods.swsgp.options import SwsgpOptions
from vastgp.methods.swsgp.patches import patch_inverse, patches_of

# Entries of the local matrices of a tile of rows, and rows read at a time.
_TILE_ENTRIES, _READ_ROWS = 2**22, 16_384
# Newton steps at most, those that were not taken included, and rounds of `given_means`.
_MOST_STEPS, _ROUNDS = 100, 3
# Iterations of conjugate gradients at most; how far beyond its tolerance a solution may be and count as one (rounding
# in systems of close inducing inputs); least precision of a site.
_MOST_CG, _LOOSEST, _LEAST_PRECISION = 1000, 10.0, 1e-6
# Iterations with the diagonal as preconditioner: what they do not solve is worth making patches for.
_PLAIN_CG = 80


@dataclass(frozen=True)
class SparseSystem:
    """Weights of all rows and of all inducing inputs.

    Attributes
    ----------
    A : csr_matrix of shape (n, M)
    conditional : ndarray of shape (n,)
        Prior variance of each row given its neighbours.
    B : csr_matrix of shape (M, M)
        Strictly lower triangular.
    v : ndarray of shape (M,)
        Prior variance of each inducing variable given its predecessors.
    y : ndarray of shape (n,) or (n, 3)
        Standardised targets, with noise of the rows' own or without.
    points : ndarray of shape (M, d)
        Inducing inputs over their lengthscales.
    recall : float
        Share of true neighbours that the index of the inducing inputs finds.
    """

    A: csr_matrix
    conditional: np.ndarray
    B: csr_matrix
    v: np.ndarray
    y: np.ndarray
    points: np.ndarray
    recall: float = 1.0

    def prior_product(self, m: np.ndarray) -> np.ndarray:
        """Return ``Q m``."""
        rest = (m - self.B @ m) / self.v
        return rest - self.B.T @ rest

    def prior_diagonal(self) -> np.ndarray:
        """Return ``Q_jj = 1 / v_j + sum_k B_kj^2 / v_k``."""
        return 1.0 / self.v + self.B.power(2).T @ (1.0 / self.v)

    def prior_root(self) -> csc_matrix:
        """Return ``V^-1/2 (I - B)``, of which ``Q`` is the square."""
        rest = identity(len(self.v), format="csr") - self.B
        return csc_matrix(rest.multiply(1.0 / np.sqrt(self.v)[:, None]))

    def squares(self) -> csr_matrix:
        """Return the transpose of ``A_ij^2``."""
        return self.A.power(2).T.tocsr()

    def moments(self, m: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance at all rows: (n,), or (C, n) where there are several functions."""
        mean, variance = self.A @ m, self.A.power(2) @ s + self.conditional[:, None]
        return (mean[:, 0], variance[:, 0]) if m.shape[1] == 1 else (mean.T, variance.T)

    def at_targets(self, likelihood: Likelihood, method: str, *moments: np.ndarray) -> Any:
        """Return what a method of the likelihood gives for the targets and moments of all rows."""
        with precision("float64"):
            if observations.has_own_noise(self.y):
                # a few products of normal noise, in whose targets the rows do not come last
                found = getattr(likelihood, method)(self.y, *moments)
                return jax.tree.map(np.asarray, found)
            return by_rows(likelihood, method, self.y, *moments)

    def bound(self, likelihood: Likelihood, m: np.ndarray, s: np.ndarray) -> float:
        """Return the bound, all rows and inducing inputs counted."""
        fit = self.at_targets(likelihood, "expected_log_prob", *self.moments(m, s))
        rest = m - self.B @ m
        spread = s + self.B.power(2) @ s
        v = self.v[:, None]
        divergence = 0.5 * np.sum((rest**2 + spread) / v - 1.0 + np.log(v / s))
        return float(np.sum(fit) - divergence)


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


def build_sparse(
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    Z: np.ndarray,
    options: SwsgpOptions,
    verbose: bool = False,
) -> SparseSystem:
    """Return the weights of all rows and inducing inputs: ``O((n + M) H^3)`` time, ``O((n + M) H)`` memory."""
    size, sees = len(Z), min(options.num_neighbors, len(Z))
    jitter = options.least_jitter("float64")
    metric = metric_lengthscales(kernel, rows.d)
    index = NeighbourIndex(Z, metric, options.search)
    fades = options.taper and sees < size
    weights, numbers = np.empty((rows.n, sees)), np.empty((rows.n, sees), np.int32)
    assert rows.y is not None
    conditional, targets, done = np.empty(rows.n), np.empty(rows.y.shape), 0
    with Progress("SWSGP", verbose) as progress:
        for X, y in rows.batches(_READ_ROWS):
            assert y is not None
            here = slice(done, done + len(X))
            X = standardizer.transform_X(X)
            near = index.query(X, sees + fades)
            border = Z[near[:, -1]] if fades else None
            numbers[here] = near[:, :sees]
            weights[here], conditional[here] = _weights(
                kernel, X, Z, near[:, :sees], jitter, border
            )
            targets[here] = standardizer.transform_y(y)
            done += len(X)
            progress.update(done / rows.n)
    before = nearest_predecessors(Z, metric, sees, options.search)
    b, v = _weights(kernel, Z, Z, before, jitter, None)
    v = v + jitter * float(kernel.total_variance())
    A, B = _sparse(weights, numbers, size), _sparse(b, before, size)
    return SparseSystem(A, conditional, B, v, targets, index.points, index.recall)


def _weights(
    kernel: Kernel,
    X: np.ndarray,
    Z: np.ndarray,
    near: np.ndarray,
    jitter: float,
    border: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and conditional variances of rows by tiles of one size."""
    tile = max(16, _TILE_ENTRIES // near.shape[1] ** 2)
    tile = min(1 << (tile.bit_length() - 1), 1 << max(len(X) - 1, 1).bit_length())
    weights, left = np.empty(near.shape), np.empty(len(X))
    with precision("float64"):
        for start in range(0, len(X), tile):
            some = np.minimum(np.arange(start, start + tile), len(X) - 1)
            numbers = near[some]
            edge = None if border is None else border[some]
            a, conditional = local_weights(
                kernel, X[some], Z[np.maximum(numbers, 0)], numbers >= 0, edge, jitter
            )  # fmt: skip
            stop = min(start + tile, len(X))
            weights[start:stop] = np.asarray(a)[: stop - start]
            left[start:stop] = np.asarray(conditional)[: stop - start]
    return weights, left


def _sparse(weights: np.ndarray, numbers: np.ndarray, width: int) -> csr_matrix:
    present = numbers.ravel() >= 0
    ends = np.concatenate([[0], np.cumsum(np.sum(numbers >= 0, axis=1))])
    parts = (weights.ravel()[present], numbers.ravel()[present], ends)
    return csr_matrix(parts, shape=(len(numbers), width))


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
            self._evaluate, most=1.0, least_gain=tol * len(system.y), prepare=self._asked
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
        diagonal = self.squares @ beta + self.own
        with np.errstate(invalid="ignore"):  # of averages that overflow
            right = beta * mean + alpha
        if not np.all(np.isfinite(right)):
            return here._replace(better=(np.full_like(m, np.nan), diagonal))
        solved = [
            _solved(self.system, beta[:, c], right[:, c], diagonal[:, c], m[:, c], self.tol, self.deadline)
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
        return Stop(f"stopped after {_MOST_CG} iterations of conjugate gradients", converged=False)


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
        noise = noise_left(system.y, mean, variance, noise_floor)
        each = np.broadcast_to(observations.noise_variances(system.y, noise), len(system.y))
        s = 1.0 / (squares @ (1.0 / each)[:, None] + own)
    likelihood = Gaussian(noise)
    return replace(fit, variances=s, bound=system.bound(likelihood, fit.mean, s)), likelihood


def _solved(
    system: SparseSystem,
    beta: np.ndarray,
    right: np.ndarray,
    diagonal: np.ndarray,
    start: np.ndarray,
    tol: float,
    deadline: float,
) -> tuple[np.ndarray, float]:
    """Return the mean and the relative residual, by conjugate gradients.

    Preconditioned with the diagonal, and with patches of neighbours from where that takes too long.
    """
    A, transposed = system.A, system.A.T.tocsr()

    def product(m: np.ndarray) -> np.ndarray:
        return transposed @ (beta * (A @ m)) + system.prior_product(m)

    b = transposed @ right
    norm = float(np.linalg.norm(b))
    best = start

    def watch(m: np.ndarray) -> None:
        nonlocal best
        best = m
        if now() > deadline:
            raise TimeoutError

    def iterate(inverse: Callable[[np.ndarray], np.ndarray], most: int) -> bool:
        nonlocal best
        operator, inverse_of = (
            LinearOperator((len(b), len(b)), matvec=one, dtype=np.float64)
            for one in (product, inverse)
        )
        best, left = cg(
            operator, b, x0=best, rtol=tol, maxiter=most, M=inverse_of, callback=watch
        )  # fmt: skip
        return left == 0

    try:
        # its products have one thread, and sums of some thousand numbers are none for two: they would wait for each
        # other (14,000 inducing inputs, both cores of the machine at work: 60 s, of which 37 in such sums)
        with threadpool_limits(1, "blas"):
            if not iterate(lambda r: r / diagonal, _PLAIN_CG):
                root = system.prior_root()
                patches = patches_of(system.points, root)
                iterate(patch_inverse(patches, A.tocsc(), beta, root), _MOST_CG)
    except TimeoutError:
        pass
    return best, float(np.linalg.norm(b - product(best))) / norm if norm > 0.0 else 0.0
