"""Programs of little work are compiled with other options, for themselves alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp import _programs
from vastgp._programs import LITTLE_WORK, known_options, program


def _compiled_with(monkeypatch, function, *args, **how):
    """Return what a program gives, and the options of every program that was made for it."""
    made = []
    real = jax.jit

    def jit(fun, **options):
        def call(*args, **kwargs):
            made.append(options.get("compiler_options"))
            return real(fun, **options)(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(jax, "jit", jit)
        compiled = program(function, **how)
    return compiled(*args), made


def test_little_work_is_compiled_quickly_and_much_is_not(monkeypatch):
    x = np.linspace(0.0, 1.0, 5)
    known_options(0)
    found, made = _compiled_with(monkeypatch, jnp.exp, x, work=lambda x: LITTLE_WORK)
    whole, made_whole = _compiled_with(monkeypatch, jnp.exp, x, work=lambda x: LITTLE_WORK + 1)
    assert made == [known_options(0)]
    assert made_whole == [None]
    np.testing.assert_allclose(found, np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(whole, np.exp(x), rtol=1e-6)


def test_within_another_program_a_program_is_part_of_it():
    double = program(lambda x: 2.0 * x)
    assert float(jax.jit(lambda x: double(x) + 1.0)(3.0)) == 7.0
    assert float(jax.grad(double)(3.0)) == 2.0
    np.testing.assert_array_equal(jax.vmap(double)(np.arange(3.0)), [0.0, 2.0, 4.0])


def test_options_that_the_compiler_does_not_know_are_left_out(monkeypatch):
    if jax.default_backend() != "cpu":
        pytest.skip("there are no options but on a CPU")
    monkeypatch.setattr(_programs, "_EMITTERS", "xla_cpu_nobody_has_this")
    monkeypatch.setattr(_programs, "_asks", [])
    known_options.cache_clear()
    try:
        # asked for when the first program is refused
        np.testing.assert_allclose(program(jnp.exp)(np.zeros(3)), 1.0)
        assert _programs._asks == [True]
        assert known_options(0) == {"xla_backend_optimization_level": 0}
    finally:
        known_options.cache_clear()
