"""What all estimators share: data in and out, scaling, predictions by tiles, files."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vastgp import _accelerator
from vastgp._arguments import Positive
from vastgp.data import (
    Exposure,
    OwnNoise,
    Rows,
    RowWeights,
    Standardizer,
    as_rows,
    processes,
)
from vastgp.data.padding import padded_size, repeat_last
from vastgp.data.shared_rows import as_shared_rows
from vastgp.data.validate import check_num_rows
from vastgp.estimators.arguments import input_units, refuse_own_noise, seed_from
from vastgp.estimators.fitted import FittedModel
from vastgp.estimators.further_rows import exact_given_also
from vastgp.estimators.judging import OWN
from vastgp.estimators.race import race, seconds_of_compiling
from vastgp.estimators.sharing import check_own_of_rows
from vastgp.estimators.simple_answers import SUBSET, posterior_from_state, posterior_to_state
from vastgp.fitting.progress import Progress
from vastgp.fitting.run import Answer, Run
from vastgp.likelihoods import Gaussian, Likelihood

# What a method says of its own answer, kept in files beside a simple one.
_OF_THE_METHOD = ("solver_", "diagnosis_", "num_basis_", "num_inducing_")


class BaseGP(FittedModel, abc.ABC):
    """Base of the estimators: a subclass says how to fit standardised rows and how to predict them.

    A subclass stores its constructor arguments untouched (``dtype`` and ``verbose`` among them) and has

    - ``_check_params()``: refuse what the declarations of the arguments cannot say, before any work;
    - ``_answers(rows, run)``: give answers, each better than the one before;
    - ``_posterior_class``, whose posteriors are plain data by ``to_state()`` and ``from_state(dict, arrays)``, and
      ``_beside_posterior``; or ``_state() -> (dict, arrays)`` and ``_restore_state(dict, arrays)`` of its own;
    - ``_tile_rows()``: how many rows to predict at a time;
    - ``_scales_target()``: whether the target is standardised.

    The posterior has ``mean(X)``, ``mean_and_latent_variance(X)`` and ``samples(X, num_samples, seed)`` at standardised
    inputs. All but ``_answers`` find ``posterior_`` set, and all run inside ``_at_work()``.

    Attributes
    ----------
    kernel_ : Kernel
        Learned kernel in the units of inputs and target.
    likelihood_ : Likelihood
        How observations scatter around the function, in units of the target.
    n_iter_ : int
        Steps done.
    converged_ : bool
        Whether the fit ended because it had converged.
    stop_reason_ : str
        Why the fit ended, in words.
    history_ : History
        Steps, seconds, objective with its standard error, and more by method.
    posterior_ : object
        Posterior of the function, in standardised units.
    standardizer_ : Standardizer
        Means and scales of the training rows.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Names of the inputs, when they came with some.
    target_name_ : str or None
        Name of the target, when it came with one.
    fit_seconds_ : float
        Wall-clock seconds of ``fit``.
    answer_ : {"own", "linear", "subset", "average"}
        Whose answer the fit ended with: the method's own, or where that was worse, that of linear functions of the
        inputs or the exact posterior of some rows (see `vastgp.estimators.race`); of up to 500 rows that leave open
        whether their function is linear, or what its hyperparameters are, an average over that
        (`vastgp.estimators.few_rows`). Attributes of the method itself then tell of its own answer.
    scores_ : dict of str to float
        Mean log density of the answers that were compared, at standardised rows that were kept out of the fit: 5 % of
        the rows, at most 500, from 2000 rows on (of methods that choose functions by the rows a tenth, from 501 on),
        rows in memory together with those that repeat them, which count once; with fewer rows, at those of the fit.
        Empty where the hyperparameters were given, which are then the model.
    """

    # what compiling the method's programs takes in a new process, on two cores
    _compiling_seconds: ClassVar[float] = 2.0
    # rows up to which all is done on the host, though there be an accelerator
    _rows_of_host: ClassVar[int] = 5000
    # rows of a table from which some are kept out of the fit, to judge its answer by
    _least_to_spare: ClassVar[int] = 2000
    # whether its functions have a prior of their own, rather than that of the kernel, which it approximates
    _has_own_prior: ClassVar[bool] = False

    answer_: str
    scores_: dict[str, float]

    # ------------------------------------------------------------ what a method supplies

    def _check_inputs(self, num_features: int) -> None:
        """Refuse arguments that rows with so many inputs cannot have, before any work."""

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        """Fit ``rows``, scaled by ``standardizer_``: give answers, each better than the one before.

        The first should come early. The base stops asking when the budget of ``run`` is used up.
        """
        raise NotImplementedError

    def _latent(self, X: np.ndarray, with_variance: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Return posterior mean and variance of the function at standardised inputs."""
        if with_variance:
            return self.posterior_.mean_and_latent_variance(X)
        return self.posterior_.mean(X), None

    def _sample_latent(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function at standardised inputs."""
        return self.posterior_.samples(X, num_samples, seed)

    def _tile_rows(self) -> int:
        """Return how many rows to predict at a time."""
        return 16_384

    def _scales_target(self) -> bool:
        """Return whether targets are standardised: not where their values have a meaning of their own."""
        return True

    def _least_rows(self) -> int:
        """Return how many rows a fit needs: from one alone, nothing can be learned."""
        return 2

    def _simple_likelihood(self, y: np.ndarray) -> Likelihood:
        """Return the likelihood of the linear answer: log-concave, in standardised units."""
        del y
        return Gaussian(1.0)

    def _compiles_nothing(self, rows: Rows) -> bool:
        """Whether a fit to these rows is all in NumPy, so that the method has its answer in little time."""
        del rows
        return False

    def _can_spare(self, left: int, run: Run) -> bool:
        """Return whether rows may be kept out of a fit to judge its answer by, where so many are left to it."""
        del left, run
        return True

    def _end_race(self, own: dict[str, Any] | None, out: Rows | None) -> None:
        """Keep what is of use to a model that takes rows later.

        ``own`` are attributes of the method's own answer where another one is kept, ``out`` the rows that were kept out
        of the fit.
        """

    def _take_in(self, rows: Rows, seconds: float | None = None) -> bool:
        """Condition the answer on further rows, with all that was learned as it is; return whether that could be done.

        Parameters
        ----------
        rows : Rows
            As they are opened for a fit.
        seconds : float, optional
            That it may take.
        """
        found = exact_given_also(self, rows, seconds) if self.answer_ == SUBSET else None
        if found is not None:
            self.posterior_ = found[0]
        return found is not None

    @property
    @abc.abstractmethod
    def _simple_reader(self) -> type[BaseGP]:
        """Return the class whose way of reading a posterior is that of simple answers."""

    @abc.abstractmethod
    def _log_densities(self, rows: Rows) -> np.ndarray:
        """Return the log density of the target of each row, in standardised units; labels are coded."""

    # ------------------------------------------------------------ fit

    def fit(self, X: Any, y: Any = None, **others: Any) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
            Inputs: array, pandas or polars data frame, Arrow table, or the path of a ``.npy``, ``.npz``, ``.csv`` or
            Parquet file or a folder of Parquet files. Files are read by blocks, so they may be larger than memory where
            the method allows it.
        y : array-like of shape (n,) or str
            Target, or the name of its column in ``X``. May be left out only for an ``.npz`` file with an array ``y``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or constructor arguments; the message names the argument, what it received and what to do.
        TypeError
            For any other argument: ``noise_std`` and ``sample_weight`` are taken by some estimators, as the message
            says.
        """
        refuse_own_noise(type(self).__name__, others)
        return self._fit_whole(lambda work: work._open_rows(X, y))

    def _open_rows(
        self, X: Any, y: Any, own_noise: OwnNoise | Exposure | RowWeights | None = None
    ) -> Rows:
        """Open the training data, and learn their names and their scaling."""
        if own_noise is None:
            rows = self._open_training(X, y)
        else:
            check_own_of_rows()
            X, own_noise = own_noise.read_columns(X)
            rows = own_noise.attach(self._open_training(X, y))
            check_num_rows(rows.X.shape, self._least_rows())
        self._remember_columns(rows)
        self._check_inputs(rows.d)
        scaled = rows if self._scales_target() else dataclasses.replace(rows, y=None)
        self.standardizer_ = Standardizer(self._isotropic, self._tied(rows.d)).fit(scaled)
        return rows

    def _is_sooner_on_host(self, rows: Rows, run: Run) -> bool:
        """Whether few rows, or a budget that compilation would take half of, leave an accelerator out.

        Several processes work on what they have, all alike.
        """
        if not _accelerator.is_present() or processes.count() > 1:
            return False
        budget = np.inf if run.max_seconds is None else run.max_seconds
        return rows.n <= self._rows_of_host or budget < 2.0 * seconds_of_compiling(self)

    def _settle(self, rows: Rows, run: Run) -> Answer:
        """Fit, and keep the best answer: the method's own unless a simpler one predicts rows better."""
        self.answer_, self.scores_ = OWN, {}
        if self._is_fixed:
            return super()._settle(rows, run)
        return race(self, rows, run)

    def _take(self, answer: Answer) -> None:
        """Set the attributes of an answer, in the units of inputs and target."""
        scaling = self.standardizer_
        units = input_units(scaling, self._isotropic)
        kernel = answer.kernel
        self.kernel_ = None if kernel is None else kernel.in_units(units, scaling.y_scale)
        self.likelihood_ = answer.likelihood.in_units(scaling.y_scale)

    def _open_training(self, X: Any, y: Any) -> Rows:
        """Open the training data."""
        return as_shared_rows(
            X, y, min_rows=self._least_rows(), require_y=True, estimator=type(self).__name__
        )

    def _remember_columns(self, rows: Rows) -> None:
        self.n_features_in_ = rows.d
        self.target_name_ = rows.target_name
        if rows.feature_names is not None:
            self.feature_names_in_ = np.asarray(rows.feature_names, dtype=object)

    # ------------------------------------------------------------ samples

    def sample_y(self, X: Any, n_samples: Any = 1, random_state: Any = 0) -> np.ndarray:
        """Draw samples of the function from the posterior.

        As in scikit-learn's ``GaussianProcessRegressor``, these are samples of the function, joint over the rows:
        without the noise of observations. Add ``likelihood_.noise_std`` times standard normals for samples of those
        (Gaussian likelihood). For classes, the link makes probabilities of them.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
        n_samples : int, default 1
        random_state : int, RandomState or None, default 0
            The same integer gives the same samples.

        Returns
        -------
        ndarray of shape (n, n_samples), or (n, C, n_samples) with a function for each of C > 2 classes
            In the units of the target, where it is scaled.
        """
        check_is_fitted(self, "posterior_")
        Positive(integer=True)("n_samples", n_samples)
        rows = self._open(X)
        inputs = np.concatenate([tile for tile, _ in self._tiles(rows)])
        with self._at_work():
            draw = self._reader("_sample_latent")
            samples = self._as_samples(draw(inputs, int(n_samples), seed_from(random_state)))
        return self.standardizer_.inverse_mean(samples)

    def _as_samples(self, latent: np.ndarray) -> np.ndarray:
        """Return what is sampled, in standardised units, from samples of the latent functions."""
        return latent

    # ------------------------------------------------------------ rows to predict

    def _reader(self, name: str) -> Any:
        """Return how the posterior is read: the method's way, or that of all where the answer is a simple one."""
        if self.answer_ == OWN:
            return getattr(self, name)
        return getattr(self._simple_reader, name).__get__(self)

    def _check_own(self, what: str) -> None:
        """Refuse what only the method's own answer has."""
        if self.answer_ != OWN:
            given = "hyperparameters" in self.get_params(deep=False)
            own = (
                ": with a kernel and hyperparameters=Fixed(...) nothing is compared"
                if given
                else ""
            )
            raise ValueError(
                f"{what} is of the method's own answer, and this fit ended with another ({self.answer_!r}): "
                f"{self.stop_reason_}. Where time was short, fit again with more (max_seconds); where these rows "
                f"decided it, more rows may decide otherwise{own}."
            )

    def _open(self, X: Any, y: Any = None, require_y: bool = False) -> Rows:
        """Open data to predict, checked against those of the fit."""
        opened = partial(
            as_rows,
            X,
            y,
            feature_names=getattr(self, "feature_names_in_", None),
            n_features=self.n_features_in_,
            require_y=require_y,
            estimator=type(self).__name__,
        )
        return processes.together(opened) if self._asks_all else opened()

    @property
    def _asks_all(self) -> bool:
        """Whether all processes predict together, each rows of its own: each has a part of what they predict from."""
        return bool(getattr(self.posterior_, "of_all_processes", False))

    def _tiles(self, rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        for X, y in rows.batches(self._reader("_tile_rows")()):
            yield self.standardizer_.transform_X(X, dtype=np.dtype(self._arithmetic)), y

    def _by_tiles(
        self, rows: Rows, with_variance: bool, latent: Any = None, functions: int = 0
    ) -> tuple[np.ndarray, Any]:
        """Return mean and variance of the function at all rows, float64, in standardised units.

        Of shape (n,), or (C, n) where there is one function for each of C classes. ``latent`` may give those of
        ``functions`` instead of `_latent`, of shape (functions, n) also where it is one.
        """
        shape: tuple[int, ...] = (functions, rows.n)
        if not functions:
            number = self.likelihood_.num_latent
            shape = (rows.n,) if number == 1 else (number, rows.n)
        latent = latent or self._reader("_latent")
        most = self._reader("_tile_rows")()
        mean = np.empty(shape)
        variance = np.empty(shape) if with_variance else None
        done = 0
        with Progress("predict", bool(self.verbose)) as progress:
            for X, _ in self._tiles(rows):
                here = slice(done, done + len(X))
                # tables of similar sizes share compiled code; a server predicts one row at a time
                size = len(X) if len(X) == 1 else min(padded_size(len(X)), max(most, len(X)))
                with self._at_work():
                    of_tile = latent(repeat_last(X, size), with_variance)
                    mean[..., here] = of_tile[0][..., : len(X)]
                    if variance is not None:
                        variance[..., here] = of_tile[1][..., : len(X)]
                done += len(X)
                progress.update(done / rows.n)
        if self._asks_all:
            # others may have more tiles, in which this process has a say
            tiles = -(-rows.n // most)
            for _ in range(int(np.max(processes.gathered(np.int64(tiles)))) - tiles):
                with self._at_work():
                    latent(np.zeros((1, rows.d), self._arithmetic), with_variance)
        return mean, variance

    # ------------------------------------------------------------ files

    def _posterior_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        if self.answer_ == OWN:
            return self._state()
        state, arrays = posterior_to_state(self.posterior_)
        known = {name: getattr(self, name) for name in _OF_THE_METHOD if hasattr(self, name)}
        return state | {"known": known}, arrays

    def _restore_posterior(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        if self.answer_ == OWN:
            self._restore_state(state, arrays)
        else:
            self.posterior_ = posterior_from_state(state, arrays)
            self.__dict__ |= state["known"]

    def _data_header(self) -> dict[str, Any]:
        names = getattr(self, "feature_names_in_", None)
        return {
            "n_features_in": self.n_features_in_,
            "feature_names_in": None if names is None else [str(name) for name in names],
            "target_name": self.target_name_,
            "answer": self.answer_,
            "scores": {name: float(score) for name, score in self.scores_.items()},
            "standardizer": self.standardizer_.to_dict(),
        }

    def _restore_data(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.n_features_in_ = header["n_features_in"]
        if header["feature_names_in"] is not None:
            self.feature_names_in_ = np.asarray(header["feature_names_in"], dtype=object)
        self.target_name_ = header["target_name"]
        self.answer_, self.scores_ = header["answer"], header["scores"]
        self.standardizer_ = Standardizer.from_dict(header["standardizer"])
