"""Bad input, found before any arithmetic, with messages that say what to do about it.

Every message names the argument, what was received, what was expected and the next action. Where scikit-learn has a
phrase for the same mistake, its words are part of ours: its conformance checks, and people's searches, look for them.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from vastgp._warn import warn

# A block of this many rows is looked at in detail when a cheap test has found something that is not a finite number.
_SEARCH_ROWS = 65_536

_FILL_GAPS = (
    "Drop these rows, or fill the gaps first (for example with sklearn.impute.SimpleImputer)."
)
_AS_NUMBERS = (
    "Convert them to a number in a unit that means something for the problem, such as days since the "
    "first row"
)
_DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_RESHAPE = (
    "Reshape your data: X.reshape(-1, 1) if it is one feature of many rows, X.reshape(1, -1) if it is one row of many "
    "features."
)


# ---------------------------------------------------------------- what kind of thing it is


def reject_sparse(values: object, argument: str) -> None:
    """Raise ``TypeError`` for a SciPy sparse container, which NumPy would wrap without a word."""
    scipy_sparse = sys.modules.get(
        "scipy.sparse"
    )  # nobody holds a sparse array without having imported this
    if scipy_sparse is not None and scipy_sparse.issparse(values):
        raise TypeError(
            f"Sparse data was passed for {argument} ({type(values).__name__}), but dense data is required. Use "
            f"{argument}.toarray() to make it a dense NumPy array, or choose fewer features if that does not fit."
        )


def reject_row(X: Any) -> None:
    """Raise ``ValueError`` for a row that was taken out of a table, which has no columns any more."""
    if getattr(X, "ndim", None) != 1 or not hasattr(X, "iloc"):
        return
    if any(isinstance(value, str) for value in np.asarray(X, dtype=object)):
        raise ValueError(
            f"Expected 2D array for X, got 1D array of shape {X.shape} instead, one row of a table as it seems. Give a "
            "table with that row: table.iloc[[0]] in place of table.iloc[0]."
        )


def numeric_array(values: object, argument: str) -> np.ndarray:
    """The values as a NumPy array of numbers, without a copy where they are one already.

    Integers, booleans and floating point numbers keep their type (a memory map stays a memory map). Objects that are
    numbers become float64.

    Raises
    ------
    TypeError
        For sparse containers and for objects that are neither strings nor numbers.
    ValueError
        For strings, dates, complex numbers, records, masked or ragged data.
    """
    reject_sparse(values, argument)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        count = int(np.ma.count_masked(values))
        raise ValueError(
            f"{argument} is a masked array with {count} masked values (missing, NaN). {_FILL_GAPS}"
        )
    try:
        array = values if isinstance(values, np.memmap) else np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{argument} cannot be made into an array ({error}). Expected rows of equal length, all of them numbers."
        ) from error
    kind = array.dtype.kind
    if kind in "fiub":
        if kind == "f" and array.dtype.itemsize > 8:
            with np.errstate(
                over="ignore"
            ):  # what does not fit becomes an infinity, which is reported as one
                return array.astype(np.float64)
        return array
    if kind == "c":
        raise ValueError(
            f"Complex data not supported: {argument} has dtype {array.dtype}. Expected real numbers. Pass real and "
            "imaginary part (or modulus and phase) as separate columns."
        )
    if kind in "US":
        raise ValueError(
            f"{argument} holds strings (dtype {array.dtype}), for example {_first(array)!r}. Expected numbers. Convert "
            f"numeric text with {argument}.astype(float), and encode categories (for example with "
            "sklearn.preprocessing.OneHotEncoder)."
        )
    if kind in "mM":
        raise ValueError(
            f"{argument} holds dates or durations (dtype {array.dtype}). Expected numbers. {_AS_NUMBERS}."
        )
    if kind == "V":
        raise ValueError(
            f"{argument} has the structured dtype {array.dtype}. Expected a plain two-dimensional array; "
            "numpy.lib.recfunctions.structured_to_unstructured makes one."
        )
    return _numbers_from_objects(array, argument)


def _numbers_from_objects(array: np.ndarray, argument: str) -> np.ndarray:
    """Float64 values of an array of Python objects. Numeric text is refused, as it is in an array of strings."""
    firsts: dict[type, object] = {}
    for value in array.flat:
        if isinstance(value, str | bytes):
            raise ValueError(
                f"{argument} holds strings (dtype object), for example {value!r}. Expected numbers. Convert numeric "
                "text with astype(float), and encode categories (for example with sklearn.preprocessing.OneHotEncoder)."
            )
        if isinstance(value, complex | np.complexfloating):
            raise ValueError(
                f"Complex data not supported: {argument} holds {value!r}. Expected real numbers. Pass real and "
                "imaginary part (or modulus and phase) as separate columns."
            )
        firsts.setdefault(type(value), value)
    for value in firsts.values():
        words, advice = _no_number(value)
        if words:
            raise ValueError(
                f"{argument} holds {words} (dtype object), for example {value!r}. Expected numbers. {advice}."
            )
    missing = sys.modules.get("pandas")
    if missing is not None:
        array = np.array(
            [np.nan if value is missing.NA else value for value in array.flat], dtype=object
        ).reshape(array.shape)
    try:
        return np.asarray(array, dtype=np.float64)
    except TypeError as error:  # "float() argument must be a string or a real number, not 'dict'"
        raise TypeError(
            f"{argument} has dtype object: {error}. Expected an array of numbers, or a table: "
            f"pandas.DataFrame({argument}) makes one of dictionaries."
        ) from error
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{argument} has dtype object: {error}. Expected rows of numbers, all of one length."
        ) from error


def _no_number(value: object) -> tuple[str, str]:
    """Say in words what dates, durations and intervals as Python objects are, and what to do; nothing of others."""
    kind, parts = type(value), ("year", "month", "day")
    if kind.__name__ == "NaTType":  # whatever the others are
        return "", ""
    of_pandas = kind.__module__.partition(".")[0] == "pandas"
    if of_pandas and kind.__name__ == "Period":
        return "periods", f"{_AS_NUMBERS}; the ordinal of a period counts them"
    if of_pandas and kind.__name__ == "Interval":
        return "intervals", "Take a number of each, such as its mid"
    # of calendars of their own have these parts, too
    if isinstance(value, _DATES) or all(hasattr(value, part) for part in parts):
        return "dates or durations", _AS_NUMBERS
    return "", ""


def _first(array: np.ndarray) -> object:
    return array.reshape(-1)[0].item() if array.size else ""


# ---------------------------------------------------------------- shapes


def as_matrix(X: object) -> np.ndarray:
    """A two-dimensional array of numbers with at least one column; see `numeric_array` for what is refused."""
    reject_row(X)
    array = numeric_array(X, "X")
    if array.ndim == 0:
        raise ValueError(f"Expected 2D array for X, got scalar array instead: {array}. {_RESHAPE}")
    if array.ndim == 1:
        raise ValueError(
            f"Expected 2D array for X, got 1D array of shape {array.shape} instead. {_RESHAPE}"
        )
    if array.ndim > 2:
        raise ValueError(
            f"Found array with dim {array.ndim}: X has shape {array.shape}, while dim <= 2 is required. "
            "Expected (rows, features); X.reshape(len(X), -1) makes every entry of a row a feature."
        )
    if array.shape[1] == 0:
        raise ValueError(
            f"Found array with 0 feature(s) (shape={array.shape}) while a minimum of 1 is required. "
            "X needs at least one column of numbers."
        )
    return array


def as_target(y: object) -> np.ndarray:
    """A one-dimensional array of numbers; a column is flattened with scikit-learn's warning."""
    return as_vector(numeric_array(y, "y"))


