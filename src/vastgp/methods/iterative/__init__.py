"""Conjugate gradients on the exact kernel, with and without bias of truncation."""
