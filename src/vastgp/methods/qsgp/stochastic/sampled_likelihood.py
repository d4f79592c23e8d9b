"""Estimates of ``E_q[log p(y | Phi w)]`` from some rows and some basis functions, for any likelihood.

``q(w) = N(mu, C C^T)`` with a chevron-shaped ``C``: its first columns dense, the rest diagonal. At one row the
latent value is Gaussian,

    E_q[log p(y | phi w)] = E_z[log p(y | phi mu + z sqrt(phi C C^T phi^T))],    z ~ N(0, 1),

and a sampled index set ``i`` leaves ``phi mu`` and the variance as estimates inside a function that is not linear, so
that no estimate here is unbiased. Theorem 3 of Evans and Nair (2020) prints a variance where the standard deviation
belongs; with the root its proof no longer holds (``docs/errata.md``, 1). Two sound estimators take its place:

- `strict_bound` samples ``phi w`` itself, ``w = mu + C eps``, which is linear in the sampled indices for a fixed
  ``eps``. Jensen's inequality then makes its expectation a lower bound where ``log p`` is concave.
- `plug_in` puts unbiased estimates of mean and variance in their places: no bound, but far nearer.

Both lose about ``1/2 beta Var[m / m~ phi_i mu_i]`` a row to the noise of the mean, ``beta = -E[(log p)'']``.
Subtracting the error that support rows predict (`control_variates.interpolated_error`) lowers it, and
`plug_in` can also estimate the loss and give it back. The strict bound loses ``1/2 beta (m / m~ - 1)`` times the
diagonal columns' variance besides, which no control variate of the mean touches.

Measured over the likelihoods of this library, diagonal ``C``, gap relative to the full-batch value: with ``m = 40``,
``m~ = 10`` strict -0.4 to -4, plug-in -0.08 to -0.9, corrected below 0.07, with a control variate -0.01 to -0.07, with
both below 0.005. With ``m = 2000``, ``m~ = 200`` strict -1.2 to -80, plug-in -0.006 to -0.013, with a control variate
below 2e-4.
`sampling_gap` reports it for any objective.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.likelihoods import Likelihood
from vastgp.methods.qsgp.stochastic.sampled_elbo import Factor, Scalar, sampled_product, weighted


class SampledBlock(NamedTuple):
    """What one set of sampled basis functions holds at the sampled rows.

    Attributes
    ----------
    phi : Array of shape (n~, m~)
        Features.
    mean : Array of shape (m~,)
        ``mu_i``.
    dense : Array of shape (m~, q)
        Rows of the dense columns of ``C``; ``q`` may be 0.
    diagonal : Array of shape (m~,)
        Entries of the diagonal columns, zero where the index belongs to a dense column.
    factor : float or Array of shape (m~,)
        Inverse inclusion probability, ``m / m~``.
    """

    phi: Float[Array, "n b"]
    mean: Float[Array, " b"]
    dense: Float[Array, "b q"]
    diagonal: Float[Array, " b"]
    factor: Factor

    def latent_mean(self) -> Float[Array, " n"]:
        """Return ``m / m~ phi_i mu_i``, an unbiased estimate of ``Phi mu``."""
        return sampled_product(self.phi, self.mean[:, None], self.factor)[:, 0]

    def dense_products(self) -> Float[Array, "n q"]:
        """Return unbiased estimates of ``Phi c_r`` for every dense column."""
        return sampled_product(self.phi, self.dense, self.factor)

    def diagonal_variance(self) -> Float[Array, " n"]:
        """Return ``m / m~ sum_i phi_i^2 c_i^2``, an unbiased estimate of the diagonal columns' variance."""
        return sampled_product(self.phi**2, self.diagonal[:, None] ** 2, self.factor)[:, 0]


def strict_bound(
    likelihood: Likelihood,
    y: Float[Array, " n"],
    block: SampledBlock,
    *,
    row_factor: Scalar,
    mean: Float[Array, "*c n"] | None = None,
) -> Float[Array, ""]:
    """Return an estimate whose expectation is at most ``E_q[log p(y | Phi w)]``, equal to it when no index is left out.

    Parameters
    ----------
    likelihood : Likelihood
        Log-concave.
    y : Array of shape (n~,)
        Targets of the sampled rows.
    block : SampledBlock
    row_factor : float
        ``n / n~``.
    mean : Array of shape (n~,), optional
        An unbiased estimate of ``Phi mu`` in place of the block's own: with a control variate of mean zero subtracted.
        The bound stays one.

    Raises
    ------
    ValueError
        When the likelihood is not log-concave.

    Notes
    -----
    With ``w = mu + C eps`` the sampled ``m / m~ phi_i (mu_i + C_i eps)`` has expectation ``phi w`` over the indices, so
    that ``E_i[log p(y | sampled)] <= log p(y | phi w)`` for every ``eps``. Given the indices it is Gaussian in
    ``eps ~ N(0, I)``, whose average is therefore one-dimensional. The part of the diagonal columns is ``m / m~`` times
    too large on average: that is the price of the bound.
    """
    if not likelihood.log_concave:
        raise ValueError(
            f"likelihood {likelihood.name!r} is not log-concave, and Jensen's inequality gives no bound. "
            "Use plug_in, or one of 'gaussian', 'laplace', 'bernoulli' and 'poisson'."
        )
    # sum over dense r of (m/m~ phi_i C_ir)^2 + (m/m~)^2 sum over diagonal i of phi_i^2 c_i^2
    scaled = weighted(block.diagonal[:, None], block.factor)
    variance = jnp.sum(block.dense_products() ** 2, axis=1) + (block.phi**2 @ scaled**2)[:, 0]
    mean = block.latent_mean() if mean is None else mean
    return row_factor * jnp.sum(likelihood.expected_log_prob(y, mean, variance))


