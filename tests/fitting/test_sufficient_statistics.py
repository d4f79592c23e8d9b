"""Sums over rows: equal to dense products, whatever the parts, and mergeable to the last bit."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Standardizer, as_rows
from vastgp.fitting.sufficient_statistics import (
    SufficientStatistics,
    block_rows_of,
    feature_matrix,
    gather_statistics,
)
from vastgp.kernels import RBF, Matern32

BLOCK = block_rows_of(20)


def _basis(num_basis=20, lengthscales=(0.7, 1.3), kernel=RBF):
    return RandomFourierBasis(kernel(list(lengthscales), 1.5), seed_key(3), num_basis)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * BLOCK + 137, 2)) * [3.0, 0.01] + [100.0, -5.0]
    y = 1e4 + 7.0 * np.sin(X[:, 0]) + rng.normal(size=len(X))
    return as_rows(X, y)


@pytest.fixture(scope="module")
def whole(data):
    scaling = Standardizer().fit(data)
    return gather_statistics(data, scaling, _basis()), scaling


def test_sums_are_the_dense_products(data, whole):
    statistics, scaling = whole
    with precision("float64"):
        phi = np.asarray(feature_matrix(_basis(), jnp.asarray(scaling.transform_X(data.X))))
    y = scaling.transform_y(data.y)
    assert statistics.num_rows == data.n and statistics.num_basis == 20
    np.testing.assert_allclose(statistics.gram, phi.T @ phi, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(statistics.target, phi.T @ y, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(statistics.feature_sum, phi.sum(axis=0), rtol=1e-10, atol=1e-9)
    assert statistics.square == pytest.approx(y @ y, rel=1e-12)
    assert abs(statistics.target_sum) < 1e-8
    np.testing.assert_array_equal(statistics.gram, statistics.gram.T)


def test_features_of_fourier_pairs_stand_in_order(data):
    with precision("float64"):
        X = jnp.linspace(-1.0, 1.0, 6).reshape(3, 2)
        pairs = np.asarray(_basis().features(X, jnp.arange(10)))
        found = np.asarray(feature_matrix(_basis(), X))
    np.testing.assert_allclose(found[:, 0::2], pairs[:, 0], atol=1e-14)
    np.testing.assert_allclose(found[:, 1::2], pairs[:, 1], atol=1e-14)


def test_parts_add_up_to_one_pass_bit_for_bit(data, whole):
    statistics, scaling = whole
    ends = [0, BLOCK, 2 * BLOCK, data.n]
    parts = [
        gather_statistics(data, scaling, _basis(), start=first, stop=last)
        for first, last in pairwise(ends)
    ]
    for total in (
        (parts[0] + parts[1]) + parts[2],
        parts[0] + (parts[1] + parts[2]),
        (parts[2] + parts[0]) + parts[1],
    ):
        np.testing.assert_array_equal(total.moments, statistics.moments)
        assert total.num_rows == statistics.num_rows
    # what rounding took from the sums is kept, and is a part of what is added
    assert np.any(statistics.rest != 0.0)


def test_parts_of_any_size_agree_to_rounding(data, whole):
    statistics, scaling = whole
    parts = [
        gather_statistics(data, scaling, _basis(), start=first, stop=last)
        for first, last in ((0, 100), (100, 3000), (3000, data.n))
    ]
    total = parts[0] + parts[1] + parts[2]
    np.testing.assert_allclose(total.moments, statistics.moments, rtol=1e-12, atol=1e-9)


def test_a_sum_is_as_good_as_exact_arithmetic():
    rng = np.random.default_rng(1)
    numbers = rng.normal(size=300) * 10.0 ** rng.integers(-8, 9, size=300)
    total = SufficientStatistics.of(np.array([[numbers[0]]]), np.array([1.0]))
    for number in numbers[1:]:
        total = total + SufficientStatistics.of(np.array([[number]]), np.array([1.0]))
    exact = sum((Fraction(float(number)) for number in numbers), Fraction(0))
    assert total.target[0] == float(exact)  # Phi^T y with y = 1
    assert total.num_rows == 300


def test_another_origin_and_unit_of_the_target(data):
    scaling = Standardizer().fit(data)
    raw = Standardizer().fit(as_rows(data.X, data.y - 1e4))
    found = gather_statistics(as_rows(data.X, data.y - 1e4), raw, _basis())
    moved = found.in_units(raw.y_mean - 3.0, 2.0 * raw.y_scale)
    with precision("float64"):
        phi = np.asarray(feature_matrix(_basis(), jnp.asarray(scaling.transform_X(data.X))))
    y = (data.y - 1e4 - moved.y_mean) / moved.y_scale
    np.testing.assert_allclose(moved.target, phi.T @ y, rtol=1e-9, atol=1e-7)
    assert moved.square == pytest.approx(y @ y, rel=1e-10)
    assert moved.target_sum == pytest.approx(y.sum(), rel=1e-10)
    np.testing.assert_array_equal(moved.gram, found.gram)
    back = moved.in_units(found.y_mean, found.y_scale)
    np.testing.assert_allclose(back.moments, found.moments, rtol=1e-9, atol=1e-7)


def test_features_in_float32_are_summed_in_float64(data, whole):
    statistics, scaling = whole
    narrow = gather_statistics(data, scaling, _basis(), dtype="float32")
    with precision("float32"):
        phi = np.asarray(
            feature_matrix(_basis(), jnp.asarray(scaling.transform_X(data.X), jnp.float32))
        )
    phi = phi.astype(np.float64)
    np.testing.assert_allclose(narrow.gram, phi.T @ phi, rtol=1e-12, atol=1e-9)
    # other random draws: what the two precisions sum must not be mixed
    with pytest.raises(ValueError, match="different features"):
        statistics + narrow


def test_a_file_keeps_every_bit(whole, tmp_path):
    statistics, _ = whole
    statistics.save(tmp_path / "part.vastgp")
    found = SufficientStatistics.load(tmp_path / "part.vastgp")
    np.testing.assert_array_equal(found.moments, statistics.moments)
    np.testing.assert_array_equal(found.rest, statistics.rest)
    assert found.to_state()[0] == statistics.to_state()[0]
    assert (found + statistics).num_rows == 2 * statistics.num_rows


def test_a_record_never_changes(whole):
    statistics, _ = whole
    with pytest.raises(ValueError, match="read-only"):
        statistics.gram[0, 0] = 1.0
    with pytest.raises(AttributeError):
        statistics.num_rows = 3


def test_other_files_are_refused(tmp_path):
    from vastgp.data import write_archive

    write_archive(tmp_path / "other", {"kind": "model"}, {})
    with pytest.raises(ValueError, match="is a vastgp model, not statistics"):
        SufficientStatistics.load(tmp_path / "other")


def test_what_does_not_belong_together_is_refused(data, whole):
    statistics, scaling = whole
    few = as_rows(data.X[:50], data.y[:50])
    other = gather_statistics(few, scaling, _basis(kernel=Matern32))
    with pytest.raises(ValueError, match="different features cannot be added: 20 features"):
        statistics + other
    other = gather_statistics(few, Standardizer().fit(few), _basis())
    with pytest.raises(ValueError, match="same Standardizer"):
        statistics + other
    with pytest.raises(ValueError, match="target in different units"):
        statistics + statistics.in_units(0.0, 1.0)
    with pytest.raises(TypeError):
        statistics + 1
    with pytest.raises(ValueError, match="rows have no targets"):
        gather_statistics(as_rows(data.X), scaling, _basis())
    with pytest.raises(ValueError, match=r"y_scale=0\.0"):
        statistics.in_units(0.0, 0.0)
    with pytest.raises(ValueError, match="one row of features"):
        SufficientStatistics.of(np.zeros((3, 2)), np.zeros(2))


def test_rows_that_are_not_finite_are_named(data):
    scaling = Standardizer().fit(data)
    y = data.y.copy()
    y[5] = np.nan
    from vastgp.data import Rows

    with pytest.raises(ValueError, match="Input y contains NaN: at row 5"):
        gather_statistics(Rows(data.X, y), scaling, _basis())
