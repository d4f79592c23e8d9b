"""A stack: several fitted models of encoded rows as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vastgp.auto.stacking.by_spread import BySpread, finite_spread
from vastgp.auto.stacking.mixture import Mixture
from vastgp.auto.trees import of_file
from vastgp.estimators.arguments import seed_from
from vastgp.estimators.saved import several_from_file, several_to_file


class Stack:
    """Fitted estimators whose distributions are averaged.

    All else that is asked of it (a kernel, a likelihood, a history) is that of the one with the largest weight.

    Parameters
    ----------
    members : sequence of estimator
        Fitted to rows of the same columns, on the same scale of the target.
    weights : array-like of shape (K,)
        Not negative; they are divided by their sum.
    varying : BySpread, optional
        Weights that differ by row, of the members in the order given; ``weights`` are then their means over some rows.
    """

    def __init__(
        self, members: Sequence[Any], weights: Any, varying: BySpread | None = None
    ) -> None:
        weights = np.asarray(weights, np.float64)
        order = np.argsort(-weights, kind="stable")
        self.members = tuple(members[number] for number in order)
        self.weights = weights[order] / weights.sum()
        self.varying = None if varying is None else varying.of_parts(order)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the member with the largest weight."""
        if name.startswith("__") or name in ("members", "weights", "varying"):
            raise AttributeError(name)  # of an object that is being made, by pickle for example
        return getattr(self.members[0], name)

    @property
    def answer_(self) -> str:
        """Kinds of the members' answers, see `vastgp.estimators.base`."""
        return " + ".join(member.answer_ for member in self.members)

    @property
    def converged_(self) -> bool:
        """Whether all members' fits ended by themselves."""
        return all(member.converged_ for member in self.members)

    @property
    def stop_reason_(self) -> str:
        """Why the members' fits ended."""
        return "; ".join(dict.fromkeys(str(member.stop_reason_) for member in self.members))

    @property
    def n_iter_(self) -> int:
        """Steps of all members' fits."""
        return sum(int(member.n_iter_) for member in self.members)

    @property
    def fit_seconds_(self) -> float:
        """Seconds of all members' fits."""
        return sum(float(member.fit_seconds_) for member in self.members)

    @property
    def classes_(self) -> np.ndarray:
        """Classes that any member knows, sorted."""
        return np.unique(np.concatenate([member.classes_ for member in self.members]))

    def predict(self, X: Any) -> np.ndarray:
        """Return means at encoded rows, (n,)."""
        if self.varying is not None:
            return self.distribution(X).mean
        return self.weights @ np.stack([member.predict(X) for member in self.members])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities of the classes at encoded rows, (n, C)."""
        classes = self.classes_
        found = np.zeros((len(X), len(classes)))
        for member, weight in zip(self.members, self.weights, strict=True):
            found[:, np.searchsorted(classes, member.classes_)] += weight * member.predict_proba(X)
        return found

    def distribution(self, X: Any) -> Mixture:
        """Return the distribution of new observations at encoded rows."""
        parts = tuple(member.distribution(X) for member in self.members)
        weights = self.weights if self.varying is None else self.varying.at(_spreads(parts)).T
        return Mixture(parts, weights)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Return samples of the function at encoded rows, (n, n_samples): each of one member, drawn by its weight.

        Where weights differ by row it is that member's at the rows where the level that was drawn lies in its share.
        """
        generator = np.random.default_rng([seed_from(random_state), 4])
        level = generator.uniform(size=n_samples)
        if self.varying is None:
            weights = np.broadcast_to(self.weights, (len(X), len(self.members)))
        else:
            weights = self.varying.at(_spreads([one.distribution(X) for one in self.members]))
        ends = np.cumsum(weights, axis=1)[:, :-1]
        chosen = np.sum(level >= ends[:, :, None], axis=1)  # (n, n_samples)
        found = np.empty((len(X), n_samples))
        for number, member in enumerate(self.members):
            of_it = chosen == number
            here = np.flatnonzero(of_it.any(axis=0))
            if len(here):
                drawn = member.sample_y(X, len(here), random_state)
                found[:, here] = np.where(of_it[:, here], drawn, found[:, here])
        return found

    # ------------------------------------------------------------ files

    def _to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        headers, arrays = several_to_file(self.members, "member")
        varying = None if self.varying is None else self.varying.to_state()
        return {"stack": headers, "weights": self.weights.tolist(), "varying": varying}, arrays


def model_from_file(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Return the model of encoded rows that a file describes, a stack of them where it is one."""
    if "stack" not in header:
        return of_file(header, arrays)
    members = several_from_file(of_file, header["stack"], arrays, "member")
    varying = header.get("varying")
    return Stack(
        members, header["weights"], None if varying is None else BySpread.from_state(varying)
    )


def _spreads(parts: Sequence[Any]) -> np.ndarray:
    """Return the deviations that distributions state of rows, (n, K)."""
    return np.column_stack([finite_spread(part.std, part.quantiles) for part in parts])


def leading(model: Any) -> Any:
    """Return the model of most weight in a stack; a model that is none, itself."""
    return model.members[0] if isinstance(model, Stack) else model


def parts_of(model: Any) -> list[tuple[Any, float]]:
    """Return the models that a model is made of, and their weights, which are one of a model alone."""
    if not isinstance(model, Stack):
        return [(model, 1.0)]
    return list(zip(model.members, model.weights.tolist(), strict=True))
