"""How the bias of the evidence of few features is taken out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from vastgp._arguments import Named, Options, Positive


@dataclass(frozen=True)
class Even(Positive):
    """A positive even integer."""

    integer: bool = True

    def __call__(self, name: str, value: Any) -> None:
        super().__call__(name, value)
        if value is not None and value % 2:
            raise ValueError(
                f"{name} must be even (cosines and sines come in pairs), received {value}."
            )


@dataclass(frozen=True)
class SingleSample(Options):
    """Slopes without bias: a few features, and one random difference of the sum that telescopes to all of them.

    Parameters
    ----------
    first_basis : int, optional
        Features of the first term, even. None: a quarter of ``num_basis``.
    basis_step : int, optional
        Features that are added from term to term, even. None: an eighth of ``num_basis``.
    """

    first_basis: Annotated[int | None, Even(none="a quarter of num_basis")] = None
    basis_step: Annotated[int | None, Even(none="an eighth of num_basis")] = None


DEBIASES = Named({"single-sample": SingleSample})
