"""Methods to compare, as data: name -> constructor arguments of QSGPRegressor, see `make`."""

from __future__ import annotations

from typing import Any

from vastgp.cli._estimators import make_estimator

# None: the kernel is chosen by evidence, as by default.
KERNELS: dict[str, str | None] = {"houseelectric": "rbf"}

METHODS: dict[str, dict[str, Any]] = {
    "block": {"solver": "block", "num_basis": 100_000},
    "block-20k": {"solver": "block", "num_basis": 20_000},
    "block-learned": {"solver": "block", "num_basis": 100_000, "hyperparameters": "learn"},
    "qsgp-0": {"solver": "stochastic", "num_basis": 100_000, "solver.dense_columns": 0},
    "qsgp-100": {"solver": "stochastic", "num_basis": 100_000, "solver.dense_columns": 100},
}


def make(estimator: str, params: dict[str, Any]) -> Any:
    """Return an estimator; arguments are numbers and names, as in JSON.

    A name with a dot is a field of the object that an argument stands for, as in `vastgp fit --set`: ``{"solver":
    "block", "solver.rank": 500}`` is ``solver=Block(rank=500)``.
    """
    plain = {name: value for name, value in params.items() if "." not in name}
    inside = [f"{name}={value!r}" for name, value in params.items() if "." in name]
    return make_estimator(estimator, {"verbose": False} | plain, inside)
