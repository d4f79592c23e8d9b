"""The inputs of a race: each fold with an encoding learned on its own training rows."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from vastgp.auto.encoder import TableEncoder
from vastgp.auto.encoding import outputs_of_gaps
from vastgp.auto.parts import held, part_of, remembered
from vastgp.auto.series import Times
from vastgp.auto.source import Source, names_of_array, open_source
from vastgp.data import Repetitions, Rows, column_names, validate
from vastgp.data.scaling import check_spread

Groups = Sequence[Sequence[int]]
# Places of training and of held-out rows.
Parts = tuple[np.ndarray, np.ndarray]
# Rows of a block that is all there is.
_WHOLE = 1 << 62
# Numbers beyond, and ranges below its inverse, are looked at: squares of some do not exist in float64.
_EXTREME = 1e150


class EncodedRows(Rows):
    """Rows that a model's own encoder has encoded, block by block for example: its methods take them as they are."""


@dataclass
class Inputs:
    """The rows of a table that have a target, encoded when asked for.

    Attributes
    ----------
    source : Source or table
        All rows; as it was given where the encoder is another library's.
    encoder : object
        As it was given, or the default one; not fitted.
    present : ndarray of int
        Numbers of the rows that have a target.
    target : str or None
        Column of the target, which is no input.
    means_of : ndarray or None
        Targets for encodings that use them, of all rows, (n,); of several classes which of them each is, (n, C).
    names : list of str or None
        Columns of the table, where it has names.
    num_columns : int
    raw : Source
        The columns as they are, whatever the encoder.
    numbers : ndarray of int or None
        Numbers in the table of the source's rows, where these are some of it.
    asks_names : bool
        Whether it is asked if numbers name things.
    """

    source: Any
    encoder: Any
    present: np.ndarray
    target: str | None
    means_of: np.ndarray | None
    names: list[str] | None
    num_columns: int
    raw: Source | None = None
    numbers: np.ndarray | None = None
    asks_names: bool = True
    encoder_of_whole: Any = None
    folds: int = 0
    _whole: np.ndarray | None = None
    _repetitions: Repetitions | None = None
    _of_folds: dict[int, tuple[Rows, Rows, Groups, Any]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        X: Any,
        encoder: Any,
        target: str | None,
        present: np.ndarray,
        means_of: np.ndarray | None,
        num_targets: int,
    ) -> Inputs:
        """Open the inputs.

        Parameters
        ----------
        X : table, path or array-like
        encoder : transformer or None
        target : str or None
        present : ndarray of int
        means_of : ndarray or None
        num_targets : int
            With those that are missing.
        """
        source = open_source(X)
        if source.num_rows is not None:
            validate.check_same_length(source.num_rows, num_targets)
        # a target that is also a column of the table is no input, however it was given
        target = target if target in source.names else None
        names = [name for name in source.names if name != target]
        ours = encoder is None or isinstance(encoder, TableEncoder)
        made = TableEncoder() if encoder is None else encoder
        if ours:  # of all rows, so that messages have their numbers
            source = clone(made).opened(remembered(source))
            if target is not None and target not in source.names:
                raise ValueError(
                    f"space={made.space!r} names the target column {target!r}, which is no input. Name the two columns "
                    "of a place."
                )
        return cls(
            source if ours else _frame_of(X, names if source.named else None), made, present, target, means_of,
            names if source.named else None, len(names), source,
        )  # fmt: skip

    def of_some(self, places: np.ndarray) -> Inputs:
        """Return the inputs of some rows alone, by their places, ascending: read once, and kept as they are.

        Nothing may have been encoded yet.
        """
        rows = self.present[places]
        assert self.raw is not None
        raw = held(self.raw, rows, self.target)
        ours = isinstance(self.source, Source)
        return dataclasses.replace(
            self, source=raw if ours else self._part(rows), raw=raw, present=np.arange(len(rows)),
            means_of=None if self.means_of is None else self.means_of[rows],
            numbers=rows if self.numbers is None else self.numbers[rows],
        )  # fmt: skip

    def in_table(self, places: Any = slice(None)) -> np.ndarray:
        """Return the numbers in the table of rows by their places; of all that there are."""
        rows = self.present[places]
        return rows if self.numbers is None else self.numbers[rows]

    def fold(
        self, number: int, training: np.ndarray, held_out: np.ndarray, targets: np.ndarray
    ) -> tuple[Rows, Rows, Groups]:
        """Return encoded training and held-out rows of a fold, and which columns are one input.

        Parameters
        ----------
        number : int
            Of the fold: what was encoded is kept.
        training, held_out : ndarray of int
            Places among the rows that have a target.
        targets : ndarray
            Of these.
        """
        if number not in self._of_folds:
            encoder, matrix = self._fit(self.present[training], self._encoded_whole()[0])
            with warnings.catch_warnings():
                # that they have gaps which others had not is no news of a table that is all there
                warnings.simplefilter("ignore", UserWarning)
                new = _checked(encoder.transform(self._part(self.present[held_out])), encoder)
            self._of_folds[number] = (
                Rows(matrix, targets[training], checked=True),
                Rows(new, targets[held_out], checked=True),
                getattr(encoder, "tied_", ()),
                encoder,
            )
            self.folds = len(self._of_folds)
        return self._of_folds[number][:3]

    def for_targets(self, targets: np.ndarray, parts: Sequence[Parts]) -> Inputs:
        """Return the same encoded rows with other targets: nothing is read or encoded again.

        Parameters
        ----------
        targets : ndarray
            Of the rows that have one.
        parts : sequence of (ndarray of int, ndarray of int)
            Training and held-out rows of each fold that has been encoded.
        """
        other = {
            number: (
                Rows(training.X, targets[parts[number][0]], checked=True),
                Rows(held_out.X, targets[parts[number][1]], checked=True), tied, encoder,
            )
            for number, (training, held_out, tied, encoder) in self._of_folds.items()
        }  # fmt: skip
        return dataclasses.replace(self, _of_folds=other)

    def whole(self, targets: np.ndarray) -> tuple[Rows, Groups]:
        """Return all encoded rows that have a target, and which columns are one input."""
        encoder, matrix = self._encoded_whole()
        groups = getattr(encoder, "tied_", ())
        return Rows(matrix, targets, checked=True), groups

    def repetitions(self) -> Repetitions:
        """Return which rows repeat each other."""
        if self._repetitions is None:
            self._repetitions = Repetitions.of(as_new(*self._encoded_whole()))
        return self._repetitions

    def gaps(self) -> np.ndarray:
        """Return which rows have a gap in which of the columns that have some, (n, k)."""
        encoder, matrix = self._encoded_whole()
        outputs = outputs_of_gaps(encoder.columns_) if isinstance(encoder, TableEncoder) else []
        found = [np.any(matrix[:, columns] != 0.0, axis=1) for columns in outputs]
        return np.stack(found, axis=1) if found else np.zeros((len(matrix), 0), dtype=bool)

    def times(self) -> Times | None:
        """Return when the rows were; None where no column of dates says so."""
        encoder, matrix = self._encoded_whole()
        return Times.of(encoder, matrix)

    def encoder_of_fold(self, number: int) -> Any:
        """Return the encoder that a fold was encoded by."""
        return self._of_folds[number][3]

    def held_out_rows(self, number: int) -> Rows:
        """Return the held-out rows of a fold that has been encoded."""
        return self._of_folds[number][1]

    def training_rows(self, number: int) -> Rows:
        """Return the training rows of a fold that has been encoded."""
        return self._of_folds[number][0]

    def encoded_alone(self, places: np.ndarray) -> np.ndarray:
        """Return rows by their places, ascending, as an encoder of these alone makes them; nothing is kept."""
        return self._fit(self.present[places])[1]

    def _encoded_whole(self) -> tuple[Any, np.ndarray]:
        """Return the encoder of all rows and what it made of them, which is kept: it takes a pass over the table."""
        if self._whole is None:
            self.encoder_of_whole, self._whole = self._fit(self.present)
            _check_spreads(self._whole, self.encoder_of_whole)
        return self.encoder_of_whole, self._whole

    def _fit(self, rows: np.ndarray, like: Any = None) -> tuple[Any, np.ndarray]:
        """Return an encoder of rows, and what it made of them; ``like`` is that of all rows, where these are some."""
        encoder = clone(self.encoder)
        targets = None if self.means_of is None else self.means_of[rows]
        classes = None
        if targets is not None and targets.ndim == 2:  # other encoders know nothing of these
            targets, classes = None, targets
        more: dict[str, Any] = {}
        if isinstance(encoder, TableEncoder):
            exclude = () if self.target is None else (self.target,)
            more = {"exclude": exclude, "like": like, "classes": classes, "names": self.asks_names}
        matrix = encoder.fit_transform(self._part(rows), targets, **more)
        validate.check_same_length(len(matrix), len(rows))
        return encoder, _checked(matrix, encoder)

    def _part(self, rows: np.ndarray) -> Any:
        """Return some rows as the encoder takes them."""
        if isinstance(self.source, Source):
            return part_of(self.source, rows)
        return _safe_indexing(self.source, rows)


