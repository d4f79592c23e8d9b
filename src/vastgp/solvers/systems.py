"""Linear systems of the posterior: mean and samples as the columns of one solution.

In the space of the rows each product costs one pass over blocks of basis functions (`RowSystem`); in that of the basis
functions one pass over tiles of rows, which may come from disk (`BasisSystem`). Both give the same posterior.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._programs import program
from vastgp.bases import PairedBasis
from vastgp.fitting.checkpoint import Layout
from vastgp.solvers.least_squares import BlockedBasis, prior_weights

# Entries of one panel of features: 128 MB in float32, made once and used twice.
PANEL = 2**25
# Rounding of float32 products, relative to the noise, from which on the vectors of conjugate gradients are float64: a
# product then takes 1.7 times as long. The bound is of the worst case (kin40k, at 0.5, converges to a tenth of the
# noise without; kegg at 3.5 only just, at 20 not).
_MOST_ROUNDING = 2.0
# The use of the seed for the rows that a preconditioner is made of.
LANDMARKS = 3


class Solution(NamedTuple):
    """Weights of the posterior: ``mean`` (2, P) and ``deviations`` (S, 2, P) of its samples from the mean.

    Of C functions, each has them as its first axis.
    """

    mean: Float[Array, "*c 2 P"]
    deviations: Float[Array, "*c S 2 P"]


class Measures(NamedTuple):
    """What is known of each column of a solution ``x`` with residual ``r``.

    Attributes
    ----------
    value : Array of shape (C,)
        ``x^T (b + r)``: what is left of ``b^T A^-1 b`` to it is the squared error in the norm of ``A``, which
        conjugate gradients make smaller at every step but for rounding (the size of a residual may rise).
    size : Array of shape (C,)
        ``|r|``.
    energy, longest : Array of shape (C,)
        As in `CGState`.
    """

    value: Any
    size: Any
    energy: Any
    longest: Any


class LinearSystem(abc.ABC):
    """A symmetric positive definite system ``A x = right`` with columns [mean, samples].

    Attributes
    ----------
    right : Array of shape (C, p)
    precondition : callable
        Approximate inverse of ``A``: a `Preconditioner`, or one of several devices.
    vector_dtype : str
        Precision of solutions and residuals; work on them is done inside ``precision(vector_dtype)``.
    noise_variance : float
    num_rows : int
        Of the data.
    layout : Layout or None
        How a checkpoint holds solutions and residuals; None: as they are.
    """

    right: Array
    precondition: Any
    vector_dtype: str
    noise_variance: float
    num_rows: int
    layout: Layout | None = None

    @abc.abstractmethod
    def product(self, V: Array) -> Array:
        """Return ``A v`` of each row of ``V``."""

    def errors(self, measures: Measures) -> np.ndarray:
        """Return how far each column's function is from solved, rms over the rows, in noise standard deviations.

        Here ``|r| / (sigma sqrt(n))``: the error of the function is ``K A^-1 r``, which is no larger than ``r``.
        """
        return self._in_noise(np.asarray(measures.size, np.float64))

    def _in_noise(self, size: np.ndarray) -> np.ndarray:
        return size / (self.noise_variance * self.num_rows) ** 0.5


class System(LinearSystem):
    """One whose solution stands for weights of a basis."""

    basis: PairedBasis
    blocks: BlockedBasis

    @abc.abstractmethod
    def weights(self, solution: Array) -> Solution:
        """Return the weights that a solution stands for."""

    @abc.abstractmethod
    def slopes(self, solution: Array) -> tuple[Any, Any]:
        """Return the slopes of the log evidence by the kernel and by the noise variance."""

    def _prior_to_noise(self, num_rows: float) -> float:
        """Return the trace of ``Phi Phi^T`` in noise variances: its largest eigenvalue can be near it."""
        return num_rows * float(self.basis.kernel.total_variance()) / self.noise_variance

    def _vectors(self, dtype: Any, num_rows: float, widen: bool) -> str:
        """Return the precision of vectors for features of one: wide where that would drown the noise."""
        rounding = float(np.finfo(dtype).eps) * self._prior_to_noise(num_rows)
        return "float64" if widen and rounding > _MOST_ROUNDING else str(np.dtype(dtype))


def _weights_drawn(blocks: BlockedBasis, seed: Any, num_samples: int, dtype: str) -> int:
    del seed, dtype
    return num_samples * 2 * blocks.padded


@program(work=_weights_drawn, static_argnames=("num_samples", "dtype"))
def prior_weights_of(blocks: BlockedBasis, seed: Any, num_samples: int, dtype: str) -> Array:
    """Return the weights of the prior draws behind the samples."""
    return prior_weights(blocks, seed, num_samples, jnp.dtype(dtype))


def evidence_signs(solution: Array) -> Array:
    """Return the signs of mean and samples in the slope of the evidence."""
    samples = len(solution) - 1
    return jnp.concatenate([jnp.ones(1), jnp.full(samples, -1.0 / samples)]).astype(solution.dtype)
