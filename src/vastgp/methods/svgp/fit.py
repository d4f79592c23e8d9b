"""The fit at inducing inputs: where they start, steps on minibatches, passes over all rows, and the answer."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp._programs import program
from vastgp.data import Rows, Standardizer, observations
from vastgp.data.minibatch import fixed_indices, fixed_rows
from vastgp.estimators.inducing_inputs import inducing_attributes
from vastgp.fitting.inducing_points import select_inducing
from vastgp.fitting.run import Answer, Run
from vastgp.kernels import Kernel
from vastgp.kernels.metric import shortened
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.svgp.bound import SiteSums, Whitened, coordinates, posterior_of
from vastgp.methods.svgp.collapsed_bound import best_scales
from vastgp.methods.svgp.first_sites import first_sums
from vastgp.methods.svgp.on_host import (
    HostPasses,
    coordinates_on_host,
    passes_stay_on_host,
    posterior_on_host,
    stays_on_host,
)
from vastgp.methods.svgp.options import SVGPOptions
from vastgp.methods.svgp.passes import (
    SVGPFit,
    left_to_gain,
    passed,
    run_passes,
    without_passes,
)
from vastgp.methods.svgp.posterior import SVGPPosterior
from vastgp.methods.svgp.steps import Params
from vastgp.methods.svgp.training import hyperparameters_given, learn

# Rows that inducing inputs are chosen from, and that amplitude and noise of the start are scaled by.
_CHOSEN_FROM, _SCALED_BY = 20_000, 8192
# Which rows that are drawn once these are.
_CHOSEN, _SCALED = 1, 2
# Lengthscales that steps of learning start from, at most, in standard deviations of the input. Few rows cannot tell an
# input that matters little from one that does not, and steps find back too slowly from far away: kegg, where half of 20
# inputs started at several hundred, ended at an NLPD of -1.02, and at -1.07 from ten.
_LONGEST = 10.0


class Inputs(NamedTuple):
    """Inducing inputs: in standardised units, or how to choose so many."""

    given: np.ndarray | None
    choice: str
    size: int


def fit_svgp(
    rows: Rows,
    standardizer: Standardizer,
    first: tuple[Kernel, Likelihood],
    inputs: Inputs,
    options: SVGPOptions,
    run: Run,
    dtype: str = "float64",
) -> SVGPFit:
    """Fit ``q``, and hyperparameters and inducing inputs where they are learned.

    Parameters
    ----------
    rows : Rows
        Training rows with targets, of any number.
    standardizer : Standardizer
        Their scaling.
    first : tuple
        Kernel and likelihood in standardised units: where learning starts.
    inputs : Inputs
    options : SVGPOptions
    run : Run
    dtype : {"float64", "float32"}
        Of steps on minibatches.
    """
    if options.untied and rows.n > options.row_batch:
        raise ValueError(
            f"sites='full' keeps a site for each row and uses all of them in every step, and X has {rows.n} rows, "
            f"more than row_batch={options.row_batch}. Set sites='tied', or raise row_batch."
        )
    kernel, likelihood = first
    if options.learn:
        kernel = shortened(kernel, _LONGEST)
    Z = inputs.given
    if Z is None:
        most = max(inputs.size, _CHOSEN_FROM)
        chosen = np.sort(fixed_indices(run.seed, _CHOSEN, rows.n, most))
        X = standardizer.transform_X(rows.take(chosen)[0])
        Z = select_inducing(inputs.choice, kernel, X, inputs.size, run.seed)
    if options.learn and isinstance(likelihood, Gaussian):
        kernel, likelihood = _scaled(rows, standardizer, kernel, likelihood, Z, options, run.seed)
    start = kernel, likelihood, Z
    if options.given and passes_stay_on_host(kernel, likelihood, rows, len(Z)):
        return _fit_on_host(rows, standardizer, start, options, run)
    params, sums, loop, damped, needed = learn(rows, standardizer, start, options, run, dtype)
    # what Adam found is whole; without time for a pass the sites of the last steps have to do
    left = run.seconds_left()
    if options.optimizer == "adam" or (options.learn and left is not None and left <= needed):
        return without_passes(params, sums, options, loop, damped, str(params.Z.dtype))
    assert isinstance(sums, SiteSums)
    return run_passes(rows, standardizer, params, sums, options, loop, damped, run)


def _fit_on_host(
    rows: Rows,
    standardizer: Standardizer,
    model: tuple[Kernel, Likelihood, np.ndarray],
    options: SVGPOptions,
    run: Run,
) -> SVGPFit:
    """Return the fit of few rows whose hyperparameters and inducing inputs are given."""
    kernel, likelihood, Z = model
    passes = HostPasses(rows, standardizer, model, options.jitter, left_to_gain(options, rows.n))
    none = SiteSums.none(likelihood.num_latent, len(Z), np.float64)
    sums = first_sums(rows, standardizer, (kernel, likelihood), none, passes.sums_of_some, run.seed)
    logs = jax.tree.map(np.log, (kernel, likelihood))
    params = Params(logs[0], logs[1], Z)
    return passed(passes, params, sums, options, hyperparameters_given(), 0, run)


def _scaled(
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    likelihood: Gaussian,
    Z: np.ndarray,
    options: SVGPOptions,
    seed: int,
) -> tuple[Kernel, Gaussian]:
    """Return amplitude and noise of highest bound with these inducing inputs, on some rows."""
    # with noise of the rows' own some twenty decompositions are made
    most = _SCALED_BY // (4 if observations.has_own_noise(rows.y) else 1)
    X, y = fixed_rows(rows, standardizer, seed, _SCALED, most)
    kernel, noise = best_scales(
        kernel, float(likelihood.noise_variance), Z, X, y,
        jitter=options.jitter, noise_floor=options.noise_floor,
    )  # fmt: skip
    return kernel, Gaussian(noise)


def answer_of(fit: SVGPFit, standardizer: Standardizer, options: SVGPOptions, dtype: str) -> Answer:
    """Return a fit as an answer."""
    diagnosis = {"bound": fit.bound, "damped_steps": fit.damped, "passes": fit.num_passes}
    loop = fit.loop
    return Answer(
        fit.kernel,
        fit.likelihood,
        lambda: _posterior(fit, dtype),
        loop.num_iter,
        loop.reason,
        loop.converged,
        loop.history,
        advice="the bound may still grow, see history_. Give more time (max_seconds, max_steps of the solver), or a "
        "larger tol.",
        attributes={"diagnosis_": diagnosis} | inducing_attributes(fit.Z, standardizer),
        evidence=float(fit.bound) if np.isfinite(fit.bound) else None,
    )


def _posterior(fit: SVGPFit, dtype: str) -> SVGPPosterior:
    try:
        inverse, q = _parts_of_posterior(fit)
        found = bool(np.all(np.isfinite(q.mean)) and np.all(np.isfinite(q.root)))
    except FactorizationError:
        found = False
    if not found:
        raise FloatingPointError(
            f"the fit ended without a finite posterior, in {dtype}. Raise jitter or noise_floor, or set "
            "dtype='float64'."
        )
    # as a file has them: products are the same to the last bit
    return SVGPPosterior(fit.kernel, fit.Z, *map(np.ascontiguousarray, (inverse, *q)))


def _parts_of_posterior(fit: SVGPFit) -> tuple[Any, Whitened]:
    if isinstance(fit.sums, SiteSums) and stays_on_host(fit.kernel, len(fit.Z)):
        inverse = coordinates_on_host(fit.kernel, fit.Z, fit.jitter).inverse
        return inverse, posterior_on_host(fit.likelihood, fit.sums)[1]
    with precision("float64"):
        found: tuple[Any, Whitened] = _whitened(fit.kernel, fit.Z, fit.sums, fit.jitter)
        return found


@program
def _whitened(
    kernel: Kernel, Z: Float[Array, "m d"], sums: SiteSums | Whitened, jitter: Any
) -> tuple[Float[Array, "m m"], Whitened]:
    q = posterior_of(sums) if isinstance(sums, SiteSums) else sums
    return coordinates(kernel, Z, jitter).inverse, q
