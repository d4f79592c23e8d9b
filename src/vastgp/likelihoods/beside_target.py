"""Likelihoods of targets that have a number of their own beside them, made of the law of one without."""

from __future__ import annotations

from typing import Any, ClassVar

from vastgp.likelihoods.base import Likelihood


class BesideTarget(Likelihood):
    """What `Exposed` and `Weighted` share: targets of two columns, and the law ``of_one`` where no target is given.

    Parameters
    ----------
    of_one : Likelihood
    """

    scales_target: ClassVar[bool] = False
    of_one: Likelihood

    @property
    def num_latent(self) -> int:
        """Number of latent functions."""
        return self.of_one.num_latent

    @property
    def in_numpy(self) -> frozenset[str]:  # type: ignore[override]
        """Names of methods that stay in NumPy: what the law of one says of sites."""
        return self.of_one.in_numpy & {"bound_and_sites"}

    @property
    def most_in_numpy(self) -> float:  # type: ignore[override]
        """Latent values of all rows, up to which they do."""
        return self.of_one.most_in_numpy

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return that of the law of one."""
        return self.of_one.predictive_mean(mean, latent_variance)

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return that of the law of one."""
        return self.of_one.predictive_variance(mean, latent_variance)

    def median(self, mean: Any) -> Any:
        """Return that of the law of one."""
        return self.of_one.median(mean)

    def rough(self) -> BesideTarget:
        """Return the likelihood with rougher quadrature."""
        return type(self)(self.of_one.rough())

    def check_targets(self, y: Any) -> None:
        """Refuse what the law of one refuses.

        Raises
        ------
        ValueError
            Naming ``y``, how many entries are wrong and the first of them.
        """
        self.of_one.check_targets(y[..., 0])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.of_one!r})"
