"""The exact process by conjugate gradients on the kernel's matrix, which is never formed.

From ``IterativeGPRegressor.fit`` to the numerics: `estimator` (``_answers``: first hyperparameters, learning, the final
solution) -> `learning` (slopes of the evidence at a step) -> `evidence` (value and slope from one run, plain or with
Russian roulette) -> `vastgp.solvers.cg`. The final solution: `estimator` -> `kernel_system` (operator, preconditioner
of `kernel_factors`) -> `vastgp.solvers.block`; the `posterior` is made of it.
"""
