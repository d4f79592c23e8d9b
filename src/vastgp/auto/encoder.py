"""`TableEncoder`: any table as a matrix of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from vastgp._arguments import AtLeast, Flag, check_arguments
from vastgp.auto import gaps
from vastgp.auto.columns import Column, settle
from vastgp.auto.encoder_state import read_state, state_of
from vastgp.auto.encoding import (
    encode,
    encode_blocks,
    kept,
    names_of_outputs,
    opened_with_place,
    outputs_of_gaps,
    outputs_of_means,
    tied_outputs,
)
from vastgp.auto.messages import check_place_name, check_some_kept, summary_of
from vastgp.auto.naming import with_sure_names
from vastgp.auto.reading import (
    excluded_names,
    numbered,
    read_facts,
    with_target_means,
)
from vastgp.auto.source import Source, open_source
from vastgp.auto.space import names_of, place_in, with_places
from vastgp.auto.target import numeric_target
from vastgp.data import validate

# Of the seeds of directions: rows that come later have others than those of the fit.
_FURTHER = 1 << 20


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn any table into a matrix of numbers that a Gaussian process understands.

    Every column becomes one or a few *inputs*, and an input one or several columns of the matrix, which are meant to
    share one scale and one lengthscale (``tied_``). What is done with a column follows from what it holds:

    - numbers (also text that is all numbers: "1,234", "1.234,5", "$12", "15 %") stay one column; booleans are 0 and 1,
      durations seconds. Gaps become the median, another input says where they were, and one more that what is missing
      differs from row to row. With a value farther from the median than ten interquartile ranges, the column is
      ``asinh((x - median) / range)``, or ``log x`` where numbers are positive, lie evenly over orders of magnitude
      and so say more of the target that ``fit`` was given. Whole numbers that name things, as the target says, have
      their levels beside them, see `vastgp.auto.named_numbers`;
    - ordered categories are their rank;
    - categories and text of up to ``max_levels`` levels are a column per level and one for levels never seen, all one
      input: any two are equally far apart. A gap is a level of its own. More levels have a direction in 16 dimensions
      each, and the mean of the target by level beside it where ``fit`` was given one;
    - dates (also text that is all dates, see `vastgp.auto.written`) are years since the first; season of the year,
      weekday and time of day are further inputs where the rows span enough of them, by the clocks of the column's time
      zone. Times of day are a place on a circle;
    - constant and empty columns, identifiers and free text are left out, with a word.

    Rows are read by blocks, twice where means of the target are wanted, and never held together, but for the result
    of `transform`.

    Parameters
    ----------
    max_levels : int, default 24
        Categories of up to so many levels get a column per level.
    squash : bool, default True
        Whether long tails of numbers are drawn in.
    ordered : mapping, optional
        Levels in their order by column name, ``{"size": ["S", "M", "L"]}``; an empty list takes away an order that
        the table declares. Ordered categories of pandas and Arrow and enumerations of polars have theirs.
    target_mean : bool, default True
        Whether columns of many levels get the mean of a numeric target, and whole numbers may be names.
    space : (str or int, str or int) or mapping, optional
        Two columns, by name or number, that are a place: ``("lat", "lon")``, latitude and longitude in degrees by any
        convention of longitudes, become three columns, a point in kilometres from the centre of the Earth, and
        coordinates with other names, ``("x", "y")``, stay two; one input either way. ``{"lat": ..., "lon": ...}`` says
        so whatever the columns are called. Numbers count all columns of the table. See `vastgp.auto.space`.

    Attributes
    ----------
    columns_ : tuple of Column
        One record per column of the table: ``name``, ``kind``, ``done`` (in words), ``missing``, ``facts``,
        ``outputs``.
    tied_ : tuple of tuple of int
        Output columns by input: every output column is in exactly one tuple.
    dropped_ : dict
        Columns that are left out, with the reason.
    n_features_in_ : int
        Number of columns of the table.
    feature_names_in_ : ndarray of str
        Their names, where it has names.

    Notes
    -----
    Of more than 100,000 rows the median and the quartiles are those of 100,000 rows chosen at random, the same ones
    however the rows come in blocks; ranges, levels and counts are those of all rows.

    ``fit_transform(X, y)`` is not ``fit(X, y).transform(X)`` where a mean of the target is an input: the former has
    for each row the mean of other rows, without which a model would read the target in its input; nor where there are
    gaps, which are another unknown value in each row of training, and in a new row one more (`vastgp.auto.gaps`). As in
    scikit-learn's `TargetEncoder`, encode training rows by `fit_transform` and new rows by `transform`.

    Examples
    --------
    >>> from vastgp.auto import TableEncoder
    >>> encoder = TableEncoder().fit([[1.5, "a"], [2.0, "b"], [4.0, "a"]])
    >>> encoder.transform([[3.0, "c"]])
    array([[3., 0., 0., 1.]])
    >>> encoder.tied_
    ((0,), (1, 2, 3))
    """

    def __init__(
        self,
        max_levels: Annotated[int, AtLeast(1)] = 24,
        squash: Annotated[bool, Flag()] = True,
        ordered: Any = None,
        target_mean: Annotated[bool, Flag()] = True,
        space: Any = None,
    ) -> None:
        self.max_levels = max_levels
        self.squash = squash
        self.ordered = ordered
        self.target_mean = target_mean
        self.space = space

    # ------------------------------------------------------------ fit

    def fit(self, X: Any, y: Any = None, exclude: Any = ()) -> TableEncoder:
        """Find what each column is.

        Parameters
        ----------
        X : table, path or array-like of shape (n, p)
            A pandas, polars or Arrow table, the path of a Parquet or CSV file, of a folder of Parquet files or of a
            ``.npy`` file, or an array of numbers (NaN is missing), text or Python objects.
        y : array-like of shape (n,), or str, optional
            The target, or the name of its column, which then is no input. Columns of many levels use it, and numbers,
            and only if it is numeric: leave it out for classes that are numbers.
        exclude : sequence of str, default ()
            Columns that are no input, such as weights; x0, x1, ... of an array.

        Returns
        -------
        TableEncoder
            This object.

        Raises
        ------
        ValueError
            For columns that nothing can be made of, infinite numbers, and tables of which no column is left.
        """
        self._fit(X, y, exclude)
        return self

    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        exclude: Any = (),
        like: TableEncoder | None = None,
        classes: np.ndarray | None = None,
        names: bool = True,
    ) -> np.ndarray:
        """Find what each column is, and encode the rows; means of the target are those of other rows.

        Parameters
        ----------
        X, y, exclude
            As in `fit`.
        like : TableEncoder, optional
            Fitted to a table of which these are some of the rows. What it makes of a column decides whether that is an
            input, and whether text is a category or has codes; levels, ranges and means are those of these rows.
        classes : ndarray of shape (n, C), optional
            Which class each row is, 0 or 1, in place of a numeric target: levels have the share of each.
        names : bool, default True
            Whether it is asked if numbers name things, which takes some tenths of a second.

        Returns
        -------
        ndarray of shape (n, d)
            The encoded rows.
        """
        known = () if like is None else like.columns_
        source, means = self._fit(X, y, exclude, known, classes, names)
        inputs = [column.name for column in kept(self.columns_)]
        found = encode(source, self.columns_, self._named, inputs)
        for outputs, values in means.items():
            found[:, outputs] = values
        for number, columns in enumerate(outputs_of_gaps(self.columns_)):
            found[:, columns] = gaps.of_training(found[:, columns], number)
        return found

    def opened(self, X: Any) -> Source:
        """Return an opened table with its place as one column, where there is one."""
        columns = getattr(self, "columns_", ())
        fitted = (self._names, self._named) if columns else None
        return opened_with_place(X, self.space, columns, fitted)

    def as_new(self, found: np.ndarray) -> np.ndarray:
        """Return rows that `fit_transform` encoded as `transform` would, but for means of the target."""
        found = found.copy()
        for columns in outputs_of_gaps(self.columns_):
            found[:, columns] = gaps.as_new(found[:, columns])
        return found

    def as_training(self, found: np.ndarray) -> np.ndarray:
        """Return rows that `transform` encoded as further ones of the fit: what they lack is each row's own."""
        found = found.copy()
        for number, columns in enumerate(outputs_of_gaps(self.columns_)):
            found[:, columns] = gaps.of_training(found[:, columns], _FURTHER + number)
        return found

    def _fit(
        self,
        X: Any,
        y: Any,
        exclude: Any,
        like: Sequence[Column] = (),
        classes: np.ndarray | None = None,
        of_things: bool = True,
    ) -> tuple[Source, dict[tuple[int, ...], np.ndarray]]:
        """Fit, and return the source and the target's means of the training rows by output columns."""
        check_arguments(self)
        source = open_source(X)
        excluded = excluded_names(source, exclude)
        if self.space is not None and source.space is None:
            space = place_in(source, self.space)
            check_place_name(space, source)
            source = with_places(source, space)
        target, name = numeric_target(source, y)
        target = target if classes is None else classes
        names = [other for other in source.names if other not in excluded | {name}]
        facts, num_rows = read_facts(source, names, self.ordered)
        if target is not None:
            validate.check_same_length(num_rows, len(target))
        known = {column.name: column for column in like}
        most, squash = self.max_levels, self.squash
        columns = [
            settle(name, found, max_levels=most, squash=squash, like=known.get(name))
            for name, found in facts.items()
        ]
        columns = columns if of_things else [column.named(False) for column in columns]
        told = with_target_means(source, columns, target if self.target_mean else None)
        told = with_sure_names(source, told)
        columns = told.columns
        if not any(column.kept for column in columns) and known:
            # nothing tells these rows apart: that is no news of a table whose others differ
            columns = [known[name] for name in facts]
        check_some_kept(columns, source, num_rows)
        of_table = source.names if source.of_table is None else source.of_table
        theirs = [other for other in of_table if other not in excluded | {name}]
        self._set_columns(numbered(columns), source.named, theirs)
        inputs = kept(self.columns_)
        return source, {outputs_of_means(inputs[j]): rows for j, rows in told.means.items()}

    def _set_columns(
        self, columns: tuple[Column, ...], named: bool, names: Sequence[str] | None
    ) -> None:
        """Set what was found; ``names`` are those of the table in its order, by column where that is not known."""
        self.columns_ = columns
        by_column = [name for column in columns for name in names_of(column)]
        self._names = names = by_column if names is None else list(names)
        self.n_features_in_ = len(names)
        if named:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.dropped_ = {column.name: column.reason for column in columns if not column.kept}
        self.tied_ = tied_outputs(columns)

    # ------------------------------------------------------------ transform

    def transform(self, X: Any) -> np.ndarray:
        """Encode rows.

        Parameters
        ----------
        X : table, path or array-like
            As in `fit`. Columns of a table are matched by name, in any order, and others are ignored; names may be
            numbers, or rows of a header. Those of an array are matched by position.

        Returns
        -------
        ndarray of shape (n, d)
            The encoded rows.

        Raises
        ------
        ValueError
            For columns that are missing, or hold what the fit did not have: text for numbers, for example.

        Warns
        -----
        UserWarning
            About gaps in columns that had none in the fit; they get the median.
        """
        check_is_fitted(self, "columns_")
        return encode(self.opened(X), self.columns_, self._named)

    def transform_batches(self, X: Any, rows: int = 65_536) -> Iterator[np.ndarray]:
        """Encode rows block by block, so that a table in a file is never in memory as a whole.

        Parameters
        ----------
        X
            As in `transform`.
        rows : int, default 65536
            The most rows in a block.

        Yields
        ------
        ndarray of shape (at most rows, d)
            The next encoded rows.
        """
        check_is_fitted(self, "columns_")
        AtLeast(1)("rows", rows)
        yield from encode_blocks(self.opened(X), self.columns_, self._named, rows)

    # ------------------------------------------------------------ what was found

    @property
    def _named(self) -> bool:
        return hasattr(self, "feature_names_in_")

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of the encoded matrix.

        Parameters
        ----------
        input_features : None
            For scikit-learn; the names are those of the fit.

        Returns
        -------
        ndarray of str, shape (d,)
            Such as ``age``, ``age is missing``, ``city=Oslo``, ``day season sin``.
        """
        check_is_fitted(self, "columns_")
        own = getattr(self, "feature_names_in_", None)
        if input_features is not None and own is not None and list(input_features) != own.tolist():
            raise ValueError(
                "input_features is not equal to feature_names_in_, the names of the fit: pass None."
            )
        return names_of_outputs(self.columns_)

    def summary(self) -> str:
        """Return what was done with every column, one line each.

        Returns
        -------
        str
            Name, kind, what was done, how many were missing.
        """
        check_is_fitted(self, "columns_")
        return summary_of(self.columns_, len(self.tied_))

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the summary of a fitted encoder, the arguments of another."""
        return self.summary() if hasattr(self, "columns_") else super().__repr__(N_CHAR_MAX)

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn may expect of it."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    # ------------------------------------------------------------ as data

    def to_state(self) -> dict[str, Any]:
        """Return the fitted encoder as data that JSON holds without loss.

        Returns
        -------
        dict
            Numbers, text, lists and dictionaries alone; floats come back to the last bit.
        """
        check_is_fitted(self, "columns_")
        params = self.get_params(deep=False)
        return state_of(params, self.columns_, self._named, self._names)

    @classmethod
    def from_state(cls, state: Any) -> TableEncoder:
        """Return the fitted encoder that `to_state` wrote.

        Parameters
        ----------
        state : dict
            The data.

        Returns
        -------
        TableEncoder
            It encodes as the one before.

        Raises
        ------
        ValueError
            For data of another version.
        """
        params, columns, named, names = read_state(state)
        encoder = cls(**params)
        encoder._set_columns(columns, named, names)
        return encoder
