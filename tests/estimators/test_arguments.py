"""Helpers that estimators share."""

import numpy as np
import pytest

import vastgp
from vastgp._arguments import Positive
from vastgp.estimators.arguments import seed_from
from vastgp.estimators.registry import ESTIMATORS


@pytest.mark.parametrize("value", [0, 5, np.int64(7), 2**32 - 1])
def test_an_integer_is_the_seed(value):
    assert seed_from(value) == value


def test_generators_give_their_next_number():
    assert seed_from(np.random.RandomState(0)) == seed_from(np.random.RandomState(0))
    generator = np.random.default_rng(0)
    assert seed_from(generator) != seed_from(generator)
    assert seed_from(None) != seed_from(None)


@pytest.mark.parametrize("bad", ["0", -1, 1.5, 2**32, True])
def test_other_seeds_are_refused(bad):
    with pytest.raises(ValueError, match="random_state must be an integer from 0"):
        seed_from(bad)


def test_positive_numbers():
    Positive()("tol", 0.1)
    Positive()("tol", np.float32(3))
    Positive(integer=True)("count", np.int64(3))
    Positive(none="no limit")("max_seconds", None)
    for bad in (0, -1, float("nan"), float("inf"), "1", True, None, [1]):
        with pytest.raises(ValueError, match="tol must be a positive number; received"):
            Positive()("tol", bad)
    with pytest.raises(ValueError, match=r"a positive integer, or None \(chosen\); received 1.5"):
        Positive(integer=True, none="chosen")("count", 1.5)


def test_every_estimator_in_the_registry_is_public():
    for name in ESTIMATORS:
        assert getattr(vastgp, name).__name__ == name
