"""The annotations of vastgp are enforced while the tests run; without this, a lost hook would go unseen."""

import os

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import typechecking
from vastgp import kernels
from vastgp.kernels.distance import squared_distance

pytestmark = pytest.mark.skipif(
    os.environ.get("VASTGP_TYPECHECK") == "0", reason="annotations are not checked in this run"
)


def test_shapes_that_disagree_are_caught_where_the_call_is_made():
    assert squared_distance(jnp.ones((4, 3)), jnp.ones((2, 3))).shape == (4, 2)
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'Z'"):
        squared_distance(jnp.ones((4, 3)), jnp.ones((2, 5)))


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


def test_calls_of_the_test_before_leave_as_many_to_be_looked_at():
    """What was left of them was carried over: after four of five calls the second of a test went unseen."""
    left = typechecking._Left(3)
    assert left.take()
    assert left.take()
    typechecking.begin_test()
    assert [left.take() for _ in range(4)] == [True, True, True, False]


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


def test_a_form_is_checked_once_and_a_result_of_another_form_is_refused():
    results = [1.0, "2", 3.0]

    @typechecking.limited(typechecker=typechecking.checked)
    def outer(number: float) -> float:
        return results.pop(0)

    assert outer(0.5) == 1.0
    with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
        outer(0.5)  # the same arguments: only the result tells
    assert outer(0.5) == 3.0


def test_what_annotations_tell_apart_has_another_form():
    different = [
        jnp.ones(2), jnp.ones(3), jnp.ones((2, 1)), jnp.ones(2, int), np.ones(2), np.ones(2, "f4"),
        1, 1.0, True, None, "a", "b", int, float, (1,), (1.0,), (1, 2), [1], {"a": 1}, {"b": 1},
        (np.ones(2),), (np.ones(3),),
    ]  # fmt: skip
    forms = [typechecking._form(each) for each in different]
    assert len(set(forms)) == len(forms)
    assert typechecking._form((np.ones(2), 1)) == typechecking._form((np.zeros(2), 2))
