"""A function whose noise varies: its posterior beside that of the log noise, and how both are learned on few rows.

With ``q(f) q(g)`` in the place of the posterior the bound of the evidence is (Lazaro-Gredilla and Titsias 2011)

    log N(y | 0, K + R) - 1/4 sum_i V_i - KL(q(g) || p(g)),   R_ii = exp(c + m_i - V_i / 2),

with mean ``m_i`` and variance ``V_i`` of the log noise at row i. It is climbed by turns. Given ``g`` the function is a
Gaussian process with noise ``R_ii`` of the rows' own, which any solver takes; given the function, what rows are off by
is ``e_i = (y_i - E f_i)^2 + Var f_i``, and `vastgp.solvers.log_noise` finds ``g``. Neither lowers the bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vastgp.data import observations
from vastgp.data.archive import above, below
from vastgp.fitting.clock import now
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.hyperparameter_prior import HyperparameterPrior
from vastgp.fitting.start import fit_evidence
from vastgp.kernels import Kernel
from vastgp.kernels.metric import number_of_inputs
from vastgp.likelihoods import Gaussian
from vastgp.solvers.exact_posterior import ExactPosterior
from vastgp.solvers.log_noise import LearnedNoise, LogNoise, learn_log_noise

# Turns at most; they end where the log noise of a row moves by less than this, root mean square.
_TURNS, _SETTLED = 8, 0.03
# L-BFGS in a turn: iterations for the function's kernel and for that of the noise, and its tolerance.
_BY_FUNCTION, _BY_NOISE, _TOL = 30, 20, 1e-4
# Rows predicted at a time.
_TILE = 2048


@dataclass(frozen=True)
class NoisyFunction:
    """Posteriors of a function and of the log noise beside it, independent of each other.

    Values and moments have the two as the first axis, as `vastgp.likelihoods.HeteroskedasticGaussian` has.

    Attributes
    ----------
    function : object
        Posterior of the function, as a method has it.
    noise : LogNoise
    """

    function: Any
    noise: LogNoise

    def mean(self, X: Any) -> np.ndarray:
        """Return the means of both at each row of ``X``, (2, n)."""
        return np.stack([self.function.mean(X), self.noise.mean(X)])

    def mean_and_latent_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return means and variances of both, (2, n) each."""
        both = (self.function.mean_and_latent_variance(X), self.noise.mean_and_variance(X))
        return np.stack([each[0] for each in both]), np.stack([each[1] for each in both])

    def samples(self, X: Any, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function, with the mean of the log noise beside each: (n, 2, num_samples)."""
        drawn = self.function.samples(X, num_samples, seed)
        return np.stack([drawn, np.broadcast_to(self.noise.mean(X)[:, None], drawn.shape)], axis=1)

    def to_state(
        self, of_function: tuple[dict[str, Any], dict[str, np.ndarray]]
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return both as JSON-able data and arrays, given those of the function."""
        state, arrays = of_function
        of_noise, noise_arrays = self.noise.to_state()
        arrays = above("function/", arrays) | above("noise/", noise_arrays)
        return {"function": state, "noise": of_noise}, arrays


def function_state(
    state: dict[str, Any], arrays: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], LogNoise | None]:
    """Return the function's part of a state, and the log noise where `NoisyFunction.to_state` made it."""
    if "noise" not in state or "function" not in state:
        return state, arrays, None
    noise = LogNoise.from_state(state["noise"], below("noise/", arrays))
    return state["function"], below("function/", arrays), noise


