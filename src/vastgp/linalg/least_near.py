"""The least value of a function of one number, which may have several local minima."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar


def least_near(function: Callable[[float], float], tried: np.ndarray, error: float) -> float:
    """Return where a function is least: between the neighbours of the best of a few places.

    Parameters
    ----------
    function : callable
    tried : ndarray of shape (k,)
        Ascending: the first and the last are the ends of the search.
    error : float
        Of the place that is returned.
    """
    k = int(np.argmin([function(each) for each in tried]))
    bounds = (tried[max(k - 1, 0)], tried[min(k + 1, len(tried) - 1)])
    found = minimize_scalar(function, bounds=bounds, method="bounded", options={"xatol": error})
    # a bounded search never quite reaches a border
    return min((float(found.x), float(tried[k])), key=function)
