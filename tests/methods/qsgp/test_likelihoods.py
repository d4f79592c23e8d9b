"""`QSGPRegressor` with likelihoods other than the Gaussian."""

import numpy as np
import pytest

import vastgp
from vastgp import RBF, QSGPRegressor
from vastgp.likelihoods import Laplace, Poisson, StudentT
from vastgp.options import Block, Fixed
from vastgp.solvers import sites as block_sites

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def wave(n, seed, outliers=0.0):
    """A smooth function in units far from standard, noise of standard deviation 1, some targets far off."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 10.0, (n, 1))
    f = 100.0 + 20.0 * np.sin(X[:, 0])
    y = f + rng.standard_normal(n)
    bad = rng.uniform(size=n) < outliers
    return X, np.where(bad, y + rng.normal(0.0, 200.0, n), y), f


def counts(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 10.0, (n, 1))
    rate = 3.0 * np.exp(1.2 * np.sin(X[:, 0]))
    return X, rng.poisson(rate).astype(float), rate


@pytest.fixture(scope="module", params=["laplace", "student-t"])
def robust(request):
    X, y, _ = wave(300, 0, outliers=0.1)
    return QSGPRegressor("rbf", 400, likelihood=request.param, solver=Block(64)).fit(X, y)


def test_outliers_move_robust_fits_less(robust):
    X, y, _ = wave(300, 0, outliers=0.1)
    new, _, f = wave(500, 1)
    gaussian = QSGPRegressor("rbf", 400, solver=Block(64)).fit(X, y)
    error, its_error = (np.mean(np.abs(m.predict(new) - f)) for m in (robust, gaussian))
    assert error < 0.5 * its_error
    assert error < 1.0
    assert robust.score(new, f) > 0.98


def test_the_noise_is_in_units_of_the_target(robust):
    _, y, f = wave(300, 0, outliers=0.1)
    if isinstance(robust.likelihood_, Laplace):  # the mean size of the residuals is the best scale
        assert float(robust.likelihood_.scale) == pytest.approx(np.mean(np.abs(y - f)), rel=0.2)
    else:  # nine in ten are standard normal; the bound counts what is not known of the function as noise
        assert 0.5 < float(robust.likelihood_.scale) < 3.0


def test_the_predictive_density_integrates_to_one(robust):
    x = np.array([[3.0]])
    away = np.linspace(-400.0, 400.0, 8001)
    target = robust.predict(x) + away
    density = np.exp(robust.log_predictive_density(np.repeat(x, len(away), axis=0), target))
    assert np.sum(density) * 0.1 == pytest.approx(1.0, abs=0.01)


def test_a_loaded_model_has_its_likelihood(robust, tmp_path):
    robust.save(tmp_path / "model.vastgp")
    loaded = vastgp.load(tmp_path / "model.vastgp")
    assert repr(loaded.likelihood_) == repr(robust.likelihood_)
    X = np.linspace(0.0, 10.0, 7)[:, None]
    for mine, theirs in zip(
        robust.predict(X, return_std=True), loaded.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_counts_are_predicted_by_their_rate():
    X, y, _ = counts(400, 0)
    model = QSGPRegressor("rbf", 400, likelihood="poisson", solver=Block(128)).fit(X, y)
    new, seen, rate = counts(2000, 1)
    mean, std = model.predict(new, return_std=True)
    assert np.sqrt(np.mean((mean / rate - 1.0) ** 2)) < 0.15
    np.testing.assert_array_equal(mean, model.predict(new))
    # a count varies by its rate, and by what is not known of it
    assert np.all(std**2 > mean)
    assert np.mean((seen - mean) ** 2 / std**2) == pytest.approx(1.0, abs=0.15)
    best = -np.mean(Poisson(1.0).log_prob(seen, np.log(rate)))
    assert -model.log_predictive_density(new, seen).mean() < best + 0.02


def test_with_fixed_hyperparameters_those_given_are_the_model():
    X, y, _ = wave(200, 0)
    kernel = RBF([1.3], 400.0)
    model = QSGPRegressor(
        kernel, 400, likelihood=StudentT(1.0, 6.0), hyperparameters="fixed", solver=Block(64)
    ).fit(X, y)
    assert float(model.likelihood_.scale) == pytest.approx(1.0)
    assert float(model.likelihood_.degrees_of_freedom) == pytest.approx(6.0)
    assert float(model.kernel_.variance) == pytest.approx(400.0)


def test_many_degrees_of_freedom_are_gaussian_noise(monkeypatch):
    """Sites of a quadratic log-likelihood are that likelihood, whichever way they are found."""
    X, y, _ = wave(200, 0)
    kernel = RBF([1.3], 400.0)
    new = np.linspace(0.0, 10.0, 50)[:, None]
    options = {"solver": Block(256), "dtype": "float64", "tol": 1e-3}
    exact = QSGPRegressor(kernel, 400, hyperparameters=Fixed(1.0), **options).fit(X, y)
    options["hyperparameters"] = "fixed"
    for most in (1000, 0):
        monkeypatch.setattr(block_sites, "MOST_EXACT", most)
        model = QSGPRegressor(kernel, 400, likelihood=StudentT(1.0, 1e7), **options).fit(X, y)
        np.testing.assert_allclose(model.predict(new), exact.predict(new), atol=0.01)
        std = model.predict(new, return_std="latent")[1]
        np.testing.assert_allclose(std, exact.predict(new, return_std="latent")[1], rtol=0.02)


@pytest.mark.parametrize(
    ("params", "y", "message"),
    [
        ({"likelihood": "poisson"}, [1.0, -2.0, 3.0], "counts.*poisson likelihood"),
        ({"likelihood": "poisson"}, [1.0, 0.5, 3.0], "counts.*poisson likelihood"),
        (
            {"likelihood": "cauchy"},
            [1.0, 2.0, 3.0],
            "likelihood must be one of .*received 'cauchy'",
        ),
        ({"likelihood": "bernoulli"}, [1.0, 2.0, 3.0], "use QSGPClassifier"),
        ({"likelihood": "laplace", "solver": "stochastic"}, [1.0, 2.0, 3.0], "bounded curvature"),
        (
            {"likelihood": "student-t", "hyperparameters": "learn"},
            [1.0, 2.0, 3.0],
            "needs solver='stoch",
        ),
        (
            {"likelihood": "laplace", "hyperparameters": "fixed", "kernel": RBF()},
            [1.0, 2.0, 3.0],
            "give likelihood as an object, for example .*Laplace",
        ),
        (
            {
                "likelihood": Laplace(1.0),
                "hyperparameters": Fixed(noise_std=1.0),
                "kernel": RBF(),
            },
            [1.0, 2.0, 3.0],
            "has no use for noise_std, the standard deviation of Gaussian noise",
        ),
    ],
)
def test_what_cannot_work_is_refused(params, y, message):
    with pytest.raises(ValueError, match=message):
        QSGPRegressor(**params).fit(np.arange(3.0)[:, None], np.array(y))
