"""A posterior that predicts each row from the inducing inputs nearest to it, or from the nearest observations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.data.archive import above, below
from vastgp.data.devices import devices_for, over_devices
from vastgp.data.neighbours import NeighbourIndex
from vastgp.kernels import Kernel, from_spec, to_spec
from vastgp.kernels.matrices import kernel_matrix
from vastgp.kernels.metric import metric_lengthscales
from vastgp.kernels.products import OF_VALUE
from vastgp.linalg.cholesky import factorize
from vastgp.linalg.threads import blas_threads
from vastgp.solvers.neighbour_weights import row_weights
from vastgp.solvers.neighbourhoods import Neighbours, weighted_moments
from vastgp.solvers.prior_draws import PriorDraws

# Entries of the local matrices of a tile of rows.
_TILE_ENTRIES = 2**22
# Up to so many rows, seen with so many inducing inputs, a joint sample factorises their covariance; beyond, it is a
# function.
_MOST_DENSE, _MOST_SEEN = 2000, 6000
_SAMPLE_JITTER = 1e-10


@dataclass(frozen=True)
class NeighbourPosterior:
    """Eq. (13) of Tran et al. (2021) at any row, in float64.

    Attributes
    ----------
    kernel : Kernel
    Z : ndarray of shape (M, d)
        Inducing inputs.
    mean_u : ndarray of shape (M, C)
        Mean of the inducing variables of each of C functions.
    spread : ndarray of shape (M, C), or (M, C, M)
        Their variances, or rows of the lower factor of their covariance.
    num_neighbors : int
        H.
    jitter : float
        On the diagonal of the neighbourhoods' matrices, relative to the prior variance.
    taper : bool
        Whether neighbours fade out towards the border of a neighbourhood.
    search : {"auto", "exact", "approximate"}
    noise : ndarray of shape (M,), optional
        Where what is known at ``Z`` is not the function but observations of it, their noise variances: ``mean_u`` then
        holds targets, and ``spread`` nothing. None: the function.
    """

    kernel: Kernel
    Z: np.ndarray
    mean_u: np.ndarray
    spread: np.ndarray
    num_neighbors: int
    jitter: float
    taper: bool = False
    search: str = "auto"
    noise: np.ndarray | None = None

    @property
    def num_functions(self) -> int:
        """Number C of latent functions."""
        return self.mean_u.shape[1]

    @property
    def tile_rows(self) -> int:
        """Rows whose local matrices are in memory at a time: a power of two."""
        most = max(16, _TILE_ENTRIES // self.num_neighbors**2)
        if self.spread.ndim == 3:
            most = max(16, min(most, _TILE_ENTRIES // (self.num_neighbors * self.spread[0].size)))
        return 1 << (most.bit_length() - 1)

    @cached_property
    def index(self) -> NeighbourIndex:
        """Index of the inducing inputs."""
        return NeighbourIndex(
            self.Z, metric_lengthscales(self.kernel, self.Z.shape[1]), self.search
        )

    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior mean at each row of ``X``, shape (n,) or (C, n) for several functions."""
        return self.mean_and_latent_variance(X)[0]

    def mean_and_latent_variance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the function at each row of ``X``, shape (n,) or (C, n)."""
        return self.given_neighbours(np.asarray(X, np.float64))

    def given_neighbours(
        self, X: np.ndarray, found: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the function at rows, by their nearest inducing inputs or those that are given.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        found : ndarray of int, shape (n, num_neighbors), optional
            With ``taper`` one more, the border. -1 where a row has fewer. None: the nearest.
        """
        mean = np.empty((self.num_functions, len(X)))
        variance = np.empty_like(mean)
        for here, rows, near, edge in self._tiles(X, found):
            size = here.stop - here.start
            with precision("float64"), blas_threads(self.num_neighbors):
                a, conditional = self._weights(rows, near, edge)
                moments = _moments(a, self.mean_u[near], self.spread[near], conditional)
                mean[:, here] = np.asarray(moments[0])[:, :size]
                variance[:, here] = np.asarray(moments[1])[:, :size]
        return self._shaped(mean), self._shaped(variance)

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function at the rows of ``X``: (n, num_samples) or (n, C, num_samples).

        A sample is ``f(x) + a(x)^T (u - f(Z))`` with a prior draw ``f`` and a draw ``u`` of the inducing variables
        (Wilson et al. 2020, with the weights of the row's own neighbourhood): its variances are those of
        `mean_and_latent_variance`, and rows that see the same inducing inputs vary together. Up to 2000 rows it is
        drawn from the covariance that this has; beyond, ``f`` is made of 4096 waves.
        """
        X = np.asarray(X, np.float64)
        generator = np.random.default_rng(seed)
        a, conditional, numbers = self._all_weights(X)
        used, where = np.unique(numbers, return_inverse=True)
        where = where.reshape(numbers.shape)
        draws = self._inducing_draws(used, num_samples, generator)
        # a^T u of each draw and function
        from_u = np.einsum("nh,nhcs->ncs", a, draws[where])
        if len(X) <= _MOST_DENSE and len(used) <= _MOST_SEEN:
            rest = self._dense_rest(X, a, conditional, used, where, num_samples, generator)
        else:
            rest = self._function_rest(X, a, used, where, num_samples, generator)
        found = from_u + rest
        return found[:, 0] if self.num_functions == 1 else found

    # ------------------------------------------------------------ pieces

    @property
    def _fades(self) -> bool:
        return self.taper and self.num_neighbors < len(self.Z)

    def _tiles(self, X: np.ndarray, given: np.ndarray | None = None) -> Any:
        """Yield places of rows, the rows padded, numbers of their neighbours, and the nearest input that is none."""
        tile = min(self.tile_rows, 1 << max(len(X) - 1, 1).bit_length())
        for start in range(0, len(X), tile):
            here = slice(start, min(start + tile, len(X)))
            rows = X[here]
            if given is None:
                found = self.index.query(rows, self.num_neighbors + self._fades)
            else:
                found = given[here]
            missing = tile - len(rows)
            if missing:
                rows = np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)])
                found = np.concatenate([found, np.repeat(found[-1:], missing, axis=0)])
            yield here, rows, found[:, : self.num_neighbors], self.Z[found[:, -1]]

    def _weights(self, X: np.ndarray, near: np.ndarray, edge: np.ndarray) -> Any:
        """Return the weights of each row's neighbours and the prior's variance given them."""
        border = edge if self._fades else None
        jitter: Any = self.jitter
        if self.noise is not None:
            jitter = jitter + self.noise[near] / float(self.kernel.total_variance())
        given, devices = self._dealt((X, self.Z[near], near >= 0, border, jitter))
        return row_weights(self.kernel, *given, devices=devices)

    def _dealt(self, given: tuple[Any, ...]) -> tuple[tuple[Any, ...], int]:
        """Return what rows and their neighbours have over the devices that are worth it, and how many these are."""
        rows, size = len(given[0]), self.num_neighbors
        devices = devices_for(rows * size**2 * (OF_VALUE + size / 3.0), rows)
        return given if devices == 1 else over_devices(given, devices), devices

    def _all_weights(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a = np.empty((len(X), self.num_neighbors))
        conditional = np.empty(len(X))
        numbers = np.empty(a.shape, np.int32)
        for here, rows, near, edge in self._tiles(X):
            size = here.stop - here.start
            with precision("float64"), blas_threads(self.num_neighbors):
                found = self._weights(rows, near, edge)
                a[here], conditional[here] = (np.asarray(part)[:size] for part in found)
            numbers[here] = near[:size]
        return a, conditional, numbers

    def _inducing_draws(
        self, used: np.ndarray, count: int, generator: np.random.Generator
    ) -> np.ndarray:
        """Return draws of some inducing variables, (m, C, count), the same whichever are asked for."""
        if self.noise is not None:
            # observations are known, of which there may be millions
            return np.repeat(self.mean_u[used][..., None], count, axis=-1)
        return self._all_draws(count, generator)[used]

    def _all_draws(self, count: int, generator: np.random.Generator) -> np.ndarray:
        normals = generator.standard_normal((*self.mean_u.shape, count))
        if self.spread.ndim == 2:
            return self.mean_u[..., None] + self.spread[..., None] ** 0.5 * normals
        return self.mean_u[..., None] + np.einsum("jcm,mcs->jcs", self.spread, normals)

    def _dense_rest(
        self,
        X: np.ndarray,
        a: np.ndarray,
        conditional: np.ndarray,
        used: np.ndarray,
        where: np.ndarray,
        count: int,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Return draws of ``f(X) - A f(Z)`` from their covariance, (n, C, count)."""
        A = np.zeros((len(X), len(used)))
        np.put_along_axis(A, where, a, axis=1)
        Z = self.Z[used]
        with precision("float64"):
            K, K_xz, K_z = (
                np.array(kernel_matrix(self.kernel, left, right))
                for left, right in ((X, X), (X, Z), (Z, Z))
            )
        cross = A @ K_xz.T
        scale = float(self.kernel.total_variance())
        # inducing variables have jitter of their own, and observations their noise
        own = 0.0 if self.noise is None else self.noise[used]
        K_z[np.diag_indices_from(K_z)] += self.jitter * scale + own
        covariance = K - cross - cross.T + A @ K_z @ A.T
        if self._fades:
            # what fades is noise of the row alone
            np.fill_diagonal(covariance, np.maximum(conditional, np.diagonal(covariance)))
        root = factorize(
            covariance,
            _SAMPLE_JITTER * scale,
            what="the posterior covariance of the rows to sample",
        )
        normals = generator.standard_normal((len(X), self.num_functions * count))
        return (np.tril(root.lower) @ normals).reshape(len(X), self.num_functions, count)

    def _function_rest(
        self,
        X: np.ndarray,
        a: np.ndarray,
        used: np.ndarray,
        where: np.ndarray,
        count: int,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Return draws of ``f(X) - A f(Z)``, where ``f`` is a function."""
        total = self.num_functions * count
        f = PriorDraws(self.kernel, total, X.shape[1], generator)
        at_inducing = f(self.Z[used])
        if self.noise is not None:
            normals = generator.standard_normal(at_inducing.shape)
            at_inducing = at_inducing + self.noise[used, None] ** 0.5 * normals
        rest = f(X) - np.einsum("nh,nhs->ns", a, at_inducing[where])
        return rest.reshape(len(X), self.num_functions, count)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[0] if self.num_functions == 1 else values

    # ------------------------------------------------------------ files

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        kernel, arrays = to_spec(self.kernel)
        arrays = above("kernel/", arrays)
        arrays |= {"Z": self.Z, "mean_u": self.mean_u, "spread": self.spread}
        if self.noise is not None:
            arrays["noise"] = self.noise
        state = {
            "kernel": kernel,
            "num_neighbors": int(self.num_neighbors),
            "jitter": float(self.jitter),
            "taper": bool(self.taper),
            "search": self.search,
        }
        return state, arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> NeighbourPosterior:
        """Return the posterior that `to_state` wrote."""
        kernel = from_spec(state["kernel"], below("kernel/", arrays))
        return cls(
            kernel,
            arrays["Z"],
            arrays["mean_u"],
            arrays["spread"],
            **{name: state[name] for name in ("num_neighbors", "jitter", "taper", "search")},
            noise=arrays.get("noise"),
        )


@jax.jit
def _moments(
    a: Float[Array, "n h"],
    mean: Float[Array, "n h C"],
    spread: Float[Array, "n h C"] | Float[Array, "n h C M"],
    conditional: Float[Array, " n"],
) -> tuple[Float[Array, "C n"], Float[Array, "C n"]]:
    near = Neighbours(a[..., None], jnp.ones(a.shape, bool), mean, spread)
    found = weighted_moments(a, near, conditional)
    return found.mean, found.variance
