"""The distance that a kernel's correlation falls with."""

from __future__ import annotations

import equinox as eqx
import numpy as np

from vastgp.kernels.base import Kernel, Product, Sum, check_same_columns
from vastgp.kernels.linear import Constant, Linear
from vastgp.kernels.stationary import RBF, Stationary


def metric_lengthscales(kernel: Kernel, num_features: int) -> np.ndarray:
    """Return one lengthscale for each input such that correlation falls with the distance between scaled inputs.

    Those of the kernel itself where it is a single stationary one: neighbours by this distance are those of largest
    correlation. For sums and products, from the average of ``1 / lengthscale^2``, weighted by the variances of the
    terms of a sum and added over the factors of a product: what the kernel's curvature at distance zero would be if
    every part had the same form. Only the `falling_part` counts.

    Parameters
    ----------
    kernel : Kernel
    num_features : int

    Returns
    -------
    ndarray of float64, shape (d,)
    """
    terms = falling_part(kernel).spectral_terms()
    variances = np.array([np.prod([float(part.variance) for part in term]) for term in terms])
    scales = [
        np.stack(
            [np.broadcast_to(np.asarray(part.scales, np.float64), num_features) for part in term]
        )
        for term in terms
    ]
    # relative to the largest variance and the shortest lengthscale: in units of 1e-100 their squares are no numbers
    weights, unit = variances / variances.max(), np.concatenate(scales).min(axis=0)
    total = sum(
        w * np.sum((each / unit) ** -2.0, axis=0) for w, each in zip(weights, scales, strict=True)
    )
    return np.asarray(unit * (weights.sum() / total) ** 0.5)


def metric_or_units(kernel: Kernel, num_features: int) -> np.ndarray:
    """Return `metric_lengthscales`, or one for each input where a part of the kernel does not fall with distance alone.

    What is told by nearest inputs is right by any distance; by the kernel's own it is most.
    """
    try:
        return metric_lengthscales(kernel, num_features)
    except ValueError:  # a part without a spectrum: periodic, on a sphere, a user's own
        return np.ones(num_features)


def falling_part(kernel: Kernel) -> Kernel:
    """Return the part of a kernel that falls with distance: without linear and constant parts of sums and products.

    Where it has no other part, a kernel of the distance between scaled inputs at which linear functions differ by one
    unit of the target, whatever constants stand beside them; for constants alone, of the distance between inputs.
    """
    if isinstance(kernel, Constant):
        return RBF(1.0, 1.0)
    if isinstance(kernel, Linear):
        return RBF(lengthscales=kernel.slope_variances**-0.5, variance=1.0)
    if not isinstance(kernel, (Sum, Product)):
        return kernel
    falling = tuple(part for part in kernel.parts if falls_with_distance(part))
    if not falling:  # a constant says nothing of any input, and its unit would count beside those that lines have
        falling = tuple(part for part in kernel.parts if not _level(part)) or kernel.parts
    parts = tuple(falling_part(part) for part in falling)
    return parts[0] if len(parts) == 1 else type(kernel)(parts)


def shortened(kernel: Kernel, most: float) -> Kernel:
    """Return the kernel with lengthscales of at most ``most``."""
    if isinstance(kernel, (Sum, Product)):
        return type(kernel)(tuple(shortened(part, most) for part in kernel.parts))
    if not isinstance(kernel, Stationary):
        return kernel
    lengthscales = np.minimum(np.asarray(kernel.lengthscales), most)
    return eqx.tree_at(lambda part: part.lengthscales, kernel, lengthscales)


def number_of_inputs(kernel: Kernel, num_features: int) -> int:
    """Return how many inputs a kernel of so many columns has: those of one lengthscale that it ties are one."""
    if isinstance(kernel, (Sum, Product)):
        return min(number_of_inputs(part, num_features) for part in kernel.parts)
    inputs = getattr(kernel, "inputs", None)
    return num_features if inputs is None else max(inputs) + 1


def tied_columns(kernel: Kernel, num_features: int) -> tuple[int, ...] | None:
    """Return for every column the number of the input that it belongs to; None where each is one of its own.

    Columns are one input where any part of the kernel ties them, directly or by others: they share a unit.
    """
    leaders = np.arange(num_features)
    for inputs in _groups(kernel):
        check_same_columns(inputs, num_features)
        for number in set(inputs):
            one = np.isin(leaders, leaders[np.asarray(inputs) == number])
            leaders[one] = leaders[one].min()
    found, numbers = np.unique(leaders, return_inverse=True)
    return None if len(found) == num_features else tuple(int(number) for number in numbers)


def _groups(kernel: Kernel) -> list[tuple[int, ...]]:
    """Return the numbers of lengthscales of every part that ties columns."""
    if isinstance(kernel, (Sum, Product)):
        return [inputs for part in kernel.parts for inputs in _groups(part)]
    inputs = getattr(kernel, "inputs", None)
    return [] if inputs is None else [inputs]


def falls_with_distance(kernel: Kernel) -> bool:
    """Whether correlation falls the farther two rows are apart; of linear and constant functions it does not."""
    if isinstance(kernel, (Sum, Product)):
        return any(falls_with_distance(part) for part in kernel.parts)
    return not isinstance(kernel, (Constant, Linear))


def _level(kernel: Kernel) -> bool:
    """Whether functions have one value for all rows."""
    if isinstance(kernel, (Sum, Product)):
        return all(_level(part) for part in kernel.parts)
    return isinstance(kernel, Constant)
