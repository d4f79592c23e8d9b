"""Kernel functions at inducing inputs as the basis."""
