"""Temperatures and isotonic maps of class probabilities."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import softmax

from vastgp.auto.class_calibration import (
    ClassCalibration,
    IdentityClasses,
    class_calibration_from_state,
    fit_class_calibration,
)
from vastgp.data import Places


def drawn(n, classes, temperature, seed=0):
    """Labels of true probabilities, and what a model of another temperature would say of them."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.standard_normal((n, classes))
    truth = softmax(logits, axis=1)
    labels = (truth.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1)
    return labels, softmax(temperature * logits, axis=1)


@pytest.mark.parametrize(("classes", "true"), [(2, 2.0), (4, 0.6)])
def test_temperature_recovers_a_known_one(classes, true):
    n = 6000
    labels, proba = drawn(n, classes, true)
    found = fit_class_calibration(labels, proba, "temperature").temperature
    # information of log T: the variance of beta * log p under the calibrated probabilities
    calibrated = softmax(np.log(proba) / true, axis=1)
    logs = np.log(proba) / true
    centred = logs - np.sum(calibrated * logs, axis=1, keepdims=True)
    information = np.sum(calibrated * centred**2)
    assert abs(np.log(found / true)) < 4 / np.sqrt(information)


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_one_place_count_as_one(method, weighted):
    labels, proba = drawn(120, 2, 1.7)
    row = np.repeat(np.arange(120), np.random.default_rng(0).integers(1, 30, size=120))
    weight = np.random.default_rng(1).uniform(0.2, 2.0, size=120) if weighted else None
    once = fit_class_calibration(labels, proba, method, 0, weight)
    many = fit_class_calibration(
        labels[row], proba[row], method, 0, None if weight is None else weight[row], Places(row)
    )
    np.testing.assert_allclose(many.transform(proba), once.transform(proba), atol=1e-5)


def test_the_weak_prior_holds_few_rows_near_one():
    proba = np.array([[0.9, 0.1]])
    found = fit_class_calibration([0], proba, "temperature").temperature
    assert 0.8 < found < 1.0  # one row, right: without the prior T = 0


def test_isotonic_corrects_what_no_temperature_can():
    rng = np.random.default_rng(1)
    p = rng.uniform(0.01, 0.99, 8000)
    labels = (rng.uniform(size=8000) < p**3).astype(int)
    proba = np.stack([1 - p, p], axis=1)
    found = fit_class_calibration(labels, proba)
    assert found.name == "isotonic"
    at = np.linspace(0.1, 0.95, 30)
    calibrated = found.transform(np.stack([1 - at, at], axis=1))
    assert np.max(np.abs(calibrated[:, 1] - at**3)) < 0.08
    assert np.all(np.diff(calibrated[:, 1]) >= 0)
    np.testing.assert_allclose(calibrated.sum(axis=1), 1.0, rtol=1e-14)
    ends = found.transform(np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert np.all(ends >= 0) and np.all(np.isfinite(np.log(ends[:, 0])) | (ends[:, 0] == 0))


def test_the_choice_is_none_where_nothing_is_wrong():
    names = [fit_class_calibration(*drawn(500, 2, 1.0, seed=k), seed=k).name for k in range(12)]
    assert names.count("none") >= 8
    assert fit_class_calibration(*drawn(1000, 3, 2.0)).name == "temperature"
    assert fit_class_calibration(*drawn(10, 3, 2.0)) == IdentityClasses()


@pytest.mark.parametrize("method", ["temperature", "isotonic", None])
def test_states_come_back_exactly(method):
    labels, proba = drawn(300, 2, 1.6)
    found = fit_class_calibration(labels, proba, method)
    again = ClassCalibration.from_state(json.loads(json.dumps(found.to_state())))
    assert type(again) is type(found) and again == found and hash(again) == hash(found)
    np.testing.assert_array_equal(again.transform(proba), found.transform(proba))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="'isotonic' is for two classes, and there are 3"):
        fit_class_calibration(*drawn(20, 3, 1.0), "isotonic")
    with pytest.raises(ValueError, match="calibrate: expected 'auto', 'temperature'"):
        fit_class_calibration(*drawn(20, 3, 1.0), "scale")
    with pytest.raises(ValueError, match=r"proba: expected shape \(n, C\)"):
        fit_class_calibration([0, 1], [[0.5, 0.5]])
    with pytest.raises(ValueError, match="calibration: expected one of"):
        class_calibration_from_state({"name": "other"})
