"""SWSGP: very many inducing inputs, of which each row sees the nearest.

From ``fit`` to the numerics: `fits.SwsgpFits._answers` resolves the arguments and finds first hyperparameters,
`fit.fit_neighbourhoods` chooses between the solvers. `sparse.fit_sparse` takes Newton steps on sparse matrices;
`training.fit_swsgp` runs chunks of `step.one_step`, whose formulas are in `bound` and `neighbour_systems`. Where
targets are what is known at the inducing inputs, `nearest.fit_nearest` has `local_scale`, and `nearest_learning` learns
by `neighbour_evidence`.
"""
