"""What estimators with a fixed basis share: answers, draws for ArviZ, files; and of the regressors, new rows."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.data.archive import above, below
from vastgp.estimators.arguments import refuse_given
from vastgp.estimators.base import BaseGP
from vastgp.estimators.few_rows import FEW_ROWS
from vastgp.estimators.first_hyperparameters import Beginning
from vastgp.estimators.predictive import Predictive
from vastgp.estimators.regressor import BaseGPRegressor
from vastgp.estimators.sharing import SharedRows
from vastgp.estimators.statistics import TakesSums, gather
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Answer, Run
from vastgp.fitting.sufficient_statistics import (
    SufficientStatistics,
    gather_statistics,
    merged_everywhere,
)
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.reweighted.diagnosis import import_arviz, import_blackjax, inference_data
from vastgp.methods.reweighted.evidence import EvidenceData
from vastgp.methods.reweighted.fixed_basis import FixedBasis
from vastgp.methods.reweighted.inference import Found
from vastgp.methods.reweighted.mixtures import WeightMixture
from vastgp.methods.reweighted.model import Features, FixedBasisModel
from vastgp.methods.reweighted.options import BASES, PRIORS, SUBSET, MarkovChains
from vastgp.methods.reweighted.weight_priors import WeightPrior

# Least noise variance of a search, relative to the variance of the target.
NOISE_FLOOR = 1e-6
# Most of what is left of the budget for reading the rows.
_READING = 0.7
# Rows of the first hyperparameters.
START_ROWS = 1000
# Arguments that are fields of other objects now.
CHAIN_ARGUMENTS: dict[str, str] = {
    "sampler": "inference=NUTS(...) or MALA(...) of vastgp.options",
    "start_rows": "hyperparameters=Subset(rows=...)",
    "noise_floor": "hyperparameters=Subset(noise_floor=...)",
} | {
    name: f"inference=NUTS({name}=...) or MALA({name}=...)"
    for name in ("num_chains", "num_warmup", "num_steps", "thin", "num_components", "rows_per_step")
}  # fmt: skip
BASIS_ARGUMENTS = {
    "box_margin": "basis=LaplaceBasis(box_margin=...)",
    "num_reflections": "prior=SpectralWeights(num_reflections=...)",
    "prior_mean": "prior=OrthogonalWeights(mean=...), or another prior's object",
}
TYPE_II_ARGUMENTS = {name: f"inference=TypeII({name}=...)" for name in ("max_iter", "tol")}


class FixedBasisEstimator(BaseGP):
    """Base of the estimators whose basis stays as it is while hyperparameters of its weights are inferred."""

    _has_own_prior: ClassVar[bool] = True

    # constructor arguments of all subclasses
    kernel: Any
    hyperparameters: Any
    _model: FixedBasisModel
    statistics_: SufficientStatistics

    def _search(self, **defaults: Any) -> Any:
        """Return where the functions' kernel comes from, with the method's own numbers where none are given."""
        search = SUBSET.resolve("hyperparameters", self.hyperparameters)
        if search.isotropic:
            raise ValueError(
                "hyperparameters=Subset(isotropic=True) has no effect here: leave it out, and give a kernel with one "
                "lengthscale and inputs in common units."
            )
        refuse_given("hyperparameters", search, tied=None)
        return search.given(**defaults)

    def _check_libraries(self, how: Any) -> None:
        """Refuse chains, before any work, where what they need is not installed."""
        if isinstance(how, MarkovChains):
            import_blackjax()
            import_arviz()

    def _gather(self, rows: Rows, basis: Any) -> SufficientStatistics:
        """Return the sums over all rows, of which each process reads its own."""
        return merged_everywhere(
            gather_statistics(
                rows.local, self.standardizer_, basis, dtype=self.dtype, verbose=bool(self.verbose)
            )
        )

    def _answer(
        self, found: Found, statistics: SufficientStatistics, likelihood: Likelihood
    ) -> Answer:
        model = found.model
        attributes: dict[str, Any] = {"_model": model, "statistics_": statistics}
        if found.log_evidence is not None:
            # a density per unit of the target, of n targets
            scale = statistics.num_rows * float(np.log(statistics.y_scale))
            attributes["log_evidence_"] = found.log_evidence - scale
        if model.draws is not None:
            attributes |= {"r_hat_": model.r_hat, "ess_": model.ess}
        return Answer(
            model.kernel,
            likelihood,
            lambda: self._posterior(model),
            found.n_iter,
            found.reason,
            found.converged,
            found.history,
            advice=found.advice,
            attributes=attributes,
        )

    def _posterior(self, model: FixedBasisModel) -> Any:
        """Return what becomes ``posterior_``: with chains all draws for ArviZ, in the units of inputs and target."""
        if model.draws is None:
            return model.predictor
        scaling = self.standardizer_
        units = model.prior.units(scaling.x_scale, scaling.y_scale)
        named = {
            name: draws * units.get(name, 1.0)
            for name, draws in model.prior.named(model.draws["theta"]).items()
        }
        stats = {name: value for name, value in model.draws.items() if name != "theta"}
        return inference_data(named, stats)

    def _latent(self, X: np.ndarray, with_variance: bool) -> tuple[np.ndarray, np.ndarray | None]:
        if with_variance:
            return self._model.predictor.mean_and_latent_variance(X)
        return self._model.predictor.mean(X), None

    def _sample_latent(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        return self._model.predictor.samples(X, num_samples, seed)

    # ------------------------------------------------------------ files

    def __getstate__(self) -> dict[str, Any]:
        # these come back with the posterior
        state = super().__getstate__()
        return {
            name: value for name, value in state.items() if name not in ("_model", "statistics_")
        }

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self._model.to_state()
        state["statistics"], own = self.statistics_.to_state()
        state["log_evidence"] = getattr(self, "log_evidence_", None)
        return state, arrays | above("statistics/", own)

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self._model = FixedBasisModel.from_state(state, arrays)
        self.statistics_ = SufficientStatistics.from_state(
            state["statistics"], below("statistics/", arrays)
        )
        if state["log_evidence"] is not None:
            self.log_evidence_ = state["log_evidence"]
        if self._model.draws is not None:
            self.r_hat_, self.ess_ = self._model.r_hat, self._model.ess
        self.posterior_ = self._posterior(self._model)


class ChosenBasis(FixedBasisEstimator):
    """With the arguments that choose a basis and the prior of its weights."""

    num_basis: Any
    basis: Any
    prior: Any

    def _check_inputs(self, num_features: int) -> None:
        self._fixed().check_inputs(self.kernel, num_features)

    def _fixed(self) -> FixedBasis:
        basis = BASES.resolve("basis", self.basis)
        return FixedBasis(basis, PRIORS.resolve("prior", self.prior), self.num_basis)

    def _beginning(self, rows: Rows, run: Run, noise_floor: float) -> Beginning:
        """Return what the first hyperparameters are looked for with."""
        search = self._search(rows=START_ROWS, noise_floor=noise_floor)
        kernel = "rbf" if self.kernel is None else self.kernel
        return Beginning(search, kernel, rows, self.standardizer_, run)

    def _make_prior(self, features: Features, data: EvidenceData) -> WeightPrior:
        return self._fixed().make_prior(features, data, self.standardizer_.d, self.dtype)


class FixedBasisRegressor(TakesSums, BaseGPRegressor, FixedBasisEstimator):
    """Base of the regressors: targets with Gaussian noise enter by sums over the rows alone."""

    _shared_rows = SharedRows()
    # each function has a variance of its own, and follows rows that no other process has an exact posterior of
    _least_to_spare: ClassVar[int] = FEW_ROWS + 1

    @abc.abstractmethod
    def _inferred(
        self, features: Features, statistics: SufficientStatistics, run: Run, learned: Any = None
    ) -> Iterator[Answer]:
        """Give answers from sums over the rows of some features."""

    def _gaussian(
        self, found: Iterator[Found], statistics: SufficientStatistics
    ) -> Iterator[Answer]:
        for each in found:
            yield self._answer(each, statistics, Gaussian(each.model.noise_variance))

    def _of_rows(self, features: Features, rows: Rows, run: Run, *learned: Any) -> Iterator[Answer]:
        """Give answers from the rows, or from those that there is time to read."""
        scaling = self.standardizer_
        statistics = gather(rows, scaling, features.basis, self.dtype, run, share=_READING)
        late = f"{OUT_OF_TIME}, by {statistics.num_rows} of {rows.n} rows"
        for answer in self._inferred(features, statistics, run, *learned):
            if statistics.num_rows < rows.n:
                yield replace(answer, reason=late, converged=False)
            else:
                yield answer

    # ------------------------------------------------------------ new rows

    def _basis_of_sums(self) -> Any:
        return self._model.features.basis

    def _answers_of_sums(self, statistics: SufficientStatistics, run: Run) -> Iterator[Answer]:
        return self._inferred(self._model.features, statistics, run)

    # ------------------------------------------------------------ predictions

    def _predictive(self, rows: Rows, with_variance: bool = True) -> Predictive:
        found = super()._predictive(rows, with_variance)
        mixture = self._model.predictor
        if not isinstance(mixture, WeightMixture) or mixture.num_components == 1:
            return found
        parts = (found.likelihood, found.latent_mean, found.latent_variance, found.scaling)
        return MixturePredictive(*parts, mixture, lambda: self._tiles(rows), self.dtype)


@dataclass(frozen=True)
class MixturePredictive(Predictive):
    """A mixture over draws: the density is its own, quantiles are those of the normal with its moments."""

    mixture: WeightMixture
    tiles: Callable[[], Iterator[tuple[np.ndarray, Any]]]
    dtype: str

    @property
    def gaussian(self) -> bool:
        """Return False."""
        return False

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Return the logarithms of the mixture's densities at targets."""
        target = self.scaling.transform_y(y)
        parts, start = [], 0
        for tile, _ in self.tiles():
            with precision(self.dtype):
                parts.append(self.mixture.log_density(tile, target[start : start + len(tile)]))
            start += len(tile)
        return np.concatenate(parts) - np.log(self.scaling.y_scale)
