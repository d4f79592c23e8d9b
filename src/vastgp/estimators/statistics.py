"""Sums over the rows as a phase of a fit, and those of new rows, which may be taken anywhere and add up."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vastgp.data import Rows, Standardizer, processes
from vastgp.data.tables import Table, open_frame
from vastgp.estimators.judging import OWN
from vastgp.fitting.loop import Stop
from vastgp.fitting.run import Run
from vastgp.fitting.sufficient_statistics import (
    SufficientStatistics,
    block_rows_of,
    gather_statistics,
    merged_everywhere,
)

# The phase that holds the sums of all processes.
_OF_ALL = "sums of all processes"


def gather(
    rows: Rows, scaling: Standardizer, basis: Any, dtype: str, run: Run, *, share: float = 1.0
) -> SufficientStatistics:
    """Return the sums over standardised rows in one pass, a phase of a fit; where time ends, those of the rows so far.

    Where several processes share the rows, each sums over its own, a block at the same time as the others. The file of
    the fit then holds the sums of all when all are read, and nothing of the pass before: any number of processes goes
    on from that.

    Parameters
    ----------
    rows : Rows
    scaling : Standardizer
    basis : basis
    dtype : {"float32", "float64"}
        Of the features.
    run : Run
    share : float, default 1.0
        Of what is left of the budget.
    """
    several = processes.count() > 1
    if not (several or run.has(_OF_ALL)):
        return _summed(rows, scaling, basis, dtype, run, share)
    state, arrays = run.once(
        _OF_ALL,
        lambda: _summed(rows, scaling, basis, dtype, run, share, saved=False).to_state(),
        is_whole=lambda found: found[0]["num_rows"] == rows.n,
    )
    return SufficientStatistics.from_state(state, arrays)


def _summed(
    rows: Rows,
    scaling: Standardizer,
    basis: Any,
    dtype: str,
    run: Run,
    share: float,
    *,
    saved: bool = True,
) -> SufficientStatistics:
    """Return the sums over the rows of all processes, as many as there was time for."""
    size, local = block_rows_of(basis.num_basis), rows.local
    blocks = -(-max(int(n) for n in processes.gathered(np.int64(local.n))) // size)

    def block_of(number: int) -> SufficientStatistics:
        start, stop = min(number * size, local.n), (number + 1) * size
        return gather_statistics(local, scaling, basis, dtype=dtype, start=start, stop=stop)

    # there is always an answer: the budget ends nothing before it
    total = block_of(0)
    if blocks == 1:
        return merged_everywhere(total)

    def step_chunk(state: Any, first: int, count: int) -> tuple[Any, dict[str, Any]]:
        moments, rest = state
        more = replace(total, moments=moments, rest=rest) + block_of(first + count)
        return (more.moments, more.rest), {"blocks": first + count + 1}

    (moments, rest), loop = run.steps(
        "sums",
        step_chunk,
        (total.moments, total.rest),
        max_iter=None,
        chunk=1,
        should_stop=lambda seen, _: Stop("all rows were read", True) if seen["blocks"] == blocks else None,
        share=share,
        saved=saved,
    )  # fmt: skip
    seen = min((loop.num_iter + 1) * size, local.n)
    return merged_everywhere(replace(total, num_rows=seen, moments=moments, rest=rest))


class TakesSums:
    """A regressor that knows its rows by sums over them alone, to which those of other rows are added.

    It has ``_basis_of_sums()``, whose features are summed, and ``_answers_of_sums(statistics, run)``, a fit to sums.
    Rows are added to the method's own answer, whichever a fit of some rows has kept.
    """

    # attributes of the method's own answer, where a simpler one was kept; no file has them
    _own_fit: dict[str, Any] | None = None

    def _check_takes_rows(self) -> None:
        """Refuse new rows where sums over them do not say what they have to say."""

    def statistics(self: Any, X: Any, y: Any = None) -> SufficientStatistics:
        """Return the sums over some rows of this model's features, for `update`: here or in another process.

        Parameters
        ----------
        X, y
            As in ``fit``; of a table or an array without rows, as an engine's partitions may be, the sums are zero.

        Returns
        -------
        SufficientStatistics
            They add up by ``+``, whatever the parts were; see `vastgp.statistics` for those of a dask data frame.
        """
        check_is_fitted(self, "posterior_")
        X = open_frame(X)
        if not _has_rows(X):
            none = np.zeros((0, self.n_features_in_))
            return self._own_sums(lambda: Rows(none, none[:, 0], checked=True))
        return self._own_sums(lambda: self._open(X, y, require_y=True))

    def update(self: Any, statistics: Any) -> Any:
        """Add sums over new rows to those of the fit, and infer again: at a cost that does not depend on the rows.

        Kernel, basis and scaling stay those of the first fit. They may suit rows that come later from elsewhere less
        well; ``fit`` begins anew.

        Parameters
        ----------
        statistics : SufficientStatistics
            From `statistics` of this model, or of one loaded from its file.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For anything else.
        """
        check_is_fitted(self, "posterior_")
        if not isinstance(statistics, SufficientStatistics):
            raise ValueError(
                f"statistics must be sums over rows, as statistics(X, y) of this model returns them; received "
                f"{reprlib.repr(statistics)}. partial_fit(X, y) takes rows themselves."
            )
        self._own("update")._check_takes_rows()

        def total(work: Any) -> SufficientStatistics:
            work.__dict__ = work._own("update").__dict__
            return work.statistics_ + statistics

        # rows are counted once, however often the update is tried: an unfinished one leaves the model as it was
        return self._fit_whole(
            total,
            lambda work, total, run: work._answers_of_sums(total, run),
            keep=True,
        )

    def partial_fit(self: Any, X: Any, y: Any = None) -> Any:
        """Add rows to a fitted model, or fit it to these.

        Parameters
        ----------
        X, y
            As in ``fit``, which this is when there is no model yet.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Where the model no longer has its sums, or for data that do not match those of the fit.
        """
        if not hasattr(self, "posterior_"):
            return self.fit(X, y)
        if processes.count() > 1:
            raise ValueError(
                f"partial_fit adds the rows of one process, and {processes.count()} run here. Sum the parts by "
                "model.statistics(X, y), add them up, and give all processes model.update(sums)."
            )
        self._own("partial_fit")
        return self.update(self._own_sums(lambda: self._open(X, y, require_y=True)))

    def _own_sums(self: Any, opened: Callable[[], Rows]) -> SufficientStatistics:
        """Return the sums over rows of the features of the method's own answer."""
        own = self._own("statistics")
        own._check_takes_rows()
        return own._sums_over(opened())

    def _sums_over(self: Any, rows: Rows) -> SufficientStatistics:
        return gather_statistics(
            rows, self.standardizer_, self._basis_of_sums(), dtype=self.dtype, verbose=bool(self.verbose)
        )  # fmt: skip

    def _own(self: Any, what: str) -> Any:
        """Return the model with the method's own answer, which ``what`` is of."""
        if self.answer_ == OWN:
            return self
        if self._own_fit is None:
            self._check_own(what)
        own = object.__new__(type(self))
        own.__dict__ = {**self.__dict__, **self._own_fit, "answer_": OWN, "_own_fit": None}
        return own

    def _end_race(self: Any, own: dict[str, Any] | None, out: Rows | None) -> None:
        # without that of a fit before
        self._own_fit = None if own is None else own | {"_own_fit": None}
        if out is None or "statistics_" not in self.__dict__:
            return
        # what was kept out of the fit counts as soon as others are added
        self.statistics_ = self.statistics_ + self._own("statistics")._sums_over(out)
        if self._own_fit is not None:
            self._own_fit["statistics_"] = self.statistics_

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        return state | {"_own_fit": None}


