"""The record counts what happened, and says where intervals do not hold."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import ndtr

from vastgp.auto.calibration_record import CalibrationRecord, calibration_record


@pytest.fixture(scope="module")
def wrong():
    """Rows of which those of one level are stated three times too narrow."""
    rng = np.random.default_rng(0)
    n = 2000
    kind = rng.choice(["good", "bad", None], n, p=[0.7, 0.2, 0.1])
    x = rng.uniform(size=n)
    std = np.exp(rng.standard_normal(n))
    z = rng.standard_normal(n) * np.where(kind == "bad", 3.0, 1.0)
    X = np.stack([x.astype(object), kind], axis=1)
    return z, kind, x, calibration_record(z * std, np.zeros(n), std, ndtr(z), X, ["x", "kind"])


def test_coverage_is_the_fraction_of_rows_inside(wrong):
    z, kind, x, record = wrong
    for one, half in zip(record.overall, (0.6745, 1.2816, 1.6449, 1.96), strict=True):
        assert one.coverage == pytest.approx(np.mean(np.abs(z) <= half), abs=1e-3)
        assert one.error == np.sqrt(one.level * (1 - one.level) / 2000)
    by_kind = {one.group: one for one in record.by_input["kind"]}
    assert set(by_kind) == {"kind is good", "kind is bad", "kind is missing"}
    bad = kind == "bad"
    assert by_kind["kind is bad"].rows == bad.sum()
    assert by_kind["kind is bad"].coverage == np.mean(np.abs(z[bad]) <= 1.6448536)
    assert [one.rows for one in record.by_input["x"]] == [200] * 10
    lowest = x <= np.sort(x)[199]
    assert record.by_input["x"][0].coverage == np.mean(np.abs(z[lowest]) <= 1.6448536)
    assert sum(one.rows for one in record.by_std) == 2000 == sum(record.pit_counts)


def test_flags_name_what_is_wrong_in_words(wrong):
    first = wrong[3].flags[0]
    assert first.startswith("90 % intervals hold ") and first.endswith(": too narrow")
    assert "rows where kind is bad" in first
    rng = np.random.default_rng(1)
    n = 4000
    flags = sum(
        len(calibration_record(np.zeros(n), np.zeros(n), np.ones(n), u, u[::-1, None]).flags)
        for u in rng.uniform(size=(30, n))
    )
    # 24 coverages in each of 30 records: 720, of which 0.3 % pass three standard errors, binomials being skewed
    assert flags <= 720 * 0.004 + 4 * np.sqrt(720 * 0.004)


def test_records_come_back_from_json(wrong):
    record = wrong[3]
    assert CalibrationRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record


def test_lengths_are_checked():
    with pytest.raises(ValueError, match="u: expected one value a row as y"):
        calibration_record([1.0, 2.0], [1.0, 2.0], [1.0, 1.0], [0.5])
    with pytest.raises(ValueError, match="at least one held-out row"):
        calibration_record([], [], [], [])
