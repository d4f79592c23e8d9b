"""Observations other than targets with Gaussian noise in a fixed basis: chains with latent values."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.data import Rows
from vastgp.estimators.arguments import check_positive
from vastgp.estimators.base import Fit
from vastgp.estimators.first_hyperparameters import first_counts, start_rows
from vastgp.estimators.statistics import gather_with_progress
from vastgp.fitting.dual_start import DualStart, start_from_dual_evidence
from vastgp.fitting.progress import Progress
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.likelihoods import Likelihood
from vastgp.methods.reweighted.fit import Features
from vastgp.methods.reweighted.fixed_basis import FixedBasis
from vastgp.methods.reweighted.latent_chains import LatentRows, draw_latent_hyperparameters
from vastgp.methods.reweighted.latent_values import LatentModel

# Rows whose latent values a step renews: as many as cost about what the step of the hyperparameters does.
ROWS_PER_STEP = 500


class LatentFits(FixedBasis):
    """Fits by chains over hyperparameters and latent values, section 5.3.5 of the thesis."""

    # constructor argument
    rows_per_step: Any

    def _check_rows_per_step(self) -> None:
        check_positive("rows_per_step", self.rows_per_step, integer=True)

    def _latent_start(self, rows: Rows, likelihood: Likelihood) -> DualStart:
        """Return the hyperparameters of highest evidence bound of some rows."""
        X, y = start_rows(self, rows, self._seed)
        return start_from_dual_evidence(
            self._wanted_kernel(), first_counts(likelihood, y), X, y, max_rows=self.start_rows, seed=self._seed,
            noise_floor=self.noise_floor, max_seconds=self._seconds_left(self.max_seconds),
        )  # fmt: skip

    def _fit_latent(
        self, rows: Rows, features: Features, latent: LatentModel, likelihood: Likelihood
    ) -> tuple[Fit, SufficientStatistics]:
        """Draw hyperparameters and latent values; return the fit and the sums over the rows."""
        statistics = gather_with_progress(self, rows, features.basis)
        target = self._aim(features, statistics)
        values = LatentRows(rows, self.standardizer_, features.basis, target.data, self.dtype)
        with Progress("chains", bool(self.verbose)) as progress:
            chains = draw_latent_hyperparameters(
                target.prior, target.data, values, latent, self._plan(), rows_per_step=int(self.rows_per_step),
                seed=self._seed, max_seconds=self._seconds_left(self.max_seconds), on_chunk=progress.update,
            )  # fmt: skip
        mixed = self._use(chains, np.zeros(statistics.num_basis))
        kernel = self._kernel_of(self._predictor.theta)
        fit = Fit(
            kernel, likelihood, self._inference_data(), chains.num_steps, mixed, chains.reason, chains.history
        )  # fmt: skip
        return fit, statistics
