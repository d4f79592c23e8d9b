"""An average of posteriors, of linear functions and of a process at several hyperparameters: right in its moments."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vastgp.data.archive import above, below
from vastgp.fitting.candidates import MOST_NOISE
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.hyperparameter_prior import KNOWN, HyperparameterPrior, Scale
from vastgp.kernels import Kernel
from vastgp.kernels.metric import number_of_inputs
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import FactorizationError
from vastgp.solvers.exact_posterior import ExactPosterior
from vastgp.solvers.linear_model import LinearPosterior

# Points along each direction, and up to how many rows: those of more say so much of a common lengthscale, amplitude and
# noise that the curvature at the optimum tells the rest.
_POINTS, _AVERAGED_ROWS = 3, 200
# Steps of second differences of logarithms, and the largest deviation that a logarithm is taken to have.
_STEP, _MOST_DEVIATION = 0.1, 2.0
# Newton's steps to an optimum, how often each is halved, and what gains less, in nats, ends them.
_NEWTON_STEPS, _HALVED, _SETTLED = 3, 4, 1e-3
# Least noise variance that is averaged over.
_LEAST_NOISE = 1e-6
# What is averaged with less weight than this is left out: each part costs a factor in memory and file.
LEAST_WEIGHT = 0.01

_PARTS = {each.__name__: each for each in (LinearPosterior, ExactPosterior)}


class Hyperparameters(NamedTuple):
    """Kernels and noise variances to average over, with weights that sum to one; ``log p(y)`` of all together."""

    kernels: tuple[Kernel, ...]
    noise_variances: np.ndarray
    weights: np.ndarray
    log_evidence: float


@dataclass(frozen=True)
class AveragedPosterior:
    """The mixture ``sum_k w_k p_k(f)`` of posteriors; means and covariances are its own.

    Attributes
    ----------
    parts : tuple of LinearPosterior or ExactPosterior
    weights : ndarray of shape (K,)
        They sum to one.
    noise_variances : ndarray of shape (K,)
        Of observations, each beside the posterior that it was found with.
    """

    parts: tuple[Any, ...]
    weights: np.ndarray
    noise_variances: np.ndarray

    def mean(self, X: Any) -> np.ndarray:
        """Return the posterior mean at each row of ``X``."""
        return self.weights @ np.stack([part.mean(X) for part in self.parts])

    def of_parts(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return means and variances of the function by each part, (K, n)."""
        moments = np.stack([part.mean_and_latent_variance(X) for part in self.parts])
        return moments[:, 0], moments[:, 1]

    def mean_and_latent_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the function: ``sum_k w_k (v_k + (m_k - m)^2)``, where parts differ it grows."""
        return mixture_moments(*self.of_parts(X), self.weights)

    def covariance(self, X: Any) -> np.ndarray:
        """Return the covariance of the function between the rows of ``X``."""
        mean, total = self.mean(X), np.zeros((len(X), len(X)))
        for weight, part in zip(self.weights, self.parts, strict=True):
            away = part.mean(X) - mean
            total += weight * (part.covariance(X) + np.outer(away, away))
        return total

    def samples(self, X: Any, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function, each of a part that is drawn by weight: (n, num_samples)."""
        generator = np.random.default_rng(seed)
        of_part = generator.choice(len(self.parts), num_samples, p=self.weights)
        seeds = np.random.SeedSequence(seed).generate_state(len(self.parts))
        drawn = np.empty((len(X), num_samples))
        for number, part in enumerate(self.parts):
            here = of_part == number
            if np.any(here):
                drawn[:, here] = part.samples(X, int(np.sum(here)), int(seeds[number]))
        return drawn

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        state: dict[str, Any] = {"parts": []}
        arrays = {"mixture": self.weights, "noises": self.noise_variances}
        for number, part in enumerate(self.parts):
            described, own = part.to_state()
            # lines share the directions of their rows, which take more room than all else of them
            shared = {
                name: other
                for name, array in own.items()
                for other, kept in arrays.items()
                if array is kept
            }
            state["parts"].append(
                {"kind": type(part).__name__, "state": described, "shared": shared}
            )
            own = {name: array for name, array in own.items() if name not in shared}
            arrays |= above(f"{number}/", own)
        return state, arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> AveragedPosterior:
        """Return the posterior that `to_state` described."""
        parts = [
            _PARTS[part["kind"]].from_state(
                part["state"],
                below(f"{number}/", arrays)
                | {name: arrays[other] for name, other in part.get("shared", {}).items()},
            )
            for number, part in enumerate(state["parts"])
        ]
        return cls(tuple(parts), arrays["mixture"], arrays["noises"])


