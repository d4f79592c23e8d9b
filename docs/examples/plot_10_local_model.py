"""
Smooth the jumps of a local model
=================================

A model with many inducing inputs, of which each row sees the nearest few, has a mean that jumps where the set of
neighbours changes. More neighbours to predict with, or neighbours that fade out, lower the jumps.
"""

import matplotlib.pyplot as plt
import numpy as np

from vastgp import SWSGPRegressor
from vastgp.options import Sparse

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, (400, 2))
y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=400)
x = np.linspace(-0.5, 0.5, 4001)
line = np.column_stack([x, np.full_like(x, 0.3)])

# %%
# Three models that differ in how they predict: from the nearest six inducing inputs, from 48 of them, and from six
# whose weights fade out towards the border of the neighbourhood.

models = {
    "6 neighbours": SWSGPRegressor("rbf", 100, 6),
    "48 to predict": SWSGPRegressor("rbf", 100, 6, solver=Sparse(predict_neighbors=48)),
    "6, fading": SWSGPRegressor("rbf", 100, 6, solver=Sparse(taper=True)),
}
figure, ax = plt.subplots(figsize=(8, 4.5), constrained_layout=True)
for name, model in models.items():
    mean = model.fit(X, y).predict(line)
    jump = np.abs(np.diff(mean)).max()
    print(f"{name:14s} largest change between neighbouring points of the line: {jump:.5f}")
    ax.plot(x, mean, ".", markersize=2, label=f"{name} (largest jump {jump:.4f})")
ax.plot(x, np.sin(2 * x) + 0.3, "--", color="0.4", label="truth")
ax.set_xlabel("first input, the second at 0.3")
ax.set_ylabel("mean")
ax.legend(markerscale=5)
