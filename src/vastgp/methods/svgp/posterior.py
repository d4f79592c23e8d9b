"""The posterior that inducing points give: mean, variance, covariance, joint samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp._programs import program
from vastgp.data.padding import pad_rows
from vastgp.kernels import Kernel, from_spec, to_spec
from vastgp.kernels.matrices import covariance, prior_variances
from vastgp.linalg.cholesky import factorize
from vastgp.linalg.threads import blas_threads
from vastgp.methods.svgp.bound import Whitened, whitened_features
from vastgp.methods.svgp.on_host import stays_on_host
from vastgp.solvers.prior_draws import PriorDraws

# Up to this many rows a joint sample factorises their covariance; beyond, it is a function made of waves.
_MOST_DENSE = 2000
_SAMPLE_JITTER = 1e-10
# Rows of a pathwise sample at a time.
_TILE = 8192


@dataclass(frozen=True)
class SVGPPosterior:
    """``q(u) = N(L mean, L S L^T)`` with ``S = root^T root`` and the prior's conditional everywhere else, in float64.

    Attributes
    ----------
    kernel : Kernel
    Z : ndarray of shape (m, d)
        Inducing points.
    inverse : ndarray of shape (m, m)
        ``L^-1``, ``K_uu = L L^T``.
    whitened_mean : ndarray of shape (C, m)
    root : ndarray of shape (C, m, m)
        ``F^-1``, where ``F F^T`` is the precision of the whitened variables.
    """

    kernel: Kernel
    Z: np.ndarray
    inverse: np.ndarray
    whitened_mean: np.ndarray
    root: np.ndarray

    def mean(self, X: Any) -> np.ndarray:
        """Return the posterior mean at each row of ``X``, shape (n,) or (C, n) for several functions."""
        return self._shaped(self._evaluate(X, False)[0])

    def mean_and_latent_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the function at each row of ``X``, shape (n,) or (C, n)."""
        mean, variance = self._evaluate(X, True)
        return self._shaped(mean), self._shaped(variance)

    def covariance(self, X: Any) -> np.ndarray:
        """Return the posterior covariance of the function between the rows of ``X``: (n, n) or (C, n, n)."""
        X = np.asarray(X, np.float64)
        with precision("float64"):
            found = np.asarray(_covariance(*self._parts(), pad_rows(X)))
        return self._shaped(found[:, : len(X), : len(X)])

    def samples(self, X: Any, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function at the rows of ``X``: (n, num_samples) or (n, C, num_samples).

        Up to 2000 rows they are drawn from `covariance`. Beyond, each sample is a function (Matheron's rule, Wilson et
        al. 2020), ``f(x) + k_u(x)^T K_uu^-1 (u - f(Z))`` with a prior draw ``f`` made of 4096 waves and a draw ``u``
        of the inducing variables: time and memory are linear in the rows, and what the waves leave of the kernel is
        an error of about two per cent between rows far from all inducing points.
        """
        X = np.asarray(X, np.float64)
        generator = np.random.default_rng(seed)
        draw = self._dense if len(X) <= _MOST_DENSE else self._pathwise
        found = [draw(X, num_samples, generator, c) for c in range(len(self.whitened_mean))]
        return found[0] if len(found) == 1 else np.stack(found, axis=1)

    def _dense(self, X: np.ndarray, count: int, generator: Any, c: int) -> np.ndarray:
        covariance = self.covariance(X)
        root = factorize(
            covariance if covariance.ndim == 2 else covariance[c],
            _SAMPLE_JITTER * float(self.kernel.total_variance()),
            what="the posterior covariance of the rows to sample",
        )
        normals = generator.standard_normal((len(X), count))
        return self._evaluate(X, False)[0][c][:, None] + np.tril(root.lower) @ normals

    def _pathwise(self, X: np.ndarray, count: int, generator: Any, c: int) -> np.ndarray:
        prior = PriorDraws(self.kernel, count, X.shape[1], generator)
        # v = L^-1 u ~ N(mean, root^T root)
        normals = generator.standard_normal((len(self.Z), count))
        v = self.whitened_mean[c][:, None] + self.root[c].T @ normals
        update = v - self.inverse @ prior(self.Z)
        found = prior(X)
        with precision("float64"):
            for start in range(0, len(X), _TILE):
                tile = X[start : start + _TILE]
                added = _projection(*self._parts()[:3], pad_rows(tile), update)
                found[start : start + _TILE] += np.asarray(added)[: len(tile)]
        return found

    def _parts(self) -> tuple[Any, ...]:
        return self.kernel, self.Z, self.inverse, Whitened(self.whitened_mean, self.root)

    def _evaluate(self, X: Any, with_variance: bool) -> tuple[np.ndarray, np.ndarray]:
        X = np.asarray(X, np.float64)
        if stays_on_host(self.kernel, len(self.Z)):
            return self._on_host(X, with_variance)
        with precision("float64"):
            mean, variance = _moments(*self._parts(), pad_rows(X), with_variance)
        return np.asarray(mean)[:, : len(X)], np.asarray(variance)[:, : len(X)]

    def _on_host(self, X: np.ndarray, with_variance: bool) -> tuple[np.ndarray, np.ndarray]:
        with blas_threads(max(X.shape[0], len(self.Z))):
            psi, q = self.inverse @ covariance(self.kernel, self.Z, X), self._parts()[3]
            if not with_variance:
                return q.mean @ psi, np.zeros((len(q.mean), len(X)))
            return q.moments(psi, prior_variances(self.kernel, X))

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[0] if len(self.whitened_mean) == 1 else values

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        spec, arrays = to_spec(self.kernel)
        return {"kernel": spec}, arrays | {
            "Z": self.Z,
            "inverse": self.inverse,
            "whitened_mean": self.whitened_mean,
            "root": self.root,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> SVGPPosterior:
        """Return the posterior that `to_state` wrote."""
        names = ("Z", "inverse", "whitened_mean", "root")
        return cls(from_spec(state["kernel"], arrays), *(arrays[name] for name in names))


def _correlations(kernel: Kernel, Z: Any, inverse: Any, q: Any, X: Any, *_: Any) -> int:
    del kernel, inverse, q
    return len(X) * max(len(X), len(Z))


@program(work=_correlations, static_argnames="with_variance")
def _moments(
    kernel: Kernel,
    Z: Float[Array, "m d"],
    inverse: Float[Array, "m m"],
    q: Whitened,
    X: Float[Array, "n d"],
    with_variance: bool,
) -> tuple[Float[Array, "C n"], Float[Array, "C n"]]:
    psi = whitened_features(kernel, Z, inverse, X)
    if not with_variance:
        mean = q.mean @ psi
        return mean, jnp.zeros_like(mean)
    return q.moments(psi, kernel.diag(X))


@program(work=_correlations)
def _covariance(
    kernel: Kernel,
    Z: Float[Array, "m d"],
    inverse: Float[Array, "m m"],
    q: Whitened,
    X: Float[Array, "n d"],
) -> Float[Array, "C n n"]:
    psi = whitened_features(kernel, Z, inverse, X)
    explained = q.root @ psi
    # K - psi^T psi + psi^T S psi
    return kernel(X, X) - psi.T @ psi + jnp.swapaxes(explained, 1, 2) @ explained


@jax.jit  # of many rows
def _projection(
    kernel: Kernel,
    Z: Float[Array, "m d"],
    inverse: Float[Array, "m m"],
    X: Float[Array, "n d"],
    values: Float[Array, "m s"],
) -> Float[Array, "n s"]:
    return whitened_features(kernel, Z, inverse, X).T @ values
