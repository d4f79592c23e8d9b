"""Where passes over all rows start whose hyperparameters are given: from sites of some rows at their best."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np

from vastgp.data import Rows as DataRows
from vastgp.data import Standardizer, processes
from vastgp.data.minibatch import fixed_rows
from vastgp.fitting.dual_evidence import LEAST_PRECISION, DualEvidence
from vastgp.kernels import Kernel
from vastgp.likelihoods import Likelihood
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.svgp.bound import SiteSums
from vastgp.solvers.plan import rows_of_functions

# All rows where there are no more than the first number, half of them beyond, and no more than the second. From the
# sites of 1000 of 2000 labels four passes follow, from none 18; and from none those of counts under a prior of large
# variance are lost in rounding, see `DualEvidence`.
_FEW, _MOST = 400, 1000
# How near their sites come to the best, in nats a row: the other rows move them anyway.
_NEAR = 1e-4
_FIRST = 3  # purpose of the draw of the rows


def first_sums(
    rows: DataRows,
    standardizer: Standardizer,
    model: tuple[Kernel, Likelihood],
    none: SiteSums,
    sums_of: Callable[[np.ndarray, np.ndarray, np.ndarray], SiteSums],
    seed: int,
) -> SiteSums:
    """Return the sums of the sites that some rows have under the process itself, ``none`` where these have no bound.

    Parameters
    ----------
    rows : Rows
    standardizer : Standardizer
    model : tuple
        Kernel and likelihood, in float64.
    none : SiteSums
        Those of no rows.
    sums_of : callable
        Gives the sums of linear parts and precisions of sites, (C, n), at rows.
    seed : int
    """
    kernel, likelihood = model
    size = min(max(rows.n // 2, _FEW), rows_of_functions(_MOST, likelihood))
    X, y = fixed_rows(rows, standardizer, seed, _FIRST, size)
    sums = none
    with contextlib.suppress(FactorizationError):
        found = DualEvidence(X, y, _NEAR).solve(kernel, likelihood)
        if np.isfinite(found.bound):
            sites = found.sites.at_least(LEAST_PRECISION, found.mean)
            sums = sums_of(X, *(np.atleast_2d(part) for part in sites))
    # several processes have computed the same, but for rounding
    told: SiteSums = processes.of_first(sums)
    return told
