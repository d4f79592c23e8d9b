"""The front door in files: encoder, model, calibration and leaderboard as numbers and text."""

from __future__ import annotations

import abc
import os
from typing import Annotated, Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

import vastgp
from vastgp._arguments import Flag, KnownArguments, OneOf, Positive, RandomState
from vastgp.auto.encoder import TableEncoder
from vastgp.auto.encoder_state import plain_params
from vastgp.auto.leaderboard import Leaderboard
from vastgp.auto.report.kept import Kept
from vastgp.auto.series import IN_TIME, NOT_IN_TIME
from vastgp.auto.space import lengthscales_in_km
from vastgp.auto.stacking import model_from_file
from vastgp.auto.support import RangeCheck
from vastgp.auto.warps import Own, warp_from_state
from vastgp.data import validate, write_archive
from vastgp.data.archive import above, below
from vastgp.estimators.serialise import decode_params, encode_params


class Transformer:
    """None, or what makes numbers of a table in the way of scikit-learn."""

    _NEEDED = ("fit_transform", "transform", "get_params")

    def __call__(self, name: str, value: Any) -> None:
        if isinstance(value, type):
            made = f"{value.__name__}()"
            raise ValueError(
                f"{name} is the class {value.__name__}, received in place of an object: write {name}={made}."
            )
        missing = [method for method in self._NEEDED if not hasattr(value, method)]
        if value is not None and missing:
            raise ValueError(
                f"{name} must be None, a TableEncoder or another transformer of scikit-learn's kind, received "
                f"{validate.describe(value)}, which has no {' and no '.join(missing)}."
            )


