"""The kernel of linear functions: closed forms, and what holds for kernels whose variance grows away from the mean."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import vastgp
from vastgp import kernels
from vastgp._precision import precision
from vastgp.kernels import RBF, Constant, Linear, Matern32, Periodic
from vastgp.kernels.metric import falls_with_distance, metric_lengthscales, shortened
from vastgp.options import Fixed, Natural, Sparse
from vastgp.solvers.exact_posterior import ExactPosterior
from vastgp.solvers.prior_draws import PriorDraws

TREND = Matern32([0.8, 1.5], 0.6) + Linear([0.3, 2.0])
LEVEL = RBF([0.8, 1.5], 0.6) + Constant(2.0)


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(60, 2))


@pytest.fixture
def table():
    """A wave along one input, a trend along the other."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-3.0, 3.0, (150, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.8 * X[:, 1] + 0.1 * rng.standard_normal(150)
    return X, y


def matrix(kernel, X, Z):
    with precision("float64"):
        return np.asarray(kernel(jnp.asarray(X), jnp.asarray(Z)))


@pytest.mark.parametrize(
    "kernel",
    [
        Linear(0.7),
        TREND,
        LEVEL,
        RBF(1.2) * Linear(0.4),
        Periodic(2.0) + Linear(),
        RBF() * Matern32(),
    ],
    ids=str,
)
def test_prior_variances_are_the_diagonal_of_the_matrix(kernel, X):
    with precision("float64"):
        got = np.asarray(kernel.diag(jnp.asarray(X)))
    np.testing.assert_allclose(got, np.diag(matrix(kernel, X, X)), rtol=1e-12)


def test_functions_are_linear_in_the_inputs(X):
    """A process with this kernel is Bayesian linear regression with independent normal slopes."""
    rng = np.random.default_rng(2)
    variances, noise = np.array([0.5, 2.0]), 0.3
    y = X @ rng.normal(size=2) + noise**0.5 * rng.normal(size=60)
    posterior, evidence = ExactPosterior.condition(Linear(variances), noise, X, y)
    precision_matrix = np.diag(1.0 / variances) + X.T @ X / noise
    slopes = np.linalg.solve(precision_matrix, X.T @ y / noise)
    new = 10.0 * rng.normal(size=(20, 2))
    mean, variance = posterior.mean_and_latent_variance(new)
    np.testing.assert_allclose(mean, new @ slopes, rtol=1e-9)
    expected = np.einsum("ij,ij->i", new, np.linalg.solve(precision_matrix, new.T).T)
    np.testing.assert_allclose(variance, expected, rtol=1e-7)
    covariance = (X * variances) @ X.T + noise * np.eye(60)
    np.testing.assert_allclose(evidence, multivariate_normal(cov=covariance).logpdf(y), rtol=1e-9)