def encode_new(model: Any, X: Any) -> np.ndarray:
    """Return the encoded inputs of rows to predict, by a fitted front door's encoder."""
    if isinstance(X, EncodedRows):
        return X.X
    encoder = model.encoder_
    if not isinstance(encoder, TableEncoder):
        X = _frame_of(X, getattr(encoder, "feature_names_in_", None))
    else:
        X = _without(open_source(X), own_columns(model), encoder)
    return _checked(encoder.transform(X), encoder)


def own_columns(model: Any) -> set[str]:
    """Return the columns that a fitted front door knows and that are no inputs: target and exposure."""
    exposure = getattr(model, "exposure_", None)
    names = (model.target_name_, None if exposure is None else exposure.name)
    return {name for name in names if name is not None}


def _without(source: Source, names: set[str], encoder: TableEncoder) -> Source:
    """Return a source without columns that are no inputs, so that messages do not call them strangers.

    Without names a table with no more columns than the fit had has none of them.
    """
    named = source.named and hasattr(encoder, "feature_names_in_")
    if names.isdisjoint(source.names) or (
        not named and len(source.names) <= encoder.n_features_in_
    ):
        return source
    return dataclasses.replace(source, names=[name for name in source.names if name not in names])


def as_new(encoder: Any, matrix: np.ndarray) -> np.ndarray:
    """Return encoded training rows as they would be encoded when they were new."""
    return encoder.as_new(matrix) if isinstance(encoder, TableEncoder) else matrix


