"""The block solver against the closed-form posterior of the weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data.padding import padded_size
from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer
from vastgp.fitting.history import History
from vastgp.fitting.run import Run
from vastgp.kernels import RBF, Matern32
from vastgp.likelihoods import Gaussian
from vastgp.methods.qsgp.block_learning import learn_block
from vastgp.solvers import row_preconditioner
from vastgp.solvers.block import (
    _decide,
    advance,
    begin,
    build_system,
    fit_block,
    replace_residual,
    solve_system,
    standardised,
)
from vastgp.solvers.cg import cg_start
from vastgp.solvers.plan import _products, plan
from vastgp.solvers.preconditioners import BalancedPreconditioner, LowRankPreconditioner
from vastgp.solvers.weight_space import SampledPosterior

NOISE = 0.05


def data(n=300, d=3, seed=0, distinct=None):
    """Rows, of which only the first ``distinct`` have inputs of their own."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d))
    if distinct is not None:
        X[distinct:] = X[generator.integers(0, distinct, n - distinct)]
    y = np.sin(X.sum(axis=1)) + 0.1 * generator.normal(size=n)
    rows = Rows(X, y)
    return rows, Standardizer().fit(rows)


def features(basis, X):
    return np.asarray(
        basis.features(jnp.asarray(X), jnp.arange(basis.num_pairs)), dtype=np.float64
    ).reshape(len(X), -1)


def closed_form(basis, X, y, noise=NOISE):
    """Mean of the weights and posterior covariance of the function at the rows."""
    phi = features(basis, X)
    precision_matrix = phi.T @ phi + noise * np.eye(basis.num_basis)
    weights = np.linalg.solve(precision_matrix, phi.T @ np.asarray(y, dtype=np.float64))
    covariance = noise * phi @ np.linalg.solve(precision_matrix, phi.T)
    return phi @ weights, covariance


# number of basis functions, rank, space, distinct rows, precision: every kind of system and preconditioner
CASES = [
    (100, None, "basis", 300, "float64"),
    (600, 100, "rows", 300, "float64"),
    (600, None, "rows", 120, "float64"),
    (600, 50, "rows", 120, "float64"),
    (100, None, "basis", 300, "float32"),
    (1200, 100, "rows", 300, "float32"),
    (600, None, "rows", 120, "float32"),
]


@pytest.mark.parametrize(("num_basis", "rank", "space", "distinct", "dtype"), CASES)
def test_converges_to_the_exact_posterior(num_basis, rank, space, distinct, dtype):
    tol, most = (1e-9, 1e-8) if dtype == "float64" else (2e-4, 1e-4)
    rows, scaling = data(distinct=distinct)
    with precision(dtype):
        basis = RandomFourierBasis(Matern32(1.5, 2.0), seed_key(1), num_basis)
        system, chosen = build_system(
            basis, NOISE, rows, scaling, num_samples=200, seed=0, dtype=dtype, rank=rank
        )
        assert chosen.space == space
        unknowns = num_basis if space == "basis" else padded_size(distinct)
        assert system.right.shape[1] == unknowns
        fit = fit_block(system, chosen, Run(), tol=tol, max_products=800)
        assert fit.loop.converged, fit.loop.reason
        X, y = standardised(rows, scaling, dtype)
        mean, covariance = closed_form(system.basis, X, y)
        posterior = SampledPosterior(system.basis, *fit.solution)
        got, variance = posterior.mean_and_latent_variance(np.asarray(X))
        deviations = posterior._evaluate(np.asarray(X), fit.solution.deviations)
    np.testing.assert_allclose(got, mean, atol=most)
    # a mean of S squares of a Gaussian has the relative standard error sqrt(2 / S)
    ratio = variance / np.diag(covariance)
    assert abs(ratio.mean() - 1.0) < 4 * np.sqrt(2 / 200)
    assert np.all(np.abs(ratio - 1.0) < 5 * np.sqrt(2 / 200))
    # correlations too: the sample covariance of 200 draws in Wishart standard errors
    sample = deviations.T @ deviations / 200
    spread = np.sqrt((covariance**2 + np.outer(np.diag(covariance), np.diag(covariance))) / 200)
    assert np.mean(((sample - covariance) / spread) ** 2) < 1.3


