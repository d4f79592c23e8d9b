"""`StationGP`: readings at scattered stations, and the map between them with its uncertainty."""

from __future__ import annotations

import time
from typing import Annotated, Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from vastgp._arguments import Flag, OneOf, Positive, RandomState, check_arguments
from vastgp.auto.stations.first_trend import check_places, encoded, first_trend, inputs_of
from vastgp.auto.stations.fitted import FittedMap
from vastgp.auto.stations.kriging import Kriging, kriging
from vastgp.auto.stations.nearest_kriging import NearestKriging, nearest_kriging
from vastgp.auto.stations.pace import seconds_to_condition
from vastgp.auto.stations.process import (
    METHODS,
    PlaceProcess,
    conditioned,
    gives_nearest,
    method_of,
)
from vastgp.auto.stations.readings import Readings, read_readings
from vastgp.auto.stations.targets import make_target
from vastgp.auto.stations.validation import CrossValidation, cross_validated
from vastgp.auto.stations.variogram import Variogram, variogram_of
from vastgp.data.own_noise import OwnNoise
from vastgp.estimators.arguments import seed_from
from vastgp.fitting.progress import Progress

# Of the budget, for hyperparameters; what is left conditions process and trend on all readings. Where that takes
# longer, they have less, and no less than the second share; the third without a trend, where nothing is solved for.
_RACE, _LEAST_RACE, _RACE_ALONE = 0.6, 0.25, 0.9
_LEAST_SECONDS = 1.0
# Standard errors by which a correction of deviations must differ from none.
_DOUBT = 3.0
# Standard errors by which one that narrows is held back.
_SURE = 2.0
# So many times the inducing inputs are another model.
_FINER = 1.5


