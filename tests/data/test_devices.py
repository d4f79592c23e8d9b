"""Over how many devices of a process work is dealt out."""

import jax
import numpy as np
import pytest

from vastgp.data import devices
from vastgp.data.devices import LEAST_WORK, devices_for


@pytest.fixture
def eight(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: list(range(8)))


def test_little_work_is_of_one_device_and_much_of_all(eight):
    found = [devices_for(work * LEAST_WORK, 64) for work in (0.0, 1.9, 2.0, 4.5, 7.9, 8.0, 1e9)]
    assert found == [1, 1, 2, 4, 4, 8, 8]


def test_each_device_has_the_same_number(eight):
    """The most devices by which all sizes divide."""
    found = [devices_for(1e12, *sizes) for sizes in ((500,), (48, 36), (21, 8), (7,))]
    assert found == [5, 6, 1, 7]


def test_rows_that_one_device_does_are_left_as_they_are(eight):
    rows = np.ones((64, 2)), np.ones(64), None
    assert devices.rows_over_devices(rows, 0.9 * LEAST_WORK / 64) is rows
