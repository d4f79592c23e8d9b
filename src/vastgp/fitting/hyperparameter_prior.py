"""A weak prior on hyperparameters: of few rows the evidence alone makes a function of their noise, and is sure of it.

Its density is of logarithms, in standardised units, so that its mode does not depend on how a hyperparameter is
written. It adds a number of nats that does not grow with the rows; a thousand of them outweigh it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, logsumexp, polygamma

from vastgp.kernels import Kernel, Sum
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.linalg.threads import blas_threads

# Mean and standard deviation of logarithms. Lengthscales are relative to the distance of two random rows, sqrt(2 d);
# amplitude and noise to the variance of the target. Chosen by the log density of unseen rows on a hundred and sixty
# random tables of 4 to 400 rows, among some twenty of them (tests/hard_tables.py; other seeds than the suite's):
# NLPD worse than a line's by 0.02 in 19 % of those of up to 60 rows and in 12 % of larger ones, by evidence alone in
# 76 % and 30 %.
_LENGTHSCALE = (1.2, 1.0)
_AMPLITUDE = (0.5, 1.0)
NOISE = (-1.5, 2.0)
# Scale of the Cauchy density of each logarithm of a lengthscale around their mean: most inputs matter alike unless the
# rows say otherwise, and one that does not matter costs few nats, where a normal density would forbid it.
_SPREAD = 0.3
# Of slopes: what all of them explain together, as of the lines of few rows, and how far one is from another: this over
# the number of inputs, but no less than the last. Of two inputs it is next to no prior: one without a trend says so; of
# many some seem to have a trend by chance (300 rows, spreads of 0.6, 1.2, 2.5 and 4: NLPD of 500 inputs 0.23, 0.23,
# 0.44 and 41, of 100 inputs 0.28, 0.27, 0.28 and 0.29; 100 rows of 300 inputs that all matter 1.37, 1.45, 7 and 38).
EXPLAINED, _SLOPE_SPREADS = (0.0, 1.5), (40.0, 0.6)
# The integral of a logarithm's mean: ends of the variable's logarithm, and steps.
_ENDS, _STEP = (-40.0, 80.0), 0.1

# None: a likelihood without hyperparameters
Params = tuple[Kernel, Likelihood | None]


class Scale(NamedTuple):
    """What is open of the target's variance, the unit of amplitudes and noise: mean and variance of its logarithm."""

    mean: float = 0.0
    variance: float = 0.0

    @classmethod
    def of_groups(cls, groups: np.ndarray) -> Scale:
        """Return what rows leave open where the unit is their own variance; those of one group have nearly one target.

        Of n groups of one row ``n s^2 / sigma^2`` has the chi-squared law of ``n - 1`` degrees of freedom, so that
        ``log sigma^2 / s^2`` has the mean ``log(n / 2) - digamma((n - 1) / 2)`` and the variance
        ``trigamma((n - 1) / 2)``: of three rows a deviation of 1.3, of thirty 0.3.

        With shares ``p`` of the rows ``s^2 = sum p y^2 - (sum p y)^2`` is ``sigma^2 sum l_i z_i^2``, of standard normal
        ``z`` and the eigenvalues ``l`` of ``diag(p) - p p^T``. The mean of its logarithm is
        ``int_0^inf (exp(-t) - prod (1 + 2 l_i t)^-1/2) / t dt``, by Frullani's integral; the variance of that is taken
        as that of the chi-squared law of the same mean and mean logarithm. A place that most rows are of says little of
        how far others are from it.
        """
        shares = np.bincount(groups) / len(groups)
        if len(shares) < 2:
            shares = np.full(2, 0.5)
        with blas_threads(len(shares)):
            eigenvalues = np.linalg.eigvalsh(np.diag(shares) - np.outer(shares, shares))
        t = np.exp(np.arange(*_ENDS, _STEP))
        logs = 0.5 * np.sum(np.log1p(2.0 * np.maximum(eigenvalues, 0.0) * t[:, None]), axis=1)
        mean = _STEP * float(np.sum(np.exp(-t) - np.exp(-logs)))
        # of a chi-squared law of k degrees: log E[s^2] - E[log s^2] = log(k / 2) - digamma(k / 2)
        lacking = math.log(np.sum(eigenvalues)) - mean
        half = brentq(lambda h: math.log(h) - float(digamma(h)) - lacking, 0.1, len(shares))
        return cls(-mean, float(polygamma(1, half)))