def mixture_moments(
    means: np.ndarray, variances: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of mixtures, (n,) each.

    Parameters
    ----------
    means, variances : ndarray of shape (K, n)
        Of the parts.
    weights : ndarray of shape (K,), or (K, n) for each mixture its own
    """
    by_part = weights.reshape(len(means), -1)
    mean = np.sum(by_part * means, axis=0)
    # Var = sum_k w_k (v_k + (m_k - m)^2)
    return mean, np.sum(by_part * (variances + (means - mean) ** 2), axis=0)


def around_optimum(
    kernel: Kernel,
    noise_variance: float,
    X: np.ndarray,
    y: np.ndarray,
    scale: Scale = KNOWN,
) -> Hyperparameters:
    """Return hyperparameters to average over in the place of those of highest evidence, for few rows.

    Lengthscales together, amplitudes together and the noise are averaged over, relative lengthscales stay. With the log
    density ``L`` of rows and hyperparameters, its optimum ``t`` and ``R R^T = (-L'')^-1`` the integral of ``exp(L)`` is
    ``|R| sum_i w_i exp(L(t + R z_i) + z_i^2 / 2)`` by points and weights of Gauss and Hermite (Naylor and Smith 1982);
    its terms are the weights of the points. With one point it is Laplace's approximation.

    Parameters
    ----------
    kernel, noise_variance
        Where evidence times `HyperparameterPrior` is largest.
    X, y : ndarray
        Standardised rows.
    scale : Scale
        How well the unit of the target is known. Where it is open the density has another optimum than the one that is
        given, and Newton's steps lead there.

    Raises
    ------
    FactorizationError
        When the covariance matrix at the optimum cannot be factorised.
    """
    evidence = ExactEvidence(X, y)
    prior = HyperparameterPrior(number_of_inputs(kernel, X.shape[1]), scale)
    volumes = prior.log_of_shifts((kernel, Gaussian(noise_variance)))
    names = list(volumes)

    def moved(shift: np.ndarray) -> tuple[Kernel, float]:
        by = dict(zip(names, np.exp(shift), strict=True))
        root = by.get("variance", 1.0) ** 0.5
        return kernel.in_units(by.get("lengthscales", 1.0), root), noise_variance * by[
            "noise_variance"
        ]

    def log_density(shift: np.ndarray) -> float:
        found, noise = moved(shift)
        return evidence(found, noise) + prior((found, Gaussian(noise)))[0]

    size = len(names)
    steps = 0 if scale.variance == 0.0 else _NEWTON_STEPS
    centre, root = _optimum_and_root(log_density, size, steps)
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(
        _POINTS if len(y) <= _AVERAGED_ROWS else 1
    )
    points = np.array(list(itertools.product(nodes, repeat=size)))
    logs = [float(np.sum(each)) for each in itertools.product(np.log(node_weights), repeat=size)]
    terms = np.full(len(points), -np.inf)
    shifts = centre + points @ root.T
    most_noise = MOST_NOISE * math.exp(scale.mean + 2.0 * scale.variance**0.5)
    for i, (z, shift) in enumerate(zip(points, shifts, strict=True)):
        if not np.any(z) or _LEAST_NOISE <= moved(shift)[1] <= most_noise:
            try:
                terms[i] = log_density(shift) + logs[i] + 0.5 * float(z @ z)
            except FactorizationError:
                if not np.any(z):
                    raise
    largest = float(np.max(terms))
    weights = np.exp(terms - largest)
    log_evidence = largest + float(np.log(np.sum(weights))) + float(np.linalg.slogdet(root)[1])
    kept = np.flatnonzero(weights >= LEAST_WEIGHT * np.sum(weights))
    found = [moved(shifts[i]) for i in kept]
    return Hyperparameters(
        tuple(each for each, _ in found),
        np.array([noise for _, noise in found]),
        weights[kept] / np.sum(weights[kept]),
        log_evidence - sum(volumes.values()),
    )


def _optimum_and_root(function: Any, size: int, most_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where a function is largest, by so many of Newton's steps from zero, and ``R`` there.

    A step that does not gain is halved; directions in which it does not curve have a largest deviation.
    """

    def gains(shift: np.ndarray, beside: float) -> bool:
        try:
            return bool(function(shift) > beside + _SETTLED)
        except FactorizationError:
            return False

    centre = np.zeros(size)
    for left in range(most_steps, -1, -1):
        value, slope, curvature = _differences(function, centre)
        eigenvalues, vectors = np.linalg.eigh(-curvature)
        root = vectors / np.sqrt(np.maximum(eigenvalues, _MOST_DEVIATION**-2))
        step = root @ (root.T @ slope)
        step *= min(1.0, _MOST_DEVIATION / max(float(np.linalg.norm(step)), 1e-12))
        tried = [centre + step * 0.5**halved for halved in range(_HALVED)] if left else []
        better = next((each for each in tried if gains(each, value)), None)
        if better is None:
            break
        centre = better
    return centre, root


def _differences(function: Any, centre: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return a function, its slopes and the matrix of its second derivatives."""
    size = len(centre)
    steps = _STEP * np.eye(size)
    value = function(centre)
    slope, found, sums = np.empty(size), np.empty((size, size)), np.empty(size)
    for i in range(size):
        up, down = function(centre + steps[i]), function(centre - steps[i])
        slope[i], sums[i] = 0.5 * (up - down), up + down - 2.0 * value
        found[i, i] = sums[i]
        for j in range(i):
            # f(+,+) + f(-,-) - 2 f is (d_i + d_j)^2 f, of which the squares are known
            both = steps[i] + steps[j]
            along = function(centre + both) + function(centre - both) - 2.0 * value
            found[i, j] = found[j, i] = 0.5 * (along - sums[i] - sums[j])
    return value, slope / _STEP, found / _STEP**2
