"""Product kernels over groups of dimensions, whose matrices on a grid are Kronecker products."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.kernels.base import Kernel, positive, rows, short
from vastgp.kernels.coregionalisation import Coregionalisation


class GridKernel(Kernel):
    """``variance * prod_l k_l(x_l, z_l) / v_l`` with one kernel for each group ``x_l`` of inputs.

    Every part is divided by its own prior variance ``v_l``, as one number is all that the product can tell: parts
    have shapes, and ``variance`` is the prior variance of the function (its mean over outputs where there are several).

    Parameters
    ----------
    parts : tuple of Kernel
    groups : tuple of tuple of str
        Names of the inputs of every part, in the order of the columns of ``X``.
    variance : float, default 1.0
    """

    parts: tuple[Kernel, ...]
    variance: Any
    groups: tuple[tuple[str, ...], ...] = eqx.field(static=True)

    def __init__(
        self,
        parts: Sequence[Kernel],
        groups: Sequence[Sequence[str]],
        variance: Any = 1.0,
    ) -> None:
        self.parts = tuple(parts)
        self.groups = tuple(tuple(str(name) for name in group) for group in groups)
        self.variance = positive("variance", variance, one=True)
        if len(self.parts) != len(self.groups):
            raise ValueError(
                f"parts and groups must be of one length, received {len(self.parts)} and {len(self.groups)}."
            )

    # ------------------------------------------------------------ on a grid

    def factors(
        self, axes: Sequence[Array], others: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        """Return the matrices ``k_l(x, z) / v_l`` between the points of every axis (and those of others).

        Parameters
        ----------
        axes : sequence of Array of shape (m_l, d_l)
            Points of every group.
        others : sequence of Array of shape (q_l, d_l), optional
            The second argument of the kernels; the axes themselves without it.
        """
        seconds = axes if others is None else others
        found = (part(X, Z) for part, X, Z in zip(self.parts, axes, seconds, strict=True))
        return self._of_unit_variance(found)

    def factor_diagonals(self, axes: Sequence[Array]) -> tuple[Array, ...]:
        """Return ``k_l(x, x) / v_l`` at the points of every axis."""
        return self._of_unit_variance(
            part.diag(X) for part, X in zip(self.parts, axes, strict=True)
        )

    def _of_unit_variance(self, found: Iterable[Array]) -> tuple[Array, ...]:
        return tuple(
            values / jnp.asarray(part.total_variance(), dtype=values.dtype)
            for part, values in zip(self.parts, found, strict=True)
        )

    # ------------------------------------------------------------ as a kernel of rows

    def __call__(self, X: Any, Z: Any) -> Float[Array, "n m"]:
        product = reduce(operator.mul, self.factors(self._split("X", X), self._split("Z", Z)))
        return jnp.asarray(self.variance, dtype=product.dtype) * product

    def diag(self, X: Any) -> Float[Array, " n"]:
        product = reduce(operator.mul, self.factor_diagonals(self._split("X", X)))
        return jnp.asarray(self.variance, dtype=product.dtype) * product

    def total_variance(self) -> Any:
        return self.variance

    def spectral_terms(self) -> tuple[tuple[Any, ...], ...]:
        raise ValueError("a GridKernel is for GridGP, which needs no random features.")

    def with_ard(self, num_features: int) -> GridKernel:
        parts = [
            part.with_ard(len(group)) for part, group in zip(self.parts, self.groups, strict=True)
        ]
        return GridKernel(parts, self.groups, self.variance)

    def in_units(self, x_scale: Any, y_scale: float) -> GridKernel:
        scales = np.broadcast_to(np.asarray(x_scale, float), (sum(map(len, self.groups)),))
        parts = [
            part.in_units(scale, 1.0)
            for part, scale in zip(self.parts, np.split(scales, self._ends), strict=True)
        ]
        return GridKernel(parts, self.groups, np.asarray(self.variance) * y_scale**2)

    def normalised(self, output_scales: np.ndarray | None = None) -> GridKernel:
        """Return the same kernel with parts of unit variance.

        Parameters
        ----------
        output_scales : ndarray of shape (k,), optional
            What to multiply every output with: the units of outputs that were standardised one by one.
        """
        parts: list[Kernel] = []
        variance = float(self.variance)
        for part in self.parts:
            if isinstance(part, Coregionalisation):
                B = part.to_numpy() / float(part.total_variance())
                scales = np.ones(len(B)) if output_scales is None else output_scales
                B = B * np.outer(scales, scales)
                mean = float(np.mean(np.diagonal(B)))
                variance *= mean
                parts.append(Coregionalisation(matrix=B / mean))
            else:
                parts.append(part.in_units(1.0, float(part.total_variance()) ** -0.5))
        return GridKernel(parts, self.groups, variance)

    @property
    def _ends(self) -> list[int]:
        """Where the inputs of one group end and those of the next begin."""
        return list(itertools.accumulate(len(group) for group in self.groups))[:-1]

    def _split(self, name: str, X: Any) -> list[Array]:
        X, names = rows(name, X), list(itertools.chain.from_iterable(self.groups))
        if X.shape[1] != len(names):
            raise ValueError(
                f"{name} must have a column for each of the inputs {names}, received {X.shape[1]} columns."
            )
        return jnp.split(X, self._ends, axis=1)

    def __repr__(self) -> str:
        factors = zip(self.groups, self.parts, strict=True)
        texts = [f"{', '.join(group)}: {part!r}" for group, part in factors]
        return f"GridKernel({'; '.join(texts)}; variance={short(self.variance)})"
