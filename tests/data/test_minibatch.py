"""Minibatches: a pure function of seed and step, uniform over subsets, and as cheap for 10^10 rows as for 10^4."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from vastgp.data import Rows, Standardizer, chunk_of_minibatches, minibatch_indices
from vastgp.data.minibatch import generator

# Gates are at a p-value of 1e-4, with fixed seeds: a right implementation passes, and passes again.
_P = 1e-4


def _subset_counts(n: int, batch: int, pairs: list[tuple[int, int]]) -> np.ndarray:
    number = {subset: i for i, subset in enumerate(itertools.combinations(range(n), batch))}
    counts = np.zeros(len(number))
    for seed, step in pairs:
        counts[number[tuple(sorted(minibatch_indices(seed, step, n, batch).tolist()))]] += 1
    return counts


@pytest.mark.parametrize(("n", "batch"), [(6, 3), (7, 2), (5, 4), (9, 1)])
@pytest.mark.parametrize("vary", ["step", "seed"])
def test_every_subset_is_equally_likely(n: int, batch: int, vary: str) -> None:
    """8,000 draws. All subsets alike is all there is to know: rows, pairs, triples are uniform with them."""
    pairs = [(5, i) if vary == "step" else (i, 5) for i in range(8_000)]
    assert stats.chisquare(_subset_counts(n, batch, pairs)).pvalue > _P


def test_batches_of_successive_steps_are_independent() -> None:
    """Contingency table of the subsets of steps t and t + 1 (disjoint pairs of steps, 8,000 of them)."""
    subsets = {subset: i for i, subset in enumerate(itertools.combinations(range(5), 2))}
    table = np.zeros((10, 10))
    for t in range(0, 16_000, 2):
        first, second = (
            subsets[tuple(sorted(minibatch_indices(3, t + k, 5, 2).tolist()))] for k in (0, 1)
        )
        table[first, second] += 1
    assert stats.chi2_contingency(table).pvalue > _P


@pytest.mark.parametrize(("n", "batch"), [(40_000, 500), (12_000, 3_000), (2_000_003, 10_000)])
def test_rows_are_included_equally_often_in_larger_problems(n: int, batch: int) -> None:
    """Inclusions in 50 stretches of rows over 150 steps: the count of a stretch is hypergeometric, in each step."""
    edges = np.linspace(0, n, 51).astype(int)
    counts = np.zeros(50)
    steps = 150
    for t in range(steps):
        indices = minibatch_indices(11, t, n, batch)
        assert np.unique(indices).size == batch
        counts += np.histogram(indices, edges)[0]
    share = np.diff(edges) / n
    # Without replacement the covariance of the counts is (n - batch)/(n - 1) times the multinomial one.
    statistic = (
        np.sum((counts - steps * batch * share) ** 2 / (steps * batch * share))
        * (n - 1)
        / (n - batch)
    )
    assert _P < stats.chi2.sf(statistic, 49) < 1 - _P


def test_positions_within_a_huge_range_are_uniform() -> None:
    indices = np.concatenate([minibatch_indices(1, t, 10**10, 1000) for t in range(50)])
    assert stats.kstest(indices / 1e10, "uniform").pvalue > _P
    assert stats.chisquare(np.bincount(indices % 64, minlength=64)).pvalue > _P  # low bits too


def test_a_pure_function_of_seed_and_step() -> None:
    forwards = [minibatch_indices(42, t, 1000, 50) for t in range(20)]
    np.random.seed(0)  # noqa: NPY002  (the global state must not matter)
    for t in (19, 3, 0, 11):
        np.testing.assert_array_equal(minibatch_indices(42, t, 1000, 50), forwards[t])
    everything = {tuple(batch.tolist()) for batch in forwards}
    everything |= {tuple(minibatch_indices(43, t, 1000, 50).tolist()) for t in range(20)}
    everything |= {tuple(minibatch_indices(t, 42, 1000, 50).tolist()) for t in range(20)}
    assert len(everything) == 60  # no seed and step share a batch, swapped ones neither


def test_purposes_do_not_share_numbers() -> None:
    assert not np.intersect1d(generator(7, 0, 1).random(1000), generator(7, 0, 2).random(1000)).size


def test_memory_is_that_of_the_batch() -> None:
    """Peak memory of a batch of 1000 from 10^10 rows stays below 200 bytes a row of the batch: no permutation of n."""
    minibatch_indices(0, 0, 10**10, 1000)
    tracemalloc.start()
    minibatch_indices(0, 1, 10**10, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * 1000


def test_a_batch_of_all_rows_is_all_rows_in_order() -> None:
    for batch in (10, 11, 10**9):
        assert minibatch_indices(0, 3, 10, batch).tolist() == list(range(10))
    assert minibatch_indices(0, 3, 10, 9).dtype == np.int64


@pytest.mark.parametrize("arguments", [(0, 0, 0, 1), (0, 0, 5, 0)])
def test_nothing_to_draw_from(arguments: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="expected at least 1 of each"):
        minibatch_indices(*arguments)


def test_negative_seed_or_step() -> None:
    with pytest.raises(ValueError, match="seed=-1 and step=0: expected integers from 0"):
        minibatch_indices(-1, 0, 5, 2)


@pytest.mark.statistical
def test_sums_over_minibatches_are_unbiased() -> None:
    """(n / b) sum over a batch of f(x_i) has the sum over all rows as its mean: 4,000 draws, 4 standard errors."""
    f = np.random.default_rng(0).lognormal(size=300)
    draws = np.array([300 / 20 * f[minibatch_indices(9, t, 300, 20)].sum() for t in range(4000)])
    error = draws.std(ddof=1) / np.sqrt(draws.size)
    assert abs(draws.mean() - f.sum()) < 4 * error
    # And the variance is that of sampling without replacement: n^2 (1 - b/n) s^2 / b.
    expected = 300**2 * (1 - 20 / 300) * f.var(ddof=1) / 20
    assert draws.var(ddof=1) == pytest.approx(expected, rel=4 * np.sqrt(2 / 4000) * 1.5)


class TestChunk:
    rng = np.random.default_rng(5)
    rows = Rows(rng.normal(size=(200, 3)) * [1, 10, 100] + 7, rng.normal(size=200) * 5 + 3)
    scaling = Standardizer().fit(rows)

    def test_holds_the_standardised_rows_of_its_steps(self) -> None:
        X, y = chunk_of_minibatches(self.rows, self.scaling, 1, 40, 5, 30, np.float64)
        for t in range(5):
            indices = minibatch_indices(1, 40 + t, 200, 30)
            np.testing.assert_array_equal(X[t], self.scaling.transform_X(self.rows.X[indices]))
            np.testing.assert_array_equal(y[t], self.scaling.transform_y(self.rows.y[indices]))

    def test_chunks_join_without_a_seam(self) -> None:
        whole = chunk_of_minibatches(self.rows, self.scaling, 1, 0, 9, 30)
        parts = [
            chunk_of_minibatches(self.rows, self.scaling, 1, s, k, 30) for s, k in ((0, 4), (4, 5))
        ]
        for i in (0, 1):
            np.testing.assert_array_equal(whole[i], np.concatenate([part[i] for part in parts]))
        assert whole[0].dtype == whole[1].dtype == np.float32

    def test_a_full_batch_is_every_row_in_every_step(self) -> None:
        X, y = chunk_of_minibatches(self.rows, self.scaling, 1, 0, 2, 1000, np.float64)
        for t in range(2):
            np.testing.assert_array_equal(X[t], self.scaling.transform_X(self.rows.X))
            np.testing.assert_array_equal(y[t], self.scaling.transform_y(self.rows.y))

    def test_needs_targets(self) -> None:
        with pytest.raises(ValueError, match="rows have no targets"):
            chunk_of_minibatches(Rows(self.rows.X), self.scaling, 1, 0, 2, 10)
