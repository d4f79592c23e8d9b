"""What only one kind of inference, of prior or of basis reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from vastgp._arguments import Named, Options, Positive
from vastgp.estimators.searches import Subset

_Count = Annotated[int, Positive(integer=True)]


@dataclass(frozen=True)
class TypeII(Options):
    """The hyperparameters of highest evidence.

    Parameters
    ----------
    max_iter : int, optional
        Most iterations of L-BFGS. None: 100 where functions move (`GriefRegressor`), else 200.
    tol : float, optional
        Learning has converged when no derivative of the log evidence per row, by the logarithm of a hyperparameter, is
        larger, and the Newton decrement is not: some ``tol^2 / 2`` nats a row are left to gain. None: 1e-4 where
        functions move, else 1e-5.
    """

    max_iter: Annotated[int | None, Positive(integer=True, none="100 or 200")] = None
    tol: Annotated[float | None, Positive(none="1e-4 or 1e-5")] = None


@dataclass(frozen=True)
class MarkovChains(Options):
    """Predictions averaged over hyperparameters (type I); base of the samplers."""

    name: ClassVar[str]

    num_chains: _Count = 4
    num_warmup: _Count = 400
    num_steps: _Count = 400
    thin: _Count = 1
    num_components: _Count = 50
    rows_per_step: Annotated[int | None, Positive(integer=True, none="500")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.thin > self.num_steps:
            raise ValueError(
                f"thin={self.thin} is more than num_steps={self.num_steps}, so that no step would be kept as a draw. "
                "Lower thin, or raise num_steps."
            )


@dataclass(frozen=True)
class NUTS(MarkovChains):
    """Markov chains of few long steps, each of many gradients (Hoffman and Gelman 2014).

    Parameters
    ----------
    num_chains : int, default 4
    num_warmup, num_steps : int, default 400 and 400
        Steps of every chain: of the warm-up, which are thrown away, and after it.
    thin : int, default 1
        Every so many steps is kept as a draw.
    num_components : int, default 50
        Draws that predictions average over.
    rows_per_step : int, optional
        Of labels and counts: rows whose latent values a step renews, at most all. With ten times as many rows or more
        raise ``num_steps``, too, so that all are renewed some thousand times. None: 500. Refused for targets with
        Gaussian noise, which have no latent values.
    """

    name: ClassVar[str] = "nuts"


@dataclass(frozen=True)
class MALA(MarkovChains):
    """Markov chains of many steps of one gradient (section 5.4.2 of the thesis; Roberts and Rosenthal 1998).

    Parameters
    ----------
    num_chains : int, default 4
    num_warmup, num_steps, thin : int, default 1000, 10,000 and 50
    num_components, rows_per_step
        As in `NUTS`.
    """

    name: ClassVar[str] = "mala"

    num_warmup: _Count = 1000
    num_steps: _Count = 10_000
    thin: _Count = 50


@dataclass(frozen=True, eq=False)
class WeightsPrior(Options):
    """Prior of the weights; base of its families.

    Parameters
    ----------
    mean : ndarray of shape (m,), optional
        Prior mean of the weights (section 5.2.5), for example ``weights_`` of an earlier fit with the same basis. None:
        zero.
    """

    mean: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mean is not None:
            mean = np.asarray(self.mean)
            if mean.ndim != 1 or mean.dtype.kind not in "fiu" or not np.all(np.isfinite(mean)):
                raise ValueError(
                    f"mean of the prior has shape {mean.shape} and dtype {mean.dtype}. Expected (m,): a finite number "
                    "for each basis function."
                )

    def mean_of(self, num_basis: int) -> np.ndarray:
        """Return the prior mean of so many weights."""
        if self.mean is None:
            return np.zeros(num_basis)
        mean = np.asarray(self.mean, np.float64)
        if mean.shape != (num_basis,):
            raise ValueError(
                f"mean of the prior has shape {mean.shape}. Expected ({num_basis},): a finite number for each of the "
                f"{num_basis} basis functions."
            )
        return mean


@dataclass(frozen=True, eq=False)
class KernelWeights(WeightsPrior):
    """That of a kernel, whose few hyperparameters are inferred while the functions stay.

    Parameters
    ----------
    mean
        See `WeightsPrior`.
    """


@dataclass(frozen=True, eq=False)
class DiagonalWeights(WeightsPrior):
    """A variance for each weight; O(m^3) an evaluation.

    Parameters
    ----------
    mean
        See `WeightsPrior`.
    """


@dataclass(frozen=True, eq=False)
class OrthogonalWeights(WeightsPrior):
    """A variance for each function after they were made orthogonal on the data; O(m) an evaluation.

    Parameters
    ----------
    mean
        See `WeightsPrior`.
    """


@dataclass(frozen=True, eq=False)
class SpectralWeights(WeightsPrior):
    """Any covariance of the orthogonal functions' weights, by Householder reflections; O(h m) an evaluation.

    Parameters
    ----------
    mean
        See `WeightsPrior`.
    num_reflections : int, default 4
        ``h``. As many as functions reach every covariance.
    """

    num_reflections: _Count = 4


@dataclass(frozen=True)
class LaplaceBasis(Options):
    """Sines on a box around the data, eigenfunctions of the Laplace operator.

    Parameters
    ----------
    box_margin : float, default 0.5
        How far the box reaches beyond the data, relative to half their range. It is no narrower than four lengthscales
        of the kernel that the basis is made for.
        The sines vanish at its walls, and beyond them they go on as mirror images: near the walls and outside means are
        not to be relied on. Deviations are as large as the kernel's there: to those of the sines what observations at
        the end of the data's range leave open is added. A wider box takes more functions.
    """

    box_margin: Annotated[float, Positive()] = 0.5


INFERENCES = Named({"type-ii": TypeII, "type-i": NUTS, "nuts": NUTS, "mala": MALA})
SAMPLERS = Named({"type-i": NUTS, "nuts": NUTS, "mala": MALA})
BASES = Named(
    {
        "random-fourier": None,
        "laplace": LaplaceBasis,
        "interpolation": None,
        "relevance": None,
        "grief": None,
    }
)
PRIORS = Named(
    {
        "kernel": KernelWeights,
        "diagonal": DiagonalWeights,
        "orthogonal": OrthogonalWeights,
        "spectral": SpectralWeights,
    }
)
FEATURE_PRIORS = Named(
    {name: PRIORS.kinds[name] for name in ("diagonal", "orthogonal", "spectral")}
)
SUBSET = Named({"subset": Subset})