def as_vector(array: np.ndarray) -> np.ndarray:
    """Return a target of any type as a vector; a column is flattened with scikit-learn's warning."""
    if array.ndim == 2 and array.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y to (n_samples,), "
            f"for example using y.ravel(); it was {array.shape}.",
            DataConversionWarning,
        )
        return array.reshape(-1)
    if array.ndim == 0:
        raise ValueError(
            f"y should be a 1d array, got a single {describe(array.item())} instead. Give one value for every row, or "
            "the name of the target column, as text, where X is a table."
        )
    if array.ndim != 1:
        raise ValueError(
            f"y should be a 1d array, got an array of shape {array.shape} instead. One model has one target: "
            "fit one model for each column of y (sklearn.multioutput.MultiOutputRegressor does)."
        )
    return array


def check_num_rows(shape: tuple[int, ...], minimum: int) -> None:
    """Raise unless there are ``minimum`` rows."""
    if shape[0] < minimum:
        why = (
            " Nothing can be learned from one row: give at least two."
            if minimum > 1 and shape[0] == 1
            else ""
        )
        raise ValueError(
            f"Found array with {shape[0]} sample(s) (shape={tuple(shape)}) while a minimum of {minimum} is required "
            f"for X.{why or ' Check the file, the filter or the slice that the rows come from.'}"
        )


