"""Relevance vectors: one prior precision for each basis function."""
