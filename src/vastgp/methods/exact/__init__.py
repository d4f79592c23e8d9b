"""The exact Gaussian process.

From ``ExactGPRegressor.fit`` to the numerics: `estimator` (``_answers``) -> `vastgp.fitting.start` (``fit_best``)
-> `vastgp.fitting.lbfgs` -> `vastgp.fitting.exact_evidence`; `vastgp.solvers.exact_posterior` conditions and predicts.
"""