@pytest.mark.parametrize("estimator", ["SVGPRegressor", "TSVGPRegressor", "SWSGPRegressor"])
def test_sparse_methods_reach_the_exact_process_where_all_rows_are_inducing(estimator, table):
    """Mean, variance and samples, also where the trend has left the data far behind."""
    X, y = table
    options = {"hyperparameters": Fixed(noise_std=0.1), "kernel": TREND, "random_state": 0}
    exact = vastgp.ExactGPRegressor(TREND, hyperparameters=Fixed(noise_std=0.1)).fit(X, y)
    apart = 2e-3
    if estimator == "SWSGPRegressor":
        apart = 0.05  # the covariance of its inducing variables is diagonal
        more = {"num_neighbors": 150, "solver": Sparse(jitter=1e-9, tol=1e-7)}
    else:
        more = {}
    model = getattr(vastgp, estimator)(num_inducing=150, **more, **options).fit(X, y)
    new = np.random.default_rng(3).uniform(-3.0, 3.0, (40, 2)) + np.array([0.0, 6.0])
    expected, found = exact.predict(new, return_std=True), model.predict(new, return_std=True)
    np.testing.assert_allclose(found[0], expected[0], atol=2e-4)
    np.testing.assert_allclose(found[1], expected[1], rtol=apart)
    # more rows than a covariance is factorised for: samples are functions then
    many = np.repeat(new, 60, axis=0)
    for rows in (new, many):
        samples = model.sample_y(rows, 400, random_state=0)[:: len(rows) // len(new)]
        error = np.mean(samples, axis=1) - expected[0]
        assert np.all(np.abs(error) < 4.5 * expected[1] / 400**0.5)
        ratio = np.std(samples, axis=1) / expected[1]
        # the standard error of a standard deviation, and what waves err by
        assert np.all(np.abs(ratio - 1.0) < 4.5 / 800**0.5 + 0.05 + apart)


def test_trends_go_on_beyond_the_data(table):
    """Learned hyperparameters find the trend: 6 units beyond the data the error stays at that of the slope."""
    X, y = table
    new = np.random.default_rng(4).uniform(-3.0, 3.0, (50, 2)) + np.array([0.0, 6.0])
    truth = np.sin(2.0 * new[:, 0]) + 0.8 * new[:, 1]
    model = vastgp.ExactGPRegressor("matern32 + linear").fit(X, y)
    assert np.sqrt(np.mean((model.predict(new) - truth) ** 2)) < 0.1
    wave, trend = model.kernel_.parts
    assert wave.lengthscales[1] > 20.0
    assert trend.slope_variances[0] < 0.01 < trend.slope_variances[1]


def test_neighbours_are_those_of_the_part_that_falls_with_distance():
    np.testing.assert_allclose(metric_lengthscales(TREND, 2), [0.8, 1.5])
    np.testing.assert_allclose(metric_lengthscales(RBF([1.0, 2.0]) * Linear(), 2), [1.0, 2.0])
    np.testing.assert_allclose(metric_lengthscales(Linear([4.0, 0.25]), 2), [0.5, 2.0])
    np.testing.assert_allclose(metric_lengthscales(LEVEL, 2), [0.8, 1.5])
    np.testing.assert_allclose(metric_lengthscales(Constant(), 2), [1.0, 1.0])


@pytest.mark.parametrize("level", [Constant(), Constant(9.0) * Constant(2.0)])
def test_a_constant_beside_a_line_says_nothing_of_its_inputs(level):
    """A line of inputs in other units has the distance of the line alone, which knows of the units."""
    line = Linear([1e-12, 4.0])
    alone = metric_lengthscales(line, 2)
    np.testing.assert_allclose(alone, [1e6, 0.5])
    np.testing.assert_allclose(metric_lengthscales(level + line, 2), alone)
    assert not falls_with_distance(level + line)
    assert falls_with_distance(level + line + RBF())


def test_lengthscales_are_shortened_and_nothing_else():
    kernel = RBF([0.5, 300.0], 2.0) * Matern32(40.0) + Linear([50.0, 1.0]) + Constant(30.0)
    expected = RBF([0.5, 10.0], 2.0) * Matern32(10.0) + Linear([50.0, 1.0]) + Constant(30.0)
    assert str(shortened(kernel, 10.0)) == str(expected)


@pytest.mark.parametrize("kernel", [TREND, LEVEL], ids=str)
def test_draws_of_the_prior_have_its_covariance(X, kernel):
    """All entries within 4.5 standard errors over 4000 draws, and what 4096 waves err by."""
    draws = PriorDraws(kernel, 4000, 2, np.random.default_rng(5))(X[:8])
    exact = matrix(kernel, X[:8], X[:8])
    products = draws[:, None, :] * draws[None, :, :]
    error = np.mean(products, axis=2) - exact
    assert np.all(
        np.abs(error) < 4.5 * np.std(products, axis=2) / 4000**0.5 + 4.5 * 0.6 / 4096**0.5
    )


def test_a_constant_is_a_level_with_a_normal_prior():
    """Its posterior is that of the mean of a normal sample; learned, it is found where targets are centred wrongly."""
    rng = np.random.default_rng(6)
    y = 1.5 + 0.4 * rng.standard_normal(50)
    posterior, _ = ExactPosterior.condition(Constant(2.0), 0.16, rng.normal(size=(50, 3)), y)
    mean, variance = posterior.mean_and_latent_variance(np.full((1, 3), 9.0))
    expected = 1.0 / (1.0 / 2.0 + 50 / 0.16)
    np.testing.assert_allclose(variance, expected, rtol=1e-9)
    np.testing.assert_allclose(mean, expected * np.sum(y) / 0.16, rtol=1e-9)


@pytest.mark.parametrize("estimator", ["ExactGPRegressor", "TSVGPRegressor", "SWSGPRegressor"])
def test_a_learned_level_is_where_the_function_returns_to(estimator):
    """Most rows on a bump: far away the prediction is the level around it, not the mean of the targets."""
    rng = np.random.default_rng(7)
    X = np.concatenate([rng.uniform(-0.3, 0.3, (96, 1)), rng.uniform(-5.0, 5.0, (24, 1))])
    y = 5.0 + 3.0 * np.exp(-20.0 * X[:, 0] ** 2) + 0.05 * rng.standard_normal(120)
    more = {} if estimator == "ExactGPRegressor" else {"num_inducing": 24}
    if estimator == "TSVGPRegressor":
        more["solver"] = Natural(max_steps=60)
    model = getattr(vastgp, estimator)("rbf + constant", **more).fit(X, y)
    away = np.array([[30.0], [-40.0]])
    assert np.all(np.abs(model.predict(away) - 5.0) < 0.3) and np.mean(y) > 6.0
    if estimator == "ExactGPRegressor":
        plain = vastgp.ExactGPRegressor("rbf").fit(X, y)
        np.testing.assert_allclose(plain.predict(away), np.mean(y), atol=1e-3)


def test_units_of_a_level_are_those_of_the_target():
    assert Constant(2.0).in_units(np.array([2.0, 0.5]), 3.0).variance == 18.0


def test_units_scale_slopes_against_the_inputs():
    scaled = Linear([1.0, 1.0]).in_units(np.array([2.0, 0.5]), 3.0)
    np.testing.assert_allclose(scaled.slope_variances, [2.25, 36.0])


def test_survives_a_file(tmp_path, table):
    model = vastgp.SVGPRegressor(
        "matern32 + linear", num_inducing=20, hyperparameters="subset", random_state=0
    )
    model.fit(*table).save(tmp_path / "model.vastgp")
    loaded = vastgp.load(tmp_path / "model.vastgp")
    assert str(loaded.kernel_) == str(model.kernel_)
    np.testing.assert_array_equal(loaded.predict(table[0]), model.predict(table[0]))


def test_names_make_sums_of_products():
    kernel = kernels.from_name("rbf*linear + Matern12")
    assert str(kernel) == str(RBF() * Linear() + kernels.Matern12())
    for bad in ("rbf + quadratic", "rbf +", ""):
        with pytest.raises(ValueError, match=r"kernel must be one of 'rbf'.*received"):
            kernels.from_name(bad)


@pytest.mark.parametrize(
    "model",
    [
        vastgp.QSGPRegressor(kernel=TREND),
        vastgp.QSGPRegressor(kernel="matern32 + linear", basis="inducing"),
        vastgp.QSGPClassifier(kernel=TREND),
        vastgp.IterativeGPRegressor(kernel=TREND),
        vastgp.RandomFeatureGPRegressor(kernel=TREND),
        vastgp.ReweightedBasisRegressor(kernel=TREND),
        vastgp.DirectRegressor(kernel=TREND),
    ],
    ids=lambda model: f"{type(model).__name__}",
)
def test_methods_made_of_waves_refuse_it_before_any_work(model, table):
    X, y = table
    y = y > 0.0 if isinstance(model, vastgp.QSGPClassifier) else y
    with pytest.raises(
        ValueError, match=r"Linear kernel does not fall with distance.*SVGPRegressor"
    ):
        model.fit(X, y)


def test_methods_made_of_waves_refuse_a_constant(table):
    with pytest.raises(ValueError, match="Constant kernel does not fall with distance"):
        vastgp.QSGPRegressor(kernel="rbf + constant").fit(*table)


def test_grids_refuse_it(table):
    with pytest.raises(ValueError, match="does not factor over the inputs"):
        vastgp.GriefRegressor(kernel="matern32 + linear").fit(*table)


def test_what_is_no_slope_variance_is_refused():
    with pytest.raises(
        ValueError, match="slope_variances must be positive and finite, received -1"
    ):
        Linear(-1.0)
    with pytest.raises(ValueError, match="3 slope variances but the data have 2 features"):
        vastgp.ExactGPRegressor(Linear([1.0, 1.0, 1.0])).fit(np.eye(2), [0.0, 1.0])
