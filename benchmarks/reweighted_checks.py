"""What chapters 4 and 5 of the thesis promise, measured: one JSON line for each.

python benchmarks/reweighted_checks.py rows            # time of an evaluation: n = 10^4 beside 2 x 10^6
python benchmarks/reweighted_checks.py functions       # and by m, for the three kinds of prior
python benchmarks/reweighted_checks.py mala            # steps of MALA with m = 1000, O(m^3) and O(m)
python benchmarks/reweighted_checks.py calibration     # simulation-based calibration, 200 replications
python benchmarks/reweighted_checks.py single          # Gram matrices in float32: what it does to the evidence
python benchmarks/reweighted_checks.py plot            # time by m
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chisquare, kstest

from table import RESULTS, put, rows
from vastgp._precision import precision
from vastgp.bases import GridEigenfunctionBasis
from vastgp.data import Standardizer, as_rows
from vastgp.fitting.run import Run
from vastgp.fitting.sufficient_statistics import SufficientStatistics, gather_statistics
from vastgp.kernels import RBF
from vastgp.methods.reweighted.chain_steps import CHUNK
from vastgp.methods.reweighted.chains import ChainSteps, HyperPosterior, run_chains
from vastgp.methods.reweighted.evidence import EvidenceData, prepare
from vastgp.methods.reweighted.inference import draw_hyperparameters, maximise_hyperparameters
from vastgp.methods.reweighted.options import MALA, NUTS
from vastgp.methods.reweighted.weight_priors import DiagonalPrior, OrthogonalPrior, SpectralPrior

OUT = RESULTS / "reweighted_checks.jsonl"


def seconds_of(call: Callable[[], Any], repeats: int) -> float:
    """Return the median time of a call."""
    call()
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return float(np.median(found))


def gathered(n: int, m: int) -> EvidenceData:
    """Return statistics of n rows of a smooth function of four inputs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(n, 4))
    y = np.sin(X[:, 0] * X[:, 1]) + 0.1 * rng.normal(size=n)
    data = as_rows(X, y)
    axes = [np.linspace(-1.8, 1.8, 10)] * 4
    basis = GridEigenfunctionBasis.build(RBF([0.8] * 4), axes, m)
    statistics = gather_statistics(data, Standardizer().fit(data), basis)
    with precision("float64"):
        return prepare(statistics)


def made_up(n: int, m: int) -> EvidenceData:
    """Return statistics with the spectrum of a smooth kernel, without rows."""
    rng = np.random.default_rng(0)
    k = min(n, 2 * m)
    phi = rng.normal(size=(k, m)) * np.exp(-4.0 * np.arange(m) / m) * (n / k) ** 0.5
    with precision("float64"):
        found = prepare(SufficientStatistics.of(phi, phi @ rng.normal(size=m) + rng.normal(size=k)))
        return eqx.tree_at(lambda data: data.num_rows, found, jnp.asarray(float(n)))


@eqx.filter_jit
def value_and_slope(target: HyperPosterior, theta: Any) -> Any:
    """Return the log density and its gradient."""
    return jax.value_and_grad(lambda theta: target(theta))(theta)


def targets(data: EvidenceData) -> dict[str, HyperPosterior]:
    """Return one posterior for each kind of prior."""
    m = data.num_basis
    priors = {
        "diagonal, O(m^3)": DiagonalPrior.make(m, 0.01),
        "spectral, O(m^2)": SpectralPrior.make(data.rank, 0.01, data.rank),
        "orthogonal, O(m)": OrthogonalPrior.make(data.rank, 0.01),
    }
    with precision("float64"):
        return {
            name: jax.tree.map(jnp.asarray, HyperPosterior(prior, data))
            for name, prior in priors.items()
        }


def evaluation(target: HyperPosterior, repeats: int) -> float:
    """Return the seconds of one evaluation with its gradient."""
    with precision("float64"):
        theta = jnp.asarray(target.prior.start())
        return seconds_of(lambda: jax.block_until_ready(value_and_slope(target, theta)), repeats)


def by_rows() -> None:
    """Time evaluations on statistics of few and of many rows, in turns."""
    m = 300
    data = {n: gathered(n, m) for n in (10_000, 2_000_000)}
    ratios: dict[str, list[float]] = {}
    for _ in range(15):
        for name in ("diagonal, O(m^3)", "orthogonal, O(m)"):
            few, many = (evaluation(targets(data[n])[name], 15) for n in data)
            ratios.setdefault(name, []).append(many / few)
    for name, found in ratios.items():
        result = {"check": "rows", "prior": name, "m": m, "ratio": float(np.median(found))}
        put(OUT, result, ("check", "prior"))
        print(json.dumps(result), flush=True)


def by_functions() -> None:
    """Time evaluations for growing m."""
    for m in (125, 250, 500, 1000):
        for name, target in targets(made_up(100_000, m)).items():
            result = {
                "check": "functions", "prior": name, "m": m, "milliseconds": 1e3 * evaluation(target, 5)
            }  # fmt: skip
            put(OUT, result, ("check", "prior", "m"))
            print(json.dumps(result), flush=True)


