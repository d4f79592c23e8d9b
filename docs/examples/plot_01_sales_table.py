"""
Forecast sales from a table with dates, categories and gaps
===========================================================

A shop's table as it comes: a date, two columns of text, prices, a column of yes and no, temperatures that were not
always written down. How many pieces will be sold in the coming weeks, and how far is that to be trusted?
"""

import textwrap
from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import vastgp
from vastgp.plots import importance_plot

# Two years of sales, made up: a trend, a season, weekends, promotions, and a price that matters.
rng = np.random.default_rng(0)
day = pd.to_datetime("2023-01-02") + pd.to_timedelta(np.sort(rng.integers(0, 728, 1800)), "D")
year, weekday = day.day_of_year.to_numpy() / 365.25, day.day_of_week.to_numpy()
city = rng.choice(["Oslo", "Rome", "Wien"], len(day))
goods = rng.choice(["bread", "cheese", "fruit", "ice cream", "wine"], len(day))
promo = rng.uniform(size=len(day)) < 0.15
price = rng.lognormal(1.0, 0.25, len(day)).round(2)
warm = 11 - 11 * np.cos(2 * np.pi * year) + rng.normal(0, 3, len(day))
log_mean = (
    3.2 + 0.15 * np.arange(len(day)) / len(day) + 0.25 * (weekday >= 5) + 0.5 * promo - 0.9 * np.log(price / 2.7)
    + pd.Series(city).map({"Oslo": 0.0, "Rome": 0.4, "Wien": 0.2}).to_numpy()
    + np.where(goods == "ice cream", 0.06 * (warm - 10), np.where(goods == "bread", 0.5, 0.0))
)  # fmt: skip
sales = pd.DataFrame({
    "day": day, "city": city, "goods": goods, "price": price, "promo": promo,
    "temperature": np.where(rng.uniform(size=len(day)) < 0.2, np.nan, warm.round(1)),
    "sold": rng.poisson(np.exp(log_mean + 0.1 * rng.normal(size=len(day)))),
})  # fmt: skip
coming = sales["day"] >= sales["day"].max() - pd.Timedelta(days=27)
past, coming = sales[~coming], sales[coming]
print(past.head(4).to_string(index=False))

# %%
# Fit
# ---
# One line. Text, dates and gaps stay as they are. What matters here is what comes next: ``hold_out="last"`` has models
# judged by the last rows rather than by random ones. The time given is short, so that this page is made quickly.

model = vastgp.GPRegressor(max_seconds=30, hold_out="last").fit(past, "sold")

# %%
# What was tried: each model predicted the last fifth of the rows from those before them. NLPD is what counts, and lower
# is better. The model with the star is the one that is kept.

print(model.leaderboard_)

# %%
# What was done with each column. Look here first: a date that was read as text, or a code that was read as a number,
# shows.

print(model.encoder_.summary())

# %%
# The coming four weeks
# ---------------------
# Intervals hold a new observation with the probability asked for. These weeks were kept out of the table.

low, high = model.predict_interval(coming, level=0.9).T
mean = model.predict(coming)
sold = coming["sold"].to_numpy()
print(f"in their 90 % intervals: {np.mean((low <= sold) & (sold <= high)):.0%} of {len(sold)}")
print(f"mean absolute error: {np.abs(mean - sold).mean():.1f} pieces, of {sold.mean():.1f} sold")
print(f"rows outside what the model has seen: {model.outside(coming).mean():.0%}")

# %%
# A forecast lies outside what the model has seen where it asks for later dates than the table had: the trend is then
# continued, not known.

order = np.argsort(mean)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.vlines(np.arange(len(order)), low[order], high[order], alpha=0.35, label="90 % interval")
left.plot(mean[order], lw=2, label="mean")
left.plot(sold[order], "k.", label="sold")
left.set(xlabel="rows of the coming weeks, by their mean", ylabel="pieces", ylim=0)
left.legend()
importance_plot(model.importance_, ax=right)
plt.show()

# %%
# On the right: how much worse rows that were held out are predicted when a column is shuffled. ``model.report`` writes
# all of this, and the rows that surprised the model most, as one page that opens without a network.

folder = Path(mkdtemp())
print(f"{model.report(folder / 'report.html').stat().st_size / 1e3:.0f} kB")

# %%
# Keep it, and use it
# -------------------
# The file holds encoding, model and calibration; loading executes nothing. Columns are found by their names, and what
# is missing is named.

model.save(folder / "sales.vastgp")
again = vastgp.load(folder / "sales.vastgp")
assert np.array_equal(again.predict(coming), mean)
try:
    again.predict(coming.drop(columns="price"))
except ValueError as error:
    print(textwrap.fill(str(error), 90, replace_whitespace=False))
