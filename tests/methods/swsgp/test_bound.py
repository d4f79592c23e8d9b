"""The bound of sparse-within-sparse Gaussian processes: SVGP's with all neighbours, unbiased, what it bounds."""

import itertools

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from vastgp._precision import precision
from vastgp.data.neighbours import nearest, nearest_predecessors
from vastgp.kernels import RBF, Matern32, Matern52
from vastgp.kernels.matrices import kernel_matrix
from vastgp.likelihoods import Bernoulli, Gaussian, Poisson, Softmax, StudentT
from vastgp.likelihoods.rowwise import by_rows
from vastgp.methods.swsgp.bound import row_moments
from vastgp.methods.swsgp.state import Variables
from vastgp.methods.swsgp.step import Batch, Constants, StepPlan, bound
from vastgp.solvers.neighbourhoods import Neighbours

pytestmark = pytest.mark.little_work
KERNEL = Matern52(np.array([0.7, 1.3]), 1.7)
JITTER = 1e-8
N, M = 8, 6


@pytest.fixture(autouse=True)
def double():
    with precision("float64"):
        yield


def plan(full, ordered, taper=False, jitter=JITTER):
    return StepPlan(full, ordered, taper, True, True), Constants(N, M, 0.01, np.inf, jitter)


def problem(likelihood, full, seed=0):
    """Rows, inducing inputs and variables that nothing has been done to."""
    rng = np.random.default_rng(seed)
    X, Z = rng.normal(size=(N, 2)), rng.normal(size=(M, 2))
    C = likelihood.num_latent
    y = {
        "gaussian": rng.normal(size=N),
        "student-t": rng.normal(size=N),
        "bernoulli": np.sign(rng.normal(size=N)),
        "poisson": rng.poisson(2.0, N) * 1.0,
        "softmax": rng.integers(0, C, N) * 1.0,
    }[likelihood.name]
    shape = (M, C, M) if full else (M, C)
    spread = 0.3 * rng.normal(size=shape) - (0.0 if full else 1.0)
    local = Variables(*map(jnp.asarray, (rng.normal(size=(M, C)), spread, Z)))
    hyper = jax.tree.map(lambda leaf: jnp.log(jnp.asarray(leaf)), (KERNEL, likelihood))
    return X, y, local, hyper


def batch_of(X, y, Z, H, rows=None, own=None):
    """Return a minibatch by brute force; all inducing inputs are touched."""
    rows = np.arange(len(X)) if rows is None else np.asarray(rows)
    own = np.arange(len(Z)) if own is None else np.asarray(own)
    scales = np.asarray(KERNEL.lengthscales)
    near = nearest(X[rows] / scales, np.asarray(Z) / scales, min(H + 1, len(Z)))
    before = nearest_predecessors(np.asarray(Z), scales, H)[own]
    parts = (
        X[rows], y[rows], np.arange(len(Z)), near[:, :H], near[:, -1], own, np.maximum(before, 0),
        before >= 0,
    )  # fmt: skip
    return Batch(*map(jnp.asarray, parts))


def covariances(local, full):
    spread = np.asarray(local.spread)
    if not full:
        return [np.diag(np.exp(spread[:, c])) for c in range(spread.shape[1])]
    found = []
    for c in range(spread.shape[1]):
        L = np.tril(spread[:, c], -1) + np.diag(np.exp(np.diagonal(spread[:, c])))
        found.append(L @ L.T)
    return found


def svgp_bound(likelihood, X, y, local, full):
    """Hensman et al.'s bound with dense matrices: eqs. (3) and (4) of the paper."""
    m = np.asarray(local.mean)
    K = np.asarray(kernel_matrix(KERNEL, local.Z, local.Z)) + JITTER * 1.7 * np.eye(M)
    A = np.linalg.solve(K, np.asarray(kernel_matrix(KERNEL, local.Z, jnp.asarray(X)))).T
    mean, variance, divergence = [], [], 0.0
    for c, S in enumerate(covariances(local, full)):
        mean.append(A @ m[:, c])
        variance.append(1.7 - np.einsum("nm,mk,nk->n", A, K - S, A))
        divergence += 0.5 * (
            np.trace(np.linalg.solve(K, S)) + m[:, c] @ np.linalg.solve(K, m[:, c]) - M
            + np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1]
        )  # fmt: skip
    mean, variance = (part[0] if len(part) == 1 else np.stack(part) for part in (mean, variance))
    return float(np.sum(by_rows(likelihood, "expected_log_prob", y, mean, variance))) - divergence


LIKELIHOODS = [Gaussian(0.3), Bernoulli("probit"), StudentT(0.5), Poisson(1.0), Softmax(3)]


CASES = [(likelihood, False, True) for likelihood in LIKELIHOODS] + [
    (likelihood, True, full) for likelihood in (LIKELIHOODS[0], LIKELIHOODS[-1]) for full in (False, True)
]  # fmt: skip
value_of = jax.jit(bound, static_argnums=0)


@pytest.mark.parametrize(("likelihood", "ordered", "full"), CASES)
def test_with_all_neighbours_it_is_svgp(likelihood, ordered, full):
    X, y, local, hyper = problem(likelihood, full)
    found = value_of(*plan(full, ordered), local, hyper, batch_of(X, y, local.Z, M))
    assert float(found) == pytest.approx(svgp_bound(likelihood, X, y, local, full), abs=1e-6)


