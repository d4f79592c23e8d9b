"""`vastgp evaluate`: accuracy and calibration on rows whose target is known."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from vastgp.cli._errors import explained
from vastgp.cli._names import OF_EVALUATE
from vastgp.cli._options import AsJson, BatchRows, Debug, ExposureOfCounts, Force

PICTURES = (".png", ".pdf", ".svg")
_FARTHEST = 8.0  # deviations: what is beyond is drawn there
_ENDLESS = 1e300  # stands for infinity where numbers must be finite
_DRIFTS = 5  # shown; --json has all


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
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            metavar="COLUMN",
            help="Target column, if it is not named as in training; of several targets one each, in their order.",
        ),
    ] = None,
    exposure: ExposureOfCounts = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Write a calibration plot: .png, .pdf or .svg. Of several targets one each, named after them.",
        ),
    ] = None,
    as_json: AsJson = False,
    batch_rows: BatchRows = 65_536,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Score the predictions for TEST: RMSE, NLPD, CRPS, coverage and calibration; accuracy and NLPD of classes.

    Standardised units are those of the training target: 1 is its standard deviation, so an RMSE of 1
    is what predicting the mean achieves. Counts, and targets modelled on another scale, have no such units. Of models
    of the default method it is told how many rows lie outside the training rows, and which inputs have drifted.
    """
    with explained(debug, OF_EVALUATE):
        from vastgp.cli._console import say
        from vastgp.cli._files import writable
        from vastgp.cli._model import (
            load_model_of_rows,
            of_targets,
            rows_and_targets,
            targets_named,
        )

        fitted = load_model_of_rows(model)
        models, names = of_targets(fitted), targets_named(fitted, target)
        plots = dict.fromkeys(models) if plot is None else files_of(plot, models)
        for path in filter(None, plots.values()):
            others = {"the model": model, "TEST": test}
            writable(path, "--plot", force=force, suffixes=PICTURES, others=others)
        reports = {}
        for key, one in models.items():
            rows, y = rows_and_targets(one, test, names[key], exposure)
            reports[key] = score(one, rows, y, batch_rows, plots[key])
            if not as_json:
                of_one = "" if key is None else f": {key}"
                show(reports[key], f"{test}, predicted by {model}{of_one}")
                if plots[key] is not None:
                    say(f"Calibration plot: {plots[key]}")
        if as_json:
            whole = reports.get(None, {"targets": reports})
            say(json.dumps(whole, indent=2))


def files_of(path: Path, targets: Iterable[Any]) -> dict[Any, Path]:
    """The files of all targets: of several each has its name added."""
    from vastgp.auto.several import files_of_targets

    targets = list(targets)
    return {None: path} if targets == [None] else files_of_targets(path, targets)


def score(
    model: Any, rows: Any, y: Any, batch_rows: int = 65_536, plot: Path | None = None
) -> dict[str, Any]:
    """Predict rows whose targets are known and score the predictions.

    Returns
    -------
    dict
        That of `vastgp.metrics.regression_report`, `distribution_report` or `classification_report`, with
        ``target_name``. Of a model of the default method also ``rows_without_target``, which are not scored,
        ``outside_rows``, how many lie outside what it was trained on, and ``drift``, in words.
    """
    from sklearn.base import is_classifier

    from vastgp.cli._model import by_batches, target_name
    from vastgp.cli._tables import Watch, is_front_door

    of_kind = _score_classes if is_classifier(model) else _score_numbers
    batches = by_batches(rows, batch_rows, label="evaluate")
    watch = Watch(model) if is_front_door(model) else None
    report = of_kind(model, batches if watch is None else watch.over(batches), y, plot)
    report["target_name"] = target_name(model) or rows.target_name
    if watch is not None:
        report["rows_without_target"] = rows.n_left_out
        report["outside_rows"], report["drift"] = watch.outside, watch.drift()
    return report


