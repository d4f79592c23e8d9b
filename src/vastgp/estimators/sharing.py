"""Which estimators several processes fit, each with a part of the rows: declared by each class, told from here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from vastgp.data import processes
from vastgp.estimators.registry import ESTIMATORS, estimator_class


@dataclass(frozen=True)
class SharedRows:
    """Says that several processes, each with a part of the rows, come to one answer.

    Attributes
    ----------
    only : str
        With which arguments, in words that follow the name; empty where with all.
    where : callable, optional
        ``where(model)`` is whether its arguments are among these; None: all are.
    """

    only: str = ""
    where: Callable[[Any], bool] | None = None

    def holds(self, model: Any) -> bool:
        """Return whether processes share the rows of a model with its arguments."""
        return self.where is None or self.where(model)


def check_processes(model: Any) -> None:
    """Refuse to fit in several processes what is not made for it: they would not come to one answer.

    Raises
    ------
    ValueError
        Naming what can be.
    """
    if processes.count() == 1:
        return
    # the front door chooses among estimators, and declares nothing
    declared = getattr(model, "_shared_rows", None)
    if declared is not None and declared.holds(model):
        return
    name = type(model).__name__
    alone = f"{name} is fitted by one process"
    if declared is not None:
        alone = f"{name} is fitted by several processes {declared.only} alone"
    raise ValueError(
        f"{alone}, and {processes.count()} run here (jax.distributed.initialize was called). "
        f"Processes share the rows of {listed(sharing(ESTIMATORS))}."
    )


def check_own_of_rows() -> None:
    """Refuse noise, weights and exposures that rows have of their own where several processes have the rows."""
    if processes.count() > 1:
        raise ValueError(
            f"noise_std, sample_weight and exposure are taken by a fit in one process, and {processes.count()} run "
            "here (jax.distributed.initialize was called). Leave them out, or fit in one process."
        )


def sharing(names: Iterable[str]) -> dict[str, str]:
    """Return those of some estimators whose rows processes share, by name, and with which arguments."""
    declared = {name: estimator_class(name)._shared_rows for name in names}
    return {name: shared.only for name, shared in declared.items() if shared is not None}


def listed(found: dict[str, str]) -> str:
    """Return names with their arguments in brackets, as a list in words."""
    words = [f"{name} ({only})" if only else name for name, only in found.items()]
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
