"""Sparse within sparse: every row uses the inducing points nearest to it."""
