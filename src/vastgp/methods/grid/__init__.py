"""Grids with gaps by Kronecker algebra.

The path of a fit: `GridGP.fit` (estimator.py) -> `FittedModel._fit_whole`, which opens the array -> `fit.fit_grid` ->
L-BFGS over `evidence.GridObjective.objective` -> `solver.GridSystem.solve`, conjugate gradients whose products are
Kronecker products (gaps.py).
"""
