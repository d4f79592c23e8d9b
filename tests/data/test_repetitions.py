"""Which rows repeat each other is a question of the rows, not of their order or of how sums are rounded."""

import numpy as np
import pytest

from several_processes import in_threads
from vastgp.data import nearly_repeated
from vastgp.data.repetitions import Cells
from vastgp.data.shared_rows import SharedArray


def _same_partition(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two numberings are of the same groups: each pair of rows is together in both, or in none."""
    return bool(np.array_equal(one[:, None] == one, other[:, None] == other))


@pytest.mark.parametrize("columns", [1, 3, 8, 21])
def test_rows_that_repeat_each_other_are_one_group_wherever_they_stand(columns):
    """A product with a matrix adds up the last rows in another order than the first: a third of them were split."""
    generator = np.random.default_rng(columns)
    for rows in range(2, 30):
        places = generator.normal(size=(rows, columns))
        places[:, 0] = np.arange(rows) + 0.5  # far from each other
        number = np.concatenate([np.arange(rows), generator.integers(rows, size=2 * rows + 1)])
        assert _same_partition(nearly_repeated(places[number]), number)


def test_groups_are_the_same_in_any_order_of_the_rows():
    generator = np.random.default_rng(0)
    for columns in (1, 2, 5):
        # many rows are near the ends of cells, wherever these begin
        matrix = np.repeat(generator.uniform(size=(40, columns)), 3, axis=0)
        matrix += 0.002 * generator.normal(size=matrix.shape)
        found = nearly_repeated(matrix)
        assert 1 < len(np.unique(found)) < len(matrix)
        for _ in range(5):
            order = generator.permutation(len(matrix))
            assert _same_partition(nearly_repeated(matrix[order]), found[order])


@pytest.mark.parametrize("count", [1, 2])
def test_many_float32_rows_far_from_zero_are_grouped_as_in_float64(monkeypatch, count):
    """Sums in float32 took a deviation of 100 for 470, and 858 rows for repetitions of others."""
    generator = np.random.default_rng(0)
    matrix = (1e6 + 100.0 * generator.normal(size=(100_000, 2))).astype(np.float32)
    expected = Cells.of(matrix.astype(np.float64))
    half = len(matrix) // 2

    def cells(number):
        if count == 1:
            return Cells.of(matrix)
        return Cells.of(SharedArray(matrix[number * half : (number + 1) * half], [half, half]))

    for found in in_threads(monkeypatch, count, cells):
        np.testing.assert_array_equal(found.low, expected.low)
        np.testing.assert_allclose(found.width, expected.width, rtol=1e-9)
        np.testing.assert_array_equal(
            expected.keys(matrix), expected.keys(matrix.astype(np.float64))
        )
