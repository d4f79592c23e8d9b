"""The log evidence of the model with random features."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.fitting.exact_evidence import exact_log_evidence, resolving_rate
from vastgp.kernels import RBF, Matern32
from vastgp.solvers.basis_evidence import BasisEvidence

KERNEL = Matern32([1.0, 2.0, 0.7], 1.3)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    return X, np.sin(X[:, 0]) + 0.5 * rng.normal(size=150)


def evidence_of(rows, num_basis):
    return BasisEvidence(*rows, RandomFourierBasis(KERNEL, seed_key(3), num_basis))


@pytest.mark.parametrize("num_basis", [60, 1200])  # one block, part of a block and several
def test_it_is_the_density_of_the_model(rows, num_basis):
    X, y = rows
    basis = RandomFourierBasis(KERNEL, seed_key(3), num_basis)
    phi = basis.features(jnp.asarray(X, jnp.float32), jnp.arange(num_basis // 2))
    phi = np.asarray(phi, float).reshape(len(X), -1)
    expected = multivariate_normal(np.zeros(150), phi @ phi.T + 0.3 * np.eye(150)).logpdf(y)
    assert evidence_of(rows, num_basis)(KERNEL, 0.3) == pytest.approx(expected, abs=2e-3)


def test_gradients_are_finite_differences(rows):
    evidence = evidence_of(rows, 1200)
    value, (by_kernel, by_noise) = evidence.value_and_gradient(KERNEL, 0.3)
    assert value == evidence(KERNEL, 0.3)

    def difference(step, to_arguments):
        above, below = evidence(*to_arguments(step)), evidence(*to_arguments(-step))
        return (above - below) / (2 * step)

    for place in range(3):
        unit = np.eye(3)[place]
        slope = difference(
            1e-2, lambda h, unit=unit: (Matern32([1.0, 2.0, 0.7] + h * unit, 1.3), 0.3)
        )
        assert by_kernel.lengthscales[place] == pytest.approx(slope, rel=0.02, abs=0.05)
    slope = difference(1e-2, lambda h: (Matern32([1.0, 2.0, 0.7], 1.3 + h), 0.3))
    assert by_kernel.variance == pytest.approx(slope, rel=0.02, abs=0.05)
    slope = difference(1e-3, lambda h: (KERNEL, 0.3 + h))
    assert by_noise == pytest.approx(slope, rel=1e-3)


def test_many_features_give_the_exact_evidence(rows):
    exact = exact_log_evidence(KERNEL, 0.3, *rows)
    gaps = [abs(evidence_of(rows, m)(KERNEL, 0.3) - exact) for m in (200, 200_000)]
    assert gaps[0] > 2.0
    assert gaps[1] < 0.3


def test_few_features_make_it_ask_for_more_noise(rows):
    """A kernel that reaches no other row: features spread its spectrum, and only noise explains the target."""
    X, _ = rows
    y = np.random.default_rng(1).normal(size=len(X))
    short = Matern32([0.01, 0.01, 0.01], 0.8)
    exact_gain = exact_log_evidence(Matern32([0.01] * 3, 0.1), 0.9, X, y) - exact_log_evidence(
        short, 0.2, X, y
    )
    evidence = evidence_of(rows, 300)
    gain = evidence(Matern32([0.01] * 3, 0.1), 0.9) - evidence(short, 0.2)
    assert abs(exact_gain) < 1e-6
    assert gain > 8.0


def test_resolving_rates_of_known_kernels():
    """Far apart: nothing is resolved. A smooth function of one input: its few coefficients are averages, 1/n."""
    rng = np.random.default_rng(2)
    assert resolving_rate(RBF([0.01]), 0.1, rng.uniform(-500, 500, (400, 1))) < 0.02
    assert resolving_rate(RBF([1.0]), 0.1, rng.uniform(-2, 2, (400, 1))) == pytest.approx(
        1.0, abs=0.15
    )
    middle = resolving_rate(Matern32([1.0] * 4), 0.1, rng.normal(size=(800, 4)))
    assert 0.2 < middle < 0.8
