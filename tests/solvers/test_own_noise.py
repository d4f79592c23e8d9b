"""The block solver on rows with noise of their own, in both spaces, against the closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import OwnNoise, Rows, Standardizer, observations
from vastgp.fitting.run import Run
from vastgp.kernels import Matern32
from vastgp.solvers.block import advance, begin, build_system, fit_block, standardised
from vastgp.solvers.distinct_rows import known_rows
from vastgp.solvers.weight_space import SampledPosterior

NOISE = 0.05
# functions, rank: more functions than rows are solved for in the space of the rows; each rank is another preconditioner
SYSTEMS = [(100, None, "basis"), (100, 150, "basis"), (600, None, "rows"), (600, 60, "rows")]


def data(n=300, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 3))
    error = generator.choice([0.0, 0.2, 3.0], n)
    y = np.sin(X.sum(axis=1)) + np.hypot(error, 0.1) * generator.normal(size=n)
    rows = OwnNoise(error, generator.uniform(0.3, 3.0, n)).attach(Rows(X, y))
    return rows, Standardizer().fit(rows)


def features(basis, X):
    phi = basis.features(jnp.asarray(X), jnp.arange(basis.num_pairs))
    return np.asarray(phi, np.float64).reshape(len(X), -1)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("num_basis", "rank", "space"), SYSTEMS)
def test_it_converges_to_the_posterior_of_dense_algebra(num_basis, rank, space, dtype, monkeypatch):
    for module in ("row_system", "basis_system"):  # some tiles of rows
        monkeypatch.setattr(f"vastgp.solvers.{module}.PANEL", 128 * num_basis)
    rows, scaling = data()
    with precision(dtype):
        basis = RandomFourierBasis(Matern32(1.5, 2.0), seed_key(1), num_basis)
        system, chosen = build_system(
            basis, NOISE, rows, scaling, num_samples=200, seed=0, dtype=dtype, rank=rank
        )
        assert chosen.space == space
        tol, most = (1e-8, 1e-7) if dtype == "float64" else (1e-3, 2e-3)
        fit = fit_block(system, chosen, Run(), tol=tol, max_products=800)
        assert fit.loop.converged, fit.loop.reason
        X, y = standardised(rows, scaling, dtype)
        phi = features(system.basis, X)
        got, variance = SampledPosterior(system.basis, *fit.solution).mean_and_latent_variance(X)
    each = observations.noise_variances(np.asarray(y, np.float64), NOISE)
    K = phi @ phi.T
    gain = np.linalg.solve(K + np.diag(each), K).T
    np.testing.assert_allclose(got, gain @ y[:, 0], atol=most)
    # a mean of S squares of a Gaussian has the relative standard error sqrt(2 / S)
    ratio = variance / np.diag(K - gain @ K)
    assert abs(ratio.mean() - 1.0) < 4 * np.sqrt(2 / 200)
    assert np.all(np.abs(ratio - 1.0) < 5 * np.sqrt(2 / 200))


@pytest.mark.parametrize(("num_basis", "rank"), [(60, None), (200, None)])
def test_slopes_of_the_evidence(num_basis, rank):
    """At the solution: the mean's part exactly, the trace within four standard errors of twenty times 120 samples."""
    rows, scaling = data(120)
    with precision("float64"):
        kernel = jax.tree.map(jnp.asarray, Matern32(1.5, 2.0).with_ard(3))
        basis = RandomFourierBasis(kernel, jnp.asarray(seed_key(1)), num_basis)
        X, y = map(jnp.asarray, standardised(rows, scaling, "float64"))

        def evidence(kernel, noise):
            phi = basis.with_kernel(kernel).features(X, jnp.arange(basis.num_pairs))
            phi = phi.reshape(len(X), -1)
            A = phi @ phi.T + jnp.diag(noise * y[:, 1] + y[:, 2])
            fit = y[:, 0] @ jnp.linalg.solve(A, y[:, 0])
            return -0.5 * fit - 0.5 * jnp.linalg.slogdet(A)[1]

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


def test_filling_counts_nothing():
    rows, scaling = data(50)
    observed = known_rows(*standardised(rows, scaling, "float64"))
    padded = observed.padded()
    assert len(padded.y) == 64 and padded.num_rows == 50
    mine, theirs = padded.at(NOISE), observed.at(NOISE)
    np.testing.assert_array_equal(mine.weights, np.pad(theirs.weights, (0, 14)))
    np.testing.assert_array_equal(mine.noise_shares, np.pad(theirs.noise_shares, (0, 14)))
    assert mine.left_out(NOISE) == theirs.left_out(NOISE)
