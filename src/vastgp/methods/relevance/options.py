"""How relevance vectors are found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vastgp._arguments import AtLeast, Named, Options, Positive
from vastgp.estimators.searches import Subset


@dataclass(frozen=True)
class Pruning(Options):
    """Fixed points of all precisions at once; candidates that have become irrelevant are taken out.

    Parameters
    ----------
    dense_columns : int, optional
        Full columns of the chevron factor of the weights' covariance. None: all of them, the exact posterior. With
        few the bound is lower. Noisy sinc, n = 500, noise 0.1: 7 functions and an error of 0.016 with all, 8 and
        0.018 with ten, 5 and 0.095 with none (mean-field).
    max_precision : float, default 1e4
        Candidates of larger precision are taken out; in units of the standardised target, as in the paper.
    basis_batch : int, default 1000
        Candidates in a set. Up to so many candidates there is one set, all rows count, and nothing is random.
    row_batch : int, default 10,000
        Rows that a set of candidates is judged by, where there are several sets.
    max_steps : int, default 5000
        Most iterations.
    """

    dense_columns: Annotated[int | None, AtLeast(0, none="all columns")] = None
    max_precision: Annotated[float, Positive()] = 1e4
    basis_batch: Annotated[int, Positive(integer=True)] = 1000
    row_batch: Annotated[int, Positive(integer=True)] = 10_000
    max_steps: Annotated[int, Positive(integer=True)] = 5000


SOLVERS = Named({"pruning": Pruning})
SEARCHES = Named({"subset": Subset})
