"""Quadruply stochastic Gaussian processes: any number of rows and basis functions.

From ``QSGPRegressor.fit`` to the numerics, with the block solver (`stochastic` and `inducing` say theirs):

1. `vastgp.estimators.fitted.FittedModel`: arguments checked, budget and file opened, the answer committed;
2. `estimator.QSGPFits`: size, first hyperparameters, the basis and the solver;
3. `block.fit_block_answers`: learning or sites first (`block_learning`, `vastgp.solvers.sites`), then the posterior;
4. `vastgp.solvers.block`: the system in the cheaper space, and conjugate gradients for mean and samples together;
5. `vastgp.solvers.row_system`, `basis_system`: products with it, by passes over blocks of basis functions.
"""
