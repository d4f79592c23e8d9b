"""Passes over few rows, and their posterior, in NumPy: programs would be compiled for each number of inducing inputs.

Where all rows are inducing inputs that is each number of rows: eleven programs and two seconds for 60 rows and again
for 61, of which all else takes 0.3. The formulas are those of `vastgp.methods.svgp.bound`.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from vastgp import _accelerator
from vastgp.data import Rows, Standardizer, processes
from vastgp.data.minibatch import standardised_rows
from vastgp.fitting.damped_updates import DampedUpdates, Found
from vastgp.fitting.dual_evidence import most_rate, sites_in_numpy
from vastgp.kernels import Kernel
from vastgp.kernels.dense import has_closed_form
from vastgp.kernels.matrices import covariance, prior_variances
from vastgp.likelihoods import Likelihood
from vastgp.linalg.cholesky import FactorizationError, factorize
from vastgp.linalg.threads import blas_threads
from vastgp.methods.svgp.bound import (
    Coordinates,
    SiteSums,
    Whitened,
    as_wanted,
    centred,
    least_jitter,
    roundings_of,
    row_sums,
)
from vastgp.methods.svgp.passes import Passes

# Rows and inducing inputs up to which nothing is compiled.
_MOST = 1000


def stays_on_host(kernel: Kernel, num_inducing: int) -> bool:
    """Return whether a posterior at so many inducing inputs is evaluated in NumPy, however many rows there are."""
    return num_inducing <= _MOST and has_closed_form(kernel) and not _accelerator.is_present()


def passes_stay_on_host(
    kernel: Kernel, likelihood: Likelihood, rows: Rows, num_inducing: int
) -> bool:
    """Return whether passes over all rows are done in NumPy."""
    few = rows.n <= _MOST and rows.n * likelihood.num_latent <= likelihood.most_in_numpy
    return (
        few
        and "bound_and_sites" in likelihood.in_numpy
        and stays_on_host(kernel, num_inducing)
        and processes.count() == 1
    )


def coordinates_on_host(kernel: Kernel, Z: np.ndarray, jitter: float) -> Coordinates:
    """Return the whitened coordinates of some inducing inputs, as `vastgp.methods.svgp.bound.coordinates` does."""
    added = max(jitter, least_jitter(len(Z), np.float64)) * float(kernel.total_variance())
    found = factorize(
        covariance(kernel, Z, Z), added,
        what="the covariance matrix of the inducing inputs", advice="Raise jitter, or give fewer of them.",
    )  # fmt: skip
    lower = np.tril(found.lower)
    return Coordinates(lower, _inverse(lower))


def posterior_on_host(likelihood: Likelihood, sums: SiteSums) -> tuple[SiteSums, Whitened]:
    """Return sites and what they give, as `vastgp.methods.svgp.bound.posterior_under` does."""
    A = sums.precision
    added = 1.0 + roundings_of(np.diagonal(A, axis1=1, axis2=2))
    what = "the precision of the sites (I + A)"
    root = np.stack(
        [_inverse(np.tril(factorize(a, d, what=what).lower)) for a, d in zip(A, added, strict=True)]
    )
    half = root @ sums.linear[:, :, None]
    q = Whitened((root.swapaxes(1, 2) @ half)[:, :, 0], root)
    return centred(sums, q) if likelihood.shift_invariant else (sums, q)


def _inverse(lower: np.ndarray) -> np.ndarray:
    with blas_threads(len(lower)):
        inverse, _ = lapack.dtrtri(lower, lower=1)
    return inverse


class HostPasses(Passes):
    """Passes over few rows at once, in NumPy.

    Parameters
    ----------
    rows : Rows
    standardizer : Standardizer
    model : tuple
        Kernel, likelihood and inducing inputs, in standardised units.
    jitter : float
        On the diagonal of ``K_uu``, relative to the prior variance.
    least : float
        What is left to gain at the end, in nats.
    """

    def __init__(
        self,
        rows: Rows,
        standardizer: Standardizer,
        model: tuple[Kernel, Likelihood, np.ndarray],
        jitter: float,
        least: float,
    ) -> None:
        self._kernel, self.likelihood, self._Z = model
        X, self._y = standardised_rows(rows, standardizer, np.arange(rows.n))
        self._inverse = coordinates_on_host(self._kernel, self._Z, jitter).inverse
        self._psi, self._prior = self._features(X), prior_variances(self._kernel, X)
        self.updates = DampedUpdates(
            self._evaluate, most=most_rate(self.likelihood), least_gain=least
        )

    def _features(self, X: np.ndarray) -> np.ndarray:
        with blas_threads(len(self._Z)):
            return self._inverse @ covariance(self._kernel, self._Z, X)

    def sums_of_some(self, X: np.ndarray, linear: np.ndarray, precision: np.ndarray) -> SiteSums:
        """Return the sums of sites of some rows, (C, n) each."""
        return row_sums(self._features(X), linear, precision)

    def _evaluate(self, sums: SiteSums) -> Found:
        try:
            sums, q = posterior_on_host(self.likelihood, sums)
        except FactorizationError:
            return Found(sums, np.float64(np.nan), sums)
        with blas_threads(len(self._Z)):
            mean, variance = q.moments(self._psi, self._prior)
        bound, sites = sites_in_numpy(
            self.likelihood, self._y,
            as_wanted(self.likelihood, mean), as_wanted(self.likelihood, variance),
        )  # fmt: skip
        with blas_threads(len(self._Z)):
            better = row_sums(self._psi, *(part.reshape(mean.shape) for part in sites))
        total = np.float64(np.sum(bound) - q.divergence())
        return Found(sums, total if np.isfinite(total) else np.float64(np.nan), better)
