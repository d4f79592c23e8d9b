"""Quadruply stochastic Gaussian processes: any number of rows and basis functions."""
