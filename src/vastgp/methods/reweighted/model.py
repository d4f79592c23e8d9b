"""What a fit with a fixed basis found: functions, the prior of their weights, draws of its hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from vastgp._precision import precision
from vastgp.data.archive import above, below
from vastgp.fitting.module_state import module_from_state, module_to_state
from vastgp.kernels import Kernel, from_spec, to_spec
from vastgp.kernels.stationary import Stationary
from vastgp.methods.reweighted.beyond import Beyond
from vastgp.methods.reweighted.diagnosis import Chains
from vastgp.methods.reweighted.evidence import EvidenceData
from vastgp.methods.reweighted.kernel_weight_prior import KernelPrior
from vastgp.methods.reweighted.mixtures import ComponentMixture, LatentMixture, WeightMixture
from vastgp.methods.reweighted.weight_priors import (
    DiagonalPrior,
    OrthogonalPrior,
    ScalePrior,
    SpectralPrior,
    WeightPrior,
)

# What a file of a model may hold beside bases.
_STORED = (DiagonalPrior, KernelPrior, OrthogonalPrior, ScalePrior, SpectralPrior, EvidenceData)


@dataclass(frozen=True)
class Features:
    """A basis and the kernel and noise that it was made for, in standardised units.

    ``limits``, of shape (2, d), is the range of the data where functions vanish beyond it and the kernel's do not.
    """

    basis: Any
    kernel: Kernel
    noise_variance: float
    limits: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class FixedBasisModel:
    """The posterior of the functions, and what it was made of.

    Attributes
    ----------
    features : Features
    prior : WeightPrior
    data : EvidenceData
        Sums over the rows, prepared.
    theta : ndarray of shape (T, D)
        Hyperparameters of the components that predictions average over, one for type II.
    mean : ndarray of shape (m,)
        Prior mean of the weights.
    coordinates : ndarray of shape (T, C, rank), or None
        ``U^T z`` of the latent values of every component, where there are some.
    draws : dict of ndarray, or None
        All draws by chain, and what the sampler says of them.
    r_hat, ess : float
        Largest R-hat and smallest effective sample size of the hyperparameters.
    """

    features: Features
    prior: WeightPrior
    data: EvidenceData
    theta: np.ndarray
    mean: np.ndarray
    coordinates: np.ndarray | None = None
    draws: dict[str, np.ndarray] | None = field(default=None, repr=False)
    r_hat: float = float("nan")
    ess: float = float("nan")

    @classmethod
    def of_chains(
        cls, features: Features, prior: WeightPrior, data: EvidenceData, mean: np.ndarray, chains: Chains, count: int
    ) -> FixedBasisModel:  # fmt: skip
        """Return the model of all draws whose predictions average over ``count`` of them."""
        theta, coordinates = (
            None if draws is None else _spread_over(draws, count)
            for draws in (chains.theta, chains.coordinates)
        )
        assert theta is not None
        draws = {
            "theta": chains.theta,
            "lp": chains.log_density,
            "acceptance_rate": chains.acceptance,
            "diverging": chains.diverging,
        }
        mixing = float(np.max(chains.r_hat)), float(np.min(chains.ess))
        return cls(features, prior, data, theta, mean, coordinates, draws, *mixing)

    @cached_property
    def predictor(self) -> ComponentMixture:
        """The posterior of the functions."""
        parts = self.features.basis, self.prior, self.data, self.theta
        if self.coordinates is None:
            return self._beyond_too(WeightMixture(*parts, self.mean))
        return self._beyond_too(LatentMixture(*parts, self.coordinates))

    def _beyond_too(self, mixture: Any) -> Any:
        """Return the mixture with what its functions have beyond the data."""
        limits, kernel = self.features.limits, self.kernel
        if limits is not None:
            assert isinstance(kernel, Stationary)
            mixture.beyond = Beyond(kernel, self.noise_variance, *limits)
        return mixture

    @property
    def noise_variance(self) -> float:
        """The noise variance, averaged over the components."""
        return float(np.mean(np.exp(self.theta[:, 0])))

    @property
    def kernel(self) -> Kernel:
        """The kernel to report: at the component whose hyperparameters are nearest to their mean."""
        centre = np.argmin(np.sum((self.theta - self.theta.mean(axis=0)) ** 2, axis=1))
        theta, kernel = self.theta[centre], self.features.kernel
        if isinstance(self.prior, ScalePrior):  # the amplitude that all rows asked for
            return kernel.in_units(1.0, float(np.exp(0.5 * theta[1])))
        found = self.prior.kernel_at(theta)
        return kernel if found is None else found

    # ------------------------------------------------------------ files

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the model as JSON-able data and arrays."""
        parts = {
            "basis": module_to_state(self.features.basis),
            "prior": module_to_state(self.prior),
            "data": module_to_state(self.data),
            "kernel": to_spec(self.features.kernel),
        }
        state: dict[str, Any] = {name: plain for name, (plain, _) in parts.items()}
        arrays: dict[str, np.ndarray] = {}
        for name, (_, own) in parts.items():
            arrays |= above(f"{name}/", own)
        arrays |= self.predictor.to_arrays()
        if self.features.limits is not None:
            arrays["limits"] = self.features.limits
        state["noise"] = self.features.noise_variance
        state["mixing"] = None
        if self.draws is not None:
            state["mixing"] = [self.r_hat, self.ess]
            arrays |= above("draws/", self.draws)
        return state, arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> FixedBasisModel:
        """Return the model that `to_state` described."""

        def module(name: str) -> Any:
            return module_from_state(state[name], below(f"{name}/", arrays), *_STORED)

        with precision("float64"):
            basis, prior, data = module("basis"), module("prior"), module("data")
        kernel = from_spec(state["kernel"], below("kernel/", arrays))
        coordinates, mean = arrays.get("coordinates"), arrays.get("prior_mean")
        model = cls(
            Features(basis, kernel, state["noise"], arrays.get("limits")), prior, data, arrays["theta"],
            np.zeros(basis.num_basis) if mean is None else mean, coordinates,
            below("draws/", arrays) or None, *(state["mixing"] or ()),
        )  # fmt: skip
        mixture = WeightMixture if coordinates is None else LatentMixture
        # what is cached: moments are not computed again
        made = mixture.from_arrays(basis, prior, data, arrays)
        vars(model)["predictor"] = model._beyond_too(made)
        return model


def _spread_over(theta: np.ndarray, count: int) -> np.ndarray:
    """Return so many draws, spread evenly over all chains: (chains, draws, ...) to (count, ...)."""
    flat = np.swapaxes(theta, 0, 1).reshape(-1, *theta.shape[2:])
    if len(flat) <= count:
        return flat
    return flat[np.linspace(0, len(flat) - 1, count).round().astype(np.int64)]
