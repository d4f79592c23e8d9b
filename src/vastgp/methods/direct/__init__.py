"""Discrete posteriors of the weights."""
