"""How annotations of vastgp are checked while the tests run."""

import dataclasses
import functools
import inspect
import itertools
import threading
import types
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

# PEP 484's numeric tower: an int is welcome where a float is asked for, as every reader of `noise: float = 1` expects.
_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))

# How many calls of a function are looked at in a test, and how many of the functions that a call defines inside itself.
# What a loop calls a thousand times has the same annotations each time: checking all of them was half of the time of
# what is computed by NumPy. Of those looked at, calls are checked whose arguments or result have a form (`_form`) that
# was not checked before in this process: an annotation gives the same answer to the same form, and asking it again in
# each test was a quarter of the time.
CALLS, DEFINITIONS = 5, 1
# Of how many elements of a container its form tells.
_ELEMENTS = 8

_whole = jaxtyping.jaxtyped
_spent: list["_Left"] = []
_inner: dict[Any, "_Left"] = {}
_checks: dict[Any, "_Check"] = {}
_bodies = threading.local()
_arrays: dict[type, bool] = {}


class _Left:
    """How often something is still looked at in the test that runs."""

    __slots__ = ("most", "number")

    def __init__(self, most: int) -> None:
        self.most = self.number = most

    def take(self) -> bool:
        """Say whether it is looked at once more, and count that."""
        if self.number == 0:
            return False
        if self.number == self.most:
            _spent.append(self)
        self.number -= 1
        return True


def begin_test() -> None:
    """Look at everything anew."""
    for left in _spent:
        left.number = left.most
    _spent.clear()


def _form(value: Any) -> Any:
    """Return what annotations can tell apart in a value: its type, shape and number format, and those of elements."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind, len(value), *map(_form, value[:_ELEMENTS])
    if kind is dict:
        first = itertools.islice(value.items(), _ELEMENTS)
        return kind, len(value), *((_form(key), _form(each)) for key, each in first)
    if kind is str or isinstance(value, type):
        return kind, value  # a literal, a class
    array = _arrays.get(kind)
    if array is None:
        array = _arrays[kind] = hasattr(kind, "shape") and hasattr(kind, "dtype")
    return (kind, value.shape, value.dtype) if array else kind


class _Check:
    """The annotations of a function, or of all that one line defines, and the forms they were asked about."""

    def __init__(self, function: Any, typechecker: Any) -> None:
        self._function, self._typechecker = function, typechecker
        self._seen: dict[Any, set[Any]] = {}

    @functools.cached_property
    def _asked(self) -> Any:
        """What checks calls of a stand-in for the function; a millisecond to make, hence only for what is called."""

        def body(*args: Any, **kwargs: Any) -> Any:
            return bodies.waiting.pop()(*args, **kwargs)

        bodies, function = _bodies, self._function
        # with the function's own globals, where its annotations are looked up
        stand_in = types.FunctionType(
            body.__code__, function.__globals__, function.__name__, None, body.__closure__
        )
        return _whole(functools.wraps(function)(stand_in), typechecker=self._typechecker)

    def __call__(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Call the function, and check arguments and result unless all of these forms were checked before."""
        __tracebackhide__ = True
        form = _form(args), _form(kwargs)
        results = self._seen.get(form)
        if results is None:
            result = self._ask(function, args, kwargs)
            self._seen[form] = {_form(result)}
            return result
        result = function(*args, **kwargs)
        of_result = _form(result)
        if of_result not in results:
            self._ask(lambda *args, **kwargs: result, args, kwargs)
            results.add(of_result)
        return result

    def _ask(self, function: Any, args: Any, kwargs: Any) -> Any:
        __tracebackhide__ = True
        waiting = _bodies.__dict__.setdefault("waiting", [])
        number = len(waiting)
        waiting.append(function)
        try:
            return self._asked(*args, **kwargs)
        finally:
            del waiting[number:]  # where arguments were refused


def limited(fn: Any = None, *, typechecker: Any) -> Any:
    """Do what `jaxtyping.jaxtyped` does, for the first calls in each test and each form once."""
    if fn is None:
        return functools.partial(limited, typechecker=typechecker)
    if inspect.isclass(fn):
        if dataclasses.is_dataclass(fn) and not hasattr(fn.__init__, "_is_checked"):
            fn.__init__ = _limited(fn.__init__, typechecker, most=None)
        return fn
    if getattr(fn, "__code__", None) is None:
        return _whole(fn, typechecker=typechecker)
    if fn.__name__ == "__init__":  # a class calls its own once an object
        return _limited(fn, typechecker, most=None)
    if (
        "<locals>" in fn.__qualname__
        and not _inner.setdefault(fn.__code__, _Left(DEFINITIONS)).take()
    ):
        return fn
    return _limited(fn, typechecker, CALLS)


def _limited(fn: Any, typechecker: Any, most: int | None) -> Any:
    if "<locals>" not in fn.__qualname__:
        check = _Check(fn, typechecker)
    elif (check := _checks.get(key := (fn.__code__.co_filename, fn.__code__))) is None:
        check = _checks[key] = _Check(fn, typechecker)
    if most is None:

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            return check(fn, args, kwargs)
    else:
        left = _Left(most)

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if left.number and left.take():
                return check(fn, args, kwargs)
            return fn(*args, **kwargs)

    call._is_checked = True
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
