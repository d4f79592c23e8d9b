"""Kernels around a circle and over a sphere."""

import numpy as np
import pytest

from kernels.test_grid_kernels import matrix
from vastgp import RBF, Cyclic, ExactGPRegressor, Matern12, Matern52, OnSphere, Periodic
from vastgp.data.coordinates import EARTH_RADIUS
from vastgp.kernels import Sum, from_spec, to_spec
from vastgp.options import Fixed

LON = np.arange(0.0, 360.0, 7.5)[:, None]


def globe(n):
    rng = np.random.default_rng(0)
    lat = np.degrees(np.arcsin(rng.uniform(-1, 1, n)))
    return np.column_stack([lat, rng.uniform(-180, 180, n)])


def test_an_rbf_around_a_circle_is_the_periodic_kernel():
    # 2 sin^2(pi d / P) / l^2 = (P / pi sin(pi d / P))^2 / (2 L^2) with l = 2 pi L / P
    cyclic = Cyclic(7.0, RBF(1.3, 2.0))
    periodic = Periodic(7.0, 2.0 * np.pi * 1.3 / 7.0, 2.0)
    x = np.random.default_rng(0).uniform(-9.0, 9.0, size=(20, 1))
    np.testing.assert_allclose(matrix(cyclic, x), matrix(periodic, x), rtol=1e-10)
    np.testing.assert_allclose(matrix(cyclic, x, x - 21.0), matrix(cyclic, x), rtol=1e-10)


def test_it_is_the_plain_kernel_where_inputs_are_near():
    x = np.linspace(178.0, 182.0, 9)[:, None]
    plain = matrix(Matern52(3.0), x)
    np.testing.assert_allclose(matrix(Cyclic(360.0, Matern52(3.0)), x), plain, atol=2e-4)
    across = np.where(x > 180.0, x - 360.0, x)
    np.testing.assert_allclose(matrix(Cyclic(360.0, Matern52(3.0)), across), plain, atol=2e-4)


def test_eigenvalues_stay_positive_where_those_of_the_distance_along_the_curve_do_not():
    around = np.abs(LON - LON.T)
    around = np.minimum(around, 360.0 - around)
    plain = np.linalg.eigvalsh((1 + around / 60 + around**2 / 3 / 60**2) * np.exp(-around / 60))
    assert plain[0] < -1e-3
    assert np.linalg.eigvalsh(matrix(Cyclic(360.0, Matern52(60.0)), LON))[0] > 0.0
    assert np.linalg.eigvalsh(matrix(OnSphere(Matern52(4000.0)), globe(80)))[0] > 0.0


def test_over_the_sphere_it_depends_on_the_distance_in_kilometres():
    X = globe(50)
    lat, lon = np.radians(X).T
    angle = np.sin(lat)[:, None] * np.sin(lat)
    angle = angle + np.cos(lat)[:, None] * np.cos(lat) * np.cos(lon[:, None] - lon)
    through = 2.0 * EARTH_RADIUS * np.sin(0.5 * np.arccos(np.clip(angle, -1.0, 1.0)))
    expected = 1.5 * np.exp(-through / 800.0)
    np.testing.assert_allclose(
        matrix(OnSphere(Matern12(800.0, 1.5)), X), expected, rtol=1e-6, atol=1e-12
    )
    # all meridians meet at a pole, and none is a seam
    poles = np.array([[90.0, 0.0], [90.0, 123.0]])
    np.testing.assert_allclose(matrix(OnSphere(), poles), 1.0, rtol=1e-12)
    east, west = np.array([[10.0, 181.0]]), np.array([[10.0, -179.0]])
    np.testing.assert_allclose(matrix(OnSphere(), east, west), 1.0, rtol=1e-12)


def test_arguments_and_files():
    kernel = Sum((Cyclic(24.0, RBF(3.0)), Cyclic(360.0)))
    spec, arrays = to_spec(kernel)
    assert repr(from_spec(spec, arrays)) == repr(kernel)
    spec, arrays = to_spec(OnSphere(RBF(5.0, 2.0)))
    assert repr(from_spec(spec, arrays)) == repr(OnSphere(RBF(5.0, 2.0)))
    scaled = Cyclic(24.0, RBF(3.0)).in_units(10.0, 2.0)
    assert repr(scaled) == repr(Cyclic(240.0, RBF(30.0, 4.0)))
    assert float(scaled.total_variance()) == 4.0
    for wrong in (RBF([1.0, 2.0]), Periodic(3.0), "rbf"):
        with pytest.raises(ValueError, match="kernel of OnSphere must be a stationary kernel with"):
            OnSphere(wrong)
    for wrong in ([6.0, 7.0], np.array([6.0]), "a day"):
        with pytest.raises(
            ValueError, match=r"period must be (one number|positive and finite), received .*(6|day)"
        ):
            Cyclic(wrong)
    with pytest.raises(ValueError, match=r"period must be positive and finite, received -1\.0"):
        Cyclic(-1.0)
    with pytest.raises(ValueError, match="Cyclic kernel is of one input, and received 2"):
        Cyclic().with_ard(2)
    with pytest.raises(ValueError, match="of latitude and longitude, and received 1 inputs"):
        OnSphere().with_ard(1)
    with pytest.raises(ValueError, match="in degrees, and these inputs are scaled"):
        OnSphere().in_units([1.0, 2.0], 1.0)
    with pytest.raises(ValueError, match="has no spectral density over its inputs"):
        Cyclic().spectral_terms()


def test_an_exact_process_closes_a_day():
    rng = np.random.default_rng(0)
    hour = rng.uniform(1.0, 23.0, size=(40, 1))
    y = np.sin(2 * np.pi * hour[:, 0] / 24.0) + 0.05 * rng.normal(size=40)
    model = ExactGPRegressor(Cyclic(24.0, RBF(4.0)), hyperparameters=Fixed(noise_std=0.05))
    cyclic = model.fit(hour, y)
    ends = cyclic.predict([[0.0], [24.0]])
    np.testing.assert_allclose(ends, 0.0, atol=0.08)
    assert ends[0] == pytest.approx(ends[1], abs=1e-9)
