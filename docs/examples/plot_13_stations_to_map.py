"""
From stations to a map
======================

Thermometers stand where people live, at all heights, and a map is wanted everywhere. Nearness on the globe and the
fall of temperature with height are learned together, with their uncertainty.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr

import vastgp
from vastgp.plots import station_map, variogram_plot

# %%
# A smooth field on the globe, 6.5 degrees less for each kilometre of height, and an error of 0.5 a reading. Half of the
# 400 stations crowd around twenty towns.


def field(lat, lon):
    north, east = np.deg2rad(lat), np.deg2rad(lon)
    waves = 3.0 * np.cos(3 * east) * np.cos(north) ** 3 + 2.0 * np.sin(
        4 * north + 2 * east
    ) * np.cos(north)
    return 26.0 * np.cos(north) ** 2 - 8.0 + waves


def terrain(lat, lon):
    north, east = np.deg2rad(lat), np.deg2rad(lon)
    return 3.0 * np.clip(np.sin(5 * east) * np.cos(4 * north) * np.cos(north), 0.0, 1.0) ** 2


rng = np.random.default_rng(0)
towns = np.column_stack([rng.uniform(-50, 65, 20), rng.uniform(-180, 180, 20)])
near = towns[rng.integers(0, 20, 200)] + rng.normal(0.0, 3.0, (200, 2))
anywhere = np.column_stack(
    [np.rad2deg(np.arcsin(rng.uniform(-1, 1, 200))), rng.uniform(-180, 180, 200)]
)
lat, lon = np.concatenate([near, anywhere]).T
height = terrain(lat, lon) + rng.gamma(1.0, 0.1, 400)
temp = field(lat, lon) - 6.5 * height + rng.normal(0.0, 0.5, 400)
stations = pd.DataFrame({"lat": lat, "lon": lon, "height": height, "temp": temp})
print(stations.round(2).head(3))

# %%
# Columns called ``lat`` and ``lon`` are found by their names. ``covariates`` have a linear trend, whose coefficient is
# told with its standard error.

model = vastgp.StationGP(max_seconds=20).fit(stations, "temp", covariates=["height"])
slope, error = model.trend_["height"]
print(f"{slope:.2f} +- {error:.2f} degrees a kilometre; truth -6.5")
print(f"lengthscale {model.lengthscales_km_['lat, lon']:.0f} km, noise {model.noise_std_:.2f}")

# %%
# The map needs the covariates too: a Dataset with the coordinates of the map and the height as a variable. Latitudes
# may descend, and longitudes run from 0 to 360 or from -180 to 180.

north, east = np.arange(88.0, -89.0, -4.0), np.arange(-180.0, 180.0, 4.0)
grid = xr.Dataset(coords={"lat": north, "lon": east})
grid["height"] = (("lat", "lon"), terrain(north[:, None], east))
found = model.predict(grid)
station_map(found, model)
plt.show()

# %%
# The truth is known here. ``return_std="latent"`` is the deviation of the field itself, without a reading's error.

truth = field(north[:, None], east) - 6.5 * grid["height"].values
latent = model.predict(grid, return_std="latent")
off = found["mean"].values - truth
inside = np.mean(np.abs(off) < 1.96 * latent["std"].values)
print(
    f"off by {np.sqrt(np.mean(off**2)):.2f} on average, {inside:.0%} of the map inside 95 % intervals"
)

# %%
# How good is the map where there are no stations? Rows left out at random have neighbours in their town. Blocks as wide
# as the model sees leave gaps like those of the map.

print(model.cross_validate(by="row", folds=5))
print(model.cross_validate(by="block", folds=5, block_km=2000.0))

# %%
# The variogram, for eyes that are used to it: readings without their trend, and kernel and noise through them.

variogram_plot(model.variogram(farthest=8000.0), target_name="temperature")
plt.show()
