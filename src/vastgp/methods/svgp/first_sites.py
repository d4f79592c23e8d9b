"""Where passes over all rows start whose hyperparameters are given: from sites of some rows at their best."""

from __future__ import annotations

import contextlib

import numpy as np

from vastgp.data import Rows as DataRows
from vastgp.data import Standardizer, processes
from vastgp.data.minibatch import fixed_rows
from vastgp.fitting.dual_evidence import LEAST_PRECISION, DualEvidence
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.svgp.bound import Coordinates, Rows, SiteSums
from vastgp.methods.svgp.steps import Params, sums_of_rows
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
    params: Params,
    here: Coordinates,
    seed: int,
) -> SiteSums:
    """Return the sums of the sites that some rows have under the process itself, of no rows where these have no bound.

    Parameters
    ----------
    rows : Rows
    standardizer : Standardizer
    params : Params
        In float64.
    here : Coordinates
        Those of the inducing inputs.
    seed : int
    """
    kernel, likelihood = params.on_host()
    size = min(max(rows.n // 2, _FEW), rows_of_functions(_MOST, likelihood))
    X, y = fixed_rows(rows, standardizer, seed, _FIRST, size)
    sums = SiteSums.none(likelihood.num_latent, len(params.Z), np.float64)
    with contextlib.suppress(FactorizationError):
        found = DualEvidence(X, y, _NEAR).solve(kernel, likelihood)
        if np.isfinite(found.bound):
            sites = found.sites.at_least(LEAST_PRECISION, found.mean)
            linear, precision = (np.atleast_2d(part) for part in sites)
            sums = sums_of_rows(params, here, (linear, precision), Rows(X, y, np.ones(len(y))))
    # several processes have computed the same, but for rounding
    told: SiteSums = processes.of_first(sums)
    return told
