"""`RandomFeatureGPRegressor`: weight-space regression with its full covariance, and learning with and without bias."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning

from vastgp import ExactGPRegressor, RandomFeatureGPRegressor
from vastgp._precision import precision
from vastgp.kernels import RBF, Matern32
from vastgp.methods.random_feature.learning import FeatureEvidence
from vastgp.options import Fixed, Learn, SaveTo, Subset

KERNEL, NOISE = RBF([0.8, 1.5]) + Matern32([1.5, 1.0], 0.5), 0.3


def data(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2.0 * X[:, 0]) + NOISE * rng.normal(size=n)


def fixed(**params):
    given = {"hyperparameters": Fixed(NOISE), "dtype": "float64", "num_basis": 40}
    return RandomFeatureGPRegressor(KERNEL, **(given | params))


def test_posterior_and_evidence_are_those_of_the_dense_covariance():
    X, y = data()
    new, _ = data(30, seed=1)
    model = fixed().fit(X, y)
    scale = model.standardizer_.y_scale
    inputs = model.standardizer_.transform_X(np.concatenate([X, new]))
    with precision("float64"):
        phi = model.posterior_._features(inputs).T * scale
    K = phi @ phi.T
    A = K[:150, :150] + NOISE**2 * np.eye(150)
    cross = K[150:, :150]
    mean, std = model.predict(new, return_std="latent")
    np.testing.assert_allclose(mean, y.mean() + cross @ np.linalg.solve(A, y - y.mean()), atol=1e-5)
    variance = np.diagonal(K)[150:] - np.sum(cross * np.linalg.solve(A, cross.T).T, axis=1)
    np.testing.assert_allclose(std**2, variance, atol=1e-5)
    expected = multivariate_normal(np.full(150, y.mean()), A).logpdf(y)
    assert model.log_evidence_ == pytest.approx(expected, abs=1e-4)


def test_many_features_are_the_exact_process():
    X, y = data()
    new, _ = data(30, seed=1)
    exact = ExactGPRegressor(KERNEL, hyperparameters=Fixed(NOISE)).fit(X, y)
    gaps = [
        np.sqrt(np.mean((fixed(num_basis=m).fit(X, y).predict(new) - exact.predict(new)) ** 2))
        for m in (40, 1200)
    ]
    assert gaps[1] < 0.5 * gaps[0] and gaps[1] < 0.3 * NOISE


def test_learning_climbs_the_evidence_of_the_features():
    X, y = data()
    start = RandomFeatureGPRegressor("rbf", 40, hyperparameters=Subset(20))
    learned = RandomFeatureGPRegressor("rbf", 40, hyperparameters=Learn(20, steps=15)).fit(X, y)
    assert learned.log_evidence_ > start.fit(X, y).log_evidence_ + 1.0
    assert learned.n_iter_ <= 15


def test_debiased_learning_resumes_where_it_was(tmp_path, monkeypatch):
    X, y = data(60)
    given = {
        "kernel": "rbf", "num_basis": 24, "debias": "single-sample", "hyperparameters": Learn(30, steps=4),
        "checkpoint": SaveTo("~/fit", 1e-6),
    }  # fmt: skip
    whole = RandomFeatureGPRegressor(**given | {"checkpoint": None}).fit(X, y)
    assert len(whole.history_) == 4
    monkeypatch.setenv("HOME", str(tmp_path))
    estimate = FeatureEvidence.__call__

    def interrupted(self, params, anchor, step, carried=()):
        if step == 2:
            raise KeyboardInterrupt
        return estimate(self, params, anchor, step, carried)

    monkeypatch.setattr(FeatureEvidence, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        RandomFeatureGPRegressor(**given).fit(X, y)
    monkeypatch.setattr(FeatureEvidence, "__call__", estimate)
    resumed = RandomFeatureGPRegressor(**given).fit(X, y)
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    assert list(tmp_path.iterdir()) == []


def test_learning_that_time_cuts_is_said(monkeypatch):
    search = Learn(30, steps=4)
    # beginning takes no time where programs are compiled
    monkeypatch.setattr("vastgp.estimators.race._WARM", 0.0)
    monkeypatch.setattr(RandomFeatureGPRegressor, "_compiling_seconds", 0.0)
    cut = RandomFeatureGPRegressor("rbf", 24, hyperparameters=search, max_seconds=1e-6)
    said = r"learned for 0 of 4 steps\. Give more time \(max_sec"
    with pytest.warns(ConvergenceWarning, match=said):
        cut.fit(*data(60))
    assert not cut.converged_


def test_more_rows_than_there_is_time_for_are_some_of_them(monkeypatch):
    m, n = 80, 5000  # so many that they beat an exact process of some rows
    X = np.random.default_rng(0).uniform(-2.0, 2.0, (n, 2))
    y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.1 * np.random.default_rng(1).normal(size=n)
    # Gram matrices of 25 rows a second, and four tenths of 400 s for them
    monkeypatch.setattr(
        "vastgp.methods.random_feature.estimator.operations_where_arrays_lie",
        lambda: 25.0 * 2.0 * m**2,
    )
    learned = []
    made = FeatureEvidence.__init__
    monkeypatch.setattr(
        FeatureEvidence, "__init__",
        lambda self, X, y, **more: (learned.append(len(X)), made(self, X, y, **more))[1],
    )  # fmt: skip
    plain = {"num_basis": m, "hyperparameters": Learn(steps=5), "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="max_seconds"):
        model = RandomFeatureGPRegressor("rbf", max_seconds=400, **plain).fit(X, y)
    assert model.answer_ == "own" and not model.converged_
    used = int(model.stop_reason_.split("enough for ")[1].split()[0])
    assert 3000 < used < 4500 and learned == [2000]
    new = np.random.default_rng(2).uniform(-2.0, 2.0, (500, 2))
    target = np.sin(2.0 * new[:, 0]) * new[:, 1]
    assert np.sqrt(np.mean((model.predict(new) - target) ** 2)) < 0.05
    # without a budget nothing is measured, and all rows count
    learned.clear()
    model = RandomFeatureGPRegressor("rbf", **plain).fit(X, y)
    assert learned == [4750] and "enough for" not in model.stop_reason_


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"debias": "roulette"}, r"debias must be one of \('single-sample',\) or SingleSample"),
        ({"num_basis": 7}, "num_basis must be even"),
        ({"num_basis": None}, "num_basis must be a positive integer; received None"),
        ({"frequencies": "grid"}, "frequencies must be one of"),
        ({"debias": "single-sample", "tol": 1e-3}, r"tol=0\.001 has no effect but"),
        (
            {"debias": "single-sample", "hyperparameters": "subset"},
            "debias='single-sample' has no effect",
        ),
    ],
)
def test_bad_arguments_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        RandomFeatureGPRegressor(**change).fit(*data(20))
