"""The small table of the system tests."""

from __future__ import annotations

import pyarrow as pa

FEATURES = ("depth", "pressure", "salinity")


def as_table(X, y=None, **more):
    """Rows as a table: the features, the target where it is given, and further columns."""
    columns = dict(zip(FEATURES, X.T, strict=True)) | ({} if y is None else {"temperature": y})
    return pa.table(columns | more)


def fit_exact(run, data, out, *more):
    """`vastgp fit` by the exact method, with kernel and start given so that it is quick."""
    quick = ("--method", "exact", "--kernel", "rbf", "--set", "restarts=1")
    return run("fit", data, *quick, "--out", out, *more)
