"""How many programs a fit and its first predictions compile: single operations outside of a program are one each."""

import jax
import numpy as np
import pytest

import vastgp
from compiled_programs import count_programs
from vastgp._programs import known_options


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
    known_options(1)  # asks the compiler once a process, whatever is fitted
    jax.clear_caches()
    with count_programs() as programs:
        model.fit(X, y)
        model.predict(X[:5], return_std=True)
        assert programs() <= most


@pytest.mark.little_work
def test_tables_of_similar_sizes_share_the_program_that_predicts():
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(70, 3)), generator.normal(size=70)
    for model in (
        vastgp.QSGPRegressor(num_basis=24),
        vastgp.RandomFeatureGPRegressor(num_basis=24),
    ):
        model.fit(X, y)
        whole = model.predict(X[:60], return_std=True)
        with count_programs() as programs:
            for rows in (33, 47, 59):
                part = model.predict(X[:rows], return_std=True)
                np.testing.assert_array_equal(part, np.asarray(whole)[:, :rows])
            assert programs() == 0
