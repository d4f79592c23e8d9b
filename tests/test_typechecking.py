"""The annotations of vastgp are enforced while the tests run; without this, a lost hook would go unseen."""

import os

import jax.numpy as jnp
import jaxtyping
import pytest

import typechecking
from vastgp import kernels

pytestmark = pytest.mark.skipif(
    os.environ.get("VASTGP_TYPECHECK") == "0", reason="annotations are not checked in this run"
)


def test_shapes_that_disagree_are_caught_where_the_call_is_made():
    kernel = kernels.RBF()
    assert kernel(jnp.ones((4, 3)), jnp.ones((2, 3))).shape == (4, 2)
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'Z'"):
        kernel(jnp.ones((4, 3)), jnp.ones((2, 5)))


def test_an_integer_passes_for_a_float_and_text_does_not():
    kernel = kernels.RBF(lengthscales=2, variance=1)
    kernel.in_units(jnp.ones(3), 2)
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'y_scale'"):
        kernel.in_units(jnp.ones(3), "2")


def test_calls_beyond_the_first_are_checked_again_in_the_next_test():
    kernel = kernels.RBF()
    for _ in range(typechecking.CALLS):
        kernel.in_units(jnp.ones(3), 2)
    with pytest.raises(TypeError, match="unsupported operand"):  # the body's own word
        kernel.in_units(jnp.ones(3), "2")
    typechecking.begin_test()
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'y_scale'"):
        kernel.in_units(jnp.ones(3), "2")


def test_functions_inside_others_are_checked_where_they_are_defined_first():
    defined = []
    for _ in range(typechecking.DEFINITIONS + 1):

        @typechecking.limited(typechecker=typechecking.checked)
        def inner(number: float) -> float:
            return number

        defined.append(inner)
    *first, last = defined
    for each in first:
        with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'number'"):
            each("2")
    assert last("2") == "2"
