"""The distance that a kernel's correlation falls with."""

from __future__ import annotations

import numpy as np

from vastgp.kernels.stationary import Kernel


def metric_lengthscales(kernel: Kernel, num_features: int) -> np.ndarray:
    """Return one lengthscale for each input such that correlation falls with the distance between scaled inputs.

    Those of the kernel itself where it is a single stationary one: neighbours by this distance are those of largest
    correlation. For sums and products, from the average of ``1 / lengthscale^2``, weighted by the variances of the
    terms of a sum and added over the factors of a product: what the kernel's curvature at distance zero would be if
    every part had the same form.

    Parameters
    ----------
    kernel : Kernel
    num_features : int

    Returns
    -------
    ndarray of float64, shape (d,)
    """
    total, weights = np.zeros(num_features), 0.0
    for term in kernel.spectral_terms():
        variance = float(np.prod([float(part.variance) for part in term]))
        scales = [np.broadcast_to(part.lengthscales, num_features) for part in term]
        total += variance * np.sum([np.asarray(one, np.float64) ** -2 for one in scales], axis=0)
        weights += variance
    return (weights / total) ** 0.5
