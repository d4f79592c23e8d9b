"""Hyperparameters by noisy slopes of the evidence of all rows: from some rows first, by Adam then."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.data import Rows, Standardizer
from vastgp.estimators.arguments import fixed_noise_variance
from vastgp.estimators.first_hyperparameters import Beginning, find_first
from vastgp.estimators.searches import SEARCHES, Fixed, Learn, moved_to
from vastgp.fitting.adam_ascent import Estimator, climb_evidence
from vastgp.fitting.loop import OUT_OF_TIME, LoopResult
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian

# Rows of the first hyperparameters, and the rate of Adam, where nothing else is said.
_ROWS, _RATE = 1000, 0.1
_START_SHARE = 0.25

# Arguments that are fields of other objects now.
LEARN_ARGUMENTS = moved_to("Learn") | {"learning_rate": "hyperparameters=Learn(rate=...)"}

Params = tuple[Kernel, Gaussian]


def search_of(hyperparameters: Any, *, noise_floor: float, steps: int) -> Any:
    """Return the object that the argument stands for, with the method's own numbers where it has none."""
    search = SEARCHES.resolve("hyperparameters", hyperparameters)
    if isinstance(search, Fixed):
        return search
    own: dict[str, Any] = {"rows": _ROWS, "noise_floor": noise_floor}
    if isinstance(search, Learn):
        own |= {"steps": steps, "rate": _RATE}
    return search.given(**own)


def first_params(
    search: Any, kernel: Any, rows: Rows, scaling: Standardizer, run: Run, *, goes_on: bool = True
) -> Params:
    """Return kernel and noise, in standardised units, as given or of some rows.

    There is less time for them where a search on all rows goes on from there.
    """

    def noise(y: np.ndarray) -> Gaussian:
        del y
        fixed = isinstance(search, Fixed)
        return Gaussian(fixed_noise_variance(search.noise_std, scaling) if fixed else 1.0)

    # what is learned on all rows need not be found on some of them
    share = _START_SHARE if goes_on and isinstance(search, Learn) else 2.0 * _START_SHARE
    beginning = Beginning(search, kernel, rows, scaling, run, share, sums=True)
    kernel, likelihood = find_first(beginning, noise)
    assert isinstance(likelihood, Gaussian)
    return kernel, likelihood


def learn_params(
    estimate: Estimator,
    first: Params,
    search: Learn,
    num_rows: int,
    run: Run,
    *,
    share: float,
) -> tuple[Params, LoopResult]:
    """Learn kernel and noise on all rows by noisy slopes, in at most a share of what is left of the budget."""
    assert search.steps is not None
    assert search.rate is not None
    assert search.noise_floor is not None
    kernel, noise_variance, loop = climb_evidence(
        estimate, first, run, steps=search.steps, rate=search.rate, noise_floor=search.noise_floor,
        num_rows=num_rows, share=share,
    )  # fmt: skip
    return (kernel, Gaussian(noise_variance)), loop


def nats_left(tol: float) -> float:
    """Return what learning may leave to gain, in nats for each row, where ``tol`` is in deviations of the noise.

    A mean that is off by e of them costs ``e^2 / 2`` nats.
    """
    return 0.5 * tol**2


def unfinished_learning(loop: LoopResult, steps: int, *, cut: bool = False) -> str:
    """Return what to say of learning that did not come to its end; ``cut``: the budget made it a shorter one."""
    if cut or loop.reason == OUT_OF_TIME:
        again = "Give more time (max_seconds)"
    elif loop.num_iter < steps:
        again = "Raise noise_floor: hyperparameters=Learn(noise_floor=...)"
    else:
        again = "Give more steps: hyperparameters=Learn(steps=...)"
    return (
        f"kernel and noise were learned for {loop.num_iter} of {steps} steps. {again}, or set "
        "hyperparameters='subset'."
    )
