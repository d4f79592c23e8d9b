"""What a process says of some rows, each given by all others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vastgp.data import Rows, Standardizer
from vastgp.fitting.start import start_from_exact_gp
from vastgp.solvers.exact_posterior import ExactPosterior


def given_each_other(
    X: np.ndarray,
    y: np.ndarray,
    *,
    learned_on: int,
    seed: int,
    max_seconds: float | None = None,
    max_iter: int = 200,
    kernel: str | None = None,
    inputs: Sequence[int] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the deviation of each row's target, given all others.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Encoded inputs.
    y : ndarray of shape (n,)
        The target.
    learned_on : int
        Hyperparameters are learned on so many rows.
    seed : int
        Which.
    max_seconds : float, optional
        Of the learning.
    max_iter : int
        Of each search of it.
    kernel : str, optional
        None: whichever has the highest evidence.
    inputs : sequence of int, optional
        Of each column the number of its input, where columns are one input.

    Raises
    ------
    FactorizationError
        Where these rows have no factor.
    """
    known = Rows(X, y, checked=True)
    scale = Standardizer().fit(known)
    X, targets = scale.transform_X(known.X), scale.transform_y(y)
    start = start_from_exact_gp(
        kernel, X, targets,
        max_rows=learned_on, seed=seed, max_seconds=max_seconds, max_iter=max_iter, inputs=inputs,
    )  # fmt: skip
    posterior, _ = ExactPosterior.condition(start.kernel, start.noise_variance, X, targets)
    left_out = posterior.leave_one_out()
    return scale.inverse_mean(left_out.mean), scale.inverse_std(np.sqrt(left_out.variance))
