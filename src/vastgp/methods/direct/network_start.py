"""Where a network of discrete weights starts: single hypotheses that no change of one weight improves."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from vastgp.fitting.clock import now
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.methods.direct.network_polynomial import NetworkTerms

# Hypotheses that are descended from. One in forty ends near the best one (two units, two inputs): six alone seldom do.
_DESCENTS = 128
# Numbers of a table of monomials held at once.
_MOST_NUMBERS = 20_000_000
_MOST_SWEEPS = 30


def descend(
    terms: NetworkTerms,
    sums: SufficientStatistics,
    values: Float[np.ndarray, "b k"],
    log_mass: Float[np.ndarray, "b k"],
    least_variance: float,
    seed: int,
    deadline: float | None = None,
) -> tuple[Int[np.ndarray, "S b"], Float[np.ndarray, " S"]]:
    """Return hypotheses, the most probable first, and the noise variance that each leaves.

    From random ones, each weight in turn takes the value of highest posterior probability given all others, with the
    noise variance that suits it best: ``n / 2 log(RSS / n) - sum_j log p_j`` falls until no weight wants another value.
    ``RSS`` is a quadratic form in the coefficients ``g = B^T m(w)`` of the inputs' monomials, whatever the rows.

    Parameters
    ----------
    terms : NetworkTerms
    sums : SufficientStatistics
        Of the monomials of the inputs.
    values, log_mass : ndarray of shape (b, k)
        Values of each weight and their log prior masses; minus infinity is never taken.
    least_variance : float
        Of the noise.
    seed : int
    deadline : float, optional
        Time of `vastgp.fitting.clock.now` at which to end with what there is.
    """
    generator = np.random.default_rng(seed)
    size, num_values = values.shape
    each = num_values * terms.factors.size
    count = int(np.clip(_MOST_NUMBERS // each, 1, _DESCENTS))
    mass = np.exp(log_mass - log_mass.max(axis=1, keepdims=True))
    mass = mass > 0.0
    codes = np.stack([generator.choice(np.flatnonzero(allowed), count) for allowed in mass], axis=1)
    n = sums.num_rows

    def loss(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = weights[..., terms.factors] ** terms.powers
        g = np.prod(chosen, axis=-1) @ terms.coefficients
        rss = sums.square - 2.0 * g @ sums.target + np.sum((g @ sums.gram) * g, axis=-1)
        variance = np.maximum(rss / n, least_variance)
        return 0.5 * n * np.log(variance), variance

    index = np.arange(size)
    for _ in range(_MOST_SWEEPS):
        before = codes.copy()
        for j in generator.permutation(size):
            if deadline is not None and now() > deadline:
                break
            weights = np.repeat(values[index, codes][:, None, :], num_values, axis=1)
            weights[:, :, j] = values[j]
            codes[:, j] = np.argmin(loss(weights)[0] - log_mass[j], axis=1)
        if np.array_equal(before, codes):
            break
    fit, variance = loss(values[index, codes])
    order = np.argsort(fit - log_mass[index, codes].sum(axis=1), kind="stable")
    return codes[order], variance[order]
