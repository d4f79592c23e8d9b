"""Figures 1 and 2 of the RR-CG paper: what truncation does to the evidence, and to a learned lengthscale.

VASTGP_DATA=/path/to/npz python benchmarks/iterative_bias.py

Terms of the evidence of 300 rows of pol by conjugate gradients of a number of iterations, by random features of a
number, and by both random truncations at the same mean cost; then the lengthscale with the highest of these evidences
on 100 rows of a sine with noise. Results: `iterative_bias.jsonl` and `iterative_bias.png`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter, ScalarFormatter

from table import RESULTS, put, rows
from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.truncation import SingleTerm, roulette
from vastgp.kernels import RBF
from vastgp.kernels.products import KernelMatrix
from vastgp.methods.iterative.evidence import log_determinants, plain_weights, quadratic_term
from vastgp.methods.random_feature.evidence import evidence_of_first, feature_sums
from vastgp.methods.random_feature.learning import tiles_of
from vastgp.solvers.cg import run_weighted
from vastgp.solvers.preconditioners import NoPreconditioner

OUT = RESULTS / "iterative_bias.jsonl"
ROWS, PROBES, DRAWS = 300, 40, 80
ITERATIONS, FEATURES = (5, 10, 20, 40, 80), (20, 60, 120, 240)


def pol() -> tuple[np.ndarray, np.ndarray]:
    """Return some standardised rows; columns that are constant among them are left out."""
    with np.load(Path(os.environ["VASTGP_DATA"]) / "pol.npz") as held:
        chosen = np.random.default_rng(0).choice(len(held["y"]), ROWS, replace=False)
        X, y = held["X"][chosen], held["y"][chosen]
    X = X[:, X.std(axis=0) > 1e-9]
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


def sine(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the toy problem of Figure 2."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-4.0, 4.0, (100, 1))
    return X, np.sin(4.0 * X[:, 0]) + 0.3 * rng.normal(size=100)


def exact_terms(X: np.ndarray, y: np.ndarray, kernel: RBF, noise: float) -> tuple[float, float]:
    """Return ``y^T A^-1 y`` and ``log|A|``."""
    _, factor, weights = ExactEvidence(X, y).solve(kernel, noise)
    return float(y @ weights), factor.log_determinant


def by_conjugate_gradients(
    X: np.ndarray, y: np.ndarray, kernel: RBF, noise: float, counts: tuple[int, ...], probes: int
) -> dict[str, list[Any]]:
    """Return both terms by plain iterations and by Russian roulette of the same mean, with standard errors."""
    n, most = len(y), 3 * len(y)
    with precision("float64"):
        A = KernelMatrix(
            as_dtype(kernel, "float64"), jnp.asarray(noise), jnp.asarray(X), jnp.ones(n)
        )
        z = jax.random.normal(jax.random.key(0), (probes, n))
        right = jnp.concatenate([jnp.asarray(y)[None], z])
        run = jax.jit(
            lambda right: run_weighted(
                A, right, NoPreconditioner(), jnp.ones((most, 1)), (0,), 1e-12
            )
        )(right)
    run = jax.tree.map(np.asarray, run)
    found: dict[str, list[Any]] = {"cg_fit": [], "cg_log": [], "cg_log_se": [], "rr_fit": []}
    found |= {"rr_fit_se": [], "rr_log": [], "rr_log_se": []}
    generator = np.random.default_rng(1)
    for count in counts:
        weights = plain_weights(count, most).probes
        logs = log_determinants(run, weights)
        found["cg_fit"].append(quadratic_term(run, weights))
        found["cg_log"].append(float(np.mean(logs)))
        found["cg_log_se"].append(float(np.std(logs) / probes**0.5))
        law = roulette(count, 0.1, most)
        truncations = law.draw(1.0 - generator.random(1000))
        fits = np.array([quadratic_term(run, law.weights(int(J))) for J in truncations])
        found["rr_fit"].append(float(np.mean(fits)))
        found["rr_fit_se"].append(float(np.std(fits) / len(fits) ** 0.5))
        # one truncation for each probe
        logs = np.array(
            [
                log_determinants(_probe(run, k), law.weights(int(truncations[k])))[0]
                for k in range(probes)
            ]
        )
        found["rr_log"].append(float(np.mean(logs)))
        found["rr_log_se"].append(float(np.std(logs) / probes**0.5))
    return found


def _probe(run: Any, k: int) -> Any:
    """Return the run of the target and one probe."""
    columns = [0, k + 1]
    return run._replace(
        square=run.square[columns], lengths=run.lengths[:, columns], ratios=run.ratios[:, columns]
    )


def feature_terms(
    X: np.ndarray, y: np.ndarray, kernel: RBF, noise: float, sizes: tuple[int, ...], seed: int
) -> np.ndarray:
    """Return both terms with the first features, for every number of them, shape (sizes, 2)."""
    key = np.random.default_rng([7, seed]).integers(0, 2**32, 2, dtype=np.uint32)
    with precision("float64"):
        basis = RandomFourierBasis(as_dtype(kernel, "float64"), key, max(sizes))
        sums = feature_sums(basis, tiles_of(X, y, max(sizes)), len(y), noise)
    terms = []
    for size in sizes:
        part = evidence_of_first(sums, basis, size, noise)
        fit = (sums.square - sums.target[:size] * part.ratios @ part.solution) / noise
        n = len(y)
        terms.append((fit, -2.0 * part.value - fit - n * np.log(2.0 * np.pi)))
    return np.array(terms)


def by_features(
    X: np.ndarray, y: np.ndarray, kernel: RBF, noise: float, counts: tuple[int, ...], draws: int
) -> dict[str, list[Any]]:
    """Return both terms by plain features and by a single term of the telescoping sum of a like mean."""
    exact = np.array(exact_terms(X, y, kernel, noise))
    found: dict[str, list[Any]] = {
        name: [] for name in ("rff", "rff_se", "ss", "ss_se", "ss_features")
    }
    generator = np.random.default_rng(2)
    plain = np.stack(
        [feature_terms(X, y, kernel, noise, counts, seed) for seed in range(draws // 2)]
    )
    found["rff"] = plain.mean(axis=0).tolist()
    found["rff_se"] = (plain.std(axis=0) / len(plain) ** 0.5).tolist()
    for count in counts:
        first = 2 * max(1, count // 4)
        step = first
        sizes = tuple(range(first, len(y) + 1, step))
        law = SingleTerm((*sizes[1:], len(y) + step))
        values = []
        for seed in range(draws):
            k = law.draw(generator.random())
            ends = sizes[: k + 2][-2:] if k + 1 < len(sizes) else sizes[-1:]
            terms = feature_terms(X, y, kernel, noise, (first, *ends), 1000 + seed)
            after = terms[2] if k + 1 < len(sizes) else exact
            values.append(terms[0] + (after - terms[1]) / law.probabilities()[k])
        values = np.array(values)
        found["ss"].append(values.mean(axis=0).tolist())
        found["ss_se"].append((values.std(axis=0) / draws**0.5).tolist())
        found["ss_features"].append(law.mean())
    return found


def learned_lengthscales() -> dict[str, Any]:
    """Return the lengthscale of highest evidence on the toy problem, by every method."""
    X, y = sine()
    grid, noise = np.geomspace(0.15, 1.2, 25), 0.09
    exact = [np.array(exact_terms(X, y, RBF(scale), noise)) for scale in grid]
    best = float(grid[np.argmin([terms.sum() for terms in exact])])
    iterations, features = (3, 6, 12, 24), (10, 20, 40, 80, 160)
    cg = [by_conjugate_gradients(X, y, RBF(scale), noise, iterations, 8) for scale in grid]
    of_cg = [np.array(c["cg_fit"]) + np.array(c["cg_log"]) for c in cg]
    of_rr = [np.array(c["rr_fit"]) + np.array(c["rr_log"]) for c in cg]
    rff = [
        np.mean(
            [feature_terms(X, y, RBF(s), noise, features, seed).sum(axis=1) for seed in range(12)],
            axis=0,
        )
        for s in grid
    ]
    return {
        "exact": best,
        "iterations": list(iterations),
        "features": list(features),
        "cg": grid[np.argmin(of_cg, axis=0)].tolist(),
        "rr": grid[np.argmin(of_rr, axis=0)].tolist(),
        "rff": grid[np.argmin(rff, axis=0)].tolist(),
    }


def plot(line: dict[str, Any]) -> None:
    """Draw both figures."""
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained")
    fit, log = line["exact"]
    cg, rff = line["cg"], line["rff"]
    for axis, name, exact in ((axes[0, 0], "fit", fit), (axes[0, 1], "log", log)):
        axis.axhline(exact, color="black", linewidth=1, label="Cholesky")
        axis.errorbar(
            line["iterations"], cg[f"cg_{name}"], cg.get(f"cg_{name}_se"), fmt="o-", label="CG"
        )
        axis.errorbar(
            line["iterations"],
            cg[f"rr_{name}"],
            cg[f"rr_{name}_se"],
            fmt="s",
            label="RR-CG",
            capsize=3,
        )
        axis.set_xlabel("iterations (mean)")
    for place, (axis, exact) in enumerate(((axes[1, 0], fit), (axes[1, 1], log))):
        axis.axhline(exact, color="black", linewidth=1, label="Cholesky")
        of = {key: np.array(rff[key])[:, place] for key in ("rff", "rff_se", "ss", "ss_se")}
        axis.errorbar(line["features"], of["rff"], of["rff_se"], fmt="o-", label="RFF")
        axis.errorbar(rff["ss_features"], of["ss"], of["ss_se"], fmt="s", label="SS-RFF", capsize=3)
        axis.set_xlabel("random features (mean)")
    for axis in axes[:, 0]:
        axis.set_ylabel("$y^T A^{-1} y$")
    for axis in axes[:, 1]:
        axis.set_ylabel("$\\log |A|$")
    toy = line["lengthscale"]
    for axis, x, names in (
        (axes[0, 2], "iterations", (("cg", "CG", "o-"), ("rr", "RR-CG", "s"))),
        (axes[1, 2], "features", (("rff", "RFF", "o-"),)),
    ):
        axis.axhline(toy["exact"], color="black", linewidth=1, label="Cholesky")
        for key, label, form in names:
            axis.plot(toy[x], toy[key], form, label=label)
        axis.set_xlabel(x)
        axis.set_ylabel("learned lengthscale")
    for axis in axes.ravel():
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.legend(frameon=False)
    for axis, key in zip(axes.ravel(), ("iterations",) * 3 + ("features",) * 3, strict=True):
        toys = axis in (axes[0, 2], axes[1, 2])
        axis.set_xticks((toy if toys else line)[key])
    figure.savefig(RESULTS / "iterative_bias.png", dpi=110)


def main() -> None:
    """Compute, write and draw; with ``--plot`` draw what was computed."""
    if "--plot" in sys.argv:
        plot(rows(OUT)[0])
        return
    X, y = pol()
    kernel, noise = RBF(X.shape[1] ** 0.5), 0.02
    line = {
        "data": "pol", "rows": ROWS, "probes": PROBES, "draws": DRAWS, "kernel": repr(kernel), "noise": noise,
        "exact": exact_terms(X, y, kernel, noise),
        "iterations": list(ITERATIONS),
        "cg": by_conjugate_gradients(X, y, kernel, noise, ITERATIONS, PROBES),
        "features": list(FEATURES),
        "rff": by_features(X, y, kernel, noise, FEATURES, DRAWS),
        "lengthscale": learned_lengthscales(),
    }  # fmt: skip
    put(OUT, line, ("data",))
    plot(line)
    print(json.dumps(line))


if __name__ == "__main__":
    main()
