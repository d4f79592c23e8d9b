"""
Fill the gaps of a field, and forecast it
=========================================

Maps of a field over time, with clouds in the way: the gaps are filled, with the uncertainty of every value, and the
next maps are forecast.
"""

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import vastgp
from vastgp.plots import field_map, series_plot

# %%
# Forty days of a wave that runs over a map of 12 by 16 points, with noise of 0.1. Clouds hide round patches: a third of
# all values.

rng = np.random.default_rng(0)
day, lat, lon = np.arange(40.0), np.linspace(40.0, 50.0, 12), np.linspace(0.0, 20.0, 16)
truth = xr.DataArray(
    np.sin(lon / 3 - day[:, None, None] / 8) * np.cos((lat[:, None] - 40) / 4),
    dims=("day", "lat", "lon"),
    coords={"day": day, "lat": lat, "lon": lon},
    attrs={"units": "K"},
)
hidden = np.zeros(truth.shape, dtype=bool)
for _ in range(170):
    when, north, east = rng.integers(40), rng.uniform(40, 50), rng.uniform(0, 20)
    hidden[when] |= ((lat[:, None] - north) / 2) ** 2 + ((lon - east) / 3) ** 2 < 1
observed = (truth + rng.normal(0.0, 0.1, truth.shape)).where(~hidden)
print(f"{hidden.mean():.0%} of {hidden.size:,} values are hidden")

# %%
# NaN marks what was not observed. Without ``kernels`` every dimension gets a Matern-5/2 kernel; these waves are smooth.

model = vastgp.GridGP({"day": "rbf", "lat": "rbf", "lon": "rbf"}).fit(observed)
filled = model.predict()
print(model.kernel_)
print("noise:", round(float(model.likelihood_.noise_std), 3), " converged:", model.converged_)

# %%
# The standard deviation of a new observation is that of the noise, and a little more in the gaps and towards the edges;
# the 95 % intervals hold.

error = (filled["mean"] - truth).values[hidden]
inside = np.abs(error) < 1.96 * model.predict(return_std="latent")["std"].values[hidden]
print(
    f"error in the gaps {np.sqrt(np.mean(error**2)):.3f}, inside their intervals {inside.mean():.1%}"
)
axes = field_map(filled, observed, at={"day": 20})
plt.show()

# %%
# Coordinates may lie past the last one: a forecast, whose band widens.

ahead = model.predict({"day": np.arange(0.0, 50.0)})
ax = series_plot(ahead, observed, at={"lat": 0, "lon": 5})
ax.axvline(39.0, color="0.5", lw=0.8)
plt.show()
