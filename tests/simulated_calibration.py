"""Simulation-based calibration (Talts et al. 2018): data are drawn from the model, and posteriors ranked by the truth.

Where hyperparameters, function and data come from the prior of the model, the true value of anything is a draw from its
posterior like the others: its rank among L draws is uniform over 0, ..., L. A posterior that is too narrow has ranks at
both ends, one that is too wide in the middle, one that is shifted at one end.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import chi2

from vastgp import ExactGPRegressor, IterativeGPRegressor, QSGPRegressor
from vastgp._precision import precision
from vastgp.bases.grid_eigenfunctions import GridEigenfunctionBasis
from vastgp.fitting.run import Run
from vastgp.fitting.sufficient_statistics import SufficientStatistics, feature_matrix
from vastgp.kernels import RBF
from vastgp.methods.reweighted.chains import HyperPosterior
from vastgp.methods.reweighted.evidence import prepare
from vastgp.methods.reweighted.inference import draw_hyperparameters, maximise_hyperparameters
from vastgp.methods.reweighted.options import NUTS
from vastgp.methods.reweighted.weight_priors import OrthogonalPrior
from vastgp.options import Block, Fixed

# Draws that a true value is ranked among: 100 ranks, in `BINS` of equal probability.
DRAWS, BINS = 99, 20
# Rows for each length of the function. Targets are centred by their mean, of which the prior knows nothing: where there
# are many lengths with many rows each, that says nothing either.
_PER_LENGTH, _NOISE = 10.0, 0.3
_PLACES = {"f(a)": [1.0, 0.0, 0.0], "f(b)": [0.0, 1.0, 0.0], "f(a) - f(c)": [1.0, 0.0, -1.0]}

FIXED = {"kernel": RBF(1.0, 1.0), "hyperparameters": Fixed(noise_std=_NOISE)}
ESTIMATORS: dict[str, Callable[[int], Any]] = {
    "ExactGPRegressor": lambda seed: ExactGPRegressor(**FIXED, random_state=seed),
    "QSGPRegressor, block": lambda seed: QSGPRegressor(
        **FIXED, num_basis=1000, solver=Block(num_samples=DRAWS), random_state=seed
    ),
    "IterativeGPRegressor, rr-cg": lambda seed: IterativeGPRegressor(
        **FIXED, solver="rr-cg", num_samples=DRAWS, random_state=seed
    ),
}


@cache
def _line(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs, places last, and a factor of the function's covariance there."""
    length = rows / _PER_LENGTH
    X = np.random.default_rng(0).uniform(0.0, length, rows)
    X = np.concatenate([X, length * np.array([0.3, 0.6, 0.3]) + [0.0, 0.0, 0.4]])[:, None]
    K = np.exp(-0.5 * (X - X.T) ** 2)
    return X, np.linalg.cholesky(K + 1e-10 * np.eye(len(X)))


def ranks_of_functions(name: str, rows: int, seed: int) -> dict[str, int]:
    """Return the ranks of values of one function among draws from its posterior; hyperparameters are known."""
    X, root = _line(rows)
    generator = np.random.default_rng([seed, 1])
    function = root @ generator.standard_normal(len(X))
    y = function[:rows] + _NOISE * generator.standard_normal(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ESTIMATORS[name](seed).fit(X[:rows], y)
    drawn = model.sample_y(X[rows:], DRAWS, random_state=seed + 1)
    return {
        each: rank(float(np.dot(row, function[rows:])), np.array(row) @ drawn)
        for each, row in _PLACES.items()
    }


# Functions of the grid in two inputs, and chains: every second of 2 x 100 draws and 99 of these.
_FUNCTIONS, _CHAINS = 12, NUTS(num_chains=2, num_warmup=150, num_steps=200, thin=4)
_ROWS_NOISE = 0.1


@cache
def _grid(rows: int) -> tuple[np.ndarray, np.ndarray, OrthogonalPrior, Any]:
    """Return features of rows and of one new row, their prior, and what is prepared of them."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1.5, 1.5, (rows + 1, 2))
    axes = [np.linspace(-1.5, 1.5, 10)] * 2
    basis = GridEigenfunctionBasis.build(RBF(1.0) * RBF(1.0), axes, _FUNCTIONS)
    with precision("float64"):
        phi = np.asarray(feature_matrix(basis, X))
        data = prepare(SufficientStatistics.of(phi[:rows], np.zeros(rows)))
    return phi, X, OrthogonalPrior.make(data.rank, _ROWS_NOISE), data


def ranks_of_grief(rows: int, seed: int) -> dict[str, int]:
    """Return the ranks of noise, relative variances and a value of the function, all drawn from the prior of type I.

    That of `vastgp.GriefRegressor` with given functions: ``log sigma^2`` and ``log g_i`` are normal, the weights of the
    functions that are orthonormal on the rows ``N(0, s_i^2 g_i)``. What the estimator chooses by the data before
    (lengthscales, where the noise's prior is) is given here.
    """
    phi, _, prior, empty = _grid(rows)
    generator = np.random.default_rng([seed, 2])
    theta = prior.centre + prior.spread * generator.standard_normal(prior.size)
    values, vectors = np.asarray(empty.values), np.asarray(empty.vectors)[:, : empty.rank]
    # w = V s^-1 w~, and w~_i ~ N(0, s_i^2 g_i)
    weights = vectors @ (np.exp(0.5 * theta[1:]) * generator.standard_normal(len(values)))
    function = phi @ weights
    y = function[:rows] + np.exp(0.5 * theta[0]) * generator.standard_normal(rows)
    with precision("float64"):
        data = prepare(SufficientStatistics.of(phi[:rows], y))
    target = HyperPosterior(prior, data)
    mode = maximise_hyperparameters(
        target, prior.start(), noise_floor=1e-8, with_prior=True, max_iter=200, tol=1e-4
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chains = draw_hyperparameters(target, mode.params, _CHAINS, Run(seed=seed))
    drawn = chains.theta.reshape(-1, prior.size)[-DRAWS:]
    at_new = np.empty(DRAWS)
    for number, each in enumerate(drawn):
        mean, covariance = prior.weights(data, each)
        spread = np.sqrt(max(phi[-1] @ covariance @ phi[-1], 0.0))
        at_new[number] = phi[-1] @ mean + spread * generator.standard_normal()
    chosen = {"noise": 0, "first g": 1, "sixth g": 6, "last g": len(values)}
    found = {each: rank(theta[index], drawn[:, index]) for each, index in chosen.items()}
    return found | {"f": rank(float(function[-1]), at_new)}


def rank(truth: float, drawn: np.ndarray) -> int:
    """Return how many draws are below the truth."""
    return int(np.sum(drawn < truth))


METHODS: dict[str, Callable[[int, int], dict[str, int]]] = {
    **{
        name: lambda rows, seed, name=name: ranks_of_functions(name, rows, seed)
        for name in ESTIMATORS
    },
    "GRIEF, type I": ranks_of_grief,
}


def ranks(name: str, rows: int, count: int, first: int = 0) -> Iterator[dict[str, int]]:
    """Yield the ranks of so many data sets."""
    for seed in range(first, first + count):
        yield METHODS[name](rows, seed)


def uniformity(found: list[int]) -> tuple[float, float]:
    """Return chi-squared of ranks in `BINS` bins, and the probability of as large a one where they are uniform."""
    counts = np.bincount(np.array(found) * BINS // (DRAWS + 1), minlength=BINS)
    statistic = float(np.sum((counts - len(found) / BINS) ** 2) / (len(found) / BINS))
    return statistic, float(chi2.sf(statistic, BINS - 1))
