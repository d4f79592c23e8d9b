"""Stochastic variational inference whose steps cost the same whatever n and m are."""
