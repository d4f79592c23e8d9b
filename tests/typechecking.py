"""How annotations of vastgp are checked while the tests run."""

from typing import Any

from beartype import BeartypeConf, beartype

# PEP 484's numeric tower: an int is welcome where a float is asked for, as every reader of `noise: float = 1` expects.
_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))


def checked(function: Any) -> Any:
    """Check a function's annotations, but for those of constructors that declare what they refuse by themselves."""
    declares = "Annotated[" in str(getattr(function, "__annotations__", "")) or _is_alias(function)
    return function if function.__name__ == "__init__" and declares else _checked(function)


def _is_alias(function: Any) -> bool:
    names = set(map(str, getattr(function, "__annotations__", {}).values()))
    return bool(names & {"Tolerance", "MaxSeconds", "Seed", "Dtype", "Verbose"})
