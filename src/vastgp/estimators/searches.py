"""How kernel and noise are found, and where a fit is saved: options that all estimators share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from vastgp._arguments import Each, Flag, Named, Optional, Options, Positive, is_number


@dataclass(frozen=True)
class _Columns:
    """Groups of numbers of columns."""

    def __call__(self, name: str, value: Any) -> None:
        if not isinstance(value, (list, tuple)) or not all(
            isinstance(group, (list, tuple))
            and group
            and all(is_number(one, whole=True) and one >= 0 for one in group)
            for group in value
        ):
            raise ValueError(
                f"{name} must be groups of numbers of columns, such as [(2, 3, 4), (7, 8)]; received {value!r}."
            )


class _Scaled(Options):
    """What says which columns share a scale and a lengthscale: by ``isotropic`` and ``tied``."""

    isotropic: Any
    tied: Any

    def inputs(self, num_features: int) -> tuple[int, ...] | None:
        """Return for every column the number of the input that it belongs to.

        None where each is an input of its own, nothing where all have one lengthscale: see `candidate_kernels`.

        Raises
        ------
        ValueError
            For columns that are not there, or that are in two groups.
        """
        if self.isotropic and self.tied is not None:
            raise ValueError(
                "isotropic=True already ties all columns: leave out tied, or isotropic."
            )
        if self.isotropic:
            return ()
        if self.tied is None:
            return None
        columns = [int(column) for group in self.tied for column in group]
        if len(set(columns)) < len(columns) or max(columns, default=0) >= num_features:
            raise ValueError(
                f"tied={self.tied!r} must name columns from 0 to {num_features - 1}, each in one group at most."
            )
        first = {int(column): int(min(group)) for group in self.tied for column in group}
        leaders = [first.get(column, column) for column in range(num_features)]
        return tuple(sorted(set(leaders)).index(leader) for leader in leaders)


@dataclass(frozen=True)
class Subset(_Scaled):
    """Kernel and noise of highest evidence on some random rows.

    Parameters
    ----------
    rows : int, optional
        How many rows. None: the method's own number.
    noise_floor : float, optional
        Least noise variance relative to the variance of the target: the evidence of a smooth kernel on few rows can
        drive the noise so low that no system is solvable. None: the method's own.
    isotropic : bool, default False
        One lengthscale for all inputs, which are then scaled together by their root mean variance: for inputs of one
        kind, such as pixels or coordinates, of which there may be hundreds. Otherwise each input has its own of both.
    tied : sequence of sequences of int, optional
        Groups of columns, by number, that together are one input: they have one lengthscale, and are scaled together so
        that their variances add up to 1. For indicators of the levels of a category, or sine and cosine of a season.
    """

    rows: Annotated[int | None, Positive(integer=True, none="the method's own")] = None
    noise_floor: Annotated[float | None, Positive(none="the method's own")] = None
    isotropic: Annotated[bool, Flag()] = False
    tied: Annotated[Sequence[Sequence[int]] | None, Optional(_Columns())] = None


@dataclass(frozen=True)
class Learn(Subset):
    """Kernel and noise learned on all rows, from where `Subset` ends.

    Parameters
    ----------
    rows, noise_floor, isotropic, tied
        As in `Subset`.
    steps : int, optional
        Steps of learning. None: the method's own. Refused where the solver's object has them.
    rate : float, optional
        Of Adam at the start: about the change of a logarithm in one step. None: the method's own.
    """

    steps: Annotated[int | None, Positive(integer=True, none="the method's own")] = None
    rate: Annotated[float | None, Positive(none="the method's own")] = None


@dataclass(frozen=True)
class Average(Learn):
    """Kernel and noise learned as by `Learn`, and averaged over around there: intervals know what the data leave open.

    Parameters
    ----------
    rows, noise_floor, isotropic, tied, steps, rate
        As in `Learn`.
    num_components : int, default 32
        Draws of hyperparameters. Predictions average over those that differ, each with a posterior of its own.
    """

    num_components: Annotated[int, Positive(integer=True)] = 32


@dataclass(frozen=True)
class Fixed(_Scaled):
    """Kernel and noise as given, in the units of inputs and target.

    Parameters
    ----------
    noise_std : float, optional
        Standard deviation of Gaussian noise in units of the target; on a grid of several outputs (`vastgp.GridGP`) also
        a list with one for each. Other likelihoods are given as objects with their own hyperparameters.
    isotropic : bool, default False
        As in `Subset`: the kernel has one lengthscale.
    tied : sequence of sequences of int, optional
        As in `Subset`: the kernel has one lengthscale for the columns of a group.
    """

    noise_std: Annotated[float | Sequence[float] | None, Optional(Each(Positive()))] = None
    isotropic: Annotated[bool, Flag()] = False
    tied: Annotated[Sequence[Sequence[int]] | None, Optional(_Columns())] = None


@dataclass(frozen=True)
class SaveTo(Options):
    """Where a fit is saved while it works, and resumed from.

    Parameters
    ----------
    path : path
        Of the file. ``~`` is the home folder.
    every_seconds : float, default 30.0
        Time between two writes; longer where writing takes more than a twentieth of the time.
    """

    path: str | os.PathLike[str]
    every_seconds: Annotated[float, Positive()] = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, os.PathLike)):
            raise ValueError(f"checkpoint must be a path, received {self.path!r}.")
        super().__post_init__()


SEARCHES = Named({"subset": Subset, "learn": Learn, "fixed": Fixed})
LEARN_OR_FIXED = Named({"learn": Learn, "fixed": Fixed})
LEARN_AVERAGE_OR_FIXED = Named({"learn": Learn, "average": Average, "fixed": Fixed})


def moved_to(search: str) -> dict[str, str]:
    """Return the arguments that estimators had for what these objects hold, and what to write now.

    Parameters
    ----------
    search : {"Subset", "Learn"}
        What the estimator's messages name.
    """
    fields = {"isotropic": "isotropic", "noise_floor": "noise_floor", "start_rows": "rows"}
    return {old: f"hyperparameters={search}({new}=...)" for old, new in fields.items()} | {
        "noise_std": "hyperparameters=Fixed(noise_std=...)",
        "checkpoint_seconds": "checkpoint=SaveTo(path, every_seconds=...)",
    }


def save_to(checkpoint: Any) -> SaveTo | None:
    """Return what the argument ``checkpoint`` stands for: None, a path, or the object itself."""
    if checkpoint is None or isinstance(checkpoint, SaveTo):
        return checkpoint
    return SaveTo(checkpoint)
