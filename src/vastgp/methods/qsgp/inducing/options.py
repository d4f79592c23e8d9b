"""What only the inducing basis reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from vastgp._arguments import AtLeast, OneOf, Options, Positive


@dataclass(frozen=True)
class Inducing(Options):
    """Kernel functions at inducing inputs as the basis of QSGP, and how their weights are found.

    Parameters
    ----------
    inputs : array-like of shape (m, d), optional
        Inducing inputs, in the units of X. None: all training rows, while these take less than 1 GB; or as many of them
        as ``num_basis`` says, chosen at random.
    variance : {"nearest", "augmented", "diagonal"}, default "nearest"
        What variances of the function are by. "nearest": the inducing inputs nearest to a row, each with what the rows
        around it say of it. Where the inducing inputs are the training rows, they are those of the exact process given
        fewer targets: never below its own, and as a rule close to them. "diagonal": independent weights (Proposition
        1), too wide among the rows and zero far from them. "augmented": in addition a basis function at each test input
        (Proposition 4), so that they become those of the prior far from all rows; in gaps between rows they are too
        narrow.
    neighbors : int, default 128
        How many inducing inputs the variance of a row is by. Twice as many take about six times as long; of eight
        smooth inputs with noise 0.1 the variance of 64 was 2.3 times the exact one, of 128 1.7 and of 256 1.4.
    row_batch : int, default 500
        Rows in a step.
    basis_batch : int, optional
        Basis functions in each random set of a step. None: 100,000 where the inducing inputs are the training rows (at
        least two of which are taken), else 3000, as in the paper (I.2). As many as there are, or more, means all of
        them: then there is no error of sampling.
    control_rank : int, default 1000
        Rows whose functions are known exactly at any time: support of control variates and of the preconditioner.
    max_steps : int, default 2000
        Most steps.
    averaging : float, default 2.0
        Exponent of the average of iterates: about the last ``1 / (1 + averaging)`` of the visits count.
    max_direct : int, default 4000
        Up to so many inducing inputs other than the training rows, the weights are solved for directly, from one pass
        over the rows, which reaches the same error in less time than stochastic gradients.
    """

    inputs: Any = None
    variance: Annotated[str, OneOf("nearest", "augmented", "diagonal")] = "nearest"
    neighbors: Annotated[int, Positive(integer=True)] = 128
    row_batch: Annotated[int, Positive(integer=True)] = 500
    basis_batch: Annotated[
        int | None, Positive(integer=True, none="100,000 of the training rows, 3000 of others")
    ] = None
    control_rank: Annotated[int, Positive(integer=True)] = 1000
    max_steps: Annotated[int, Positive(integer=True)] = 2000
    averaging: Annotated[float, Positive()] = 2.0
    max_direct: Annotated[int, AtLeast(0)] = 4000
