"""QSGPRegressor: what it shares with the others, and what is its own."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import vastgp
from estimators.regressor_conformance import OTHER_EVIDENCE
from estimators.sklearn_checks import checks_of_a_method
from vastgp import RBF, ExactGPRegressor, QSGPRegressor
from vastgp.data.padding import padded_size
from vastgp.methods.qsgp import block as block_fit
from vastgp.methods.qsgp.estimator import choose_size
from vastgp.methods.qsgp.options import Chosen
from vastgp.options import Block, Fixed, Fourier, Learn, Stochastic, Subset
from vastgp.solvers.plan import affordable_rank


@pytest.mark.little_work
@checks_of_a_method(
    [QSGPRegressor(num_basis=16, solver=Block(4))],
    expected_failed_checks=lambda _: OTHER_EVIDENCE,
)
def test_scikit_learn_check(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    X = generator.uniform(-3, 3, (600, 2)) * [1.0, 20.0]
    f = np.sin(X[:, 0]) * np.cos(X[:, 1] / 20.0)
    return X, 100.0 + 7.0 * f + 0.7 * generator.normal(size=600)


@pytest.fixture(scope="module")
def block(data):
    return QSGPRegressor("rbf", 1000, solver=Block(64)).fit(data[0][:500], data[1][:500])


@pytest.fixture(scope="module")
def stochastic(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return QSGPRegressor(
            "rbf",
            1000,
            solver=Stochastic(max_steps=400, basis_batch=400, row_batch=200, control_rank=200),
        ).fit(data[0][:500], data[1][:500])


def test_many_features_approach_the_exact_process(data, block):
    """Same hyperparameters: mean and standard deviation of the block solver are the exact ones."""
    X, y = data
    noise = Fixed(noise_std=float(block.likelihood_.noise_std))
    exact = ExactGPRegressor(block.kernel_, hyperparameters=noise).fit(X[:500], y[:500])
    model = QSGPRegressor(
        block.kernel_, 60_000, hyperparameters=noise, solver=Block(400), tol=0.01,
    ).fit(X[:500], y[:500])  # fmt: skip
    assert model.converged_ and model.solver_ == "block"
    mean, std = model.predict(X[500:], return_std="latent")
    truth, truth_std = exact.predict(X[500:], return_std="latent")
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.1 * np.mean(truth_std)
    # four standard errors of a variance of 400 samples, were all rows perfectly correlated
    assert abs(np.mean(std**2) / np.mean(truth_std**2) - 1.0) < 4 * np.sqrt(2 / 400)
    np.testing.assert_allclose(
        float(model.likelihood_.noise_std), float(exact.likelihood_.noise_std)
    )


def test_uncertainty_is_calibrated(data, block):
    X, y = data
    mean, std = block.predict(X[500:], return_std=True)
    inside = np.mean(np.abs(y[500:] - mean) < 1.96 * std)
    assert abs(inside - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 100)
    # noise alone leaves 1 - 0.49 / 12.7 = 0.961
    assert block.score(X[500:], y[500:]) > 0.95
    density = block.log_predictive_density(X[500:], y[500:])
    expected = -0.5 * ((y[500:] - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(density, expected, rtol=1e-6)
    latent = block.predict(X[500:], return_std="latent")[1]
    np.testing.assert_allclose(
        latent**2 + float(block.likelihood_.noise_std) ** 2, std**2, rtol=1e-5
    )


def test_samples_have_the_posterior_s_mean_and_spread(data, block):
    X, _ = data
    mean, std = block.predict(X[500:520], return_std="latent")
    few, many = block.sample_y(X[500:520], 64), block.sample_y(X[500:520], 4000, random_state=1)
    np.testing.assert_allclose(np.mean((few - mean[:, None]) ** 2, axis=1), std**2, rtol=1e-4)
    z = (many.mean(axis=1) - mean) / (std / np.sqrt(64))
    assert np.all(np.abs(z) < 4)
    assert np.all(np.abs(many.var(axis=1) / std**2 - 1.0) < 0.3)
    assert np.array_equal(few, block.sample_y(X[500:520], 64))


def test_the_stochastic_solver_finds_the_same_function(data, block, stochastic):
    X, y = data
    assert stochastic.solver_ == "stochastic"
    apart = stochastic.predict(X[500:]) - block.predict(X[500:])
    assert np.sqrt(np.mean(apart**2)) < 0.25 * float(block.likelihood_.noise_std)
    assert stochastic.score(X[500:], y[500:]) > 0.95
    assert len(stochastic.history_.objective) == len(stochastic.history_.objective_se) > 3


@pytest.fixture(scope="module")
def few_rows():
    """Rows, the model of a large amplitude, and what the block solver says of the rows."""
    rng = np.random.default_rng(20)
    X = rng.uniform(-1.7, 1.7, (240, 3))
    y = 5.0 * np.sin(X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(240)
    common = {
        "kernel": RBF([1.3, 5.5, 90.0], 60.0), "num_basis": 2000, "hyperparameters": Fixed(noise_std=0.3)
    }  # fmt: skip
    return X, y, common, QSGPRegressor(**common, solver="block", tol=1e-4).fit(X, y).predict(X)


@pytest.mark.parametrize("control_rank", [1000, 100, 0])
def test_few_rows_and_a_large_amplitude_do_not_make_it_diverge(control_rank, few_rows):
    """All rows and all basis functions in a step: nothing but rounding asks for damping."""
    X, y, common, exact = few_rows
    model = QSGPRegressor(**common, solver=Stochastic(control_rank=control_rank, max_steps=2000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    gap = model.predict(X) - exact
    # without a control variate and its preconditioner, convergence is that of plain gradients
    assert np.sqrt(np.mean(gap**2)) < (0.01 if control_rank else 0.3) * 0.3


@pytest.mark.parametrize("basis_batch", [10_000, 400])
def test_waves_that_no_support_row_has_seen_do_not_make_it_diverge(basis_batch):
    """A kernel of few directions and random features of more: their matrix is not the kernel's, and little damps it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (300, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(300)
    common = {"kernel": RBF([2.2, 1700.0], 1.9), "num_basis": 600, "hyperparameters": Fixed(0.1)}
    exact = QSGPRegressor(**common, solver="block", tol=1e-4).fit(X, y)
    solver = Stochastic(basis_batch=basis_batch, max_steps=400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = QSGPRegressor(**common, solver=solver).fit(X, y)
    gap = model.predict(X) - exact.predict(X)
    assert np.sqrt(np.mean(gap**2)) < (0.01 if basis_batch > 600 else 0.3) * 0.1


@pytest.mark.parametrize("name", ["block", "stochastic"])
def test_files_pickles_and_clones(name, request, data, tmp_path):
    model, (X, _) = request.getfixturevalue(name), data
    model.save(tmp_path / "model.vastgp")
    for again in (vastgp.load(tmp_path / "model.vastgp"), pickle.loads(pickle.dumps(model))):
        for asked in (False, True, "latent"):
            assert np.array_equal(
                again.predict(X, return_std=asked), model.predict(X, return_std=asked)
            )
        assert np.array_equal(again.sample_y(X[:9], 3), model.sample_y(X[:9], 3))
        assert again.diagnosis_ == pytest.approx(model.diagnosis_, nan_ok=True)
        assert again.solver_ == model.solver_ and again.num_basis_ == 1000
    assert clone(model).get_params() == model.get_params()


def test_the_same_seed_gives_the_same_fit_and_another_one_another(data, block):
    X, y = data
    same = QSGPRegressor("rbf", 1000, solver=Block(64)).fit(X[:500], y[:500])
    other = QSGPRegressor("rbf", 1000, solver=Block(64), random_state=1).fit(X[:500], y[:500])
    assert np.array_equal(same.predict(X), block.predict(X))
    assert not np.array_equal(other.predict(X), block.predict(X))


def test_stopping_early_warns_and_is_not_called_converged(data):
    X, y = data
    given = {"kernel": RBF([1.0, 20.0], 50.0), "hyperparameters": Fixed(noise_std=0.7)}
    with pytest.warns(
        ConvergenceWarning, match="did not converge: stopped after max_iter = 1 steps; residual"
    ):
        model = QSGPRegressor(**given, num_basis=1000, solver=Block(rank=5, max_products=1)).fit(
            X, y
        )
    assert not model.converged_ and model.n_iter_ == 1
    with pytest.warns(ConvergenceWarning, match="use solver='block' where it fits"):
        QSGPRegressor(**given, num_basis=200, solver=Stochastic(max_steps=2)).fit(X, y)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_basis": 7}, "num_basis must be even"),
        ({"num_basis": -2}, "num_basis"),
        ({"solver": "magic"}, "solver must be one of"),
        ({"hyperparameters": "guess"}, "hyperparameters must be one of"),
        ({"hyperparameters": "fixed"}, "noise_std"),
        ({"hyperparameters": Fixed(1.0), "kernel": "rbf"}, "kernel must be a Kernel"),
        ({"solver": Stochastic(dense_columns=400)}, "leaves no diagonal column"),
        (
            {"solver": "stochastic", "hyperparameters": Learn(steps=5)},
            r"Learn\(steps=5\) has no effect here: set solver=Stochastic\(max_steps=...\) instead",
        ),
        ({"tol": 0.0}, "tol"),
        ({"max_seconds": -1}, "max_seconds"),
        (
            {"kernel": RBF([1.0, 2.0, 3.0])},
            "kernel has 3 lengthscales but the data have 2 features",
        ),
        ({"kernel": "cubic"}, "kernel must be one of 'rbf'"),
        ({"dtype": "float16"}, "dtype must be one of"),
        ({"checkpoint": "/nowhere/at/all/fit.checkpoint"}, "folder of .* does not exist"),
    ],
)
def test_bad_arguments_are_named(changes, message, data):
    with pytest.raises(ValueError, match=message):
        QSGPRegressor(**({"kernel": "rbf", "num_basis": 200} | changes)).fit(*data)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X, y: (np.where(X > 50, np.nan, X), y), "NaN"),
        (lambda X, y: (X, np.where(y > 105, np.inf, y)), "infinity|inf"),
        (lambda X, y: (X[:, 0], y), "Reshape your data|2D|two dimensions"),
        (lambda X, y: (X[:1], y[:1]), "1 sample|one row|1 row"),
        (lambda X, y: (X, y[:-1]), "rows|length|samples"),
        (lambda X, y: (X.astype(complex), y), "Complex data not supported"),
    ],
)
def test_bad_data_are_named(spoil, message, data):
    with pytest.raises(ValueError, match=message):
        QSGPRegressor("rbf", 200).fit(*spoil(*data))


