"""Variance of the sampled objective and its gradient by rank of the control variate (the paper's Figure 1).

kin40k, m = 10^4 random Fourier features of an RBF kernel (evidence of 1000 rows), mu drawn from the prior, sets of
500 rows and 500 basis functions, 1000 draws: the term ``1/sigma^2 mu^T Phi^T Phi mu`` of Theorem 1, as in the paper.

    VASTGP_DATA=/path/to/npz python benchmarks/stochastic_variance.py
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from run import RESULTS, load
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Standardizer, as_rows
from vastgp.fitting.start import start_from_exact_gp
from vastgp.methods.qsgp.stochastic.control_variates import interpolated_error
from vastgp.methods.qsgp.stochastic.index_sets import stratified_indices
from vastgp.methods.qsgp.stochastic.sampled_elbo import sampled_product

NUM_BASIS, ROWS, FUNCTIONS, DRAWS = 10_000, 500, 500, 1000
RANKS = (0, 10, 30, 100, 200, 300, 500, 1000)
NUGGET = 1e-3


def problem(seed: int) -> tuple[Any, ...]:
    """Return standardised rows, the basis of the start's kernel, its noise, and weights drawn from the prior."""
    X, y, X_test, y_test = load("kin40k", 0)
    X, y = np.concatenate([X, X_test]), np.concatenate([y, y_test])
    standardizer = Standardizer().fit(as_rows(X, y))
    X, y = standardizer.transform_X(X), standardizer.transform_y(y)
    start = start_from_exact_gp("rbf", X, y, seed=seed)
    basis = RandomFourierBasis(start.kernel, jnp.asarray(seed_key(seed)), NUM_BASIS)
    mu = jax.random.normal(jax.random.key(seed + 1), (2, NUM_BASIS // 2))
    return jnp.asarray(X, jnp.float32), basis, start.noise_variance, mu


def draw(
    key: jax.Array, X: jax.Array, support: jax.Array, a: jax.Array, inverse: jax.Array,
    basis: RandomFourierBasis, mu: jax.Array, noise: float, kind: str,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """Return estimate and control variate of one draw: two values and two sparse gradients by mu."""
    n, p, P = X.shape[0], support.shape[0], basis.num_pairs
    keys = jax.random.split(key, 3)
    rows = X[jax.random.choice(keys[0], n, (ROWS,), replace=False)]
    i, j = (stratified_indices(k, FUNCTIONS // 2, 0, P) for k in keys[1:])
    factor = NUM_BASIS / FUNCTIONS

    def flat(points: jax.Array, pairs: jax.Array) -> jax.Array:
        return basis.features(points, pairs).reshape(points.shape[0], -1)

    phi_i, phi_j = flat(rows, i), flat(rows, j)
    support_i, support_j = (flat(support, i), flat(support, j)) if p else (None, None)
    cross = basis.kernel(rows, support) if p else None

    def terms(mu: jax.Array) -> tuple[jax.Array, jax.Array]:
        v_i, v_j = mu[:, i].reshape(-1, 1), mu[:, j].reshape(-1, 1)
        f_i, f_j = sampled_product(phi_i, v_i, factor), sampled_product(phi_j, v_j, factor)
        plain = n / ROWS / noise * jnp.sum(f_i * f_j)
        if not p:
            return plain, 0.0 * plain
        if kind == "rows":
            both, v = jnp.concatenate([support_i, support_j], axis=1), jnp.concatenate([v_i, v_j])
            # a^T a of Proposition 3, with the sparse gradient of F.1 by one set after the other
            squares = jnp.sum((a + both @ (v - jax.lax.stop_gradient(v))) ** 2)
            expectation = 0.5 * factor * squares
            expectation += jax.lax.stop_gradient(squares - expectation)
            at_i, at_j = (
                sampled_product(phi, w, factor) for phi, w in ((support_i, v_i), (support_j, v_j))
            )
            return plain, -n / p * (expectation - jnp.sum(at_i * at_j)) / noise
        e_i, e_j = (
            interpolated_error(
                cross, inverse, sampled_product(phi, jax.lax.stop_gradient(v), factor) - a
            )
            for phi, v in ((support_i, v_i), (support_j, v_j))
        )
        return plain, plain - n / ROWS / noise * jnp.sum((f_i - e_i) * (f_j - e_j))

    values, pull = jax.vjp(terms, mu)
    one, zero = jnp.ones(()), jnp.zeros(())
    return *values, pull((one, zero))[0], pull((zero, one))[0]


def variances(
    X: jax.Array, basis: Any, noise: float, mu: jax.Array, rank: int, kind: str, fitted: bool
) -> dict[str, float]:
    """Return the variance of the value, and the mean over mu of that of the gradient."""
    chosen = np.random.default_rng(rank).choice(X.shape[0], rank, replace=False)
    support = X[chosen]
    K = np.asarray(basis.kernel(support, support), np.float64) if rank else np.zeros((0, 0))
    nugget = NUGGET * float(basis.kernel.total_variance())
    inverse = jnp.asarray(np.linalg.inv(K + nugget * np.eye(rank)), jnp.float32)
    pairs = jnp.arange(basis.num_pairs)
    a = (
        (basis.features(support, pairs).reshape(rank, -1) @ mu.reshape(-1))[:, None]
        if rank
        else jnp.zeros((0, 1))
    )

    @jax.jit
    def collect(keys: jax.Array) -> tuple[jax.Array, ...]:
        def body(sums: tuple[jax.Array, ...], key: jax.Array) -> tuple[Any, Any]:
            g, c, dg, dc = draw(key, X, support, a, inverse, basis, mu, noise, kind)
            sums = (sums[0] + dg, sums[1] + dc, sums[2] + dg**2, sums[3] + dg * dc, sums[4] + dc**2)
            return sums, (g, c)

        zero = jnp.zeros_like(mu)
        return jax.lax.scan(body, (zero,) * 5, keys)

    sums, (g, c) = collect(jax.random.split(jax.random.key(7), DRAWS))
    g, c = np.asarray(g, np.float64), np.asarray(c, np.float64)
    mean_g, mean_c, gg, gc, cc = (np.asarray(s, np.float64) / DRAWS for s in sums)
    v_gg, v_gc, v_cc = (
        (gg - mean_g**2).mean(),
        (gc - mean_g * mean_c).mean(),
        (cc - mean_c**2).mean(),
    )
    alpha_value = np.cov(g, c)[0, 1] / np.var(c, ddof=1) if fitted and rank else 1.0
    alpha = v_gc / v_cc if fitted and rank else 1.0
    return {
        "objective_variance": float(np.var(g - alpha_value * c, ddof=1)),
        "gradient_variance": float(v_gg - 2 * alpha * v_gc + alpha**2 * v_cc),
        "objective_mean": float(np.mean(g - alpha_value * c)),
        "objective_coefficient": float(alpha_value),
        "gradient_coefficient": float(alpha),
        # a perfect control variate leaves what taking few entries of the exact gradient costs
        "gradient_mean_square": float((mean_g**2).mean()),
    }


def main() -> None:
    """Write JSON lines and the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "stochastic_variance.jsonl")
    asked = parser.parse_args()
    X, basis, noise, mu = problem(asked.seed)
    kinds = {
        "eq. (3)": ("rows", False),
        "eq. (3), fitted coefficient": ("rows", True),
        "interpolation": ("interpolation", False),
    }
    lines = []
    for name, (kind, fitted) in kinds.items():
        base = None
        for rank in RANKS:
            found = variances(X, basis, noise, mu, rank, kind, fitted)
            base = base or found
            line = {
                "control": name, "rank": rank, "n": X.shape[0], "num_basis": NUM_BASIS, "rows": ROWS,
                "functions": FUNCTIONS, "draws": DRAWS, "seed": asked.seed, **found,
                "objective_ratio": found["objective_variance"] / base["objective_variance"],
                "gradient_ratio": found["gradient_variance"] / base["gradient_variance"],
                "kernel": str(basis.kernel), "noise_variance": noise,
            }  # fmt: skip
            lines.append(line)
            print(
                json.dumps(
                    {
                        k: line[k]
                        for k in (
                            "control",
                            "rank",
                            "objective_ratio",
                            "gradient_ratio",
                            "gradient_coefficient",
                        )
                    }
                ),
                flush=True,
            )
    asked.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    plot(lines, asked.out.with_suffix(".png"))


def plot(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw Figure 1."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, what in zip(axes, ("objective", "gradient"), strict=True):
        for name in dict.fromkeys(line["control"] for line in lines):
            mine = [line for line in lines if line["control"] == name]
            axis.plot(
                [line["rank"] for line in mine],
                [line[f"{what}_ratio"] for line in mine],
                "o-",
                ms=4,
                label=name,
            )
        axis.axhline(0.1, color="0.5", lw=0.8, ls=":")
        axis.set(
            xscale="symlog", yscale="log", xlabel="support rows", title=f"variance of the {what}"
        )
        axis.set_xlim(left=0)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("relative to no control variate")
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
