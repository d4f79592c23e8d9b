"""What memory does not hold is a MemoryError, and the model stays as it was."""

import jax.numpy as jnp
import numpy as np
import pytest

from fault_child import answers, small_table
from promises import quick
from vastgp._precision import precision
from vastgp.methods.exact.estimator import ExactGPRegressor


def _too_much(*_):
    return jnp.zeros((10**7, 10**7)).block_until_ready()


def test_what_jax_cannot_allocate_is_a_memory_error():
    with (
        pytest.raises(MemoryError, match=r"Out of memory allocating .* Use fewer rows"),
        precision("float32"),
    ):
        _too_much()


def test_a_fit_that_memory_does_not_hold_leaves_the_model(monkeypatch):
    X, y, new = small_table(classes=False)
    model = quick("ExactGPRegressor", X).fit(X, y)
    before = answers(model, new)
    with monkeypatch.context() as patched:
        patched.setattr(ExactGPRegressor, "_answers", _too_much)
        with pytest.raises(MemoryError, match="Out of memory"):
            model.fit(X[:30], y[:30])
    np.testing.assert_array_equal(answers(model, new), before)