def as_training(encoder: Any, matrix: np.ndarray) -> np.ndarray:
    """Return encoded new rows as they would be encoded were they further training rows."""
    return encoder.as_training(matrix) if isinstance(encoder, TableEncoder) else matrix


def names_of_inputs(encoder: Any, columns: int) -> list[str]:
    """Return names of encoded columns."""
    try:
        return [str(name) for name in encoder.get_feature_names_out()]
    except (AttributeError, ValueError):
        return names_of_array(columns)


def _checked(matrix: Any, encoder: Any) -> np.ndarray:
    """Return an encoded matrix, refusing what a model cannot take."""
    if hasattr(matrix, "toarray"):
        matrix = matrix.toarray()
    matrix = np.asarray(matrix)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        raise ValueError(
            f"encoder {encoder!r} gave {matrix.dtype} values of shape {matrix.shape}; expected a matrix of numbers."
        )
    found = np.asarray(matrix, np.float64)
    validate.check_finite(found, f"what the encoder {type(encoder).__name__} made of X")
    return found


def _check_spreads(matrix: np.ndarray, encoder: Any) -> None:
    """Refuse by its name a column that no model can scale: each candidate would fail, and call it by a number."""
    low, high = matrix.min(axis=0), matrix.max(axis=0)
    with np.errstate(over="ignore"):
        far = np.maximum(-low, high) > _EXTREME
        near = (low < high) & (high - low < 1.0 / _EXTREME)
    for j in np.flatnonzero(far | near):
        name = f"{j} of what {type(encoder).__name__} made of X"
        if isinstance(encoder, TableEncoder):
            name = repr(str(encoder.get_feature_names_out()[j]))
        check_spread(matrix[:, j], f"Column {name}")


def _frame_of(X: Any, names: Any) -> Any:
    """Return a table with some columns as a data frame of the library that it came from, and arrays as they are.

    Encoders of other libraries take no others.
    """
    table = open_source(X).table
    if table is None or names is None:
        return X
    missing = [str(name) for name in names if name not in table.names]
    if missing:
        raise column_names.missing_features_error(missing, [], table.where, "the encoder")
    frame = next(table.frames([str(name) for name in names], _WHOLE))
    return frame.to_native()
