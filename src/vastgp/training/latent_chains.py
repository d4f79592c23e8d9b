"""Chains over hyperparameters and latent values: labels at a cost per step that does not know the rows.

Section 5.3.5 of the thesis (after Neal 1997; Titsias et al. 2008). A label is the sign of a latent value
``z = f + eps``, ``eps ~ N(0, 1)``, which is the probit likelihood (Albert and Chib 1993). Given all ``z`` the model is
regression with a noise variance of one, whose evidence knows ``z`` by ``q = U^T z`` and ``z^T z`` alone, ``U`` the left
singular vectors of the features. A step of a chain is

1. a step of the sampler on the hyperparameters given ``z``;
2. a draw of the function's coordinates ``b = U^T f`` given both, which is normal;
3. new ``z`` for some of the rows given ``f``, truncated normals, by which ``q`` and ``z^T z`` change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Bool, Float

from vastgp._precision import precision
from vastgp.data import Rows, Standardizer
from vastgp.objectives.reweighted_evidence import EvidenceData
from vastgp.objectives.sufficient_statistics import feature_matrix
from vastgp.objectives.weight_priors import WeightPrior
from vastgp.training.chain_diagnosis import Chains
from vastgp.training.hyperparameter_chains import (
    CHUNK,
    ChainPlan,
    HyperPosterior,
    Runner,
    adapted,
    begin,
    on_all_chains,
    run_steps,
    transition,
)

# Singular vectors at all rows are kept while they are no more numbers than this, 512 MB; else they are made for every
# chunk of steps anew.
_MOST_KEPT = 1 << 26
_TILE = 4096
# E|eps| of a standard normal: where latent values begin.
_FIRST = (2.0 / np.pi) ** 0.5
# Beyond this many standard deviations the tail of a normal is an exponential to single precision.
_FAR = 30.0


class LatentPosterior(HyperPosterior):
    """Log density of all hyperparameters but the noise variance, which is one, given latent values."""

    def __call__(self, free: Float[Array, " D"]) -> Float[Array, ""]:
        return super().__call__(_with_noise(free))


class LatentRows:
    """Labels, and the left singular vectors of the features at any rows.

    Parameters
    ----------
    rows : Rows
        With labels -1 and 1.
    standardizer : Standardizer
    basis : basis
    data : EvidenceData
        Prepared from the sums over these rows.
    dtype : str
        Of the features.
    """

    def __init__(
        self, rows: Rows, standardizer: Standardizer, basis: Any, data: EvidenceData, dtype: str
    ) -> None:
        assert rows.y is not None
        self.rows, self.standardizer, self.dtype = rows, standardizer, dtype
        self.labels = np.asarray(rows.take(np.arange(rows.n))[1], np.float64)
        with precision(dtype):
            self.basis = jax.tree.map(jnp.asarray, basis)
        self.into = np.asarray(data.vectors)[:, : data.rank] / np.asarray(data.values)
        self.kept: np.ndarray | None = None
        if rows.n * data.rank <= _MOST_KEPT:
            every = np.arange(rows.n)
            self.kept = np.concatenate([self._made(part) for part in _tiles(every)])

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.labels)

    def vectors(self, index: np.ndarray) -> np.ndarray:
        """Return the rows of ``U`` with these numbers, ascending."""
        if self.kept is not None:
            return self.kept[index]
        return np.concatenate([self._made(part) for part in _tiles(index)])

    def _made(self, index: np.ndarray) -> np.ndarray:
        X = self.standardizer.transform_X(self.rows.take(index)[0]).astype(self.dtype)
        # few sizes: few programs are compiled
        padded = np.pad(X, ((0, _TILE - len(X)), (0, 0)), mode="edge")
        with precision(self.dtype):
            phi = np.asarray(feature_matrix(self.basis, jnp.asarray(padded)), np.float64)
        return phi[: len(X)] @ self.into


class _LatentRunner(Runner):
    """Chains with latent values of their own; all renew the same rows in the same order."""

    def __init__(
        self,
        target: LatentPosterior,
        starts: np.ndarray,
        scale: np.ndarray,
        plan: ChainPlan,
        seed: int,
        rows: LatentRows,
        rows_per_step: int,
    ) -> None:
        super().__init__(target, starts, scale, plan, seed)
        count = len(starts)
        self.rows, self.rows_per_step = rows, min(rows_per_step, rows.n)
        self.z = np.tile(_FIRST * rows.labels, (count, 1))
        # the statistics of the target are those of the labels
        q = np.tile(_FIRST * np.asarray(target.data.projected), (count, 1))
        self.sums = jnp.asarray(q), jnp.full(count, _FIRST**2 * rows.n, dtype=q.dtype)
        self.sweep = self._sweeps(np.random.default_rng(seed))

    def _sweeps(self, generator: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield the rows of one step after another; none comes twice in a step."""
        while True:
            order = generator.permutation(self.rows.n)
            for start in range(0, self.rows.n - self.rows_per_step + 1, self.rows_per_step):
                yield order[start : start + self.rows_per_step]

    def last(self) -> tuple[np.ndarray, ...]:
        return *super().last(), np.asarray(self.sums[0])

    def chunk(self, keys: Array, scale: Array, adapt: Array) -> tuple:
        every = np.stack([next(self.sweep) for _ in range(CHUNK)])
        index, where = np.unique(every, return_inverse=True)
        size = min(self.rows.n, every.size)
        missing = size - len(index)
        U = np.pad(self.rows.vectors(index), ((0, missing), (0, 0)))
        block = (
            jnp.asarray(U),
            jnp.asarray(np.pad(self.rows.labels[index], (0, missing))),
            jnp.asarray(where.reshape(every.shape)),
        )
        z = np.pad(self.z[:, index], ((0, 0), (0, missing)))
        own = keys, self.theta, self.steps, self.step_size, (*self.sums, jnp.asarray(z))
        shared = self.target, self.plan.sampler, adapt, scale, block
        *result, (q, square, z) = on_all_chains(
            _latent_chain, shared, own, one_by_one=self.target.factorises
        )
        self.sums = q, square
        self.z[:, index] = np.asarray(z)[:, : len(index)]
        return tuple(result)


