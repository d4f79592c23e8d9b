"""Grid eigenfunctions as the basis of an estimator: kernels that factor over the inputs, and where the grid is."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from vastgp.bases.grid_eigenfunctions import (
    GridEigenfunctionBasis,
    axis_kernels,
)
from vastgp.bases.inducing_grid import grid_axes
from vastgp.data import Rows, Standardizer
from vastgp.estimators.arguments import check_spectrum
from vastgp.kernels import RBF, GridKernel, Kernel, from_name
from vastgp.kernels.stationary import Stationary

# Inducing points of an input where there is no argument for it, as in the thesis.
GRID_SIZE = 10
# Rows that the grid is placed on, beside the extremes of all rows.
_GRID_ROWS = 10_000


def grid_points(
    rows: Rows, standardizer: Standardizer, grid_size: int = GRID_SIZE, placement: str = "even"
) -> list[np.ndarray]:
    """Return the inducing points of every input, standardised, between the extremes of all rows."""
    chosen = np.unique(np.linspace(0, rows.n - 1, min(rows.n, _GRID_ROWS)).astype(np.int64))
    X = standardizer.transform_X(rows.take(chosen)[0]).copy()
    limits = standardizer.transform_X(np.stack(standardizer.x_range))
    # what varies by rounding alone is one point
    constant = standardizer.constant_features_
    X[:, constant], limits[:, constant] = 0.0, 0.0
    return grid_axes(X, grid_size, placement, limits)


def grid_eigenfunctions(
    kernel: Kernel, rows: Rows, standardizer: Standardizer, most: int
) -> GridEigenfunctionBasis:
    """Return the leading eigenfunctions of a kernel as a product over the inputs, ``most`` of them at most."""
    axes = grid_points(rows, standardizer)
    return GridEigenfunctionBasis.build_most(as_product(kernel, rows.d), axes, most)


def check_product(kernel: Any, num_features: int) -> None:
    """Raise ``ValueError`` for a kernel that does not factor over the inputs."""
    if isinstance(kernel, str):
        kernel = from_name(kernel).with_ard(num_features)
        if isinstance(kernel, Stationary):  # a name stands for the form, see `as_product`
            return
    if isinstance(kernel, Kernel):
        axis_kernels(kernel, num_features)


def check_kernel_of(
    basis: str, kernel: Any, num_features: int, num_basis: int | None = None
) -> None:
    """Raise ``ValueError`` for a kernel that a basis, by its name, cannot have with so many inputs and functions."""
    if basis == "grief":
        check_product(kernel, num_features)
    elif basis in ("fourier", "random-fourier"):
        check_spectrum(kernel, num_features, num_basis)


def as_product(kernel: Kernel, num_features: int) -> Kernel:
    """Return the product of one kernel of the same form and lengthscale for each input; RBFs are one already."""
    if isinstance(kernel, RBF) or not isinstance(kernel, Stationary):
        return kernel
    scales = np.broadcast_to(np.asarray(kernel.scales), (num_features,))
    parts = [
        dataclasses.replace(
            kernel, lengthscales=scales[i : i + 1].copy(), variance=1.0, inputs=None
        )
        for i in range(num_features)
    ]
    groups = [[f"x{i}"] for i in range(num_features)]
    return GridKernel(parts, groups, kernel.variance)
