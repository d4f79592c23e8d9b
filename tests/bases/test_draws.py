"""Frequencies: rotations drawn once say what those of every index say, and nothing waits; factors are independent."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, draws
from vastgp.bases.random_fourier import whole_spectrum
from vastgp.kernels import RBF, Matern32

KEY = np.array([1, 2], np.uint32)


def kernel_of(d, terms):
    one = RBF(np.linspace(0.5, 2.0, d))
    return one if terms == 1 else one + Matern32(np.ones(d), 0.3)


@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("d", [1, 3, 7, 40])
def test_consecutive_pairs_have_the_frequencies_of_any_pairs(d, terms):
    basis = RandomFourierBasis(kernel_of(d, terms), KEY, 90, "orthogonal")
    with precision("float64"):
        pairs = jnp.arange(basis.num_pairs)
        each, scales = basis.spectrum(pairs, d, jnp.float64)
        together = basis.spectrum(pairs, d, jnp.float64, consecutive=True)
        some = basis.spectrum(pairs[11:29], d, jnp.float64, consecutive=True)
        whole = whole_spectrum(basis, d, np.dtype("float64"))
    for found, _ in (together, whole):
        np.testing.assert_allclose(found, each, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(some[0], each[11:29], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(together[1], scales)


@pytest.mark.parametrize("together", [1 << 24, 49 * 4])
def test_an_accelerator_draws_the_same_in_batches(together, monkeypatch):
    basis = RandomFourierBasis(kernel_of(7, 1), KEY, 80, "orthogonal")
    pairs = jnp.arange(basis.num_pairs)
    with precision("float64"):
        expected = basis.spectrum(pairs, 7, jnp.float64)[0]
        monkeypatch.setattr(draws._accelerator, "is_present", lambda: True)
        monkeypatch.setattr(draws, "_NUMBERS_AT_ONCE", together)
        for consecutive in (False, True):
            found = basis.spectrum(pairs, 7, jnp.float64, consecutive=consecutive)[0]
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_runs_of_as_many_pairs_as_inputs_are_orthogonal():
    basis = RandomFourierBasis(RBF(np.ones(5)), KEY, 40, "orthogonal")
    with precision("float64"):
        drawn = np.asarray(whole_spectrum(basis, 5, np.dtype("float64"))[0])
    for run in drawn.reshape(4, 5, 5):
        lengths = np.linalg.norm(run, axis=1)
        np.testing.assert_allclose(run @ run.T, np.diag(lengths**2), atol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "same"),
    [
        (RBF(1.0, 2.0) * RBF(1.0, 0.5), RBF(0.5**0.5)),
        (RBF(2.0) * RBF(2.0) * Matern32([1.0, 1.5]), RBF(2.0**0.5) * Matern32([1.0, 1.5])),
    ],
    ids=str,
)
def test_factors_of_a_product_have_frequencies_of_their_own(kernel, same):
    """Of either form of one kernel the error falls with the pairs; that of dependent factors was 0.57 at any number."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    with precision("float64"):
        Z = jnp.asarray(X)
        K = np.asarray(same(Z, Z))
        for form in (kernel, same):
            basis = RandomFourierBasis(form, KEY, 2 * 8192, "qmc")
            phi = np.asarray(basis.features(Z, jnp.arange(8192))).reshape(len(X), -1)
            assert np.max(np.abs(phi @ phi.T - K)) < 0.02


# Two batches of factorisations in one program waited for each other's threads for ever on two cores.
_TWO_KERNELS = """
import jax, jax.numpy as jnp, numpy as np
from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis
from vastgp.kernels import RBF, Matern32
kernel = RBF(np.ones(30)) + Matern32(np.ones(30))
basis = RandomFourierBasis(kernel, np.array([1, 2], np.uint32), 900, "orthogonal")
with precision("float64"):
    found = jax.jit(lambda pairs: basis.spectrum(pairs, 30, jnp.float64)[0])(jnp.arange(450))
print(bool(jnp.all(jnp.isfinite(found))))
"""


def test_frequencies_of_a_sum_of_kernels_do_not_wait_for_each_other():
    ended = subprocess.run(
        [sys.executable, "-c", _TWO_KERNELS], capture_output=True, text=True, timeout=300
    )
    assert ended.stdout.strip() == "True", ended.stderr


def test_rotations_of_many_inputs_are_drawn_once():
    """One for each of 300 pairs would take 3 GB and more products than this counts."""
    basis = RandomFourierBasis(RBF(np.ones(600)), KEY, 600, "orthogonal")
    with precision("float64"):
        lowered = jax.jit(
            lambda pairs: basis.spectrum(pairs, 600, jnp.float64, consecutive=True)[0]
        ).lower(jnp.arange(300))
        compiled = lowered.compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 100e6
