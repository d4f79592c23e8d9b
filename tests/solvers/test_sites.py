"""The search for sites: its fixed point, and what interrupts it."""

import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.dual_evidence import local_sites
from vastgp.fitting.run import Run
from vastgp.kernels import RBF
from vastgp.likelihoods import Bernoulli, Poisson
from vastgp.solvers import sites as block_sites
from vastgp.solvers.site_updates import State, moved, next_sites
from vastgp.solvers.sites import find_sites


def problem(likelihood, n=150):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1]
    if isinstance(likelihood, Poisson):
        y = rng.poisson(np.exp(f)).astype(float)
    else:
        y = np.where(rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-3.0 * f)), 1.0, -1.0)
    with precision("float64"):
        kernel = RBF(np.array([1.0, 1.5]), 2.0)
        basis = as_dtype(RandomFourierBasis(kernel, seed_key(0), 500), "float64")
    return basis, X, y


def search(likelihood, monkeypatch, *, tol=1e-3, num_samples=400, run=None, **options):
    monkeypatch.setattr(block_sites, "MOST_EXACT", 0)
    basis, X, y = problem(likelihood)
    return find_sites(
        basis,
        likelihood,
        X,
        y,
        run or Run(),
        num_samples=num_samples,
        rank=len(y),
        tol=tol,
        **options,
    )


@pytest.mark.parametrize("likelihood", [Bernoulli("logit"), Poisson(1.0)], ids=repr)
def test_the_mean_is_stationary(likelihood, monkeypatch):
    """At the fixed point ``mean = K alpha`` with ``alpha = lambda_1 - lambda_2 mean`` (erratum 7)."""
    found = search(likelihood, monkeypatch)
    assert found.loop.converged
    basis, X, y = problem(likelihood)
    with precision("float64"):
        phi = np.asarray(basis.features(jnp.asarray(X), jnp.arange(250))).reshape(len(X), -1)
    K = phi @ phi.T
    mean = K @ np.asarray(found.dual[0])
    linear, precisions = (np.asarray(part) for part in found.sites)
    np.testing.assert_allclose(np.asarray(found.dual[0]), linear - precisions * mean, atol=0.01)
    # and alpha is what the likelihood asks for, at variances without the error of 400 samples
    variance = np.diag(K - K @ np.linalg.solve(K + np.diag(1.0 / precisions), K))
    with precision("float64"):
        _, asked = local_sites(likelihood, jnp.asarray(y), jnp.asarray(mean), jnp.asarray(variance))
    alpha = np.asarray(asked.linear) - np.asarray(asked.precision) * mean
    np.testing.assert_allclose(found.dual[0], alpha, atol=0.02 * np.max(np.abs(alpha)))


@pytest.mark.parametrize(("least", "products", "rank"), [(0.5, 2, 2), (0.2, 8, 2), (0.3, 3, 1)])
def test_updates_that_are_not_solved_go_uphill(monkeypatch, least, products, rank):
    """A function that moves much and a preconditioner of next to nothing: the fit was -12,000 nats and more."""
    monkeypatch.setattr(block_sites, "MOST_EXACT", 0)
    monkeypatch.setattr(block_sites, "_MOST_PRODUCTS", products)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 2))
    f = np.sin(5.0 * X[:, 0]) + X[:, 1]
    y = np.where(rng.uniform(size=600) < 1.0 / (1.0 + np.exp(-3.0 * f)), 1.0, -1.0)
    with precision("float64"):
        kernel = RBF(np.array([least, 1.5 * least]), 100.0)
        basis = as_dtype(RandomFourierBasis(kernel, seed_key(0), 1000), "float64")
    options = {"num_samples": 16, "rank": rank, "tol": 1e-2, "max_iter": 15}
    found = find_sites(basis, Bernoulli("logit"), X, y, Run(), **options)
    fits = found.loop.history["objective"]
    assert (
        max(fits[-3:]) > -200.0
        and min(fits[-3:]) > 0.1 * fits[0]
        and min(found.loop.history["step"]) > 0.0
    )
    # whatever is unsolved, the sites have the mean that they came with
    with precision("float64"):
        phi = np.asarray(basis.features(jnp.asarray(X), jnp.arange(500))).reshape(len(X), -1)
    mean = phi @ (phi.T @ np.asarray(found.dual[0]))
    np.testing.assert_allclose(
        found.dual[0],
        np.asarray(found.sites.linear) - np.asarray(found.sites.precision) * mean,
        atol=1e-6,
    )


def test_a_step_is_as_long_as_the_bound_rises(monkeypatch):
    """The mean of a far too long step is cut, to where the bound of held variances is no lower; else it is taken."""
    rng = np.random.default_rng(2)
    n, likelihood, y = 30, Bernoulli("logit"), np.where(rng.uniform(size=30) < 0.5, 1.0, -1.0)
    A = rng.normal(size=(n, n))
    K = A @ A.T
    with precision("float64"):
        draws = (jnp.asarray(rng.normal(size=(4, n)) * 0.3),)
        dual = np.zeros((5, n))
        slope = 0.1 * y  # of ascent at zero: alpha = y / 2
        held = jnp.mean(draws[0] ** 2, axis=0)

        def height(u):
            fit = likelihood.site_bound(jnp.asarray(y), jnp.asarray(K @ u), held)
            return float(jnp.sum(fit) - 0.5 * u @ K @ u)

        for length in (0.1, 1.0, 300.0):
            whole = dual.copy()
            whole[0] = length * slope
            arrays = [jnp.asarray(each) for each in (whole, whole @ K)]
            start = State(*map(jnp.asarray, (*np.zeros((2, 1, n)), dual, dual, 1.0, np.inf, 0.0)))
            fit = next_sites(likelihood, jnp.asarray(y), draws, start)[1]
            new = moved(
                1.0, likelihood, jnp.asarray(y), draws, start, fit, jnp.ones((1, n)), *arrays
            )
            step = float(new.step)
            assert height(step * whole[0]) >= height(0.0 * whole[0])
            assert step == 1.0 or height(2.0 * step * whole[0]) < height(0.0 * whole[0])
            np.testing.assert_allclose(new.dual[0], step * whole[0])
            assert float(new.rate) == (1.0 if step == 1.0 else 0.5)
        assert step < 0.1  # the last


def test_a_search_that_was_interrupted_goes_on_bit_for_bit(monkeypatch, tmp_path):
    likelihood = Bernoulli("logit")
    whole = search(likelihood, monkeypatch, num_samples=16, max_iter=6, tol=1e-9)
    checkpoint = Checkpoint(tmp_path / "sites", 0.0, fingerprint={"of": "this test"})

    def stop(self, now, history):
        if len(history) == 3:
            raise KeyboardInterrupt
        return None

    with monkeypatch.context() as patch:
        patch.setattr(block_sites._Search, "decide", stop)
        with pytest.raises(KeyboardInterrupt):
            search(
                likelihood,
                monkeypatch,
                num_samples=16,
                max_iter=6,
                tol=1e-9,
                run=Run(checkpoint=checkpoint),
            )
    again = search(
        likelihood,
        monkeypatch,
        num_samples=16,
        max_iter=6,
        tol=1e-9,
        run=Run(checkpoint=checkpoint),
    )
    assert again.loop.resumed_at > 0
    for mine, theirs in zip(whole.sites, again.sites, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(whole.dual, again.dual)


def test_updates_that_were_not_enough_say_so(monkeypatch):
    found = search(Bernoulli("logit"), monkeypatch, num_samples=16, max_iter=2)
    assert not found.loop.converged
    assert "max_iter = 2" in found.loop.reason
