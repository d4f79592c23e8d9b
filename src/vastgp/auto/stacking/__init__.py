"""Several models as one: the average of their distributions, with weights by held-out log density.

Which models, and the weights, are chosen as Yao, Vehtari, Simpson and Gelman (2018, "Using stacking to average Bayesian
predictive distributions", Bayesian Analysis 13) do, on the rows that the race held out (`weights`). A stack takes the
place of the race's winner only where it is better by more than the error of that (`chosen`). It is an estimator of
encoded rows like any other (`model`), whose distributions are mixtures (`mixture`).
"""

from vastgp.auto.stacking.chosen import stack_of
from vastgp.auto.stacking.model import Stack, leading, model_from_file, parts_of

__all__ = ["Stack", "leading", "model_from_file", "parts_of", "stack_of"]