def test_both_spaces_agree_and_rows_may_come_from_disk(tmp_path):
    """Same draws of the prior; with the noise draws of one tile the two spaces solve the same problem."""
    rows, scaling = data(400)
    np.save(tmp_path / "X.npy", rows.X)
    np.save(tmp_path / "y.npy", rows.y)
    mapped = Rows(
        np.load(tmp_path / "X.npy", mmap_mode="r"), np.load(tmp_path / "y.npy", mmap_mode="r")
    )
    assert not mapped.in_memory
    means = []
    with precision("float64"):
        basis = RandomFourierBasis(RBF(1.5, 2.0), seed_key(1), 120)
        for source, rank in ((rows, None), (mapped, None), (rows, 100)):
            system, chosen = build_system(
                basis, NOISE, source, scaling, num_samples=2, seed=0, dtype="float64", rank=rank
            )
            fit = fit_block(system, chosen, Run(), tol=1e-9, max_products=800)
            means.append(np.asarray(fit.solution.mean))
            if source is mapped:
                assert np.array_equal(means[0], means[1])
        X, y = standardised(rows, scaling, "float64")
        mean, _ = closed_form(basis, X, y)
        phi = features(basis, X)
    for weights in means:
        np.testing.assert_allclose(phi @ weights.ravel(), mean, atol=1e-8)


def test_tiles_that_do_not_divide_the_rows(monkeypatch):
    rows, scaling = data(333)
    monkeypatch.setattr("vastgp.solvers.basis_system.PANEL", 100 * 64)
    with precision("float64"):
        basis = RandomFourierBasis(RBF(1.5, 2.0), seed_key(1), 100)
        system, chosen = build_system(
            basis, NOISE, rows, scaling, num_samples=2, seed=0, dtype="float64"
        )
        assert chosen.space == "basis" and system.tile == 64
        fit = fit_block(system, chosen, Run(), tol=1e-9, max_products=200)
        X, y = standardised(rows, scaling, "float64")
        mean, _ = closed_form(basis, X, y)
        np.testing.assert_allclose(
            features(basis, X) @ np.asarray(fit.solution.mean).ravel(), mean, atol=1e-8
        )


def test_stopped_early_the_variance_is_larger_never_smaller():
    """Unfinished samples keep variance of the prior: see the formula in `vastgp.solvers.block`."""
    rows, scaling = data()
    with precision("float64"):
        basis = RandomFourierBasis(Matern32(1.0, 2.0), seed_key(1), 1000)
        system, chosen = build_system(
            basis, 0.002, rows, scaling, num_samples=400, seed=0, dtype="float64", rank=20
        )
        X, y = standardised(rows, scaling, "float64")
        exact = np.diag(closed_form(basis, X, y, 0.002)[1])
        for products in (1, 3, 8):
            fit = fit_block(system, chosen, Run(), tol=1e-9, max_products=products)
            assert not fit.loop.converged
            posterior = SampledPosterior(basis, *fit.solution)
            variance = posterior.mean_and_latent_variance(np.asarray(X))[1]
            assert variance.mean() > exact.mean()
            assert np.all(variance > exact * (1 - 5 * np.sqrt(2 / 400)))


@pytest.mark.parametrize(("num_basis", "rank", "distinct"), [(60, None, 120), (200, None, 40)])
def test_slopes_of_the_evidence(num_basis, rank, distinct):
    """At the solution: the mean's part exactly, the trace within four standard errors of twenty times 120 samples."""
    rows, scaling = data(120, distinct=distinct)
    with precision("float64"):
        kernel = jax.tree.map(jnp.asarray, Matern32(1.5, 2.0).with_ard(3))
        basis = RandomFourierBasis(kernel, jnp.asarray(seed_key(1)), num_basis)
        X, y = map(jnp.asarray, standardised(rows, scaling, "float64"))

        def evidence(kernel, noise):
            phi = basis.with_kernel(kernel).features(X, jnp.arange(basis.num_pairs))
            phi = phi.reshape(len(X), -1)
            A = phi @ phi.T + noise * jnp.eye(len(X))
            return -0.5 * y @ jnp.linalg.solve(A, y) - 0.5 * jnp.linalg.slogdet(A)[1]

        exact = jax.grad(evidence, argnums=(0, 1))(kernel, NOISE)
        estimates = []
        for seed in range(20):
            system, _ = build_system(
                basis, NOISE, rows, scaling, num_samples=120, seed=seed, dtype="float64", rank=rank
            )
            state = begin(system)
            for _ in range(4):
                state = advance(system, state)
            by_kernel, by_noise = system.slopes(state.solution)
            estimates.append(
                np.concatenate([np.ravel(by_kernel.lengthscales), [by_kernel.variance, by_noise]])
            )
    truth = np.concatenate([np.ravel(exact[0].lengthscales), [exact[0].variance, exact[1]]])
    estimates = np.asarray(estimates)
    error = estimates.std(axis=0, ddof=1) / np.sqrt(20)
    assert np.all(np.abs(estimates.mean(axis=0) - truth) < 4 * error)
    assert np.all(error < 0.2 * np.abs(truth) + 5.0)


