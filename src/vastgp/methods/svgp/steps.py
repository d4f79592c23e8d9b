"""One step each of the E-step and the M-step at inducing points, and of Adam on everything."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from vastgp._programs import program
from vastgp.data.joint_programs import added_within
from vastgp.fitting.damped_updates import toward
from vastgp.fitting.dual_evidence import local_sites
from vastgp.kernels import Kernel
from vastgp.likelihoods import Likelihood
from vastgp.methods.svgp.bound import (
    Coordinates,
    Rows,
    SiteSums,
    Whitened,
    better_sums,
    bound_of,
    coordinates,
    held,
    posterior_of,
    posterior_under,
    row_sums,
    untied_bound,
    whitened_features,
)
from vastgp.methods.svgp.slope import bound_slope_and_sites

_ADAM = optax.scale_by_adam()


class Params(NamedTuple):
    """What the M-step moves: logarithms of all hyperparameters, and the inducing points."""

    kernel: Any
    likelihood: Any
    Z: Any

    def positive(self) -> tuple[Kernel, Likelihood]:
        """Return kernel and likelihood."""
        return jax.tree.map(jnp.exp, (self.kernel, self.likelihood))

    def on_host(self) -> tuple[Kernel, Likelihood]:
        """Return kernel and likelihood in NumPy's numbers: outside of a program each would be one."""
        return jax.tree.map(lambda log: np.exp(np.asarray(log)), (self.kernel, self.likelihood))

    def coordinates(self, jitter: Any) -> Coordinates:
        """Return the whitened coordinates here."""
        return coordinates(self.positive()[0], self.Z, jitter)


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

    def whitened(self, inverse: Float[Array, "m m"] | None) -> Whitened:
        """Return ``q(v)``; with ``L^-1`` the moments are those of ``u = L v``."""
        diagonal = jnp.exp(jnp.diagonal(self.root, axis1=1, axis2=2))
        eye = jnp.eye(self.root.shape[-1], dtype=self.root.dtype)
        root = jnp.tril(self.root, -1) + diagonal[:, :, None] * eye
        mean = self.mean
        if inverse is not None:
            mean, root = mean @ inverse.T, inverse @ root
        return Whitened(mean, jnp.swapaxes(root, 1, 2))


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


@program
def coordinates_of(params: Params, jitter: Any) -> Coordinates:
    """Return the whitened coordinates of some parameters."""
    return params.coordinates(jitter)


@partial(jax.jit, static_argnames="processes")
def e_step(
    params: Params, here: Coordinates, sums: SiteSums, rows: Rows, rate: Any, *, processes: int = 1
) -> tuple[SiteSums, Array, Array]:
    """Return the sums after a natural-gradient step, the bound before it, and whether all is finite.

    Sums with a positive semi-definite precision, which `better_sums` are, keep it: ``R`` is then no less than one.

    Here as in the other steps so many ``processes`` have a part of the rows each; sums over rows are those of all.
    """
    kernel, likelihood = params.positive()
    psi = whitened_features(kernel, params.Z, here.inverse, rows.X)
    sums, q = posterior_under(likelihood, sums)
    moments = q.moments(psi, kernel.diag(rows.X))
    fit, better = added_within(
        better_sums(likelihood, rows.y, rows.weights, psi, *moments), processes
    )
    found = toward(sums, better, rate)
    bound = fit - q.divergence()
    return found, bound, _finite(bound, found)


def mended(sums: SiteSums, eps: float | None = None) -> SiteSums:
    """Return sums whose precision has no negative eigenvalue.

    In single precision a change of coordinates (see `held`) can leave some where sums over millions of rows are far
    above one: rounding errors of their largest eigenvalues.

    Parameters
    ----------
    sums : SiteSums
    eps : float, optional
        What was rounded to, relative to one. None: the precision of the sums.
    """
    A = sums.precision
    eps = float(jnp.finfo(A.dtype).eps) if eps is None else eps
    # no batch of factorisations: CONTRIBUTING.md
    values, vectors = jax.lax.map(jnp.linalg.eigh, 0.5 * (A + jnp.swapaxes(A, 1, 2)))
    # what the precision tells from zero
    least = jnp.maximum(eps * A.shape[1] * values[:, -1:], 0.0)
    found = (vectors * jnp.maximum(values, least)[:, None, :]) @ jnp.swapaxes(vectors, 1, 2)
    return sums._replace(precision=found)


