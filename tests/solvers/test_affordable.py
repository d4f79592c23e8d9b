"""Sizes that a budget affords, by a rate that is given here."""

import pytest

from vastgp.solvers import plan as module
from vastgp.solvers.plan import affordable_basis, affordable_inducing, plan


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


def test_so_many_inducing_inputs_as_a_step_has_time_for(rate):
    sizes = (512, 256, 128)
    for itemsize, functions in ((8, 1), (4, 1), (8, 10)):
        # 60 m^3 operations for each function, twice as slow in double precision, and 2 ms
        exact = [functions * (60.0 * m**3 * itemsize / 4 / rate + 2e-3) for m in sizes]
        for m, seconds in zip(sizes, exact, strict=True):
            assert affordable_inducing(sizes, functions, itemsize, 1.001 * seconds) == m
            assert affordable_inducing(sizes, functions, itemsize, 0.999 * seconds) == max(
                m // 2, 128
            )
    assert affordable_inducing(sizes, 1, 8, 0.0) == 128


def test_an_accelerator_is_asked_where_it_may_have_more_rows_than_the_host(rate, monkeypatch):
    on_host = {seconds: module.affordable_exact(seconds, 8) for seconds in (2.0, 60.0)}
    asked = []

    def measured():
        asked.append("rate")
        return 4e13

    monkeypatch.setattr(module, "rows_on_device", lambda itemsize: 100_000)
    monkeypatch.setattr(module, "is_faster", lambda: True)
    monkeypatch.setattr(module, "product_rate", measured)
    monkeypatch.setattr("vastgp.linalg.device_cholesky.product_rate", measured)
    # its programs take longer to compile than there is time; more rows than anybody asks for
    assert module.affordable_exact(2.0, 8) == on_host[2.0]
    assert module.affordable_exact(60.0, 8, enough=1000) == on_host[60.0]
    assert not asked
    n = module.affordable_exact(9.0, 8)
    assert on_host[60.0] < n < 100_000
    assert module.seconds_of_exact_on_device(n) == pytest.approx(9.0, rel=0.02)
    assert module.affordable_exact(3600.0, 8) == 100_000
    # a card that is slower than the host in float64 is none
    monkeypatch.setattr(module, "is_faster", lambda: False)
    assert module.affordable_exact(60.0, 8) == on_host[60.0]
