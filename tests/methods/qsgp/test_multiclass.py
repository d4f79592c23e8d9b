"""`QSGPClassifier` with more than two classes, and what its rows count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import log_loss

import vastgp
from vastgp import QSGPClassifier
from vastgp._precision import precision
from vastgp.kernels import RBF
from vastgp.likelihoods import Softmax
from vastgp.options import Block, Classes, Stochastic
from vastgp.solvers import sites as block_sites

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
KERNEL = RBF([1.0, 1.0], 4.0)
NAMES = np.array(["fjord", "lake", "river"])


def three_classes(n=150, seed=0):
    """Sectors of a plane, with a soft border."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    directions = np.array([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
    return X, NAMES[np.argmax(3.0 * X @ directions.T + rng.gumbel(size=(n, 3)), axis=1)]


def stochastic(**params):
    quick = {
        "solver": Stochastic(max_steps=200, row_batch=30, basis_batch=200, control_rank=60),
    }
    return QSGPClassifier("rbf", 400, **(quick | params))


@pytest.fixture(
    scope="module",
    params=[lambda: QSGPClassifier("rbf", 400, solver=Block(64)), stochastic],
    ids=["block", "stochastic"],
)
def model(request):
    return request.param().fit(*three_classes())


def test_predictions_find_the_borders(model):
    X, y = three_classes(1000, seed=1)
    assert model.classes_.tolist() == NAMES.tolist()
    assert model.score(X, y) > 0.75  # the best that there is: 0.81
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (1000, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-9)
    assert log_loss(y, probabilities) < 0.65
    columns = np.searchsorted(NAMES, y)
    right = np.log(probabilities[np.arange(1000), columns])
    np.testing.assert_allclose(model.log_predictive_density(X, y), right, atol=1e-6)


def test_functions_and_predictions_agree(model):
    X, _ = three_classes(50, seed=2)
    mean, std = model.latent(X)
    values = model.decision_function(X)
    assert values.shape == mean.shape == std.shape == (50, 3)
    np.testing.assert_allclose(np.exp(values), model.predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), NAMES[np.argmax(values, axis=1)])
    median = model.predict_proba(X, method="median")
    # means in single precision, with and without variances
    shares = np.exp(mean) / np.exp(mean).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(median, shares, rtol=1e-5)
    with precision("float64"):
        right = np.asarray(Softmax(3).predictive_mean(mean.T, std.T**2)).T
    np.testing.assert_allclose(model.predict_proba(X), right, atol=1e-6)


def test_the_class_of_the_largest_mean_need_not_be_the_likeliest(model, monkeypatch):
    # between two functions of deviation 10 a third one, hardly larger on average and known well, is seldom the largest
    moments = np.array([[0.0], [0.2], [0.0]]), np.array([[100.0], [0.01], [100.0]])
    monkeypatch.setattr(model, "_by_tiles", lambda rows, with_variance: moments)
    X = np.zeros((1, 2))
    probabilities = model.predict_proba(X)
    assert np.argmin(probabilities) == 1
    assert model.predict(X)[0] != NAMES[1]
    assert np.argmin(model.decision_function(X)) == 1


def test_samples_of_one_class_are_independent_of_those_of_another(model):
    X, _ = three_classes(10, seed=3)
    drawn = model.sample_y(X, n_samples=64, random_state=1)
    assert drawn.shape == (10, 3, 64)
    mean, std = model.latent(X)
    assert np.all(np.abs(drawn.mean(axis=2) - mean) < 5.0 * std / 8.0 + 1e-6)
    away = (drawn - mean[..., None]) / std[..., None]
    # mean over rows of products of unit variance, 64 draws each
    between = np.mean(away[:, 0] * away[:, 1], axis=1)
    assert np.abs(np.mean(between)) < 5.0 / 8.0


def test_a_file_keeps_it(model, tmp_path):
    X, _ = three_classes(20, seed=4)
    model.save(tmp_path / "model.vastgp")
    loaded = vastgp.load(tmp_path / "model.vastgp")
    assert loaded.classes_.tolist() == NAMES.tolist()
    assert repr(loaded.likelihood_) == "Softmax(num_classes=3)"
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_sites_from_samples_are_those_of_the_factorisation(monkeypatch):
    X, y = three_classes(200)

    def fit():
        model = QSGPClassifier(
            KERNEL, 600, hyperparameters="fixed", solver=Block(256), tol=0.01, dtype="float64"
        )
        return model.fit(X, y)

    exact = fit()
    monkeypatch.setattr(block_sites, "MOST_EXACT", 0)
    sampled = fit()
    assert sampled.converged_ and sampled.diagnosis_["site_updates"] > 1
    new = three_classes(60, seed=5)[0]
    mean, std = exact.latent(new)
    found, its_std = sampled.latent(new)
    assert np.max(np.abs(found - mean) / std) < 0.2
    np.testing.assert_allclose(its_std, std, rtol=0.15)
    np.testing.assert_allclose(found.sum(axis=1), 0.0, atol=0.05)


