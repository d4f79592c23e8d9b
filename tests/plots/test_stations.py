"""Pictures of maps from stations: what is drawn where, by any convention of longitudes; the variogram."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from vastgp.auto.space import Space
from vastgp.plots import station_map, variogram_plot


@pytest.fixture
def predicted():
    coords = {"lat": [60.0, 40.0, 20.0], "lon": np.arange(0.0, 360.0, 60.0)}
    mean = xr.DataArray(np.arange(18.0).reshape(3, 6), dims=("lat", "lon"), coords=coords)
    return xr.Dataset({"mean": mean, "std": xr.full_like(mean, 0.5)})


def readings(covariates=()):
    place = np.array([[50.0, -10.0], [30.0, 100.0]])
    y, space = np.array([3.0, 7.0]), Space("lat", "lon", True)
    return SimpleNamespace(
        readings_=SimpleNamespace(place=place, y=y, space=space, covariates=covariates)
    )


def test_stations_are_drawn_by_the_convention_of_the_map(predicted):
    axes = station_map(predicted, readings(), coastlines=False)
    dots = axes[0].collections[1]
    np.testing.assert_allclose(
        sorted(dots.get_offsets()[:, 0]), [-10.0, 100.0]
    )  # the map is from -30 to 330
    assert sorted(dots.get_array()) == [3.0, 7.0]  # in the colours of the map
    assert dots.norm is axes[0].collections[0].norm
    assert axes[1].collections[1].get_array() is None
    # with a trend a reading is of another height than the map around it
    assert station_map(predicted, readings(("height",)))[0].collections[1].get_array() is None


def test_coastlines_come_from_cartopy_where_it_is_installed(predicted, monkeypatch):
    line = SimpleNamespace(coords=[(-100.0, 30.0), (-90.0, 50.0)])
    feature = ModuleType("cartopy.feature")
    feature.COASTLINE = SimpleNamespace(geometries=lambda: [SimpleNamespace(geoms=[line])])
    monkeypatch.setitem(sys.modules, "cartopy", ModuleType("cartopy"))
    monkeypatch.setitem(sys.modules, "cartopy.feature", feature)
    ax = station_map(predicted)[0]
    drawn = [tuple(one.get_xdata()) for one in ax.lines]
    assert (260.0, 270.0) in drawn and ax.get_ylim() == (10.0, 70.0)

    def broken():
        raise OSError("no network")

    feature.COASTLINE = SimpleNamespace(geometries=broken)
    with pytest.warns(UserWarning, match="coastlines could not be read by cartopy"):
        station_map(predicted)


def test_a_variogram_shows_its_pairs_and_the_learned_curve():
    found = SimpleNamespace(
        distance=np.array([10.0, 40.0, 90.0]), semivariance=np.array([0.3, 0.8, 1.1]),
        pairs=np.array([12, 400, 25_600]), learned=np.array([0.3, 0.7, 1.0]), noise=0.2,
        curve=(np.array([0.0, 50.0, 100.0]), np.array([0.2, 0.8, 1.0])), unit="km",
    )  # fmt: skip
    ax = variogram_plot(found, target_name="temp")
    assert [one.get_text() for one in ax.texts] == ["12", "400", "25.6k"]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), found.curve[1])
    of_model = variogram_plot(SimpleNamespace(variogram=lambda: found))
    np.testing.assert_array_equal(of_model.lines[0].get_ydata(), found.curve[1])
    assert ax.get_xlabel() == "distance (km)" and "temp" in ax.get_ylabel()
    assert len(ax.collections[1].get_offsets()) == 1  # the class of few pairs stands out