def check_same_length(num_rows: int, num_targets: int) -> None:
    """Raise unless X and y have one row each for the other."""
    if num_rows != num_targets:
        raise ValueError(
            f"X and y have inconsistent numbers of rows: X has {num_rows}, y has {num_targets}. Expected one target "
            "for every row; check that both come from the same selection of the data."
        )


def check_target_given(y: object, estimator: str) -> None:
    """Raise when a target is needed and there is none."""
    if y is None:
        raise ValueError(
            f"{estimator} requires y to be passed, but the target y is None. Pass an array with one number for every "
            "row, or the name of the target column when X is a table."
        )


def check_num_features(received: int, expected: int, estimator: str) -> None:
    """Raise unless X has the columns that the model was fitted with."""
    if received != expected:
        raise ValueError(
            f"X has {received} features, but {estimator} is expecting {expected} features as input. Pass the columns "
            "that the model was fitted with, in that order."
        )


# ---------------------------------------------------------------- values


def check_finite(
    values: np.ndarray,
    argument: str,
    *,
    first_row: int = 0,
    row_numbers: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    place: Callable[[int], str] | None = None,
) -> None:
    """Raise ``ValueError`` when there is a NaN or an infinity, naming the first place of it.

    Parameters
    ----------
    values
        A block of rows (two dimensions) or of targets (one).
    argument
        What the block belongs to, for the message.
    first_row
        Row number of the block's first row in the whole.
    row_numbers
        Row numbers of all of them, where they do not follow each other.
    names
        Names of the columns, where they have some.
    place
        What to call a row by its number; None: "row", and the number.
    """
    if values.dtype.kind != "f" or values.size == 0:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # One pass without a temporary array: a sum is finite unless something in it is not, or it overflows.
        if np.isfinite(np.sum(values)):
            return
    for start in range(0, values.shape[0], _SEARCH_ROWS):
        block = values[start : start + _SEARCH_ROWS]
        bad = ~np.isfinite(block)
        if bad.any():
            numbers = (
                first_row + start + np.arange(block.shape[0])
                if row_numbers is None
                else row_numbers[start : start + _SEARCH_ROWS]
            )
            _raise_not_finite(block, bad, argument, numbers, names, place)


def _raise_not_finite(
    block: np.ndarray,
    bad: np.ndarray,
    argument: str,
    row_numbers: np.ndarray,
    names: Sequence[str] | None,
    of_row: Callable[[int], str] | None,
) -> None:
    nan = np.isnan(block)
    which = nan if nan.any() else bad
    place = np.unravel_index(int(np.argmax(which)), which.shape)
    number = int(row_numbers[place[0]])
    where = f"row {number}" if of_row is None else of_row(number)
    if block.ndim == 2:
        column = int(place[1])
        where += f", column {names[column]!r}" if names is not None else f", column {column}"
    count = int(which.sum())
    if count > 1:
        where += f" (and {count - 1} more in the {block.shape[0]} rows read with it)"
    if nan.any():
        advice = _FILL_GAPS if block.ndim == 2 else "Drop the rows that have no target."
        raise ValueError(f"Input {argument} contains NaN: at {where}. {advice}")
    raise ValueError(
        f"Input {argument} contains infinity or a value too large for {block.dtype!r}: at {where}. "
        "Remove these rows, or correct what made them (a division by zero, an overflow, a unit)."
    )


def warn_constant_target(value: float) -> None:
    """Say that there is nothing to learn; the fit goes on, since its answer (that constant) is right."""
    warn(
        f"y is constant: every value is {value:.6g}. A model can only repeat it. Is y the column you meant?"
    )


# ---------------------------------------------------------------- words of messages


def listed(names: Iterable[object], at_most: int = 10) -> str:
    """Names in quotes, the list cut where it gets long."""
    everything = [repr(name) for name in names]
    more = f", ... ({len(everything) - at_most} more)" if len(everything) > at_most else ""
    return ", ".join(everything[:at_most]) + more


def describe(value: Any) -> str:
    """What was received, for messages: its type, and its shape or length where it has one."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"{type(value).__name__} of shape {shape}"
    return f"{type(value).__name__}" + (
        f" {value!r}" if isinstance(value, str | int | float | bool) else ""
    )
