"""Write `results/svgp.md`: vastgp beside GPyTorch's SVGP, by time to the same test error and error after the same time.

Reads the traces of `convergence.py` and of `peers/svgp_gpytorch.py`, which must be made one after the other on one
machine. Seconds include everything but the measuring of test errors.
"""

from __future__ import annotations

from typing import Any

from table import RESULTS, rows, write_table

NAMES = {"block": 'vastgp, `solver="block"`', "default": 'vastgp, `solver="stochastic"`'}
HEAD = (
    "| data | method | kernel | seconds | RMSE at the end | NLPD | coverage 95 % | s to SVGP's final RMSE "
    "| RMSE after as long as SVGP |"
)


def time_to(trace: list[dict[str, float]], error: float) -> float | None:
    """Return the seconds after which the test error was first at most ``error``."""
    return next((point["seconds"] for point in trace if point["rmse"] <= error), None)


def seconds_to(trace: list[dict[str, float]], error: float) -> str:
    """Return `time_to` as the text of a cell."""
    reached = time_to(trace, error)
    return "not reached" if reached is None else f"{reached:.0f}"


def error_after(run: dict[str, Any], seconds: float) -> float:
    """Return the last test error measured within ``seconds``: that of the end if the fit ended before."""
    if run["trace"][-1]["seconds"] <= seconds:
        return run["report"]["standardised"]["rmse"]
    return [point["rmse"] for point in run["trace"] if point["seconds"] <= seconds][-1]


def main() -> None:
    """Write the table."""
    ours = rows(RESULTS / "convergence.jsonl")
    lines: list[str] = []
    made = (
        "Made by `python benchmarks/beside_svgp.py` from `convergence.jsonl` (`benchmarks/convergence.py`) and "
        "`svgp.jsonl` (`benchmarks/peers/svgp_gpytorch.py`), run one after the other on two CPU cores. Split 0, "
        "m = 100,000, standardised units. Ours start from nothing: the kernel is chosen and its hyperparameters are "
        "found within the seconds shown."
    )
    for peer in rows(RESULTS / "svgp.jsonl"):
        data, end = peer["dataset"], peer["final"]
        lines.append(
            f"| {data} | GPyTorch SVGP-512 | {peer['kernel']} | {peer['seconds']:.0f} | {end['rmse']:.4f} "
            f"| {end['nlpd']:.3f} | {end['coverage']:.3f} | {peer['seconds']:.0f} | {end['rmse']:.4f} |"
        )
        for run in ours:
            if (
                run["dataset"] != data
                or run["split"] != peer["split"]
                or run["variant"] not in NAMES
            ):
                continue
            trace, report = run["trace"], run["report"]
            lines.append(
                f"| {data} | {NAMES[run['variant']]} | {run['kernel'].split('(')[0]} | {trace[-1]['seconds']:.0f} "
                f"| {report['standardised']['rmse']:.4f} | {report['standardised']['nlpd']:.3f} "
                f"| {report['coverage']:.3f} | {seconds_to(trace, end['rmse'])} "
                f"| {error_after(run, peer['seconds']):.4f} |"
            )
    title = "Beside GPyTorch's SVGP with 512 learned inducing points"
    write_table(RESULTS / "svgp.md", title, made, HEAD, lines)


if __name__ == "__main__":
    main()
