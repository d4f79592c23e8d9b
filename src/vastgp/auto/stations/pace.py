"""How long it takes to condition on all readings, measured: what the budget keeps for the end."""

from __future__ import annotations

import time

import numpy as np

from vastgp.auto.stations.first_trend import encoder_of, inputs_of
from vastgp.auto.stations.process import inducing_of
from vastgp.auto.stations.readings import Readings
from vastgp.data.minibatch import fixed_indices
from vastgp.estimators.registry import estimator_class
from vastgp.estimators.searches import Fixed
from vastgp.kernels import Matern32
from vastgp.options import Sparse

# Readings that are conditioned on to see how long it takes, first to a tolerance that needs no iterations, which
# compiles. Of fewer than twice as many it is not worth the time.
_ROWS, _TOLS = 4096, (0.5, 3e-3)
# The use of the seed for these rows, see `fixed_indices`.
_PACE = 241
# Noise of a standardised target; more readings take more iterations, and what the clock says of a second varies.
_NOISE, _SLOWER = 0.3, 1.2


def seconds_to_condition(readings: Readings, seed: int) -> float:
    """Return how many seconds the local method will take to condition on all readings, once.

    Its work is that of readings and inducing inputs each, whatever its hyperparameters.

    Parameters
    ----------
    readings : Readings
    seed : int
    """
    n = len(readings)
    if n < 2 * _ROWS:
        return 0.0
    rows = np.sort(fixed_indices(seed, _PACE, n, _ROWS))
    X = encoder_of(readings).fit_transform(inputs_of(readings))[rows]
    y = readings.y[rows]
    kernel = Matern32(np.maximum(np.std(X, axis=0), 1e-6).tolist(), float(np.var(y)) or 1.0)
    # as many as readings: programs are compiled for tiles of one size then
    seconds, count = 0.0, len(np.unique(X, axis=0))
    given = Fixed(noise_std=_NOISE * float(kernel.variance) ** 0.5)
    for tol in _TOLS:
        began = time.perf_counter()
        model = estimator_class("SWSGPRegressor")(
            kernel, count, inducing_inputs="random", hyperparameters=given, solver=Sparse(tol=tol)
        )
        model.fit(X, y)
        seconds = time.perf_counter() - began
    return _SLOWER * seconds * (n + inducing_of(n, _NOISE)) / (_ROWS + count)
