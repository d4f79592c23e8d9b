"""SVGP and t-SVGP: inducing inputs, minibatches of any source of rows, every likelihood.

From ``fit`` to the numerics: `estimator.SVGPFits._answers` resolves the arguments and finds first hyperparameters,
`fit.fit_svgp` places the inducing inputs, `training.learn` runs chunks of `iteration.iteration` (E-steps and M-steps,
one compiled program), whose formulas are in `steps`, `slope` and `bound`. `passes.run_passes` ends it on all rows; of
few rows, with nothing to learn by steps, `on_host.HostPasses` does in NumPy what passes are.
"""
