"""One step each of the E-step and the M-step at inducing points, and of Adam on everything."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from vastgp.kernels import Kernel
from vastgp.likelihoods import Likelihood
from vastgp.objectives.dual_evidence import local_sites
from vastgp.objectives.svgp_bound import (
    Rows,
    SiteSums,
    better_sums,
    bound_of,
    held,
    moved_bound,
    posterior_of,
    prior_factor,
    row_sums,
    untied_bound,
    whitened_features,
)

_ADAM = optax.scale_by_adam()


class Params(NamedTuple):
    """What the M-step moves: logarithms of all hyperparameters, and the inducing points."""

    kernel: Any
    likelihood: Any
    Z: Any

    def positive(self) -> tuple[Kernel, Likelihood]:
        """Return kernel and likelihood."""
        return jax.tree.map(jnp.exp, (self.kernel, self.likelihood))


class Moments(NamedTuple):
    """``q`` by its mean and the lower Cholesky factor of its covariance, as Adam moves it.

    Attributes
    ----------
    mean : Array of shape (C, m)
    root : Array of shape (C, m, m)
        Below the diagonal as it is, on the diagonal its logarithm.
    """

    mean: Any
    root: Any

    @classmethod
    def prior(cls, functions: int, lower: Float[Array, "m m"]) -> Moments:
        """Return the moments of ``N(0, L L^T)``."""
        m = len(lower)
        raw = jnp.tril(lower, -1) + jnp.diag(jnp.log(jnp.diagonal(lower)))
        return cls(jnp.zeros((functions, m), lower.dtype), jnp.broadcast_to(raw, (functions, m, m)))

    def whitened(self, lower: Float[Array, "m m"] | None) -> MomentForm:
        """Return ``q(v)``; with ``L`` the moments are those of ``u = L v``."""
        diagonal = jnp.exp(jnp.diagonal(self.root, axis1=1, axis2=2))
        root = jnp.tril(self.root, -1) + diagonal[:, :, None] * jnp.eye(self.root.shape[-1])
        root = root.astype(self.root.dtype)
        if lower is None:
            return MomentForm(self.mean, root)
        mean = solve_triangular(lower, self.mean.T, lower=True).T
        wide = jnp.broadcast_to(lower, root.shape)
        return MomentForm(mean, solve_triangular(wide, root, lower=True))


class MomentForm(NamedTuple):
    """``q(v) = N(mean, G G^T)``, with what `bound_of` asks of a `Whitened`."""

    mean: Any
    root: Any

    def divergence(self) -> Array:
        """Return ``KL(q(v) || N(0, I))``."""
        log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(self.root, axis1=1, axis2=2)))
        total = jnp.sum(self.root**2) + jnp.sum(self.mean**2)
        return 0.5 * (total - self.mean.size - log_det)

    def moments(self, psi: Float[Array, "m n"], prior_variance: Any) -> tuple[Array, Array]:
        """Return mean and variance of each function at rows with features ``psi``."""
        left = jnp.maximum(prior_variance - jnp.sum(psi**2, axis=0), 0.0)
        return self.mean @ psi, left + jnp.sum((jnp.swapaxes(self.root, 1, 2) @ psi) ** 2, axis=1)

    def sums(self) -> SiteSums:
        """Return the sites that give these moments."""
        m = self.root.shape[-1]
        eye = jnp.broadcast_to(jnp.eye(m, dtype=self.root.dtype), self.root.shape)
        inverse = solve_triangular(self.root, eye, lower=True)
        precision = jnp.swapaxes(inverse, 1, 2) @ inverse
        linear = jnp.einsum("cij,cj->ci", precision, self.mean)
        return SiteSums(linear, precision - eye)


class Setting(NamedTuple):
    """Numbers that stay the same during a fit.

    Attributes
    ----------
    jitter : float
        Relative to the prior variance, on ``K_uu``.
    lower, upper : Params
        Bounds of the logarithms of the hyperparameters.
    """

    jitter: Any
    lower: Any
    upper: Any


@jax.jit
def e_step(
    params: Params, sums: SiteSums, rows: Rows, rate: Any, jitter: Any
) -> tuple[SiteSums, Array, Array]:
    """Return the sums after a natural-gradient step, the bound before it, and whether the result is a posterior."""
    kernel, likelihood = params.positive()
    lower = prior_factor(kernel, params.Z, jitter)
    psi = whitened_features(kernel, params.Z, lower, rows.X)
    q = posterior_of(sums)
    moments = q.moments(psi, kernel.total_variance())
    fit, better = better_sums(likelihood, rows.y, rows.weights, psi, *moments)
    found = sums.toward(better, rate)
    bound = fit - q.divergence()
    return found, bound, _finite(bound, posterior_of(found))


@partial(jax.jit, static_argnames=("hold", "move"))
def m_step(
    params: Params,
    optimizer: Any,
    sums: SiteSums,
    rows: Rows,
    learning_rate: Any,
    setting: Setting,
    *,
    hold: str,
    move: bool,
) -> tuple[Params, Any, SiteSums, Array, Array]:
    """Return hyperparameters and inducing points after a step of Adam on the bound of eq. (15) or (14), and the sums.

    The sums come in the coordinates of the new ``L``, so that what is held stays what it is (see `held`).
    """
    kernel, _ = params.positive()
    before = prior_factor(kernel, params.Z, setting.jitter)

    def bound(params: Params) -> Array:
        return moved_bound(*params.positive(), params.Z, setting.jitter, hold, sums, before, rows)

    value, gradient = jax.value_and_grad(bound)(params)
    params, optimizer = _ascend(params, gradient, optimizer, learning_rate, setting, move)
    after = prior_factor(params.positive()[0], params.Z, setting.jitter)
    sums = held(hold, sums, before, after)
    return params, optimizer, sums, value, _finite(value, params, posterior_of(sums), optimizer)


@jax.jit
def untied_e_step(
    params: Params, sites: tuple[Array, Array], rows: Rows, rate: Any, jitter: Any
) -> tuple[tuple[Array, Array], SiteSums, Array, Array]:
    """Return the sites of all rows after a natural-gradient step (eq. (18)), their sums, the bound before it, and
    whether the result is a posterior."""
    kernel, likelihood = params.positive()
    lower = prior_factor(kernel, params.Z, jitter)
    psi = whitened_features(kernel, params.Z, lower, rows.X)
    q = posterior_of(row_sums(psi, *sites))
    mean, variance = q.moments(psi, kernel.total_variance())
    one = likelihood.num_latent == 1
    fit, better = local_sites(
        likelihood, rows.y, mean[0] if one else mean, variance[0] if one else variance
    )
    # rows that do not count have no site
    found = tuple(
        (1.0 - rate) * old + rate * rows.weights * new.reshape(old.shape)
        for old, new in zip(sites, better, strict=True)
    )
    sums = row_sums(psi, *found)
    bound = jnp.sum(rows.weights * fit) - q.divergence()
    return found, sums, bound, _finite(bound, posterior_of(sums))


@partial(jax.jit, static_argnames="move")
def untied_m_step(
    params: Params,
    optimizer: Any,
    sites: tuple[Array, Array],
    rows: Rows,
    learning_rate: Any,
    setting: Setting,
    *,
    move: bool,
) -> tuple[Params, Any, SiteSums, Array, Array]:
    """Return what `m_step` does, with one site a row: also their features follow the hyperparameters."""

    def bound(params: Params) -> Array:
        return untied_bound(*params.positive(), params.Z, setting.jitter, sites, rows)

    value, gradient = jax.value_and_grad(bound)(params)
    params, optimizer = _ascend(params, gradient, optimizer, learning_rate, setting, move)
    kernel, _ = params.positive()
    lower = prior_factor(kernel, params.Z, setting.jitter)
    sums = row_sums(whitened_features(kernel, params.Z, lower, rows.X), *sites)
    return params, optimizer, sums, value, _finite(value, params, posterior_of(sums), optimizer)


@partial(jax.jit, static_argnames=("whiten", "learn", "move"))
def adam_step(
    params: Params,
    q: Moments,
    optimizer: Any,
    rows: Rows,
    learning_rate: Any,
    setting: Setting,
    *,
    whiten: bool,
    learn: bool,
    move: bool,
) -> tuple[Params, Moments, Any, Array, Array]:
    """Return hyperparameters, inducing points and ``q`` after a step of Adam on the bound of eq. (8)."""

    def bound(everything: tuple[Params, Moments]) -> Array:
        params, q = everything
        kernel, likelihood = params.positive()
        lower = prior_factor(kernel, params.Z, setting.jitter)
        form = q.whitened(None if whiten else lower)
        return bound_of(kernel, likelihood, params.Z, lower, form, rows)

    value, (by_params, by_q) = jax.value_and_grad(bound)((params, q))
    (of_params, of_q) = optimizer
    if learn:
        params, of_params = _ascend(params, by_params, of_params, learning_rate, setting, move)
    change, of_q = _ADAM.update(by_q, of_q)
    q = jax.tree.map(lambda a, b: a + learning_rate * b, q, change)
    return params, q, (of_params, of_q), value, _finite(value, params, q)


@jax.jit
def tile_sums(
    params: Params, lower: Float[Array, "m m"], sums: SiteSums, rows: Rows
) -> tuple[Array, SiteSums]:
    """Return what a tile of rows adds to the expected log-likelihood and to the sums of better sites."""
    kernel, likelihood = params.positive()
    psi = whitened_features(kernel, params.Z, lower, rows.X)
    moments = posterior_of(sums).moments(psi, kernel.total_variance())
    return better_sums(likelihood, rows.y, rows.weights, psi, *moments)


def start_optimizer(tree: Any) -> Any:
    """Return the state of Adam before its first step."""
    return _ADAM.init(tree)


def _ascend(
    params: Params,
    gradient: Params,
    optimizer: Any,
    learning_rate: Any,
    setting: Setting,
    move: bool,
) -> tuple[Params, Any]:
    change, optimizer = _ADAM.update(gradient, optimizer)
    found = jax.tree.map(lambda a, b: a + learning_rate * b, params, change)
    Z = found.Z if move else params.Z
    inside = jax.tree.map(jnp.clip, (found.kernel, found.likelihood), setting.lower, setting.upper)
    return Params(inside[0], inside[1], Z), optimizer


def _finite(*trees: Any) -> Array:
    """Whether all numbers of some trees are finite."""
    leaves = jax.tree.leaves(trees)
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