def test_constant_columns_duplicates_and_constant_targets():
    generator = np.random.default_rng(1)
    X = np.repeat(generator.normal(size=(40, 2)), 5, axis=0)
    X = np.column_stack([X, np.full(200, 3.0)])
    y = np.sin(X[:, 0])
    for solver in (Block(4, max_products=100), Stochastic(max_steps=100)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            arguments = {"solver": solver}
            model = QSGPRegressor("rbf", 100, **arguments).fit(X, y)
            mean, std = model.predict(X, return_std=True)
            assert np.all(np.isfinite(mean)) and np.all(std > 0)
            assert np.sqrt(np.mean((mean - y) ** 2)) < 0.1
            flat = QSGPRegressor("rbf", 100, **arguments).fit(X, np.full(200, 4.2))
            np.testing.assert_allclose(flat.predict(X), 4.2, atol=1e-3)


def test_a_checkpoint_of_another_fit_is_refused(data, tmp_path):
    X, y = data
    path = tmp_path / "fit.checkpoint"
    arguments = {"tol": 1e-30, "dtype": "float64", "checkpoint": path}
    arguments |= {"hyperparameters": Fixed(noise_std=0.7), "solver": Block(rank=3)}
    kernel = RBF([1.0, 20.0], 50.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        QSGPRegressor(kernel, 1000, **arguments, max_seconds=1e-6).fit(X, y)
    assert path.exists()
    with pytest.raises(ValueError, match=r"written by another fit: .*data"):
        QSGPRegressor(kernel, 1000, **arguments).fit(X, y + 1.0)


def test_a_budget_leaves_time_for_products_unless_the_rank_is_given(data, monkeypatch):
    X, y = data
    asked = []

    def affordable(num_rows, seconds):
        asked.append((num_rows, seconds))
        return 7

    monkeypatch.setattr(block_fit, "affordable_rank", affordable)
    given = {"kernel": RBF([1.0, 20.0], 50.0), "num_basis": 2000, "hyperparameters": Fixed(0.7)}
    assert QSGPRegressor(**given).fit(X, y).diagnosis_["rank"] > 7 and not asked
    limited = QSGPRegressor(**given, max_seconds=600.0).fit(X, y)
    assert limited.diagnosis_["rank"] == 7
    ((rows, seconds),) = asked
    assert rows == padded_size(len(y)) and 150.0 < seconds <= 200.0
    chosen = QSGPRegressor(**given, max_seconds=600.0, solver=Block(rank=9)).fit(X, y)
    assert chosen.diagnosis_["rank"] == 9 and len(asked) == 1


def test_the_affordable_rank_follows_from_the_rate_of_a_product(monkeypatch):
    clock = iter([0.0, 1e-3])  # 768^3 * 2 operations in a millisecond
    monkeypatch.setattr("vastgp.solvers.plan.now", lambda: next(clock))
    # 2 n k^2 operations at a tenth of that rate, in four seconds
    assert affordable_rank(10_000, 4.0) == int((4.0 * 2e3 * 768**3 / (2.0 * 10_000 * 10.0)) ** 0.5)


def test_num_basis_left_open_grows_with_the_rows():
    chosen = Chosen(Subset(), Fourier(), "auto")
    rows = (10, 315, 400, 2_000, 10_000, 100_000, 1_000_000)
    found = [choose_size(chosen, None, n, "float32") for n in rows]
    assert found == [
        (size, Block()) for size in (2_000, 7_874, 10_000, 30_000, 40_000, 100_000, 20_000)
    ]
    many = choose_size(chosen, 20_000_000, 20_000_000, "float32")
    assert many == (20_000_000, Stochastic())


@pytest.mark.parametrize("solver", [Block(4, max_products=20), Stochastic(max_steps=20)])
def test_pickles_and_copies_keep_double_precision(data, solver):
    """Also where they are made and loaded outside of double precision."""
    X, y = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = QSGPRegressor(
            RBF([1.0, 20.0], 50.0), 40, hyperparameters=Fixed(noise_std=0.7), solver=solver,
            dtype="float64",
        ).fit(X[:100], y[:100])  # fmt: skip
    right = model.predict(X[:20], return_std=True)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.predict(X[:20], return_std=True), right)


def test_learning_that_has_converged_leaves_nothing_to_learn():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 4))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=60)
    common = {"num_basis": 200, "dtype": "float64", "solver": Block(rank=20)}
    short, long = (
        QSGPRegressor("rbf", tol=tol, hyperparameters=Learn(rows=20), **common).fit(X, y)
        for tol in (0.1, 0.01)
    )
    assert short.converged_ and long.converged_
    new = rng.normal(size=(100, 4))
    (mean, std), (better, best) = (model.predict(new, return_std=True) for model in (short, long))
    moved = np.log(std / best) + 0.5 * (best**2 + (better - mean) ** 2) / std**2 - 0.5
    assert np.mean(moved) < 0.5 * 0.1**2
    with pytest.warns(ConvergenceWarning, match="2 steps of learning did not end"):
        few = QSGPRegressor("rbf", hyperparameters=Learn(rows=20, steps=2), **common).fit(X, y)
    assert not few.converged_
