"""The log evidence of the model with random features."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.fitting.exact_evidence import ExactEvidence, resolving_rate
from vastgp.kernels import RBF, Matern32
from vastgp.solvers.basis_evidence import BasisEvidence

KERNEL = Matern32([1.0, 2.0, 0.7], 1.3)
# What 1000 rows of Friedman's function ask for: sums in float32 leave eigenvalues of -0.07.
SMOOTH = RBF([2.0, 3.0, 2.5], 6500.0)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    return X, np.sin(X[:, 0]) + 0.5 * rng.normal(size=150)


def evidence_of(rows, num_basis):
    return BasisEvidence(*rows, RandomFourierBasis(KERNEL, seed_key(3), num_basis))


@pytest.mark.parametrize(
    ("kernel", "num_basis", "noise"),
    [(KERNEL, 60, 0.3), (KERNEL, 1200, 0.3), (SMOOTH, 1200, 0.004)],
    ids=["part of a block", "several blocks", "variance far above the noise"],
)
def test_it_is_the_density_of_the_model(rows, kernel, num_basis, noise):
    X, y = rows
    basis = RandomFourierBasis(kernel, seed_key(3), num_basis)
    phi = basis.features(jnp.asarray(X, jnp.float32), jnp.arange(num_basis // 2))
    phi = np.asarray(phi, float).reshape(len(X), -1)
    expected = multivariate_normal(np.zeros(150), phi @ phi.T + noise * np.eye(150)).logpdf(y)
    # features of the large variance are rounded to 1e-6, a white noise of 1e-12 beside that of 0.004
    assert evidence_of(rows, num_basis)(kernel, noise) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("kernel", "noise", "rel"), [(KERNEL, 0.3, 0.02), (SMOOTH, 0.004, 0.005)])
def test_gradients_are_finite_differences(rows, kernel, noise, rel):
    evidence = evidence_of(rows, 1200)
    value, (by_kernel, by_noise) = evidence.value_and_gradient(kernel, noise)
    assert value == evidence(kernel, noise)

    def difference(h, to_arguments):
        above, below = evidence(*to_arguments(1 + h)), evidence(*to_arguments(1 - h))
        return (above - below) / (2 * h)

    make, scales, variance = type(kernel), kernel.lengthscales, kernel.variance
    for place in range(3):
        unit = np.eye(3)[place]
        slope = difference(
            1e-2, lambda r, unit=unit: (make(scales * r**unit, variance), noise)
        )  # fmt: skip
        found = scales[place] * by_kernel.lengthscales[place]
        assert found == pytest.approx(slope, rel=rel, abs=0.05)
    slope = difference(1e-2, lambda r: (make(scales, variance * r), noise))
    assert variance * by_kernel.variance == pytest.approx(slope, rel=rel, abs=0.05)
    assert noise * by_noise == pytest.approx(
        difference(1e-3, lambda r: (kernel, noise * r)), rel=1e-3
    )


def test_many_features_give_the_exact_evidence(rows):
    exact = ExactEvidence(*rows)(KERNEL, 0.3)
    gaps = [abs(evidence_of(rows, m)(KERNEL, 0.3) - exact) for m in (200, 200_000)]
    assert gaps[0] > 2.0
    assert gaps[1] < 0.3


def test_few_features_make_it_ask_for_more_noise(rows):
    """A kernel that reaches no other row: features spread its spectrum, and only noise explains the target."""
    X, _ = rows
    y = np.random.default_rng(1).normal(size=len(X))
    short = Matern32([0.01, 0.01, 0.01], 0.8)
    exact_gain = ExactEvidence(X, y)(Matern32([0.01] * 3, 0.1), 0.9) - ExactEvidence(X, y)(
        short, 0.2
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
