"""The hyperparameters of highest evidence: climbed to from several starts, on few rows first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from vastgp.data.minibatch import some_in_order
from vastgp.fitting.candidates import Params, bounds_of, starting_params
from vastgp.fitting.clock import seconds_until
from vastgp.fitting.dual_evidence import DualEvidence
from vastgp.fitting.evaluations import Evaluations
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.hyperparameter_prior import HyperparameterPrior
from vastgp.fitting.lbfgs import LbfgsResult, best_of, maximise
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.kernels import Kernel
from vastgp.kernels.metric import number_of_inputs
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.linalg.cholesky import FactorizationError

# Each family is first fitted to this many rows, where a step costs a thirtieth of one on 1000 rows.
_FIRST_ROWS = 300
# Starts are compared after a rough fit.
LOOSE_TOL = 1e-3
# Forms of kernel that are fitted to all rows, of those within so many nats of the best on few rows; and for how many
# iterations before the best of them goes on alone.
_FINALISTS, _CONTENDING, _TRIAL = 2, 10.0, 8
# Sites settle so far while they climb: the end is within a hundredth of a nat of where 1e-8 ends, in half the updates.
_LEAST_GAIN = 1e-6


@runtime_checkable
class Evidence(Protocol):
    """What hyperparameters are chosen by: a log evidence, or a bound of it."""

    @property
    def num_rows(self) -> int: ...

    @property
    def num_features(self) -> int: ...

    def objective(self, params: Any) -> tuple[float, Any]:
        """Return the log evidence at ``(kernel, likelihood)``, and its slope by every hyperparameter."""


def fit_best(
    forms: Sequence[Kernel],
    X: np.ndarray,
    y: np.ndarray,
    *,
    noise_floor: float,
    restarts: int,
    generator: np.random.Generator,
    likelihood: Likelihood | None = None,
    deadline: float | None = None,
    max_iter: int = 200,
    tol: float = 1e-4,
) -> LbfgsResult:
    """Fit every form of kernel to all rows and return the fit with the highest evidence, or the bound of it.

    Parameters
    ----------
    forms : sequence of Kernel
        With one lengthscale per input.
    X, y : ndarray
        Standardised rows.
    noise_floor, restarts
        As in `start_from_exact_gp`.
    generator : Generator
        Of the restarts.
    likelihood : Likelihood, optional
        Where its hyperparameters start; None: Gaussian.
    deadline : float, optional
        Time of `vastgp.fitting.clock.now` at which to end; at least one form is fitted.
    max_iter, tol
        Of every run of L-BFGS, see `fit_evidence`.

    Returns
    -------
    LbfgsResult
        Iterations are counted from the start that won, the history is that of all rows.
    """
    step = max(1, round(len(y) / _FIRST_ROWS))
    gaussian = likelihood is None or isinstance(likelihood, Gaussian)
    make: Callable[..., Evidence] = (
        ExactEvidence if gaussian else partial(DualEvidence, least_gain=_LEAST_GAIN)
    )
    some = some_in_order(len(y), -(-len(y) // step))
    coarse = make(X[some], y[some])
    starts = [
        start
        for form in forms
        for start in starting_params(form, X.shape[1], likelihood, restarts, generator)
    ]
    return fit_from_best(
        starts, coarse, lambda: coarse if step == 1 else make(X, y),
        noise_floor=noise_floor, max_iter=max_iter, tol=tol, deadline=deadline,
    )  # fmt: skip


def fit_evidence(
    evidence: Evidence,
    start: Params,
    *,
    noise_floor: float,
    max_iter: int = 200,
    tol: float = 1e-4,
    max_seconds: float | None = None,
    record: Evaluations | None = None,
) -> LbfgsResult:
    """Maximise evidence times prior over kernel and likelihood inside `bounds_of`; ``params`` is the pair of them.

    ``tol`` is on the derivative of the logarithm of that, per row, by the logarithm of a hyperparameter, and on the
    Newton decrement, see `maximise`. The prior is `HyperparameterPrior`, and ``value`` has it, up to its constant.
    """
    lower, upper = bounds_of(start, noise_floor)
    prior = HyperparameterPrior(number_of_inputs(start[0], evidence.num_features))

    def objective(params: Params) -> tuple[float, Any]:
        (value, slope), (density, by_prior) = evidence.objective(params), prior(params)
        parts = zip(jax.tree.leaves(slope), jax.tree.leaves(by_prior), strict=True)
        return value + density, [np.asarray(a) + b for a, b in parts]

    return maximise(
        objective,
        start,
        lower=lower,
        upper=upper,
        max_iter=max_iter,
        tol=tol,
        scale=evidence.num_rows,
        max_seconds=max_seconds,
        record=record,
    )


def log_density(evidence: Evidence, params: Params) -> float:
    """Return what `fit_evidence` maximises, at given hyperparameters."""
    prior = HyperparameterPrior(number_of_inputs(params[0], evidence.num_features))
    kernel, likelihood = params
    if isinstance(evidence, ExactEvidence) and isinstance(likelihood, Gaussian):
        # without the slopes, which take two thirds of the time
        value = evidence(kernel, float(likelihood.noise_variance))
    else:
        value = evidence.objective(params)[0]
    return value + prior(params)[0]


def fit_from_best(
    starts: Sequence[Params],
    coarse: Evidence,
    fine: Callable[[], Evidence],
    *,
    noise_floor: float,
    max_iter: int,
    tol: float,
    first_iter: int | None = None,
    deadline: float | None = None,
    record: Callable[[str], Evaluations | None] = lambda _: None,
) -> LbfgsResult:
    """Maximise an evidence from the best of several starts.

    Parameters
    ----------
    starts : sequence of (Kernel, Likelihood)
    coarse : Evidence
        Every start is climbed from on this one, roughly: that of few rows.
    fine : callable
        Gives the evidence that the best of them is climbed from to the end; called when all others have ended. Starts
        of another form of kernel that come close are climbed from for a few iterations first, and compared.
    noise_floor, max_iter, tol
        See `fit_evidence`; iterations are counted from the start that won.
    first_iter : int, optional
        Most iterations from each start. None: ``max_iter``.
    deadline : float, optional
        Time of `vastgp.fitting.clock.now` at which to end. The starts share half of what is left, if they need it;
        where one does not end in its share, those after it are left out.
    record : callable, optional
        Gives the record of the run with a name, see `Run.evaluations`.

    Raises
    ------
    FactorizationError
        When no start has a covariance matrix that can be factorised.
    """

    def left(parts: int = 1) -> float | None:
        seconds = seconds_until(deadline)
        return None if seconds is None else seconds / parts

    found = climb_each(
        starts, lambda _: coarse, noise_floor=noise_floor, max_iter=first_iter or max_iter,
        tol=max(tol, LOOSE_TOL), deadline=deadline, record=record,
    )  # fmt: skip
    finalists, whole = _finalists(found), fine()
    tried = []
    if len(finalists) > 1:
        tried = [
            fit_evidence(
                whole, each.params, noise_floor=noise_floor, max_iter=min(_TRIAL, max_iter), tol=tol,
                max_seconds=left(1 + len(finalists) - number),
                record=record(f"finalist {number + 1}"),
            )
            for number, each in enumerate(finalists)
        ]  # fmt: skip
    best = best_of(tried or finalists)
    last = fit_evidence(
        whole, best.params, noise_floor=noise_floor, max_iter=max_iter, tol=tol, max_seconds=left(),
        record=record("evidence"),
    )  # fmt: skip
    climbs = [*found, *tried, last]
    cut = left() == 0.0 or any(each.message == OUT_OF_TIME for each in climbs)
    return replace(last, num_iter=best.num_iter + last.num_iter, cut=cut)


def climb_each(
    starts: Sequence[Params],
    evidence_of: Callable[[Params], Evidence],
    *,
    noise_floor: float,
    max_iter: int,
    tol: float,
    deadline: float | None = None,
    record: Callable[[str], Evaluations | None] = lambda _: None,
) -> list[LbfgsResult]:
    """Maximise an evidence from each of several starts, in half of the time that is left, see `fit_from_best`.

    Parameters
    ----------
    starts : sequence of (Kernel, Likelihood)
    evidence_of : callable
        Gives the evidence that a start is climbed from on.
    noise_floor, max_iter, tol, deadline, record
        See `fit_from_best`.

    Raises
    ------
    FactorizationError
        When no start has a covariance matrix that can be factorised.
    """
    found: list[LbfgsResult] = []
    for number, start in enumerate(starts):
        left = seconds_until(deadline)
        if found and (left == 0.0 or found[-1].message == OUT_OF_TIME):
            break  # what others would take is needed by the first
        try:
            found.append(
                fit_evidence(
                    evidence_of(start), start, noise_floor=noise_floor, max_iter=max_iter, tol=tol,
                    max_seconds=None if left is None else left / (2 * len(starts) - number),
                    record=record(f"start {number + 1}"),
                )
            )  # fmt: skip
        except FactorizationError:
            if not found and number == len(starts) - 1:
                raise
    return found


def _finalists(found: Sequence[LbfgsResult]) -> list[LbfgsResult]:
    """Return the best fit of each form of kernel that is not clearly behind on few rows, the best of all first."""
    best: dict[Any, LbfgsResult] = {}
    for fit in sorted(found, key=lambda fit: -fit.value):
        best.setdefault(form_of(fit.params[0]), fit)
    ranked = list(best.values())[:_FINALISTS]
    return [fit for fit in ranked if fit.value >= ranked[0].value - _CONTENDING]


def form_of(kernel: Kernel) -> Any:
    """Return what two kernels have in common that differ in their hyperparameters alone."""
    return jax.tree.structure(kernel)
