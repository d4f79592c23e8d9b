"""In which space the block solver works, and the size of its preconditioner, by a count of operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from vastgp import _accelerator
from vastgp.fitting.clock import now
from vastgp.likelihoods import Likelihood
from vastgp.linalg.device_cholesky import (
    belongs_on_device,
    is_faster,
    product_rate,
    rows_on_device,
    seconds_on_device,
)
from vastgp.solvers.preconditioners import PRECONDITIONER_BYTES

# Making one feature costs as much as about 180 operations of a matrix product (measured, float32, CPU) and the product
# of the inputs with its frequency.
_FEATURE_COST = 180
# A matrix that is factorised whole may cost this many times an iterative solution: it cannot stall.
_EXACT_FACTOR = 3.0
# A preconditioner takes up to so many times as long as its ``2 n k^2`` operations do in a matrix product (4 to 8 times
# for ranks in the thousands, measured on two cores; more for small ones, which are quick in any case).
_SLOWER_THAN_PRODUCT = 10.0
# What a solution takes beside its count of operations, and the ratio of numbers of functions that are tried.
_SLOWER_THAN_COUNTED, _FEWER = 3.0, 1.1
_TIMED = 768  # rows of the matrix product that is timed


class Plan(NamedTuple):
    """Which space to solve in, and the size of the preconditioner there."""

    space: str
    rank: int


def rows_of_functions(rows: int, likelihood: Likelihood) -> int:
    """Return with how many rows factorisations for each function of a likelihood cost what they do for one."""
    return int(rows / likelihood.num_latent ** (1.0 / 3.0))


def plan(
    n: int,
    num_basis: int,
    columns: int,
    itemsize: int,
    rank: int | None = None,
    num_features: int = 10,
) -> Plan:
    """Choose the space and the preconditioner by a count of operations.

    Where forming and factorising the matrix itself costs at most _EXACT_FACTOR times as much, that is done: it
    needs two products whatever the conditioning.

    In the space of the rows a Nystrom preconditioner of rank k costs ``2 n k^2`` and about 15 products follow; more
    where memory allows less than the rank that balances the two. In the space of the basis functions the Gram
    matrix of ``R`` rows costs ``R m^2``, holds m^2 numbers, and leaves eigenvalues within ``(1 +- sqrt(m / R))^-2``
    (Marchenko and Pastur 1967), from which the number of products follows; R runs over ``2 m, 4 m, ...`` and all rows,
    which leave 2 products.
    """
    return _cheapest(n, num_basis, columns, itemsize, rank, num_features)[0]


def _cheapest(
    n: int, m: int, columns: int, itemsize: int, rank: int | None, num_features: int
) -> tuple[Plan, float]:
    """Return the plan and its operations, see `plan`."""
    product = n * m * _per_entry(columns, num_features)
    row_rank, row_cost = plan_rows(n, m, columns, itemsize, rank, num_features)
    samples = [m * 2**k for k in range(1, 8) if m * 2**k < n]
    costs = {R: R * m**2 + m**3 / 3 + _products(m / R) * product for R in samples}
    costs[n] = n * m**2 + m**3 / 3 + 2 * product
    sampled = min(costs, key=costs.__getitem__)
    basis_fits = itemsize * m**2 <= PRECONDITIONER_BYTES
    if basis_fits and m < n and costs[sampled] < row_cost:
        return Plan("basis", sampled), costs[sampled]
    return Plan("rows", row_rank), row_cost


def plan_rows(
    n: int,
    num_basis: int,
    columns: int,
    itemsize: int,
    rank: int | None = None,
    num_features: int = 10,
) -> tuple[int, float]:
    """Return the rank of the preconditioner in the space of the rows, and the operations of a solution (see `plan`)."""
    per_row = num_basis * _per_entry(columns, num_features)
    best = int(per_row**0.5)
    fits = max(1, PRECONDITIONER_BYTES // (itemsize * n))
    chosen = min(n, best, fits) if rank is None else min(n, rank)
    cost = 2.0 * n * chosen**2 + 15 * n * per_row * max(1.0, min(n, best) / chosen) ** 0.5
    exact_cost = 2.0 * n**2 * num_basis + n**3 / 3 + 2 * n * per_row
    if rank is None and n <= fits and exact_cost <= _EXACT_FACTOR * cost:
        return n, exact_cost
    return chosen, cost


def affordable_rank(n: int, seconds: float) -> int:
    """Return the largest rank of a preconditioner of ``n`` rows that is made in so many seconds on this machine, now.

    The rate is that of a matrix product, see `operations_a_second`.
    """
    rate = operations_a_second()
    return max(1, int((seconds * rate / (2.0 * n * _SLOWER_THAN_PRODUCT)) ** 0.5))


def affordable_basis(
    n: int, most: int, columns: int, itemsize: int, num_features: int, seconds: float
) -> int:
    """Return the most basis functions, ``most`` at most, whose plan takes so many seconds on this machine, now."""
    operations = seconds * operations_a_second() / _SLOWER_THAN_COUNTED
    tried = most
    while tried > 2 and _cheapest(n, tried, columns, itemsize, None, num_features)[1] > operations:
        tried = int(tried / _FEWER)
    return tried


# Operations of a step at m inducing inputs, for each function and m^3, and the seconds that it takes besides (float64,
# minibatches of 500, two cores: 512 inputs 68 ms for one function, 1.05 s for ten; 256 11 and 115; 128 5 and 33).
_OF_INDUCING_STEP, _SECONDS_OF_FUNCTION = 60.0, 2e-3


def affordable_inducing(sizes: Sequence[int], functions: int, itemsize: int, seconds: float) -> int:
    """Return the first of some numbers of inducing inputs with which a step takes so many seconds, or the last.

    Steps factorise matrices and multiply them, for each of the functions; on this machine, now.
    """
    operations = max(seconds / functions - _SECONDS_OF_FUNCTION, 0.0) * operations_a_second()
    each = _OF_INDUCING_STEP * itemsize / 4
    return next((m for m in sizes if each * m**3 <= operations), sizes[-1])


# Beside ``n^3 / 3`` an exact posterior takes so many operations for each pair of rows, by the bytes of a number: the
# weights, a few hundred predictions, and in float32 their refinement and checks.
_EXACT_PER_PAIR = {4: 3300.0, 8: 1000.0}
# What compiling the programs of a factor on an accelerator takes, in seconds, and timing its products.
_COMPILING = 5.0


def operations_of_exact(n: float, itemsize: int) -> float:
    """Return the operations, in those of a float32 product, of the exact posterior of n rows.

    Parameters
    ----------
    n : float
    itemsize : {4, 8}
        Bytes of a number of the factor.
    """
    return (n**3 / 3 + _EXACT_PER_PAIR[itemsize] * n**2) * itemsize / 4


def seconds_of_exact(n: int, itemsize: int) -> float:
    """Return about what the exact posterior of n rows takes on this machine, now: on its accelerator, if it holds them.

    See `operations_of_exact`.
    """
    if belongs_on_device(n, itemsize):
        return seconds_of_exact_on_device(n)
    return operations_of_exact(n, itemsize) / operations_a_second()


def seconds_of_exact_on_device(n: float) -> float:
    """Return about what the exact posterior of n rows takes on the accelerator, compilation and all."""
    pairs = _EXACT_PER_PAIR[8] * n**2 / product_rate()
    return _COMPILING + seconds_on_device(max(1, int(n))) + pairs


def affordable_exact(seconds: float, itemsize: int, enough: int | None = None) -> int:
    """Return of how many rows the exact posterior takes so many seconds on this machine, now; 0 where there is no time.

    See `seconds_of_exact`. Where the host affords ``enough`` rows an accelerator is not asked, which takes seconds.
    """
    operations = seconds * operations_a_second()
    found = int(brentq(lambda n: operations_of_exact(n, itemsize) - operations, 0.0, 1e7))
    held = rows_on_device(itemsize)
    if held is None or seconds <= _COMPILING or (enough is not None and found >= enough):
        return found
    if (itemsize == 8 and not is_faster()) or seconds_of_exact_on_device(found + 1) > seconds:
        return found
    if seconds_of_exact_on_device(held) <= seconds:
        return max(found, held)
    return max(
        found, int(brentq(lambda n: seconds_of_exact_on_device(n) - seconds, found, held, xtol=1.0))
    )


def operations_a_second() -> float:
    """Return the rate of a float32 matrix product on this machine, timed now in some hundredths of a second."""
    block = np.ones((_TIMED, _TIMED), np.float32)
    block @ block  # the threads start
    began = now()
    block @ block
    return float(2.0 * _TIMED**3 / max(now() - began, 1e-9))


def operations_where_arrays_lie() -> float:
    """Return that rate on the accelerator, or on the host where there is none."""
    return product_rate("float32") if _accelerator.is_present() else operations_a_second()


def _per_entry(columns: int, num_features: int) -> float:
    """Return the operations that one product takes for each row and basis function."""
    return 4.0 * columns + _FEATURE_COST + 2.0 * num_features


def _products(share: float) -> float:
    """Return the products that conjugate gradients take to a thousandth, ``m / R = share`` (see `plan`)."""
    root_of_condition = (1.0 + share**0.5) / (1.0 - share**0.5)
    return 0.5 * root_of_condition * float(np.log(2e3))
