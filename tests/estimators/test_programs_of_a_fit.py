"""How many programs a fit and its first predictions compile: single operations outside of a program are one each."""

import jax
import numpy as np
import pytest

import vastgp
from compiled_programs import count_programs


@pytest.mark.little_work
@pytest.mark.parametrize(
    ("model", "most"),
    [
        (vastgp.TSVGPRegressor(num_inducing=20), 15),
        (vastgp.SWSGPRegressor(num_inducing=40, num_neighbors=8), 9),
        (vastgp.DirectRegressor(num_basis=24), 12),
        (vastgp.ReweightedBasisRegressor(num_basis=24), 9),
        (vastgp.RandomFeatureGPRegressor(num_basis=24), 6),
    ],
    ids=str,
)
def test_a_fit_is_few_programs(model, most):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(70, 3))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * generator.normal(size=70)
    jax.clear_caches()
    with count_programs() as programs:
        model.fit(X, y)
        model.predict(X[:5], return_std=True)
        assert programs() <= most
