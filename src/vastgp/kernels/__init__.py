"""Covariance functions, their sums and products, and their spectral densities."""

from vastgp.kernels.base import Kernel, Product, Sum
from vastgp.kernels.coregionalisation import Coregionalisation
from vastgp.kernels.embedded import Cyclic, OnSphere
from vastgp.kernels.grid import GridKernel
from vastgp.kernels.linear import Constant, Linear
from vastgp.kernels.periodic import Periodic
from vastgp.kernels.spec import from_name, from_spec, to_spec
from vastgp.kernels.stationary import (
    RBF,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    Stationary,
)

__all__ = [
    "RBF",
    "Constant",
    "Coregionalisation",
    "Cyclic",
    "GridKernel",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "OnSphere",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Stationary",
    "Sum",
    "from_name",
    "from_spec",
    "to_spec",
]