def mala() -> None:
    """Time steps of one chain, compilation aside, and say what 10,000 take."""
    for name in ("orthogonal, O(m)", "diagonal, O(m^3)"):
        target = targets(made_up(100_000, 1000))[name]
        seconds = []
        with precision("float64"):
            start = target.prior.start()[None]
            scale = target.prior.scale(target.data)
            # the first two compile, the diagnosis of so many draws included
            for steps in (CHUNK, 9 * CHUNK, CHUNK, 9 * CHUNK):
                of_chain = ChainSteps(target, MALA(1, CHUNK, steps, 1), 0)
                began = time.perf_counter()
                chains = run_chains(of_chain, start, scale, Run())
                seconds.append(time.perf_counter() - began)
        each = (seconds[3] - seconds[2]) / (8 * CHUNK)
        result = {
            "check": "mala", "prior": name, "m": 1000, "seconds_per_step": each, "hours_of_10000": each / 0.36,
            "acceptance": float(np.mean(chains.acceptance)),
        }  # fmt: skip
        put(OUT, result, ("check", "prior"))
        print(json.dumps(result), flush=True)


def calibration(replications: int = 200) -> None:
    """Ranks of the true hyperparameters among draws are uniform (Talts et al. 2018)."""
    rng = np.random.default_rng(0)
    m, n, bins = 6, 40, 10
    phi = rng.normal(size=(n, m)) * np.exp(-0.3 * np.arange(m))
    with precision("float64"):
        prior = OrthogonalPrior.make(m, 0.2, variance=4.0)
        geometry = prepare(SufficientStatistics.of(phi, np.ones(n)))
    V, s = np.asarray(geometry.vectors), np.asarray(geometry.values)
    ranks = []
    for number in range(replications):
        theta = prior.centre + prior.spread * rng.normal(size=prior.size)
        weights = V @ (np.exp(0.5 * theta[1:]) * rng.normal(size=m))
        y = phi @ weights + np.exp(0.5 * theta[0]) * rng.normal(size=n)
        # the basis of the statistics: the same functions, so the same directions
        with precision("float64"):
            data = prepare(SufficientStatistics.of(phi, y))
        target = HyperPosterior(prior, data)
        mode = maximise_hyperparameters(
            target, prior.start(), noise_floor=1e-8, with_prior=True, max_iter=200, tol=1e-4
        )
        chains = draw_hyperparameters(target, mode.params, NUTS(2, 150, 400), Run(seed=number))
        flat = chains.theta.reshape(-1, prior.size)
        some = flat[np.linspace(0, len(flat) - 1, 99).astype(int)]
        ranks.append(np.sum(some < theta, axis=0))
    every = np.asarray(ranks)
    counts = [np.bincount(column * bins // 100, minlength=bins) for column in every.T]
    result = {
        "check": "calibration", "replications": replications, "hyperparameters": prior.size,
        "singular_values": s.round(3).tolist(),
        "chi2_p": [float(chisquare(count).pvalue) for count in counts],
        "ks_p": [float(kstest((column + 0.5) / 100, "uniform").pvalue) for column in every.T],
        "counts": [count.tolist() for count in counts],
    }  # fmt: skip
    put(OUT, result, ("check",))
    print(json.dumps(result), flush=True)


def single() -> None:
    """Compare the evidence of Gram matrices whose products are in float32 and in float64."""
    rng = np.random.default_rng(0)
    n, m, noise = 200_000, 200, 0.01
    X = rng.uniform(-1.8, 1.8, size=(n, 2))
    axes = [np.linspace(-1.8, 1.8, 20)] * 2
    basis = GridEigenfunctionBasis.build(RBF([0.5, 0.5]), axes, m)
    y = np.sin(3.0 * X[:, 0]) + noise**0.5 * rng.normal(size=n)
    with precision("float64"):
        features = jax.jit(lambda X: basis.features(X, jnp.arange(m)))
        phi = np.asarray(features(jnp.asarray(X)))
    wide, narrow = SufficientStatistics.of(phi, y), phi.astype(np.float32)
    rounded = SufficientStatistics.of(narrow, y)
    blocks = [slice(i, i + 4096) for i in range(0, n, 4096)]
    moments = wide.moments.copy()
    moments[:-2, :-2] = sum((narrow[b].T @ narrow[b]).astype(np.float64) for b in blocks)
    product = SufficientStatistics(n, moments, np.zeros_like(moments))
    theta = np.concatenate([[np.log(noise)], np.zeros(m)])
    prior = DiagonalPrior.make(m, noise)
    found = {}
    for name, statistics in (("float64", wide), ("features", rounded), ("products", product)):
        with precision("float64"):
            found[name] = float(prior.log_evidence(prepare(statistics), jnp.asarray(theta)))
    result = {"check": "single", "n": n, "m": m, "noise": noise, "log_evidence": found}
    put(OUT, result, ("check",))
    print(json.dumps(result), flush=True)


def plot() -> None:
    """Draw the times by m."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 3.5), layout="constrained")
    entries = [row for row in rows(OUT) if row["check"] == "functions"]
    for name in dict.fromkeys(row["prior"] for row in entries):
        mine = sorted((row["m"], row["milliseconds"]) for row in entries if row["prior"] == name)
        axis.loglog(*zip(*mine, strict=True), marker="o", label=name)
    axis.set(xlabel="basis functions m", ylabel="evidence and gradient, ms")
    sizes = sorted({row["m"] for row in entries})
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    axis.legend()
    figure.savefig(RESULTS / "reweighted_time.png", dpi=120)


CHECKS = {
    "rows": by_rows, "functions": by_functions, "mala": mala, "calibration": calibration,
    "single": single, "plot": plot,
}  # fmt: skip

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=CHECKS)
    CHECKS[parser.parse_args().check]()
