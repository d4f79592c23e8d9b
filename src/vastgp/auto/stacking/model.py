"""A stack: several fitted models of encoded rows as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vastgp.auto.stacking.mixture import Mixture
from vastgp.auto.trees import of_file
from vastgp.data.archive import above, below
from vastgp.estimators.arguments import seed_from


class Stack:
    """Fitted estimators whose distributions are averaged.

    All else that is asked of it (a kernel, a likelihood, a history) is that of the one with the largest weight.

    Parameters
    ----------
    members : sequence of estimator
        Fitted to rows of the same columns, on the same scale of the target.
    weights : array-like of shape (K,)
        Not negative; they are divided by their sum.
    """

    def __init__(self, members: Sequence[Any], weights: Any) -> None:
        weights = np.asarray(weights, np.float64)
        order = np.argsort(-weights, kind="stable")
        self.members = tuple(members[number] for number in order)
        self.weights = weights[order] / weights.sum()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the member with the largest weight."""
        if name.startswith("__") or name in ("members", "weights"):
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
        return Mixture(tuple(member.distribution(X) for member in self.members), self.weights)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Return samples of the function at encoded rows, (n, n_samples): each of one member, drawn by its weight."""
        generator = np.random.default_rng([seed_from(random_state), 4])
        member = generator.choice(len(self.members), size=n_samples, p=self.weights)
        found = np.empty((len(X), n_samples))
        for number in np.unique(member):
            here = np.flatnonzero(member == number)
            found[:, here] = self.members[number].sample_y(X, len(here), random_state)
        return found

    # ------------------------------------------------------------ files

    def _to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        headers: list[dict[str, Any]] = []
        arrays: dict[str, np.ndarray] = {}
        for number, member in enumerate(self.members):
            header, of_member = member._to_file()
            headers.append(header)
            arrays |= above(f"member{number}/", of_member)
        return {"stack": headers, "weights": self.weights.tolist()}, arrays


def model_from_file(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Return the model of encoded rows that a file describes, a stack of them where it is one."""
    if "stack" not in header:
        return of_file(header, arrays)
    members = [
        of_file(one, below(f"member{number}/", arrays))
        for number, one in enumerate(header["stack"])
    ]
    return Stack(members, header["weights"])


def leading(model: Any) -> Any:
    """Return the model of most weight in a stack; a model that is none, itself."""
    return model.members[0] if isinstance(model, Stack) else model


def parts_of(model: Any) -> list[tuple[Any, float]]:
    """Return the models that a model is made of, and their weights, which are one of a model alone."""
    if not isinstance(model, Stack):
        return [(model, 1.0)]
    return list(zip(model.members, model.weights.tolist(), strict=True))
