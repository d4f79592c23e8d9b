"""DIRECT: weights that take a few values each, evidence bounds that are exact, predictions in integers.

From ``DirectRegressor.fit`` to the numerics: `regressor` (``_answers``: hyperparameters, basis, sums over the rows) ->
`fit` (``fit_weights``: start, weights, mixture) -> `training` (what is maximised) -> `newton` -> `elbo` (the bound),
and of a mixture `mixture_training` in the place of both.
``DirectClassifier`` goes by `classifier` and `logistic_training`, whose quadratic bounds make sums of classes;
``DirectNetworkRegressor`` by `network`, `network_training`, `network_polynomial`. `options` holds what arguments are,
`posterior` predicts, `integer_model` and `integer_header` export to C.
"""
