"""Estimators by the names that they have on the command line, with arguments given as text."""

from __future__ import annotations

import inspect
from typing import Any

from vastgp.cli._errors import BadInput, close_match


def make_estimator(name: str, options: dict[str, Any], settings: list[str]) -> Any:
    """Return an unfitted estimator.

    Parameters
    ----------
    name : str
        Of the class.
    options : dict
        Arguments that have options of their own on the command line; None where they were not given.
    settings : list of str
        Texts of the option ``--set``, ``NAME=VALUE`` or ``NAME.FIELD=VALUE`` for what an object holds.
    """
    from vastgp.estimators.registry import estimator_class

    make = estimator_class(name)
    known = list(inspect.signature(make).parameters)
    given = {key: value for key, value in options.items() if value is not None}
    for key in given:
        if key not in known:
            raise BadInput(
                f"--{key.replace('_', '-')} does not apply to {name}; leave it out. It has: {', '.join(known)}."
            )
    inside: dict[str, Any] = {}
    for entry in settings:
        text, equals, value = entry.partition("=")
        key, dot, field = text.strip().replace("-", "_").partition(".")
        if key in getattr(make, "_moved", {}):
            raise BadInput(
                f"--set {entry!r}: {name} has no argument {key!r} any more, write {make._moved[key]}. What such an "
                "object holds is set with a dot: --set solver.rank=500."
            )
        if not equals or key not in known:
            raise BadInput(
                f"--set {entry!r}: expected NAME=VALUE with an argument of {name}.{close_match(key, known)} It has: "
                f"{', '.join(known)}."
            )
        if dot:
            inside[f"{key}__{field}"] = _value(value.strip())
        else:
            given[key] = _value(value.strip())
    usual = {"random_state": 0, "verbose": True}
    model = make(**{key: value for key, value in usual.items() if key in known} | given)
    for key in {path.partition("__")[0] for path in inside}:
        model.set_params(**{key: _resolved(model, key)})
    return model.set_params(**inside)


def _resolved(model: Any, key: str) -> Any:
    """The object that an argument stands for by its name, so that what it holds can be set."""
    from vastgp._arguments import Named, declared

    cls: Any = type(model)
    value = getattr(model, key)
    checks = declared(cls)[key]
    named = [check for check in checks if isinstance(check, Named)]
    resolves = [check for check in checks if hasattr(check, "resolve")]
    if resolves:
        found = resolves[0].resolve(key, value)
    elif isinstance(value, str) and key in ("kernel", "likelihood"):
        from vastgp import kernels, likelihoods

        found = {"kernel": kernels, "likelihood": likelihoods}[key].from_name(value)
    else:
        found = value
    if not hasattr(found, "set_params"):
        kinds = [kind for check in named for kind, made in check.kinds.items() if made is not None]
        which = f"Choose one that has some: --set {key}={' or '.join(kinds)}." if kinds else ""
        raise BadInput(f"--set {key}.NAME: {key}={value!r} has no arguments of its own. {which}")
    return found


def _value(text: str) -> Any:
    """A number, a list, true, false or none; other text as it is."""
    import ast

    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
