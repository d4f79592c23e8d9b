"""A fixed number of random Fourier features, solved directly; learned with and without the bias of their number.

From ``RandomFeatureGPRegressor.fit`` to the numerics: `estimator` (``_answers``) -> `learning` (slopes at a step) ->
`evidence` (sums over the rows, value and slope of the first features) -> `vastgp.fitting.accumulate`.
"""