class SavedFrontDoor(KnownArguments, BaseEstimator, abc.ABC):
    """What a fitted front door consists of, written to a file and read from one."""

    # fitted
    model_: Any
    encoder_: Any
    warp_: Own
    calibration_: Any
    leaderboard_: Leaderboard
    support_: RangeCheck
    held_out_: dict[str, np.ndarray]
    kept_: Kept
    n_rows_dropped_: int
    n_rows_left_out_: int
    target_range_: tuple[float, float]
    # whether held-out rows are the last in time, None where rows have no time; and whether inputs are dates alone
    _in_time: bool | None = None
    _dates_alone = False

    def __init__(
        self,
        method: str = "auto",
        max_seconds: Annotated[float | None, Positive(none="until all have converged")] = 60.0,
        max_work: Annotated[int | None, Positive(integer=True, none="a budget in seconds")] = None,
        likelihood: Any = "auto",
        calibrate: Any = "auto",
        encoder: Annotated[Any, Transformer()] = None,
        space: Any = None,
        hold_out: Annotated[str, OneOf("auto", "random", "last")] = "auto",
        random_state: Annotated[Any, RandomState()] = 0,
        verbose: Annotated[bool, Flag()] = False,
    ) -> None:
        self.method = method
        self.max_seconds = max_seconds
        self.max_work = max_work
        self.likelihood = likelihood
        self.calibrate = calibrate
        self.encoder = encoder
        self.space = space
        self.hold_out = hold_out
        self.random_state = random_state
        self.verbose = verbose

    @property
    @abc.abstractmethod
    def _classes(self) -> bool:
        """Whether the target is a class."""

    @property
    def _note_of_leaderboard(self) -> str:
        """What its scores are of, where that is not plain."""
        return ""

    @property
    def _notes_of_leaderboard(self) -> str:
        """All that is said of its scores."""
        of_time = IN_TIME if self._in_time else ""
        if self._in_time is False and self.hold_out == "auto":
            of_time = NOT_IN_TIME
        notes = (self._note_of_leaderboard, of_time)
        return "; ".join(filter(None, notes))

    # ------------------------------------------------------------ what is known of the winner

    @property
    def importance_(self) -> list[tuple[str, float, float]]:
        """Which inputs matter: name, loss of held-out log density (nats a row) when it is shuffled, standard error.

        By the race's model, which had not seen these rows; the largest first. Empty where no rows were held out, or no
        time was left to find out.
        """
        check_is_fitted(self, "model_")
        return list(self.kept_.importance)

    @property
    def encoding_(self) -> Any:
        """What was done with each column: the encoder's records, or the encoder itself where it is another one."""
        check_is_fitted(self, "model_")
        return getattr(self.encoder_, "columns_", self.encoder_)

    @property
    def lengthscales_km_(self) -> dict[str, float]:
        """Lengthscale of a place on the Earth (``space``) in kilometres, by its name; linear functions have none."""
        check_is_fitted(self, "model_")
        return lengthscales_in_km(getattr(self.encoder_, "columns_", ()), self._told_lengthscales())

    @abc.abstractmethod
    def _lengthscales(self) -> np.ndarray | None:
        """Return a unit of distance of each encoded column, where the winner has some: its lengthscale, or a line's."""

    @abc.abstractmethod
    def _told_lengthscales(self) -> np.ndarray | None:
        """Return one lengthscale for each encoded column for people; None of linear functions, which have none."""

    def _encoder_asked(self) -> Any:
        """Return the encoder to fit: with the place that was asked for."""
        if self.space is None:
            return self.encoder
        if self.encoder is None:
            return TableEncoder(space=self.space)
        if not isinstance(self.encoder, TableEncoder) or self.encoder.space not in (
            None,
            self.space,
        ):
            raise ValueError(
                f"space={self.space!r} is for the encoder of vastgp, and encoder={self.encoder!r} was given. Leave "
                "space out, or set it where the encoder is made: encoder=TableEncoder(space=...)."
            )
        return clone(self.encoder).set_params(space=self.space)

    def _of_model(self, name: str) -> Any:
        check_is_fitted(self, "model_")
        return getattr(self.model_, name)

    @property
    def kernel_(self) -> Any:
        """The winner's kernel, in units of the encoded inputs and of the target's scale."""
        return self._of_model("kernel_")

    @property
    def likelihood_(self) -> Any:
        """The winner's likelihood, on the target's scale."""
        return self._of_model("likelihood_")

    @property
    def converged_(self) -> bool:
        """Whether the winner's last fit ended by itself."""
        return bool(self._of_model("converged_"))

    @property
    def stop_reason_(self) -> str:
        """Why the winner's last fit ended."""
        return str(self._of_model("stop_reason_"))

    @property
    def n_iter_(self) -> int:
        """Steps of the winner's last fit."""
        return int(self._of_model("n_iter_"))

    @property
    def history_(self) -> Any:
        """Record of the winner's last fit."""
        return self._of_model("history_")

    # ------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write encoder, model, calibration and leaderboard to one file, whole or not at all; `vastgp.load` reads it.

        The rows that were held out, at most 2000 with at most 50 columns, are in the file as they were in the table:
        `report` shows them.

        Parameters
        ----------
        path : str or path
            Replaced if it exists.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        ValueError
            For an ``encoder`` of another library, which only pickle could store.
        """
        check_is_fitted(self)
        write_archive(path, *self._to_file())

    def _header(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return what a file says of the estimator before it is fitted, and arrays of its arguments."""
        params = self.get_params(deep=False)
        given = params.pop("encoder")
        plain, arrays = encode_params(params)
        return {
            "kind": "model",
            "vastgp": vastgp.__version__,
            "estimator": type(self).__name__,
            "params": plain,
            "encoder": None if given is None else plain_params(given.get_params()),
        }, above("params/", arrays)

    @classmethod
    def _of_header(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        """Return the estimator of a file as it was before it was fitted."""
        params = decode_params(header["params"], below("params/", arrays))
        given = header["encoder"]
        return cls(**params, encoder=None if given is None else TableEncoder(**given))

    def _to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        if not isinstance(self.encoder_, TableEncoder):
            raise ValueError(
                f"encoder={self.encoder!r} cannot be stored in a file that executes nothing. Save the encoder "
                "yourself and the model as model.model_.save(path), or use vastgp.auto.TableEncoder."
            )
        of_estimator, param_arrays = self._header()
        header, arrays = self.model_._to_file()
        support, support_arrays = self.support_.to_state()
        kept, kept_arrays = self.kept_.to_state()
        found = (
            of_estimator
            | {
                "encoding": self.encoder_.to_state(),
                "warp": self.warp_.to_state(),
                "calibration": self.calibration_.to_state(),
                "leaderboard": self.leaderboard_.to_dicts(),
                "in_time": self._in_time,
                "support": support,
                "n_features_in": self.n_features_in_,
                "target_name": self.target_name_,
                "target_range": self.target_range_,
                "rows_dropped": self.n_rows_dropped_,
                "rows_left_out": self.n_rows_left_out_,
                "fit_seconds": self.fit_seconds_,
                "kept": kept,
                "model": header,
            }
            | self._more_header()
        )
        return found, (
            param_arrays
            | above("model/", arrays)
            | above("support/", support_arrays)
            | above("held_out/", self.held_out_)
            | above("kept/", kept_arrays)
        )

    def _more_header(self) -> dict[str, Any]:
        return {}

    def _read_more(self, header: dict[str, Any]) -> None:
        """Set what `_more_header` wrote."""

    @abc.abstractmethod
    def _calibration_from(self, state: Any) -> Any:
        """Return the calibration that a file describes."""

    @classmethod
    def _from_file(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        model = cls._of_header(header, arrays)
        model.model_ = model_from_file(header["model"], below("model/", arrays))
        model.encoder_ = TableEncoder.from_state(header["encoding"])
        model.warp_ = warp_from_state(header["warp"])
        model.calibration_ = model._calibration_from(header["calibration"])
        model.support_ = RangeCheck.from_state(header["support"], below("support/", arrays))
        model.held_out_ = below("held_out/", arrays)
        model.kept_ = Kept.from_state(header.get("kept"), below("kept/", arrays))
        model.n_features_in_, model.target_name_ = header["n_features_in"], header["target_name"]
        model.target_range_ = tuple(header["target_range"])
        model.n_rows_dropped_, model.fit_seconds_ = header["rows_dropped"], header["fit_seconds"]
        model.n_rows_left_out_ = header.get("rows_left_out", 0)
        model._in_time = header.get("in_time")
        model._read_more(header)
        model.leaderboard_ = Leaderboard.from_dicts(
            header["leaderboard"], model._classes, model._notes_of_leaderboard
        )
        names = getattr(model.encoder_, "feature_names_in_", None)
        if names is not None:
            model.feature_names_in_ = names
        return model
