"""Arguments of constructors: each is declared once, in the signature, by its type and what its values may be.

``tol: Annotated[float, Positive()] = 0.1`` says all: `check_arguments` refuses other values by the argument's name,
before any work, and the documentation is held against the same declaration. The type is not enforced by itself (``"2"``
must be answered by a sentence, not by a type checker).
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vastgp._parameters import Parameters


@runtime_checkable
class Check(Protocol):
    """What the values of an argument may be."""

    def __call__(self, name: str, value: Any) -> None:
        """Raise ``ValueError`` for a value that cannot work."""


@dataclass(frozen=True)
class Positive:
    """A positive finite number.

    Attributes
    ----------
    integer : bool
        Whether it must be a whole number.
    none : str, optional
        What None stands for, when it is allowed.
    most : float, optional
        The largest value.
    """

    integer: bool = False
    none: str | None = None
    most: float | None = None

    def __call__(self, name: str, value: Any) -> None:
        if value is None and self.none is not None:
            return
        most = np.inf if self.most is None else self.most
        if is_number(value, whole=self.integer) and 0 < value < np.inf and value <= most:
            return
        expected = "a positive integer" if self.integer else "a positive number"
        limit = "" if self.most is None else f" of at most {self.most:g}"
        allowed = "" if self.none is None else f", or None ({self.none})"
        raise ValueError(f"{name} must be {expected}{limit}{allowed}; received {value!r}.")


@dataclass(frozen=True)
class AtLeast:
    """An integer of at least so much, or None where that stands for something."""

    least: int
    none: str | None = None

    def __call__(self, name: str, value: Any) -> None:
        if value is None and self.none is not None:
            return
        if not is_number(value, whole=True) or value < self.least:
            allowed = "" if self.none is None else f", or None ({self.none})"
            raise ValueError(
                f"{name} must be an integer of at least {self.least}{allowed}; received {value!r}."
            )


@dataclass(frozen=True)
class Share:
    """A number from 0 to less than 1."""

    def __call__(self, name: str, value: Any) -> None:
        if not is_number(value) or not 0 <= value < 1:
            raise ValueError(f"{name} must be a number from 0 to less than 1, received {value!r}.")


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def __call__(self, name: str, value: Any) -> None:
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{name} must be True or False, received {value!r}.")


@dataclass(frozen=True, init=False)
class OneOf:
    """One of some words."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", words)

    def __call__(self, name: str, value: Any) -> None:
        if not isinstance(value, str) or value not in self.words:
            raise ValueError(f"{name} must be one of {self.words}, received {value!r}.")


@dataclass(frozen=True, init=False)
class Named:
    """A name, or an object of the class that the name stands for; other objects by ``also``.

    Attributes
    ----------
    kinds : dict
        Name -> class of `Options` whose defaults it stands for, or None for a name that stands for itself.
    """

    kinds: Mapping[str, type[Any] | None]

    def __init__(self, kinds: Mapping[str, type[Any] | None]) -> None:
        object.__setattr__(self, "kinds", kinds)

    def __call__(self, name: str, value: Any) -> None:
        self.resolve(name, value)

    def name_of(self, value: Any) -> str:
        """Return the name that stands for the class of an object, or for itself."""
        return next(
            name for name, kind in self.kinds.items() if value == name or type(value) is kind
        )

    def resolve(self, name: str, value: Any) -> Any:
        """Return the object that a name stands for; names that stand for themselves, and objects, as they are."""
        if isinstance(value, str) and value in self.kinds:
            kind = self.kinds[value]
            return value if kind is None else kind()
        kinds = [kind for kind in self.kinds.values() if kind is not None]
        # not of a subclass, which has fields that nobody here reads
        if type(value) in kinds:
            return value
        made = ", ".join(f"{kind.__name__}(...)" for kind in dict.fromkeys(kinds))
        raise ValueError(
            f"{name} must be one of {tuple(self.kinds)}{f' or {made} of vastgp.options' if made else ''}; received "
            f"{value!r}."
        )


@dataclass(frozen=True)
class Optional:
    """None, or what another check allows."""

    check: Any

    def __call__(self, name: str, value: Any) -> None:
        if value is not None:
            self.check(name, value)


@dataclass(frozen=True)
class Each:
    """What another check allows, or several of it."""

    check: Any

    def __call__(self, name: str, value: Any) -> None:
        several = isinstance(value, (list, tuple, np.ndarray)) and np.ndim(value) == 1
        for entry in value if several and len(value) else [value]:
            self.check(name, entry)