class StationGP(FittedMap):
    """A map, with its uncertainty, from readings at scattered stations: kriging on the sphere, for very many stations.

    A value is ``c + f(place, time) + h^T b + noise``: a Gaussian process of place and time, whose kernel is one of the
    straight line between places through the Earth, and a linear trend in covariates such as height, whose coefficients
    are learned with their uncertainty (regression kriging, see `vastgp.auto.stations.kriging`). Methods that suit the
    number of stations race on stations held out, and deviations are corrected by these.

    Parameters
    ----------
    max_seconds : float or None, default 60.0
        Budget of `fit`. None: until all have converged.
    method : {"auto", "exact", "nearest", "swsgp", "qsgp", "tsvgp", "iterative"}, default "auto"
        "auto": the exact process of up to 3000 readings, beyond "nearest": each place is predicted from the readings
        nearest to it, and the trend is learned by all of them. "swsgp" where most of these repeat a place and time.
    kernel : Kernel, str or None, default None
        Of place and time. None: that of highest evidence. A name, ``"matern32"``, stands for kernels of that form.
    hyperparameters : Fixed, optional
        `vastgp.options.Fixed(noise_std=...)` holds the kernel as it is given, with lengthscales in km (in units of the
        coordinates of a plane), years for dates, and the noise. None: they are learned.
    calibrate : bool, default True
        Whether deviations are corrected by one factor where stations held out ask for it, by three standard errors.
    random_state : int, Generator or None, default 0
    verbose : bool, default False
        Whether to show progress of what takes more than two seconds.

    Attributes
    ----------
    trend_ : dict
        By covariate its coefficient and standard error, in units of the target over those of the covariate.
    lengthscales_km_ : dict
        Lengthscale of places, in kilometres of the straight line; nothing in a plane.
    kernel_ : Kernel
        In km (units of a plane), years, and units of the target.
    noise_std_ : float
        Standard deviation of the learned noise.
    std_factor_ : float
        What deviations are corrected by.
    n_stations_, n_readings_, n_rows_dropped_ : int
        Different stations, readings with a value, and rows without one.
    method_ : str
        Class of the estimator that won.
    encoding_ : tuple of Column
        What was done with place and time.
    leaderboard_ : Leaderboard
        What ran on stations held out.
    fit_seconds_ : float

    References
    ----------
    Cressie, N. (1993). Statistics for Spatial Data, section 3.4 (universal kriging).
    Hengl, T., Heuvelink, G., Rossiter, D. (2007). About regression-kriging. Computers & Geosciences 33.

    Examples
    --------
    >>> import vastgp
    >>> model = vastgp.StationGP().fit("stations.csv", "temp", covariates=["height"])    # doctest: +SKIP
    >>> model.predict({"lat": range(40, 60), "lon": range(0, 20)})                       # doctest: +SKIP
    """

    def __init__(
        self,
        max_seconds: Annotated[float | None, Positive(none="until all have converged")] = 60.0,
        method: Annotated[str, OneOf("auto", *METHODS)] = "auto",
        kernel: Any = None,
        hyperparameters: Any = None,
        calibrate: Annotated[bool, Flag()] = True,
        random_state: Annotated[Any, RandomState()] = 0,
        verbose: Annotated[bool, Flag()] = False,
    ) -> None:
        self.max_seconds = max_seconds
        self.method = method
        self.kernel = kernel
        self.hyperparameters = hyperparameters
        self.calibrate = calibrate
        self.random_state = random_state
        self.verbose = verbose

    # ------------------------------------------------------------ fit

    def fit(
        self,
        table: Any,
        target: Any = None,
        lat: Any = None,
        lon: Any = None,
        time: Any = None,
        covariates: Any = None,
        station: Any = None,
        noise_std: Any = None,
    ) -> StationGP:
        """Learn from readings.

        Parameters
        ----------
        table : table, path, xarray.Dataset or xarray.DataArray
            One row a reading: a pandas, polars or Arrow table, a CSV or Parquet file, a NetCDF file or Zarr folder, or
            a Dataset: points, series of times at stations, and ragged arrays of the CF conventions.
        target : str or array-like of shape (n,), optional
            Column of the values; rows without one are left out. May be missing where a Dataset has one variable.
        lat, lon : str, optional
            Columns of latitude and longitude in degrees, by any convention of longitudes. Columns of other names than
            those (x, y) are coordinates of a plane. None: those that are called so.
        time : str, optional
            Column of times: dates (trend, season and time of day become inputs where the readings span enough of them)
            or numbers. None: values do not change with time.
        covariates : str or list of str, optional
            Columns that the values have a linear trend in, such as height; maps need them as well.
        station : str, optional
            Column of the station's name; None: readings at one place are of one station. Calibration and
            `cross_validate` keep stations together.
        noise_std : str or array-like of shape (n,), optional
            Known standard deviation of each reading's own error, in units of the target, beside the learned noise.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For columns that are not there, coordinates that are missing or not on the Earth, readings all at one place,
            covariates that say nothing; the message names table, column and row.
        """
        began = _now()
        check_arguments(self)
        readings = read_readings(table, target, lat, lon, time, covariates, station, noise_std)
        work = clone(self)
        work._learn(readings, began)
        self.__dict__ |= work.__dict__
        return self

    def _learn(self, readings: Readings, began: float) -> None:
        check_places(readings)
        seed = seed_from(self.random_state)
        budget = None if self.max_seconds is None else float(self.max_seconds)
        deadline = None if budget is None else began + budget
        given = {"kernel": self.kernel, "hyperparameters": self.hyperparameters}
        asked = {name: value for name, value in given.items() if value is not None}
        trend = readings.beside.shape[1] > 0
        values = readings.y
        if trend and self.hyperparameters is None:
            values = values - first_trend(readings, asked, seed, budget)
        method = method_of(readings) if self.method == "auto" else self.method
        left = None if deadline is None else self._seconds_of_race(method, readings, deadline)
        process = PlaceProcess(
            method,
            max_seconds=left,
            calibrate="scale" if self.calibrate else None,
            space={"lat": readings.space.first, "lon": readings.space.second}
            if readings.space.sphere
            else (readings.space.first, readings.space.second),
            random_state=seed,
            verbose=self.verbose,
        )
        process._asked, process._stations = asked, readings.station
        process._fit_whole(inputs_of(readings), values, OwnNoise(readings.noise, None))
        self.process_, self.readings_ = process, readings
        X = self._encoded_readings()
        self.kriging_ = self._conditioned(X, np.arange(len(readings)), deadline)
        # how one kind of answer was off on stations held out says nothing of another
        alike = _alike(process.model_, self.kriging_.model)
        process.model_ = self.kriging_.model
        held_out = len(process.held_out_.get("y", ()))
        factor = float(process.calibration_.std_factor)
        self.std_factor_ = _believed(factor, held_out) if alike else 1.0
        self.fit_seconds_ = _now() - began

    def _seconds_of_race(self, method: str, readings: Readings, deadline: float) -> float:
        """Return how long hyperparameters may be looked for, so that the rest is done by the deadline."""
        rest, most = 0.0, _RACE
        if method == "swsgp":
            systems = 1 + readings.beside.shape[1]
            rest = systems * seconds_to_condition(readings, seed_from(self.random_state))
        elif method == "nearest" and not readings.beside.shape[1]:
            most = _RACE_ALONE
        left = max(deadline - _now(), _LEAST_SECONDS)
        return float(np.clip(left - rest, _LEAST_RACE * left, most * left))

    def _encoded_readings(self) -> np.ndarray:
        readings = self.readings_
        return encoded(self.process_, readings.place, readings.when, readings)

    def _conditioned(
        self, X: np.ndarray, rows: np.ndarray, deadline: float | None = None
    ) -> Kriging:
        """Return process and trend given some of the readings, at the hyperparameters that were learned."""
        readings, process = self.readings_, self.process_
        y, H, noise = readings.of_rows(rows)
        given = (process.encoder_.tied_, X[rows], y)
        if not gives_nearest(process.model_):
            return kriging(process.model_, *given, H, noise, readings.covariates)
        whole = getattr(self, "kriging_", None)
        most = whole.trend_readings if isinstance(whole, NearestKriging) else None
        return nearest_kriging(
            conditioned(process.model_, *given, noise), H, readings.covariates,
            seed_from(self.random_state), most=most, deadline=deadline,
        )  # fmt: skip

    # ------------------------------------------------------------ predict

    def predict(self, grid: Any, return_std: Any = True) -> Any:
        """Predict on a grid or at points.

        Parameters
        ----------
        grid : mapping, xarray.Dataset or DataArray, table or path
            ``{"lat": ..., "lon": ..., "time": ...}``: lists span a grid, and arrays with named dimensions are taken as
            they are. Of a Dataset or DataArray the coordinates, and the covariates as variables; latitudes may descend,
            and coordinates may have two dimensions or share one. Or a table of points.
        return_std : bool or "latent", default True
            With True, also the standard deviation of a new *reading*: function, trend and learned noise. With
            ``"latent"``, that of function and trend alone.

        Returns
        -------
        xarray.Dataset, or table
            ``mean`` and ``std``, with coordinates and units as they were given; NaN where a covariate is missing. For a
            table of points a frame of the same library, with their coordinates.

        Raises
        ------
        ValueError
            For coordinates or covariates that are missing, by name.
        """
        check_is_fitted(self, "kriging_")
        if not (return_std is True or return_std is False or return_std == "latent"):
            raise ValueError(
                f"return_std must be False, True (readings) or 'latent' (the function), received {return_std!r}."
            )
        readings = self.readings_
        target = make_target(grid, readings, readings.attrs.get(readings.target or "", {}))
        fields = {"mean": np.full(target.size, np.nan)}
        if return_std is not False:
            fields["std"] = np.full(target.size, np.nan)
        with Progress("predict", bool(self.verbose)) as progress:
            for here, place, when, beside in target.tiles():
                there = np.isfinite(beside).all(axis=1)
                at = np.arange(here.start, here.stop)[there]
                if len(at):
                    some = None if when is None else when[there]
                    X = encoded(self.process_, place[there], some, readings)
                    mean, std = self._moments(X, beside[there], return_std)
                    fields["mean"][at] = mean
                    if std is not None:
                        fields["std"][at] = std
                progress.update(here.stop / target.size)
        return target.made(fields)

    def _moments(
        self,
        X: np.ndarray,
        H: np.ndarray,
        kind: Any,
        given: Kriging | None = None,
        noise: Any = None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return mean and deviation at encoded places, of readings with known errors ``noise`` where they have some."""
        given = self.kriging_ if given is None else given
        mean, variance = given.moments(X, H, kind is not False)
        if variance is None:
            return mean, None
        if kind is True:
            variance = variance + given.noise_variance
        deviation = self.std_factor_ * np.sqrt(variance)
        if noise is not None:
            deviation = np.sqrt(deviation**2 + noise**2)
        return mean, deviation

    def cross_validate(
        self,
        by: Any = "station",
        folds: Any = 10,
        block_km: Any = None,
    ) -> CrossValidation:
        """Predict readings by models that have not seen their station, block or time, at the learned hyperparameters.

        Process and trend are conditioned again for each fold. Rows left out at random have neighbours that stay, often
        of the same station, and flatter a map: the answer says by how much.

        Parameters
        ----------
        by : {"station", "block", "time", "row"}, default "station"
            What is left out together: stations; cells of equal area of the Earth or the plane; spans of time; nothing.
        folds : int, default 10
            Parts of about the same number of readings.
        block_km : float, optional
            Size of a block, in km (in units of a plane). None: twice the lengthscale, or less where that leaves fewer
            blocks than folds; of a linear function, which has none, as large as the folds leave it.

        Returns
        -------
        CrossValidation
            RMSE, NLPD and coverage of 95 % intervals, beside those by rows, and mean and std of each reading.
        """
        check_is_fitted(self, "kriging_")
        return cross_validated(self, by, folds, block_km)

    def variogram(self, bins: Any = 15, farthest: Any = None) -> Variogram:
        """Return the empirical semivariogram of the readings without their trend, beside that of kernel and noise.

        Parameters
        ----------
        bins : int, default 15
            Classes of distance.
        farthest : float, optional
            Their end, in km (in units of a plane). None: four lengthscales, or half of the largest distance.

        Returns
        -------
        Variogram
            What `vastgp.plots.variogram_plot` draws. Of more than 2000 readings, the pairs of so many random ones.
        """
        check_is_fitted(self, "kriging_")
        return variogram_of(self, bins, farthest)


def _now() -> float:
    return time.perf_counter()


def _believed(factor: float, rows: int) -> float:
    """Return what to believe of a factor of deviations that readings held out ask for; one where it may be chance.

    A deviation of m rows has a relative standard error of ``1 / sqrt(2 m)``: of few it says less than the evidence.
    Factors that stand out did so by chance in part, and one that narrows goes no further than held-out readings are
    sure of: 3300 stations, factor 0.90 at two such errors from 0.95, intervals of 95 % held 93.6 %, so 94.7 %.
    """
    if not rows or abs(np.log(factor)) <= _DOUBT / np.sqrt(2.0 * rows):
        return 1.0
    return factor if factor > 1.0 else factor * float(np.exp(_SURE / np.sqrt(2.0 * rows)))


def _alike(ran: Any, given: Any) -> bool:
    """Whether what one model was off by on stations held out says something of another, which has all readings.

    It must be the same kind of answer, and of a local method as fine: more inducing inputs leave other deviations.
    """
    of_ran, of_given = (getattr(one, "num_inducing", None) for one in (ran, given))
    finer = of_ran is not None and of_given is not None and of_given > _FINER * of_ran
    return ran.answer_ == given.answer_ and not finer
