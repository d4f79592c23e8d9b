"""Plot what grid_sweep.py measured: seconds against the share of gaps, and seconds and memory against the points.

python benchmarks/grid_plots.py
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from grid_sweep import SYSTEMS
from table import RESULTS, rows


def main() -> None:
    """Write results/grid_sweep.png and results/grid_scaling.png."""
    lines = rows(RESULTS / "grid_sweep.jsonl")
    by_gaps([line for line in lines if line["dtype"] == "float64"])
    by_points([line for line in lines if line["dtype"] == "float32" and line["points"] > 1e4])


def by_gaps(lines: list[dict[str, Any]]) -> None:
    """Figure 3.2 of the thesis."""
    sizes = sorted({line["points"] for line in lines})
    fig, axes = plt.subplots(1, len(sizes), figsize=(4.6 * len(sizes), 3.8), layout="constrained")
    for ax, size in zip(axes, sizes, strict=True):
        here = [line for line in lines if line["points"] == size]
        for i, system in enumerate(SYSTEMS):
            if not any(line["system"] == system for line in here):
                continue
            points = sorted(
                (x["gaps"], x["seconds"], x["converged"]) for x in here if x["system"] == system
            )
            gaps, seconds, converged = map(np.array, zip(*points, strict=True))
            ax.semilogy(gaps, seconds, color=f"C{i}", lw=1)
            ax.semilogy(gaps[converged], seconds[converged], "o", color=f"C{i}", label=system)
            if not converged.all():
                ax.semilogy(gaps[~converged], seconds[~converged], "x", color=f"C{i}")
        ax.set(
            title=f"{size:,} points", xlabel="share of gaps", ylabel="seconds (x: stopped before)"
        )
        ax.grid(alpha=0.3)
    axes[0].legend(frameon=False, fontsize="small")
    fig.savefig(RESULTS / "grid_sweep.png", dpi=110)


def by_points(lines: list[dict[str, Any]]) -> None:
    """Time of a solve and peak memory against the grid's size, on logarithmic axes."""
    lines = sorted(lines, key=lambda line: line["points"])
    points = np.array([line["points"] for line in lines], dtype=float)
    fig, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    seconds = np.array([line["seconds"] for line in lines])
    each = seconds / [line["iterations"] for line in lines]
    memory = np.array([line["peak_mb"] for line in lines]) / 1024
    axes[0].loglog(points, seconds, "o-", label="solve")
    axes[0].loglog(points, each, "s-", label="iteration")
    axes[0].loglog(points, each[-1] * points / points[-1], ":", color="0.5", label="linear")
    axes[0].loglog(
        points, each[-1] * (points / points[-1]) ** (4 / 3), "--", color="0.5", label="power 4/3"
    )
    axes[0].set(xlabel="points of the grid", ylabel="seconds")
    axes[0].legend(frameon=False)
    axes[1].loglog(points, memory, "o-", label="peak of the program")
    axes[1].loglog(points, 4 * points / 2**30, ":", color="0.5", label="the data alone")
    axes[1].set(xlabel="points of the grid", ylabel="memory, GiB")
    axes[1].legend(frameon=False)
    for ax in axes:
        ax.grid(alpha=0.3)
    fig.suptitle("30 % gaps filled, single precision, three dimensions")
    fig.savefig(RESULTS / "grid_scaling.png", dpi=110)


if __name__ == "__main__":
    main()