@pytest.mark.parametrize("ordered", [False, True])
def test_minibatches_average_to_the_whole(ordered):
    """All 28 pairs of 8 rows, each with all 15 pairs of 6 inducing inputs: equal to rounding, hence unbiased."""
    X, y, local, hyper = problem(Gaussian(0.3), True)
    H = 3
    whole = float(value_of(*plan(True, ordered), local, hyper, batch_of(X, y, local.Z, H)))
    owns = list(itertools.combinations(range(M), 2)) if ordered else [(0, 1)]
    found = [
        float(value_of(*plan(True, ordered), local, hyper, batch_of(X, y, local.Z, H, rows, own)))
        for rows in itertools.combinations(range(N), 2)
        for own in owns
    ]
    assert np.std(found) > 1.0
    assert np.mean(found) == pytest.approx(whole, rel=1e-10)


@pytest.mark.parametrize(
    ("full", "ordered", "taper"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, False)],
)
def test_gradients_by_finite_differences(full, ordered, taper):
    X, y, local, hyper = problem(StudentT(0.5), full)
    batch, how = batch_of(X, y, local.Z, 3), plan(full, ordered, taper, 1e-6)
    value = jax.jit(lambda parts: bound(*how, *parts, batch))
    flat, unravel = jax.flatten_util.ravel_pytree((local, hyper))
    gradient = jax.jit(jax.grad(lambda flat: value(unravel(flat))))(flat)
    assert float(jnp.min(jnp.sum(jnp.abs(gradient) > 1e-3))) > 10
    for seed in range(4):
        direction = np.random.default_rng(seed).normal(size=flat.shape)
        ends = [float(value(unravel(flat + step * direction))) for step in (1e-6, -1e-6)]
        slope = (ends[0] - ends[1]) / 2e-6
        assert float(gradient @ direction) == pytest.approx(slope, rel=2e-5, abs=1e-4)


def test_as_printed_it_exceeds_the_evidence_and_ordered_it_does_not():
    """Each row sees its own inducing variable alone: the divergence of eq. (11) is that of one of n variables."""
    X = np.random.default_rng(0).normal(size=(N, 2))
    prior = np.asarray(kernel_matrix(KERNEL, jnp.asarray(X), jnp.asarray(X))) + 0.01 * np.eye(N)
    y = multivariate_normal(np.zeros(N), prior).rvs(random_state=1)
    evidence = multivariate_normal(np.zeros(N), prior).logpdf(y)
    likelihood = Gaussian(0.01)
    hyper = jax.tree.map(lambda leaf: jnp.log(jnp.asarray(leaf)), (KERNEL, likelihood))
    local = Variables(jnp.asarray(y)[:, None], jnp.full((N, 1), np.log(1e-3)), jnp.asarray(X))
    batch = batch_of(X, y, X, 1)
    printed, numbers = (
        StepPlan(False, False, False, True, False),
        Constants(N, N, 0.01, np.inf, JITTER),
    )
    assert float(value_of(printed, numbers, local, hyper, batch)) > evidence + 5.0
    ordered = printed._replace(ordered=True)
    all_before = batch_of(X, y, X, N)
    assert float(value_of(ordered, numbers, local, hyper, all_before)) < evidence


def test_absent_neighbours_play_no_part():
    X, _, local, _ = problem(Gaussian(0.3), False)
    Z = np.asarray(local.Z)
    near = np.array([[0, 3, 1]] * N)
    present = np.array([[True, True, False]] * N)
    variances = np.exp(np.asarray(local.spread))

    compiled = jax.jit(row_moments)

    def moments(count, present):
        some = near[:, :count]
        parts = (Z[some], present, np.asarray(local.mean)[some], variances[some])
        return compiled(KERNEL, jnp.asarray(X), Neighbours(*map(jnp.asarray, parts)), JITTER)

    for mine, theirs in zip(moments(3, present), moments(2, present[:, :2]), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


@pytest.mark.parametrize("kernel", [RBF(1.0), Matern32(0.5) + RBF(2.0)])
def test_a_tapered_mean_is_continuous(kernel):
    """The largest change between points of a line is halved down to its place: there it is gone, or it is a jump."""
    rng = np.random.default_rng(3)
    Z = (np.arange(30) / 3.0 + rng.uniform(-0.1, 0.1, 30))[:, None]
    mean = np.sin(Z) + 0.3 * rng.normal(size=Z.shape)
    moments = jax.jit(row_moments)

    def values(line, taper):
        found = nearest(line[:, None], Z, 5)
        near = found[:, :4]
        parts = (Z[near], np.ones(near.shape, bool), mean[near], np.ones((*near.shape, 1)))
        border = jnp.asarray(Z[found[:, 4]]) if taper else None
        some = Neighbours(*map(jnp.asarray, parts), border=border)
        return np.asarray(moments(kernel, jnp.asarray(line[:, None]), some, 1e-6).mean[0])

    jumps = []
    for taper in (False, True):
        low, high = 1.0, 9.0
        for _ in range(3):
            line = np.linspace(low, high, 8000)
            change = np.abs(np.diff(values(line, taper)))
            worst = int(np.argmax(change))
            low, high = line[worst], line[worst + 1]
        jumps.append(change[worst])
    assert jumps[0] > 2e-3
    assert jumps[1] < 1e-3 * jumps[0]
