"""Rows that come after a fit, which its exact posterior is conditioned on, too."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.data import Rows
from vastgp.data.minibatch import standardised_rows
from vastgp.linalg.cholesky import Cholesky, FactorizationError
from vastgp.solvers.exact_posterior import DENSE_ROWS, ExactPosterior
from vastgp.solvers.plan import seconds_of_exact


def exact_given_also(
    model: Any, rows: Rows, seconds: float | None
) -> tuple[ExactPosterior, float] | None:
    """Return the exact posterior of a fit given further rows, and the log evidence in standardised units.

    None where the posterior is another, or of too many rows, or that takes longer.

    Parameters
    ----------
    model : BaseGP
    rows : Rows
        As they are opened for a fit.
    seconds : float, optional
        That it may take.
    """
    posterior = model.posterior_
    if not isinstance(posterior, ExactPosterior) or not isinstance(posterior.factor, Cholesky):
        return None
    n = len(posterior.X) + rows.n
    if n > DENSE_ROWS or (seconds is not None and seconds_of_exact(n, 8) > seconds):
        return None
    X, y = standardised_rows(rows, model.standardizer_, np.arange(rows.n))
    try:
        return posterior.given_also(X, y)
    except FactorizationError:
        return None
