"""The constructor arguments of an object by name, as scikit-learn reads and sets them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from typing import Any


class Parameters:
    """An object, often frozen, that `GridSearchCV`, `clone` and `set_params` of what holds it can read, set and copy.

    For kernels, likelihoods and options of solvers, which an estimator's constructor takes: its
    ``get_params``, ``set_params`` and ``sklearn.clone`` then reach into them, as in ``kernel__lengthscales``. The names
    are those arguments of the constructor that are also fields of the object (a dataclass or an `equinox.Module`).
    Entries of tuples and lists are named by their position: ``parts__0__lengthscales``.
    """

    __slots__ = ()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor arguments that make an equal object.

        Parameters
        ----------
        deep : bool, default True
            Those of the objects that it holds too.
        """
        values = {name: getattr(self, name) for name in _names(type(self))}
        if deep:
            for name, value in tuple(values.items()):
                values |= {f"{name}__{inner}": entry for inner, entry in _inside(value).items()}
        return values

    def set_params(self, **params: Any) -> Any:
        """Set arguments as the constructor would, all of them or none, and return the object itself.

        Objects that it holds are replaced by changed copies, so others that hold them see no change. What is hashed, as
        static arguments of compiled programs are, must be a copy of its own (`copy.copy`) that nobody sets.

        Raises
        ------
        ValueError
            For an unknown name, or a value that the constructor refuses.
        """
        if params:
            changed = _changed(self, params)
            for field in dataclasses.fields(changed):
                object.__setattr__(self, field.name, getattr(changed, field.name))
        return self

    def __sklearn_clone__(self) -> Any:
        """Return a copy that shares nothing with this one."""
        return copy.deepcopy(self)


def _names(cls: type) -> list[str]:
    fields = {field.name for field in dataclasses.fields(cls)}
    return [name for name in inspect.signature(cls).parameters if name in fields]


def _inside(value: Any) -> dict[str, Any]:
    """Return what a value holds by name, the values inside these too."""
    if isinstance(value, Parameters):
        return value.get_params(deep=True)
    found: dict[str, Any] = {}
    if isinstance(value, (tuple, list)):
        for i, entry in enumerate(value):
            if inner := _inside(entry):
                found[str(i)] = entry
                found |= {f"{i}__{name}": held for name, held in inner.items()}
    return found


def _changed(value: Any, params: dict[str, Any]) -> Any:
    """Return a copy of an object, tuple or list in which what the names say is replaced."""
    if isinstance(value, Parameters):
        entries = value.get_params(deep=False)
    elif isinstance(value, (tuple, list)):
        entries = {str(i): entry for i, entry in enumerate(value)}
    else:
        entries = {}
    of_each: dict[str, dict[str, Any]] = {}
    for key, new in params.items():
        name, inner, rest = key.partition("__")
        if name not in entries:
            known = f"Its parameters are: {', '.join(entries)}." if entries else "It has none."
            raise ValueError(f"Invalid parameter {name!r} for {_what(value)}. {known}")
        if inner:
            of_each.setdefault(name, {})[rest] = new
        else:
            entries[name] = new
    entries |= {name: _changed(entries[name], inner) for name, inner in of_each.items()}
    return (
        type(value)(**entries) if isinstance(value, Parameters) else type(value)(entries.values())
    )


def _what(value: Any) -> str:
    return type(value).__name__ if isinstance(value, Parameters) else repr(value)