@dataclass(frozen=True)
class RandomState:
    """A seed, a random generator of NumPy, or None."""

    def __call__(self, name: str, value: Any) -> None:
        if value is None or isinstance(value, (np.random.Generator, np.random.RandomState)):
            return
        if not is_number(value, whole=True) or not 0 <= value <= 2**32 - 1:
            raise ValueError(
                f"{name} must be an integer from 0 to 2**32 - 1, a NumPy random generator or None; received {value!r}."
            )


def check_arguments(owner: Any) -> None:
    """Raise ``ValueError`` for the first argument of an object's constructor that is not what it was declared to be."""
    for name, checks in declared(type(owner)).items():  # type: ignore[arg-type]
        value = getattr(owner, name)
        try:
            for check in checks:
                check(name, value)
        except ValueError as error:
            advice = _of_options(type(owner), value)
            if not advice:
                raise
            raise ValueError(f"{error} {advice}") from None


def _of_options(cls: type[Any], value: Any) -> str:
    """Say which argument takes an options object that another one refuses; nothing of other values."""
    if isinstance(value, type) and issubclass(value, Options):
        return f"It is a class: write {value.__name__}(...), an object of it."
    if not isinstance(value, Options):
        return ""
    made = f"{type(value).__name__}(...)"
    for name, checks in declared(cls).items():  # type: ignore[arg-type]
        if checks and all(_takes(check, name, value) for check in checks):
            return f"{made} belongs to another argument: write {name}={made}."
    return f"No argument of {cls.__name__} takes {made}."


def _takes(check: Check, name: str, value: Any) -> bool:
    """Whether a check lets a value pass."""
    try:
        check(name, value)
    except ValueError:
        return False
    return True


@functools.cache
def declared(cls: type[Any]) -> dict[str, tuple[Check, ...]]:
    """Return the checks of every argument of a class, as its signature declares them."""
    target = inspect.unwrap(cls.__init__)
    hints = typing.get_type_hints(target, include_extras=True)
    found = {}
    for name in inspect.signature(target).parameters:
        extras = getattr(hints.get(name), "__metadata__", ())
        found[name] = tuple(extra for extra in extras if isinstance(extra, Check))
    del found["self"]
    return found


class Options(Parameters):
    """Base of frozen dataclasses that hold what only one solver, basis, search or sampler reads.

    Their fields are declared as arguments of an estimator are, and checked when one is made.
    """

    def __post_init__(self) -> None:
        check_arguments(self)

    # Fields that say how long to work, not what is computed.
    _limits: typing.ClassVar[tuple[str, ...]] = ("max_steps", "max_products", "max_iter")

    def without_limits(self) -> Any:
        """Return these options without what does not change the way of a fit, only its length."""
        fields = {field.name: field.default for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        limits = {name: fields[name] for name in self._limits if name in fields}
        return dataclasses.replace(self, **limits)  # type: ignore[type-var]

    def given(self, **defaults: Any) -> Any:
        """Return these options with a method's own values for those fields that were left None."""
        unset = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **unset)  # type: ignore[type-var]


class KnownArguments:
    """Refuses arguments by names that the constructor does not have, with the name or place that may be meant.

    A class lists those that it had once in ``_moved``: old name -> what to write instead. Python itself would name the
    class that wrote the constructor, which may be one that nobody outside has heard of.
    """

    _moved: typing.ClassVar[Mapping[str, str]] = {}

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return the new object, unless an argument has moved or never was."""
        del args
        cls.refuse_moved(kwargs)
        known = list(inspect.signature(cls).parameters)
        for name in kwargs:
            if name not in known:
                raise TypeError(
                    f"{cls.__name__} has no argument {name!r}.{closest(name, known)} Its arguments are: "
                    f"{', '.join(known)}."
                )
        return super().__new__(cls)

    @classmethod
    def refuse_moved(cls, names: Iterable[str]) -> None:
        """Raise ``TypeError`` for the first of some argument names that has moved."""
        for name in names:
            if name in cls._moved:
                raise TypeError(
                    f"{cls.__name__} has no argument {name!r} any more: write {cls._moved[name]}."
                )


def closest(name: str, known: Sequence[str]) -> str:
    """Return a question for the name that may be meant, with a space before it, or nothing."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def is_number(value: Any, whole: bool = False) -> bool:
    """Whether a value is a number, or a whole number, of Python or NumPy; truths are none."""
    kinds: tuple[type, ...] = (int, np.integer) if whole else (int, float, np.number)
    return isinstance(value, kinds) and not isinstance(value, (bool, np.bool_))
