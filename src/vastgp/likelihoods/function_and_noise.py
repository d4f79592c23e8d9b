"""Likelihoods of two latent functions: what observations scatter around, and the logarithm of how far."""

from __future__ import annotations

from typing import Any

from vastgp.likelihoods.base import Likelihood


class FunctionAndNoise(Likelihood):
    """What `HeteroskedasticGaussian` and `LocallyScaled` share: noise of variance ``noise_variance exp(f_2)``."""

    noise_variance: Any

    @property
    def num_latent(self) -> int:
        """Return 2: the function, and the logarithm of the noise variance relative to ``noise_variance``."""
        return 2

    @property
    def noise_std(self) -> Any:
        """Standard deviation of the noise where ``f_2`` is zero."""
        return self.noise_variance**0.5

    def location(self, values: Any) -> Any:
        """Return those of the function."""
        return values[0]

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return the mean of the function."""
        return mean[0]

    def median(self, mean: Any) -> Any:
        """Return that of the function."""
        return mean[0]
