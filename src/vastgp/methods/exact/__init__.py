"""The exact Gaussian process."""
