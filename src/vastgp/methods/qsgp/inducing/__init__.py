"""Kernel functions at inducing inputs as the basis.

From ``QSGPRegressor.fit`` to the numerics:

1. `vastgp.estimators.fitted.FittedModel`: arguments checked, budget and file opened, the answer committed;
2. `vastgp.methods.qsgp.estimator.QSGPFits`: first hyperparameters, the basis;
3. `answers.fit_inducing_answers`: which inputs, and the posterior of what `fit.fit_inducing` finds;
4. `fit.fit_inducing`: `direct` for few inputs, else steps (`rows` where the inputs are the training rows, `weights` for
   others) through `vastgp.fitting.minibatch_runner`;
5. `rows.step_rows`, `weights.step_weights`: one step, a pure function, with the equations above it.
"""
