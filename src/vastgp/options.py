"""Objects that hold what only one solver, basis, search or sampler reads; each is loaded on first use.

A name stands for an object with its defaults: ``solver="block"`` is ``solver=Block()``. The fields of such an object
are checked when it is made, and are reached by scikit-learn's searches: ``{"solver__rank": [100, 500]}``.
"""

from __future__ import annotations

import importlib
from typing import Any

# public name -> the module that defines it
_NAMES = {
    "Fixed": "vastgp.estimators.searches",
    "Learn": "vastgp.estimators.searches",
    "SaveTo": "vastgp.estimators.searches",
    "Subset": "vastgp.estimators.searches",
}

__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'vastgp.options' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
