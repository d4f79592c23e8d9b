"""Scales that the rows nearest to a place have: the law, what is learned by, and what is predicted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2, multivariate_t, norm
from scipy.stats import t as student

import vastgp
from vastgp import RBF, GPRegressor, Matern32, SWSGPRegressor
from vastgp._precision import precision
from vastgp.kernels.matrices import covariance
from vastgp.likelihoods import Gaussian, LocallyScaled, from_spec, to_spec
from vastgp.methods.swsgp.local_scale import LocalScale, Scattered, local_scale_of
from vastgp.methods.swsgp.nearest_posterior import NearestPosterior
from vastgp.methods.swsgp.neighbour_evidence import NeighbourEvidence, nearest_others
from vastgp.options import Subset
from vastgp.solvers.neighbour_systems import solve_each

KERNEL = Matern32([1.0, 2.5], 1.5)
NOISE = 0.09


def table(n=40, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.uniform(-2.0, 2.0, size=(n, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.3 * generator.normal(size=n), generator


def posterior(X, y, neighbors, scale=None):
    return NearestPosterior(
        KERNEL, X, y[:, None], np.zeros((len(X), 1)), neighbors, 1e-10,
        noise=np.full(len(X), NOISE), noise_variance=NOISE, scale=scale,
    )  # fmt: skip


def law(**more):
    plain = {
        "worth": 3.0,
        "reach": 5.0,
        "degrees": 8.0,
        "factor": 1.3,
        "power": 0.7,
        "of_variance": 1.4,
    }
    plain |= {"of_noise": 0.6, "middle": 0.2, "least": 0.01, "most": 1.0}
    return LocalScale(**(plain | more))


# ---------------------------------------------------------------- the likelihood


def test_an_observation_is_normal_given_a_factor_of_mean_one_that_is_not_known():
    likelihood, nu = LocallyScaled(0.4, 7.0), 7.0
    mean, variance = np.array([[0.3], [0.5]]), np.array([[0.2], [0.0]])
    both = 0.2 + 0.4 * np.exp(0.5)

    def given(chi, y):
        # (nu - 2) / u is chi-squared with nu degrees of freedom
        return norm.pdf(y, 0.3, np.sqrt((nu - 2.0) / chi * both)) * chi2.pdf(chi, nu)

    expected = quad(given, 0.0, 200.0, args=(1.1,))[0]
    found = likelihood.log_density(np.array([1.1]), mean, variance)
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-7)
    np.testing.assert_allclose(likelihood.predictive_variance(mean, variance), [both])
    below = likelihood.distribution(np.array([1.1]), mean, variance)
    density = quad(lambda y: np.exp(likelihood.log_density(y, mean, variance))[0], -60.0, 1.1)[0]
    np.testing.assert_allclose(below, density, rtol=1e-6)


def test_it_is_read_from_files_and_not_for_models_to_be_fitted_by():
    for given in (LocallyScaled(0.4, 7.0), Gaussian(0.4)):  # what models are fitted by
        assert to_spec(given.in_units(3.0).to_fit) == to_spec(Gaussian(0.4 * 9.0))
    likelihood = from_spec(to_spec(LocallyScaled(0.4, 7.0)))
    assert isinstance(likelihood, LocallyScaled) and float(likelihood.degrees_of_freedom) == 7.0
    scaled = likelihood.in_units(3.0)
    np.testing.assert_allclose(float(scaled.noise_variance), 3.6)
    with pytest.raises(ValueError, match="degrees_of_freedom must be above 2"):
        LocallyScaled(0.4, 2.0)
    X, y, _ = table()
    with pytest.raises(ValueError, match="likelihood must be one of"):
        SWSGPRegressor(likelihood=likelihood).fit(X, y)


# ---------------------------------------------------------------- the law


def test_squares_are_of_what_each_target_is_off_by_given_nearer_ones():
    X, y, generator = table()
    new = generator.uniform(-2.0, 2.0, size=(5, 2))
    plain = posterior(X, y, 6)
    mean, variance, squares = plain._scattered(new, None)
    np.testing.assert_allclose([mean, variance], plain.mean_and_latent_variance(new), rtol=1e-8)
    near = plain.index.query(new, 6)
    for row in range(5):
        for j in range(6):
            before, at = X[near[row, :j]], X[near[row, j]][None]
            K = covariance(KERNEL, before, before) + NOISE * np.eye(j)
            k = covariance(KERNEL, at, before)[0]
            a = np.linalg.solve(K, k) if j else np.zeros(0)
            off = y[near[row, j]] - a @ y[near[row, :j]]
            expected = off**2 / (1.5 + NOISE - k @ a)
            np.testing.assert_allclose(squares[row, j], expected, rtol=1e-6)


def test_the_law_is_the_formula():
    scale = law()
    variance, noise = np.array([0.05, 0.001, 4.0]), np.array([0.1, 0.2, 0.3])
    squares = np.random.default_rng(0).uniform(size=(3, 4))
    of_function, of_noise = scale.squares(variance, noise, squares)
    for row in range(3):
        weights = [np.exp(-j / 5.0) for j in range(4)]
        s = (3.0 + sum(np.multiply(weights, squares[row]))) / (3.0 + sum(weights))
        inside = min(max(variance[row], 0.01), 1.0)
        v = 0.2 * (inside / 0.2) ** 1.4 * variance[row] / inside
        np.testing.assert_allclose(of_function[row], 1.3 * s**0.7 * v, rtol=1e-12)
        np.testing.assert_allclose(of_noise[row], 1.3 * s**0.7 * 0.6 * noise[row], rtol=1e-12)
    rows = Scattered(np.array([0.3, -0.1, 2.0]), variance, noise, squares)
    expected = student.logpdf(rows.off, 8.0, 0.0, np.sqrt(of_function + of_noise))
    np.testing.assert_allclose(scale.log_density(rows), expected, rtol=1e-10)


def test_slopes_of_the_law_are_those_of_finite_differences():
    rows, _ = _drawn(np.random.default_rng(0), 50, True)
    point, step = np.array([0.5, 1.5, -0.5, 0.3, 0.7, 1.4, -0.6]), 1e-6
    law_there = LocalScale.of_vector(point, rows)
    value, slopes = law_there.value_and_slopes(rows)
    np.testing.assert_allclose(value, np.mean(law_there.log_density(rows)), rtol=1e-12)
    for number in range(7):
        move = step * np.eye(7)[number]
        above, below = (
            np.mean(LocalScale.of_vector(point + sign * move, rows).log_density(rows))
            for sign in (1.0, -1.0)
        )
        np.testing.assert_allclose(
            slopes[number], (above - below) / (2.0 * step), rtol=1e-5, atol=1e-9
        )


def test_predictions_are_on_the_scale_of_the_law():
    X, y, generator = table()
    new = generator.uniform(-2.0, 2.0, size=(5, 2))
    scale = law()
    plain, scaled = posterior(X, y, 6), posterior(X, y, 6, scale)
    mean, variance, squares = plain._scattered(new, None)
    of_function, of_noise = scale.squares(variance, np.full(5, NOISE), squares)
    means, variances = scaled.mean_and_latent_variance(new)
    y_new = mean + generator.normal(size=5)
    expected = student.logpdf(y_new, 8.0, mean, np.sqrt(of_function + of_noise))
    np.testing.assert_allclose(
        scaled.likelihood.log_density(y_new, means, variances), expected, rtol=1e-9
    )
    drawn = scaled.samples(new, 40_000, 0)[:, 0]
    np.testing.assert_allclose(drawn.var(axis=1) / variances[0], 1.0, atol=0.06)
    np.testing.assert_allclose(drawn.mean(axis=1), mean, atol=0.02)


def _drawn(generator, n, varies):
    """Rows whose variances are right, or right up to a factor that their neighbours share."""
    factor = np.exp(generator.normal(size=n)) if varies else np.ones(n)
    variance, noise = generator.uniform(0.1, 1.0, size=n), np.full(n, 0.05)
    squares = factor[:, None] * generator.chisquare(1, size=(n, 32))
    off = np.sqrt(factor * (variance + noise)) * generator.normal(size=n)
    return Scattered(off, variance, noise, squares), factor


def test_a_law_is_kept_where_rows_have_scales_of_their_own_and_only_there():
    generator = np.random.default_rng(0)
    assert local_scale_of(_drawn(generator, 1000, False)[0])[0] is None
    rows, _ = _drawn(generator, 1000, True)
    found, gain = local_scale_of(rows)
    new, factor = _drawn(generator, 4000, True)
    truth = norm.logpdf(new.off, 0.0, np.sqrt(factor * (new.variance + new.noise)))
    one = new.times(rows.factor).log_density()
    # 32 squares tell a scale to a quarter: a sixty-fourth of a nat each
    assert np.mean(truth - found.log_density(new)) < 0.04
    np.testing.assert_allclose(gain, np.mean(found.log_density(new) - one), atol=0.08)
    # fewer rows than tell seven numbers
    assert local_scale_of(rows.of(slice(0, 390)))[0] is None


# ---------------------------------------------------------------- what is learned by


def test_terms_are_those_of_a_student_process_given_neighbours():
    X, y, _ = table(30)
    chosen = np.array([0, 4, 17])
    near = nearest_others(KERNEL, X, chosen, 5)
    likelihood = Gaussian(NOISE)
    found = NeighbourEvidence(X, y, chosen, near, 1e-12, 4.0).objective((KERNEL, likelihood))[0]
    expected, on_own = 0.0, []
    for row, others in zip(chosen, near, strict=True):
        both = np.append(others, row)
        K = covariance(KERNEL, X[both], X[both]) + NOISE * np.eye(6)
        # of all six less that of the neighbours
        of_both = multivariate_t.logpdf(y[both], np.zeros(6), K, 4.0)
        on_own.append(of_both - multivariate_t.logpdf(y[others], np.zeros(5), K[:5, :5], 4.0))
        expected += on_own[-1]
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    # and as those that judge have it
    rows = posterior(X, y, 5).scattered(chosen, near)
    np.testing.assert_allclose(rows.on_own_scale(4.0, 5), on_own, rtol=1e-6)
    plain = NeighbourEvidence(X, y, chosen, near, 1e-12).objective((KERNEL, likelihood))[0]
    nearly = NeighbourEvidence(X, y, chosen, near, 1e-12, 1e8).objective((KERNEL, likelihood))[0]
    np.testing.assert_allclose(nearly, plain, atol=1e-5)


def test_slopes_are_those_of_finite_differences():
    X, y, _ = table(30)
    chosen = np.arange(8)
    evidence = NeighbourEvidence(X, y, chosen, nearest_others(KERNEL, X, chosen, 5), 1e-10, 4.0)

    def at(lengthscale, variance, noise):
        return evidence.objective((Matern32([lengthscale, 2.5], variance), Gaussian(noise)))

    point, step = np.array([1.0, 1.5, NOISE]), 1e-5
    _, (kernel, noise) = at(*point)
    slopes = [float(kernel.lengthscales[0]), float(kernel.variance), float(noise)]
    for number in range(3):
        move = step * np.eye(3)[number]
        difference = (at(*(point + move))[0] - at(*(point - move))[0]) / (2.0 * step)
        np.testing.assert_allclose(slopes[number], difference, rtol=1e-5)


def test_several_right_sides_of_each_system():
    generator = np.random.default_rng(0)
    A = generator.normal(size=(3, 4, 4))
    K, right = A @ A.swapaxes(1, 2) + np.eye(4), generator.normal(size=(3, 4, 2))
    weights = generator.normal(size=(3, 4, 2))
    with precision("float64"):
        K, right, weights = map(jnp.asarray, (K, right, weights))
        np.testing.assert_allclose(solve_each(K, right), np.linalg.solve(K, right), rtol=1e-10)

        def value(K, right):
            return (solve_each(0.5 * (K + K.swapaxes(1, 2)), right) * weights).sum()

        by_K, by_right = jax.grad(value, argnums=(0, 1))(K, right)
    move = 1e-6 * generator.normal(size=K.shape)
    with precision("float64"):
        along = (value(K + move, right) - value(K - move, right)) / 2.0
    np.testing.assert_allclose(np.sum(np.asarray(by_K) * move), along, rtol=1e-5)
    np.testing.assert_allclose(by_right, np.linalg.solve(K, weights), rtol=1e-10)


# ---------------------------------------------------------------- the estimator


def patches(n, seed):
    """A function that is ten times as large, with its noise, in every second stripe."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(0.0, 10.0, size=(n, 2))
    large = np.where(np.floor(X[:, 0] / 2.5) % 2 > 0, 1.0, 0.1)
    return X, large * (np.sin(2.0 * X[:, 1]) + 0.2 * generator.normal(size=n)), large


