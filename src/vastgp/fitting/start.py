"""Starting values of every method: the exact evidence of a few rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from vastgp.fitting.candidates import (
    MOST_NOISE,
    Params,
    bounds_of,
    candidate_kernels,
    starting_params,
)
from vastgp.fitting.clock import now
from vastgp.fitting.dual_evidence import DualEvidence
from vastgp.fitting.exact_evidence import ExactEvidence, resolving_rate
from vastgp.fitting.hyperparameter_prior import HyperparameterPrior
from vastgp.fitting.lbfgs import LbfgsResult, best_of, maximise
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Evaluations
from vastgp.kernels import Kernel
from vastgp.kernels.metric import number_of_inputs
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.linalg.cholesky import FactorizationError

# Each family is first fitted to this many rows, where a step costs a thirtieth of one on 1000 rows.
_FIRST_ROWS = 300
# From twice this many rows on, random parts of this size are fitted, compared on all rows, and the best is refined on
# all of them with at most _REFINING steps: the evidence of 1000 rows can have several optima (protein: noise variances
# from 0.001 to 0.55 from six draws of 1000 rows; on 5000 rows all but two of them meet at 0.07 to 0.12).
_PART_ROWS, _PARTS, _REFINING = 1000, 3, 20
# Starts are compared after a rough fit.
_LOOSE_TOL = 1e-3
# Fewer rows do not say how fast more of them resolve the function.
_LEAST_RATE = 100
# Forms of kernel that are fitted to all rows, of those within so many nats of the best on few rows; and for how many
# iterations before the best of them goes on alone.
_FINALISTS, _CONTENDING, _TRIAL = 2, 10.0, 8
# Sites settle so far while they climb: the end is within a hundredth of a nat of where 1e-8 ends, in half the updates.
_LEAST_GAIN = 1e-6
# Evidences that differ by fewer nats say the same of the hyperparameters.
_SAME = 3.0


@runtime_checkable
class Evidence(Protocol):
    """What hyperparameters are chosen by: a log evidence, or a bound of it."""

    @property
    def num_rows(self) -> int: ...

    @property
    def num_features(self) -> int: ...

    def objective(self, params: Any) -> tuple[float, Any]:
        """Return the log evidence at ``(kernel, likelihood)``, and its slope by every hyperparameter."""


MakeEvidence = Callable[[np.ndarray, np.ndarray, float], ExactEvidence | None]


class Start(NamedTuple):
    """Starting values in standardised units: kernel (one lengthscale per input), noise variance, log evidence."""

    kernel: Kernel
    noise_variance: float
    log_evidence: float


def start_from_exact_gp(
    kernel: object,
    X: np.ndarray,
    y: np.ndarray,
    *,
    max_rows: int = 1000,
    seed: int = 0,
    noise_floor: float = 1e-4,
    restarts: int = 1,
    inputs: Sequence[int] | None = None,
    max_seconds: float | None = None,
    evidence: MakeEvidence | None = None,
) -> Start:
    """Fit an exact Gaussian process to some standardised rows.

    Parameters
    ----------
    kernel : Kernel, str or None
        A kernel starts at its own values and once more at default values of the same form, with one lengthscale per
        input: own values far from the data's scale leave the evidence without a slope. A name (``"matern32"``) stands
        for default values. None: RBF, Matern-5/2 and Matern-3/2 are tried and the highest evidence is kept.
    X : ndarray of shape (n, d)
        Standardised inputs.
    y : ndarray of shape (n,) or (n, 3)
        Standardised target, see `vastgp.data.observations`.
    max_rows : int, default 1000
        A random subset of this many rows is used where there are more: one evaluation costs O(max_rows^3), some 40 ms
        at 1000. From 2000 rows on, three random parts of 1000 rows are fitted, and the fit with the highest evidence on
        all rows is refined there: about 20 s at 2000.
    seed : int, default 0
        Which rows, and where the restarts begin.
    noise_floor : float, default 1e-4
        Least noise variance, in squared standard deviations of the target: the evidence of a smooth kernel on few rows
        can drive the noise to 1e-5, at which systems in float32 are no longer solvable.
    restarts : int, default 1
        How often to begin: beyond 1 from random values around the defaults as well, on 300 of the rows.
    inputs : sequence of int, optional
        Which columns have one lengthscale, see `candidate_kernels`.
    max_seconds : float, optional
        Budget for all of it, checked after every iteration of L-BFGS.
    evidence : callable, optional
        ``evidence(X, y, rate)`` makes the evidence that fits are compared by and the best one is refined by, or None
        where that is the exact one; ``rate`` is `resolving_rate` of the best fit so far. See `BasisEvidence`.

    Returns
    -------
    Start
        ``(kernel, noise_variance, log_evidence)``, the evidence of the rows used in nats.

    Raises
    ------
    FactorizationError
        When not even the starting values have a covariance matrix that can be factorised.
    """
    deadline = None if max_seconds is None else now() + max_seconds
    generator = np.random.default_rng(seed)
    X, y = some_rows(X, y, max_rows, generator)
    fit = partial(
        fit_best,
        noise_floor=noise_floor,
        restarts=restarts,
        generator=generator,
        deadline=deadline,
    )
    forms = candidate_kernels(kernel, X.shape[1], inputs)
    prior = HyperparameterPrior(number_of_inputs(forms[0], X.shape[1]))
    fits = _fit_parts(fit, forms, X, y, generator, deadline)
    best = _refine_best(fits, X, y, prior, noise_floor, deadline, evidence)
    fitted, likelihood = best.params
    return Start(fitted, float(likelihood.noise_variance), best.value - prior(best.params)[0])


def some_rows(
    X: np.ndarray, y: np.ndarray, most: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return random rows, in their order, where there are more than ``most``."""
    if len(y) <= most:
        return X, y
    chosen = np.sort(generator.choice(len(y), size=most, replace=False))
    return X[chosen], y[chosen]


