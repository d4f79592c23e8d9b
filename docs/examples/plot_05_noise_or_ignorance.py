"""
Tell noise from ignorance
=========================

A prediction can be off because the curve is not known well there, or because a measurement scatters around the
curve however well it is known. Gaussian processes keep the two apart.
"""

import matplotlib.pyplot as plt
import numpy as np

from vastgp import ExactGPRegressor, QSGPRegressor, plots

# Measurements of a wave, with a gap between 4 and 6.
rng = np.random.default_rng(0)
x = rng.uniform(0, 10, 300)
x = x[(x < 4) | (x > 6)][:, None]
y = np.sin(1.5 * x[:, 0]) + 0.2 * rng.normal(size=len(x))

grid = np.linspace(-1, 11, 400)[:, None]

# %%
# The exact model and the scalable one see the same measurements.

exact = ExactGPRegressor(random_state=0).fit(x, y)
scalable = QSGPRegressor(num_basis=1000, random_state=0).fit(x, y)

# %%
# ``return_std="latent"`` is the uncertainty of the curve: it opens in the gap and beyond the ends.
# ``return_std=True`` adds the scatter of a single measurement.

figure, axes = plt.subplots(2, 1, figsize=(8, 8), sharex=True, constrained_layout=True)
for ax, model in zip(axes, (exact, scalable), strict=True):
    mean, std = model.predict(grid, return_std=True)
    _, latent = model.predict(grid, return_std="latent")
    plots.function_plot(grid, mean, std, latent_std=latent, x_train=x, y_train=y, ax=ax)
    ax.set_ylabel(type(model).__name__)

# %%
# Both find the noise that was put in, a standard deviation of 0.2.

for model in (exact, scalable):
    noise = float(model.likelihood_.noise_std)
    print(f"{type(model).__name__:18s} {noise:.3f}")

# %%
# Samples are whole curves that agree with the data. In the gap they disagree with each other: that is what the
# uncertainty means. Use them for questions about more than one point, such as where the maximum lies.

curves = scalable.sample_y(grid, n_samples=200, random_state=0)
highest = grid[np.argmax(curves, axis=0), 0]
inside = np.mean((highest > 4) & (highest < 6))
print(f"the highest measurement falls inside the gap with probability {inside:.2f}")