@pytest.fixture(scope="module")
def fitted():
    X, y, _ = patches(2000, 0)
    options = {"num_neighbors": 40, "solver": "nearest", "hyperparameters": Subset(rows=300)}
    models = [
        SWSGPRegressor("matern32", likelihood=name, **options).fit(X, y)
        for name in ("gaussian", "heteroskedastic")
    ]
    return models


def test_intervals_hold_what_they_say_where_the_scale_is_small_and_large(fitted):
    X, y, large = patches(4000, 1)
    one, own = fitted
    assert own.diagnosis_["noise_varies"] and own.diagnosis_["noise_gain"] > 0.3
    density = [model.log_predictive_density(X, y).mean() for model in fitted]
    assert density[1] > density[0] + 0.4
    low, high = own.predict_quantiles(X, (0.025, 0.975)).T
    for part in (large == 1.0, large == 0.1):
        assert abs(np.mean((y > low)[part] & (y < high)[part]) - 0.95) < 0.03
    # one scale for all is too narrow in half of the places
    low, high = one.predict_quantiles(X, (0.025, 0.975)).T
    assert np.mean(((y > low) & (y < high))[large == 1.0]) < 0.9


def test_one_scale_is_the_answer_where_rows_say_so():
    X, y, _ = table(800)
    options = {"num_neighbors": 20, "solver": "nearest", "hyperparameters": Subset(rows=200)}
    model = SWSGPRegressor("matern32", likelihood="heteroskedastic", **options).fit(X, y)
    assert not model.diagnosis_["noise_varies"] and isinstance(model.likelihood_, Gaussian)


