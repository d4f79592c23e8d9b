"""Finite bases: features whose weights have a standard normal prior."""

from vastgp.bases.random_fourier import RandomFourierBasis, seed_key

__all__ = ["RandomFourierBasis", "seed_key"]
