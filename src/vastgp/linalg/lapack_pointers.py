"""SciPy's LAPACK and BLAS by pointers (`scipy.linalg.cython_lapack`, of which XLA has its LAPACK as well).

SciPy's own functions hold Python's lock while they work, or make copies of parts of a matrix; these do neither.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from scipy.linalg import cython_blas, cython_lapack

# One letter of an argument that is read only.
LOWER, TRANSPOSED, PLAIN, LEFT, RIGHT = (
    ctypes.byref(ctypes.c_char(letter)) for letter in (b"L", b"T", b"N", b"L", b"R")
)


@cache
def is_available() -> bool:
    """Whether integers of SciPy's LAPACK are C's, as in all that SciPy itself distributes."""
    return b"int *" in _signature(cython_lapack, "dpotrf")


@cache
def routine(name: str, arguments: int) -> Callable[..., None]:
    """Return a routine of SciPy's LAPACK or BLAS, whose arguments are all pointers; it lets go of Python's lock."""
    module = cython_lapack if name in cython_lapack.__pyx_capi__ else cython_blas
    get = _of_capsule("GetPointer", ctypes.c_void_p, ctypes.c_char_p)
    address: Any = get(module.__pyx_capi__[name], _signature(module, name))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


def integer(value: int) -> Any:
    """Return a pointer to an integer that is read only."""
    return ctypes.byref(ctypes.c_int(value))


def number(value: float) -> Any:
    """Return a pointer to a number that is read only."""
    return ctypes.byref(ctypes.c_double(value))


def _signature(module: Any, name: str) -> bytes:
    found: bytes = _of_capsule("GetName", ctypes.c_char_p)(module.__pyx_capi__[name])
    return found


def _of_capsule(name: str, result: type, *arguments: type) -> Callable[..., Any]:
    # by its name as an item: an object of its own, as types of arguments are set on it
    function = ctypes.pythonapi[f"PyCapsule_{name}"]
    function.restype, function.argtypes = result, (ctypes.py_object, *arguments)
    return function
