"""How slopes of the evidence are made, how long the final system is solved, and with which preconditioner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from vastgp._arguments import Named, OneOf, Options, Positive
from vastgp.methods.iterative.kernel_factors import FACTORS

_Count = Annotated[int | None, Positive(integer=True, none="the solver's own")]


@dataclass(frozen=True)
class CG(Options):
    """Conjugate gradients that stop after a number of iterations in a step of learning.

    Slopes of the evidence are biased towards underfitting where they have not converged by then.

    Parameters
    ----------
    iterations : int, optional
        Iterations in a step of learning. None: 50.
    num_probes : int, optional
        Random vectors that estimate the trace in a step of learning. None: 8.
    max_products : int, optional
        Most products with the kernel matrix in the final solution. None: 500.
    preconditioner : {"auto", "pivots", "grid"}, default "auto"
        What it is made of: kernel functions at rows that randomly pivoted Cholesky picks, or the leading eigenfunctions
        of the kernel on a grid (Evans, section 4.3.3), for RBF and products of them. ``"auto"``: what leaves less of
        the prior variance.
    """

    iterations: _Count = None
    num_probes: _Count = None
    max_products: _Count = None
    preconditioner: Annotated[str, OneOf(*FACTORS)] = "auto"

    _own: ClassVar[dict[str, Any]] = {"iterations": 50, "num_probes": 8, "max_products": 500}

    def filled(self) -> Any:
        """Return these options with the defaults where there are none."""
        return self.given(**self._own)


@dataclass(frozen=True)
class RouletteCG(CG):
    """Conjugate gradients that stop at random in a step of learning, with weights that take the bias away.

    Parameters
    ----------
    iterations : int, optional
        Their mean. None: 50.
    num_probes, max_products, preconditioner
        As in `CG`.
    temperature : float, optional
        ``t`` of the law ``P(J) ~ exp(-t (J - Jmin))``: a larger one has less variance in the time, and more in the
        slope. It is raised where ``iterations`` are so few that less than a quarter of them would be certain. None:
        0.05.
    """

    temperature: Annotated[float | None, Positive(none="0.05")] = None

    _own: ClassVar[dict[str, Any]] = CG._own | {"temperature": 0.05}


SOLVERS = Named({"rr-cg": RouletteCG, "cg": CG})