def test_the_means_of_the_stochastic_solver_maximise_its_bound():
    """With all rows and functions in a step: gradients zero of the bound whose covariances are c^2 I."""
    X, y = three_classes(40)
    model = QSGPClassifier(
        KERNEL,
        40,
        solver=Stochastic(row_batch=40, basis_batch=40, control_rank=40, max_steps=500),
        hyperparameters="fixed",
        dtype="float64",
    ).fit(X, y)
    posterior, numbers = model.posterior_, np.searchsorted(NAMES, y)
    inputs = model.standardizer_.transform_X(X)
    with precision("float64"):
        features = posterior.basis.features(jnp.asarray(inputs), jnp.arange(20))
        phi = np.asarray(features).reshape(40, 40)
        weights = np.asarray(posterior.mean_weights).reshape(3, 40)
        mean, variance = weights @ phi.T, float(posterior.basis.kernel.total_variance())
        c2, sites = 1.0, jax.jit(lambda c2: Softmax(3).sites(numbers, mean, c2 * variance))
        for _ in range(100):
            alpha, beta = map(np.asarray, sites(c2))
            c2 = 1.0 / (1.0 + 40 * float(np.mean(beta)) * variance / 40)
    gradient = alpha @ phi - weights
    assert np.max(np.abs(gradient)) < 0.01 * np.max(np.abs(alpha @ phi))


@pytest.mark.parametrize("classes", [2, 3])
def test_a_weight_of_two_is_every_row_twice(classes):
    X, y = three_classes(90)
    keep = np.isin(y, NAMES[:classes])
    X, y = X[keep], y[keep]
    again = y == "lake"
    options = {"hyperparameters": "fixed", "solver": Block(512), "dtype": "float64"}
    heavy = QSGPClassifier(
        KERNEL, 300, likelihood=Classes(class_weight={"lake": 2.0}), **options
    ).fit(X, y)
    both_X, both_y = np.concatenate([X, X[again]]), np.concatenate([y, y[again]])
    twice = QSGPClassifier(KERNEL, 300, **options).fit(both_X, both_y)
    new = three_classes(40, seed=6)[0]
    mean, std = heavy.latent(new)
    found, _ = twice.latent(new)
    assert np.max(np.abs(found - mean) / std) < 0.1


def test_balanced_weights():
    X, y = three_classes(200)
    few = (y != "lake") | (np.arange(200) % 10 == 0)
    X, y = X[few], y[few]
    counts = {name: int(np.sum(y == name)) for name in NAMES}
    options = {"hyperparameters": "fixed", "solver": Block(16)}
    named = {name: len(y) / (3 * count) for name, count in counts.items()}
    balanced = QSGPClassifier(
        KERNEL, 300, likelihood=Classes(class_weight="balanced"), **options
    ).fit(X, y)
    given = QSGPClassifier(KERNEL, 300, likelihood=Classes(class_weight=named), **options).fit(X, y)
    plain = QSGPClassifier(KERNEL, 300, **options).fit(X, y)
    new, _ = three_classes(40, seed=6)
    np.testing.assert_array_equal(balanced.predict_proba(new), given.predict_proba(new))
    assert balanced.predict_proba(new)[:, 1].mean() > plain.predict_proba(new)[:, 1].mean() + 0.05


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"link": "probit"}, "likelihood='probit' is for two classes, and y holds 3"),
        ({"class_weight": "heavy"}, "class_weight must be None, 'balanced' or a dict"),
        ({"class_weight": {"lake": -1.0}}, "received -1.0 for 'lake'"),
        ({"class_weight": {"ocean": 2.0}}, "class_weight names 'ocean', but the classes of y are"),
    ],
)
def test_what_cannot_work_is_named(params, message):
    with pytest.raises(ValueError, match=message):
        QSGPClassifier(KERNEL, 300, likelihood=Classes(**params)).fit(*three_classes(30))
