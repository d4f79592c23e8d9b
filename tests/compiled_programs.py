"""What a compiled program consists of, and how many are made."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

_COMPILED = "/jax/core/compile/jaxpr_to_mlir_module_duration"  # also where the machine code is found on disk
_FACTORISATIONS = {"cholesky", "lu", "qr", "geqrf", "eigh", "svd", "triangular_solve"}


@contextmanager
def count_programs() -> Iterator[Callable[[], int]]:
    """Give a function that returns how many programs were made in the block so far."""
    made = []

    def note(event: str, seconds: float, **_: Any) -> None:
        if event == _COMPILED:
            made.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield lambda: len(made)
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


def batched_factorisations(function: Callable[..., Any], *args: Any) -> list[str]:
    """Return the factorisations of more than one matrix at once in the program of ``function(*args)``.

    XLA's CPU executor can hang in them (CONTRIBUTING.md).
    """
    found = []
    for equation in _equations(jax.make_jaxpr(function)(*args).jaxpr):
        name = equation.primitive.name
        if name in _FACTORISATIONS and equation.invars[0].aval.ndim > 2:
            found.append(f"{name} of {equation.invars[0].aval.shape}")
    return found


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of a program and of those within it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(equation.params, is_leaf=_is_program):
            if _is_program(inner):
                yield from _equations(getattr(inner, "jaxpr", inner))


def _is_program(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns")