def _has_rows(X: Any) -> bool:
    """Return whether there are rows in what holds them in memory; of files their reader says it."""
    if isinstance(X, Table):
        return X.num_rows != 0
    return not isinstance(X, list | tuple | np.ndarray) or len(X) > 0


def statistics(model: Any, frame: Any, y: str) -> SufficientStatistics:
    """Return the sums over all partitions of a dask data frame, for ``model.update``.

    Each partition is summed where it lies, by a copy of the model; sums are added two by two. What travels is the model
    and, of each partition, a matrix of its basis functions, whatever the number of rows. For other engines: map
    ``model.statistics`` over the parts, and add what they give.

    Parameters
    ----------
    model : GriefRegressor, ReweightedBasisRegressor or DirectRegressor
        Fitted, for example to the first partition or to a sample.
    frame : dask.dataframe.DataFrame
    y : str
        Name of the target's column.

    Returns
    -------
    SufficientStatistics

    Examples
    --------
    >>> import numpy as np, pandas as pd, vastgp
    >>> import dask.dataframe as dd
    >>> x = np.random.default_rng(0).uniform(-3, 3, 4000)
    >>> frame = dd.from_pandas(pd.DataFrame({"x": x, "y": np.sin(x)}), npartitions=4)
    >>> model = vastgp.GriefRegressor(num_eigenfunctions=8).fit(frame.partitions[0].compute(), "y")
    >>> rest = vastgp.statistics(model, frame.partitions[1:], "y")
    >>> model.update(rest).statistics_.num_rows
    4000
    """
    if not isinstance(model, TakesSums):
        raise ValueError(
            f"model is a {type(model).__name__}, which sums over rows do not make. Expected a fitted GriefRegressor, "
            "ReweightedBasisRegressor or DirectRegressor."
        )
    if not hasattr(frame, "to_delayed"):
        raise ValueError(
            f"frame is a {type(frame).__name__}. Expected a dask DataFrame; the sums of one in memory are "
            "model.statistics(frame, y)."
        )
    from dask import delayed

    level = [delayed(model.statistics)(part, y) for part in frame.to_delayed()]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [delayed(operator.add)(*pair) for pair in pairs] + level[len(level) & ~1 :]
    return level[0].compute()
