"""Grids with gaps by Kronecker algebra."""
