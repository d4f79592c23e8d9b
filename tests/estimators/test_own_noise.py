"""Rows with weights and known errors: every estimator that takes them, against dense algebra and known truths."""

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

import vastgp
from estimators.conformance import Killed
from vastgp import (
    RBF,
    ExactGPRegressor,
    IterativeGPRegressor,
    QSGPRegressor,
    RandomFeatureGPRegressor,
    SVGPRegressor,
    SWSGPRegressor,
    TSVGPRegressor,
)
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.options import Block, Fixed, Learn, Natural, Sparse

KERNEL, NOISE = RBF([0.7, 1.3], 1.5), 0.3


class Case:
    """How to make an estimator: of given hyperparameters near the exact posterior, or quickly."""

    def __init__(self, kind, near_exact, quick, mean=1e-6, std=1e-6):
        self.kind, self.near_exact, self.quick = kind, near_exact, quick
        self.mean, self.std = mean, std

    def given(self, X, noise=NOISE):
        return self.kind(KERNEL, hyperparameters=Fixed(noise_std=noise), **self.near_exact(X))

    def make(self, **params):
        return self.kind("rbf", **(self.quick | params))

    def __repr__(self):
        return self.kind.__name__


INDUCING = {"num_inducing": 20, "hyperparameters": Learn(rows=300), "solver": Natural(max_steps=40)}


BATCHES = INDUCING | {"solver": Natural(max_steps=150, row_batch=128)}


def nothing(X):
    return {}


def at_rows(X):
    return {"inducing_inputs": X}


def all_at_rows(X):
    solver = Sparse(jitter=1e-6, tol=1e-8)
    return {"inducing_inputs": X, "num_neighbors": len(X), "solver": solver}


NEIGHBOURS = {"num_inducing": 60, "num_neighbors": 16, "solver": Sparse(jitter=1e-5)}


def many_functions(X):
    # more rows than functions would be solved in the space of these
    return {"num_basis": 20_000, "solver": Block(512), "tol": 0.01}


def many_features(X):
    # independent ones would have to be 4000 to be as near where weights are given, at four times the time
    return {"num_basis": 1500, "frequencies": "orthogonal", "dtype": "float64"}


def many_samples(X):
    return {"num_samples": 512, "tol": 0.01}


CASES = [
    Case(ExactGPRegressor, nothing, {"restarts": 1}),
    # jitter of the inducing inputs
    Case(SVGPRegressor, at_rows, BATCHES, 1e-4, 1e-4),
    Case(TSVGPRegressor, at_rows, INDUCING, 1e-4, 1e-4),
    # one variance for each inducing variable, which is less than the marginal one
    Case(SWSGPRegressor, all_at_rows, NEIGHBOURS, 1e-3, None),
    # posterior standard deviations are of samples; random features
    Case(QSGPRegressor, many_functions, {"num_basis": 400}, 0.15, 0.3),
    Case(IterativeGPRegressor, many_samples, {"num_samples": 16}, 0.01, 0.15),
    Case(RandomFeatureGPRegressor, many_features, {"num_basis": 100}, 0.3, 0.3),
]
pytestmark = pytest.mark.filterwarnings("ignore:.*did not converge")
each = pytest.mark.parametrize("case", CASES, ids=repr)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.uniform(-2.0, 2.0, size=(120, 2))
    error = rng.choice([0.05, 0.4, 1.5], 120)
    y = 4.0 + np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + error * rng.normal(size=120)
    return X, y, error, rng.uniform(0.2, 4.0, 120)


def dense_posterior(model, X, y, variances, new):
    """Return mean and standard deviation of the function, by dense algebra in the units of the data."""

    def kernel(A, B):
        away = (A[:, None, :] - B[None, :, :]) / [0.7, 1.3]
        return 1.5 * np.exp(-0.5 * np.sum(away**2, axis=2))

    cross, A = kernel(new, X), kernel(X, X) + np.diag(variances)
    centre = model.standardizer_.y_mean
    mean = centre + cross @ np.linalg.solve(A, y - centre)
    return mean, np.sqrt(1.5 - np.sum(cross * np.linalg.solve(A, cross.T).T, axis=1))


