"""Calibration of class probabilities on held-out rows: one temperature, or for two classes an isotonic map."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, logit

from vastgp.auto.calibration import exceeds, folds
from vastgp.data import Places

_LEAST = (
    1e-16  # of a probability: an impossible class that happens costs 37 nats, not infinitely many
)
# Prior spread of log T: a temperature of 1.65 costs half a nat in all, what a handful of rows outweighs.
_SPREAD = 0.5
_WIDEST = 4.0  # of log T
_PSEUDO_ROWS = 2.0  # beside each block of the isotonic map, so that no probability becomes 0 or 1
_FEWEST = 20
METHODS = ("temperature", "isotonic")


class ClassCalibration(ABC):
    """A map of predicted class probabilities. The classes are frozen and hold plain numbers."""

    name: ClassVar[str]

    @abstractmethod
    def transform(self, proba: Any) -> np.ndarray:
        """Return calibrated probabilities of the model's own, (n, C) to (n, C), rows that sum to one."""

    @abstractmethod
    def to_state(self) -> dict[str, Any]:
        """Return plain numbers for JSON, from which `class_calibration_from_state` makes an equal object."""

    @classmethod
    def from_state(cls, state: Any) -> ClassCalibration:
        """Return the calibration that `to_state` described."""
        return class_calibration_from_state(state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassCalibration) and self.to_state() == other.to_state()

    def __hash__(self) -> int:
        return hash(str(self.to_state()))


@dataclass(frozen=True, eq=False)
class IdentityClasses(ClassCalibration):
    """The model's own probabilities."""

    name: ClassVar[str] = "none"

    @classmethod
    def fit(cls, labels: np.ndarray, proba: np.ndarray, weight: Any = 1.0) -> IdentityClasses:
        """Return it: nothing is learned."""
        return cls()

    def transform(self, proba: Any) -> np.ndarray:
        """Return the probabilities themselves."""
        return np.asarray(proba, dtype=np.float64)

    def to_state(self) -> dict[str, Any]:
        """Return the name."""
        return {"name": self.name}


@dataclass(frozen=True, eq=False)
class TemperatureScaling(ClassCalibration):
    """Probabilities to the power ``1 / T``, normalised (Guo et al. 2017): above 1 they come nearer to each other.

    Attributes
    ----------
    temperature : float
        T.
    """

    temperature: float
    name: ClassVar[str] = "temperature"

    @classmethod
    def fit(cls, labels: np.ndarray, proba: np.ndarray, weight: Any = 1.0) -> TemperatureScaling:
        """Return the temperature of largest held-out probability, with ``log T ~ N(0, 0.5^2)`` as a weak prior.

        Parameters
        ----------
        labels : ndarray of shape (n,)
            Column of each row's class.
        proba : ndarray of shape (n, C)
        weight : ndarray of shape (n,), or 1.0
            As how many rows each counts.
        """
        logs, rows = _logs(proba), np.arange(len(labels))

        def loss(log_t: float) -> float:
            scaled = log_softmax(np.exp(-log_t) * logs, axis=1)
            return float(-np.sum(weight * scaled[rows, labels]) + 0.5 * (log_t / _SPREAD) ** 2)

        found = minimize_scalar(
            loss, bounds=(-_WIDEST, _WIDEST), method="bounded", options={"xatol": 1e-6}
        )
        return cls(float(np.exp(found.x)))

    def transform(self, proba: Any) -> np.ndarray:
        """Return ``p^(1/T)`` over its sum."""
        return np.exp(log_softmax(_logs(proba) / self.temperature, axis=1))

    def to_state(self) -> dict[str, Any]:
        """Return the temperature."""
        return {"name": self.name, "temperature": self.temperature}


@dataclass(frozen=True, eq=False)
class IsotonicClasses(ClassCalibration):
    """For two classes: the observed frequency as an increasing function of the predicted probability.

    Blocks of rows by pooling adjacent violators (Zadrozny and Elkan 2002), two imagined rows of the overall frequency
    beside each so that none becomes impossible or certain, lines between the blocks on the logit scale, and a shift
    of the logit beyond the first and the last.

    Attributes
    ----------
    at, to : ndarray of shape (k,)
        Predicted and calibrated logits of the second class, at the knots.
    """

    at: np.ndarray
    to: np.ndarray
    name: ClassVar[str] = "isotonic"

    @classmethod
    def fit(cls, labels: np.ndarray, proba: np.ndarray, weight: Any = 1.0) -> IsotonicClasses:
        """Return the map; arguments as for `TemperatureScaling.fit`, of two classes."""
        from sklearn.isotonic import isotonic_regression

        x, y = _second(proba), np.asarray(labels, dtype=np.float64)
        order = np.argsort(x, kind="stable")
        x, y, own = x[order], y[order], np.broadcast_to(weight, y.shape)[order]
        # equal predictions are one block from the start, or the order of their labels would be fitted
        places, first = np.unique(x, return_index=True)
        weight = np.add.reduceat(own, first)
        share = np.add.reduceat(own * y, first) / weight
        blocks = isotonic_regression(share, sample_weight=weight)
        number = np.cumsum(np.concatenate([[0], np.diff(blocks) > 0.0])).astype(int)
        rows = np.bincount(number, weights=weight)
        centre = np.bincount(number, weights=weight * places) / rows
        mean = np.average(y, weights=own)
        n = np.sum(own)
        mean = (n * mean + 0.5 * _PSEUDO_ROWS) / (n + _PSEUDO_ROWS)
        true = np.bincount(number, weights=weight * share)
        pulled = (true + _PSEUDO_ROWS * mean) / (rows + _PSEUDO_ROWS)
        # small blocks are pulled farther, which can undo the order: it is restored
        return cls(centre, logit(isotonic_regression(pulled, sample_weight=rows + _PSEUDO_ROWS)))

    def transform(self, proba: Any) -> np.ndarray:
        """Return both columns."""
        x = _second(proba)
        inside = np.clip(x, self.at[0], self.at[-1])
        second = expit(np.interp(inside, self.at, self.to) + (x - inside))
        return np.stack([1.0 - second, second], axis=1)

    def to_state(self) -> dict[str, Any]:
        """Return the knots."""
        return {"name": self.name, "at": self.at.tolist(), "to": self.to.tolist()}


