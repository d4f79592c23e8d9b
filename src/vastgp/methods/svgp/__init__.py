"""Inducing points with a Gaussian posterior: SVGP and the dual parameters of t-SVGP."""
