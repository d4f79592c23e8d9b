"""Several target columns: a model for each, independent of the others, behind one estimator.

Each target has a race of its own, as the best model of one is seldom that of another, and rows that have no value of
one target still teach the others. What the targets have in common beyond the inputs (a coregionalised kernel) is not
learned: given the inputs, predictions of different targets are independent.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from vastgp._arguments import check_arguments
from vastgp.auto.base import FrontDoor
from vastgp.auto.exposures import by_target, read_by_target
from vastgp.data import Exposure, column_names, files, validate
from vastgp.data.labels import table_of
from vastgp.data.own_noise import OwnNoise
from vastgp.data.row_labels import warn_of_other_order
from vastgp.data.tables import Table, as_labels, open_frame
from vastgp.estimators.arguments import seeds_from
from vastgp.estimators.saved import several_from_file, several_to_file

# Letters of a target's name in that of its file.
_LETTERS_OF_A_FILE = 60


class Targets(NamedTuple):
    """Several target columns, and the table without them."""

    X: Any
    columns: dict[Any, np.ndarray]


def several_targets(X: Any, y: Any) -> Targets | None:
    """Return the columns of a target that has several; None of any other, which may yet be wrong.

    Parameters
    ----------
    X : table, path or array-like
    y : sequence of str, data frame or array-like of shape (n, k)
        Names of columns of the table, or the columns: numbered from 0 where they have no names.
    """
    X = open_frame(X)
    named = _names_of_columns(X, y)
    if named is not None:
        table = table_of(X)
        assert table is not None
        columns = {name: table.labels(name) for name in named}
    else:
        columns = _columns(X, y)
    return None if len(columns) < 2 else Targets(_without(X, columns), columns)


def _names_of_columns(X: Any, y: Any) -> list[str] | None:
    """Return the names that ``y`` consists of; None where it holds targets."""
    if not isinstance(y, (list, tuple)) or not all(isinstance(name, str) for name in y):
        return None
    table = table_of(X)
    if table is None or len(y) < 2:
        return None
    missing = [name for name in y if name not in table.names]
    if len(missing) == len(y):
        return None  # labels, one a row
    if missing:
        raise column_names.missing_target_error(missing[0], table.names, table.where)
    column_names.check_unique_names(list(y), "the list of targets y")
    return list(y)


def _columns(X: Any, y: Any) -> dict[Any, np.ndarray]:
    """Return the columns of a data frame or matrix; none of anything else."""
    is_path = isinstance(X, (str, os.PathLike))
    if is_path and (y is None or isinstance(y, str)) and files.suffix_of(Path(X)) == ".npz":
        path, name = Path(X).expanduser(), "y" if y is None else y
        y = files.open_npz(path, [name])[name] if name in files.npz_names(path) else None
    if y is None or isinstance(y, (str, os.PathLike)):
        return {}
    frame = open_frame(y)
    if isinstance(frame, Table):
        if len(frame.names) > 1:  # one alone is a target like any other
            warn_of_other_order(X, frame, "y")
        return {name: frame.labels(name) for name in frame.names}
    # a list of rows has no shape; of one of another library's vectors, making an array is the only way to tell
    matrix = y if hasattr(y, "shape") else as_labels(y)
    if len(matrix.shape) != 2 or matrix.shape[1] < 2:
        return {}
    matrix = as_labels(matrix)
    return {k: matrix[:, k] for k in range(matrix.shape[1])}


def _without(X: Any, columns: dict[Any, np.ndarray]) -> Any:
    """Return the table without its targets, which are no inputs however they were given."""
    if isinstance(X, (str, os.PathLike)) and files.is_table_file(Path(X).expanduser()):
        X = files.open_table_file(Path(X).expanduser(), empty_as_text=True)
    if not isinstance(X, Table):
        return X
    return dataclasses.replace(X, names=[name for name in X.names if name not in columns])


# ---------------------------------------------------------------- fit


def fit_several(
    model: Any, targets: Targets, noise_std: Any, sample_weight: Any, exposure: Any
) -> dict[Any, Any]:
    """Return a fitted model for each target; what is left of the budget is shared by those that are to come.

    Parameters
    ----------
    model : GPRegressor
        Not changed.
    targets : Targets
    noise_std, sample_weight, exposure
        As in its ``fit``; known errors and exposures may have a column for each target.
    """
    count, began = len(targets.columns), time.perf_counter()
    X, own = _own_of_targets(targets.X, noise_std, sample_weight, exposure, count)
    found = {}
    for number, (name, y) in enumerate(targets.columns.items()):
        one = clone(model)
        if model.max_seconds is not None:
            left = model.max_seconds - (time.perf_counter() - began)
            # what is overdue still gets the shortest answer that there is
            one.max_seconds = max(left / (count - number), 0.5)
        if model.max_work is not None:
            one.max_work = max(int(model.max_work) // count, 1)
        try:
            one._fit_whole(X, y, own[number])
        except ValueError as error:
            raise ValueError(f"Of the target {name!r}: {error}") from error
        if isinstance(name, str):
            one.target_name_ = name
        found[name] = one
    return found


def _own_of_targets(
    X: Any, noise_std: Any, sample_weight: Any, exposure: Any, count: int
) -> tuple[Any, Sequence[OwnNoise | Exposure]]:
    """Return the table without columns of errors, weights and exposures, and these for each target."""
    if exposure is not None:
        return read_by_target(X, exposure, count)
    X, (_, weight) = OwnNoise(None, sample_weight).read_columns(X)
    if isinstance(noise_std, (list, tuple)) and all(isinstance(name, str) for name in noise_std):
        parts = []
        for name in dict.fromkeys(noise_std):
            X, (part, _) = OwnNoise(name, None).read_columns(X)
            parts.append(part)
        column = dict(zip(dict.fromkeys(noise_std), parts, strict=True))
        noise_std = np.column_stack([column[name] for name in noise_std])
    else:
        X, (noise_std, _) = OwnNoise(noise_std, None).read_columns(X)
    if noise_std is None or np.ndim(noise_std) != 2:
        return X, [OwnNoise(noise_std, weight)] * count
    errors = validate.numeric_array(noise_std, "noise_std")
    if errors.shape[1] != count:
        raise ValueError(
            f"noise_std has {errors.shape[1]} columns for {count} targets. Expected one for each target, or one for "
            "all of them."
        )
    return X, [OwnNoise(errors[:, k], weight) for k in range(count)]


# ---------------------------------------------------------------- afterwards


def united(found: Sequence[list[str]]) -> list[str]:
    """Return what models say of the same table, each sentence once."""
    return list(dict.fromkeys(text for part in found for text in part))


def stacked(found: Sequence[Any]) -> Any:
    """Return what models say of each row, (n, ...), with an axis of the targets after that of the rows."""
    if isinstance(found[0], tuple):
        return tuple(stacked(part) for part in zip(*found, strict=True))
    if found[0].dtype == bool:  # which rows are outside: for any of the targets
        return np.any(found, axis=0)
    return np.stack(found, axis=1)


def summed(found: Sequence[np.ndarray]) -> np.ndarray:
    """Return log densities of all targets together, which are independent given the inputs."""
    return np.sum(found, axis=0)


def averaged(found: Sequence[float]) -> float:
    """Return the mean of scores, each target counting alike."""
    return float(np.mean(found))


def for_each_target(
    join: Callable[[Sequence[Any]], Any], *, targets: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a method of a model of one target one of several as well.

    Parameters
    ----------
    join : callable
        Makes one result of those of all targets.
    targets : bool, default False
        Whether the argument ``y`` holds targets, of which every model gets its own.

    Notes
    -----
    Of a ``random_state`` every model gets a seed of its own: with the same one samples that are independent would go up
    and down together.
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def of_either(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = self.__dict__.get("outputs_")
            if outputs is None:
                return method(self, X, *args, **kwargs)
            X = open_frame(X)
            asked = [*signature.bind(self, X, *args, **kwargs).arguments.items()]
            alike = dict(asked[2:])
            own = {"exposure": by_target(alike.pop("exposure", None), len(outputs))}
            if "random_state" in signature.parameters:
                default = signature.parameters["random_state"].default
                own["random_state"] = seeds_from(alike.pop("random_state", default), len(outputs))
            if targets:
                X, own["y"] = targets_again(X, alike.pop("y", None), list(outputs))
            found = []
            for number, one in enumerate(outputs.values()):
                mine = {k: each[number] for k, each in own.items() if each[number] is not None}
                found.append(getattr(one, method.__name__)(X, **alike, **mine))
            return join(found)

        return of_either

    return decorate


def targets_again(X: Any, y: Any, names: list[Any]) -> tuple[Any, list[Any]]:
    """Return a table, and new values of the targets of a fitted model; by default they are columns of the table."""
    if y is None and all(isinstance(name, str) for name in names):
        y = names
    found = several_targets(X, y)
    if found is None or len(found.columns) != len(names):
        count = 1 if found is None else len(found.columns)
        raise ValueError(
            f"y has {count} column{'s' if count > 1 else ''}, but the model was fitted to the {len(names)} targets "
            f"{validate.listed(names)}. Give a column for each, or use one of them: model.outputs_[{names[0]!r}]."
        )
    if set(found.columns) == set(names):
        return X, [found.columns[name] for name in names]
    if all(isinstance(name, str) for name in [*found.columns, *names]):
        raise ValueError(
            f"y has the columns {validate.listed(list(found.columns))}, but the model was fitted to the targets "
            f"{validate.listed(names)}. Name them alike, or give an array with the columns in that order."
        )
    return X, list(found.columns.values())


def files_of_targets(path: Path, names: Iterable[Any]) -> dict[Any, Path]:
    """Return a file for each target, ``page-rent.html`` of ``page.html``: no two have the same."""
    found: dict[Any, Path] = {}
    taken: set[str] = set()
    for name in names:
        letters = (sign if sign.isalnum() or sign in "-_." else "_" for sign in str(name))
        plain = one = "".join(letters)[:_LETTERS_OF_A_FILE]
        number = 1
        while one.casefold() in taken:
            number += 1
            one = f"{plain}-{number}"
        taken.add(one.casefold())
        found[name] = path.with_name(f"{path.stem}-{one}{path.suffix}")
    return found


# ---------------------------------------------------------------- the estimator


class SeveralTargets(FrontDoor):
    """What the front door for numbers does where there are several targets.

    Attributes
    ----------
    outputs_ : dict
        The fitted model of each target; only where there are several.
    """

    def _fit_several(
        self, targets: Targets, noise_std: Any, sample_weight: Any, exposure: Any
    ) -> Any:
        """Fit a model to each target; the estimator changes when all are there."""
        check_arguments(self)
        began = time.perf_counter()
        outputs = fit_several(self, targets, noise_std, sample_weight, exposure)
        # what an earlier fit left goes, what scikit-learn keeps of its own stays
        kept = {name: value for name, value in vars(self).items() if name.startswith("_")}
        self.__dict__ = clone(self).__dict__ | kept
        self._set_outputs(outputs, time.perf_counter() - began)
        return self

    def _set_outputs(self, outputs: dict[Any, Any], seconds: float) -> None:
        first = next(iter(outputs.values()))
        self.n_features_in_ = first.n_features_in_
        if hasattr(first, "feature_names_in_"):
            self.feature_names_in_ = first.feature_names_in_
        self.target_name_: Any = [one.target_name_ for one in outputs.values()]
        self.fit_seconds_ = seconds
        self.outputs_ = outputs

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self) or "outputs_" in vars(self)

    def __getattr__(self, name: str) -> Any:
        # what is known of one target's model (leaderboard_, kernel_, ...) is, of several, known of each
        outputs = self.__dict__.get("outputs_")
        if outputs is None or not name.endswith("_") or name.startswith("_") or name == "model_":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return {target: getattr(one, name) for target, one in outputs.items()}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @for_each_target(stacked)
    def outside(self, X: Any) -> np.ndarray:
        return super().outside(X)

    @for_each_target(united)
    def drift(self, X: Any) -> list[str]:
        return super().drift(X)

    def report(self, path: Any, X: Any = None, y: Any = None, exposure: Any = None) -> Any:
        """Write a page for people: the data, what was tried, calibration, inputs, surprises, what to try next.

        One HTML file that needs no network and runs no script; of several targets one each, named ``page-target.html``.
        Without ``X`` it is about the rows that the fit held out; their values, at most 2000 rows, are part of the model
        and of its file.

        Parameters
        ----------
        path : str or path
            The file to write; one that is there is replaced.
        X : table, path or array-like, optional
            Rows that the page is to be about: others than those of the fit. Of more than 20,000 a random part is used.
        y : array-like of shape (n,) or (n, k), str, or list of str, optional
            Their targets, or names of columns; those of the fit by default. Rows without one are left out.
        exposure : array-like of shape (n,), float or str, optional
            Of the rows in ``X``, where the model was fitted with exposures: the column of the fit by default.

        Returns
        -------
        Path, or list of Path
            Of the files.

        Raises
        ------
        ValueError
            For rows without targets, and as `predict`.
        OSError
            When ``path`` is a folder, or in none.
        """
        from vastgp.auto.report.of_model import check_name_of_page, write_report_of

        outputs = self.__dict__.get("outputs_")
        if outputs is None:
            check_is_fitted(self, "model_")
            return write_report_of(self, path, X, y, exposure)
        check_name_of_page(path)
        given: list[Any] = [None] * len(outputs)
        if X is not None:
            X, given = targets_again(open_frame(X), y, list(outputs))
        pages = files_of_targets(Path(path), outputs)
        each = zip(outputs.items(), given, by_target(exposure, len(outputs)), strict=True)
        return [one.report(pages[name], X, y, own) for (name, one), y, own in each]

    outside.__doc__ = FrontDoor.outside.__doc__
    drift.__doc__ = FrontDoor.drift.__doc__

    def _to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        outputs = self.__dict__.get("outputs_")
        if outputs is None:
            return super()._to_file()
        header, arrays = self._header()
        of_each, own = several_to_file(outputs.values(), "outputs/")
        header |= {"targets": list(outputs), "outputs": of_each, "fit_seconds": self.fit_seconds_}
        return header, arrays | own

    @classmethod
    def _from_file(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        if "outputs" not in header:
            return super()._from_file(header, arrays)
        model = cls._of_header(header, arrays)
        models = several_from_file(cls._from_file, header["outputs"], arrays, "outputs/")
        outputs = dict(zip(header["targets"], models, strict=True))
        model._set_outputs(outputs, header["fit_seconds"])
        return model
