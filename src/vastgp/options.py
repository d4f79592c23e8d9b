"""Objects that hold what only one solver, basis, search or sampler reads; each is loaded on first use.

A name stands for an object with its defaults: ``solver="block"`` is ``solver=Block()``. The fields of such an object
are checked when it is made, and are reached by scikit-learn's searches: ``{"solver__rank": [100, 500]}``.
"""

from __future__ import annotations

from typing import Any

from vastgp.estimators.registry import OPTIONS, option_class

__all__ = [*OPTIONS]


def __getattr__(name: str) -> Any:
    if name in OPTIONS:
        value = option_class(name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'vastgp.options' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
