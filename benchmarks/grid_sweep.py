"""Time of one solve on a grid by share of gaps and by system (thesis, figure 3.2), one JSON line for each.

python benchmarks/grid_sweep.py --points 1e4 --noise 1e-2

The fields are those of the thesis: Rastrigin's function on two dimensions for 1e4 points, a resonating membrane in
three beyond. Hyperparameters (RBF) are learned on the field without gaps, the noise variance is given, and only the
solve is timed, after one that compiles.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from run import machine_rates, peak_mb
from table import RESULTS, put
from vastgp import GridGP
from vastgp._precision import precision
from vastgp.linalg.kronecker import kron_flops, kron_product
from vastgp.methods.grid.evidence import GridObjective
from vastgp.methods.grid.solver import GridSolver
from vastgp.options import Evidence

OUT = RESULTS / "grid_sweep.jsonl"
GAPS = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
# name -> system and rank of its preconditioner (None: as GridGP chooses)
SYSTEMS: dict[str, tuple[str, int | None]] = {
    "fill": ("fill-gaps", 0),
    "ignore": ("ignore-gaps", 0),
    "ignore, preconditioned": ("ignore-gaps", None),
    "penalise": ("penalize-gaps", 0),
}


def rastrigin(side: int) -> xr.DataArray:
    """Rastrigin's function on a square."""
    x = np.linspace(-5.12, 5.12, side)
    one = x**2 - 10.0 * np.cos(2.0 * np.pi * x)
    return xr.DataArray(20.0 + one[:, None] + one, dims=("x", "y"), coords={"x": x, "y": x})


def membrane(side: int) -> xr.DataArray:
    """A square membrane held at its edges, from random amplitudes of its first modes; space, space, time."""
    x, modes = np.linspace(0.0, 1.0, side), np.arange(1, 9)
    shapes = np.sin(np.pi * np.outer(x, modes))
    rng = np.random.default_rng(0)
    pace = np.pi * np.sqrt(modes[:, None] ** 2 + modes**2)
    size = rng.normal(size=pace.shape) / pace
    phase = np.cos(pace[:, :, None] * x)
    field = np.einsum("xi,yj,ij,ijt->xyt", shapes, shapes, size, phase, optimize=True)
    return xr.DataArray(field, dims=("x", "y", "t"), coords={"x": x, "y": x, "t": x})


def kernel_of(points: float) -> Any:
    """Hyperparameters learned on the field without gaps, on a grid of at most 40 points a side where there are more."""
    small = rastrigin(100) if points <= 1e4 else membrane(40)
    model = GridGP(dict.fromkeys(small.dims, "rbf"), criterion=Evidence(num_probes=0)).fit(small)
    return model.posterior_.kernel


def main() -> None:
    """Run one size and noise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=float, default=1e4)
    parser.add_argument("--noise", type=float, default=1e-2)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--gaps", type=float, nargs="*", default=GAPS)
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--seconds", type=float, default=20.0, help="most for a solve")
    parser.add_argument(
        "--once", action="store_true", help="no solve before, to compile: for large grids"
    )
    args = parser.parse_args()
    kernel = kernel_of(args.points)
    dimensions = 2 if args.points <= 1e4 else 3
    side = round(args.points ** (1 / dimensions))
    field = rastrigin(side) if dimensions == 2 else membrane(side)
    # coordinates as numbers from their first, as GridGP has them
    axes = [(field[dim].values - field[dim].values[0])[:, None] for dim in field.dims]
    values, rng = field.values.ravel(), np.random.default_rng(1)
    del field  # of 1e8 points, every copy counts
    values -= values.mean()
    values /= values.std()
    values = values.astype(args.dtype, copy=False)
    values += args.noise**0.5 * rng.standard_normal(values.size, dtype=values.dtype)
    place = rng.random(values.size, dtype=np.float32)
    rates = machine_rates() | {"kronecker_gflops": kronecker_rate((side,) * dimensions, args.dtype)}
    for gaps in args.gaps:
        observed = place >= gaps
        for name in args.systems:
            kind, rank = SYSTEMS[name]
            record = timed(axes, values, observed, kernel, kind, rank, args)
            line = {
                "points": values.size, "gaps": gaps, "system": name, "noise": args.noise,
                "dtype": args.dtype, "tol": args.tol, **record, "machine": rates,
            }  # fmt: skip
            put(OUT, line, ("points", "gaps", "system", "noise", "dtype", "tol"))
            print(json.dumps({k: v for k, v in line.items() if k != "machine"}), flush=True)


def timed(
    axes: list[np.ndarray],
    values: np.ndarray,
    observed: np.ndarray,
    kernel: Any,
    kind: str,
    rank: int | None,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Return seconds and iterations of a solve."""

    def objective(tol: float, max_iter: int) -> GridObjective:
        limits = {"tol": tol, "max_products": max_iter, "rank": rank}
        solver = GridSolver(observed, kind, dtype=args.dtype, **limits)
        return GridObjective(axes, values, solver)

    if not args.once:
        objective(args.tol, 1).solve(kernel, args.noise)  # compiles
    run = objective(args.tol, 100_000)
    began = time.perf_counter()
    run.eigen(kernel)
    eigen_seconds = time.perf_counter() - began
    began = time.perf_counter()
    run.solver.deadline = began + args.seconds
    found = run.solve(kernel, args.noise).solution
    jax.block_until_ready(found.weights)
    seconds = time.perf_counter() - began
    return {
        "seconds": round(seconds, 4),
        "eigen_seconds": round(eigen_seconds, 4),
        "iterations": run.solver.iterations,
        "residual": float(found.residual),
        "converged": found.converged,
        "peak_mb": round(peak_mb()),
    }


def kronecker_rate(shape: tuple[int, ...], dtype: str) -> dict[str, float]:
    """Return GFLOP/s of a product with the grid's factors, and of the same matrix products by BLAS alone."""
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((m, m)).astype(dtype) for m in shape]
    vector = rng.standard_normal((1, int(np.prod(shape)))).astype(dtype)
    flat = [vector.reshape(m, -1) for m in shape]

    def best(function: Any) -> float:
        function()
        seconds = []
        for _ in range(7):
            began = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - began)
        return kron_flops(shape) / min(seconds) / 1e9

    with precision(dtype):
        ours, on_device = [jnp.asarray(f) for f in factors], jnp.asarray(vector)
        product = jax.jit(kron_product)
        rate = best(lambda: product(ours, on_device).block_until_ready())
    blas = best(lambda: [f @ x for f, x in zip(factors, flat, strict=True)])
    return {"product": round(rate, 1), "blas": round(blas, 1)}


if __name__ == "__main__":
    main()
