"""Arguments of the library, which its messages name, as the options that a command has for them."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Argument -> option, where a command has one; all others are set by their own names.
OF_FIT = {
    "X": "DATA",
    "max_seconds": "--max-seconds",
    "num_basis": "--num-basis",
    "solver": "--solver",
    "hyperparameters": "--hyperparameters",
    "dtype": "--dtype",
    "kernel": "--kernel",
    "random_state": "--seed",
    "space": "--space",
    "exposure": "--exposure",
}
OF_FILL = {
    "max_seconds": "--max-seconds",
    "noise_std": "--noise-std",
    "mask": "--mask",
    "solver": "--solver",
    "criterion": "--criterion",
    "dtype": "--dtype",
    "kernels": "--kernel",
    "kernel": "--kernel",
    "random_state": "--seed",
}
OF_MAP = {
    "max_seconds": "--max-seconds",
    "noise_std": "--noise-std",
    "method": "--method",
    "kernel": "--kernel",
    "random_state": "--seed",
    "target": "--target",
    "time": "--time",
    "station": "--station",
    "covariates": "--covariates",
}
OF_PREDICT = {"X": "NEW", "exposure": "--exposure", "batch_rows": "--batch-rows"}
OF_EVALUATE = OF_PREDICT | {"X": "TEST"}
OF_REPORT = {"X": "TEST", "exposure": "--exposure"}

_ONE = r"'[^']*'"
_VALUE = rf"\({_ONE}(?:, {_ONE})*\)|{_ONE}|(?>[\w.+-]*\w)(?!\()"
# What an option cannot be given, in words of the library.
_OF_PYTHON = re.compile(
    r", a NumPy random generator or None|, or None(?: \([^)]*\))?|, or a Kernel\b"
    r"| or \w+\(\.\.\.\)(?:, \w+\(\.\.\.\))* of vastgp\.options"
)


def in_option(names: list[str]) -> str:
    """Return names as an option takes them, see `vastgp.cli._selection.names_in`."""
    quoted = [name.replace('"', '""') for name in names]
    return ",".join(
        f'"{quoted[j]}"' if "," in name or name.startswith('"') else name
        for j, name in enumerate(names)
    )


def as_options(text: str, options: Mapping[str, str]) -> str:
    """Return a message with the options in the place of the arguments that they stand for.

    A word that is an argument's name as well, such as mask, is one with a value (``solver='block'``) and where a
    sentence begins with it and goes on as those about arguments do. What stands in quotes, in a path or in a call of
    Python stays.

    Parameters
    ----------
    text : str
    options : mapping
        Name of an argument -> option.
    """
    if not options:
        return text
    names = "|".join(sorted(options, key=len, reverse=True))
    pattern = re.compile(
        rf"(?<!\w){_ONE}(?!\w)"
        rf"|(?<![\w'\"./=-])(?P<name>{names})(?:\['(?P<key>[^']*)'\]|=(?P<value>{_VALUE}))?(?![\w'\"=\[])"
    )

    def option(found: re.Match[str]) -> str:
        name, key, value = found["name"], found["key"], found["value"]
        before, after = text[: found.start()], text[found.end() :]
        if name is None or _in_call(before) or (name == "X" and value is None):  # of arrays
            return found[0]
        begins = not before or before.endswith((". ", ": "))
        goes_on = after.startswith((" must ", " has ", " is ", " holds ", " and ", ": "))
        if value is None and "_" not in name and not (begins and goes_on):
            return found[0]
        given = [key] if key is not None else [] if value is None else [_as_given(value)]
        return " ".join([options[name], *given])

    said = pattern.sub(option, text)
    return said if said == text else _OF_PYTHON.sub("", said)


def _as_given(value: str) -> str:
    """A value as an option takes it, in quotes where it is of several words."""
    parts = re.findall(_ONE, value)
    if not parts:
        return value
    given = in_option([part[1:-1] for part in parts]) if value[0] == "(" else parts[0][1:-1]
    return given if re.fullmatch(r"[\w.,+-]+", given) else f"'{given}'"


def _in_call(before: str) -> bool:
    """Whether a place in a text is among the arguments of a call such as ``Learn(steps=3)``."""
    depth = 0
    for j in range(len(before) - 1, -1, -1):
        depth += (before[j] == ")") - (before[j] == "(")
        if depth < 0:
            return j > 0 and (before[j - 1].isalnum() or before[j - 1] == "_")
    return False