def with_own_noise(y: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """Return targets with noise variances of their own, relative to what is learned (`vastgp.data.observations`)."""
    relative = np.clip(relative, 1.0 / observations.MOST, observations.MOST)
    return np.column_stack([observations.targets(y), relative, np.zeros(len(y))])


def expected_squares(posterior: Any, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs of rows, and ``E[(y_i - f_i)^2]`` there.

    Parameters
    ----------
    posterior : object
        Of the function, given rows of which these are some. Where it is exact the rows are all of its own.
    X, y : ndarray
        Standardised rows.
    """
    if isinstance(posterior, ExactPosterior):
        return posterior.X, _squares_of_factor(
            observations.noise_variances(posterior.y, posterior.noise_variance),
            posterior.weights, posterior.factor.inverse_diagonal(),
        )  # fmt: skip
    square = np.empty(len(X))
    for start in range(0, len(X), _TILE):
        here = slice(start, start + _TILE)
        mean, variance = posterior.mean_and_latent_variance(X[here])
        square[here] = (observations.targets(y[here]) - mean) ** 2 + variance
    return X, square


def _squares_of_factor(noise: Any, weights: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Return ``E[(y_i - f_i)^2]`` at the rows of an exact posterior.

    ``y - E f = R A^-1 y``, and ``Var f_i = R_ii - R_ii^2 [A^-1]_ii`` as the covariance is ``R - R A^-1 R``.
    """
    return (noise * weights) ** 2 + np.maximum(noise - noise**2 * inverse, 0.0)


def _squares_left_out(noise_variance: float, weights: np.ndarray, factor: Any) -> np.ndarray:
    """Return squared errors of rows left out, in variances that these have with one noise, times that noise.

    A row left out is ``a_i / [A^-1]_ii`` off, with variance ``1 / [A^-1]_ii`` (Rasmussen & Williams 2006, eq. 5.12).
    """
    return noise_variance * weights**2 / factor.inverse_diagonal()


class Alternated(NamedTuple):
    """What turns of function and noise found on some rows.

    Attributes
    ----------
    kernel : Kernel
        Of the function.
    learned : LearnedNoise
        Given the function with that kernel.
    gain : float
        Nats by which the bound of the log evidence is above that of one noise, priors of hyperparameters included, less
        what two more of them cost.
    turns : int
    late : bool
        Whether it was the deadline that ended the turns, with the noise still moving.
    """

    kernel: Kernel
    learned: LearnedNoise
    gain: float
    turns: int
    late: bool


def alternate(
    X: np.ndarray,
    y: np.ndarray,
    kernel: Kernel,
    noise_variance: float,
    *,
    seed: int,
    noise_floor: float,
    inputs: Any = None,
    learn: bool = True,
    deadline: float | None = None,
) -> Alternated:
    """Learn a function and its noise on some rows, by turns.

    They begin with what each row is off by when it is left out. A function that follows its rows closely is off by the
    same little everywhere, and says of no row that it is noisy.

    Parameters
    ----------
    X, y : ndarray
        Standardised rows, all of one noise as far as is known.
    kernel, noise_variance
        Of highest evidence with one noise: where learning starts, and what it is compared with.
    seed, inputs
        As in `learn_log_noise`.
    noise_floor : float
        Least variance of the mean noise, relative to that of the target.
    learn : bool, default True
        Whether the function's kernel follows the noise.
    deadline : float, optional
        Time of `vastgp.fitting.clock.now` after which no turn begins.
    """
    prior = HyperparameterPrior(number_of_inputs(kernel, X.shape[1]))
    relative = np.ones(len(y))
    learned: LearnedNoise | None = None
    before = 0.0
    for turn in range(1, _TURNS + 1):
        observed = with_own_noise(y, relative)
        noise = noise_variance * relative
        evidence, factor, weights = ExactEvidence(X, observed).solve(kernel, noise_variance)
        square = _squares_of_factor(noise, weights, factor.inverse_diagonal())
        # - KL(q(f) || p(f))
        apart = evidence + 0.5 * float(np.sum(np.log(2.0 * np.pi * noise) + square / noise))
        learned = _learn(X, square, seed, inputs, learned)
        density = prior((kernel, Gaussian(noise_variance)))[0]
        gain = apart + density + learned.bound - before
        if turn == 1:
            before, gain = apart + density + learned.constant, 0.0
            left_out = _squares_left_out(noise_variance, weights, factor)
            learned = learn_log_noise(X, left_out, seed=seed, inputs=inputs)
        found = learned.posterior.effective_variances(X)
        moved = float(np.sqrt(np.mean(np.log(found / relative) ** 2)))
        relative, noise_variance = found, float(np.exp(learned.posterior.level))
        ended = moved < _SETTLED or turn == _TURNS
        late = not ended and deadline is not None and now() > deadline
        if ended or late:
            break
        if learn:
            fitted = fit_evidence(
                ExactEvidence(X, with_own_noise(y, relative)),
                (kernel, Gaussian(max(noise_variance, noise_floor))),
                noise_floor=noise_floor, max_iter=_BY_FUNCTION, tol=_TOL,
            )  # fmt: skip
            kernel, likelihood = fitted.params
            noise_variance = float(likelihood.noise_variance)
    assert learned is not None  # after one turn at least
    return Alternated(kernel, learned, gain - learned.cost, turn, late)


def _learn(
    X: np.ndarray, square: np.ndarray, seed: int, inputs: Any, before: LearnedNoise | None
) -> LearnedNoise:
    """Return the noise, learned from where it was."""
    if before is None:
        return learn_log_noise(X, square, seed=seed, inputs=inputs)
    return learn_log_noise(X, square, seed=seed, start=before.posterior.kernel, max_iter=_BY_NOISE)
