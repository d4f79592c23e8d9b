"""Linear functions of the inputs and their posterior: found in a second, and what any other answer has to beat."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vastgp._precision import precision
from vastgp.data import observations
from vastgp.data.padding import padded_size, repeat_last
from vastgp.fitting.damped_updates import DampedUpdates, Found
from vastgp.fitting.dual_evidence import local_sites, most_rate
from vastgp.fitting.hyperparameter_prior import Scale
from vastgp.fitting.scaled_evidence import ScaledEvidence, best_beside_own_noise
from vastgp.kernels import Constant, Kernel, Linear
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.linalg.row_space import row_space
from vastgp.solvers.averaged_lines import AveragedLines, LinePart, average_lines
from vastgp.solvers.left_out import LeftOut

# Least noise variance, relative to that of the target, and where its search starts.
_NOISE_FLOOR, _FIRST_NOISE = 1e-6, 0.1
# Updates of a posterior, and rounds of the prior variance between which it is brought to its optimum.
_MOST_UPDATES, _ROUNDS = 20, 2
# Rows on which several functions are found first, and updates on all of them that follow.
_FIRST_ROWS, _LAST_UPDATES = 1000, 2
# A whole step that gains less, for each row, ends the updates.
_SETTLED = 1e-5
_LEAST_VARIANCE, _MOST_VARIANCE = 1e-4, 1e4


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
    """

    weights: np.ndarray
    root: np.ndarray
    variance: float
    basis: np.ndarray | None = None

    @property
    def kernel(self) -> Kernel:
        """Covariance of the prior."""
        size = self.weights.shape[1] if self.basis is None else len(self.basis)
        each = np.full(size - 1, self.variance)
        return Constant(self.variance) + Linear(each)

    def mean(self, X: Any) -> np.ndarray:
        """Return the posterior mean at each row of ``X``: (n,), or (C, n)."""
        return _one_or_all(self.weights @ self._within(_features(X)).T)

    def mean_and_latent_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the function at each row of ``X``, (n,) or (C, n)."""
        features = _features(X)
        within = self._within(features)
        variance = np.sum((within @ self.root) ** 2, axis=-1)
        if self.basis is not None:
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
        return {"variance": self.variance}, arrays | (
            {} if self.basis is None else {"basis": self.basis}
        )

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> LinearPosterior:
        """Return the posterior that `to_state` described."""
        return cls(arrays["weights"], arrays["root"], state["variance"], arrays.get("basis"))

    def _within(self, features: np.ndarray) -> np.ndarray:
        """Return rows in the directions of the weights, (n, k)."""
        return features if self.basis is None else features @ self.basis

    def _directions(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return rows in the directions of the weights, (n, k), and what of them is beyond, in prior deviations.

        ``phi^T w = (Q^T phi)^T u + (phi - Q Q^T phi)^T w``, the second part independent of ``u`` and of the rows.
        """
        features = _features(X)
        within = self._within(features)
        if self.basis is None:
            return within, np.zeros((len(features), 0))
        return within, self.variance**0.5 * (features - within @ self.basis.T)


def fit_linear(
    likelihood: Likelihood, X: np.ndarray, y: np.ndarray
) -> tuple[LinearPosterior, Likelihood]:
    """Return the posterior of linear functions whose weights have one prior variance, that of highest evidence.

    Parameters
    ----------
    likelihood : Likelihood
        Log-concave. A Gaussian one is returned with the noise that belongs to the answer.
    X, y : ndarray
        Standardised rows, see `vastgp.data.observations`.
    """
    features, basis = row_space(_features(X))
    if isinstance(likelihood, Gaussian):
        fit = _fit_own_noise if observations.has_own_noise(y) else _fit_gaussian
        posterior, likelihood = fit(features, y)
    else:
        posterior = _fit_sites(likelihood, features, y)
    return replace(posterior, basis=basis), likelihood


def line_of_few(X: np.ndarray, y: np.ndarray, groups: np.ndarray) -> AveragedLines:
    """Return `average_lines` of standardised rows; ``groups`` are those of `nearly_repeated`."""
    scale = Scale.of_groups(groups)
    beside = None if observations.has_own_noise(y) else groups
    return average_lines(_features(X), y, beside, scale)


def of_average(found: AveragedLines | LinePart, basis: np.ndarray | None) -> LinearPosterior:
    """Return averaged lines of a basis, or a part of them, as a posterior with their moments."""
    eigenvalues, vectors = np.linalg.eigh(found.covariance)
    root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    return LinearPosterior(found.weights[None], root[None], found.variance, basis)


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


