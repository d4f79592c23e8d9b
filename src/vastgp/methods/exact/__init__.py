"""The exact Gaussian process.

From ``ExactGPRegressor.fit`` to the numerics: `estimator` (``_answers``) -> `learning` (``learn_by_stages``) ->
`vastgp.fitting.best_fit` -> `vastgp.fitting.lbfgs` -> `vastgp.fitting.exact_evidence`. Then
`vastgp.solvers.exact_posterior` conditions and predicts, for many rows by `vastgp.solvers.exact_factor` and
`vastgp.linalg.panels`, in what `pace` says that the budget leaves.
"""
