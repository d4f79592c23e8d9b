"""`QSGPClassifier` keeps the promises of every classifier, with both links and ways to find the sites."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimators.classifier_conformance import ClassifierConformance, small_classes
from vastgp import QSGPClassifier
from vastgp._precision import precision
from vastgp.kernels import RBF
from vastgp.options import Block, Stochastic
from vastgp.solvers import sites as block_sites

pytestmark = [
    pytest.mark.little_work,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


class TestLogit(ClassifierConformance):
    num_independent_samples = 64

    def make(self, **params):
        return QSGPClassifier(**({"kernel": "rbf", "num_basis": 400, "solver": Block(64)} | params))


class TestStochastic(ClassifierConformance):
    def make(self, **params):
        quick = {
            "kernel": "rbf",
            "num_basis": 400,
            "likelihood": "probit",
            "solver": Stochastic(max_steps=100, row_batch=60, basis_batch=200, control_rank=60),
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
            likelihood=link,
            hyperparameters="fixed",
            solver=Block(512),
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


@pytest.mark.parametrize("bound", ["plug-in", "strict"])
def test_the_sampling_gap_closes_with_the_whole_basis(bound):
    X, y = small_classes(300)
    kernel = RBF([8.0, 400.0], 4.0)

    def gap(basis_batch):
        model = QSGPClassifier(
            kernel,
            400,
            solver=Stochastic(
                basis_batch=basis_batch, row_batch=100, control_rank=0, max_steps=200, bound=bound
            ),
            hyperparameters="fixed",
        ).fit(X, y)
        return model.diagnosis_["sampling_gap"], model.diagnosis_["sampling_gap_se"]

    whole, _ = gap(400)
    assert abs(whole) < 1e-5
    some, error = gap(40)
    assert np.isfinite(some) and error > 0.0
    if bound == "strict":  # a tenth of the functions: far below, beyond all doubt
        assert some < -10.0 * error
        assert some < -0.5


def test_the_mean_of_the_stochastic_solver_maximises_its_bound():
    """With all rows and functions in a step: gradient zero of the bound whose covariance is c^2 I."""
    X, y = small_classes(100)
    kernel = RBF([8.0, 400.0], 4.0)
    model = QSGPClassifier(
        kernel,
        60,
        solver=Stochastic(row_batch=100, basis_batch=60, control_rank=100, max_steps=800),
        hyperparameters="fixed",
        dtype="float64",
    ).fit(X, y)
    posterior = model.posterior_
    signs = np.where(y == "wet", 1.0, -1.0)
    inputs = model.standardizer_.transform_X(X)
    with precision("float64"):
        features = posterior.basis.features(jnp.asarray(inputs), jnp.arange(30))
        phi = np.asarray(features).reshape(100, 60)
        mean = phi @ np.asarray(posterior.mean_weights).ravel()
        variance = float(posterior.basis.kernel.total_variance())
        # c^2 = 1 / (1 + n b s0^2 / m) at the mean precision b of the sites that it leads to
        c2, sites = 1.0, jax.jit(lambda c2: model.likelihood_.sites(signs, mean, c2 * variance))
        for _ in range(200):
            alpha, beta = map(np.asarray, sites(c2))
            c2 = 1.0 / (1.0 + 100 * float(np.mean(beta)) * variance / 60)
    gradient = phi.T @ alpha - np.asarray(posterior.mean_weights).ravel()
    assert np.max(np.abs(gradient)) < 0.01 * np.max(np.abs(phi.T @ alpha))


def test_a_search_that_ran_out_of_time_leaves_its_record(monkeypatch):
    X, y = small_classes(300)
    monkeypatch.setattr(block_sites, "MOST_EXACT", 0)
    model = QSGPClassifier(
        RBF([8.0, 400.0], 4.0), 400, hyperparameters="fixed", solver=Block(16), max_seconds=1e-6
    ).fit(X, y)
    assert not model.converged_
    assert "max_seconds" in model.stop_reason_
    assert np.all(np.isfinite(model.predict_proba(X)))
    complete = QSGPClassifier(RBF([8.0, 400.0], 4.0), 400, hyperparameters="fixed").fit(X, y)
    assert complete.n_iter_ > complete.diagnosis_["site_updates"] > 1
    assert len(complete.history_["change"]) == complete.diagnosis_["site_updates"]


def test_dense_columns_come_near_the_exact_covariance():
    """All rows and functions in a step and all but two columns dense: the posterior of the block solver."""
    X, y = small_classes(60)
    kernel = RBF([8.0, 400.0], 4.0)
    common = {"hyperparameters": "fixed", "dtype": "float64"}
    exact = QSGPClassifier(kernel, 40, solver=Block(2000), **common).fit(X, y)
    solver = Stochastic(row_batch=60, basis_batch=40, control_rank=0, max_steps=4000)
    diagonal = QSGPClassifier(kernel, 40, solver=solver, **common).fit(X, y)
    solver = solver.set_params(dense_columns=38)
    chevron = QSGPClassifier(kernel, 40, solver=solver, **common).fit(X, y)
    assert chevron.diagnosis_["dense_columns"] == 38
    new = small_classes(40, seed=5)[0]
    mean, std = exact.latent(new)
    found, its_std = chevron.latent(new)
    assert np.max(np.abs(found - mean) / std) < 0.1
    # 2000 samples know a standard deviation to 1.6 %
    assert np.mean(np.abs(its_std / std - 1.0)) < 0.1
    assert np.mean(np.abs(diagonal.latent(new)[1] / std - 1.0)) > 0.2
    # ten of the dense columns are in a draw
    assert abs(chevron.diagnosis_["sampling_gap"]) < 0.02


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"dense_columns": -1}, "dense_columns must be an integer of at least 0; received -1"),
        ({"dense_columns": 4, "bound": "strict"}, "dense_columns=4 needs bound='plug-in'"),
    ],
)
def test_dense_columns_that_cannot_be(params, message):
    with pytest.raises(ValueError, match=message):
        QSGPClassifier(
            RBF([8.0, 400.0], 4.0), 40, hyperparameters="fixed", solver=Stochastic(**params)
        ).fit(*small_classes(60))
