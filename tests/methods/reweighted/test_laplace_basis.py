"""Sines on a box as the basis of an estimator: boxes and variances where inputs or functions hardly matter."""

from __future__ import annotations

import numpy as np
import pytest

from vastgp import RBF, ReweightedBasisRegressor
from vastgp._precision import precision
from vastgp.fitting.sufficient_statistics import feature_matrix
from vastgp.kernels.matrices import kernel_matrix


@pytest.mark.parametrize("prior", ["kernel", "orthogonal"])
def test_inputs_that_do_not_matter_leave_sines_the_kernels(prior):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (200, 3))
    X[:, 2] = 5.0
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=200)
    model = ReweightedBasisRegressor(RBF([0.8, 200.0, 200.0]), 60, basis="laplace", prior=prior)
    model.fit(X, y)
    basis = model._model.features.basis
    assert model.answer_ == "own" and model.score(X, np.sin(2.0 * X[:, 0])) > 0.99
    # the functions are those of the kernel where the data are
    Z = model.standardizer_.transform_X(X[:5])
    with precision("float64"):
        phi = np.asarray(feature_matrix(basis, Z))
        K = np.asarray(kernel_matrix(model._model.features.kernel, Z, Z))
    assert np.max(np.abs(phi @ phi.T - K)) < 0.05 * np.max(K)
