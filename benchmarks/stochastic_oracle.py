"""The stochastic solver beside the closed-form posterior: n = 2000, m = 2000, fixed hyperparameters.

python benchmarks/stochastic_oracle.py
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Standardizer, as_rows
from vastgp.kernels import RBF
from vastgp.likelihoods import Gaussian
from vastgp.methods.qsgp.stochastic.fit import fit_stochastic
from vastgp.methods.qsgp.stochastic.options import Stochastic
from vastgp.methods.qsgp.stochastic.posterior import ChevronPosterior

RESULTS = Path(__file__).parent / "results"
N, M, INPUTS, NOISE_STD = 2000, 2000, 4, 0.2


def make_problem() -> tuple[Any, ...]:
    """Return rows, scaling, basis, noise variance in standardised units, and new standardised inputs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (N, INPUTS))
    f = np.sin(2 * X[:, 0]) + np.cos(X[:, 1] * X[:, 2]) + 0.5 * X[:, 3]
    rows = as_rows(X, f + NOISE_STD * rng.normal(size=N))
    standardizer = Standardizer().fit(rows)
    basis = RandomFourierBasis(RBF(np.full(INPUTS, 1.0), 1.0), jnp.asarray(seed_key(0)), M)
    # new inputs: half among the rows, half reaching beyond them
    new = np.concatenate([rng.uniform(-2, 2, (250, INPUTS)), rng.uniform(-3.5, 3.5, (250, INPUTS))])
    return (
        rows,
        standardizer,
        basis,
        (NOISE_STD / standardizer.y_scale) ** 2,
        standardizer.transform_X(new),
    )


def closed_form(
    rows: Any, standardizer: Any, basis: Any, noise: float, new: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the function by dense algebra in float64."""
    # features in the solver's precision: draws of float64 are other draws
    with precision("float32"):
        pairs = jnp.arange(M // 2)
        phi, phi_new = (
            np.asarray(basis.features(jnp.asarray(X, jnp.float32), pairs), float).reshape(
                len(X), -1
            )
            for X in (standardizer.transform_X(rows.X), new)
        )
    H = phi.T @ phi / noise + np.eye(M)
    mean = phi_new @ np.linalg.solve(H, phi.T @ standardizer.transform_y(rows.y) / noise)
    return mean, np.sqrt(np.einsum("ij,ji->i", phi_new, np.linalg.solve(H, phi_new.T)))


def main() -> None:
    """Write JSON lines and a figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20_000)
    parser.add_argument("--decay", type=float, default=1e-3)
    parser.add_argument("--row-batch", type=int, default=500)
    parser.add_argument("--basis-batch", type=int, default=1000)
    parser.add_argument("--columns", type=int, nargs="*", default=[0, 100])
    parser.add_argument("--out", type=Path, default=RESULTS / "stochastic_oracle.jsonl")
    asked = parser.parse_args()
    rows, standardizer, basis, noise, new = make_problem()
    mean, std = closed_form(rows, standardizer, basis, noise, new)
    found, lines = {}, []
    for q in asked.columns:
        options = Stochastic(
            dense_columns=q,
            row_batch=asked.row_batch,
            basis_batch=asked.basis_batch,
            decay=asked.decay,
            max_steps=asked.iterations,
        )
        began = time.perf_counter()
        fit = fit_stochastic(rows, standardizer, basis, Gaussian(noise), options)
        seconds = time.perf_counter() - began
        posterior = ChevronPosterior(fit.basis, fit.mean, fit.columns, fit.diagonal)
        mine, variance = posterior.mean_and_latent_variance(new)
        found[q] = np.sqrt(variance)
        gap = mine - mean
        lines.append({
            "dense_columns": q, "n": N, "m": M, "iterations": asked.iterations, "decay": asked.decay,
            "row_batch": asked.row_batch, "basis_batch": asked.basis_batch, "seconds": seconds,
            "mean_rms_error_among_rows": float(np.sqrt(np.mean(gap[:250] ** 2))),
            "mean_rms_error_beyond": float(np.sqrt(np.mean(gap[250:] ** 2))),
            "mean_max_error": float(np.max(np.abs(gap))),
            "std_ratio_median": float(np.median(found[q] / std)),
            "std_ratio_quantiles": np.quantile(found[q] / std, [0.05, 0.25, 0.75, 0.95]).tolist(),
        })  # fmt: skip
        print(json.dumps(lines[-1]), flush=True)
    asked.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    plot(std, found, asked.out.with_suffix(".png"))


def plot(std: np.ndarray, found: dict[int, np.ndarray], path: Path) -> None:
    """Draw standard deviations beside the truth."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(4.8, 4.4), layout="constrained")
    for q, values in found.items():
        label = "mean-field" if q == 0 else f"{q} dense columns"
        axis.plot(std, values, ".", ms=3, alpha=0.6, label=label)
    ends = [0, 1.05 * max(std.max(), *(v.max() for v in found.values()))]
    axis.plot(ends, ends, color="0.4", lw=0.8)
    axis.set(xlabel="exact std of the function", ylabel="variational std", xlim=ends, ylim=ends)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
