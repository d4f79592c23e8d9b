"""True values are ranked uniformly among draws of their posterior where all was drawn from the model.

Chi-squared in 20 bins of ranks among 99 draws, seeds fixed; a value fails at a probability of 1e-3. The long part is
benchmarks/simulated_ranks.py: 500 data sets of 200 rows, QSGP and RR-CG among the methods.
"""

from collections import defaultdict

import numpy as np
import pytest

import simulated_calibration as module
from simulated_calibration import BINS, DRAWS, METHODS, ranks, uniformity
from vastgp import ExactGPRegressor
from vastgp.options import Fixed

LEVEL = 1e-3


def chances(name, rows, count):
    found = defaultdict(list)
    for one in ranks(name, rows, count):
        for value, place in one.items():
            found[value].append(place)
    return {value: uniformity(places)[1] for value, places in found.items()}


@pytest.mark.parametrize(
    ("name", "rows", "count"), [("ExactGPRegressor", 60, 300), ("GRIEF, type I", 40, 100)]
)
def test_ranks_are_uniform(name, rows, count):
    found = chances(name, rows, count)
    assert len(found) == (3 if name == "ExactGPRegressor" else 5)
    assert min(found.values()) > LEVEL, found


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_noise_that_is_wrong_is_seen(factor, monkeypatch):
    """Of half and of twice the true standard deviation: posteriors are too narrow, and too wide."""
    wrong = dict(module.FIXED, hyperparameters=Fixed(noise_std=factor * module._NOISE))
    monkeypatch.setitem(
        module.ESTIMATORS, "ExactGPRegressor", lambda seed: ExactGPRegressor(**wrong)
    )
    found = chances("ExactGPRegressor", 60, 300)
    assert max(found[value] for value in ("f(a)", "f(b)")) < LEVEL, found


def test_uniformity_is_that_of_the_bins():
    even = list(range(DRAWS + 1))
    assert uniformity(even) == (0.0, 1.0)
    statistic, probability = uniformity([0] * 100)
    assert statistic == pytest.approx(100 * (BINS - 1))
    assert probability < 1e-300
    assert METHODS.keys() >= module.ESTIMATORS.keys()
    assert np.isfinite(statistic)
