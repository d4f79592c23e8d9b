"""Sizes that a budget affords, by a rate that is given here."""

import pytest

from vastgp.solvers import plan as module
from vastgp.solvers.plan import affordable_basis, plan


@pytest.fixture
def rate(monkeypatch):
    """A machine of a hundred billion operations a second."""
    monkeypatch.setattr(module, "operations_a_second", lambda: 1e11)
    return 1e11


def test_the_plan_of_the_functions_takes_the_time_and_that_of_more_does_not(rate):
    n, columns, d = 50_000, 33, 4
    for seconds in (1.0, 10.0, 100.0):
        found = affordable_basis(n, 100_000, columns, 4, d, seconds)
        cost = module._cheapest(n, found, columns, 4, None, d)[1]
        more = module._cheapest(n, int(1.11 * found) + 1, columns, 4, None, d)[1]
        assert module._SLOWER_THAN_COUNTED * cost <= seconds * rate
        assert found == 100_000 or module._SLOWER_THAN_COUNTED * more > seconds * rate
        assert (
            plan(n, found, columns, 4, None, d)
            == module._cheapest(n, found, columns, 4, None, d)[0]
        )


def test_more_time_affords_more_and_never_beyond_what_was_planned(rate):
    sizes = [affordable_basis(20_000, 80_000, 33, 4, 10, s) for s in (0.01, 0.1, 1.0, 10.0, 1e6)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] == 80_000
