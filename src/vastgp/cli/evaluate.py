"""`vastgp evaluate`: accuracy and calibration on rows whose target is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from vastgp.cli._errors import explained
from vastgp.cli._options import AsJson, BatchRows, Debug, Force

PICTURES = (".png", ".pdf", ".svg")


def evaluate(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model that vastgp fit or model.save wrote.")
    ],
    test: Annotated[
        Path,
        typer.Argument(
            metavar="TEST", help="Rows that the fit has not seen, with the target column."
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            metavar="COLUMN",
            help="Target column, if it is not named as in training.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Write a calibration plot: .png, .pdf or .svg."
        ),
    ] = None,
    as_json: AsJson = False,
    batch_rows: BatchRows = 65_536,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Score the predictions for TEST: RMSE, NLPD, CRPS, coverage and calibration.

    Standardised units are those of the training target: 1 is its standard deviation, so an RMSE of 1
    is what predicting the mean achieves.
    """
    with explained(debug):
        from vastgp.cli._console import say
        from vastgp.cli._files import writable
        from vastgp.cli._model import load_regressor, rows_for, target_name

        if plot is not None:
            writable(plot, "--plot", force=force, suffixes=PICTURES)
        fitted = load_regressor(model)
        rows = rows_for(fitted, test, target=target or target_name(fitted), need_target=True)
        report = score(fitted, rows, batch_rows, plot)
        if as_json:
            say(json.dumps(report, indent=2))
        else:
            show(report, f"{test}, predicted by {model}")
            if plot is not None:
                say(f"Calibration plot: {plot}")


def score(model: Any, rows: Any, batch_rows: int, plot: Path | None = None) -> dict[str, Any]:
    """Predict rows whose targets are known and score the predictions.

    Returns
    -------
    dict
        That of `vastgp.metrics.regression_report`, with ``target_name``.
    """
    import numpy as np

    from vastgp.cli._model import predictions, target_name
    from vastgp.metrics import regression_report

    parts = list(predictions(model, rows, batch_rows, label="evaluate"))
    y, mean, std = (np.concatenate(column) for column in zip(*parts, strict=True))
    scaling = model.standardizer_
    report = regression_report(
        y, mean, std, y_train_mean=scaling.y_mean, y_train_scale=scaling.y_scale
    )
    report["target_name"] = target_name(model) or rows.target_name
    if plot is not None:
        from vastgp.data.whole_files import written_whole
        from vastgp.plots import save_calibration_plot

        with written_whole(plot) as partial:
            save_calibration_plot(partial, y, mean, std, format=plot.suffix[1:].lower())
    return report


def show(report: dict[str, Any], title: str) -> None:
    """Print a report as a table in both units and the scores that have none."""
    from vastgp.cli._console import facts, heading, number, plural, table

    name = report["target_name"] or "target"
    labels = {
        "rmse": "RMSE",
        "mae": "mean absolute error",
        "nlpd": "NLPD (nats)",
        "crps": "CRPS",
        "interval_width": "width of 95 % interval",
    }
    heading(title)
    table(
        (plural(report["rows"], "row"), "standardised", f"in units of {name}"),
        [
            (label, number(report["standardised"][key]), number(report["target"][key]))
            for key, label in labels.items()
        ],
    )
    coverage, error = report["coverage"], report["coverage_se"]
    facts(
        [
            ("coverage of 95 % interval", f"{100 * coverage:.1f} %  (calibrated: 95 ± {200 * error:.1f} %)"),
            ("calibration error", f"{number(report['calibration_error'], 3)}  (calibrated: "
             f"about {0.313 / report['rows'] ** 0.5:.2g})"),
            ("R2", number(report["r2"])),
            ("MSLL", f"{number(report['msll'])} nats  (below 0 beats the training mean)"),
        ]
    )  # fmt: skip
