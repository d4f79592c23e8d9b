"""Sums and products of kernels."""

from __future__ import annotations

import itertools
from functools import reduce
from typing import Any

from jaxtyping import Array, Float

from vastgp.kernels.stationary import Kernel, Stationary


def _flatten(kind: type, parts: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    nested = (part.parts if isinstance(part, kind) else (part,) for part in parts)  # type: ignore[attr-defined]
    return tuple(itertools.chain.from_iterable(nested))


class _Composite(Kernel):
    parts: tuple[Kernel, ...]

    def __init__(self, parts: tuple[Kernel, ...]) -> None:
        self.parts = _flatten(type(self), tuple(parts))

    @property
    def constant_variance(self) -> bool:
        return all(part.constant_variance for part in self.parts)

    def with_ard(self, num_features: int) -> Kernel:
        return type(self)(tuple(part.with_ard(num_features) for part in self.parts))

    def __repr__(self) -> str:
        from vastgp.kernels.spec import describe

        return describe(self)


class Sum(_Composite):
    """Sum of kernels: the function is a sum of independent functions, one for each part."""

    def __call__(self, X: Float[Array, "n d"], Z: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return reduce(lambda a, b: a + b, (part(X, Z) for part in self.parts))

    def diag(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return reduce(lambda a, b: a + b, (part.diag(X) for part in self.parts))

    def total_variance(self) -> Any:
        return sum(part.total_variance() for part in self.parts)

    def spectral_terms(self) -> tuple[tuple[Stationary, ...], ...]:
        return tuple(term for part in self.parts for term in part.spectral_terms())

    def in_units(self, x_scale: Any, y_scale: float) -> Kernel:
        return Sum(tuple(part.in_units(x_scale, y_scale) for part in self.parts))


class Product(_Composite):
    """Product of kernels; its spectral density is the convolution of those of the parts."""

    def __call__(self, X: Float[Array, "n d"], Z: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return reduce(lambda a, b: a * b, (part(X, Z) for part in self.parts))

    def diag(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return reduce(lambda a, b: a * b, (part.diag(X) for part in self.parts))

    def total_variance(self) -> Any:
        return reduce(lambda a, b: a * b, (part.total_variance() for part in self.parts))

    def spectral_terms(self) -> tuple[tuple[Stationary, ...], ...]:
        choices = itertools.product(*(part.spectral_terms() for part in self.parts))
        return tuple(tuple(itertools.chain.from_iterable(choice)) for choice in choices)

    def in_units(self, x_scale: Any, y_scale: float) -> Kernel:
        first, *rest = self.parts
        scaled = [first.in_units(x_scale, y_scale)]
        return Product(tuple(scaled + [part.in_units(x_scale, 1.0) for part in rest]))
