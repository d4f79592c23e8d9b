"""statsforecast's exponential smoothing and ARIMA, chosen by information criteria, beside ../series.py.

    VASTGP_RAW=/tmp/raw /tmp/peers/bin/python benchmarks/peers/series_peers.py --missing

AutoETS and AutoARIMA (Nixtla's rewriting of R's forecast, Hyndman and Khandakar 2008) are given the values in their
order and the steps of a season. Their intervals are normal ones, so that a deviation follows from the 95 % interval.
Neither has a budget.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri
from statsforecast.models import AutoARIMA, AutoETS

sys.path.append(str(Path(__file__).parents[1]))
from anytime_program import Fit, Scored, command_line, run
from anytime_tables import Drawn, gaussian_scores
from series_sets import SERIES
from table import RESULTS

MODELS = {"AutoETS": AutoETS, "AutoARIMA": AutoARIMA}


def forecast(kind: Any, table: Drawn) -> Scored:
    """Forecast the test rows."""
    model = kind(season_length=SERIES[table.origin["series"]].season)
    found = model.forecast(y=table.y, h=len(table.y_test), level=[95])
    mean = np.asarray(found["mean"])
    std = (np.asarray(found["hi-95"]) - np.asarray(found["lo-95"])) / (2.0 * ndtri(0.975))
    scaled = (mean - table.y.mean()) / table.unit, std / table.unit
    return lambda: gaussian_scores(table, *scaled), {
        "answer": "",
        "versions": {"statsforecast": version("statsforecast"), "numpy": np.__version__},
    }


def prepare(estimator: str, budget: float, params: dict[str, Any]) -> Fit:
    """Return what fits a model; it has no use for a budget."""
    del budget, params
    return partial(forecast, MODELS[estimator])


def main() -> None:
    """Read the command line."""
    parser = command_line(__doc__)
    parser.set_defaults(out=RESULTS / "series.jsonl", table=["series"], budget=[20.0])
    run(parser.parse_args(), lambda table: list(MODELS), prepare)


if __name__ == "__main__":
    main()