KNOWN = Scale()


def log_density_of_scales(
    logs: tuple[Any, ...], priors: tuple[tuple[float, float], ...], scale: Scale
) -> tuple[Any, tuple[Any, ...]]:
    """Return the log density of logarithms that share an open scale, up to a constant, and its slopes.

    With ``v ~ N(mean + m, diag(b^2) + s 1 1^T)`` and ``u = (v - mean - m) / b^2`` it is, by Sherman and Morrison,
    ``-1/2 (sum b^2 u^2 - s (sum u)^2 / (1 + s sum b^-2))``.
    """
    weights = [b**-2.0 for _, b in priors]
    away = [log - mean - scale.mean for log, (mean, _) in zip(logs, priors, strict=True)]
    common = sum(w * a for w, a in zip(weights, away, strict=True))
    common = common * scale.variance / (1.0 + scale.variance * sum(weights))
    pairs = list(zip(weights, away, strict=True))
    return -0.5 * sum(w * a * (a - common) for w, a in pairs), tuple(
        -w * (a - common) for w, a in pairs
    )


@dataclass(frozen=True)
class HyperparameterPrior:
    """Log density of kernel and likelihood, and its slope.

    Lengthscales of one summand of a kernel are drawn together: with ``z_j = log l_j - mean log l``,
    ``log p = -1/2 (mean log l - log sqrt(d) - a)^2 / b^2 - sum_j log(1 + z_j^2 / c^2)``. The amplitude of a summand,
    and the noise, are lognormal; they have no prior where the likelihood is not Gaussian, as its function is not in the
    units of the target. Slope variances of a linear summand are drawn together as lengthscales are, with their total
    lognormal, see `_slope_variances`. Other hyperparameters have none.

    Attributes
    ----------
    num_features : int
        Inputs of the kernel, whether or not each has a lengthscale of its own; columns that it ties are one.
    scale : Scale
        What amplitudes and noise have in common; nothing where the target's variance is known well.
    """

    num_features: int
    scale: Scale = KNOWN

    def __call__(self, params: Params) -> tuple[float, Params]:
        """Return the log density, up to a constant, and its derivatives by every hyperparameter."""
        kernel, likelihood = params
        named, structure = jax.tree_util.tree_flatten_with_path(params)
        names = [path[-1].name for path, _ in named]
        logs = [np.log(np.asarray(leaf, np.float64)) for _, leaf in named]
        slopes = [np.zeros_like(each) for each in logs]
        value = 0.0
        summands = _summand_of_leaves(kernel)
        # logarithms of the amplitude of each summand and of the noise, their priors, and the leaves that they are of
        scaled: list[tuple[Any, tuple[float, float], list[int]]] = []
        for summand in range(max(summands) + 1):
            of_it = [i for i, s in enumerate(summands) if s == summand]
            scales = [i for i in of_it if names[i] == "lengthscales"]
            amplitudes = [i for i in of_it if names[i] == "variance"]
            for i in [i for i in of_it if names[i] == "slope_variances"]:
                density, slope = _slope_variances(logs[i].ravel(), self.num_features)
                value += density
                slopes[i] += slope.reshape(logs[i].shape)
            if scales:
                density, slope = self._lengthscales(
                    np.concatenate([logs[i].ravel() for i in scales])
                )
                value += density
                ends = np.cumsum([logs[i].size for i in scales])[:-1]
                for i, part in zip(scales, np.split(slope, ends), strict=True):
                    slopes[i] += part.reshape(logs[i].shape)
            if amplitudes and isinstance(likelihood, Gaussian):
                scaled.append((float(sum(logs[i] for i in amplitudes)), _AMPLITUDE, amplitudes))
        if isinstance(likelihood, Gaussian):
            scaled.append((logs[-1], NOISE, [len(logs) - 1]))
            found, priors, leaves = zip(*scaled, strict=True)
            density, by_log = log_density_of_scales(found, priors, self.scale)
            value += float(density)
            for slope, of_it in zip(by_log, leaves, strict=True):
                for i in of_it:
                    slopes[i] += slope
        gradient = [slope / np.exp(log) for slope, log in zip(slopes, logs, strict=True)]
        return value, jax.tree.unflatten(structure, gradient)

    def log_of_shifts(self, params: Params) -> dict[str, float]:
        """Return log integrals of the density over common shifts of logarithms, where its largest value is one.

        The shifts are of all lengthscales, of all amplitudes and of the noise, as far as they have a density. Of ``m``
        summands that move together it is ``exp(-m z^2 / (2 b^2))``, with the integral ``(2 pi b^2 / m)^1/2``.
        """
        kernel, likelihood = params
        named = jax.tree_util.tree_leaves_with_path(kernel)
        summands = _summand_of_leaves(kernel)
        found, weight = {}, NOISE[1] ** -2.0
        for name, deviation in (("lengthscales", _LENGTHSCALE[1]), ("variance", _AMPLITUDE[1])):
            moving = {
                s for s, (path, _) in zip(summands, named, strict=True) if path[-1].name == name
            }
            if moving:
                found[name] = 0.5 * math.log(2.0 * math.pi * deviation**2 / len(moving))
                weight += (name == "variance") * len(moving) * deviation**-2.0
        if isinstance(likelihood, Gaussian):
            volume = 2.0 * math.pi * NOISE[1] ** 2 * (1.0 + self.scale.variance * weight)
            found["noise_variance"] = 0.5 * math.log(volume)
        else:
            found.pop("variance", None)
        return found

    def _lengthscales(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log density of logarithms of lengthscales, and its slope."""
        centre = 0.5 * math.log(self.num_features) + _LENGTHSCALE[0]
        density, slope = _normal(float(np.mean(logs)), centre, _LENGTHSCALE[1])
        apart, by_apart = _around_their_mean(logs, _SPREAD)
        return density + apart, slope / len(logs) + by_apart


def _slope_variances(logs: np.ndarray, num_features: int) -> tuple[float, np.ndarray]:
    """Return the log density of logarithms of slope variances ``s_j``, and its slope.

    With ``t = log sum_j s_j`` over inputs ``d t / d log s_j = s_j / sum_k s_k``. Of more inputs than rows the evidence
    alone picks some that pass through all targets (300 rows, 500 inputs of which 5 matter: noise 1e-6, NLPD 80).
    """
    total = float(logsumexp(logs))
    # one for all inputs counts for each
    density, slope = _normal(total + math.log(max(num_features / len(logs), 1.0)), *EXPLAINED)
    widest, least = _SLOPE_SPREADS
    apart, by_apart = _around_their_mean(logs, max(widest / len(logs), least))
    return density + apart, slope * np.exp(logs - total) + by_apart


def _around_their_mean(logs: np.ndarray, spread: float) -> tuple[float, np.ndarray]:
    """Return the Cauchy log density of logarithms around their mean, up to its constant, and its slope."""
    away = (logs - np.mean(logs)) / spread
    by_away = -2.0 * away / (1.0 + away**2) / spread
    # the mean moves with each of them
    return -float(np.sum(np.log1p(away**2))), by_away - np.mean(by_away)


def _normal(log: Any, mean: float, deviation: float) -> tuple[Any, Any]:
    """Return a normal log density up to its constant, and its slope."""
    away = (log - mean) / deviation
    return -0.5 * away**2, -away / deviation


def _summand_of_leaves(kernel: Kernel) -> list[int]:
    """Return the number of the summand that each leaf of a kernel belongs to, in the order of leaves."""
    parts = kernel.parts if isinstance(kernel, Sum) else (kernel,)
    return [number for number, part in enumerate(parts) for _ in jax.tree.leaves(part)]
