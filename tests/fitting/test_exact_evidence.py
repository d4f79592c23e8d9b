"""The exact log evidence and its gradient, against dense formulas and finite differences."""

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from vastgp._precision import precision
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.kernels import RBF, Matern12, Matern32, Matern52, Periodic, RationalQuadratic
from vastgp.linalg.cholesky import FactorizationError

KERNELS = {
    "rbf": RBF([0.7, 1.9], 1.3),
    "matern12": Matern12([0.7, 1.9], 1.3),
    "matern32": Matern32([0.7, 1.9], 1.3),
    "matern52": Matern52([0.7, 1.9], 1.3),
    "rational quadratic": RationalQuadratic([0.7, 1.9], 1.3, alpha=0.8),
    "sum": RBF([0.7, 1.9], 1.3) + Matern12([2.0, 0.4], 0.2),
    "product": RBF([0.7, 1.9], 1.3) * RationalQuadratic([2.0, 0.4], 1.1),
    # compiled, for rows padded to 32
    "periodic": Periodic(3.0, [0.7, 1.9], 1.3) * RBF(2.0),
}


def data(n, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_it_is_the_log_density_of_the_observations(kernel):
    X, y = data(23)
    with precision("float64"):
        A = np.asarray(kernel(jax.numpy.asarray(X), jax.numpy.asarray(X))) + 0.2 * np.eye(23)
    expected = multivariate_normal.logpdf(y, cov=A)
    assert ExactEvidence(X, y)(kernel, 0.2) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_the_gradient_is_that_of_finite_differences(kernel):
    evidence = ExactEvidence(*data(20))
    value, (by_kernel, by_noise) = evidence.value_and_gradient(kernel, 0.2)
    assert value == evidence(kernel, 0.2)
    leaves, tree = jax.tree.flatten(kernel)
    step = 1e-5
    for i, (leaf, slope) in enumerate(zip(leaves, jax.tree.leaves(by_kernel), strict=True)):
        for entry in np.ndindex(np.shape(leaf)):
            ends = []
            for sign in (1.0, -1.0):
                moved = np.array(leaf, dtype=float)
                moved[entry] += sign * step
                changed = jax.tree.unflatten(tree, [*leaves[:i], moved, *leaves[i + 1 :]])
                ends.append(evidence(changed, 0.2))
            expected = (ends[0] - ends[1]) / (2.0 * step)
            assert slope[entry] == pytest.approx(expected, rel=1e-6, abs=1e-7)
    expected = (evidence(kernel, 0.2 + step) - evidence(kernel, 0.2 - step)) / (2.0 * step)
    assert by_noise == pytest.approx(expected, rel=1e-6)


def test_calls_do_not_disturb_each_other():
    # the factor lives in memory that is used again
    evidence, kernel = ExactEvidence(*data(40)), KERNELS["rbf"]
    first = evidence.value_and_gradient(kernel, 0.2)
    evidence.value_and_gradient(KERNELS["matern12"], 2.0)
    again = evidence.value_and_gradient(kernel, 0.2)
    assert first[0] == again[0]
    np.testing.assert_array_equal(first[1][0].lengthscales, again[1][0].lengthscales)


def test_repeated_rows_without_noise_get_jitter_and_a_finite_answer():
    X, y = data(10)
    value = ExactEvidence(np.concatenate([X, X]), np.concatenate([y, y]))(RBF(1.0), 1e-18)
    assert np.isfinite(value)


def test_hyperparameters_that_overflow_are_an_error_that_says_so():
    X, y = data(10)
    with pytest.raises(
        FactorizationError, match=r"covariance matrix of the observations.*NaN or inf"
    ):
        ExactEvidence(X, y)(RBF(1.0, 1e308) + RBF(2.0, 1e308), 0.1)


def test_rescaling_finds_the_best_amplitude_and_noise():
    """Against a grid of both; from a start whose noise is a hundred times too small."""
    X, y = data(60)
    evidence = ExactEvidence(X, y)
    start = RBF([0.5, 0.9], 0.2)
    value, kernel, noise = evidence.rescaled(start, 1e-3, (1e-4, 10.0))
    assert value == pytest.approx(ExactEvidence(X, y)(kernel, noise), rel=1e-10)
    np.testing.assert_allclose(kernel.lengthscales, start.lengthscales)
    amplitudes, noises = np.geomspace(0.01, 100.0, 41), np.geomspace(1e-4, 10.0, 41)
    grid = [evidence(start.in_units(1.0, a**0.5), s) for a in amplitudes for s in noises]
    assert max(grid) - 0.02 < value < max(grid) + 1.0
    assert value > evidence(start, 1e-3) + 1.0


def test_rescaling_keeps_to_the_bounds_of_the_noise():
    X, y = data(40)
    evidence = ExactEvidence(X, y)
    for bounds in [(0.5, 10.0), (1e-4, 1e-3)]:
        value, kernel, noise = evidence.rescaled(RBF([0.5, 0.9], 0.2), 1.0, bounds)
        assert bounds[0] * 0.999 <= noise <= bounds[1] * 1.001
        assert value == pytest.approx(ExactEvidence(X, y)(kernel, noise), rel=1e-10)
    constant = ExactEvidence(X, np.zeros(40)).rescaled(RBF([0.5, 0.9], 0.2), 1.0, (1e-4, 10.0))
    assert np.isfinite(constant[0]) and constant[2] > 0.0


@pytest.fixture
def own_noise():
    """Rows whose noise is ``0.3 / w_i + e_i^2``."""
    rng = np.random.default_rng(11)
    X = rng.uniform(-2.0, 2.0, size=(50, 2))
    y = np.column_stack(
        [rng.normal(size=50), rng.uniform(0.3, 3.0, 50), rng.choice([0.0, 0.01, 4.0], 50)]
    )
    return X, y


def test_rows_with_noise_of_their_own_have_the_normal_density_of_it(own_noise):
    X, y = own_noise
    kernel = RBF([0.8, 1.2], 1.4)
    K = 1.4 * np.exp(-0.5 * np.sum(((X[:, None] - X[None]) / [0.8, 1.2]) ** 2, axis=2))
    A = K + np.diag(0.3 * y[:, 1] + y[:, 2])
    expected = multivariate_normal(np.zeros(50), A).logpdf(y[:, 0])
    assert ExactEvidence(X, y)(kernel, 0.3) == pytest.approx(expected, abs=1e-9)


def test_its_slopes_are_finite_differences_with_noise_of_the_rows_own(own_noise):
    evidence = ExactEvidence(*own_noise)
    _, (by_kernel, by_noise) = evidence.value_and_gradient(RBF([0.8, 1.2], 1.4), 0.3)

    def slope(first, second, step=1e-5):
        return (evidence(*first) - evidence(*second)) / (2 * step)

    h = 1e-5
    kernel = RBF([0.8, 1.2], 1.4)
    assert by_noise == pytest.approx(slope((kernel, 0.3 + h), (kernel, 0.3 - h)), rel=1e-6)
    by_variance = slope((RBF([0.8, 1.2], 1.4 + h), 0.3), (RBF([0.8, 1.2], 1.4 - h), 0.3))
    assert float(by_kernel.variance) == pytest.approx(by_variance, rel=1e-6)
    by_length = slope((RBF([0.8 + h, 1.2], 1.4), 0.3), (RBF([0.8 - h, 1.2], 1.4), 0.3))
    assert float(by_kernel.lengthscales[0]) == pytest.approx(by_length, rel=1e-6)


@pytest.mark.parametrize("errors", [False, True])
def test_rescaling_finds_the_highest_evidence_of_amplitude_and_noise(own_noise, errors):
    X, y = own_noise
    y = y.copy()
    y[:, 0] = np.sin(2.0 * X[:, 0]) + np.sqrt(0.05 * y[:, 1] + y[:, 2]) * y[:, 0]
    if not errors:
        y[:, 2] = 0.0
    evidence, kernel = ExactEvidence(X, y), RBF([0.8, 1.2], 4.0)
    value, found, noise = evidence.rescaled(kernel, 0.5, (1e-4, 10.0))
    assert value == pytest.approx(evidence(found, noise), abs=1e-8)
    best = max(
        evidence(RBF([0.8, 1.2], amplitude), each)
        for amplitude in np.geomspace(0.05, 20.0, 25)
        for each in np.geomspace(1e-3, 2.0, 25)
    )
    assert value > best - 0.1
