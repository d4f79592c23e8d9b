"""Noise that varies, of simulated rows whose noise is known: what is found of it, and what it costs where it is alike.

    python -m benchmarks.varying_noise exact 20000 varies varying     # a line of benchmarks/results/varying_noise.jsonl

Targets: error of the mean within 1.05 of that with known noise, log noise within 0.15 (root mean square), NLPD within
0.01 of the truth's; where all noise is alike NLPD no more than 0.005 above that of the fit with one noise.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.stats import norm

from vastgp import ExactGPRegressor, IterativeGPRegressor, QSGPRegressor, SWSGPRegressor
from vastgp.options import Learn, Subset

RESULTS = Path(__file__).parent / "results" / "varying_noise.jsonl"
FIRST = {"kernel": "matern52", "hyperparameters": Subset(rows=1000)}
METHODS = {
    "exact": (ExactGPRegressor, {"kernel": "matern52", "hyperparameters": Learn(rows=1000)}),
    "qsgp": (QSGPRegressor, {"num_basis": 2000, **FIRST}),
    "iterative": (IterativeGPRegressor, FIRST),
    "swsgp": (SWSGPRegressor, {"num_inducing": 2000, "num_neighbors": 24, **FIRST}),
}
NEW_ROWS = 5000


def table(n: int, seed: int, varies: bool) -> tuple[np.ndarray, ...]:
    """Return inputs, the function, the log of the noise variance, and targets."""
    generator = np.random.default_rng([seed, n])
    X = generator.uniform(-2.0, 2.0, (n, 3))
    f = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2]
    log_noise = np.full(n, -2.0)
    if varies:
        log_noise += 1.5 * np.sin(1.5 * X[:, 1]) + 0.5 * X[:, 0]
    return X, f, log_noise, f + np.exp(0.5 * log_noise) * generator.normal(size=n)


def measure(method: str, n: int, seed: int, case: str, noise: str) -> dict[str, object]:
    """Return what one fit finds: told of ``noise`` "varying", "one", or "known" (the true one up to its level)."""
    cls, params = METHODS[method]
    X, _, log_noise, y = table(n, seed, case == "varies")
    Xt, ft, log_noise_t, yt = table(NEW_ROWS, seed + 1000, case == "varies")
    truth = -norm.logpdf(yt, ft, np.exp(0.5 * log_noise_t)).mean()
    model = cls(likelihood="heteroskedastic" if noise == "varying" else "gaussian", **params)
    weights = {"sample_weight": np.exp(-log_noise)} if noise == "known" else {}
    began = time.process_time()
    model.fit(X, y, **weights)
    mean, std = model.predict(Xt, return_std=True)
    found = {
        "method": method, "rows": n, "seed": seed, "case": case, "noise": noise,
        "cpu": round(time.process_time() - began, 1),
        "rmse": float(np.mean((mean - ft) ** 2) ** 0.5),
        "converged": model.converged_, "answer": model.answer_,
    }  # fmt: skip
    if noise != "known":
        found["nlpd_above_truth"] = float(-model.log_predictive_density(Xt, yt).mean() - truth)
        latent = model.predict(Xt, return_std="latent")[1]
        off = np.log(std**2 - latent**2) - log_noise_t
        found["log_noise"] = float(np.mean(off**2) ** 0.5)
    found |= {k: v for k, v in model.diagnosis_.items() if k.startswith("noise_")}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("rows", type=int)
    parser.add_argument("case", choices=("varies", "alike"))
    parser.add_argument("noise", choices=("varying", "one", "known"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = measure(given.method, given.rows, given.seed, given.case, given.noise)
    line = json.dumps(found)
    print(line)
    with RESULTS.open("a") as file:
        file.write(line + "\n")


if __name__ == "__main__":
    main()
