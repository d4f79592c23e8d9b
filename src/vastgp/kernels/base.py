"""What every kernel can be asked, and the sums and products that ``+`` and ``*`` make.

Every kernel is a pytree whose leaves are all positive hyperparameters, so the
unconstrained form that optimisers see is ``jax.tree.map(jnp.log, kernel)`` and nothing else.
"""

from __future__ import annotations

import abc
import itertools
import operator
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._parameters import Parameters


class Kernel(Parameters, eqx.Module):
    """A covariance function; a pytree whose leaves are all positive hyperparameters."""

    if not TYPE_CHECKING:
        # Equinox makes a pytree of a method each time that it is looked up, for compiled functions that are given one.
        # None is here, and it was a third of the time of a fit to some hundred rows.
        __getattribute__ = object.__getattribute__

    @abc.abstractmethod
    def __call__(self, X: Any, Z: Any) -> Float[Array, "n m"]:
        """Return the matrix of covariances between the rows of ``X`` and of ``Z``.

        Parameters
        ----------
        X, Z : array of shape (n, d) and (m, d)
            Floating point numbers decide the precision; whole ones are read as such numbers.
        """

    @abc.abstractmethod
    def total_variance(self) -> Any:
        """Return the prior variance ``k(x, x)``, of a typical row where it is not the same for every ``x``."""

    @abc.abstractmethod
    def spectral_terms(self) -> tuple[tuple[Any, ...], ...]:
        """Return the kernel as a sum (outer tuple) of products (inner tuples) of stationary ones."""

    @abc.abstractmethod
    def with_ard(self, num_features: int) -> Kernel:
        """Return the kernel with one lengthscale for each of ``num_features`` inputs."""

    def with_inputs(self, inputs: Sequence[int]) -> Kernel:
        """Return the kernel with one lengthscale for columns of the same number, where it has lengthscales."""
        return self.with_ard(len(inputs))

    @abc.abstractmethod
    def in_units(self, x_scale: Any, y_scale: float) -> Kernel:
        """Return a kernel fitted on standardised data in the units of inputs and target."""

    @property
    def constant_variance(self) -> bool:
        """Whether the prior variance is the same at every row."""
        return True

    def diag(self, X: Any) -> Float[Array, " n"]:
        """Return the prior variance at each row of ``X``."""
        X = rows("X", X)
        return jnp.full(X.shape[0], self.total_variance(), dtype=X.dtype)

    def __add__(self, other: Kernel) -> Kernel:
        return Sum((self, other)) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel) -> Kernel:
        return Product((self, other)) if isinstance(other, Kernel) else NotImplemented

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values = (f"{name}={short(value)}" for name, value in given.items() if value is not None)
        return f"{type(self).__name__}({', '.join(values)})"


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

    def with_inputs(self, inputs: Sequence[int]) -> Kernel:
        return type(self)(tuple(part.with_inputs(inputs) for part in self.parts))


class Sum(_Composite):
    """Sum of kernels: the function is a sum of independent functions, one for each part."""

    def __call__(self, X: Any, Z: Any) -> Float[Array, "n m"]:
        return reduce(operator.add, (part(X, Z) for part in self.parts))

    def diag(self, X: Any) -> Float[Array, " n"]:
        return reduce(operator.add, (part.diag(X) for part in self.parts))

    def total_variance(self) -> Any:
        return sum(part.total_variance() for part in self.parts)

    def spectral_terms(self) -> tuple[tuple[Any, ...], ...]:
        return tuple(term for part in self.parts for term in part.spectral_terms())

    def in_units(self, x_scale: Any, y_scale: float) -> Kernel:
        return Sum(tuple(part.in_units(x_scale, y_scale) for part in self.parts))

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


class Product(_Composite):
    """Product of kernels; its spectral density is the convolution of those of the parts."""

    def __call__(self, X: Any, Z: Any) -> Float[Array, "n m"]:
        return reduce(operator.mul, (part(X, Z) for part in self.parts))

    def diag(self, X: Any) -> Float[Array, " n"]:
        return reduce(operator.mul, (part.diag(X) for part in self.parts))

    def total_variance(self) -> Any:
        return reduce(operator.mul, (part.total_variance() for part in self.parts))

    def spectral_terms(self) -> tuple[tuple[Any, ...], ...]:
        choices = itertools.product(*(part.spectral_terms() for part in self.parts))
        return tuple(tuple(itertools.chain.from_iterable(choice)) for choice in choices)

    def in_units(self, x_scale: Any, y_scale: float) -> Kernel:
        first, *rest = self.parts
        scaled = [first.in_units(x_scale, y_scale)]
        return Product(tuple(scaled + [part.in_units(x_scale, 1.0) for part in rest]))

    def __repr__(self) -> str:
        return " * ".join(
            f"({part!r})" if isinstance(part, Sum) else repr(part) for part in self.parts
        )


