"""Options of bases that several methods have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vastgp._arguments import OneOf, Options
from vastgp.bases.draws import KINDS


@dataclass(frozen=True)
class Fourier(Options):
    """Random Fourier features.

    Parameters
    ----------
    frequencies : {"plain", "orthogonal", "qmc"}, default "plain"
        How they are drawn: each on its own, in runs of orthogonal ones (a smaller error of the kernel where there are
        more than a few inputs), or from a scrambled Halton sequence (best for few inputs).
    """

    frequencies: Annotated[str, OneOf(*KINDS)] = "plain"
