"""Methods to compare, as data: name -> constructor arguments of QSGPRegressor."""

from __future__ import annotations

from typing import Any

# None: the kernel is chosen by evidence, as by default.
KERNELS: dict[str, str | None] = {"houseelectric": "rbf"}

METHODS: dict[str, dict[str, Any]] = {
    "block": {"solver": "block", "num_basis": 100_000},
    "block-20k": {"solver": "block", "num_basis": 20_000},
    "block-learned": {"solver": "block", "num_basis": 100_000, "hyperparameters": "learn"},
    "qsgp-0": {"solver": "stochastic", "num_basis": 100_000, "dense_columns": 0},
    "qsgp-100": {"solver": "stochastic", "num_basis": 100_000, "dense_columns": 100},
}
