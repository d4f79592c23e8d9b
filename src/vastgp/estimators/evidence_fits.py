"""What `IterativeGPRegressor` and `RandomFeatureGPRegressor` share: first hyperparameters, and learning by Adam."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.data import Rows
from vastgp.estimators.arguments import (
    check_choice,
    check_fixed,
    check_flag,
    check_positive,
    check_spectrum,
    fixed_noise_variance,
)
from vastgp.estimators.checkpoints import checkpoint_of
from vastgp.estimators.first_hyperparameters import first_hyperparameters
from vastgp.estimators.regressor import BaseGPRegressor
from vastgp.fitting.adam_ascent import Estimator, climb_evidence
from vastgp.fitting.loop import OUT_OF_TIME, LoopResult
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian


class EvidenceFits(BaseGPRegressor):
    """Fits whose hyperparameters come from some rows, and climb noisy slopes of the evidence of all rows from there.

    A subclass has the constructor arguments named below.
    """

    kernel: Any
    isotropic: Any
    hyperparameters: Any
    noise_std: Any
    noise_floor: Any
    start_rows: Any
    learning_rate: Any
    max_seconds: Any
    checkpoint: Any
    checkpoint_seconds: Any
    random_state: Any

    def _check_params(self) -> None:
        check_choice("hyperparameters", self.hyperparameters, ("learn", "subset", "fixed"))
        for name in ("noise_floor", "learning_rate", "tol", "checkpoint_seconds"):
            check_positive(name, getattr(self, name))
        check_positive("start_rows", self.start_rows, integer=True)
        check_positive("max_seconds", self.max_seconds, none="no limit")
        check_flag("isotropic", self.isotropic)
        check_fixed(self)

    def _check_inputs(self, num_features: int) -> None:
        # posterior samples and random features alike are made of waves
        check_spectrum(self.kernel, num_features)

    def _least_rows(self) -> int:
        return 1 if self.hyperparameters == "fixed" else 2

    def _first_hyperparameters(self, rows: Rows, seed: int) -> tuple[Kernel, Gaussian]:
        """Return kernel and noise, in standardised units, as given or of some rows."""
        fixed = self.hyperparameters == "fixed"

        def noise(y: np.ndarray) -> Gaussian:
            del y
            return Gaussian(
                fixed_noise_variance(self.noise_std, self.standardizer_) if fixed else 1.0
            )

        kernel, likelihood = first_hyperparameters(self, rows, seed, noise)
        assert isinstance(likelihood, Gaussian)
        return kernel, likelihood

    def _climb(
        self,
        estimate: Estimator,
        kernel: Kernel,
        likelihood: Gaussian,
        rows: Rows,
        seed: int,
        *,
        steps: int,
        share: float,
        tol: float | None = None,
    ) -> tuple[Kernel, Gaussian, LoopResult]:
        """Learn kernel and noise on all rows, in at most a share of what is left of ``max_seconds``."""
        left = self._seconds_left(self.max_seconds)
        kernel, noise_variance, loop = climb_evidence(
            estimate,
            (kernel, likelihood),
            steps=steps,
            rate=self.learning_rate,
            noise_floor=self.noise_floor,
            num_rows=rows.n,
            dtype=self.dtype,
            tol=tol,
            max_seconds=None if left is None else share * left,
            checkpoint=checkpoint_of(self, rows, seed, ".learning"),
            verbose=bool(self.verbose),
        )
        return kernel, Gaussian(noise_variance), loop

    def _unfinished_learning(self, loop: LoopResult, steps: int) -> str:
        """Return what to say of learning that did not come to its end."""
        again = (
            "Give more time (max_seconds)" if loop.reason == OUT_OF_TIME else "Raise noise_floor"
        )
        return (
            f"kernel and noise were learned for {loop.num_iter} of {steps} steps. {again}, or set "
            "hyperparameters='subset'"
        )
