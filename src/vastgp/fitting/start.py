"""Starting values of every method: the exact evidence of a few rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from vastgp._warn import warn
from vastgp.fitting.best_fit import LOOSE_TOL, fit_best, fit_evidence, form_of, log_density
from vastgp.fitting.candidates import (
    MOST_NOISE,
    candidate_kernels,
)
from vastgp.fitting.clock import deadline_in, now, seconds_until
from vastgp.fitting.exact_evidence import ExactEvidence, resolving_rate
from vastgp.fitting.hyperparameter_prior import HyperparameterPrior
from vastgp.fitting.lbfgs import LbfgsResult, best_of
from vastgp.fitting.sums import evidence_of_trials, or_sum
from vastgp.kernels import Kernel
from vastgp.kernels.metric import number_of_inputs
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import FactorizationError

# Beyond _ALONE times _PART_ROWS random parts of so many rows are fitted, compared on all, and the best is refined on
# all of them with at most _REFINING steps: the evidence of 1000 rows can have several optima (protein: noise variances
# from 0.001 to 0.55 from six draws of 1000 rows; on 5000 rows all but two of them meet at 0.07 to 0.12). There are
# three parts where rows are twice as many as a part has, and two where they are fewer. Where two have found the same
# optimum, what lies between them goes on alone: each hyperparameter may differ by what is worth so many nats.
_PART_ROWS, _ALONE, _REFINING = 1000, 1.25, 20
_BY_CHANCE = 2.0
# Fewer rows do not say how fast more of them resolve the function.
_LEAST_RATE = 100
# Another evidence takes so many seconds to compile and to compare fits by (10,000 rows, 5 s asked: 10 s).
_OTHER_SECONDS = 3.0
# Evidences that differ by fewer nats say the same of the hyperparameters.
_SAME = 3.0


MakeEvidence = Callable[[np.ndarray, np.ndarray, float], ExactEvidence | None]


class Start(NamedTuple):
    """Starting values in standardised units: kernel (one lengthscale per input), noise variance, log evidence.

    ``cut`` says whether the clock ended a part of the search, or left one out.
    """

    kernel: Kernel
    noise_variance: float
    log_evidence: float
    cut: bool = False


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
    sums: bool = False,
    refined: bool = True,
    max_iter: int = 200,
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
        A random subset of this many rows is used where there are more: one evaluation costs O(max_rows^3), some 30 ms
        at 1000. Of more than 1250 rows two random parts of 1000 are fitted, and a third where they do not agree and
        there are 2000 or more: the fit with the highest evidence on all rows is refined there. 5 s of two cores at
        2000, and half as much again with ``sums``.
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
    sums : bool, default False
        Whether a sum of two kernels may take the place of one where none is given, see `vastgp.fitting.sums`.
    refined : bool, default True
        Whether the fit of a part that is best of all rows is refined there: False for whoever goes on from it anyway.
    max_iter : int, default 200
        Of every run of L-BFGS on some rows.

    Returns
    -------
    Start
        ``(kernel, noise_variance, log_evidence, cut)``, the evidence of the rows used in nats.

    Raises
    ------
    FactorizationError
        When not even the starting values have a covariance matrix that can be factorised.
    """
    deadline, generator = deadline_in(max_seconds), np.random.default_rng(seed)
    X, y = some_rows(X, y, max_rows, generator)
    fit = partial(
        fit_best,
        # it is refined on more rows, or is that of some of many: what is left to gain says nothing of others
        tol=LOOSE_TOL,
        noise_floor=noise_floor,
        restarts=restarts,
        generator=generator,
        deadline=deadline,
        max_iter=max_iter,
    )
    forms = candidate_kernels(kernel, X.shape[1], inputs)
    prior = HyperparameterPrior(number_of_inputs(forms[0], X.shape[1]))
    fits = _fit_parts(fit, forms, X, y, generator, deadline)
    best = _refine_best(fits, X, y, prior, noise_floor, deadline, evidence, refined)
    if sums and kernel is None:
        few = None
        if _has_parts(len(y)):
            few = ExactEvidence(*some_rows(X, y, _PART_ROWS, generator))
        best = or_sum(
            ExactEvidence(X, y), best, few=few, trials=evidence_of_trials(X, y, generator),
            noise_floor=noise_floor, tol=LOOSE_TOL, deadline=deadline,
        )  # fmt: skip
    fitted, likelihood = best.params
    left, least = seconds_until(deadline), 0.0 if evidence is None else _OTHER_SECONDS
    cut = any(fit.cut for fit in fits) or (left is not None and left <= least)
    return Start(fitted, float(likelihood.noise_variance), best.value - prior(best.params)[0], cut)


