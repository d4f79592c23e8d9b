"""Predictions from nearest observations, of which there may be millions."""

import tracemalloc

import numpy as np

from vastgp.kernels import RBF
from vastgp.solvers.neighbour_posterior import NeighbourPosterior


def test_samples_take_the_memory_of_the_observations_that_rows_see():
    """Observations are known: of each of all of them there was a number of every draw, 480 MB of these."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(50_000, 2))
    y = np.sin(Z[:, :1])
    posterior = NeighbourPosterior(
        RBF([1.0, 1.0]), Z, y, np.broadcast_to(0.0, y.shape), 16, 1e-8, noise=np.full(len(Z), 0.1)
    )
    X = Z[:3] + 0.01
    mean, variance = posterior.mean_and_latent_variance(X)
    tracemalloc.start()
    draws = posterior.samples(X, 4000, 0)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 100e6
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=5.0 * np.sqrt(variance.max() / 4000))
    np.testing.assert_allclose(draws.var(axis=1), variance, rtol=0.15)
