"""scikit-learn's Gaussian process and HistGradientBoosting at the budgets of ../anytime.py, on the same rows.

    python benchmarks/peers/anytime_sklearn.py --table shared --budget 5 15 60 300

Any environment that has scikit-learn 1.7 or newer runs it. The process (anisotropic Matérn-5/2, white noise) takes as
many rows as the budget affords: it begins with few and takes up to twice as many, with the hyperparameters found, for
as long as evaluations of the evidence are quick enough. Boosting stops by rows kept out, whose residuals also give the
deviation of its Gaussian.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from scipy.optimize import minimize
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.preprocessing import StandardScaler

sys.path.append(str(Path(__file__).parents[1]))
from anytime_program import Scored, command_line, run
from anytime_tables import Drawn, class_scores, gaussian_scores, kept_out, standardised

# Rows that the process begins with; evaluations of evidence and gradient that have to fit in what is left before it
# takes more; what the gradients of its kernel may hold.
_FIRST_ROWS, _EVALUATIONS, _MOST_BYTES = 128, 10, 4e9
# Iterations before the first look at the clock, and the most of them.
_FIRST_TREES, _MOST_TREES = 10, 10_000
# Rows predicted at once.
_BLOCK = 2000


class Until:
    """L-BFGS, as scikit-learn has it, that keeps the best value and goes on while another one fits in the time."""

    def __init__(self, deadline: float) -> None:
        self.deadline, self.over = deadline, False
        self.evaluations, self.seconds = 0, 0.0

    def affords(self, evaluations: int) -> float:
        """Return how many times so many more evaluations, as long as those of the last search, fit in the time."""
        return max(self.deadline - time.perf_counter(), 0.0) / (evaluations * self.seconds)

    def __call__(
        self, objective: Any, initial: np.ndarray, bounds: np.ndarray
    ) -> tuple[Any, float]:
        """Return the best hyperparameters and their value."""
        best, spent = (np.inf, initial), []

        def watched(theta: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best
            began = time.perf_counter()
            if spent and began + spent[-1] > self.deadline:
                raise TimeoutError
            value, gradient = objective(theta)
            if value < best[0]:
                best = (value, theta.copy())
            spent.append(time.perf_counter() - began)
            return value, gradient

        try:
            minimize(watched, initial, method="L-BFGS-B", jac=True, bounds=bounds)
        except TimeoutError:
            self.over = True
        self.evaluations, self.seconds = self.evaluations + len(spent), float(np.median(spent))
        return best[1], best[0]


def process(budget: float, table: Drawn) -> Scored:
    """Fit a Gaussian process, of classes by Laplace's approximation, to more and more rows."""
    # the last factorisation comes after the search
    search = Until(time.perf_counter() + 0.95 * budget)
    scaler = StandardScaler().fit(table.X)
    X, y = scaler.transform(table.X), table.y if table.classes else standardised(table)
    n, d = X.shape
    kernel = ConstantKernel(1.0, (1e-4, 1e4)) * Matern(np.full(d, d**0.5), (1e-3, 1e4), nu=2.5)
    if not table.classes:
        kernel = kernel + WhiteKernel(0.1, (1e-8, 1e2))
    kind = GaussianProcessClassifier if table.classes else GaussianProcessRegressor
    order = _in_random_order(table)
    most = min(n, int((_MOST_BYTES / (24 * (d + 2))) ** 0.5))
    rows = min(most, _FIRST_ROWS)
    while True:
        few = order[:rows]
        model = kind(kernel, optimizer=search, random_state=0).fit(X[few], y[few])
        kernel = model.kernel_
        growth = min(2.0, search.affords(_EVALUATIONS) ** (1 / 3))
        if search.over or rows == most or growth < 1.2:
            break
        rows = min(most, int(growth * rows))
    about = {"rows": rows, "evaluations": search.evaluations, "kernel": str(model.kernel_)}
    about["stop"] = "the budget was over" if rows < n else "all rows"
    if search.over:
        about["stop"] = "the budget was over, not converged"
    return partial(_process_scores, model, scaler, table), about | _versions()


def _in_random_order(table: Drawn) -> np.ndarray:
    """Return row numbers in random order, of each class one at the head."""
    order = np.random.default_rng(0).permutation(len(table.y))
    if not table.classes:
        return order
    first = np.unique(table.y[order], return_index=True)[1]
    return np.concatenate([order[first], np.delete(order, first)])


def _process_scores(model: Any, scaler: StandardScaler, table: Drawn) -> dict[str, float]:
    """Return scores of a process, whose matrices of test rows by rows are made a block at a time."""
    X = scaler.transform(table.X_test)
    blocks = [X[first : first + _BLOCK] for first in range(0, len(X), _BLOCK)]
    if table.classes:
        found = np.concatenate([model.predict_proba(block) for block in blocks])
        return class_scores(table, found, model.classes_)
    found = np.concatenate([model.predict(block, return_std=True) for block in blocks], axis=1)
    return gaussian_scores(table, *found)


def grow(
    kind: Any, rows: tuple[Any, Any], watched: tuple[Any, Any], deadline: float, **params: Any
) -> Any:
    """Return trees, added until the rows watched are no longer predicted better, or the deadline."""
    model = kind(
        max_iter=_FIRST_TREES, early_stopping=True, warm_start=True, random_state=0, **params
    )
    there = 0
    while True:
        began = time.perf_counter()
        model.fit(*rows, X_val=watched[0], y_val=watched[1])
        now = time.perf_counter()
        # of the trees that are left, as many as the last ones tell; not all at once, as later ones may take longer
        more = int((model.n_iter_ - there) * min(2.0, (deadline - now) / (now - began)))
        there = model.n_iter_
        if there < model.max_iter or more < 1 or there >= _MOST_TREES:
            return model
        model.max_iter = min(there + more, _MOST_TREES)


def boosting(budget: float, table: Drawn) -> Scored:
    """Boost trees until rows kept out are no longer predicted better, or the budget is over."""
    deadline = time.perf_counter() + 0.95 * budget
    y = table.y if table.classes else standardised(table)
    out, rest = kept_out(table)
    kind = HistGradientBoostingClassifier if table.classes else HistGradientBoostingRegressor
    model = grow(kind, (table.X[rest], y[rest]), (table.X[out], y[out]), deadline)
    about: dict[str, Any] = {"trees": model.n_iter_, "kept_out": len(out)} | _versions()
    about["stop"] = "early" if model.n_iter_ < model.max_iter else "the budget was over"
    if table.classes:
        return lambda: class_scores(table, model.predict_proba(table.X_test), model.classes_), about
    residuals = y[out] - model.predict(table.X[out])
    # a target without noise may leave none
    deviation = max(float(np.sqrt(np.mean(residuals**2))), 1e-6)
    about["deviation"] = deviation

    def scored() -> dict[str, float]:
        mean = model.predict(table.X_test)
        return gaussian_scores(table, mean, np.full(len(mean), deviation))

    return scored, about


def _versions() -> dict[str, Any]:
    return {"versions": {"scikit-learn": sklearn.__version__, "numpy": np.__version__}}


METHODS = {"scikit-learn GP": process, "scikit-learn HistGradientBoosting": boosting}

if __name__ == "__main__":
    run(
        command_line(__doc__).parse_args(),
        lambda table: list(METHODS),
        lambda estimator, budget, params: partial(METHODS[estimator], budget, **params),
    )
