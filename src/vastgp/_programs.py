"""Compiled programs: those of little work are compiled in a quarter of the time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax

from vastgp import _accelerator

# What XLA's CPU compiler is told where a program has little work: it leaves out LLVM's optimisation and its slower way
# of writing loops. The products of matrices are those of a library and stay as fast; all else runs up to ten times as
# long, some 20 ns for a random Fourier feature and 100 ns for a normal number.
_EMITTERS, _LEVEL = "xla_cpu_use_fusion_emitters", "xla_backend_optimization_level"
_UNKNOWN = "No such compile option"
_asks: list[bool] = []
# Numbers that a program makes or reads, up to which its work is little: 40 ms for features, where compilation takes
# 50 to 150 ms instead of 250 to 700.
LITTLE_WORK = 1 << 21


def program(
    function: Callable[..., Any] | None = None,
    *,
    work: Callable[..., int] | None = None,
    filtered: bool = False,
    **options: Any,
) -> Any:
    """Compile a function as `jax.jit` does, quickly for arguments with which it has little work.

    Compilation is most of a fit to some hundred rows. The two programs differ by rounding, and one is made
    for each kind of arguments, so that results do not depend on what ran before. Within another program, and on
    anything but a CPU, this is `jax.jit`.

    Parameters
    ----------
    function : callable
    work : callable, optional
        Given the same arguments, how many numbers are made or read; None: the size of all arrays among them.
    filtered : bool, default False
        Compile as `equinox.filter_jit` does, which takes arguments of any type.
    **options
        Of `jax.jit` or `equinox.filter_jit`.
    """
    if function is None:
        return functools.partial(program, work=work, filtered=filtered, **options)
    if filtered:
        import equinox as eqx

        compiler: Callable[..., Any] = eqx.filter_jit
    else:
        compiler = jax.jit
    whole = compiler(function, **options)
    size = work or numbers

    @functools.cache
    def quick(probed: bool) -> Any:
        found = known_options(0) if probed else _wanted(0)
        return compiler(function, **options, compiler_options=found)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves = jax.tree.leaves((args, kwargs))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return whole(*args, **kwargs)  # part of another program
        if _accelerator.is_present() or size(*args, **kwargs) > LITTLE_WORK:
            return whole(*args, **kwargs)
        try:
            # the first program proves the options: one that only asks for them is a tenth of a second of a start
            return quick(_must_ask())(*args, **kwargs)
        except jax.errors.JaxRuntimeError as error:
            if _must_ask() or _UNKNOWN not in str(error):
                raise
            _asks.append(True)
            return quick(True)(*args, **kwargs)

    return call


def options_of_steps(work: int) -> Mapping[str, Any]:
    """Return the options for a program that runs many times: half of the time of compilation, and no slower.

    Parameters
    ----------
    work : int
        Numbers made by one step; beyond `LITTLE_WORK`, and on anything but a CPU, there are no options.
    """
    return {} if _accelerator.is_present() or work > LITTLE_WORK else known_options(1)


@functools.cache
def known_options(level: int) -> dict[str, Any]:
    """Return those options of a quick compilation that this compiler has: their names are no part of JAX's promises."""
    wanted = _wanted(level)
    if _are_known(wanted):
        return wanted
    return {name: value for name, value in wanted.items() if _are_known({name: value})}


def _wanted(level: int) -> dict[str, Any]:
    return {_LEVEL: level, _EMITTERS: False}


def _must_ask() -> bool:
    """Whether a compiler has refused options, so that each is asked for."""
    return bool(_asks)


def _are_known(options: Mapping[str, Any]) -> bool:
    try:
        jax.jit(_same, compiler_options=dict(options)).lower(0.0).compile()
    except jax.errors.JaxRuntimeError as error:
        if _UNKNOWN not in str(error):
            raise
        return False
    return True


def _same(x: Any) -> Any:
    return x


def numbers(*args: Any, **kwargs: Any) -> int:
    """Return how many numbers arguments hold."""
    return sum(int(getattr(leaf, "size", 1)) for leaf in jax.tree.leaves((args, kwargs)))
