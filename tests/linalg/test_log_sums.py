"""Logarithms of sums: those of scipy, at the ends of the numbers too."""

import warnings

import numpy as np
import pytest
from scipy.special import logsumexp

from vastgp.linalg.log_sums import log_sum

RNG = np.random.default_rng(0)
LOGS = {
    "near": RNG.normal(size=(3, 50)),
    "far apart": 800.0 * RNG.normal(size=(3, 50)),
    "huge": 1e300 * RNG.normal(size=(3, 50)),
    "impossible parts": np.where(RNG.uniform(size=(3, 50)) < 0.5, -np.inf, -2000.0),
    "nothing": np.full((3, 2), -np.inf),
    "without end": np.array([[np.inf, 1.0], [0.0, np.inf], [-np.inf, 2.0]]),
    "not a number": np.array([[np.nan, 1.0], [0.0, 2.0], [1.0, 3.0]]),
}


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("weights", [None, [0.2, 0.0, 0.8], [0.0, 0.0, 1e-300]])
def test_it_is_the_sum_of_scipy(name, weights):
    """A part without weight counts for nothing, wherever it lies."""
    logs = LOGS[name]
    weights = None if weights is None else np.array(weights)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = log_sum(logs, weights)
        across = log_sum(logs.T, None if weights is None else weights.T, axis=1)
    wanted = logs if weights is None else np.where(weights > 0.0, logs, -np.inf)
    wanted = logsumexp(wanted, b=weights, axis=0)
    np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=1e-15)
    np.testing.assert_array_equal(across, found)
    one = log_sum(logs[:, 0], None if weights is None else weights[:, 0])
    np.testing.assert_array_equal(one, found[0])