@partial(jax.jit, static_argnames=("hold", "move", "processes"))
def m_step(
    params: Params,
    here: Coordinates,
    sums: SiteSums,
    optimizer: Any,
    rows: Rows,
    step_rate: Any,
    learning_rate: Any,
    setting: Setting,
    *,
    hold: str,
    move: bool,
    processes: int = 1,
) -> tuple[Params, Coordinates, SiteSums, Any, Array, Array]:
    """Return hyperparameters and inducing points after a step of Adam on the bound of eq. (15) or (14), and the sums.

    The sums come in the coordinates of the new ``L``, so that what is held stays what it is (see `held`). With a
    ``step_rate`` they also take an E-step from the same rows, both derivatives taken before either step: features,
    moments and expectations serve both, in two thirds of the time of one after the other. ``None`` is no E-step.
    """
    sums, q = posterior_under(params.positive()[1], sums)
    share = 1.0 / processes
    value, slope, better = added_within(
        bound_slope_and_sites(*params, setting.jitter, hold, q, here, rows, share), processes
    )
    if step_rate is not None:
        sums = toward(sums, better, step_rate)
    params, optimizer = _ascend(params, Params(*slope), optimizer, learning_rate, setting, move)
    after = params.coordinates(setting.jitter)
    sums = held(hold, sums, here, after)
    good = _finite(value, params, after, sums, optimizer)
    return params, after, sums, optimizer, value, good


@jax.jit
def untied_e_step(
    params: Params, here: Coordinates, sites: tuple[Array, Array], rows: Rows, rate: Any
) -> tuple[tuple[Array, Array], Array, Array]:
    """Return the sites of all rows after a natural-gradient step (eq. (18)), the bound before it, and whether all is
    finite."""
    kernel, likelihood = params.positive()
    psi = whitened_features(kernel, params.Z, here.inverse, rows.X)
    q = posterior_of(row_sums(psi, *sites))
    mean, variance = q.moments(psi, kernel.diag(rows.X))
    one = likelihood.num_latent == 1
    fit, better = local_sites(
        likelihood, rows.y, mean[0] if one else mean, variance[0] if one else variance
    )
    # rows that do not count have no site
    asked = tuple(
        rows.weights * new.reshape(old.shape) for old, new in zip(sites, better, strict=True)
    )
    found = toward(sites, asked, rate)
    bound = jnp.sum(rows.weights * fit) - q.divergence()
    return found, bound, _finite(bound, found)


@partial(jax.jit, static_argnames="move")
def untied_m_step(
    params: Params,
    sites: tuple[Array, Array],
    optimizer: Any,
    rows: Rows,
    learning_rate: Any,
    setting: Setting,
    *,
    move: bool,
) -> tuple[Params, Coordinates, Any, Array, Array]:
    """Return what `m_step` does, with one site a row: also their features follow the hyperparameters."""

    def bound(params: Params) -> Array:
        return untied_bound(*params.positive(), params.Z, setting.jitter, sites, rows)

    value, gradient = jax.value_and_grad(bound)(params)
    params, optimizer = _ascend(params, gradient, optimizer, learning_rate, setting, move)
    after = params.coordinates(setting.jitter)
    return params, after, optimizer, value, _finite(value, params, after, optimizer)


def _correlations(params: Params, here: Any, q: Any, rows: Rows, *_: Any) -> int:
    """Return how many correlations a pass over some rows makes."""
    return len(rows.y) * len(params.Z)


@program(work=_correlations)
def sums_of_rows(
    params: Params, here: Coordinates, sites: tuple[Array, Array], rows: Rows
) -> SiteSums:
    """Return the sums of sites that are held one a row."""
    kernel, _ = params.positive()
    return row_sums(whitened_features(kernel, params.Z, here.inverse, rows.X), *sites)


@partial(jax.jit, static_argnames=("whiten", "learn", "move", "processes"))
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
    processes: int = 1,
) -> tuple[Params, Moments, Any, Array, Array]:
    """Return hyperparameters, inducing points and ``q`` after a step of Adam on the bound of eq. (8)."""

    def bound(everything: tuple[Params, Moments]) -> Array:
        params, q = everything
        kernel, likelihood = params.positive()
        inverse = params.coordinates(setting.jitter).inverse
        form = q.whitened(None if whiten else inverse)
        return bound_of(kernel, likelihood, params.Z, inverse, form, rows, 1.0 / processes)

    found = added_within(jax.value_and_grad(bound)((params, q)), processes)
    value, (by_params, by_q) = found
    (of_params, of_q) = optimizer
    if learn:
        params, of_params = _ascend(params, by_params, of_params, learning_rate, setting, move)
    change, of_q = _ADAM.update(by_q, of_q)
    q = jax.tree.map(lambda a, b: a + learning_rate * b, q, change)
    return params, q, (of_params, of_q), value, _finite(value, params, q)


@program(work=_correlations)
def tile_sums(
    params: Params, here: Coordinates, q: Whitened, rows: Rows, fit: Any, sums: SiteSums
) -> tuple[Array, SiteSums]:
    """Add to the expected log-likelihood and to the sums of better sites what a tile of rows has of them."""
    kernel, likelihood = params.positive()
    psi = whitened_features(kernel, params.Z, here.inverse, rows.X)
    moments = q.moments(psi, kernel.diag(rows.X))
    of_tile, better = better_sums(likelihood, rows.y, rows.weights, psi, *moments)
    return fit + of_tile, jax.tree.map(jnp.add, sums, better)


def start_optimizer(tree: Any) -> Any:
    """Return the state of Adam before its first step, all zeros; no program is compiled for them."""
    shapes = jax.eval_shape(_ADAM.init, tree)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


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
