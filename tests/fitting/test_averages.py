"""Averages of iterates against their closed form."""

import jax.numpy as jnp
import numpy as np
import pytest

from vastgp.fitting.averages import average_weight, moved


@pytest.mark.parametrize("exponent", [0, 1, 3])
def test_a_value_counts_as_a_power_of_its_visit(exponent):
    values = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    average = {"mean": jnp.zeros(2)}
    for visit, value in enumerate(values, start=1):
        average = moved(average, {"mean": jnp.asarray(value)}, average_weight(visit, exponent))
    visits = np.arange(1, 21)
    # s (s + 1) ... (s + a - 1)
    weights = np.prod([visits + k for k in range(exponent)], axis=0) * np.ones(20)
    np.testing.assert_allclose(average["mean"], weights @ values / weights.sum(), rtol=1e-4)