def _score_numbers(model: Any, batches: Iterable[Any], y: Any, plot: Path | None) -> dict[str, Any]:
    import numpy as np

    from vastgp.metrics import regression_report

    y, done, parts = np.asarray(y, dtype=np.float64), 0, []
    for some in batches:
        found = model.distribution(some)
        here = y[done : done + some.n]
        done += some.n
        columns = [found.mean, found.std]
        # those of the default method are on a warped scale, or calibrated
        if not getattr(found, "gaussian", False):
            interval = found.quantiles((0.025, 0.975))
            columns += [found.log_density(here), found.normal_scores(here), *interval]
        parts.append(columns)
    mean, std, *own = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not own:
        scaling = model.standardizer_
        report = regression_report(
            y, mean, std, y_train_mean=scaling.y_mean, y_train_scale=scaling.y_scale
        )
        scores = (y - mean) / std
    else:
        log_density, scores, low, high = own
        # a logarithmic scale holds targets of zero and below impossible
        scores = np.clip(np.nan_to_num(scores, nan=-_FARTHEST), -_FARTHEST, _FARTHEST)
        report = _of_distributions(y, mean, log_density, scores, (low, high), _units(model))
    if plot is not None:
        from vastgp.data.whole_files import written_whole
        from vastgp.plots import save_calibration_plot

        with written_whole(plot) as partial:
            save_calibration_plot(
                partial, scores, np.zeros_like(y), 1.0, format=plot.suffix[1:].lower()
            )
    return report


def _of_distributions(
    y: Any,
    mean: Any,
    log_density: Any,
    scores: Any,
    interval: tuple[Any, Any],
    units: tuple[float, float] | None,
) -> dict[str, Any]:
    """The report of distributions that are not normal.

    A target that one rules out has an infinite loss, and conformal intervals of few held-out rows are infinite.
    """
    import numpy as np

    from vastgp.metrics import distribution_report

    impossible, endless = ~np.isfinite(log_density), not np.isfinite(interval).all()
    report = distribution_report(
        y,
        mean,
        log_density=np.where(impossible, 0.0, log_density),
        normal_scores=scores,
        interval=(np.clip(interval[0], -_ENDLESS, None), np.clip(interval[1], None, _ENDLESS)),
        training_units=units,
    )
    infinite = {"nlpd": float("inf")} if impossible.any() else {}
    infinite |= {"interval_width": float("inf")} if endless else {}
    report["target"] |= infinite
    if report["standardised"] is not None:
        report["standardised"] |= infinite
    if impossible.any():
        report["msll"] = None
    return report


def _units(model: Any) -> tuple[float, float] | None:
    """Mean and deviation of the training targets; None where they are no units, or are not known."""
    inner = getattr(model, "model_", model)
    warp = getattr(model, "warp_", None)
    # a mass has no unit, and densities are of the rows at no heap alone
    if getattr(model, "heap_", None) is not None:
        return None
    if not inner.likelihood_.scales_target or (warp is not None and warp.name != "own"):
        return None
    return inner.standardizer_.y_mean, inner.standardizer_.y_scale


def _score_classes(
    model: Any, batches: Iterable[Any], labels: Any, plot: Path | None
) -> dict[str, Any]:
    import numpy as np

    from vastgp.metrics import classification_report

    probabilities = np.concatenate([model.predict_proba(some) for some in batches])
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
                *_of_the_table(report),
            ]
        )  # fmt: skip
        _tell_drift(report)
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
    facts(rest + _of_the_table(report))
    _tell_drift(report)


def _of_the_table(report: dict[str, Any]) -> list[tuple[str, str]]:
    """What is known of the rows themselves, for models of the default method."""
    if "outside_rows" not in report:
        return []
    found = [
        ("rows outside the training rows", f"{report['outside_rows']:,} of {report['rows']:,}")
    ]
    if report["rows_without_target"]:
        found.append(("left out", f"{report['rows_without_target']:,} without a target"))
    return found


def _tell_drift(report: dict[str, Any]) -> None:
    from vastgp.cli._console import say

    words = report.get("drift", [])
    for text in words[:_DRIFTS]:
        say(text[0].upper() + text[1:] + ".", style="yellow", wrap=True)
    if len(words) > _DRIFTS:
        say(f"{len(words) - _DRIFTS} more inputs have drifted (--json names all).", style="yellow")
