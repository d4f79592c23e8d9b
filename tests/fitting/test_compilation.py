"""Programs that nobody asks for again go before they fill the memory."""

import jax.numpy as jnp
import numpy as np
import pytest

import vastgp
from vastgp._programs import program
from vastgp.fitting import compilation


def test_programs_of_many_shapes_are_let_go_of_when_another_fit_begins(monkeypatch):
    """1.4 to 2 MB each stayed for good: fifty fits to tables of other columns took 600 MB."""
    monkeypatch.setattr(compilation, "_MOST_PROGRAMS", 4)
    monkeypatch.setattr(compilation, "_stayed", [compilation._held()])
    sums = program(lambda x: jnp.sum(x**2))
    found = [float(sums(np.ones(n))) for n in range(1, 7)]
    before = compilation._held()
    with pytest.raises(KeyboardInterrupt):
        vastgp.RelevanceVectorRegressor()._fit_whole(_interrupted)
    assert compilation._held() <= before - 6
    assert [float(sums(np.ones(n))) for n in range(1, 7)] == found == [1, 2, 3, 4, 5, 6]


def _interrupted(model):
    raise KeyboardInterrupt