def class_calibration_from_state(state: Any) -> ClassCalibration:
    """Return the calibration that `ClassCalibration.to_state` described."""
    name = state["name"]
    if name == IdentityClasses.name:
        return IdentityClasses()
    if name == TemperatureScaling.name:
        return TemperatureScaling(float(state["temperature"]))
    if name == IsotonicClasses.name:
        return IsotonicClasses(*(np.asarray(state[k], dtype=np.float64) for k in ("at", "to")))
    raise ValueError(f"calibration: expected one of {('none', *METHODS)}, got {name!r}")


def check_method(method: Any, num_classes: int) -> None:
    """Raise ``ValueError`` unless there is a calibration of so many classes of that name."""
    if method is not None and (not isinstance(method, str) or method not in ("auto", *METHODS)):
        raise ValueError(
            f"calibrate: expected 'auto', 'temperature', 'isotonic' or None, got {method!r}"
        )
    if method == "isotonic" and num_classes != 2:
        raise ValueError(
            f"calibrate: 'isotonic' is for two classes, and there are {num_classes}; take 'temperature'"
        )


def fit_class_calibration(
    labels: Any,
    proba: Any,
    method: Any = "auto",
    seed: Any = 0,
    weight: Any = None,
    places: Places | None = None,
) -> ClassCalibration:
    """Return the calibration of a classifier by held-out rows.

    Parameters
    ----------
    labels : array-like of int, shape (n,)
        Column of each row's class.
    proba : array-like of shape (n, C)
        Predicted probabilities.
    method : {"auto", "temperature", "isotonic", None}, default "auto"
        "auto" compares none, "temperature" and, for two classes, "isotonic" by the log probability of held-out rows
        that they were not fitted to, and takes the richer one only where it is better by more than one standard error.
    seed : int, default 0
        Of the folds.
    weight : array-like of shape (n,), optional
        What each row counts; None: all alike.
    places : Places, optional
        Which rows are of one place: they count as one, and are left out together.

    Returns
    -------
    ClassCalibration
    """
    labels, proba = np.asarray(labels), np.asarray(proba, dtype=np.float64)
    places = places or Places(np.arange(len(labels)))
    weight = np.ones(len(labels)) if weight is None else np.asarray(weight, np.float64)
    if proba.ndim != 2 or proba.shape != (len(labels), proba.shape[1]):
        raise ValueError(
            f"proba: expected shape (n, C) with n = {len(labels)} as labels, got {proba.shape}"
        )
    check_method(method, proba.shape[1])
    if method is None or len(labels) == 0:
        return IdentityClasses()
    kinds: dict[str, Any] = {"temperature": TemperatureScaling}
    if proba.shape[1] == 2:
        kinds["isotonic"] = IsotonicClasses
    share = np.asarray(places.shares(weight))
    if method != "auto":
        return kinds[method].fit(labels, proba, share)
    best: ClassCalibration = IdentityClasses()
    if places.count < _FEWEST:
        return best
    score = _left_out_score(IdentityClasses, labels, proba, seed, share, places)
    for kind in kinds.values():
        other = _left_out_score(kind, labels, proba, seed, share, places)
        if exceeds(places.means(other - score, weight)):
            best, score = kind.fit(labels, proba, share), other
    return best


def _left_out_score(
    kind: Any, labels: np.ndarray, proba: np.ndarray, seed: int, share: np.ndarray, places: Places
) -> np.ndarray:
    """The log probability of each row's class by a calibration fitted to the other folds."""
    part, score = folds(places, seed), np.empty(len(labels))
    for k in np.unique(part):
        here = part == k
        changed = kind.fit(labels[~here], proba[~here], share[~here]).transform(proba[here])
        score[here] = np.log(np.maximum(changed[np.arange(len(changed)), labels[here]], _LEAST))
    return score


def _logs(proba: Any) -> np.ndarray:
    return np.log(np.maximum(np.asarray(proba, dtype=np.float64), _LEAST))


def _second(proba: Any) -> np.ndarray:
    """Logits of the second class."""
    logs = _logs(proba)
    return logs[:, 1] - logs[:, 0]
