"""Linear systems of many rows or functions: systems, conjugate gradients, preconditioners, sites, weights."""