def draw_latent_hyperparameters(
    prior: WeightPrior,
    data: EvidenceData,
    rows: LatentRows,
    plan: ChainPlan,
    *,
    rows_per_step: int,
    seed: int,
    max_seconds: float | None = None,
    on_chunk: Callable[[float], None] | None = None,
) -> Chains:
    """Return draws of the hyperparameters, with the coordinates ``U^T z`` of the latent values of each.

    Parameters
    ----------
    prior : WeightPrior
        Its first hyperparameter, the logarithm of the noise variance, is zero in all draws.
    data : EvidenceData
        Of the labels, as if they were targets.
    rows : LatentRows
    plan : ChainPlan
    rows_per_step : int
        Rows whose latent values a step renews.
    seed, max_seconds, on_chunk
        As in `vastgp.training.hyperparameter_chains.run_chains`.
    """
    scale = prior.scale(data)[1:]
    scatter = np.random.default_rng(seed).normal(size=(plan.num_chains, prior.size - 1))
    starts = prior.start()[1:] + 0.5 * scale * scatter
    with precision("float64"):
        target = LatentPosterior(prior, data)
        runner = _LatentRunner(target, starts, scale, plan, seed, rows, rows_per_step)
        found = run_steps(runner, max_seconds, on_chunk)
    theta = np.pad(found.theta, ((0, 0), (0, 0), (1, 0)))
    return dataclasses.replace(found, theta=theta)


def _latent_chain(
    target: LatentPosterior,
    sampler: str,
    adapt: Bool[Array, ""],
    scale: Float[Array, " D"],
    block: tuple,
    own: tuple,
) -> tuple:
    """Do `CHUNK` steps of one chain."""
    U, labels, where = block
    key, theta, steps, step_size, latent = own

    def step(carry: tuple, inputs: tuple) -> tuple:
        position, steps, (q, square, z) = carry
        key, index = inputs
        of_theta, of_function, of_values = jax.random.split(key, 3)
        data = with_targets(target.data, q, square)
        given = LatentPosterior(target.prior, data)

        def log_density(position: Array) -> Array:
            return given(position * scale)

        size, after = adapted(sampler, adapt, steps, step_size)
        state = begin(sampler, log_density, position)
        state, acceptance, diverging = transition(sampler, log_density, of_theta, state, size)
        free = state.position * scale
        b = draw_coordinates(target.prior, data, _with_noise(free), of_function)
        fresh = signed_normal(of_values, U[index] @ b, labels[index])
        change = fresh - z[index]
        latent = (
            q + change @ U[index],
            square + jnp.sum(change * (fresh + z[index])),
            z.at[index].set(fresh),
        )
        seen = free, state.logdensity, acceptance, diverging, q
        return (state.position, after(steps, acceptance), latent), seen

    found: tuple
    carry, found = jax.lax.scan(
        step, (theta / scale, steps, latent), (jax.random.split(key, CHUNK), where)
    )
    position, steps, latent = carry
    return position * scale, steps, *found, latent


def with_targets(data: EvidenceData, q: Float[Array, " k"], square: Any) -> EvidenceData:
    """Return the statistics for other targets, given by ``U^T z`` and ``z^T z``."""
    residual = jnp.maximum(square - q @ q, 0.0)
    return dataclasses.replace(
        data, projected=q, square=square, residual=residual, target=data.factor @ q
    )


def draw_coordinates(
    prior: WeightPrior, data: EvidenceData, theta: Float[Array, " D"], key: Array
) -> Float[Array, " k"]:
    """Return a draw of ``b = U^T f`` given targets with ``q = U^T z``.

    With prior variances ``g_i`` of ``E^T b``, its posterior has independent entries of mean ``g_i / (g_i + sigma^2)``
    times those of ``E^T q``, and of variance ``g_i sigma^2 / (g_i + sigma^2)``.
    """
    noise = jnp.exp(theta[0])
    g, into, back = prior.on_data(data, theta)
    normals = jax.random.normal(key, g.shape, g.dtype)
    mean, variance = g / (g + noise) * into(data.projected), g * noise / (g + noise)
    return back(mean + jnp.sqrt(variance) * normals)


def signed_normal(
    key: Array, mean: Float[Array, " n"], sign: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Return draws of normals of variance one that have the signs asked for."""
    # eps = sign (z - mean) is a standard normal above a
    a = -sign * mean
    u = jax.random.uniform(key, mean.shape, mean.dtype, jnp.finfo(mean.dtype).tiny, 1.0)
    near = -ndtri(u * ndtr(-jnp.minimum(a, _FAR)))
    far = a - jnp.log(u) / jnp.maximum(a, _FAR)
    # rounding must not take the sign
    return sign * jnp.maximum(sign * mean + jnp.where(a > _FAR, far, near), 0.0)


def _with_noise(free: Float[Array, " D"]) -> Array:
    return jnp.concatenate([jnp.zeros(1, free.dtype), free])


def _tiles(index: np.ndarray) -> list[np.ndarray]:
    return [index[start : start + _TILE] for start in range(0, len(index), _TILE)]