@each
@pytest.mark.parametrize("given", ["noise_std", "sample_weight", "both"])
def test_the_posterior_is_that_of_dense_algebra(case, data, given):
    X, y, error, weight = data
    error = error if given != "sample_weight" else np.zeros(120)
    weight = weight if given != "noise_std" else np.ones(120)
    model = case.given(X).fit(X, y, noise_std=error, sample_weight=weight)
    new = np.random.default_rng(4).uniform(-2.0, 2.0, size=(50, 2))
    variances = NOISE**2 * weight.mean() / weight + error**2
    mean, std = dense_posterior(model, X, y, variances, new)
    found, deviation = model.predict(new, return_std="latent")
    np.testing.assert_allclose(found, mean, atol=case.mean)
    if case.std is not None:
        np.testing.assert_allclose(deviation, std, rtol=case.std)
    # a new observation has the learned noise alone
    observed = model.predict(new, return_std=True)[1]
    np.testing.assert_allclose(observed**2, deviation**2 + NOISE**2, rtol=1e-4)


@each
def test_a_row_of_weight_k_is_k_rows(case, data):
    """Hyperparameters given, as the evidence of repeated rows is another; weights are divided by their mean."""
    X, y, _, _ = data
    weight = np.random.default_rng(5).integers(1, 5, 120)
    weighted = case.given(X).fit(X, y, sample_weight=weight)
    repeated = case.given(X, NOISE * weight.mean() ** 0.5)
    repeated.fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    new = np.random.default_rng(4).uniform(-2.0, 2.0, size=(50, 2))
    mine, theirs = (each.predict(new, return_std="latent") for each in (weighted, repeated))
    np.testing.assert_allclose(mine[0], theirs[0], atol=2 * case.mean)
    np.testing.assert_allclose(mine[1], theirs[1], rtol=2 * (case.std or case.mean))


