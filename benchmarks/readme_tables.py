"""Fill the tables between the marks ``<!-- table: ... -->`` in README.md from the JSON lines in `results`."""

from __future__ import annotations

import re
from typing import Any

from beside_svgp import error_after, seconds_to
from shared_sets import REGRESSION
from table import RESULTS, mean, rows

README = RESULTS.parent.parent / "README.md"
DATA = ("kin40k", "protein", "kegg")
# Table 2 of the QSGP paper: 100,000 random features, means over ten splits.
PAPER = {"kin40k": 0.174, "protein": 0.602, "kegg": 0.135}
# Beside the front door, in environments of their own; of tables with fewer rows than this the test tells little.
PEERS, LEAST_ROWS = ("CatBoost", "scikit-learn HistGradientBoosting"), 400
VARIANTS = {"default": "", "qsgp-100": ", `Stochastic(dense_columns=100)`"}


def scores(reports: list[dict[str, Any]]) -> str:
    """Return mean RMSE, NLPD and coverage as cells."""
    standardised = [report["standardised"] for report in reports]
    rmse, nlpd = (mean([s[name] for s in standardised]) for name in ("rmse", "nlpd"))
    coverage = mean([report["coverage"] for report in reports])
    return f"{rmse:.3f} | {nlpd:.2f} | {100 * coverage:.1f} %"


def minute() -> list[str]:
    """Return the rows of the front door's table: shared sets at 60 s, beside the best of the peers."""
    found = [row for row in rows(RESULTS / "anytime.jsonl") if row["budget"] == 60.0]
    lines = []
    for name in REGRESSION:
        here = {row["estimator"]: row for row in found if row["table"] == name and "nlpd" in row}
        ours = here.pop("GPRegressor", None)
        peers = [row for who, row in here.items() if who in PEERS]
        if ours is None or not peers or ours["n"] < LEAST_ROWS:
            continue
        best = min(peers, key=lambda row: float(row["nlpd"]))
        lines.append(
            f"| {name} | {ours['n']:,} x {ours['d']} | {ours['rmse']:.3f} | {ours['nlpd']:.2f} "
            f"| {100 * ours['coverage']:.0f} % | {ours['seconds']:.0f} | {best['rmse']:.3f}, {best['nlpd']:.2f} |"
        )
    return lines


def block() -> list[str]:
    """Return the rows of the block solver's table."""
    lines = []
    found = rows(RESULTS / "regression.jsonl")
    for data in DATA:
        for method in ("block", "block-learned"):
            runs = [r for r in found if r["dataset"] == data and r["method"] == method]
            if not runs:
                continue
            params = runs[0]["params"]
            # older lines have another name
            steps = params.get("hyperparameters.steps", params.get("learning_steps"))
            how = f", `hyperparameters=Learn(steps={steps})`" if steps else ""
            lines.append(
                f"| {data}{how} | {runs[0]['n']:,} | {len(runs)} | {scores([r['report'] for r in runs])} "
                f"| {mean([r['seconds'] for r in runs]):.0f} | {PAPER[data]} |"
            )
    return lines


def stochastic() -> list[str]:
    """Return the rows of the stochastic solver's table."""
    found = sorted(rows(RESULTS / "convergence.jsonl"), key=lambda run: run["split"])
    lines = []
    for data in DATA:
        for variant, how in VARIANTS.items():
            runs = [r for r in found if (r["dataset"], r["variant"]) == (data, variant)]
            if not runs:
                continue
            times = ", ".join(seconds_to(run["trace"], PAPER[data]) for run in runs)
            seconds = ", ".join(f"{run['trace'][-1]['seconds']:.0f}" for run in runs)
            lines.append(
                f"| {data}{how} | {len(runs)} | {scores([run['report'] for run in runs])} | {seconds} "
                f"| {times} (RMSE {PAPER[data]}) |"
            )
    return lines


def svgp() -> list[str]:
    """Return the rows of the table beside SVGP."""
    found = rows(RESULTS / "convergence.jsonl")
    ours = {(r["dataset"], r["split"], r["variant"]): r for r in found}
    lines = []
    for peer in rows(RESULTS / "svgp.jsonl"):
        data, end = peer["dataset"], peer["final"]
        cells = []
        for variant in ("block", "default"):
            run = ours[data, peer["split"], variant]
            cells.append(
                f"{seconds_to(run['trace'], end['rmse'])} | {error_after(run, peer['seconds']):.3f}"
            )
        lines.append(f"| {data} | {end['rmse']:.3f}, {end['nlpd']:.2f} | {' | '.join(cells)} |")
    return lines


def large() -> list[str]:
    """Return the rows of the table of large data."""
    return [
        f"| {r['dataset']} | {r['n']:,} | {r['params']['num_basis']:,} | {scores([r['report']])} "
        f"| {r['seconds'] / 60:.0f} min | {'yes' if r['converged'] else 'no'} |"
        for r in rows(RESULTS / "regression.jsonl")
        if r["method"] == "block-20k"
    ]


def main() -> None:
    """Write the tables; the header of each stays as it is in the README."""
    text = README.read_text()
    for make in (minute, block, stochastic, svgp, large):
        # the two lines of the header, then the rows up to the next blank line
        pattern = rf"(<!-- table: {make.__name__} -->\n\n\|.*\n\|[-|]*\n)(?:\|.*\n)*"
        filled = "".join(line + "\n" for line in make())
        text, count = re.subn(pattern, lambda match: match.group(1) + filled, text)  # noqa: B023
        if count != 1:
            raise SystemExit(f"README.md has {count} tables marked '{make.__name__}', expected 1.")
    README.write_text(text)


if __name__ == "__main__":
    main()
