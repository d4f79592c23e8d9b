"""A process with trees as one more input: an estimator of encoded rows like any other."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.auto.trees.ensemble import Trees
from vastgp.auto.trees.grown import Grown
from vastgp.data.archive import above, below
from vastgp.estimators.registry import estimator_class
from vastgp.kernels.metric import metric_lengthscales


class OnTrees:
    """An estimator of the library with what boosted trees say of a row as further inputs.

    It takes the encoded rows as they are, and has all else that the estimator has: fitted attributes are the
    estimator's own, whose inputs are the encoded ones and after them those of the trees.

    Parameters
    ----------
    process : estimator
        Of the library; not fitted, or fitted to rows with the trees' columns.
    trees : Trees
        For new rows.
    grown : Grown, optional
        Trees for the rows that it will be fitted to; None where it is fitted.
    """

    def __init__(self, process: Any, trees: Trees, grown: Grown | None = None) -> None:
        self.process = process
        self.trees = trees
        self._grown = grown

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the estimator."""
        if (
            name.startswith("__") or name == "process"
        ):  # of an object that is being made, by pickle for example
            raise AttributeError(name)
        return getattr(self.process, name)

    @property
    def n_features_in_(self) -> int:
        """Encoded columns, without those of the trees."""
        return len(self.trees.shares)

    def fit(self, X: np.ndarray, y: np.ndarray, **own: Any) -> OnTrees:
        """Fit the estimator to the rows that the trees were grown for.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        y : ndarray of shape (n,)
        **own
            Known errors and weights, or exposures, as the estimator takes them.
        """
        if self._grown is None or len(self._grown.of_training) != len(X):
            raise ValueError(
                f"X has {len(X)} rows, and trees were grown for others. Grow trees for these, and make another model."
            )
        self.process.fit(np.column_stack([X, self._grown.of_training]), y, **own)
        self.process.history_.spent["trees"] = self._grown.seconds
        self.process.fit_seconds_ += self._grown.seconds
        self._grown = None  # the rows' own predictions are of no use to others
        return self

    def wide(self, X: Any, own: np.ndarray | None = None) -> np.ndarray:
        """Return the estimator's inputs for rows that the trees have not seen.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Encoded as new rows.
        own : ndarray of shape (n, d), optional
            Encoded as rows of the fit, where these go to the estimator.
        """
        X = np.asarray(X, np.float64)
        return np.column_stack([X if own is None else own, self.trees.predict(X)])

    def predict(self, X: Any, *others: Any, **named: Any) -> Any:
        """Return predictions for encoded rows, as the estimator does."""
        return self.process.predict(self.wide(X), *others, **named)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities of the classes for encoded rows, (n, C)."""
        return np.asarray(self.process.predict_proba(self.wide(X)))

    def distribution(self, X: Any) -> Any:
        """Return the distribution of new observations at encoded rows, see `vastgp.estimators.predictive`."""
        return self.process.distribution(self.wide(X))

    def sample_y(self, X: Any, *others: Any, **named: Any) -> np.ndarray:
        """Return samples of the function at encoded rows."""
        return np.asarray(self.process.sample_y(self.wide(X), *others, **named))

    def input_names(self, names: list[str]) -> list[str]:
        """Return names of the estimator's inputs: those of the encoded columns, and of the trees'."""
        columns = len(self.trees.base)
        return [
            *names,
            *(["trees"] if columns == 1 else [f"trees {k + 1}" for k in range(columns)]),
        ]

    def metric_lengthscales(self) -> np.ndarray:
        """Return one lengthscale for each encoded column, (d,), with what the function owes to it by way of the trees.

        The trees' column t has the lengthscale l_t. Were t a sum of linear functions of unrelated inputs, input j
        making the share s_j of its variance, a step of input j would move it by
        ``(dt)^2 = s_j Var(t) (dx_j)^2 / Var(x_j)``, so that distances in the kernel's metric are those of

            1 / l_j^2 = 1 / l_j(kernel)^2 + s_j Var(t) / (Var(x_j) l_t^2).

        Trees make steps, not lines, and this is their slope over many: an input that only they read counts.
        """
        d, scales = self.n_features_in_, np.asarray(self.process.standardizer_.x_scale, np.float64)
        scales = np.broadcast_to(scales, d + len(self.trees.base))
        found = metric_lengthscales(self.process.kernel_, len(scales))
        of_trees = np.sum((scales[d:] / found[d:]) ** 2)
        inverse = found[:d] ** -2.0 + self.trees.shares * of_trees / scales[:d] ** 2
        with np.errstate(divide="ignore"):
            return np.asarray(inverse**-0.5)

    # ------------------------------------------------------------ files

    def _to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        header, arrays = self.process._to_file()
        return header | {"on_trees": True}, arrays | above("trees/", self.trees.to_arrays())


def of_file(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Return the model of encoded rows that a file describes, with trees where it has some."""
    process = estimator_class(header["estimator"])._from_file(header, arrays)
    if not header.get("on_trees", False):
        return process
    return OnTrees(process, Trees.from_arrays(below("trees/", arrays)))


def process_of(model: Any) -> Any:
    """Return the estimator of the library within a model of encoded rows: the model itself where no trees are."""
    return model.process if isinstance(model, OnTrees) else model
