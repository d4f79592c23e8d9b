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

import time
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import LinearOperator, cg

from vastgp._precision import precision
from vastgp.data import Rows, Standardizer
from vastgp.data.neighbours import NeighbourIndex, nearest_predecessors
from vastgp.fitting.history import History
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.progress import Progress
from vastgp.kernels import Kernel
from vastgp.kernels.metric import metric_lengthscales
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.likelihoods.rowwise import by_rows
from vastgp.methods.swsgp.bound import local_weights
from vastgp.methods.swsgp.state import SwsgpOptions

# Entries of the local matrices of a tile of rows, and rows read at a time.
_TILE_ENTRIES, _READ_ROWS = 2**22, 16_384
# Newton steps at most, and halvings of one that does not raise the bound.
_MOST_STEPS, _MOST_HALVINGS = 30, 8
# Iterations of conjugate gradients at most; how far beyond its tolerance a solution may be and count as one (rounding
# in systems of close inducing inputs); least precision of a site.
_MOST_CG, _LOOSEST, _LEAST_PRECISION = 1000, 10.0, 1e-6


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
    y : ndarray of shape (n,)
        Standardised targets.
    recall : float
        Share of true neighbours that the index of the inducing inputs finds.
    """

    A: csr_matrix
    conditional: np.ndarray
    B: csr_matrix
    v: np.ndarray
    y: np.ndarray
    recall: float = 1.0

    def prior_product(self, m: np.ndarray) -> np.ndarray:
        """Return ``Q m``."""
        rest = (m - self.B @ m) / self.v
        return rest - self.B.T @ rest

    def prior_diagonal(self) -> np.ndarray:
        """Return ``Q_jj = 1 / v_j + sum_k B_kj^2 / v_k``."""
        return 1.0 / self.v + self.B.power(2).T @ (1.0 / self.v)

    def moments(self, m: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance at all rows: (n,), or (C, n) where there are several functions."""
        mean, variance = self.A @ m, self.A.power(2) @ s + self.conditional[:, None]
        return (mean[:, 0], variance[:, 0]) if m.shape[1] == 1 else (mean.T, variance.T)

    def bound(self, likelihood: Likelihood, m: np.ndarray, s: np.ndarray) -> float:
        """Return the bound, all rows and inducing inputs counted."""
        with precision("float64"):
            fit = by_rows(likelihood, "expected_log_prob", self.y, *self.moments(m, s))
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
    num_iter : int
        Newton steps.
    converged : bool
        Whether they had settled, the last system was solved to its tolerance, and time had not run out.
    reason : str
    history : History
        A record for each Newton step.
    recall : float
        Share of true neighbours that the index finds.
    """

    mean: np.ndarray
    variances: np.ndarray
    bound: float
    residual: float
    num_iter: int
    converged: bool
    reason: str
    history: History
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
    conditional, targets, done = np.empty(rows.n), np.empty(rows.n), 0
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
    return SparseSystem(A, conditional, B, v, targets, index.recall)


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
            edge = None if border is None else jnp.asarray(border[some])
            a, conditional = local_weights(
                kernel, jnp.asarray(X[some]), jnp.asarray(Z[np.maximum(numbers, 0)]),
                jnp.asarray(numbers >= 0), edge, jitter,
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


def fit_sparse(
    system: SparseSystem,
    likelihood: Likelihood,
    *,
    tol: float,
    max_seconds: float | None = None,
) -> SparseFit:
    """Return the bound's maximum over mean and variances.

    Parameters
    ----------
    system : SparseSystem
    likelihood : Likelihood
    tol : float
        Newton steps end when one gains less than this for each row; relative residual of the systems.
    max_seconds : float, optional
    """
    began, history = time.perf_counter(), History()
    deadline = np.inf if max_seconds is None else began + max_seconds
    own, squares = system.prior_diagonal()[:, None], system.A.power(2).T.tocsr()
    m = np.zeros((system.A.shape[1], likelihood.num_latent))
    s = 1.0 / own + 0.0 * m
    bound, residual, exact = -np.inf, np.nan, isinstance(likelihood, Gaussian)

    def found(step: int, converged: bool, reason: str) -> SparseFit:
        exactly = residual <= _LOOSEST * tol
        if time.perf_counter() > deadline and not exactly:
            reason = OUT_OF_TIME
        elif converged and not exactly:
            reason = f"stopped after {_MOST_CG} iterations of conjugate gradients"
        return SparseFit(
            m, s, bound, residual, step, converged and exactly, reason, history, system.recall
        )

    for step in range(1, _MOST_STEPS + 1):
        mean, variance = system.moments(m, s)
        with precision("float64"):
            sites = by_rows(likelihood, "sites", system.y, mean, variance)
        # rows first, also where there is one function
        mean, alpha, beta = (np.atleast_2d(np.asarray(part)).T for part in (mean, *sites))
        # a site of negative precision would leave no maximum: what remains is a step along the slope
        beta = np.maximum(beta, _LEAST_PRECISION)
        diagonal = squares @ beta + own
        right = beta * mean + alpha
        solved = [
            _solved(system, beta[:, c], right[:, c], diagonal[:, c], m[:, c], tol, deadline)
            for c in range(m.shape[1])
        ]
        target = np.stack([one for one, _ in solved], axis=1)
        residual = max(error for _, error in solved)
        rate = 1.0
        for _ in range(_MOST_HALVINGS):
            # variances by their inverse: natural parameters
            trial = (1.0 - rate) * m + rate * target, 1.0 / ((1.0 - rate) / s + rate * diagonal)
            value = system.bound(likelihood, *trial)
            if value > bound:
                break
            rate *= 0.5
        else:
            return found(step, True, "no Newton step raises the bound")
        gain, (m, s), bound = value - bound, trial, value
        history.append(
            step, time.perf_counter() - began, {"objective": bound, "residual": residual}
        )
        if exact:
            return found(step, True, "the bound's maximum is the solution of one system")
        if gain < tol * len(system.y):
            return found(step, True, "a Newton step gained less than tol for each row")
        if time.perf_counter() > deadline:
            return found(step, False, OUT_OF_TIME)
    return found(_MOST_STEPS, False, f"stopped after {_MOST_STEPS} Newton steps")


def _solved(
    system: SparseSystem,
    beta: np.ndarray,
    right: np.ndarray,
    diagonal: np.ndarray,
    start: np.ndarray,
    tol: float,
    deadline: float,
) -> tuple[np.ndarray, float]:
    """Return the mean and the relative residual, by conjugate gradients preconditioned with the diagonal."""
    A, transposed = system.A, system.A.T.tocsr()
    size = A.shape[1]

    def product(m: np.ndarray) -> np.ndarray:
        return transposed @ (beta * (A @ m)) + system.prior_product(m)

    operator = LinearOperator((size, size), matvec=product, dtype=np.float64)
    jacobi = LinearOperator((size, size), matvec=lambda r: r / diagonal, dtype=np.float64)
    b = transposed @ right
    best = start

    def watch(m: np.ndarray) -> None:
        nonlocal best
        best = m
        if time.perf_counter() > deadline:
            raise TimeoutError

    try:
        found, _ = cg(operator, b, x0=start, rtol=tol, maxiter=_MOST_CG, M=jacobi, callback=watch)
    except TimeoutError:
        found = best
    norm = float(np.linalg.norm(b))
    return found, float(np.linalg.norm(b - product(found))) / norm if norm > 0.0 else 0.0
