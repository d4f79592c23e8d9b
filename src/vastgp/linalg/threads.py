"""How many threads linear algebra on the host uses: one for what is small, and all where they are worth it."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

# Up to this many rows one thread. Two are at most a third faster there (factor and inverse: n = 300: 1.8 ms against 1.4
# ms of one, n = 1000: 21 ms against 29 ms), and where other programs use the cores, as in a cross-validation, threads
# of OpenBLAS wait for each other by spinning (n = 300: 13 ms against 1.5 ms, n = 1000: 810 ms against 34 ms).
_MOST_ROWS_ON_ONE_THREAD = 1000

# ``deal(work, parts)`` calls ``work(part)`` of each part.
Deal = Callable[[Callable[[Any], None], Sequence[Any]], None]


@contextmanager
def blas_threads(num_rows: int) -> Iterator[None]:
    """Use one BLAS thread inside the block when matrices are small, and as many as before otherwise."""
    if num_rows > _MOST_ROWS_ON_ONE_THREAD:
        yield
    else:
        with _LIMIT:
            yield


def threads_of_products(rows: np.ndarray) -> AbstractContextManager[None]:
    """Use one BLAS thread inside the block when products ``rows^T rows`` take no longer than those of small matrices.

    Parameters
    ----------
    rows : ndarray of shape (n, p)
    """
    n, p = rows.shape
    return blas_threads(round((float(n) * p * p) ** (1.0 / 3.0)))


@contextmanager
def one_blas_thread() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Use one BLAS thread inside the block, but as many as before in what the context manager given surrounds.

    For an optimiser of few numbers, whose own work is nothing: a step of L-BFGS over 7 of them took 2.4 ms of two busy
    cores.
    """
    with _LIMIT:
        yield _lifted


@contextmanager
def _lifted() -> Iterator[None]:
    _LIMIT.give()
    try:
        yield
    finally:
        _LIMIT.take()


def cores() -> int:
    """Return how many cores the process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def own_threads() -> int:
    """Return how many threads of our own may work, each with one of BLAS: as many as BLAS may have."""
    known = [each.get_num_threads() for each in _blas().lib_controllers]
    most = max(known, default=cores())
    return min(cores(), most)


def _one_after_the_other(work: Callable[[Any], None], parts: Sequence[Any]) -> None:
    for part in parts:
        work(part)


@contextmanager
def dealing_threads(threads: int) -> Iterator[Deal]:
    """Give what deals parts of work out to threads, this one among them, and returns when all are done.

    Each has one thread of BLAS.
    """
    with one_blas_thread():
        if threads == 1:
            yield _one_after_the_other
            return
        with ThreadPoolExecutor(threads - 1) as pool:

            def deal(work: Callable[[Any], None], parts: Sequence[Any]) -> None:
                left = deque(parts)

                def take() -> None:
                    while True:
                        try:
                            part = left.popleft()
                        except IndexError:
                            return
                        work(part)

                others = []
                for _ in range(min(threads, len(parts)) - 1):
                    try:
                        others.append(pool.submit(take))
                    except RuntimeError:
                        break  # there is no memory for another thread: those that there are do its work
                take()
                for other in others:
                    other.result()

            yield deal


class _Limit:
    """One thread for all that ask for it, from the first of them to the last: the number is that of the process.

    Each on its own would find the other's one thread there and leave it behind: two fits in threads, of which the first
    ends before the second, left all later ones on one.
    """

    def __init__(self) -> None:
        self._lock, self._holders = threading.Lock(), 0
        self._limiter: Any = None

    def take(self) -> None:
        """Set one thread, if nobody has."""
        with self._lock:
            # asking is a tenth of the time of setting a limit and lifting it
            if self._holders == 0 and any(
                each.get_num_threads() != 1 for each in _blas().lib_controllers
            ):
                self._limiter = _blas().limit(limits=1, user_api="blas")
            self._holders += 1

    def give(self) -> None:
        """Set as many as before, if nobody else needs one."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._limiter is not None:
                self._limiter.restore_original_limits()
                self._limiter = None

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *_: object) -> None:
        self.give()


_LIMIT = _Limit()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")