def test_learning_raises_the_evidence(monkeypatch):
    # as of rows that are too many for exact slopes
    monkeypatch.setattr("vastgp.methods.qsgp.block_learning._EXACT_OPERATIONS", 0.0)
    rows, scaling = data(300, 2)
    with precision("float64"):
        basis = RandomFourierBasis(RBF(5.0, 1.0).with_ard(2), seed_key(1), 400)
        kernel, likelihood, loop = learn_block(
            basis, Gaussian(0.3), rows, scaling, Run(),
            steps=60, rate=0.1, dtype="float64", noise_floor=1e-4, rank=None, tol=0.1,
        )  # fmt: skip
        noise = float(likelihood.noise_variance)
        X, y = standardised(rows, scaling, "float64")

        def evidence(kernel, noise):
            phi = features(basis.with_kernel(kernel), X)
            A = phi @ phi.T + noise * np.eye(len(X))
            return -0.5 * y @ np.linalg.solve(A, y) - 0.5 * np.linalg.slogdet(A)[1]

        assert evidence(kernel, noise) > evidence(basis.kernel, 0.3) + 100
        # the noise that the data were made with, relative to the target's variance
        assert 0.6 < noise / (0.1 / scaling.y_scale) ** 2 < 1.6
    assert loop.num_iter == 60, loop.reason


def test_a_restart_after_a_wrong_recurrence_still_converges():
    rows, scaling = data()
    with precision("float64"):
        basis = RandomFourierBasis(RBF(1.5, 2.0), seed_key(1), 400)
        system, _ = build_system(
            basis, NOISE, rows, scaling, num_samples=2, seed=0, dtype="float64", rank=30
        )
        state = begin(system)
        for _ in range(5):
            state = advance(system, state)
        state = state._replace(cg=state.cg._replace(residual=1.5 * state.cg.residual))
        state = replace_residual(system, state)
        true = system.right - system.product(state.solution)
        np.testing.assert_allclose(state.cg.residual, true, atol=1e-10)
        fresh = cg_start(state.solution, true, system.precondition)
        np.testing.assert_allclose(state.cg.direction, fresh.direction, atol=1e-8)


@pytest.mark.parametrize("share", [0.5, 0.25, 0.125])
def test_products_that_a_preconditioner_of_sampled_rows_leaves(share):
    """Its condition number where no direction is negligible: the law of Marchenko and Pastur."""
    m, R = 200, int(200 / share)
    phi = np.random.default_rng(0).standard_normal((40_000, m))
    whole, sampled = phi.T @ phi / len(phi), phi[:R].T @ phi[:R] / R
    values = scipy.linalg.eigh(whole, sampled, eigvals_only=True)
    condition = (values[-1] / values[0]) ** 0.5
    assert _products(share) == pytest.approx(0.5 * condition * np.log(2e3), rel=0.15)


def test_plan_by_cost():
    assert plan(2_000_000, 20_000, 33, 4).space == "basis"
    assert plan(36_000, 100_000, 33, 4).space == "rows"
    assert 4000 < plan(36_000, 100_000, 33, 4).rank < 8000
    assert plan(1_000, 10_000, 33, 4) == ("rows", 1_000)
    assert plan(5_000, 100, 33, 4) == ("basis", 5_000)
    assert plan(10_000, 50_000, 33, 4, rank=77) == ("rows", 77)
    # dear passes: the Gram matrix of more rows than the 2 m that it needs at least
    assert 80_000 <= plan(2_000_000, 20_000, 33, 4).rank <= 320_000
    # m^2 numbers do not fit: the rows it is, with the rank that memory allows
    chosen = plan(1_000_000, 100_000, 33, 4)
    assert chosen.space == "rows" and chosen.rank * 4_000_000 <= 2_000_000_000


@pytest.mark.parametrize(("space", "num_basis"), [("rows", 2000), ("basis", 300)])
def test_vectors_are_wide_where_float32_would_drown_the_noise(space, num_basis):
    """The true residual, in float64 of the same float32 features; without wide vectors it is far from the tolerance."""
    rows, standardizer = data(n=600, d=3)
    basis = RandomFourierBasis(Matern32(np.full(3, 10.0), 400.0), seed_key(1), num_basis)
    noise, residuals = 1e-3, {}
    for widen in (True, False):
        system, chosen = build_system(
            basis, noise, rows, standardizer, num_samples=2, seed=2, dtype="float32",
            rank=300 if space == "rows" else None, widen=widen,
        )  # fmt: skip
        assert chosen.space == space
        assert system.vector_dtype == ("float64" if widen else "float32")
        fit = fit_block(system, chosen, Run(), tol=0.05, max_products=60)
        assert fit.loop.converged or not widen
        assert fit.solution.mean.dtype == np.float32
        X, y = standardised(rows, standardizer, "float32")
        phi = features(basis, X)
        # at the solution y - Phi w = sigma^2 alpha, and w = Phi^T alpha
        exact = phi @ phi.T @ np.linalg.solve(phi @ phi.T + noise * np.eye(len(y)), y)
        got = phi @ np.asarray(fit.solution.mean, np.float64).ravel()
        residuals[widen] = np.sqrt(np.mean((got - exact) ** 2) / noise), np.max(fit.residuals)
    assert residuals[True][0] < 0.06
    assert residuals[False][1] > 3 * residuals[True][1]


