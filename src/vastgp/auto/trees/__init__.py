"""Boosted trees as an input of a process: what they say of a row, by trees that have not seen it.

A process with one lengthscale for each input is slow to learn steps along an axis, of which trees are made. Trees are
grown by scikit-learn's histogram gradient boosting on four fifths of the training rows at a time, and what they
predict for the other fifth is one more input (`grown`); the process learns how much to follow it, and where not to.
They are kept as arrays (`ensemble`), which `nodes` reads off scikit-learn's estimators.

Of three ways this one was the best or within a standard error of it on eight of nine tables: residuals of the trees
with all inputs, trees as an input, and both at once. NLPD of unseen rows, QSGP with 10 s, without trees and by the
three ways: mixed-3k 0.46, 0.27, 0.20, 0.27; skewed-4k (logarithms) 0.85, 0.35, 0.34, 0.34; rough-50k (8000 rows) 0.19,
-0.64, -0.66, -0.66; wine 2.23, 1.57, 0.46, 1.36; bike -2.02, -2.26, -2.31, -2.29. Where trees are worse than the
process (airfoil -0.32, 0.04, 0.02, 0.04; friedman-5k -0.17, -0.02, -0.03, -0.03), the candidates without them win the
race. Residuals have lost what the trees were wrong about, and an input has not; classes have no residuals.
"""

from vastgp.auto.trees.ensemble import Trees
from vastgp.auto.trees.grove import WHOLE, Grove
from vastgp.auto.trees.grown import (
    Grown,
    columns_of,
    grow,
    probabilities_of,
    seconds_to_grow,
    squared_error,
)
from vastgp.auto.trees.in_time import has_trees, rows_told, seconds_for_trees
from vastgp.auto.trees.model import OnTrees, of_file, process_of

__all__ = [
    "WHOLE", "Grove", "Grown", "OnTrees", "Trees",
    "columns_of", "grow", "has_trees", "of_file", "probabilities_of", "process_of", "rows_told", "seconds_for_trees",
    "seconds_to_grow", "squared_error",
]  # fmt: skip
