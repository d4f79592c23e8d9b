"""What is known of a fitted map, and its file."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from vastgp.auto.stations.kriging import Kriging
from vastgp.auto.stations.process import PlaceProcess
from vastgp.auto.stations.readings import Readings
from vastgp.auto.stations.saved import read_from, to_file
from vastgp.data import write_archive


class FittedMap(BaseEstimator):
    """Base of `StationGP`."""

    process_: PlaceProcess
    kriging_: Kriging
    readings_: Readings
    std_factor_: float
    fit_seconds_: float

    @property
    def trend_(self) -> dict[str, tuple[float, float]]:
        """Coefficient and standard error of each covariate."""
        check_is_fitted(self, "kriging_")
        found, errors = self.kriging_.trend()
        names = self.readings_.covariates
        return {
            name: (float(value), float(error))
            for name, value, error in zip(names, found, errors, strict=True)
        }

    @property
    def lengthscales_km_(self) -> dict[str, float]:
        """Lengthscale of places in kilometres."""
        check_is_fitted(self, "kriging_")
        return self.process_.lengthscales_km_

    @property
    def kernel_(self) -> Any:
        """Kernel of place and time."""
        check_is_fitted(self, "kriging_")
        return self.kriging_.model.kernel_

    @property
    def noise_std_(self) -> float:
        """Standard deviation of the learned noise."""
        check_is_fitted(self, "kriging_")
        return float(self.kriging_.noise_variance**0.5)

    @property
    def method_(self) -> str:
        """Class of the estimator that won."""
        check_is_fitted(self, "kriging_")
        return type(self.kriging_.model).__name__

    @property
    def leaderboard_(self) -> Any:
        """What ran on stations held out."""
        check_is_fitted(self, "kriging_")
        return self.process_.leaderboard_

    @property
    def encoding_(self) -> Any:
        """What was done with place and time."""
        check_is_fitted(self, "kriging_")
        return self.process_.encoding_

    @property
    def n_stations_(self) -> int:
        """Number of different stations."""
        check_is_fitted(self, "kriging_")
        return int(self.readings_.station.max()) + 1

    @property
    def n_readings_(self) -> int:
        """Number of readings with a value."""
        check_is_fitted(self, "kriging_")
        return len(self.readings_)

    @property
    def n_rows_dropped_(self) -> int:
        """Number of rows without one."""
        check_is_fitted(self, "kriging_")
        return self.readings_.dropped

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model, with its readings, to one file, whole or not at all; `vastgp.load` reads it.

        Parameters
        ----------
        path : str or path
            Replaced if it exists.
        """
        check_is_fitted(self, "kriging_")
        write_archive(path, *to_file(self))

    @classmethod
    def _from_file(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        return read_from(cls, header, arrays)