def test_a_file_holds_the_scale(fitted, tmp_path):
    X = patches(50, 2)[0]
    own = fitted[1]
    own.save(tmp_path / "model.vastgp")
    back = vastgp.load(tmp_path / "model.vastgp")
    np.testing.assert_array_equal(back.predict_quantiles(X), own.predict_quantiles(X))
    np.testing.assert_array_equal(back.sample_y(X, 3), own.sample_y(X, 3))
    assert isinstance(back.likelihood_, LocallyScaled)


def test_the_front_door_takes_it_for_noise_of_any_kind_and_one_noise_for_normal():
    X, y, _ = patches(600, 3)
    varies = GPRegressor(method="nearest", max_seconds=20.0).fit(X, y)
    assert isinstance(varies.model_.likelihood_, LocallyScaled)
    normal = GPRegressor(method="nearest", likelihood="gaussian", max_seconds=20.0)
    assert isinstance(normal.fit(X, y).model_.likelihood_, Gaussian)
    # beside known errors another noise is refused, however few the rows are
    normal.fit(X[:60], y[:60], noise_std=np.full(60, 0.05))
    assert isinstance(normal.model_.likelihood_, Gaussian)


def test_it_takes_no_errors_of_rows_own():
    X, y, _ = table()
    model = SWSGPRegressor(RBF(), solver="nearest", likelihood="heteroskedastic")
    with pytest.raises(ValueError, match="noise_std says what the rows' noise is"):
        model.fit(X, y, noise_std=np.ones(len(y)))
