"""How kernel and noise are found, and where a fit is saved: options that all estimators share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from vastgp._arguments import Each, Flag, Named, Optional, Options, Positive


@dataclass(frozen=True)
class Subset(Options):
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
    """

    rows: Annotated[int | None, Positive(integer=True, none="the method's own")] = None
    noise_floor: Annotated[float | None, Positive(none="the method's own")] = None
    isotropic: Annotated[bool, Flag()] = False


@dataclass(frozen=True)
class Learn(Subset):
    """Kernel and noise learned on all rows, from where `Subset` ends.

    Parameters
    ----------
    rows, noise_floor, isotropic
        As in `Subset`.
    steps : int, optional
        Steps of learning. None: the method's own. Refused where the solver's object has them.
    rate : float, optional
        Of Adam at the start: about the change of a logarithm in one step. None: the method's own.
    """

    steps: Annotated[int | None, Positive(integer=True, none="the method's own")] = None
    rate: Annotated[float | None, Positive(none="the method's own")] = None


@dataclass(frozen=True)
class Fixed(Options):
    """Kernel and noise as given, in the units of inputs and target.

    Parameters
    ----------
    noise_std : float, optional
        Standard deviation of Gaussian noise in units of the target; on a grid of several outputs (`vastgp.GridGP`) also
        a list with one for each. Other likelihoods are given as objects with their own hyperparameters.
    isotropic : bool, default False
        As in `Subset`: the kernel has one lengthscale.
    """

    noise_std: Annotated[float | Sequence[float] | None, Optional(Each(Positive()))] = None
    isotropic: Annotated[bool, Flag()] = False


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


Search = Subset | Learn | Fixed
SEARCHES = Named({"subset": Subset, "learn": Learn, "fixed": Fixed})
LEARN_OR_FIXED = Named({"learn": Learn, "fixed": Fixed})


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
