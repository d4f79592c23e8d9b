"""Fixed bases whose weights' prior is learned or averaged over, grid eigenfunctions (GRIEF) among them.

From ``ReweightedBasisRegressor.fit`` to the numerics: `regressor` (``_answers``: first hyperparameters, functions, sums
over the rows) -> `inference` (type II or chains from the sums alone) -> `chains` (warm-up, steps, draws) ->
`weight_priors` (a family of priors) -> `evidence` (the evidence and its slope).

`grief` learns the functions first: `grief_evidence`. `classifier` and counts go from `inference` to `latent_chains` and
`latent_values`. What a fit found is a `model`, its predictions are `mixtures`.
"""
