"""Where passes over all rows start whose hyperparameters are given: from sites of some rows at their best."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from vastgp._programs import program
from vastgp.data import Rows as DataRows
from vastgp.data import Standardizer, processes
from vastgp.data.minibatch import fixed_rows
from vastgp.fitting.dual_evidence import LEAST_PRECISION, DualEvidence
from vastgp.likelihoods import Likelihood
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.svgp.bound import Coordinates, SiteSums, row_sums, whitened_features
from vastgp.methods.svgp.steps import Params
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
    likelihood: Likelihood,
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
    likelihood : Likelihood
        Of ``params``.
    seed : int
    """
    size = min(max(rows.n // 2, _FEW), rows_of_functions(_MOST, likelihood))
    X, y = fixed_rows(rows, standardizer, seed, _FIRST, size)
    kernel = jax.tree.map(lambda log: np.exp(np.asarray(log)), params.kernel)
    likelihood = jax.tree.map(np.asarray, likelihood)
    sums = SiteSums.none(likelihood.num_latent, len(params.Z), np.float64)
    with contextlib.suppress(FactorizationError):
        found = DualEvidence(X, y, _NEAR).solve(kernel, likelihood)
        if np.isfinite(found.bound):
            sites = found.sites.at_least(LEAST_PRECISION, found.mean)
            sums = _sums(params, here, X, *(np.atleast_2d(part) for part in sites))
    # several processes have computed the same, but for rounding
    told: SiteSums = processes.of_first(sums)
    return told


@program
def _sums(
    params: Params,
    here: Coordinates,
    X: Float[Array, "n d"],
    linear: Float[Array, "c n"],
    precision: Float[Array, "c n"],
) -> Any:
    kernel, _ = params.positive()
    return row_sums(whitened_features(kernel, params.Z, here.inverse, X), linear, precision)
