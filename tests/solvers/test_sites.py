"""The search for sites: its fixed point, and what interrupts it."""

import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.run import Run
from vastgp.kernels import RBF
from vastgp.likelihoods import Bernoulli, Poisson
from vastgp.solvers import sites as block_sites
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
    basis, X, _ = problem(likelihood)
    with precision("float64"):
        phi = np.asarray(basis.features(jnp.asarray(X), jnp.arange(250))).reshape(len(X), -1)
    mean = phi @ (phi.T @ np.asarray(found.dual[0]))
    linear, precisions = (np.asarray(part) for part in found.sites)
    np.testing.assert_allclose(np.asarray(found.dual[0]), linear - precisions * mean, atol=0.01)


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
