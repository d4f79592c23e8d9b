"""What only one system for gaps, one criterion or one way to a variance reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from vastgp._arguments import AtLeast, Named, OneOf, Options, Positive

_Rank = Annotated[int | None, AtLeast(0, none="chosen by cost")]


@dataclass(frozen=True)
class _Iterations(Options):
    kind: ClassVar[str]

    tol: Annotated[float | None, Positive(none="1e-6 in float64, 1e-3 in float32")] = None
    max_products: Annotated[int, Positive(integer=True)] = 2000


@dataclass(frozen=True)
class FillGaps(_Iterations):
    """Unknowns are the values of the gaps: few iterations of two Kronecker products each.

    Parameters
    ----------
    tol : float, optional
        Relative residual of conjugate gradients. None: 1e-6 in float64, 1e-3 in float32.
    max_products : int, default 2000
        Most products with the system's matrix in a solve.
    rank : int, optional
        Eigenvectors in the preconditioner, 0 for none and nothing else in its place. None: none, but a system of few
        unknowns (2048 at most) that iterations do not solve soon is factorised.
    """

    kind = "fill-gaps"
    rank: _Rank = None


@dataclass(frozen=True)
class IgnoreGaps(_Iterations):
    """Unknowns are the weights of the observed points: iterations of one Kronecker product each.

    Parameters
    ----------
    tol, max_products
        As in `FillGaps`.
    rank : int, optional
        Eigenvectors in the preconditioner, 0 for none. None: those with eigenvalues above the noise, at most 4096;
        systems of few unknowns as in `FillGaps`.
    """

    kind = "ignore-gaps"
    rank: _Rank = None


@dataclass(frozen=True)
class PenalizeGaps(_Iterations):
    """Gaps are observed as zeros with much noise: an approximation, to be compared with.

    Parameters
    ----------
    tol, max_products
        As in `FillGaps`.
    penalty : float, default 1e5
        Noise variance of the gaps, relative to the prior variance.
    """

    kind = "penalize-gaps"
    penalty: Annotated[float, Positive()] = 1e5


@dataclass(frozen=True)
class Evidence(Options):
    """Hyperparameters of highest log evidence.

    Parameters
    ----------
    spectrum : {"free-compression", "nystrom", "probes"}, default "free-compression"
        How the log-determinant is computed while learning: from the eigenvalues of the whole grid, as if gaps were
        independent of the eigenvectors (``"free-compression"``) or by the largest of them (``"nystrom"``), or without
        bias by random probes, which takes ``num_probes`` more solves a step.
    num_probes : int, default 8
        Random probes of unbiased log-determinants; after learning they check the log evidence. 0 leaves that out.
    """

    criterion: ClassVar[str] = "evidence"

    spectrum: Annotated[str, OneOf("free-compression", "nystrom", "probes")] = "free-compression"
    num_probes: Annotated[int, AtLeast(0)] = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spectrum == "probes" and self.num_probes < 2:
            raise ValueError(
                f"num_probes must be at least 2 with spectrum='probes', received {self.num_probes!r}."
            )


@dataclass(frozen=True)
class CrossValidation(Evidence):
    """Hyperparameters of least generalised cross validation.

    Parameters
    ----------
    spectrum : {"free-compression", "nystrom", "probes"}, default "free-compression"
        How the trace of the inverse is computed; see `Evidence`.
    num_probes : int, default 8
        As in `Evidence`.
    """

    criterion: ClassVar[str] = "gcv"


@dataclass(frozen=True)
class VarianceSamples(Options):
    """Variances by random solves for all points together.

    Parameters
    ----------
    num_samples : int, default 64
        How many. What gaps add to a variance has a relative standard error of at most ``sqrt(2 / num_samples)``.
    """

    num_samples: Annotated[int, Positive(integer=True)] = 64


Solver = FillGaps | IgnoreGaps | PenalizeGaps
Criterion = Evidence | CrossValidation

SOLVERS = Named({"auto": None} | {kind.kind: kind for kind in (FillGaps, IgnoreGaps, PenalizeGaps)})
CRITERIA = Named({"evidence": Evidence, "gcv": CrossValidation})
VARIANCES = Named({"auto": None, "exact": None, "samples": VarianceSamples, "low-rank": None})
