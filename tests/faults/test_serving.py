"""One model asked by many at once, and many times."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fault_child import answers, small_table
from promises import quick


@pytest.fixture(scope="module")
def model():
    X, y, _ = small_table(classes=False)
    return quick("ExactGPRegressor", X).fit(X, y)


def test_eight_threads_are_told_what_one_is(model):
    new = small_table(classes=False)[2]
    wanted = answers(model, new)
    with ThreadPoolExecutor(8) as threads:
        for found in threads.map(lambda _: answers(model, new), range(64)):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_many_predictions_of_one_row_take_no_memory(model):
    """A leak of four kilobytes for each would be 4 MB."""
    new = small_table(classes=False)[2]

    def pages():
        return int(Path("/proc/self/statm").read_text().split()[1])

    for _ in range(200):
        model.predict(new[:1])
    before = pages()
    for case in range(1000):
        model.predict(new[case % 20][None])
    assert (pages() - before) * 4096 < 2e6
