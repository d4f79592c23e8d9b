"""Gaussian noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from vastgp.likelihoods import Gaussian


def test_the_density_is_the_average_over_the_function():
    likelihood = Gaussian(0.3)
    found = likelihood.log_density(np.array([1.2]), np.array([0.5]), np.array([0.8]))
    average = quad(lambda f: norm.pdf(1.2, f, 0.3**0.5) * norm.pdf(f, 0.5, 0.8**0.5), -20, 20)[0]
    np.testing.assert_allclose(found, np.log(average), rtol=1e-9)
    traced = jax.jit(lambda likelihood, *given: likelihood.log_density(*given))(
        likelihood, jnp.array([1.2]), jnp.array([0.5]), jnp.array([0.8])
    )
    np.testing.assert_allclose(traced, found, rtol=1e-5)


def test_units_and_logarithms():
    likelihood = Gaussian(0.25)
    assert likelihood.noise_std == 0.5
    assert likelihood.in_units(10.0).noise_variance == 25.0
    assert repr(likelihood) == "Gaussian(noise_variance=0.25)"
    (leaf,) = jax.tree.leaves(jax.tree.map(np.log, likelihood))
    assert leaf == np.log(0.25)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, [1.0, 2.0]])
def test_a_variance_is_one_positive_number(bad):
    with pytest.raises(ValueError, match="noise_variance must be one positive finite number"):
        Gaussian(bad)


def test_rows_with_noise_of_their_own_are_each_a_likelihood_of_their_own():
    rng = np.random.default_rng(0)
    y = np.column_stack([rng.normal(size=5), rng.uniform(0.5, 2.0, 5), rng.uniform(0.0, 3.0, 5)])
    mean, variance = rng.normal(size=5), rng.uniform(0.1, 1.0, 5)
    together, alone = Gaussian(0.3), [Gaussian(0.3 * row[1] + row[2]) for row in y]
    for method, given in (
        ("log_prob", (mean,)),
        ("expected_log_prob", (mean, variance)),
        ("site_bound", (mean, variance)),
        ("sites", (mean, variance)),
    ):
        found = np.asarray(getattr(together, method)(y, *given))
        each = [
            getattr(one, method)(row[0], *(part[i] for part in given))
            for i, (one, row) in enumerate(zip(alone, y, strict=True))
        ]
        np.testing.assert_allclose(found, np.asarray(each).T, rtol=1e-5, err_msg=method)
    # targets of other shapes are what they were
    wide = rng.normal(size=(4, 3))
    np.testing.assert_allclose(
        together.log_prob(wide, wide + 1.0), Gaussian(0.3).log_prob(0.0, np.ones((4, 3))), rtol=1e-5
    )
