"""Linear functions of the inputs and their posterior: found in a second, and what any other answer has to beat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vastgp.data import observations
from vastgp.data.minibatch import some_in_order
from vastgp.fitting.hyperparameter_prior import Scale
from vastgp.fitting.scaled_evidence import ScaledEvidence, best_beside_own_noise
from vastgp.kernels import Constant, Kernel, Linear
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.linalg.row_space import row_space
from vastgp.linalg.threads import blas_threads, threads_of_products
from vastgp.solvers.averaged_lines import AveragedLines, LinePart, average_lines
from vastgp.solvers.leading_directions import leading_directions
from vastgp.solvers.left_out import LeftOut
from vastgp.solvers.linear_sites import fit_sites

# Least noise variance, relative to that of the target, and where its search starts.
_NOISE_FLOOR, _FIRST_NOISE = 1e-6, 0.1
# Of that, what a slope has at least in the kernel that is shown of a few directions.
_LEAST_SHARE = 1e-4


@dataclass(frozen=True)
class LinearPosterior:
    """Posterior of ``f(x) = w^T [1, x]``, ``w ~ N(weights, root root^T)``, in standardised units and float64.

    Attributes
    ----------
    weights : ndarray of shape (C, k)
        Of C functions, independent of each other.
    root : ndarray of shape (C, k, k)
    variance : float
        Prior variance of every weight.
    basis : ndarray of shape (1 + d, k), optional
        Orthonormal directions that weights and root are of, see `row_space`: all others are as before there were rows.
        None: all directions, ``k = 1 + d``.
    others : bool
        Whether other directions have weights at all, see `leading_directions`.
    evidence : float, optional
        Logarithm of the evidence of the rows that it was found from, in nats: a lower bound of it, with the prior of
        ``variance``, of a likelihood that is not Gaussian. Not part of its state.
    """

    weights: np.ndarray
    root: np.ndarray
    variance: float
    basis: np.ndarray | None = None
    others: bool = True
    evidence: float | None = None

    @property
    def kernel(self) -> Kernel:
        """Covariance of the prior; without other directions each slope's variance, but not that they go together."""
        if self.basis is None or self.others:
            size = self.weights.shape[1] if self.basis is None else len(self.basis)
            each = np.full(size - 1, self.variance)
        else:
            # a kernel has no zeros: of an input that no direction has next to nothing
            each = self.variance * np.maximum(np.sum(self.basis[1:] ** 2, axis=1), _LEAST_SHARE)
        return Constant(self.variance) + Linear(each)

    def mean(self, X: Any) -> np.ndarray:
        """Return the posterior mean at each row of ``X``: (n,), or (C, n)."""
        return _one_or_all(self.weights @ self._within(_features(X)).T)

    def mean_and_latent_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the function at each row of ``X``, (n,) or (C, n)."""
        features = _features(X)
        within = self._within(features)
        variance = np.sum((within @ self.root) ** 2, axis=-1)
        if self.basis is not None and self.others:
            # |phi - Q Q^T phi|^2 without rows as long as there are inputs
            beyond = np.sum(features**2, axis=1) - np.sum(within**2, axis=1)
            variance = variance + self.variance * np.maximum(beyond, 0.0)
        return _one_or_all(self.weights @ within.T), _one_or_all(variance)

    def leave_one_out(self, X: Any, y: np.ndarray, noise_variance: float) -> LeftOut:
        """Return what all other rows say of some of those that a posterior of one function was fitted to.

        From N(m, v) of the function goes what the row's own target added to it, of noise s^2 (Rasmussen & Williams
        2006, eqs. 5.10 to 5.12, by weights): ``y ~ N(y - (y - m) s^2 / (s^2 - v), s^4 / (s^2 - v))``.

        Parameters
        ----------
        X, y : ndarray
            Standardised rows, see `vastgp.data.observations`.
        noise_variance : float
        """
        mean, variance = self.mean_and_latent_variance(X)
        noise, targets = observations.noise_variances(y, noise_variance), observations.targets(y)
        share = np.maximum(1.0 - variance / noise, np.finfo(float).eps)
        return LeftOut.of(targets, (targets - mean) / share, noise / share)

    def covariance(self, X: Any) -> np.ndarray:
        """Return the covariance of the function between the rows of ``X``: (n, n), or (C, n, n)."""
        within, beyond = self._directions(X)
        spread = within @ self.root
        return _one_or_all(spread @ np.swapaxes(spread, -1, -2) + beyond @ beyond.T)

    def samples(self, X: Any, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function at the rows of ``X``: (n, num_samples), or (n, C, num_samples)."""
        generator = np.random.default_rng(seed)
        within, beyond = self._directions(X)
        normals = generator.standard_normal((*self.weights.shape, num_samples))
        drawn = within @ (self.weights[..., None] + self.root @ normals)
        if beyond.size:
            size = len(self.weights), beyond.shape[1], num_samples
            drawn = drawn + beyond @ generator.standard_normal(size)
        return drawn[0] if len(drawn) == 1 else np.moveaxis(drawn, 1, 0)

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        arrays = {"weights": self.weights, "root": self.root}
        return {"variance": self.variance, "others": self.others}, arrays | (
            {} if self.basis is None else {"basis": self.basis}
        )

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> LinearPosterior:
        """Return the posterior that `to_state` described."""
        return cls(
            arrays["weights"], arrays["root"], state["variance"], arrays.get("basis"), state.get("others", True)
        )  # fmt: skip

    def _within(self, features: np.ndarray) -> np.ndarray:
        """Return rows in the directions of the weights, (n, k)."""
        return features if self.basis is None else features @ self.basis

    def _directions(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return rows in the directions of the weights, (n, k), and what of them is beyond, in prior deviations.

        ``phi^T w = (Q^T phi)^T u + (phi - Q Q^T phi)^T w``, the second part independent of ``u`` and of the rows.
        """
        features = _features(X)
        within = self._within(features)
        if self.basis is None or not self.others:
            return within, np.zeros((len(features), 0))
        return within, self.variance**0.5 * (features - within @ self.basis.T)


def fit_linear(
    likelihood: Likelihood,
    X: np.ndarray,
    y: np.ndarray,
    most_rows: Callable[[int, int], int] | None = None,
) -> tuple[LinearPosterior, Likelihood]:
    """Return the posterior of linear functions whose weights have one prior variance, that of highest evidence.

    Of very many inputs a likelihood that is not Gaussian has the directions that `leading_directions` finds.

    Parameters
    ----------
    likelihood : Likelihood
        Log-concave. A Gaussian one is returned with the noise that belongs to the answer.
    X, y : ndarray
        Standardised rows, see `vastgp.data.observations`.
    most_rows : callable, optional
        Given the numbers of rows and of weights of a function, of how many rows a likelihood that is not Gaussian has
        time for.
    """
    if isinstance(likelihood, Gaussian):
        features, basis = row_space(_features(X))
        fit = _fit_own_noise if observations.has_own_noise(y) else _fit_gaussian
        with threads_of_products(features):
            posterior, likelihood = fit(features, y)
        return replace(posterior, basis=basis), likelihood
    few, all_rows = leading_directions(X, _codes(likelihood, y)), len(y)
    if most_rows is not None:
        size = 1 + X.shape[1] if few is None else few.shape[1]
        some = some_in_order(len(y), most_rows(len(y), size))
        X, y = X[some], y[some]
    features = _features(X)
    features, basis = row_space(features) if few is None else (features @ few, few)
    # with half the nodes held-out losses of ten classes were the same to 0.0002
    with threads_of_products(features):
        found = fit_sites(likelihood.rough(), features, y)
    posterior = LinearPosterior(
        found.weights, np.linalg.cholesky(found.covariance), found.variance, evidence=found.evidence
    )
    if len(y) < all_rows:
        posterior = replace(posterior, evidence=None)  # there is none of all
    return replace(posterior, basis=basis, others=few is None), likelihood


def line_of_few(X: np.ndarray, y: np.ndarray, groups: np.ndarray) -> AveragedLines:
    """Return `average_lines` of standardised rows; ``groups`` are those of `nearly_repeated`."""
    scale = Scale.of_groups(groups)
    beside = None if observations.has_own_noise(y) else groups
    # however many inputs there are: of 100 rows and 2000 of them two threads took 5.6 s on busy cores, one 0.13 s
    with blas_threads(len(y)):
        return average_lines(_features(X), y, beside, scale)


def of_average(found: AveragedLines | LinePart, basis: np.ndarray | None) -> LinearPosterior:
    """Return averaged lines of a basis, or a part of them, as a posterior with their moments."""
    with blas_threads(len(found.covariance)):
        eigenvalues, vectors = np.linalg.eigh(found.covariance)
    root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    return LinearPosterior(found.weights[None], root[None], found.variance, basis)


def _codes(likelihood: Likelihood, y: np.ndarray) -> np.ndarray:
    """Return targets as numbers, a column for each function that they tell of: classes as whether they are each."""
    targets = np.asarray(observations.targets(y))
    if likelihood.shift_invariant:
        return np.eye(likelihood.num_latent)[targets.astype(np.int64)]
    return targets.astype(np.float64)[:, None]


def _features(X: Any) -> np.ndarray:
    return np.concatenate([np.ones((len(X), 1)), np.asarray(X, np.float64)], axis=1)


def _one_or_all(values: np.ndarray) -> np.ndarray:
    return values[0] if len(values) == 1 else values


def _fit_gaussian(features: np.ndarray, y: np.ndarray) -> tuple[LinearPosterior, Gaussian]:
    """Bayesian linear regression: (Bishop 2006, eqs. 3.53, 3.54), variances by their evidence.

    With ``Phi^T Phi = E diag(lambda) E^T`` the precision of the weights is ``E diag(lambda / sigma^2 + 1 / s) E^T``.
    """
    eigenvalues, vectors = np.linalg.eigh(features.T @ features)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    projected = vectors.T @ (features.T @ y)
    evidence = ScaledEvidence(eigenvalues, projected, float(y @ y), len(y))
    variance, noise_variance, _ = evidence.best(_FIRST_NOISE, _NOISE_FLOOR)
    deviation = 1.0 / np.sqrt(eigenvalues / noise_variance + 1.0 / variance)
    weights = vectors @ (projected / noise_variance * deviation**2)
    posterior = LinearPosterior(weights[None], (vectors * deviation)[None], variance)
    return posterior, Gaussian(noise_variance)


def _fit_own_noise(features: np.ndarray, y: np.ndarray) -> tuple[LinearPosterior, Gaussian]:
    """As `_fit_gaussian`, with the precision ``Phi^T V^-1 Phi + I / s``, ``V`` the noise variances of the rows."""
    variance, noise_variance, _ = best_beside_own_noise(
        features.T, y, 0.0, _FIRST_NOISE, _NOISE_FLOOR
    )
    each = observations.noise_variances(y, noise_variance)
    eigenvalues, vectors = np.linalg.eigh(features.T @ (features / each[:, None]))
    deviation = 1.0 / np.sqrt(np.maximum(eigenvalues, 0.0) + 1.0 / variance)
    projected = vectors.T @ (features.T @ (observations.targets(y) / each))
    weights = vectors @ (projected * deviation**2)
    posterior = LinearPosterior(weights[None], (vectors * deviation)[None], variance)
    return posterior, Gaussian(noise_variance)
