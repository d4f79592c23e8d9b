"""Relevance vectors: one prior precision for each of many kernel functions, by empirical Bayes.

From ``RelevanceVectorRegressor.fit`` to the numerics: `estimator` (``_answers``: candidates, kernel) -> `training`
(``fit_relevance``: sets of candidates, fixed points) -> `evidence` (the bound at its best posterior).
"""
