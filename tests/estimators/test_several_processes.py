"""Fits in several processes, each with a part of the rows, beside those of one."""

import numpy as np
import pytest
from sklearn.base import clone

from several_processes import in_threads
from vastgp import (
    RBF,
    DirectRegressor,
    IterativeGPRegressor,
    QSGPClassifier,
    QSGPRegressor,
    TSVGPClassifier,
)
from vastgp.fitting.run import First
from vastgp.kernels import products, shared_products
from vastgp.likelihoods import Gaussian, Poisson
from vastgp.options import Block, Fixed, Learn, RouletteCG
from vastgp.solvers import sites

KERNEL, FIXED = RBF([0.4, 0.6], variance=1.5), Fixed(noise_std=None)


def data(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(3.0 * X[:, 0]) + X[:, 1], rng


def labels(classes):
    X, f, rng = data()
    numbers = np.digitize(f + 0.3 * rng.normal(size=len(f)), [0.0, 0.7][: classes - 1])
    return X, np.array(["low", "mid", "high"])[numbers]


def counts():
    X, f, rng = data()
    return X, rng.poisson(2.0 * np.exp(f)).astype(float)


SOLVER = Block(num_samples=8, rank=20)
BLOCK = {"hyperparameters": FIXED, "solver": SOLVER, "dtype": "float64", "tol": 1e-3}
MODELS = {
    "two classes by passes": (labels(2), TSVGPClassifier(KERNEL, 12, hyperparameters=FIXED)),
    "three classes by sites": (labels(3), QSGPClassifier(KERNEL, 900, **BLOCK)),
    "counts by sites": (counts(), QSGPRegressor(KERNEL, 900, likelihood=Poisson(2.0), **BLOCK)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_of_several_is_that_of_one(monkeypatch, name):
    (X, y), model = MODELS[name]
    new = data(30, seed=1)[0]

    def predicted(fitted):
        return fitted.predict_proba(new) if hasattr(fitted, "classes_") else fitted.predict(new)

    # sites by products rather than by factorisations, as of many rows
    monkeypatch.setattr(sites, "MOST_EXACT", 0)
    one = predicted(clone(model).fit(X, y))

    def work(number):
        monkeypatch.setattr(sites, "MOST_EXACT", 0)
        mine = slice(0, 50) if number == 0 else slice(50, None)
        fitted = clone(model).fit(X[mine], y[mine])
        return predicted(fitted), fitted.answer_

    for found, answer in in_threads(monkeypatch, 2, work):
        assert answer == "own"
        np.testing.assert_allclose(found, one, atol=1e-6)


@pytest.mark.parametrize("seeds", [(None, None), (3, 4)])
def test_all_draw_by_the_seed_of_process_0(monkeypatch, seeds):
    X, f, _ = data()
    new = data(30, seed=1)[0]
    model = DirectRegressor(KERNEL, 20, hyperparameters=Fixed(noise_std=0.1), dtype="float64")

    def work(number):
        mine = slice(0, 50) if number == 0 else slice(50, None)
        fitted = clone(model).set_params(random_state=seeds[number]).fit(X[mine], f[mine])
        return fitted.predict(new)

    first, second = in_threads(monkeypatch, 2, work)
    np.testing.assert_array_equal(first, second)
    if seeds[0] is not None:
        one, other = (clone(model).set_params(random_state=seed).fit(X, f) for seed in seeds)
        # its search ends within a tolerance
        np.testing.assert_allclose(first, one.predict(new), atol=1e-3)
        assert np.max(np.abs(first - other.predict(new))) > 0.05


@pytest.mark.filterwarnings("ignore:IterativeGPRegressor did not converge")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_conjugate_gradients_of_several_is_that_of_one(monkeypatch, tmp_path, dtype):
    X, f, rng = data(150)
    np.savez(tmp_path / "rows.npz", X=X, y=f + 0.2 * rng.normal(size=len(f)))
    new = data(30, seed=1)[0]
    model = IterativeGPRegressor(
        RBF([0.6, 0.9], variance=1.0), rank=10, num_samples=8, dtype=dtype,
        hyperparameters=Fixed(noise_std=0.2), tol=1e-3,
    )  # fmt: skip
    if dtype == "float64":
        search = {"hyperparameters": Learn(60, steps=2), "solver": RouletteCG(10)}
        model.set_params(kernel="rbf", tol=1e-11, **search)
    # each makes half of the products of tiles
    made = []
    shared_product = shared_products._shared_product
    monkeypatch.setattr(products, "_TILE", 32)

    def noted(devices, share, *given):
        made.append(tuple(map(int, share)))
        return shared_product(devices, share, *given)

    def fit():
        # a search may end elsewhere by as much as its tolerance, where linear algebra takes other numbers of threads
        fitted = clone(model)
        fitted._known_firsts = (First(RBF([1.0, 1.5]), Gaussian(0.1)),)
        return fitted.fit(tmp_path / "rows.npz")

    def work(number):
        monkeypatch.setattr(shared_products, "_shared_product", noted)
        fitted = fit()
        return fitted.predict(new, return_std=True), float(fitted.likelihood_.noise_std)

    one = fit()
    for found, noise in in_threads(monkeypatch, 2, work):
        atol = 1e-9 if dtype == "float64" else 1e-3 * noise
        np.testing.assert_allclose(found, one.predict(new, return_std=True), atol=atol)
    assert set(made) == {(0, 2), (1, 2)} and made.count((0, 2)) == made.count((1, 2))