def positive(name: str, value: Any, *, one: bool = False) -> Any:
    """Return hyperparameters as float64 NumPy, refusing what is not positive; arrays of JAX stay what they are.

    Parameters
    ----------
    name : str
    value : array-like
        What is traced has no numbers yet, and passes.
    one : bool, default False
        Whether it must be a single number.
    """
    if isinstance(value, jax.core.Tracer):
        return value
    try:
        array = np.asarray(value, dtype=np.float64)
        good = bool(np.all(np.isfinite(array) & (array > 0)))
    except (TypeError, ValueError):
        array, good = np.asarray(np.nan), False
    if one and array.ndim:
        raise ValueError(f"{name} must be one number, received {value!r}.")
    if not good:
        raise ValueError(f"{name} must be positive and finite, received {value!r}.")
    return value if isinstance(value, jax.Array) else array


def rows(name: str, X: Any) -> Array:
    """Return rows as a floating point matrix: hyperparameters take its type, and whole numbers would cut them.

    Raises
    ------
    ValueError
        When they are no matrix.
    """
    X = jnp.asarray(X)
    if X.ndim != 2:
        raise ValueError(
            f"{name} must have a row for each point and a column for each input, received shape {X.shape}."
        )
    if jnp.issubdtype(X.dtype, jnp.floating):
        return X
    return X.astype(jnp.result_type(float, X))


def rows_of_both(X: Any, Z: Any) -> tuple[Array, Array]:
    """Return the arguments of a kernel as `rows` of the same inputs; ``ValueError`` where they are not."""
    X, Z = rows("X", X), rows("Z", Z)
    if X.shape[1] != Z.shape[1]:
        raise ValueError(
            f"X and Z must have the same inputs as columns, received {X.shape[1]} and {Z.shape[1]}."
        )
    return X, Z


def check_for_each_feature(values: Any, num_features: int, noun: str = "lengthscale") -> None:
    """Raise ``ValueError`` for values that are neither one nor one for each feature."""
    shape = np.shape(values)
    if shape not in ((), (1,), (num_features,)):
        raise ValueError(
            f"kernel has {shape[0]} {noun}s but the data have {num_features} features; "
            f"give one {noun}, or one for each feature."
        )


def for_each_feature(values: Any, num_features: int, noun: str = "lengthscale") -> np.ndarray:
    """Return one value for each feature; ``ValueError`` where there is another number of them."""
    check_for_each_feature(values, num_features, noun)
    return np.broadcast_to(np.asarray(values, dtype=np.float64), (num_features,)).copy()


def numbers_of_inputs(inputs: Any) -> tuple[int, ...]:
    """Return for every column the number of its lengthscale; ``ValueError`` unless all from 0 on are there."""
    numbers = np.asarray(inputs)
    if (
        numbers.ndim != 1
        or not numbers.size
        or numbers.dtype.kind not in "iu"
        or not np.array_equal(np.unique(numbers), np.arange(numbers.max() + 1))
    ):
        raise ValueError(
            f"inputs must give every column the number of its lengthscale, counted from 0 without gaps, such as "
            f"(0, 1, 1, 2); received {inputs!r}."
        )
    return tuple(int(number) for number in numbers)


def check_same_columns(inputs: tuple[int, ...], num_features: int) -> None:
    """Raise ``ValueError`` unless there is a number for each feature."""
    if len(inputs) != num_features:
        raise ValueError(
            f"kernel has inputs={inputs} for {len(inputs)} columns but the data have {num_features} features; give one "
            "number for each."
        )


def short(value: Any) -> str:
    """Return a hyperparameter as text with four digits."""
    try:
        array = np.asarray(value)
    except Exception:  # a traced value has no numbers to show
        return str(value)
    if array.dtype == object:
        return repr(value)
    if array.ndim == 0:
        return f"{float(array):.4g}"
    return "[" + ", ".join(f"{entry:.4g}" for entry in array) + "]"
