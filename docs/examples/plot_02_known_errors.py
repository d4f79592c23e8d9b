"""
Combine instruments whose errors are known
==========================================

One quantity, three kinds of instruments: a few reference stations, some cheap sensors, many phones. Each reading comes
with the error that its maker states. A model that knows these errors listens to each reading as much as it deserves.
"""

import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import vastgp
from vastgp import metrics


def truth(hour, km):
    """Nitrogen dioxide beside a road, in micrograms per cubic metre: two rush hours, less with distance."""
    rush = 30 * np.exp(-(((hour - 8) / 1.5) ** 2)) + 22 * np.exp(-(((hour - 18) / 2.2) ** 2))
    return 12 + rush * np.exp(-km / 1.5)


rng = np.random.default_rng(0)
stated = {"station": 1.0, "sensor": 5.0, "phone": 18.0}
kind = rng.choice(list(stated), 400, p=[0.05, 0.25, 0.7])
error = np.array([stated[name] for name in kind])
hour, km = rng.uniform(0, 24, 400), rng.uniform(0, 3, 400)
no2 = truth(hour, km) + error * rng.normal(size=400) + rng.normal(size=400)
readings = pd.DataFrame({"hour": hour, "km": km, "no2": no2.round(1), "error": error})
print(readings.groupby("error").size().rename("readings by stated error"))

# %%
# With the errors, and without
# ----------------------------
# ``noise_std`` names the column of the errors, in units of the target. It is no input; each row's own variance is added
# to the noise that is learned, which is then the scatter that all instruments share.

knowing = vastgp.GPRegressor(max_seconds=20).fit(readings, "no2", noise_std="error")
blind = vastgp.GPRegressor(max_seconds=20).fit(readings[["hour", "km", "no2"]], "no2")
print(knowing.leaderboard_)

# %%
# As these data are made up, the truth is known. The blind model takes every reading for equally good.

where = pd.DataFrame({"hour": rng.uniform(0, 24, 2000), "km": rng.uniform(0, 3, 2000)})
exact = truth(where["hour"].to_numpy(), where["km"].to_numpy())
new = exact + rng.normal(
    size=len(exact)
)  # what an instrument without an error of its own would read
print("                 error of the mean   width of 95 %   in 95 %")
for name, model in (("with errors", knowing), ("without errors", blind)):
    low, high = model.predict_interval(where).T
    off = metrics.rmse(exact, model.predict(where))
    inside = np.mean((low <= new) & (new <= high))
    print(f"{name:14s} {off:19.2f} {np.mean(high - low):15.1f} {inside:9.1%}")

# %%
# An interval is for a reading with the learned noise alone: of an instrument that errs by nothing itself. Of another
# one, add its error in squares. Without ``noise_std`` the interval is that of a reading by whatever instrument, phones
# mostly.

line = pd.DataFrame({"hour": np.linspace(0, 24, 200), "km": 0.5})
near = readings[np.abs(readings["km"] - 0.5) < 0.25]
figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, (title, model) in zip(
    axes, (("errors known", knowing), ("errors unknown", blind)), strict=True
):
    low, high = model.predict_interval(line).T
    ax.fill_between(line["hour"], low, high, alpha=0.25, label="95 % interval")
    ax.plot(line["hour"], model.predict(line), label="mean")
    ax.plot(line["hour"], truth(line["hour"], 0.5), "k--", lw=1, label="truth")
    ax.errorbar(
        near["hour"],
        near["no2"],
        near["error"],
        fmt="o",
        color="0.35",
        ms=3,
        lw=0.8,
        label="readings nearby",
    )
    ax.set(title=title, xlabel="hour")
axes[0].set_ylabel("NO2 0.5 km from the road")
axes[0].legend(fontsize=8)
plt.show()

# %%
# What is refused
# ---------------
# An error of which nothing is known is not zero, and not infinite. Such rows have to be left out by hand.

for wrong in (np.nan, -1.0):
    try:
        vastgp.GPRegressor().fit(readings.assign(error=wrong), "no2", noise_std="error")
    except ValueError as refusal:
        print(textwrap.fill(str(refusal), 90), end="\n\n")
