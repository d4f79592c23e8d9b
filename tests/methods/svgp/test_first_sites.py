"""Passes whose hyperparameters are given start from sites of some rows, and end where those from none do."""

import numpy as np
import pytest

import vastgp
from vastgp.kernels import RBF
from vastgp.likelihoods import Poisson
from vastgp.methods.svgp import fit, passes
from vastgp.methods.svgp.bound import SiteSums


def fitted(X, y, variance, **options):
    return vastgp.TSVGPRegressor(
        kernel=RBF(np.full(2, 1.5), variance), likelihood=Poisson(), hyperparameters="fixed", num_inducing=40,
        random_state=0, **options,
    ).fit(X, y)  # fmt: skip


def counts(n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, rng.poisson(np.exp(np.sin(2.0 * X[:, 0]))).astype(float)


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("n", [200, 900])
def test_fewer_passes_to_the_same_bound(n, on_host, monkeypatch):
    monkeypatch.setattr(fit, "passes_stay_on_host", lambda *given: on_host)
    X, y = counts(n)
    found = fitted(X, y, 10.0)
    none = SiteSums.none(1, 40, np.float64)
    for module in (fit, passes):
        monkeypatch.setattr(module, "first_sums", lambda *given: none)
    alone = fitted(X, y, 10.0)
    assert found.converged_ and alone.converged_
    assert found.diagnosis_["bound"] == pytest.approx(alone.diagnosis_["bound"], abs=1e-3)
    assert found.diagnosis_["passes"] <= min(8, alone.diagnosis_["passes"] // 2)
    new = np.random.default_rng(1).normal(size=(50, 2))
    np.testing.assert_allclose(found.predict(new), alone.predict(new), rtol=5e-3)


def test_counts_under_a_prior_of_large_variance_converge():
    """From the prior, whose averages of a rate are ``e^50``, a hundred passes ended 600 nats below."""
    X, y = counts(100)
    found = fitted(X, y, 100.0)
    assert found.converged_
    assert -300.0 < found.diagnosis_["bound"] < 0.0
