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
    """Score the predictions for TEST: RMSE, NLPD, CRPS, coverage and calibration; accuracy and NLPD of classes.

    Standardised units are those of the training target: 1 is its standard deviation, so an RMSE of 1
    is what predicting the mean achieves. Counts have no such units.
    """
    with explained(debug):
        from vastgp.cli._console import say
        from vastgp.cli._files import writable
        from vastgp.cli._model import load_model_of_rows, rows_and_targets

        if plot is not None:
            writable(plot, "--plot", force=force, suffixes=PICTURES)
        fitted = load_model_of_rows(model)
        rows, y = rows_and_targets(fitted, test, target)
        report = score(fitted, rows, y, batch_rows, plot)
        if as_json:
            say(json.dumps(report, indent=2))
        else:
            show(report, f"{test}, predicted by {model}")
            if plot is not None:
                say(f"Calibration plot: {plot}")


def score(
    model: Any, rows: Any, y: Any, batch_rows: int = 65_536, plot: Path | None = None
) -> dict[str, Any]:
    """Predict rows whose targets are known and score the predictions.

    Returns
    -------
    dict
        That of `vastgp.metrics.regression_report`, `distribution_report` or `classification_report`, with
        ``target_name``.
    """
    from sklearn.base import is_classifier

    from vastgp.cli._model import target_name

    of_kind = _score_classes if is_classifier(model) else _score_numbers
    report = of_kind(model, rows, y, batch_rows, plot)
    report["target_name"] = target_name(model) or rows.target_name
    return report


def _score_numbers(
    model: Any, rows: Any, y: Any, batch_rows: int, plot: Path | None
) -> dict[str, Any]:
    import numpy as np

    from vastgp.cli._model import by_batches
    from vastgp.metrics import distribution_report, regression_report

    y, done, parts = np.asarray(y, dtype=np.float64), 0, []
    for some in by_batches(rows, batch_rows, label="evaluate"):
        found = model.distribution(some)
        here = y[done : done + some.n]
        done += some.n
        columns = [found.mean, found.std]
        if not found.gaussian:
            interval = found.quantiles((0.025, 0.975))
            columns += [found.log_density(here), found.normal_scores(here), *interval]
        parts.append(columns)
    mean, std, *own = (np.concatenate(column) for column in zip(*parts, strict=True))
    scaling = model.standardizer_
    if not own:
        report = regression_report(
            y, mean, std, y_train_mean=scaling.y_mean, y_train_scale=scaling.y_scale
        )
        scores = (y - mean) / std
    else:
        log_density, scores, low, high = own
        report = distribution_report(
            y,
            mean,
            log_density=log_density,
            normal_scores=scores,
            interval=(low, high),
            training_units=(scaling.y_mean, scaling.y_scale)
            if model.likelihood_.scales_target
            else None,
        )
    if plot is not None:
        from vastgp.data.whole_files import written_whole
        from vastgp.plots import save_calibration_plot

        with written_whole(plot) as partial:
            save_calibration_plot(
                partial, scores, np.zeros_like(y), 1.0, format=plot.suffix[1:].lower()
            )
    return report


def _score_classes(
    model: Any, rows: Any, labels: Any, batch_rows: int, plot: Path | None
) -> dict[str, Any]:
    import numpy as np

    from vastgp.cli._model import by_batches
    from vastgp.metrics import classification_report

    probabilities = np.concatenate(
        [model.predict_proba(some) for some in by_batches(rows, batch_rows, label="evaluate")]
    )
    if plot is not None:
        from matplotlib.figure import Figure

        from vastgp.data.whole_files import written_whole
        from vastgp.plots import reliability_plot

        figure = Figure(figsize=(4.8, 6.0), layout="constrained")
        reliability_plot(labels, probabilities, model.classes_, ax=figure.subplots())
        with written_whole(plot) as partial:
            figure.savefig(partial, format=plot.suffix[1:].lower(), dpi=150)
    return classification_report(labels, probabilities, model.classes_)


def show(report: dict[str, Any], title: str) -> None:
    """Print a report as a table in both units and the scores that have none."""
    from vastgp.cli._console import facts, heading, number, plural, table

    heading(title)
    if "accuracy" in report:
        facts(
            [
                ("rows", f"{report['rows']:,} of {len(report['classes'])} classes"),
                ("accuracy", f"{100 * report['accuracy']:.4g} %"),
                ("NLPD", f"{number(report['nlpd'])} nats"),
                ("Brier score", number(report["brier"])),
                ("calibration error", f"{number(report['ece'], 3)}  (calibrated: about "
                 f"{number(report['ece_by_chance'], 2)})"),
            ]
        )  # fmt: skip
        return
    own, standardised = report["target"], report["standardised"]
    labels = {
        "rmse": "RMSE",
        "mae": "mean absolute error",
        "nlpd": "NLPD (nats)",
        "crps": "CRPS",
        "interval_width": "width of 95 % interval",
    }
    heads = [plural(report["rows"], "row"), f"in units of {report['target_name'] or 'target'}"]
    lines = [[label, number(own[key])] for key, label in labels.items() if key in own]
    if standardised is not None:
        heads.insert(1, "standardised")
        for line, key in zip(lines, [key for key in labels if key in own], strict=True):
            line.insert(1, number(standardised[key]))
    table(heads, lines)
    coverage, error = report["coverage"], report["coverage_se"]
    rest = [
        ("coverage of 95 % interval", f"{100 * coverage:.1f} %  (calibrated: 95 ± {200 * error:.1f} %)"),
        ("calibration error", f"{number(report['calibration_error'], 3)}  (calibrated: "
         f"about {0.313 / report['rows'] ** 0.5:.2g})"),
        ("R2", number(report["r2"])),
    ]  # fmt: skip
    if report["msll"] is not None:
        beats = "below 0 beats the training mean"
        rest.append(("MSLL", f"{number(report['msll'])} nats  ({beats})"))
    facts(rest)
