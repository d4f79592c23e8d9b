"""What the weights of DIRECT can be, and what their approximate posterior is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from vastgp._arguments import AtLeast, Flag, Named, OneOf, Optional, Options, Positive, is_number
from vastgp.methods.direct.model import DiscretePrior, evenly_spaced

_MOST_VALUES = 256
_ROUNDING = 1e-12  # of values, relative to the largest
_DRAWS, _STEPS = 64, 1000


@dataclass(frozen=True, eq=False)
class Support(Options):
    """What a weight can be, and how likely each value is beforehand.

    Parameters
    ----------
    values : int or array-like, default 15
        So many values evenly spaced over three standard deviations of a weight's prior to either side, or the values
        themselves in these units (powers of two, for example). Up to 16 can be exported.
    learn : bool, optional
        Learn one spacing for each weight: all its values are multiplied by it, and samples stay four-bit integers. Its
        logarithm is standard normal beforehand. It recovers most of what rounding costs where rows are many. None: in
        `DirectRegressor` with the normal prior; otherwise values are as in the thesis.
    prior : {"gaussian", "uniform"} or array-like, default "gaussian"
        Masses of the values, ``(k,)``, or ``(p, k)`` for a mixture of ``p`` factorised priors (Theorem 7.4). The
        normal density at the values, by default.
    prior_weights : array-like of shape (p,), optional
        Weights of the parts of a mixture; equal ones by default.
    """

    values: Any = 15
    learn: Annotated[bool | None, Optional(Flag())] = None
    prior: Any = "gaussian"
    prior_weights: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.masses()

    def levels(self) -> np.ndarray:
        """Return what a weight can be, in standard deviations of its prior, ascending.

        Raises
        ------
        ValueError
            For fewer than two values, for equal ones, and for what are no numbers.
        """
        support = self.values
        if is_number(support, whole=True):
            if not 2 <= support <= _MOST_VALUES:
                raise ValueError(
                    f"support={support}: a weight needs at least two values to choose from (15 fit into four bits), "
                    f"and at most {_MOST_VALUES}."
                )
            return evenly_spaced(int(support))
        values = _numbers(support)
        if values is None or values.ndim != 1:
            raise ValueError(
                "support must be a number of values, or an array of values in standard deviations of the prior (for "
                f"example [-2, -1, 0, 1, 2]); received {support!r}."
            )
        # what rounding has left of zero is zero: samples of it cost nothing, and no spacing follows it
        least = _ROUNDING * np.max(np.abs(values), initial=0.0)
        values = np.sort(np.where(np.abs(values) <= least, 0.0, values))
        distinct = np.unique(values)
        if len(distinct) < 2 or len(distinct) < len(values) or len(values) > _MOST_VALUES:
            raise ValueError(
                f"support has {len(values)} values of which {len(distinct)} are distinct. Give at least two values and "
                f"at most {_MOST_VALUES}, each once."
            )
        return values

    @property
    def is_gaussian(self) -> bool:
        """Whether the prior is known at any value."""
        return isinstance(self.prior, str) and self.prior == "gaussian"

    def masses(self) -> DiscretePrior:
        """Return the prior, one for all weights.

        Raises
        ------
        ValueError
            For a value without prior mass: its logarithm is minus infinity, and so is the bound.
        """
        values = self.levels()
        if isinstance(self.prior, str):
            OneOf("gaussian", "uniform")("prior", self.prior)
            log_mass = -0.5 * values**2 if self.is_gaussian else np.zeros_like(values)
            mass = np.exp(log_mass - np.logaddexp.reduce(log_mass))[None]
        else:
            given = _numbers(self.prior, finite=False)
            mass = np.empty((0, 0)) if given is None else np.atleast_2d(given)
            if mass.ndim != 2 or mass.shape[1] != len(values):
                raise ValueError(
                    f"prior must be 'gaussian', 'uniform', or masses of the {len(values)} values of support, of shape "
                    f"({len(values)},) or (parts, {len(values)}) for a mixture; received {self.prior!r}."
                )
        bad = ~(np.isfinite(mass) & (mass > 0.0))
        if bad.any():
            where = int(np.argwhere(bad)[0][1])
            raise ValueError(
                f"prior has the mass {mass[bad][0]:g} at the value {values[where]:g} of support: every value needs a "
                "positive one, as the bound holds its logarithm. Leave such values out of support."
            )
        if self.learn and not self.is_gaussian:
            raise ValueError(
                f"learn=True moves the values, and masses are known there for prior='gaussian' only; received "
                f"prior={self.prior!r}."
            )
        log_mass = np.log(mass) - np.log(np.sum(mass, axis=1, keepdims=True))
        return DiscretePrior(log_mass[:, None, :], self._log_weights(len(mass)))

    def _log_weights(self, parts: int) -> np.ndarray:
        if self.prior_weights is None:
            return np.full(parts, -np.log(parts))
        given = _numbers(self.prior_weights)
        if given is None or given.shape != (parts,) or not np.all(given > 0.0):
            raise ValueError(
                f"prior_weights must be {parts} positive numbers, one for each part of prior, or None (equal ones); "
                f"received {self.prior_weights!r}."
            )
        return np.log(given) - np.log(np.sum(given))


@dataclass(frozen=True)
class MeanField(Options):
    """Independent weights.

    Parameters
    ----------
    start : {"posterior", "prior"}, default "posterior"
        Where the weights start: the posterior of normal weights, rounded with its correlations and improved weight by
        weight; or the prior, as in the thesis, from where many rows lead to poor local maxima.
    learn_noise : bool, default False
        False: weights are fitted at the noise variance of highest evidence of normal weights on all rows; that of
        predictions has the error added that their rounding makes at the training rows. True: a discrete prior over the
        noise variance (15 values, a factor of ten to either side of it) as in Theorem 7.1; mean-field bounds prefer too
        much noise where there are more basis functions than rows. Of regression.
    logistic_bound : {"quadratic", "exponential"}, optional
        What the logistic log-likelihood is bounded by, see `DirectClassifier`. None: ``"quadratic"``.
    max_iter : int, default 1000
        Most steps of Newton's method for each function, and of a mixture; of the exponential bound, most iterations of
        L-BFGS. Of classes each pass over the rows, which renews the quadratic bound, counts ten.
    """

    start: Annotated[str, OneOf("posterior", "prior")] = "posterior"
    learn_noise: Annotated[bool, Flag()] = False
    logistic_bound: Annotated[str | None, Optional(OneOf("quadratic", "exponential"))] = None
    max_iter: Annotated[int, Positive(integer=True)] = 1000


@dataclass(frozen=True)
class Mixture(MeanField):
    """A mixture of such posteriors, from perturbed copies of the best single one.

    Parameters
    ----------
    start, learn_noise, logistic_bound, max_iter
        As in `MeanField`.
    components : int, default 5
    objective : {"bound", "unbiased"}, default "bound"
        The entropy of a mixture has no closed form: the bound of Theorem 7.3, or stochastic gradients with unbiased
        estimates of its slope (7.27).
    draws : int, optional
        Of each component, for an unbiased estimate. None: 64.
    max_steps : int, optional
        Most steps of stochastic gradients. None: 1000.
    """

    components: Annotated[int, Positive(integer=True)] = 5
    objective: Annotated[str, OneOf("bound", "unbiased")] = "bound"
    draws: Annotated[int | None, AtLeast(2, none=f"{_DRAWS}")] = None
    max_steps: Annotated[int | None, Positive(integer=True, none=f"{_STEPS}")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("draws", "max_steps"):
            if self.objective == "bound" and getattr(self, name) is not None:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} has no effect with objective='bound': leave it out, or set "
                    "objective='unbiased'."
                )


FAMILIES = Named({"mean-field": MeanField, "mixture": Mixture})


class SupportLike:
    """A `Support`, or its values."""

    def __call__(self, name: str, value: Any) -> None:
        as_support(value)


SupportArgument = Annotated[int | list[float] | np.ndarray | Support, SupportLike()]


def as_support(support: Any) -> Support:
    """Return what the argument ``support`` stands for."""
    return support if isinstance(support, Support) else Support(support)


def resolved_family(family: Any) -> Any:
    """Return what the argument ``family`` stands for, with its own numbers where none were given."""
    found = FAMILIES.resolve("family", family)
    if isinstance(found, Mixture) and found.objective == "unbiased":
        return found.given(draws=_DRAWS, max_steps=_STEPS)
    return found


def _numbers(given: Any, finite: bool = True) -> np.ndarray | None:
    """Return an array of numbers, None for what is none."""
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return None if finite and not np.all(np.isfinite(values)) else values
