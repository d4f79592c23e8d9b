"""Random Fourier features, with and without bias of truncation."""