def _fit_parts(
    fit: Callable[..., LbfgsResult],
    forms: Sequence[Kernel],
    X: np.ndarray,
    y: np.ndarray,
    generator: np.random.Generator,
    deadline: float | None,
) -> list[LbfgsResult]:
    """Fit random parts of the rows, or all of them where they are few; the first of them chooses the form of kernel."""
    parts, size = (_PARTS, _PART_ROWS) if len(y) >= 2 * _PART_ROWS else (1, len(y))
    fits: list[LbfgsResult] = []
    for _ in range(parts):
        if fits and deadline is not None and now() > deadline:
            break
        rows = np.sort(generator.choice(len(y), size, replace=False))
        fits.append(fit(forms, X[rows], y[rows]))
        forms = [form for form in forms if _form(form) == _form(fits[0].params[0])]
    return fits


def _refine_best(
    fits: Sequence[LbfgsResult],
    X: np.ndarray,
    y: np.ndarray,
    prior: HyperparameterPrior,
    noise_floor: float,
    deadline: float | None,
    make_evidence: MakeEvidence | None,
) -> LbfgsResult:
    """Keep the fit with the highest evidence on all rows, and refine it there unless that is what it was fitted to.

    Fits are compared at the amplitude and noise that are best for all rows. As they come from a part, a fit with the
    better lengthscales can look worse than one that calls everything noise (protein: 280 nats, then 30 better), and
    the way from there is long: 20 steps of L-BFGS gained less than this search of one dimension.

    Another evidence that agrees with the exact one there has nothing to add, at twenty times the time of an evaluation
    (2000 rows, 10,000 random features).
    """
    alone = len(fits) == 1
    if deadline is not None and now() > deadline:
        return best_of(fits)
    exact = ExactEvidence(X, y)
    best = fits[0] if alone else _highest(exact, fits, prior, noise_floor)

    def refine(evidence: ExactEvidence, best: LbfgsResult) -> LbfgsResult:
        left = None if deadline is None else max(deadline - now(), 0.0)
        return fit_evidence(
            evidence, best.params,
            noise_floor=noise_floor, max_iter=_REFINING, tol=_LOOSE_TOL, max_seconds=left,
        )  # fmt: skip

    kernel, likelihood = best.params
    noise_variance = float(likelihood.noise_variance)
    try:
        other = None
        if make_evidence is not None and len(y) >= _LEAST_RATE:
            other = make_evidence(X, y, resolving_rate(kernel, noise_variance, X, y))
        known = best.value - prior(best.params)[0]
        if other is not None and abs(other(kernel, noise_variance) - known) >= _SAME:
            return refine(other, _highest(other, fits, prior, noise_floor))
    except FactorizationError as error:
        warnings.warn(
            f"kernel and noise are those of the exact evidence, as that of the model could not be computed: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
    return best if alone else refine(exact, best)


def _highest(
    evidence: ExactEvidence,
    fits: Sequence[LbfgsResult],
    prior: HyperparameterPrior,
    noise_floor: float,
) -> LbfgsResult:
    """Return the fit of highest density, each at its amplitude and noise of highest evidence."""
    found: list[LbfgsResult] = []
    for fit in fits:
        kernel, likelihood = fit.params
        try:
            value, kernel, noise = evidence.rescaled(
                kernel, float(likelihood.noise_variance), (noise_floor, MOST_NOISE)
            )
        except FactorizationError:
            continue
        params = (kernel, Gaussian(noise))
        found.append(replace(fit, params=params, value=value + prior(params)[0]))
    return best_of(found) if found else fits[0]


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
    coarse = make(X[::step], y[::step])
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

    ``tol`` is on the derivative of the logarithm of that, per row, by the logarithm of a hyperparameter. The prior is
    `HyperparameterPrior`, and ``value`` has it, up to its constant.
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
        return None if deadline is None else max(deadline - now(), 0.0) / parts

    rough: dict[str, Any] = {"max_iter": first_iter or max_iter, "tol": max(tol, _LOOSE_TOL)}
    found: list[LbfgsResult] = []
    for number, start in enumerate(starts):
        if found and (left() == 0.0 or found[-1].message == OUT_OF_TIME):
            break  # what others would take is needed by the first
        try:
            found.append(
                fit_evidence(
                    coarse, start, noise_floor=noise_floor, max_seconds=left(2 * len(starts) - number),
                    record=record(f"start {number + 1}"), **rough,
                )
            )  # fmt: skip
        except FactorizationError:
            if not found and number == len(starts) - 1:
                raise
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
    return replace(last, num_iter=best.num_iter + last.num_iter)


def _finalists(found: Sequence[LbfgsResult]) -> list[LbfgsResult]:
    """Return the best fit of each form of kernel that is not clearly behind on few rows, the best of all first."""
    best: dict[Any, LbfgsResult] = {}
    for fit in sorted(found, key=lambda fit: -fit.value):
        best.setdefault(_form(fit.params[0]), fit)
    ranked = list(best.values())[:_FINALISTS]
    return [fit for fit in ranked if fit.value >= ranked[0].value - _CONTENDING]


def _form(kernel: Kernel) -> Any:
    """Return what two kernels have in common that differ in their hyperparameters alone."""
    return jax.tree.structure(kernel)
