"""Finite bases: random Fourier features, whose weights have a standard normal prior, and inducing inputs."""

from vastgp.bases.inducing import InducingBasis
from vastgp.bases.random_fourier import RandomFourierBasis, seed_key

__all__ = ["InducingBasis", "RandomFourierBasis", "seed_key"]
