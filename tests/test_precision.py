"""Precision is local: to the block, to the thread, and in both directions."""

import multiprocessing
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision


@pytest.mark.parametrize("outer", ["float32", "float64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_inner_choice_wins_and_the_outer_one_returns(outer, dtype):
    with precision(outer):
        with precision(dtype):
            assert jnp.ones(2).dtype == dtype
            assert jnp.asarray(np.ones(2)).dtype == dtype
        assert jnp.ones(2).dtype == outer


def test_the_setting_of_the_process_is_left_alone():
    before = jax.config.jax_enable_x64
    with pytest.raises(ZeroDivisionError), precision("float64"):
        raise ZeroDivisionError
    assert jax.config.jax_enable_x64 == before
    assert jnp.ones(1).dtype == ("float64" if before else "float32")


def test_other_threads_do_not_see_it():
    seen = []
    with precision("float64"):
        thread = threading.Thread(target=lambda: seen.append(str(jnp.ones(1).dtype)))
        thread.start()
        thread.join()
    assert seen == ["float32"]


def test_a_compiled_function_follows_the_block():
    root = jax.jit(lambda x: jnp.sqrt(x))
    two = np.float64(2.0)
    with precision("float64"):
        assert abs(float(root(two)) - np.sqrt(2.0)) < 1e-15
    with precision("float32"):
        assert root(two).dtype == "float32"
        assert 0 < abs(float(root(two)) - np.sqrt(2.0)) < 1e-6


def test_random_bits_do_not_depend_on_the_surrounding_program():
    def draw():
        with precision("float32"):
            return np.asarray(jax.random.normal(jax.random.key(3), (5,)))

    alone = draw()
    with precision("float64"):
        inside = draw()
    np.testing.assert_array_equal(alone, inside)


@pytest.mark.parametrize("bad", ["float16", "double", "", None, 32, np.float32, jnp.float64])
def test_a_dtype_that_is_not_offered_is_named(bad):
    message = (
        r"dtype must be 'float32' or 'float64', received .*float64' when a factorisation fails"
    )
    with pytest.raises(ValueError, match=message) as caught, precision(bad):
        pass
    assert repr(bad) in str(caught.value)


def _in_a_fork(answers):
    try:
        with precision("float64"):
            answers.put("went on")
    except RuntimeError as error:
        answers.put(str(error))


def test_a_fork_of_a_process_that_used_jax_is_refused():
    with precision("float64"):
        pass
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    child = fork.Process(target=_in_a_fork, args=(answers,))
    with warnings.catch_warnings(action="ignore"):  # of JAX and Python about the same
        child.start()
    assert "get_context('spawn') or 'forkserver'" in answers.get(timeout=30)
    child.join(timeout=30)
