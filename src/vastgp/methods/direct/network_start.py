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
    count = int(np.clip(_MOST_NUMBERS // terms.factors.size, 1, _DESCENTS))
    mass = np.exp(log_mass - log_mass.max(axis=1, keepdims=True))
    mass = mass > 0.0
    codes = np.stack([generator.choice(np.flatnonzero(allowed), count) for allowed in mass], axis=1)
    n = sums.num_rows

    def loss(rss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        variance = np.maximum(rss / n, least_variance)
        return 0.5 * n * np.log(variance), variance

    index = np.arange(len(values))
    weights = values[index, codes]
    for _ in range(_MOST_SWEEPS):
        before = codes.copy()
        for j in generator.permutation(len(values)).tolist():
            if deadline is not None and now() > deadline:
                break
            rss = _along(terms, sums, weights, j, values[j])
            codes[:, j] = np.argmin(loss(rss)[0] - log_mass[j], axis=1)
            weights[:, j] = values[j, codes[:, j]]
        if np.array_equal(before, codes):
            break
    fit, variance = loss(_along(terms, sums, weights, 0, weights[:, :1]))
    fit, variance = fit[:, 0], variance[:, 0]
    order = np.argsort(fit - log_mass[index, codes].sum(axis=1), kind="stable")
    return codes[order], variance[order]


def _along(
    terms: NetworkTerms, sums: SufficientStatistics, weights: np.ndarray, j: int, at: np.ndarray
) -> Float[np.ndarray, "S k"]:
    """Return the sum of squares of every hypothesis with some values for one of its weights.

    In one weight the coefficients of the inputs are a polynomial, ``g = sum_p w^p g_p``, of the powers that it has in
    the monomials: ``RSS = y^T y - 2 sum_p w^p g_p^T Psi^T y + sum_pq w^(p+q) g_p^T Psi^T Psi g_q``.

    Parameters
    ----------
    weights : ndarray of shape (S, b)
    at : ndarray of shape (k,) or (S, k)
        Values of weight ``j``: of all hypotheses, or of each.
    """
    own = np.max(terms.powers * (terms.factors == j), axis=1)
    others = weights.copy()
    others[:, j] = 1.0
    # powers by products: several times as fast as by exponents
    table = np.ones((int(terms.powers.max()) + 1, *others.shape))
    np.cumprod(np.broadcast_to(others, (len(table) - 1, *others.shape)), axis=0, out=table[1:])
    monomials = np.prod(
        [
            table[power, :, factor]
            for power, factor in zip(terms.powers.T, terms.factors.T, strict=True)
        ],
        axis=0,
    )
    taken = np.flatnonzero(np.bincount(own))
    g = np.stack([monomials[own == p].T @ terms.coefficients[own == p] for p in taken], axis=1)
    linear, square = g @ sums.target, g @ sums.gram @ g.transpose(0, 2, 1)
    powers = np.broadcast_to(at, (len(weights), at.shape[-1]))[..., None] ** taken
    return (
        sums.square
        - 2.0 * np.einsum("skp,sp->sk", powers, linear)
        + np.einsum("skp,spq,skq->sk", powers, square, powers)
    )