def test_repeated_and_nearly_repeated_rows_take_few_products(monkeypatch):
    """Lognormal inputs, rows repeated up to 200 times, near-repeats, noise of 1 %."""
    rng = np.random.default_rng(0)
    X = np.exp(1.2 * rng.normal(size=(500, 3)) @ rng.normal(size=(3, 6)))
    X[400:] = X[rng.integers(0, 400, 100)] * (1 + 1e-4 * rng.normal(size=(100, 6)))
    counts = np.minimum(1 + rng.pareto(0.8, 500).astype(int), 200)
    z = np.log(np.repeat(X, counts, axis=0))
    y = np.sin(z[:, 0]) + np.tanh(z[:, 1] - z[:, 2]) + 0.1 * rng.normal(size=len(z))
    rows = Rows(np.repeat(X, counts, axis=0), y)
    scaling = Standardizer().fit(rows)
    assert np.abs(scaling.transform_X(X)).max() > 15

    def products():
        basis = RandomFourierBasis(Matern32(np.full(6, 1.0), 1.0), seed_key(1), 8000)
        system, chosen = build_system(
            basis, 0.01, rows, scaling, num_samples=4, seed=2, dtype="float32", rank=60
        )
        assert isinstance(system.precondition, LowRankPreconditioner)
        fit = fit_block(system, chosen, Run(), tol=0.1, max_products=300)
        assert fit.loop.converged
        return fit.loop.num_iter

    few = products()
    # the same without what neighbours have in common
    monkeypatch.setattr(row_preconditioner, "_MOST_NEIGHBOURS", 1)
    assert few <= 20 and products() > 3 * few


def test_a_solution_that_diverges_ends_at_the_best_one():
    """A product that goes wrong after the eighth: what comes of it must not replace what was there, nor the prior."""
    rows, scaling = data(n=200)
    with precision("float64"):
        basis = RandomFourierBasis(Matern32(1.0, 2.0), seed_key(1), 1000)
        system, _ = build_system(
            basis, 0.002, rows, scaling, num_samples=2, seed=0, dtype="float64", rank=10
        )
        product, calls = system.product, []

        def wrong(V):
            calls.append(V)
            return product(V) * (1.0 if len(calls) <= 8 else -1.0 + 2.0 * (len(calls) % 2))

        state = begin(system)
        for _ in range(8):
            state = advance(system, state)
        system.product = wrong
        solution, _, loop = solve_system(system, Run(), tol=1e-9, max_products=19)
        system.product = product
        assert not loop.converged
        left = np.asarray(system.right - product(solution))
        value = np.sum(np.asarray(solution) * (np.asarray(system.right) + left), axis=1)
        assert np.all(value >= 0.999 * np.asarray(state.value))


def test_samples_that_are_not_finite_have_not_converged():
    now = {"residual": 0.01, "residual_samples": np.nan, "residual_is_true": 1.0}
    stop = _decide(now, History(), 0.1)
    assert not stop.converged and "not finite" in stop.reason


@pytest.mark.parametrize("beyond", [10.0, 0.0])  # the sketch is taken; the landmarks are
def test_an_amplitude_far_above_the_noise_converges_in_float32(beyond, monkeypatch):
    """What the exact kernel and the features differ by, some thousand noise variances here, must not matter."""
    monkeypatch.setattr(row_preconditioner, "_MOST_BEYOND", beyond)
    rows, standardizer = data(n=1200, d=6)
    basis = RandomFourierBasis(Matern32(np.full(6, 30.0), 50.0), seed_key(1), 3000)

    def products():
        system, chosen = build_system(
            basis, 0.01, rows, standardizer, num_samples=4, seed=2, dtype="float32", rank=300
        )
        return fit_block(system, chosen, Run(), tol=0.1, max_products=60).loop, system.precondition

    loop, balanced = products()
    assert isinstance(balanced, BalancedPreconditioner)
    assert balanced.inner.inner.shape[0] == (300 if beyond == 0.0 else 100)
    assert loop.converged
    assert loop.num_iter < 20
    monkeypatch.setattr(row_preconditioner, "_MOST_MISMATCH", np.inf)
    plain, landmarks = products()
    assert isinstance(landmarks, LowRankPreconditioner)
    assert plain.num_iter > 2 * loop.num_iter
