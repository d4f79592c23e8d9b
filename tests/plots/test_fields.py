"""Maps and series of predicted fields: what is drawn where."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from vastgp.plots import field_map, series_plot


@pytest.fixture
def predicted():
    rng = np.random.default_rng(0)
    dims, shape = ("t", "y", "x"), (5, 4, 6)
    coords = {"t": np.arange(5.0), "y": np.arange(4.0), "x": np.linspace(0, 1, 6)}
    mean = xr.DataArray(rng.normal(size=shape), dims=dims, coords=coords, attrs={"units": "K"})
    std = xr.full_like(mean, 0.5)
    yield xr.Dataset({"mean": mean, "std": std})
    plt.close("all")


def test_a_map_shows_the_slice_it_was_asked_for_and_its_gaps(predicted):
    observed = predicted["mean"].copy()
    observed[2, 1, :3] = np.nan
    axes = field_map(predicted, observed, at={"t": 2})
    assert [ax.get_title(loc="left") for ax in axes] == [
        "observed, 12.5 % gaps", "mean", "standard deviation",
    ]  # fmt: skip
    drawn = [ax.collections[0].get_array() for ax in axes]
    np.testing.assert_array_equal(drawn[1].reshape(4, 6), predicted["mean"][2])
    assert drawn[0].mask.reshape(4, 6)[1].tolist() == [True] * 3 + [False] * 3
    # observed and mean are comparable: one scale for both
    assert axes[0].collections[0].get_clim() == axes[1].collections[0].get_clim()
    assert axes[0].get_xlabel() == "x" and axes[0].get_ylabel() == "y"


def test_a_slice_without_observations_leaves_the_scale_to_the_mean(predicted, recwarn):
    observed = predicted["mean"].copy()
    observed[2] = np.nan
    mean = field_map(predicted, observed, at={"t": 2})[1].collections[0]
    drawn = predicted["mean"][2].values
    assert mean.get_clim() == (drawn.min(), drawn.max())
    assert not recwarn.list


@pytest.mark.parametrize("places", [{"y": [1]}, {"x": [2]}, {"y": [1], "x": [2]}])
def test_a_single_row_or_column_has_an_area(predicted, places):
    mesh = field_map(predicted.isel(places))[0].collections[0]
    corners = mesh.get_coordinates()
    assert np.all(np.diff(corners[..., 0], axis=1) > 0)
    assert np.all(np.diff(corners[..., 1], axis=0) > 0)


def test_cells_end_halfway_between_their_neighbours():
    x, days = [0.0, 1.0, 4.0], np.array(["2024-01-01", "2024-01-03"], "M8[ns]")
    mean = xr.DataArray(np.ones((2, 3)), dims=("t", "x"), coords={"t": days, "x": x})
    ax = field_map(xr.Dataset({"mean": mean, "std": mean}))[0]
    corners = ax.collections[0].get_coordinates()
    np.testing.assert_allclose(corners[0, :, 0], [-0.5, 0.5, 2.5, 5.5])
    np.testing.assert_allclose(np.diff(corners[:, 0, 1]), [2.0, 2.0])  # days


def test_names_along_a_dimension_are_its_ticks(predicted):
    named = predicted.assign_coords(y=["Oslo", "Rome", "Wien", "a" * 40])
    ax = field_map(named)[0]
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert labels[:3] == ["Oslo", "Rome", "Wien"] and len(labels[3]) <= 14


def test_a_series_of_one_time_is_seen(predicted):
    ax = series_plot(predicted.isel(t=[1]))
    (ends,) = ax.collections[0].get_segments()
    assert np.ptp(ends[:, 1]) == pytest.approx(2 * 1.959964 * 0.5)
    assert ax.lines[0].get_marker() == "_"


def test_a_series_has_its_band_and_observations(predicted):
    observed = predicted["mean"].isel(t=slice(0, 3)).copy()
    observed[1, 0, 2] = np.nan
    ax = series_plot(predicted, observed, at={"x": 2})
    line = next(line for line in ax.lines if line.get_label() == "mean")
    np.testing.assert_array_equal(line.get_ydata(), predicted["mean"][:, 0, 2])
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(
        float(predicted["mean"][:, 0, 2].max()) + 1.959964 * 0.5
    )
    gaps = next(line for line in ax.lines if line.get_label() == "gaps")
    assert gaps.get_xdata().tolist() == [1.0]
    assert ax.get_ylabel() == "K"


def test_what_cannot_be_drawn_is_said(predicted):
    with pytest.raises(ValueError, match="predicted: expected a Dataset with 'mean'"):
        field_map(predicted["mean"])
    with pytest.raises(
        ValueError, match=r"at: expected names among \('t', 'y', 'x'\), got \['z'\]"
    ):
        field_map(predicted, at={"z": 0})
    with pytest.raises(ValueError, match="at: expected to leave 2 dimensions to draw, left 1"):
        field_map(predicted, at={"t": 0, "y": 0})
    with pytest.raises(ValueError, match="observed: expected the grid of predicted"):
        field_map(predicted, predicted["mean"][:2])
    with pytest.raises(ValueError, match="along: expected one of"):
        series_plot(predicted, along="time")
    with pytest.raises(ValueError, match="axes: expected 2, one for each map, got 1"):
        field_map(predicted, axes=[plt.gca()])


def test_observations_are_those_of_the_place_that_is_drawn(predicted):
    whole = predicted["mean"]
    far = predicted.isel(y=[3], x=[5])
    turned = whole.isel(y=slice(None, None, -1))
    for observed in (whole, turned):
        ax = series_plot(far, observed, along="t")
        (points,) = [each for each in ax.lines if each.get_label() == "observations"]
        np.testing.assert_array_equal(points.get_ydata(), whole[:, 3, 5])
    drawn = field_map(predicted, turned, at={"t": 2})[0].collections[0].get_array()
    np.testing.assert_array_equal(drawn.reshape(4, 6), whole[2])
    with pytest.raises(ValueError, match="no values at y = 3"):
        series_plot(far, whole.isel(y=slice(0, 2)), along="t")
    for wrong in (whole.values, predicted):
        with pytest.raises(ValueError, match="observed: expected a DataArray with the dimensions"):
            series_plot(far, wrong, along="t")
    with pytest.raises(ValueError, match="observed: expected the dimensions of predicted"):
        field_map(predicted, whole.rename(x="lon"))
