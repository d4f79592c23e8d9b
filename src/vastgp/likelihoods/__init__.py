"""Likelihoods: how observations scatter around the function."""

from vastgp.likelihoods.gaussian import Gaussian

__all__ = ["Gaussian"]
