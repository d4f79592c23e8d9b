"""What learning starts from, or what is fixed: kernel and likelihood of some rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vastgp import _accelerator
from vastgp.data import Rows, Standardizer, observations, processes
from vastgp.data.minibatch import fixed_rows
from vastgp.estimators.arguments import (
    check_fixed_model,
    fixed_kernel,
    fixed_noise_variance,
)
from vastgp.estimators.searches import Fixed
from vastgp.fitting.dual_start import DualStart, start_from_dual_evidence
from vastgp.fitting.run import Run
from vastgp.fitting.start import MakeEvidence, Start, start_from_exact_gp
from vastgp.kernels import Kernel
from vastgp.likelihoods import (
    Exposed,
    Gaussian,
    Likelihood,
    NegativeBinomial,
    Poisson,
    PoissonLogNormal,
)
from vastgp.likelihoods.exposed import of_exposure
from vastgp.solvers.plan import rows_of_functions

# Rows of the first hyperparameters of other likelihoods than the Gaussian, whose evidence costs five times as much.
_DUAL_ROWS = 1000
_CHECKED_ROWS = 65_536
# Their use of the seed: other fixed rows of a fit have other numbers, see `fixed_indices`.
_START = 100
# Of what is left of the budget, for a search that goes on from what another fit had found.
_SHARE_TO_GO_ON = 0.25
# A search that took this share of its time was ended by the clock.
_CUT = 0.9
# Rows whose targets say where a likelihood starts that is fixed in all but what only they tell.
_CHECKED_FIXED = 2000
# Of the logarithm of a rate, where the scatter of counts starts at least and at most.
_SCATTER = 0.05, 4.0
# The shape of gamma rates, likewise.
_SIZE = 0.02, 100.0


class Beginning(NamedTuple):
    """What first hyperparameters are looked for with.

    Attributes
    ----------
    search : Subset, Learn or Fixed
        With ``rows`` and ``noise_floor`` set (see `Options.given`).
    kernel : Kernel, str or None
        As the estimator was given it.
    rows : Rows
    scaling : Standardizer
        Of the rows.
    run : Run
        Whose seed chooses the rows.
    share : float, default 0.5
        Of what is left of the budget, for the search.
    sums : bool, default False
        Whether a sum of two kernels may be found where none was given, see `vastgp.fitting.sums`.
    """

    search: Any
    kernel: Any
    rows: Rows
    scaling: Standardizer
    run: Run
    share: float = 0.5
    sums: bool = False


def find_first(
    beginning: Beginning,
    likelihood_of: Callable[[np.ndarray], Likelihood],
    evidence: MakeEvidence | None = None,
) -> tuple[Kernel, Likelihood]:
    """Return kernel and likelihood in standardised units: given, or of highest evidence on some rows.

    A resumed fit takes them from its file, unless the clock ended the search and there is now more time for it.

    Parameters
    ----------
    beginning : Beginning
    likelihood_of : callable
        Gives where the likelihood's hyperparameters start, or those that are fixed, for standardised targets.
    evidence : callable, optional
        As in `start_from_exact_gp`.
    """
    search, kernel, rows, scaling, run, share, _ = beginning
    if run.too_late(1.0 - share):
        share = 1.0  # they are all that there will be
    if run.known:
        share = min(share, _SHARE_TO_GO_ON)

    def compute() -> tuple[Kernel, Likelihood, bool, bool]:
        fixed = isinstance(search, Fixed)
        most = _CHECKED_FIXED if fixed else search.rows
        X, y = fixed_rows(rows, scaling, run.seed, _START, most)
        likelihood = likelihood_of(y)
        if fixed:
            return fixed_kernel(kernel, scaling, search), likelihood, False, False
        known = run.known_for(likelihood)
        if known is None:
            return _looked_for(beginning, kernel, likelihood, X, y, share, evidence)
        if known.complete and type(known.likelihood) is type(likelihood):
            return known.kernel, known.likelihood, False, False
        begin = known.kernel if kernel is None else kernel
        return _looked_for(beginning, begin, likelihood, X, y, share, evidence)

    with _accelerator.left_out():  # of a thousand rows
        found = run.once("first hyperparameters", compute, is_cut=lambda found: bool(found[-1]))
    first, run.cut_short = (found[0], found[1]), found[2]
    if not isinstance(search, Fixed):
        run.first = first
        run.check_time()
    return first


def _looked_for(
    beginning: Beginning,
    kernel: Any,
    likelihood: Likelihood,
    X: np.ndarray,
    y: np.ndarray,
    share: float,
    evidence: MakeEvidence | None,
) -> tuple[Kernel, Likelihood, bool, bool]:
    """Return kernel and likelihood of highest evidence, whether the clock ended the search, and whether any of it."""
    search, _, rows, _, run, _, sums = beginning
    began, allowed = run.elapsed(), run.seconds_left(share)
    options: dict[str, Any] = {
        "max_rows": rows_of_start(search, likelihood),
        "seed": run.seed,
        "noise_floor": search.noise_floor,
        "inputs": search.inputs(rows.d),
        "max_seconds": allowed,
    }
    start: Start | DualStart
    if isinstance(likelihood, Gaussian):
        start = start_from_exact_gp(kernel, X, y, evidence=evidence, sums=sums, **options)
        likelihood = Gaussian(start.noise_variance)
    else:
        start = start_from_dual_evidence(kernel, likelihood, X, y, **options)
        likelihood = start.likelihood
    # the clock is looked at after each iteration
    ended = allowed is not None and run.elapsed() - began >= _CUT * allowed
    return start.kernel, likelihood, ended, ended or start.cut


def rows_of_start(search: Any, likelihood: Likelihood) -> int:
    """Return how many rows first hyperparameters are found on, at most; none where they are given."""
    if isinstance(search, Fixed):
        return 0
    if isinstance(likelihood, Gaussian):
        return int(search.rows)
    return min(search.rows, rows_of_functions(_DUAL_ROWS, likelihood))


def starting_likelihood(
    likelihood: Likelihood,
    by_name: bool,
    noise_std: float | Sequence[float] | None,
    scaling: Standardizer,
    y: np.ndarray,
) -> Likelihood:
    """Return where a regressor's likelihood starts, in standardised units.

    Parameters
    ----------
    likelihood : Likelihood
        As chosen: see `chosen_likelihood`.
    by_name : bool
        Whether it was given by its name, so that its hyperparameters are no one's choice.
    noise_std : float or None
        Fixed standard deviation of Gaussian noise, in units of the target.
    scaling : Standardizer
    y : ndarray
        Standardised targets, or counts; with exposures of their own these are in the units of ``scaling``.
    """
    if noise_std is not None:
        return Gaussian(fixed_noise_variance(noise_std, scaling))
    exposed = observations.has_exposure(y)
    if by_name:
        found = first_counts(likelihood, y)
    else:
        found = likelihood.in_units(1.0 / scaling.y_scale)
        # its rate is that of one, where exposures are told in another unit
        found = of_exposure(found, np.exp(scaling.log_exposure)) if exposed else found
    return Exposed(found) if exposed else found


def first_counts(likelihood: Likelihood, y: np.ndarray) -> Likelihood:
    """Return a likelihood of counts where it starts, by the moments of all counts; any other as it is.

    Rates are per exposure. With ``log rate ~ N(log r, v)`` counts have the mean ``m = r e^(v/2)`` and the variance
    ``m + m^2 (e^v - 1)``, with gamma rates of size a ``m + m^2 / a``: what the function finds of the scatter it takes
    from that.
    """
    counts = np.asarray(observations.targets(y), np.float64)
    exposure = float(np.mean(observations.exposures(y)))
    mean = max(float(np.mean(counts)), 1.0 / len(y))
    if isinstance(likelihood, Poisson):
        return Poisson(mean / exposure)
    if not isinstance(likelihood, PoissonLogNormal | NegativeBinomial):
        return likelihood
    more = max(float(np.var(counts)) - mean, 0.0)
    if isinstance(likelihood, NegativeBinomial):
        return NegativeBinomial(mean / exposure, np.clip(mean**2 / max(more, 1e-9), *_SIZE))
    variance = float(np.clip(np.log1p(more / mean**2), *_SCATTER))
    return PoissonLogNormal(mean / exposure * np.exp(-0.5 * variance), variance)


def check_given_model(search: Any, kernel: Any, argument: Any, likelihood: Likelihood) -> None:
    """Raise ValueError unless what a regressor is given of kernel, noise and likelihood fits together.

    Parameters
    ----------
    search : Subset, Learn or Fixed
    kernel, argument : object
        The arguments ``kernel`` and ``likelihood``.
    likelihood : Likelihood
        That the latter stands for.
    """
    check_fixed_model(search, kernel, needs_noise=isinstance(likelihood, Gaussian))
    if isinstance(search, Fixed) and isinstance(argument, str) and argument != Gaussian.name:
        raise ValueError(
            f"hyperparameters='fixed' needs those of the likelihood too: give likelihood as an object, for example "
            f"vastgp.likelihoods.{type(likelihood).__name__}(...), not the name {argument!r}."
        )


def check_all_targets(rows: Rows, likelihood: Likelihood) -> Rows:
    """Return rows whose targets the likelihood can produce; raise ValueError for others."""
    if not likelihood.scales_target:
        processes.together(lambda: _check_own_targets(rows.local, likelihood))
    return rows


def _check_own_targets(rows: Rows, likelihood: Likelihood) -> None:
    for _, targets in rows.batches(_CHECKED_ROWS):
        likelihood.check_targets(targets)
