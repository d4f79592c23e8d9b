"""Trees as arrays from scikit-learn's histogram gradient boosting: the one place that reads its private attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn

from vastgp.auto.trees.ensemble import LEAVES, MOST_LEAVES, Trees

_FIELDS = ("value", "feature_idx", "num_threshold", "left", "right", "is_leaf", "is_categorical", "gain")  # fmt: skip


def trees_of(estimator: Any, iterations: int) -> Trees:
    """Return the first trees of a fitted estimator; their sum is its raw prediction after so many iterations.

    Parameters
    ----------
    estimator : HistGradientBoostingRegressor or HistGradientBoostingClassifier
        Fitted to finite numbers, none of them categories, with at most 16 leaves in a tree.
    iterations : int

    Raises
    ------
    ValueError
        Where this version of scikit-learn keeps its trees in another way.
    """
    try:
        base = np.array(estimator._baseline_prediction, np.float64).ravel()
        grown = [
            (column, _checked(one.nodes))
            for stage in estimator._predictors[:iterations]
            for column, one in enumerate(stage)
        ]
    except (AttributeError, TypeError) as error:
        raise _unknown(str(error)) from error
    parts = []
    shares = np.zeros(estimator.n_features_in_)
    for column, nodes in grown:
        split = nodes[nodes["is_leaf"] == 0]
        np.add.at(shares, split["feature_idx"], np.maximum(split["gain"], 0.0))
        if len(split):
            parts.append(
                (column, split, _kept_leaves(nodes), nodes["value"][nodes["is_leaf"] == 1])
            )
        else:
            base[column] += nodes["value"][0]  # a tree that is one leaf
    values = np.zeros((len(parts), MOST_LEAVES))
    for row, (_, _, _, leaves) in zip(values, parts, strict=True):
        row[: len(leaves)] = leaves
    counts = [len(split) for _, split, _, _ in parts]
    nodes = np.concatenate([split for _, split, _, _ in parts]) if parts else grown[0][1][:0]
    return Trees(
        feature=nodes["feature_idx"].astype(np.int64),
        threshold=nodes["num_threshold"].astype(np.float64),
        keep=np.concatenate([np.zeros(0, LEAVES), *(keep for _, _, keep, _ in parts)]),
        start=np.cumsum([0, *counts])[:-1],
        values=values,
        column=np.array([column for column, *_ in parts], np.int64),
        base=base,
        shares=shares / max(float(shares.sum()), np.finfo(np.float64).tiny),
    )


def _kept_leaves(nodes: np.ndarray) -> np.ndarray:
    """Return for each inner node, as bits, the leaves that are not to its left.

    Nodes are in the order of a walk that goes left first, so leaves come from left to right, and those on the left of a
    node lie between its two children.
    """
    before = np.concatenate([[0], np.cumsum(nodes["is_leaf"])])
    split = nodes[nodes["is_leaf"] == 0]
    first, end = before[split["left"]], before[split["right"]]
    on_the_left = (1 << end.astype(np.int64)) - (1 << first.astype(np.int64))
    return (~on_the_left & 0xFFFF).astype(LEAVES)


def _checked(nodes: np.ndarray) -> np.ndarray:
    """Return a tree's nodes where they are as `_kept_leaves` needs them."""
    missing = [name for name in _FIELDS if name not in (nodes.dtype.names or ())]
    if missing:
        raise _unknown(f"nodes have no field {missing[0]!r}")
    inner = np.flatnonzero(nodes["is_leaf"] == 0)
    split = nodes[inner]
    in_order = np.all(split["left"] == inner + 1) and np.all(split["right"] > split["left"])
    if np.any(split["is_categorical"]) or not in_order or len(nodes) > 2 * MOST_LEAVES - 1:
        raise _unknown(f"a tree of {len(nodes)} nodes is in another order, or has categories")
    return nodes


def _unknown(what: str) -> ValueError:
    return ValueError(
        f"scikit-learn {sklearn.__version__} keeps the trees of its histogram gradient boosting otherwise than "
        f"expected ({what}). Install a version from 1.6 to 1.9, or name a method without trees, such as method='qsgp'."
    )