@each
def test_equal_weights_and_no_errors_change_no_bit(case, data):
    X, y, _, _ = data
    plain = case.make().fit(X, y)
    alike = case.make().fit(X, y, noise_std=np.zeros(120), sample_weight=np.full(120, 2.5))
    for mine, theirs in zip(
        alike.predict(X, return_std=True), plain.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


@each
def test_a_row_of_weight_zero_is_no_row(case, data):
    X, y, error, weight = data
    weight = np.where(np.arange(120) % 7 == 0, 0.0, weight)
    kept = weight > 0.0
    with_zeros = case.make().fit(X, y, noise_std=error, sample_weight=weight)
    without = case.make().fit(X[kept], y[kept], noise_std=error[kept], sample_weight=weight[kept])
    np.testing.assert_array_equal(with_zeros.predict(X), without.predict(X))


@each
def test_rows_of_large_known_error_hardly_move_the_fit(case, data):
    """Sixty rows that are off by a hundred, and say so; without that they are all that is seen."""
    X, y, error, _ = data
    rng = np.random.default_rng(6)
    more = rng.uniform(-2.0, 2.0, size=(60, 2))
    far = 100.0 * rng.normal(size=60)
    new = rng.uniform(-1.8, 1.8, size=(100, 2))
    truth = 4.0 + np.sin(2.0 * new[:, 0]) + 0.5 * new[:, 1]
    both = np.vstack([X, more]), np.concatenate([y, far])
    told = case.make().fit(*both, noise_std=np.concatenate([error, np.full(60, 100.0)]))
    alone = case.make().fit(X, y, noise_std=error)

    def rms(model):
        return np.mean((model.predict(new) - truth) ** 2) ** 0.5

    assert rms(told) < 1.2 * rms(alone) + 0.02
    # one scale holds targets of hundreds and a function of one: whether that is linear may be left open
    assert {told.answer_, alone.answer_} <= {"own", "average"}
    assert rms(told) < 0.1 * rms(case.make().fit(*both))


def simulated(n, seed):
    """Rows of a smooth function with an extra noise of 0.3 and known errors, some of them far larger."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(n, 1))
    error = rng.choice([0.01, 0.2, 2.0], n)
    noise = 0.3 * rng.normal(size=n) + error * rng.normal(size=n)
    return X, 10.0 * np.sin(X[:, 0]) + noise, error


@each
def test_the_learned_noise_is_what_known_errors_leave(case):
    """600 rows, extra noise 0.3: of those that tell, its variance has a standard error of ``(2 / n)^1/2`` of itself."""
    X, y, error = simulated(600, seed=7)
    learned = case.make().fit(X, y, noise_std=error).likelihood_.noise_std
    # information of a row on the variance: 1/2 (sigma^2 + e^2)^-2
    information = 0.5 * np.sum((0.09 + error**2) ** -2.0)
    assert abs(float(learned) ** 2 - 0.09) < 4.0 * information**-0.5


@each
def test_weights_that_are_known_errors_give_what_these_give(case):
    """Without noise beside the known errors: ``sigma^2 / w`` with ``w = 1 / e^2``."""
    rng = np.random.default_rng(8)
    X = rng.uniform(-3.0, 3.0, size=(400, 1))
    error = rng.choice([0.1, 1.0], 400)
    y = np.sin(X[:, 0]) + error * rng.normal(size=400)
    weight = error**-2.0
    model = case.make().fit(X, y, sample_weight=weight)
    # a row of mean weight has the noise 1 / mean(w)
    expected = 1.0 / weight.mean()
    assert float(model.likelihood_.noise_variance) == pytest.approx(
        expected, rel=4.0 * (2.0 / 400) ** 0.5
    )
    rms = np.mean((model.predict(X) - np.sin(X[:, 0])) ** 2) ** 0.5
    assert rms < 0.06


@each
def test_a_file_and_a_killed_fit_give_the_same_answers(case, data, tmp_path, monkeypatch):
    X, y, error, weight = data
    given = {"noise_std": error, "sample_weight": weight}
    path, written = tmp_path / "fit.checkpoint", []
    whole = Checkpoint.write

    def fit(dies_at=None):
        def write(file):
            whole(file)
            written.append(1)
            if len(written) == dies_at:
                raise Killed

        written.clear()
        with monkeypatch.context() as patched:
            patched.setattr(Checkpoint, "write", write)
            patched.setattr(Checkpoint, "due", lambda file: True)
            return case.make(checkpoint=path).fit(X, y, **given)

    alone = fit().predict(X, return_std=True)
    if written:
        with pytest.raises(Killed):
            fit(dies_at=max(1, len(written) // 2))
        # a file of other errors is that of another fit
        with pytest.raises(ValueError, match="checkpoint"):
            case.make(checkpoint=path).fit(X, y, noise_std=2.0 * error, sample_weight=weight)
    again = fit()
    again.save(tmp_path / "model.vastgp")
    for model in (again, vastgp.load(tmp_path / "model.vastgp")):
        for mine, theirs in zip(model.predict(X, return_std=True), alone, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@each
def test_columns_of_a_table_are_what_arrays_are(case, data):
    X, y, error, weight = data
    table = pd.DataFrame({"a": X[:, 0], "err": error, "b": X[:, 1], "y": y, "w": weight})
    by_name = case.given(X).fit(table, "y", noise_std="err", sample_weight="w")
    by_array = case.given(X).fit(X, y, noise_std=error, sample_weight=weight)
    assert list(by_name.feature_names_in_) == ["a", "b"]
    np.testing.assert_array_equal(by_name.predict(table), by_array.predict(X))


@each
def test_bad_arguments_are_named(case, data):
    X, y, error, _ = data
    with pytest.raises(ValueError, match="noise_std must hold finite numbers that are not neg"):
        case.make().fit(X, y, noise_std=-error)
    with pytest.raises(ValueError, match=r"sample_weight has shape \(3,\). Expected \(120,\)"):
        case.make().fit(X, y, sample_weight=[1.0, 2.0, 3.0])
    with pytest.raises(
        ValueError, match=r"noise_std=0.1 is a single value.*Fixed\(noise_std=...\)"
    ):
        case.make().fit(X, y, noise_std=0.1)
    weight = np.zeros(120)
    weight[0] = 1.0
    with pytest.raises(ValueError, match=r"1 sample\(s\).*minimum of 2"):
        case.make().fit(X, y, sample_weight=weight)


def test_weights_are_routed_as_scikit_learn_asks(data):
    X, y, error, _ = data
    with config_context(enable_metadata_routing=True):
        model = CASES[0].make().set_fit_request(sample_weight=True, noise_std=True)
        model.set_score_request(sample_weight=True)
        scores = cross_val_score(
            model, X, y, cv=3, params={"sample_weight": np.ones(120), "noise_std": error}
        )
    assert np.all(np.isfinite(scores))


OTHERS = sorted(
    name
    for name in vastgp.__all__
    if name.endswith(("Regressor", "Classifier"))
    and name not in {case.kind.__name__ for case in CASES} | {"GPRegressor"}
)


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        (argument, name)
        for argument in ("noise_std", "sample_weight")
        for name in OTHERS
        # whose classes have weights: tests/estimators/test_weighted_rows.py
        if (argument, name[-14:]) != ("sample_weight", "SVGPClassifier")
    ],
)
def test_who_does_not_take_them_says_who_does(name, argument):
    model = getattr(vastgp, name)()
    assert argument not in inspect.signature(model.fit).parameters
    with pytest.raises(TypeError, match=rf"{name}.fit takes no {argument} yet; ExactGPRegressor"):
        model.fit([[0.0], [1.0]], [0.0, 1.0], **{argument: [1.0, 1.0]})
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'noise'"):
        model.fit([[0.0], [1.0]], [0.0, 1.0], noise=1.0)


def test_simple_answers_know_the_errors():
    """Of 3,000 rows some are kept out to judge by: a line of these rows, and their exact posterior."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(3000, 3))
    error = rng.choice([0.01, 5.0], 3000)
    y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=3000) + error * rng.normal(size=3000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ExactGPRegressor("rbf", max_seconds=1e-3).fit(X, y, noise_std=error)
    new = rng.normal(size=(200, 3))
    assert np.mean((model.predict(new) - new @ [1.0, -2.0, 0.5]) ** 2) ** 0.5 < 0.1


@pytest.mark.parametrize("likelihood", ["laplace", "poisson"])
def test_other_likelihoods_have_no_use_for_them(data, likelihood):
    X, _, error, _ = data
    y = np.arange(120.0)
    model = TSVGPRegressor("rbf", likelihood=likelihood)
    with pytest.raises(
        ValueError, match=r"noise_std is of normal noise, and likelihood is .*Set lik"
    ):
        model.fit(X, y, noise_std=error)
    with pytest.raises(ValueError, match=r"sample_weight is of normal noise"):
        model.fit(X, y, sample_weight=error)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"solver": "stochastic"}, "solver='stochastic' takes no noise_std.*Set solver='block'"),
        ({"basis": "inducing"}, "basis='inducing' takes no noise_std.*Set basis='fourier'"),
        ({"likelihood": "student-t"}, "noise_std is of normal noise, and likelihood is StudentT"),
    ],
)
def test_what_of_qsgp_does_not_take_them_says_what_does(data, params, message):
    X, y, error, _ = data
    with pytest.raises(ValueError, match=message):
        QSGPRegressor(**({"kernel": "rbf", "num_basis": 64} | params)).fit(X, y, noise_std=error)


def test_a_grid_says_who_takes_them():
    with pytest.raises(TypeError, match=r"GridGP.fit takes no sample_weight yet; ExactGPRegressor"):
        vastgp.GridGP().fit(None, sample_weight=[1.0])
