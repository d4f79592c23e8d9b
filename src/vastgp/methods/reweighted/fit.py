"""What estimators with a fixed basis share: the prior's hyperparameters, chains, the posterior, files."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.data.archive import above, below
from vastgp.estimators.arguments import check_choice, check_positive
from vastgp.estimators.base import BaseGP
from vastgp.fitting.lbfgs import LbfgsResult
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.module_state import module_from_state, module_to_state
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.kernels import Kernel, from_spec, to_spec
from vastgp.methods.reweighted.chain_diagnosis import (
    Chains,
    import_arviz,
    import_blackjax,
    warn_of_chains,
)
from vastgp.methods.reweighted.draws import inference_data
from vastgp.methods.reweighted.evidence import EvidenceData, prepare
from vastgp.methods.reweighted.hyperparameter_chains import (
    CHUNK,
    SAMPLERS,
    ChainPlan,
    HyperPosterior,
)
from vastgp.methods.reweighted.kernel_weight_prior import KernelPrior
from vastgp.methods.reweighted.latent_mixture import LatentMixture
from vastgp.methods.reweighted.weight_mixture import ComponentMixture, WeightMixture
from vastgp.methods.reweighted.weight_priors import (
    DiagonalPrior,
    OrthogonalPrior,
    ScalePrior,
    SpectralPrior,
    WeightPrior,
)

# What a file of a model may hold beside bases.
_STORED = (DiagonalPrior, KernelPrior, OrthogonalPrior, ScalePrior, SpectralPrior, EvidenceData)
# Warm-up, steps and thinning by sampler: those of section 5.4.2 for MALA.
_PLANS = {"nuts": (400, 400, 1), "mala": (1000, 10_000, 50)}


@dataclass(frozen=True)
class Features:
    """A basis and the kernel and noise that it was made for, in standardised units.

    ``learned`` is how they were learned, where that was not by the exact Gaussian process of the start.
    """

    basis: Any
    kernel: Kernel
    noise_variance: float
    learned: LbfgsResult | None = None


class ReweightedFits(BaseGP, abc.ABC):
    """Base of the estimators whose basis stays as it is while hyperparameters of its weights are inferred.

    A subclass has ``_make_features(rows) -> Features`` and ``_make_prior(features, data) -> WeightPrior``, beside the
    constructor arguments that are read here.
    """

    # constructor arguments of all subclasses
    kernel: Any
    sampler: Any
    num_chains: Any
    num_warmup: Any
    num_steps: Any
    thin: Any
    num_components: Any
    start_rows: Any
    noise_floor: Any
    max_seconds: Any
    random_state: Any
    _features: Features
    _target: HyperPosterior
    _predictor: ComponentMixture
    draws_: dict[str, np.ndarray] | None

    # ------------------------------------------------------------ what a method supplies

    @abc.abstractmethod
    def _make_features(self, rows: Rows) -> Features:
        """Return the basis."""

    @abc.abstractmethod
    def _make_prior(self, features: Features, data: Any) -> WeightPrior:
        """Return the family of priors of the weights."""

    def _prior_mean(self, num_basis: int) -> np.ndarray:
        """Return the prior mean of the weights."""
        return np.zeros(num_basis)

    def _aim(
        self, features: Features, statistics: SufficientStatistics, mean: np.ndarray | None = None
    ) -> HyperPosterior:
        """Set and return what is inferred from sums over the rows, the prior mean of the weights being given."""
        with precision("float64"):
            data = prepare(statistics, mean)
        self._features = features
        self._target = HyperPosterior(self._make_prior(features, data), data)
        return self._target

    def _check_chains(self) -> None:
        check_choice("sampler", self.sampler, SAMPLERS)
        check_positive("noise_floor", self.noise_floor)
        for name in ("num_chains", "num_components", "start_rows"):
            check_positive(name, getattr(self, name), integer=True)
        for name, default in zip(
            ("num_warmup", "num_steps", "thin"),
            ("400 or 1000", "400 or 10,000", "1 or 50"),
            strict=True,
        ):
            check_positive(
                name, getattr(self, name), integer=True, none=f"{default}, for NUTS and MALA"
            )
        check_positive("max_seconds", self.max_seconds, none="no limit")

    def _check_libraries(self) -> None:
        """Refuse chains, before any work, where what they need is not installed."""
        import_blackjax()
        import_arviz()

    def _plan(self) -> ChainPlan:
        warmup, steps, thin = _PLANS[self.sampler]
        warmup = self.num_warmup or warmup
        steps, thin = self.num_steps or steps, self.thin or thin
        warmup, steps = (CHUNK * -(-count // CHUNK) for count in (warmup, steps))
        return ChainPlan(self.sampler, self.num_chains, warmup, steps, thin)

    def _use(self, chains: Chains, mean: np.ndarray) -> bool:
        """Keep draws and the mixture of some of them, and return whether the chains have mixed."""
        late = chains.reason == OUT_OF_TIME
        mixed = not late and warn_of_chains(chains, type(self).__name__, 1.05, 100.0)
        theta, coordinates = (
            None if draws is None else _spread_over(draws, self.num_components)
            for draws in (chains.theta, chains.coordinates)
        )
        assert theta is not None
        parts = self._features.basis, self._target.prior, self._target.data, theta
        self._predictor = (
            WeightMixture(*parts, mean)
            if coordinates is None
            else LatentMixture(*parts, coordinates)
        )
        self.draws_ = {
            "theta": chains.theta,
            "lp": chains.log_density,
            "acceptance_rate": chains.acceptance,
            "diverging": chains.diverging,
        }
        self.r_hat_, self.ess_ = float(np.max(chains.r_hat)), float(np.min(chains.ess))
        return mixed

    def _inference_data(self) -> Any:
        """Return all draws for ArviZ, in the units of inputs and target."""
        assert self.draws_ is not None
        named = self._target.prior.named(self.draws_["theta"])
        scaling = self.standardizer_
        factors = {"variance": scaling.y_scale**2, "lengthscales": scaling.x_scale}
        for name in named:
            if name == "noise_variance":
                named[name] = named[name] * scaling.y_scale**2
            elif not name.endswith("variances") and name != "relative_variance":
                named[name] = named[name] * factors.get(name.rpartition(".")[2], 1.0)
        stats = {name: value for name, value in self.draws_.items() if name != "theta"}
        return inference_data(named, stats)

    def _kernel_of(self, theta: np.ndarray) -> Kernel:
        """Return the kernel to report: at the draw whose hyperparameters are nearest to their mean."""
        centre = np.argmin(np.sum((theta - theta.mean(axis=0)) ** 2, axis=1))
        found = self._target.prior.kernel_at(theta[centre])
        return self._features.kernel if found is None else found

    def _latent(self, X: np.ndarray, with_variance: bool) -> tuple[np.ndarray, np.ndarray | None]:
        if with_variance:
            return self._predictor.mean_and_latent_variance(X)
        return self._predictor.mean(X), None

    def _sample_latent(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        return self._predictor.samples(X, num_samples, seed)

    # ------------------------------------------------------------ files

    def __getstate__(self) -> dict[str, Any]:
        # all of these come back with the posterior
        derived = ("_learned", "_predictor", "_target", "_features", "statistics_", "draws_")
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in derived}

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        predictor = self._predictor
        parts = {
            "basis": module_to_state(self._features.basis),
            "prior": module_to_state(self._target.prior),
            "data": module_to_state(self._target.data),
            "kernel": to_spec(self._features.kernel),
        }
        state: dict[str, Any] = {name: plain for name, (plain, _) in parts.items()}
        arrays: dict[str, np.ndarray] = {}
        for name, (_, own) in parts.items():
            arrays |= above(f"{name}/", own)
        arrays |= predictor.to_arrays()
        state["noise"] = self._features.noise_variance
        state["mixing"] = None if self.draws_ is None else [self.r_hat_, self.ess_]
        if self.draws_ is not None:
            arrays |= above("draws/", self.draws_)
        return state, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        def module(name: str) -> Any:
            return module_from_state(state[name], below(f"{name}/", arrays), *_STORED)

        with precision("float64"):
            basis, prior, data = module("basis"), module("prior"), module("data")
            self._target = HyperPosterior(prior, data)
        kernel = from_spec(state["kernel"], below("kernel/", arrays))
        self._features = Features(basis, kernel, state["noise"])
        mixture = LatentMixture if "coordinates" in arrays else WeightMixture
        self._predictor = mixture.from_arrays(basis, prior, data, arrays)
        self.draws_ = below("draws/", arrays) or None
        self.posterior_ = self._predictor
        if self.draws_ is not None:
            self.r_hat_, self.ess_ = state["mixing"]
            self.posterior_ = self._inference_data()


def _spread_over(theta: np.ndarray, count: int) -> np.ndarray:
    """Return so many draws, spread evenly over all chains: (chains, draws, ...) to (count, ...)."""
    flat = np.swapaxes(theta, 0, 1).reshape(-1, *theta.shape[2:])
    if len(flat) <= count:
        return flat
    return flat[np.linspace(0, len(flat) - 1, count).round().astype(np.int64)]
