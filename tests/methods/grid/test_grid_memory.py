"""Memory of a fit is that of the cells that were observed, and of predictions that of a few fields."""

import tracemalloc

import numpy as np
import pytest
import xarray as xr

from vastgp import RBF, GridGP
from vastgp.methods.grid import arguments, posterior
from vastgp.methods.grid.averaged import AveragedGridPosterior
from vastgp.methods.grid.posterior import GridPosterior
from vastgp.options import Evidence, Fixed, VarianceSamples

HELD = {"hyperparameters": Fixed(noise_std=0.2), "criterion": Evidence(num_probes=0)}
LAKE = {"t": RBF(2.0), ("y", "x"): RBF(2.0).with_ard(2)}


@pytest.fixture
def lake():
    """A field of 4900 cells, a hundred of which have values."""
    values = np.full((4, 70, 70), np.nan)
    values[:, :10, :10] = np.random.default_rng(0).normal(size=(4, 10, 10))
    coords = {"t": np.arange(4.0), "y": np.arange(70.0), "x": np.arange(70.0)}
    return xr.DataArray(values, dims=("t", "y", "x"), coords=coords)


def test_cells_of_a_group_that_were_never_observed_take_no_memory(lake, monkeypatch):
    """All 4900 as one group would take 0.8 GB."""
    monkeypatch.setattr(arguments, "available_bytes", lambda: 100_000_000)
    model = GridGP(LAKE, **HELD).fit(lake)
    assert [len(axis) for axis in model.posterior_.axes] == [4, 100]
    chunks = GridGP(LAKE, **HELD).fit(lake.chunk(t=1))
    ahead = {"t": [1.5], "y": [3.5], "x": [20.0, 40.0]}
    xr.testing.assert_identical(chunks.predict(ahead), model.predict(ahead))
    whole = lake.fillna(0.0)
    land = lake.isel(t=0, drop=True).isnull()
    assert len(GridGP(LAKE, **HELD).fit(whole, mask=land).posterior_.axes[1]) == 100
    with pytest.raises(ValueError, match=r"19,600 points .*needs about 0\.8 GB of memory; 0\.1 GB"):
        GridGP(LAKE, **HELD).fit(whole)


def test_variances_at_many_points_take_few_draws_at_a_time(monkeypatch):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(9, 8))
    coords = {"y": np.arange(9.0), "x": np.arange(8.0)}
    field = xr.DataArray(values, dims=("y", "x"), coords=coords).where(rng.random((9, 8)) > 0.3)
    model = GridGP({"y": RBF(2.0), "x": RBF(2.0)}, **HELD).fit(field)
    asked = {"y": np.linspace(0.0, 8.0, 40), "x": np.linspace(0.0, 7.0, 30)}
    how = {"coords": asked, "variance": VarianceSamples(12)}
    expected, product, most = model.predict(**how), GridPosterior.product, []

    def watched(self, factors, vectors, scattered=False):
        found = product(self, factors, vectors, scattered)
        most.append(found.size)
        return found

    monkeypatch.setattr(GridPosterior, "product", watched)
    model.predict(**how)
    assert max(most) == 12 * 1200
    most.clear()
    monkeypatch.setattr(posterior, "_BATCH_ENTRIES", 5 * 1200 + 1)
    xr.testing.assert_allclose(model.predict(**how), expected, rtol=1e-12)
    assert max(most) == 5 * 1200


def test_a_mixture_holds_the_moments_of_one_part_at_a_time(lake, monkeypatch):
    part = GridGP(LAKE, **HELD).fit(lake).posterior_
    points, number = 400_000, iter(range(100))

    def moments(self, points_of, how, scattered):
        draws = np.random.default_rng(next(number))
        return 1e3 + draws.normal(size=points), draws.random(points)

    monkeypatch.setattr(GridPosterior, "mean_and_variance", moments)
    weights = np.arange(1.0, 17.0) / 136.0
    tracemalloc.start()
    mean, variance = AveragedGridPosterior((part,) * 16, weights).mean_and_variance([], "auto")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * mean.nbytes
    each = [np.random.default_rng(k) for k in range(16)]
    means, variances = zip(*[(d.normal(size=points), d.random(points)) for d in each], strict=True)
    centre = weights @ np.array(means)
    np.testing.assert_allclose(mean, 1e3 + centre, rtol=1e-13)
    expected = weights @ (np.array(variances) + (np.array(means) - centre) ** 2)
    np.testing.assert_allclose(variance, expected, rtol=1e-9)