def plug_in(
    likelihood: Likelihood,
    y: Float[Array, " n"],
    first: SampledBlock,
    second: SampledBlock,
    *,
    row_factor: Scalar,
    means: tuple[Float[Array, "*c n"], Float[Array, "*c n"]] | None = None,
    dense_variance: Float[Array, " n"] | None = None,
    correct: bool = False,
) -> Float[Array, ""]:
    """Return an estimate of ``E_q[log p(y | Phi w)]`` by unbiased estimates of mean and variance of ``Phi w``.

    Parameters
    ----------
    likelihood : Likelihood
    y : Array of shape (n~,)
        Targets of the sampled rows.
    first, second : SampledBlock
        Two index sets drawn independently of each other and of the rows.
    row_factor : float
        ``n / n~``.
    means : two arrays of shape (n~,), optional
        Independent unbiased estimates of ``Phi mu`` in place of the blocks' own: with a control variate subtracted, or
        twice the exact one.
    dense_variance : Array of shape (n~,), optional
        ``sum_r (Phi c_r)^2`` where it is known exactly. Without, the product of both sets' ``Phi c_r``, which may be
        negative; the whole variance is cut off at zero.
    correct : bool
        Give back, to second order, what the noise of the mean costs (see Notes). Without a control variate it makes the
        value itself noisier, by up to two thirds where ``m~`` is a fraction of 40.

    Notes
    -----
    The mean is ``f = (f_i + f_j) / 2``. Its noise lowers the expectation by ``1/2 beta Var[f]`` to second order, with
    ``beta = -E[(log p)'']``. The two sets are independent, so that

        E[(f_i - f_j)^2 / 4] = (Var[f_i] + Var[f_j]) / 4 = Var[f],

    and for nearly normal noise the difference is independent of the mean, at which ``beta`` is taken: ``1/2 beta
    (f_i - f_j)^2 / 4`` gives the loss back. What remains is of fourth order in the noise. For Gaussian
    observations nothing does,

        -(y - f)^2 + (f_i - f_j)^2 / 4 = -(y - f_i) (y - f_j),

    which is Theorem 1. Like it, the corrected objective is not concave for a given pair of sets, its expectation is.
    """
    f_i, f_j = (first.latent_mean(), second.latent_mean()) if means is None else means
    if dense_variance is None:
        dense_variance = jnp.sum(first.dense_products() * second.dense_products(), axis=1)
    diagonal = 0.5 * (first.diagonal_variance() + second.diagonal_variance())
    variance = jnp.maximum(dense_variance + diagonal, 0.0)
    mean = 0.5 * (f_i + f_j)
    value = likelihood.expected_log_prob(y, mean, variance)
    if correct:
        value = value + 0.125 * likelihood.curvature_along(y, mean, variance, f_i - f_j)
    return row_factor * jnp.sum(value)


class SamplingGap(NamedTuple):
    """How far a sampled objective is from the one that leaves nothing out, on average over draws.

    Attributes
    ----------
    gap : float
        Mean of the sampled values minus the full-batch value, in nats.
    standard_error : float
        Of the gap, from the spread of the draws.
    full : float
        The full-batch value.
    num_draws : int
    """

    gap: float
    standard_error: float
    full: float
    num_draws: int

    @property
    def relative(self) -> float:
        """The gap as a fraction of the full-batch value."""
        return self.gap / abs(self.full)

    def __str__(self) -> str:
        return (
            f"sampled minus full-batch {self.gap:+.4g} +- {self.standard_error:.2g} nats "
            f"({100 * self.relative:+.2g} % of {self.full:.4g}, {self.num_draws} draws)"
        )


def sampling_gap(sampled: Any, full: Any) -> SamplingGap:
    """Return the bias that sampling basis functions puts into an objective.

    Parameters
    ----------
    sampled : array-like of shape (draws,)
        Values of the sampled objective at the same parameters and rows, one for each independent draw of index sets.
    full : float
        Its value with every basis function: `strict_bound` with all indices and factor 1.

    Raises
    ------
    ValueError
        With fewer than two draws, or where ``sampled`` is no vector.
    """
    values = np.asarray(sampled, dtype=np.float64)
    if values.ndim != 1 or values.size < 2:
        raise ValueError(
            f"sampled must be a vector of at least two draws, received shape {values.shape}. "
            "Evaluate the objective with several independent index sets."
        )
    full = float(full)
    error = values.std(ddof=1) / np.sqrt(values.size)
    return SamplingGap(float(values.mean() - full), float(error), full, values.size)
