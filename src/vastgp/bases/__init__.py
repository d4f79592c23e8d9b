"""Finite bases: random Fourier features, inducing inputs, and eigenfunctions on a grid."""

from vastgp.bases.grid_eigenfunctions import GridEigenfunctionBasis
from vastgp.bases.inducing import InducingBasis
from vastgp.bases.inducing_grid import grid_axes
from vastgp.bases.random_fourier import RandomFourierBasis, StoredFourierBasis, seed_key

# Bases with weights of a standard normal prior and functions in pairs, which can be of any number.
PairedBasis = RandomFourierBasis | StoredFourierBasis | GridEigenfunctionBasis

__all__ = [
    "GridEigenfunctionBasis",
    "InducingBasis",
    "PairedBasis",
    "RandomFourierBasis",
    "StoredFourierBasis",
    "grid_axes",
    "seed_key",
]
