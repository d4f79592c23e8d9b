"""
Build a basis for a hundred inputs
==================================

A hundred inputs, a hundred inducing points for each: a grid of :math:`10^{200}` points. Its leading eigenfunctions
are products of eigenfunctions of one input, so they cost no more than those of a small one, and they rebuild the
kernel's matrix nearly as well as its own eigenvectors do: among rows that were seen, and among rows that were not.
"""

# %%
# Four ways to build the matrix
# -----------------------------
# The best matrix of rank :math:`p` keeps the leading eigenvectors of the matrix itself, which needs all rows and cubic
# time. Nystrom's approximation from random rows knows what is near these. Random Fourier features know nothing of rows,
# and converge slowly. Eigenfunctions on a grid know the whole box (figure 4.2 of Evans' thesis).

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigvalsh

from vastgp.bases import GridEigenfunctionBasis, RandomFourierBasis, seed_key
from vastgp.fitting.sufficient_statistics import feature_matrix
from vastgp.kernels import RBF

rng = np.random.default_rng(0)
num_inputs, num_rows = 100, 1200
X = rng.uniform(-(3**0.5), 3**0.5, size=(num_rows, num_inputs)).astype(np.float32)
seen = np.arange(num_rows) < num_rows // 2
kernel = RBF(np.full(num_inputs, 10.0))
as_program = jax.jit(lambda A, B: kernel(A, B))


def matrix(A, B):
    return np.asarray(as_program(jnp.asarray(A), jnp.asarray(B)), dtype=np.float64)


def features(basis, rows):
    return np.asarray(feature_matrix(basis, jnp.asarray(rows)), dtype=np.float64)


def error(K, approximation):
    return np.linalg.norm(K - approximation) / np.linalg.norm(K)


# %%
# One grid of all, as many functions as asked for
# -----------------------------------------------

ranks = [10, 30, 100, 300]
axes = [np.linspace(-(3**0.5), 3**0.5, 100)] * num_inputs
grid_basis = GridEigenfunctionBasis.build(kernel, axes, max(ranks))
print("points of the grid: 10 to the power of", int(np.sum(np.log10(grid_basis.sizes))))

figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for panel, rows, title in ((panels[0], X[seen], "rows seen"), (panels[1], X, "seen and new rows")):
    K = matrix(rows, rows)
    squares = np.cumsum(eigvalsh(K)[::-1] ** 2)
    best = np.sqrt(np.maximum(1.0 - squares / squares[-1], 0.0))
    curves = {"grid eigenfunctions": [], "random rows (Nystrom)": [], "random Fourier features": []}
    grid_features = features(grid_basis, rows)
    for p in ranks:
        some = grid_features[:, :p]
        curves["grid eigenfunctions"].append(error(K, some @ some.T))
        Z = X[seen][rng.choice(seen.sum(), p, replace=False)]
        cross = matrix(rows, Z)
        inner = cho_solve(cho_factor(matrix(Z, Z) + 1e-6 * np.eye(p)), cross.T)
        curves["random rows (Nystrom)"].append(error(K, cross @ inner))
        waves = features(RandomFourierBasis(kernel, seed_key(p), p), rows)
        curves["random Fourier features"].append(error(K, waves @ waves.T))
    for name, errors in curves.items():
        panel.loglog(ranks, errors, marker="o", label=name)
    panel.loglog(ranks, best[np.array(ranks) - 1], "k--", label="best of that rank")
    panel.set(xlabel="functions", title=title)
    assert curves["grid eigenfunctions"][2] < curves["random rows (Nystrom)"][2]
panels[0].set_ylabel("relative error of the matrix")
panels[0].legend()
plt.show()
