"""How annotations of vastgp are checked while the tests run."""

import functools
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

# PEP 484's numeric tower: an int is welcome where a float is asked for, as every reader of `noise: float = 1` expects.
_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))

# How many calls of a function are checked in a test, and how many of the functions that a call defines inside itself.
# What a loop calls a thousand times has the same annotations each time: checking all of them was half of the time of
# what is computed by NumPy, and a function defined inside another one is a program for beartype to write each time.
CALLS, DEFINITIONS = 5, 1

_whole = jaxtyping.jaxtyped
_spent: list["_Left"] = []
_inner: dict[Any, "_Left"] = {}


class _Left:
    """How often something is still checked in the test that runs."""

    __slots__ = ("most", "number")

    def __init__(self, most: int) -> None:
        self.most = self.number = most

    def take(self) -> bool:
        """Say whether it is checked once more, and count that."""
        if self.number == 0:
            return False
        self.number -= 1
        if self.number == 0:
            _spent.append(self)
        return True


def begin_test() -> None:
    """Check everything anew."""
    for left in _spent:
        left.number = left.most
    _spent.clear()


def limited(fn: Any = None, *, typechecker: Any) -> Any:
    """Do what `jaxtyping.jaxtyped` does, for the first calls in each test."""
    if fn is None:
        return functools.partial(limited, typechecker=typechecker)
    code = getattr(fn, "__code__", None)
    if code is None or fn.__name__ == "__init__":  # a class calls its own once an object
        return _whole(fn, typechecker=typechecker)
    if "<locals>" in fn.__qualname__ and not _inner.setdefault(code, _Left(DEFINITIONS)).take():
        return fn
    checking, left = _whole(fn, typechecker=typechecker), _Left(CALLS)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return (checking if left.number and left.take() else fn)(*args, **kwargs)

    return call


def checked(function: Any) -> Any:
    """Check a function's annotations, but for those of constructors that declare what they refuse by themselves."""
    declares = "Annotated[" in str(getattr(function, "__annotations__", "")) or _is_alias(function)
    return function if function.__name__ == "__init__" and declares else _checked(function)


def _is_alias(function: Any) -> bool:
    names = set(map(str, getattr(function, "__annotations__", {}).values()))
    return bool(names & {"Tolerance", "MaxSeconds", "Seed", "Dtype", "Verbose"})


def install() -> None:
    """Check what is imported from vastgp from now on."""
    # instrumented modules look the decorator up in `jaxtyping` when they are executed
    jaxtyping.jaxtyped = limited
    jaxtyping.install_import_hook("vastgp", "typechecking.checked")