class _Weights:
    """The lower bound of the evidence of normal weights, as a function of their natural parameters.

    ``q(w_c) = N(S_c eta_c, S_c)``, ``S_c = (P_c + I / s)^-1``; ``eta_c`` and ``P_c`` are what sites of the rows add
    (t-SVGP, eqs. (12), (13), with weights in the place of inducing variables).
    """

    def __init__(
        self, likelihood: Likelihood, features: np.ndarray, y: np.ndarray, variance: float = 1.0
    ) -> None:
        self.likelihood, self.features, self.num_rows = likelihood, features, len(y)
        self.padded = repeat_last(features, padded_size(len(y)))
        self.y = repeat_last(y, padded_size(len(y)))
        self.variance = variance

    def moments(self, natural: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return means and covariances of the weights."""
        linear, added = natural
        covariance = np.linalg.inv(added + np.eye(added.shape[-1]) / self.variance)
        return np.einsum("cij,cj->ci", covariance, linear), covariance

    def evaluate(self, natural: tuple[np.ndarray, np.ndarray]) -> Found:
        """Return the bound at natural parameters, and those that its derivatives ask for."""
        weights, covariance = self.moments(natural)
        if self.likelihood.shift_invariant:
            # as of `Sites.centred`: the optimum has no part that the likelihood does not see
            weights = weights - weights.mean(axis=0)
            natural = np.linalg.solve(covariance, weights[..., None])[..., 0], natural[1]
        mean = weights @ self.padded.T
        # as products of matrices: as sums over three letters they were half of the time of ten classes
        variance = np.sum((self.padded @ covariance) * self.padded, axis=-1)
        shape = mean.shape if len(mean) > 1 else mean.shape[1:]
        with precision("float64"):
            bound, sites = local_sites(
                self.likelihood, self.y, mean.reshape(shape), variance.reshape(shape)
            )
        n, features = self.num_rows, self.features
        linear, curvature = (np.asarray(part).reshape(mean.shape)[:, :n] for part in sites)
        better = (
            linear @ features,
            (features.T * curvature[:, None, :]) @ features,
        )
        total = float(np.sum(np.asarray(bound)[:n])) - self._divergence(weights, covariance)
        return Found(natural, total, better)

    def _divergence(self, weights: np.ndarray, covariance: np.ndarray) -> float:
        """Return ``KL(q(w) || N(0, s I))``."""
        size = weights.size
        square = np.sum(weights**2) + np.trace(covariance, axis1=1, axis2=2).sum()
        logs = np.linalg.slogdet(covariance)[1].sum()
        return float(0.5 * (square / self.variance - size + size * np.log(self.variance) - logs))


def _fit_sites(likelihood: Likelihood, features: np.ndarray, y: np.ndarray) -> LinearPosterior:
    """Variational inference of the weights, their prior variance by EM: ``s = E[|w|^2] / (C p)``.

    Several functions of many rows are found on some of them, and take the last updates on all: natural parameters are
    sums over rows.
    """
    functions, size = likelihood.num_latent, features.shape[1]
    natural = np.zeros((functions, size)), np.zeros((functions, size, size))
    step = max(len(y) // _FIRST_ROWS, 1) if functions > 1 else 1
    model = _Weights(likelihood, features[::step], y[::step])
    natural = _climb(model, natural, _MOST_UPDATES)
    for _ in range(_ROUNDS):
        weights, covariance = model.moments(natural)
        square = np.sum(weights**2) + np.trace(covariance, axis1=1, axis2=2).sum()
        model.variance = float(np.clip(square / weights.size, _LEAST_VARIANCE, _MOST_VARIANCE))
        natural = _climb(model, natural, _MOST_UPDATES)
    if step > 1:
        more = len(y) / model.num_rows
        model = _Weights(likelihood, features, y, model.variance)
        natural = _climb(model, (more * natural[0], more * natural[1]), _LAST_UPDATES)
    weights, covariance = model.moments(natural)
    return LinearPosterior(weights, np.linalg.cholesky(covariance), model.variance)


def _climb(
    model: _Weights, natural: tuple[np.ndarray, np.ndarray], most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return natural parameters after so many updates at most."""
    rate, least = most_rate(model.likelihood), _SETTLED * model.num_rows
    updates = DampedUpdates(model.evaluate, most=rate, least_gain=least)
    found: tuple[np.ndarray, np.ndarray] = updates.run(updates.start(natural), most).found.sites
    return found