def some_rows(
    X: np.ndarray, y: np.ndarray, most: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return random rows, in their order, where there are more than ``most``."""
    if len(y) <= most:
        return X, y
    chosen = np.sort(generator.choice(len(y), size=most, replace=False))
    return X[chosen], y[chosen]


def _has_parts(n: int) -> bool:
    return n > _ALONE * _PART_ROWS


def _fit_parts(
    fit: Callable[..., LbfgsResult],
    forms: Sequence[Kernel],
    X: np.ndarray,
    y: np.ndarray,
    generator: np.random.Generator,
    deadline: float | None,
) -> list[LbfgsResult]:
    """Fit random parts of the rows, or all of them where they are few; the first of them chooses the form of kernel."""
    n = len(y)
    parts, size = (3 if n >= 2 * _PART_ROWS else 2, _PART_ROWS) if _has_parts(n) else (1, n)
    fits: list[LbfgsResult] = []
    for _ in range(parts):
        if fits and deadline is not None and now() > deadline:
            break
        rows = np.sort(generator.choice(n, size, replace=False))
        fits.append(fit(forms, X[rows], y[rows]))
        forms = [form for form in forms if form_of(form) == form_of(fits[0].params[0])]
        if len(fits) == 1:
            first = rows
        elif len(fits) == 2 and _agree(ExactEvidence(X[first], y[first]), *fits):
            # each is off by chance, and both are less together
            between = jax.tree.map(
                lambda a, b: np.sqrt(np.asarray(a) * np.asarray(b)), fits[0].params, fits[1].params
            )
            return [replace(fits[0], params=between)]
    return fits


def _agree(evidence: ExactEvidence, own: LbfgsResult, other: LbfgsResult) -> bool:
    """Return whether what was found on other rows is at the optimum of these, but for what rows tell by chance.

    An estimate of k numbers from other rows is k nats less likely than one's own, on average; other optima are tens of
    nats away.
    """
    count = sum(np.size(leaf) for leaf in jax.tree.leaves(own.params))
    with contextlib.suppress(FactorizationError):
        return log_density(evidence, other.params) >= own.value - _BY_CHANCE * count
    return False


def _refine_best(
    fits: Sequence[LbfgsResult],
    X: np.ndarray,
    y: np.ndarray,
    prior: HyperparameterPrior,
    noise_floor: float,
    deadline: float | None,
    make_evidence: MakeEvidence | None,
    refined: bool,
) -> LbfgsResult:
    """Keep the fit with the highest evidence on all rows, and refine it there unless that is what it was fitted to.

    Fits are compared at the amplitude and noise that are best for all rows. As they come from a part, a fit with the
    better lengthscales can look worse than one that calls everything noise (protein: 280 nats, then 30 better), and
    the way from there is long: 20 steps of L-BFGS gained less than this search of one dimension.

    Another evidence that agrees with the exact one there has nothing to add, at twenty times the time of an evaluation
    (2000 rows, 10,000 random features).
    """
    alone = not _has_parts(len(y))
    if deadline is not None and now() > deadline:
        return best_of(fits)
    exact = ExactEvidence(X, y)
    best = fits[0] if alone else _highest(exact, fits, prior, noise_floor, deadline)
    if not refined:
        return best

    def refine(evidence: ExactEvidence, best: LbfgsResult) -> LbfgsResult:
        return fit_evidence(
            evidence, best.params,
            noise_floor=noise_floor, max_iter=_REFINING, tol=LOOSE_TOL, max_seconds=seconds_until(deadline),
        )  # fmt: skip

    left = seconds_until(deadline)
    in_time = left is None or left >= _OTHER_SECONDS
    kernel, likelihood = best.params
    noise_variance = float(likelihood.noise_variance)
    try:
        other = None
        if make_evidence is not None and len(y) >= _LEAST_RATE and in_time:
            other = make_evidence(X, y, resolving_rate(kernel, noise_variance, X, y))
        known = best.value - prior(best.params)[0]
        if other is not None and abs(other(kernel, noise_variance) - known) >= _SAME:
            return refine(other, _highest(other, fits, prior, noise_floor, deadline))
    except FactorizationError as error:
        warn(
            f"kernel and noise are those of the exact evidence, as that of the model could not be computed: {error}",
            RuntimeWarning,
        )
    return best if alone else refine(exact, best)


def _highest(
    evidence: ExactEvidence,
    fits: Sequence[LbfgsResult],
    prior: HyperparameterPrior,
    noise_floor: float,
    deadline: float | None,
) -> LbfgsResult:
    """Return the fit of highest density, each at its amplitude and noise of highest evidence; of those in time."""
    found: list[LbfgsResult] = []
    for fit in fits:
        if found and seconds_until(deadline) == 0.0:
            break
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
