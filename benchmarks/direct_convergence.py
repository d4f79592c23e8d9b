"""Figure 7.3: the bound of discrete weights by steps and by time, exact gradients beside stochastic ones.

As in the thesis: targets from 20 random Fourier features with random weights and noise, the same features with three
values each and a prior over the noise; DIRECT by L-BFGS from the prior and from where the estimator begins, REINFORCE
with several numbers of samples (a running mean as baseline), shown as gaps to the best bound that any of them found.
For the continuous prior, a mean-field normal by reparameterised gradients; its bound is another one, and is shown as
its gap to its own optimum. Every stochastic method has the best of some constant step sizes.

python benchmarks/direct_convergence.py
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from table import RESULTS
from vastgp._precision import precision
from vastgp.fitting.lbfgs import maximise_real
from vastgp.methods.direct.elbo import value_and_slope
from vastgp.methods.direct.model import (
    DiscreteLogits,
    DiscreteModel,
    DiscretePrior,
    QuadraticLikelihood,
)
from vastgp.methods.direct.start import normal_weights
from vastgp.methods.direct.training import start_mean_field

OUT = RESULTS / "direct_convergence.jsonl"
SIZE, VALUES = 20, np.array([-1.0, 0.0, 1.0])
NOISE = np.array([0.01, 0.04, 0.16])
STEPS = (0.003, 0.01, 0.03, 0.1)

Trace = list[tuple[int, float, float]]


def problem(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return features and targets."""
    rng = np.random.default_rng(seed)
    x, w = rng.uniform(-3, 3, n), rng.normal(size=SIZE // 2)
    phi = (
        np.concatenate([np.cos(np.outer(x, w)), np.sin(np.outer(x, w))], axis=1) * (2 / SIZE) ** 0.5
    )
    return phi, phi @ rng.normal(size=SIZE) + 0.2 * rng.normal(size=n)


def model_of(phi: np.ndarray, y: np.ndarray) -> DiscreteModel:
    """Return the discrete model with uniform priors."""
    parts = DiscreteModel(
        QuadraticLikelihood(float(len(y)), float(y @ y), phi.T @ y, phi.T @ phi),
        np.tile(VALUES, (SIZE, 1)),
        DiscretePrior(np.full((1, SIZE, 3), -np.log(3.0)), np.zeros(1)),
        NOISE,
        np.full(3, -np.log(3.0)),
    )
    return jax.tree.map(jnp.asarray, parts)


def flat_logits() -> DiscreteLogits:
    """Return the prior, where all methods begin."""
    return DiscreteLogits(jnp.zeros((1, SIZE, 3)), jnp.zeros(1), jnp.zeros(3))


def direct(model: DiscreteModel, start: DiscreteLogits | None = None) -> Trace:
    """Maximise the exact bound from the prior, or from another start."""
    start = flat_logits() if start is None else start

    def objective(point: Any) -> tuple[float, Any]:
        value, slope = value_and_slope(jax.tree.map(jnp.asarray, point), model)
        return float(value), slope

    objective(flat_logits())  # compiled
    first = objective(start)[0]
    found = maximise_real(objective, start, max_iter=500, tol=1e-12)
    trace = [(0, 0.0, first)]
    history = found.history
    return trace + list(zip(history.steps, history.seconds, history.objective, strict=True))


def direct_from_posterior(model: DiscreteModel) -> Trace:
    """Begin where the estimator does: around the posterior of normal weights, after sweeps over the weights."""

    def start() -> DiscreteLogits:
        normal = normal_weights(model.likelihood, float(NOISE[1]))
        return start_mean_field(model, normal=normal, tol=1e-6)[0]

    start()  # compiled
    began = time.perf_counter()
    found = start()
    spent = time.perf_counter() - began
    return [(step, spent + seconds, value) for step, seconds, value in direct(model, found)]


def reinforce(
    phi: np.ndarray, y: np.ndarray, model: DiscreteModel, draws: int, rate: float, steps: int
) -> Trace:
    """Maximise by score-function gradients of all rows, with the running mean of the reward as baseline."""
    rng = np.random.default_rng(draws)
    weights, noise, baseline = np.zeros((SIZE, 3)), np.zeros(3), None
    trace: Trace = []
    spent = 0.0
    for step in range(steps + 1):
        if step % max(1, steps // 50) == 0:
            point = DiscreteLogits(jnp.asarray(weights)[None], jnp.zeros(1), jnp.asarray(noise))
            trace.append((step, spent, float(value_and_slope(point, model)[0])))
        began = time.perf_counter()
        q, of_noise = softmax(weights, axis=1), softmax(noise)
        codes = np.sum(rng.uniform(size=(draws, SIZE, 1)) > np.cumsum(q, axis=1)[:, :-1], axis=2)
        level = np.sum(rng.uniform(size=(draws, 1)) > np.cumsum(of_noise)[:-1], axis=1)
        residual = y[:, None] - phi @ VALUES[codes].T
        v = NOISE[level]
        fit = -0.5 * np.sum(residual**2, axis=0) / v - 0.5 * len(y) * np.log(2 * np.pi * v)
        log_q = np.log(q)[np.arange(SIZE), codes].sum(axis=1) + np.log(of_noise)[level]
        reward = fit - (SIZE + 1) * np.log(3.0) - log_q
        baseline = reward.mean() if baseline is None else 0.9 * baseline + 0.1 * reward.mean()
        gain = (reward - baseline) / draws
        # d log q / d logit = indicator - probability
        by_weight = np.stack([gain @ (codes == k) for k in range(3)], axis=1) - gain.sum() * q
        by_noise = np.bincount(level, gain, minlength=3) - gain.sum() * of_noise
        norm = max(1.0, float(np.sqrt(np.sum(by_weight**2) + np.sum(by_noise**2))))
        weights, noise = weights + rate * by_weight / norm, noise + rate * by_noise / norm
        spent += time.perf_counter() - began
    return trace


def reparameterised(phi: np.ndarray, y: np.ndarray, draws: int, rate: float, steps: int) -> Trace:
    """Maximise the bound of a continuous mean-field normal at known noise by reparameterised gradients."""
    rng = np.random.default_rng(draws)
    v, gram, target = 0.04, phi.T @ phi, phi.T @ y
    mean, log_std = np.zeros(SIZE), np.zeros(SIZE)

    def bound(mean: np.ndarray, log_std: np.ndarray) -> float:
        variance = np.exp(2 * log_std)
        square = y @ y - 2 * mean @ target + mean @ gram @ mean + np.diag(gram) @ variance
        fit = -0.5 * square / v - 0.5 * len(y) * np.log(2 * np.pi * v)
        return float(fit - 0.5 * np.sum(mean**2 + variance - 1.0) + np.sum(log_std))

    best_std = -0.5 * np.log(np.diag(gram) / v + 1.0)
    best = bound(np.linalg.solve(gram / v + np.eye(SIZE), target / v), best_std)
    trace: Trace = []
    spent = 0.0
    for step in range(steps + 1):
        if step % max(1, steps // 50) == 0:
            trace.append((step, spent, bound(mean, log_std) - best))
        began = time.perf_counter()
        std, noise = np.exp(log_std), rng.normal(size=(draws, SIZE))
        weights = mean + std * noise
        slope = (phi.T @ (y[:, None] - phi @ weights.T)).T / v - weights
        by_mean = slope.mean(axis=0)
        by_std = (slope * noise).mean(axis=0) * std + 1.0
        norm = max(1.0, float(np.sqrt(np.sum(by_mean**2) + np.sum(by_std**2))))
        mean, log_std = mean + rate * by_mean / norm, log_std + rate * by_std / norm
        spent += time.perf_counter() - began
    return trace


def main() -> None:
    """Run all methods and plot them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=2000)
    asked = parser.parse_args()
    phi, y = problem(asked.rows)
    with precision("float64"):
        model = model_of(phi, y)
        traces = {"DIRECT, from the prior": direct(model)}
        traces["DIRECT, from the posterior of normal weights"] = direct_from_posterior(model)
        for draws in (1, 10, 100):
            tried = [reinforce(phi, y, model, draws, rate, asked.steps) for rate in STEPS]
            traces[f"REINFORCE, {draws} samples"] = max(tried, key=lambda trace: trace[-1][2])
        best = max(value for trace in traces.values() for _, _, value in trace)
        gaps = {
            name: [(s, t, best - value) for s, t, value in trace] for name, trace in traces.items()
        }
        for draws in (1, 10):
            tried = [reparameterised(phi, y, draws, rate, asked.steps) for rate in STEPS]
            trace = max(tried, key=lambda trace: trace[-1][2])
            gaps[f"normal, reparameterised, {draws} samples"] = [
                (s, t, -value) for s, t, value in trace
            ]
    OUT.write_text(
        "".join(
            json.dumps({"method": k, "rows": asked.rows, "gap": v}) + "\n" for k, v in gaps.items()
        )
    )
    plot(gaps)
    for name, trace in gaps.items():
        print(
            f"{name:40s} {trace[-1][0]:6d} steps {trace[-1][1]:8.3f} s   {trace[-1][2]:.3g} nats below the best"
        )


def plot(gaps: dict[str, Trace]) -> None:
    """Draw the gaps by steps and by seconds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 5), sharey=True, constrained_layout=True)
    for name, trace in gaps.items():
        steps, seconds, gap = (np.array(column) for column in zip(*trace, strict=True))
        shown = np.maximum(gap, 1.0)
        mark = "o" if len(steps) < 5 else None
        axes[0].loglog(steps + 1, shown, marker=mark, label=name)
        axes[1].loglog(seconds + 1e-4, shown, marker=mark)
    axes[0].set(xlabel="step", ylabel="nats below the best bound (1: or less)")
    axes[1].set(xlabel="seconds")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8
    )
    figure.savefig(RESULTS / "direct_convergence.png", dpi=120)


if __name__ == "__main__":
    main()
