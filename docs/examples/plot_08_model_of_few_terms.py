"""
Find a model of a few terms
===========================

Five hundred noisy measurements, five hundred candidate functions, one at each: the evidence says that a handful of them
are enough. This is Figure 3 of the QSGP paper.
"""

import matplotlib.pyplot as plt
import numpy as np

from vastgp import ExactGPRegressor, RelevanceVectorRegressor

rng = np.random.default_rng(0)
x = rng.uniform(-10, 10, (500, 1))
y = np.sinc(x[:, 0] / np.pi) + 0.1 * rng.normal(size=500)
grid = np.linspace(-10, 10, 400)[:, None]
truth = np.sinc(grid[:, 0] / np.pi)

# %%
# Every candidate has a prior precision of its own. Maximising the evidence sends most of them beyond
# ``max_precision``, where the function is taken out.

model = RelevanceVectorRegressor("rbf").fit(x, y)
print(f"{len(model.relevance_vectors_)} relevance vectors of {model.num_basis_} candidates")

# %%
# The shaded region is one standard deviation of a new measurement; the large dots are the relevance vectors.

mean, std = model.predict(grid, return_std=True)
figure, ax = plt.subplots(figsize=(8, 4.5), constrained_layout=True)
ax.fill_between(grid[:, 0], mean - std, mean + std, alpha=0.3, label="mean ± std")
ax.plot(grid[:, 0], mean)
ax.plot(grid[:, 0], truth, "--", color="0.4", label="sin(x) / x")
ax.plot(x[:, 0], y, "k.", markersize=2, label="measurements")
nearest = np.abs(model.relevance_vectors_ - x.T).argmin(axis=1)
ax.plot(x[nearest, 0], y[nearest], "ko", markersize=7, label="relevance vectors")
ax.legend(loc="upper right")

# %%
# Error to the true function beside a Gaussian process that keeps all 500 rows:

for other in (model, ExactGPRegressor("rbf").fit(x, y)):
    error = np.mean((other.predict(grid) - truth) ** 2) ** 0.5
    print(f"{type(other).__name__:24s} {error:.4f}")
