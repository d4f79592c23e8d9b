"""
Put a posterior on a microcontroller, in four-bit integers
==========================================================

Every weight of this model takes one of fifteen values, so that a posterior sample is a row of four-bit integers. All
combinations of weights, some 10^117 of them, are averaged over exactly.
"""

import matplotlib.pyplot as plt
import numpy as np

from vastgp import RBF, DirectRegressor
from vastgp.options import Fixed

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(-1.5, 1.5, 20))[:, None]
grid = np.linspace(-3, 3, 300)[:, None]


def truth(x):
    return np.cos(2 * np.pi * x[:, 0]) * np.exp(-(x[:, 0] ** 2))


y = truth(x) + 0.03 * rng.normal(size=20)

# %%
# Kernel and noise are given here, as in Figure 7.4 of the thesis. With few rows they would be little known.

model = DirectRegressor(RBF(0.35), 100, hyperparameters=Fixed(noise_std=0.03)).fit(x, y)
codes = model.posterior_.codes(3, seed=0)
print("first weights of three samples, as integers:")
print(codes[:, :16] - 7)
print(f"expected share of zeros: {model.sparsity():.0%}")

# %%
# Mean and variance of the prediction are exact as well; the thin lines are five samples.

mean, std = model.predict(grid, return_std=True)
figure, ax = plt.subplots(figsize=(8, 4.5), constrained_layout=True)
ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25, label="mean ± 2 std")
ax.plot(grid[:, 0], model.sample_y(grid, 5), color="C0", linewidth=0.5)
ax.plot(grid[:, 0], mean, label="mean")
ax.plot(grid[:, 0], truth(grid), "--", color="0.4", label="truth")
ax.plot(x[:, 0], y, "k.", label="measurements")
ax.legend(loc="lower right")

# %%
# The same model in integers: what a microcontroller would run.

integers = model.to_integer(num_samples=16)
print(f"{integers.num_bytes} bytes of tables")
difference = np.abs(integers.predict(grid) - mean).max()
print(f"largest difference of the mean: {difference:.3f}, beside a noise of 0.03")
