"""What the stochastic solver is compiled for, what it holds fixed, and what it changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Array, Float, UInt32

from vastgp.bases import RandomFourierBasis
from vastgp.bases.random_fourier import StoredFourierBasis
from vastgp.likelihoods import Likelihood
from vastgp.methods.qsgp.stochastic.control_variates import FittedCoefficient

# Frequencies are stored while they take little memory, and drawn again by every step otherwise.
FourierBasis = RandomFourierBasis | StoredFourierBasis
# Up to this size the preconditioner's matrix costs less than the features that it is made from.
MOST_EXACT = 256
# Operations of a pair of functions at a row beside the product with its frequency, cosine and sine; of a number that is
# drawn, some 10 ns of two cores.
_OF_PAIR, _OF_DRAWN = 40.0, 1000.0
# Operations of each pass over functions that a fit of any size affords at its end, and the rows and sets of functions
# that such a pass needs anyway.
_OF_A_PASS, _LEAST_ROWS, _LEAST_DRAWS = 1e11, 64, 4


@dataclass(frozen=True)
class StochasticPlan:
    """What a step is compiled for: sizes and choices.

    ``functions`` is the number F of latent functions: one for each class where there are more than two. ``devices``
    have an equal part of all pairs and of each sample, see `vastgp.methods.qsgp.stochastic.parts`.
    """

    num_pairs: int
    row_batch: int
    pair_batch: int
    support_rows: int
    dense_columns: int
    column_batch: int
    control: str
    optimizer: str
    learn: bool
    target_control: bool
    gaussian: bool
    strict: bool
    functions: int = 1
    devices: int = 1

    @property
    def head(self) -> int:
        """Pairs that hold the dense columns' diagonal: they are in every set, with certainty."""
        return (self.dense_columns + 1) // 2

    @property
    def tail_batch(self) -> int:
        """Pairs sampled from the rest."""
        return self.pair_batch - self.head

    @property
    def exact_curvature(self) -> bool:
        """Whether the preconditioner's matrix is small enough to be made anew from every set."""
        return min(self.support_rows, 2 * self.pair_batch) <= MOST_EXACT

    @property
    def tail_factor(self) -> float:
        """Inverse inclusion probability of the rest, ``m / m~``."""
        return (self.num_pairs - self.head) / self.tail_batch

    def operations(self, d: int) -> float:
        """Return about what a step takes: two sets of features at its rows and at the support rows."""
        return 2.0 * _operations(self.pair_batch, self.row_batch + self.support_rows, d)

    def operations_of_pass(self, rows: int, d: int) -> float:
        """Return about what all functions take at some rows."""
        return _operations(self.num_pairs, rows, d)

    def rows_of_a_pass(self, d: int, most: int) -> int:
        """Return at how many rows, ``most`` at most, all functions are made in a second or few."""
        return min(most, max(_LEAST_ROWS, int(_OF_A_PASS / (self.num_pairs * _of_pair(d)))))

    def draws_of_a_report(self, d: int, most: int) -> int:
        """Return how many sets of functions are drawn for a report on sampling, likewise."""
        return min(most, max(_LEAST_DRAWS, int(_OF_A_PASS / self.operations(d))))


def _of_pair(d: int) -> float:
    """Return the operations of a pair of functions at a row of d inputs."""
    return 2.0 * d + _OF_PAIR


def _operations(pairs: int, rows: int, d: int) -> float:
    """Return the operations of pairs of functions at some rows, frequencies drawn."""
    return pairs * (rows * _of_pair(d) + d * _OF_DRAWN)


class Numbers(NamedTuple):
    """Numbers that a step takes as they come: others are no other program."""

    num_rows: Any
    learning_rate: Any
    decay: Any
    averaging: Any
    freeze: Any
    learn_every: Any
    learning_rate_hyper: Any
    renew: Any  # steps between two passes that make `StochasticState.support` anew


class StochasticProblem(NamedTuple):
    """What stays the same during a fit."""

    numbers: Numbers
    basis: FourierBasis  # as it was at the start: control variates are frozen to it (F.3)
    likelihood: Likelihood  # not used where it is Gaussian: its noise is a hyperparameter
    seed: UInt32[Array, "2"]
    support_X: Float[Array, "p d"]
    support_y: Float[Array, " p"]
    interpolator: Float[Array, "p p"]
    deflator: Float[Array, "p p"]
    damping: Float[Array, ""]
    head_solution: Float[
        Array, "p h"
    ]  # vastgp.methods.qsgp.stochastic.nystrom; h = 0: made in every step
    head_inverse: Float[Array, "h h"]
    scale_X: Float[Array, "s d"]  # rows that the diagonal's scales are taken from
    target: Float[Array, "2 P"] | None  # b = Phi^T y
    target_support: Float[Array, " p"] | None  # (K_pp + nugget)^-1 K_p,all y
    lower: Any = None  # bounds of `StochasticState.hyper`; None where it stays
    upper: Any = None


def features_made(plan: StochasticPlan, *args: Any) -> int:
    """Return how many features one pass over rows makes, the last of the arguments: the work of a program."""
    return len(args[-1]) * 2 * plan.num_pairs


class StochasticState(NamedTuple):
    """Everything that decides the next step, but for its number."""

    mean: Float[Array, "F 2 P"]
    mean_average: Float[Array, "F 2 P"]
    columns: Float[Array, "q 2 P"]
    columns_average: Float[Array, "q 2 P"]
    support: Float[Array, "p r"]  # Phi_p times mean and columns, Proposition 3
    squares: Float[Array, "..."]  # AdaGrad's sums for the mean, empty otherwise
    column_squares: Float[Array, "..."]
    coefficient: FittedCoefficient
    target_product: Float[Array, ""]  # b^T mu
    curvature: Float[Array, ""]  # running mean of -E[d^2 log p / df^2] over the rows seen
    hyper: Any  # logarithms of (kernel, noise variance); the latter is 1 / the largest curvature of other likelihoods
    hyper_state: Any
