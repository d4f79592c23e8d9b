"""The stationary process of place and time: which methods race for it, on which stations they are judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from vastgp.auto import candidates
from vastgp.auto.candidates import Candidate
from vastgp.auto.finish import Whole
from vastgp.auto.folds import Fold, folds_of
from vastgp.auto.inputs import Inputs
from vastgp.auto.regressor import GPRegressor
from vastgp.auto.stations.readings import Readings
from vastgp.auto.track import Ran, Track
from vastgp.auto.warps import Own
from vastgp.data import Rows
from vastgp.estimators.judging import OWN
from vastgp.estimators.registry import estimator_class
from vastgp.estimators.searches import Fixed
from vastgp.options import Nearest, Sparse, Subset

# Methods whose posterior mean is linear in the targets, with normal noise: what the trend is learned by.
METHODS = ("exact", "nearest", "swsgp", "qsgp", "tsvgp", "iterative")
# Few rows are no matter for an approximation; of more the nearest ones say as much (5000 stations: RMSE that of the
# exact process at the kernel that drew them).
_EXACT_ROWS = 3000
# Of readings that repeat places the nearest are few places: less than this share of different ones is for inducing
# inputs.
_MOST_REPEATED = 0.5
# From fewer stations nothing is held out.
_LEAST_STATIONS, _LEAST_ROWS = 10, 30
# Inducing inputs of the local method: every row of few, and where there is next to no noise over that of a standardised
# target (4000 cells of an ocean model: RMSE 0.336 with every second one); of more every second, up to so many. All gain
# little there (20,000 stations: NLPD 0.951, 0.936 with 70 %, 1.012 with a quarter) and take twice the time.
_ALL, _NO_NOISE, _MOST_INDUCING = 8192, 0.1, 40_000
# Least noise variance of a standardised target: fields of models have none, and with a thousandth what the local method
# takes by itself 4000 cells of an ocean model have RMSE 0.309.
_NOISE_FLOOR = 1e-6
# In the race some rows are held out.
_SHARE_IN_RACE = 0.75
# What its systems are solved to, over the noise of a standardised target: the function is off by a hundredth of the
# noise. Relative residuals between these.
_TOL, _LEAST_TOL, _MOST_TOL = 0.01, 1e-4, 3e-3


class PlaceProcess(GPRegressor):
    """`GPRegressor` of places and times alone: methods of normal noise, judged on stations that they have not seen.

    ``_asked`` are a kernel and hyperparameters, ``_stations`` the number of each row's station.
    """

    _asked: dict[str, Any]
    _stations: np.ndarray

    def _folds(self, inputs: Inputs, n: int, seed: int, budget: float | None) -> list[Fold]:
        stations = self._stations[inputs.in_table()]
        few = n < _LEAST_ROWS or len(np.unique(stations)) < _LEAST_STATIONS
        if few or isinstance(self._asked.get("hyperparameters"), Fixed):
            return []
        return folds_of(n, seed, budget, np.unique(stations, return_inverse=True)[1])

    def _candidates(self, rows: Rows, tied: Sequence[Sequence[int]]) -> list[Candidate]:
        del tied
        return [self._as_asked(candidates.named(self.method, False, "auto"), rows)]

    def _fitted_to_all(
        self, best: Ran | None, candidates: Sequence[Candidate], whole: Whole
    ) -> Any:
        # of the race hyperparameters are wanted, which `kriging` conditions on all rows
        return super()._fitted_to_all(best, candidates, whole) if best is None else None

    def _takes_in(self, whole: Whole) -> bool:
        del whole
        return False

    def _as_asked(self, candidate: Candidate, rows: Rows) -> Candidate:
        params = dict(self._asked)
        if candidate.name == "swsgp":
            some = len(np.unique(rows.X[:], axis=0))
            params.setdefault("hyperparameters", Subset(noise_floor=_NOISE_FLOOR))
            params["num_inducing"] = min(int(_SHARE_IN_RACE * some), inducing_of(some, 1.0))
        elif candidate.name == "nearest":
            # the trend is learned with one noise beside what is known of each reading
            params |= {"solver": Nearest(evidence="ordered"), "likelihood": "gaussian"}
        return dataclasses.replace(candidate, params=candidate.params | params)

    def _heap_of(self, targets: np.ndarray, counts: bool) -> None:
        # the trend is linear in the targets, and learned with one normal noise
        del targets, counts

    def _warps(self, y: np.ndarray, seed: int) -> list[Own]:
        return [Own()]

    def _stacked(
        self, ran: list[Ran], winner: int | None, track: Track, y: np.ndarray
    ) -> tuple[list[Ran], int | None]:
        return ran, winner

    def _header(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        header, arrays = super()._header()
        return header | {"estimator": "GPRegressor"}, arrays


def inducing_of(n: int, noise: float) -> int:
    """Return how many inducing inputs the local method has, by different rows and noise of a standardised target."""
    share = n if n <= _ALL or noise < _NO_NOISE else n // 2
    return max(min(share, _MOST_INDUCING), 2)


def method_of(readings: Readings) -> str:
    """Return the method that suits readings: by their number, and by how many of them are at one place and time."""
    if len(readings) <= _EXACT_ROWS:
        return "exact"
    when = np.zeros(len(readings)) if readings.when is None else readings.when.astype(np.float64)
    different = len(np.unique(np.column_stack([readings.place, when]), axis=0))
    return "nearest" if different > _MOST_REPEATED * len(readings) else "swsgp"


def gives_nearest(model: Any) -> bool:
    """Whether what `conditioned` makes of a fitted estimator predicts from the nearest rows.

    That is so whatever answer the fit ended with: of the exact posterior of some rows, kernel and noise are taken.
    """
    return _is_of_process(model) and isinstance(model.get_params().get("solver"), Nearest)


def _is_of_process(model: Any) -> bool:
    return model.answer_ in (OWN, "subset") or "Exact" in type(model).__name__


def conditioned(
    model: Any,
    tied: Sequence[Sequence[int]],
    X: np.ndarray,
    y: np.ndarray,
    noise: Any,
) -> Any:
    """Return an estimator of the kind of a fitted one, with its hyperparameters, given other targets or rows.

    Parameters
    ----------
    model : estimator
        Fitted; its hyperparameters are held.
    tied : sequence of sequences of int
        Columns that are one input.
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    noise : ndarray of shape (n,), or None
        Known standard deviations.
    """
    params = model.get_params(deep=False)
    groups = [tuple(group) for group in tied if len(group) > 1] or None
    made = type(model)
    if not _is_of_process(model):
        # a fit that ended with linear functions: not every method has their kernel
        made, params = estimator_class("ExactGPRegressor"), {}
    params |= {
        "kernel": model.kernel_,
        "hyperparameters": Fixed(noise_std=float(model.likelihood_.noise_std), tied=groups),
        "max_seconds": None,
    }
    relative = float(model.likelihood_.noise_std) / float(model.standardizer_.y_scale)
    if isinstance(params.get("solver"), Nearest):
        # all rows are kept, and there are as many neighbours as were of use
        params["num_inducing"] = len(X)
        found = getattr(model.posterior_, "num_neighbors", None)
        params["num_neighbors"] = None if found is None else min(found, len(X))
    elif params.get("num_inducing") is not None:
        params["num_inducing"] = inducing_of(len(np.unique(X, axis=0)), relative)
    if getattr(model, "solver_", None) == "sparse" and params.get("solver") == "auto":
        params["solver"] = Sparse(tol=float(np.clip(_TOL * relative, _LEAST_TOL, _MOST_TOL)))
    params.pop("checkpoint", None)
    fresh = made(**params)
    return fresh.fit(X, y) if noise is None else fresh.fit(X, y, noise_std=noise)
