"""`QSGPClassifier` keeps the promises of every classifier, with both links and ways to find the sites."""

import numpy as np
import pytest

from estimators.classifier_conformance import ClassifierConformance, small_classes
from vastgp import QSGPClassifier
from vastgp.kernels import RBF
from vastgp.training import block_sites

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class TestLogit(ClassifierConformance):
    num_independent_samples = 64

    def make(self, **params):
        return QSGPClassifier(**({"kernel": "rbf", "num_basis": 400, "num_samples": 64} | params))


class TestStochastic(ClassifierConformance):
    def make(self, **params):
        quick = {
            "kernel": "rbf",
            "num_basis": 400,
            "link": "probit",
            "solver": "stochastic",
            "max_iter": 300,
            "row_batch": 60,
            "basis_batch": 200,
            "control_rank": 60,
        }
        return QSGPClassifier(**(quick | params))


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_sites_from_samples_are_those_of_the_factorisation(monkeypatch, link):
    X, y = small_classes(300)
    kernel = RBF([8.0, 400.0], 4.0)

    def fit():
        model = QSGPClassifier(
            kernel,
            600,
            link=link,
            hyperparameters="fixed",
            num_samples=512,
            tol=0.01,
            dtype="float64",
        )
        return model.fit(X, y)

    exact = fit()
    monkeypatch.setattr(block_sites, "MOST_EXACT", 0)
    sampled = fit()
    assert sampled.converged_ and sampled.diagnosis_["site_updates"] > 1
    new = small_classes(100, seed=5)[0]
    mean, std = exact.latent(new)
    found, its_std = sampled.latent(new)
    # the error of a variance from 512 samples, sqrt(2 / 512), enters the sites averaged over rows
    assert np.max(np.abs(found - mean) / std) < 0.15
    np.testing.assert_allclose(its_std, std, rtol=0.1)
