"""Importance, effects and surprises of functions whose answers are known."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtr

from vastgp.auto.calibration import Identity, Scale, fit_calibration
from vastgp.auto.calibration_record import calibration_record
from vastgp.auto.class_calibration import TemperatureScaling
from vastgp.auto.distribution import Distribution
from vastgp.auto.report import (
    advice,
    calibration_in_words,
    effects,
    permutation_importance,
    surprises,
)
from vastgp.auto.report.effects_of import _of_numbers
from vastgp.auto.stacking.mixture import Mixture
from vastgp.auto.warps import Log, Own
from vastgp.data import Rows, Standardizer
from vastgp.estimators.mixed_predictive import MixedPredictive
from vastgp.estimators.predictive import Predictive
from vastgp.likelihoods import Gaussian


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 4))
    return X, 2.0 * X[:, 0] + 0.5 * X[:, 1] + rng.standard_normal(4000)


def log_density(X, y):
    return -0.5 * (y - 2.0 * X[:, 0] - 0.5 * X[:, 1]) ** 2 - 0.5 * np.log(2 * np.pi)


def test_importance_is_what_a_linear_model_loses(rows):
    X, y = rows
    found = permutation_importance(log_density, X, y, {"b": [1], "a": [0], "unused": [2, 3]})
    assert [name for name, _, _ in found] == ["a", "b", "unused"]
    # E[(r + w (x - x'))^2 - r^2] / 2 = w^2 Var x, for independent x, x'
    for (_, loss, error), weight in zip(found[:2], (2.0, 0.5), strict=True):
        assert abs(loss - weight**2) < 4 * error and error < 0.1
    assert found[2][1:] == (0.0, 0.0)
    noisy = permutation_importance(
        lambda X, y: -0.5 * (y - 0.01 * X[:, 2]) ** 2, X, y, {"hardly used": [2]}
    )
    assert abs(noisy[0][1]) < 4 * noisy[0][2]


def test_columns_of_a_group_are_shuffled_together(rows):
    X, y = rows
    twice = np.column_stack([X, X[:, 0]])

    def differs(rows, targets):
        return -((rows[:, 0] - rows[:, 4]) ** 2)

    together = permutation_importance(differs, twice, y, {"both": [0, 4], "one": [0]})
    assert (together[1][0], together[1][1]) == ("both", 0.0)
    assert together[0][0] == "one" and together[0][1] == pytest.approx(2.0, abs=0.2)


def test_effects_of_a_sum_are_its_parts(rows):
    X = rows[0]

    def predict(at):
        return np.sin(at[:, 0]) + at[:, 1] ** 2, 0.5 + 0.0 * at[:, 0]

    (first, values, mean, low, high), second = effects(predict, X, {"a": [0], "b": [1]})
    assert first == "a" and len(values) == 25
    np.testing.assert_allclose(mean - mean[0], np.sin(values) - np.sin(values[0]), atol=1e-12)
    np.testing.assert_allclose(high - mean, 1.959964 * 0.5, rtol=1e-6)
    np.testing.assert_allclose(mean - low, 1.959964 * 0.5, rtol=1e-6)
    b = np.asarray(second[1])
    np.testing.assert_allclose(second[2] - second[2][0], b**2 - b[0] ** 2, atol=1e-12)
    assert np.quantile(X[:, 0], 0.01) < values[0] < np.quantile(X[:, 0], 0.03)


def test_effects_of_levels_and_of_columns_that_go_together():
    rng = np.random.default_rng(1)
    code = rng.integers(0, 3, 500)
    X = np.column_stack([np.eye(3)[code], rng.standard_normal(500)])
    names = np.array(["red", "green", "blue"])
    ((_, values, mean, _, _),) = effects(
        lambda rows: (rows[:, :3] @ [1.0, 2.0, 3.0], np.ones(len(rows))),
        X,
        {"colour": [0, 1, 2]},
        {"colour": lambda rows: names[rows.argmax(axis=1)]},
    )
    assert dict(zip(values, mean, strict=True)) == {"red": 1.0, "green": 2.0, "blue": 3.0}


def test_surprises_are_the_rows_farthest_in_the_tails():
    z = np.array([0.1, -12.0, 3.0, 40.0, -0.5])
    found = surprises(
        2.0 * z, np.zeros(5), np.full(5, 2.0), ndtr(z), lambda k: {"x": k}, 10 + np.arange(5), 3
    )
    assert [one[0] for one in found] == [11, 13, 12] or [one[0] for one in found] == [13, 11, 12]
    assert found[-1] == (12, 6.0, 0.0, 2.0, {"x": 2})


def test_calibrations_in_words_say_what_they_do():
    words = calibration_in_words
    assert "multiplied by 1.08" in words(Scale(1.08))
    assert "less sure, by a temperature of 1.5" in words(TemperatureScaling(1.5))
    assert "of 3 held-out rows" in words(fit_calibration([0.1, 0.2, 0.3], "conformal"))
    assert "isotonic" in words(fit_calibration([0.1, 0.2, 0.3], "isotonic"))
    assert "own probabilities" in words(fit_calibration([0.1], None))


def test_advice_rests_on_what_happened():
    rng = np.random.default_rng(2)
    normal = [advice(u=rng.uniform(size=1000)) for _ in range(100)]
    assert sum(map(bool, normal)) <= 1
    tails = ndtr(rng.standard_t(3, 1000))
    assert "student-t" in advice(u=tails)[0] and "% of the held-out rows are" in advice(u=tails)[0]
    assert "% of the given rows are" in advice(u=tails, about="given")[0]
    skew = ndtr((rng.gamma(2.0, size=1000) - 2.0) / np.sqrt(2.0))
    assert "logarithm" in advice(u=skew, positive=True)[0]
    assert "mostly small values" in advice(u=1.0 - skew)[0]
    assert "max_seconds=240" in advice(finished=False, seconds=60)[0]
    assert "saw 1,000 of 5,000 rows" in advice(rows=5000, rows_used=1000)[0]
    assert "nothing is lost without b." in advice(importance=[("a", 1.0, 0.1), ("b", 0.1, 0.1)])[0]
    std = np.exp(rng.standard_normal(2000))
    z = rng.standard_normal(2000) * np.where(std > 1, 2.0, 0.7)
    record = calibration_record(z * std, np.zeros(2000), std, ndtr(z))
    assert "noise_std" in advice(record=record)[0]
    assert advice() == []


@pytest.mark.parametrize("warp", [Own(), Log()])
def test_an_average_of_processes_is_as_unsure_of_an_effect_as_they_are(warp):
    """Averages of few rows have the deviation of a single process where all agree, and that between them elsewhere."""
    scaling = Standardizer().fit(Rows(np.zeros((2, 1)), np.array([-0.2, 0.8])))
    mean, variance = np.linspace(-1.0, 1.0, 7), np.linspace(0.01, 0.3, 7)
    weights, noises = np.array([0.25, 0.75]), np.array([0.2, 0.2])

    def deviation(predictive):  # of the function, as an effect shows it
        found = Distribution(predictive, warp, Identity(), (-50.0, 50.0))
        model = SimpleNamespace(_distribution=lambda rows: found, exposure_=None)
        return _of_numbers(model)[1](np.zeros((7, 1)))[1]

    def average(means, variances):
        return MixedPredictive.of(np.stack(means), np.stack(variances), noises, weights, scaling)

    single = deviation(Predictive(Gaussian(0.2), mean, variance, scaling))
    assert np.all(single > 0.0)
    same = average([mean, mean], [variance, variance])
    np.testing.assert_allclose(deviation(same), single, rtol=1e-6)
    # parts that are sure and contradict each other: the deviation of their two means
    nothing, (up, down) = np.zeros(7), (mean + 0.4, mean - 0.4)
    ends = [
        Distribution(
            Predictive(Gaussian(0.2), at, nothing, scaling), warp, Identity(), (-50.0, 50.0)
        )
        for at in (up, down)
    ]
    expected = np.sqrt(0.25 * 0.75) * np.abs(ends[0].mean - ends[1].mean)
    np.testing.assert_allclose(
        deviation(average([up, down], [nothing, nothing])), expected, rtol=1e-6
    )
    # of a stack one of whose members is an average, too
    stack = Mixture((same, same.parts[0]), np.array([0.5, 0.5]))
    np.testing.assert_allclose(deviation(stack), single, rtol=1e-6)


def test_parts_of_an_average_make_it_up_with_noise_of_rows():
    scaling = Standardizer().fit(Rows(np.zeros((2, 1)), np.array([-0.2, 0.8])))
    rng = np.random.default_rng(0)
    means, variances = rng.normal(size=(3, 5)), rng.gamma(1.0, 1.0, (3, 5))
    noises, weights = np.array([0.1, 0.2, 0.4]), np.array([0.2, 0.3, 0.5])
    mixed = MixedPredictive.of(means, variances, noises, weights, scaling)
    mixed = dataclasses.replace(mixed, noises=noises[:, None] + rng.gamma(1.0, 1.0, 5))
    y = rng.normal(size=5)
    densities = [np.exp(part.log_density(y)) for part in mixed.parts]
    np.testing.assert_allclose(weights @ densities, np.exp(mixed.log_density(y)), rtol=1e-10)
