"""
Predict far from the data
=========================

A sum of finitely many functions runs out of them: away from its basis functions a finite model has no variance left,
and looks surest where it knows least. Adding one basis function at every test input, while its variance is predicted,
gives the variance of the prior back: Figure 2 of the QSGP paper. Asking the nearest inducing inputs what they leave of
the function gives it the variance that it has.
"""

import matplotlib.pyplot as plt
import numpy as np

from vastgp import RBF, ExactGPRegressor, QSGPRegressor
from vastgp.options import Fixed, Inducing

# Twenty noisy measurements of sin(x) / x.
rng = np.random.default_rng(3)
x = np.sort(rng.uniform(-5, 5, 20))[:, None]
y = np.sinc(x[:, 0] / np.pi) + 0.1 * rng.normal(size=20)
grid = np.linspace(-14, 14, 500)[:, None]

# %%
# All models have the same kernel and noise, so that only the inference differs. With ``basis="inducing"`` alone, every
# training row is an inducing input, and the mean is that of the exact process. ``Inducing(variance=...)`` says what
# variances are by.

given = {"kernel": RBF(1.6, 0.3), "hyperparameters": Fixed(noise_std=0.1)}
models = {
    "exact process": ExactGPRegressor(**given),
} | {
    f"inducing inputs, {variance}": QSGPRegressor(
        **given, basis=Inducing(variance=variance), tol=0.01
    )
    for variance in ("nearest", "augmented", "diagonal")
}
for model in models.values():
    model.fit(x, y)

# %%
# The mean is the same in all four. With the default, ``"nearest"``, twenty rows are all among the nearest, and the
# variance is the exact one. Among the data a diagonal covariance of the weights is a little wider than that. Beyond
# them the augmented variance returns to the prior's, somewhat later than the exact one does; without augmentation it
# shrinks to zero.

figure, axes = plt.subplots(
    4, 1, figsize=(8, 11), sharex=True, sharey=True, constrained_layout=True
)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    mean, std = model.predict(grid, return_std="latent")
    ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25, label="mean ± 2 std")
    ax.plot(grid[:, 0], mean)
    ax.plot(x[:, 0], y, "k.", label="measurements")
    ax.set_title(name)
axes[0].legend(loc="upper right")

# %%
# The same in numbers, at the end of the plot, where the prior's standard deviation is 0.55.

for name, model in models.items():
    _, std = model.predict(grid[-1:], return_std="latent")
    print(f"{name:31s} {std[0]:.3f}")
