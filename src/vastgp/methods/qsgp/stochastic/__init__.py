"""Stochastic variational inference whose steps cost the same whatever n and m are.

From ``QSGPRegressor.fit`` to the numerics:

1. `vastgp.estimators.fitted.FittedModel`: arguments checked, budget and file opened, the answer committed;
2. `vastgp.methods.qsgp.estimator.QSGPFits`: size, first hyperparameters, the solver;
3. `fit.fit_stochastic`: `setup` makes what stays the same (fixed rows, preconditioner), and the steps go to
   `vastgp.fitting.minibatch_runner`, which compiles a chunk of them and reads the next one's rows; `finish` ends it;
4. `step.step`: one step, a pure function;
5. `sample.draw_samples`, `sampled_elbo`, `control_variates`: the estimates of Theorems 1 and 2, equation by equation
   (`likelihood` and `sampled_likelihood` where noise is not Gaussian).

Of several devices each has a part of the functions, see `parts`.
"""
