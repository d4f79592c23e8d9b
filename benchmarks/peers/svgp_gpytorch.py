"""GPyTorch's SVGP with 512 learned inducing points, on the splits of ../run.py; one JSON line with its trace.

Runs in an environment of its own (``peers/README.md``). Settings follow GPyTorch's documentation of stochastic
variational
regression (Adam, rate 0.01, batches of 1024, variational ELBO), with an ARD kernel, inducing points on random
rows, and natural-scale starting values; inputs and target are standardised by training statistics.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import gpytorch
import numpy as np
import torch


class SVGP(gpytorch.models.ApproximateGP):
    """Sparse variational process with learned inducing points."""

    def __init__(self, inducing: torch.Tensor, kernel: str) -> None:
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
        strategy = gpytorch.variational.VariationalStrategy(
            self, inducing, distribution, learn_inducing_locations=True
        )
        super().__init__(strategy)
        d = inducing.shape[1]
        base = (
            gpytorch.kernels.RBFKernel(ard_num_dims=d)
            if kernel == "rbf"
            else gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=d)
        )
        base.lengthscale = d**0.5
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(base)

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Return the prior at ``x``."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def load(dataset: str, split: int) -> list[torch.Tensor]:
    """Return standardised training and test rows."""
    with np.load(Path(os.environ["VASTGP_DATA"]) / f"{dataset}.npz") as stored:
        X, y, n = stored["X"], stored["y"], int(stored["n"])
        test = np.unpackbits(stored["test_mask_packed"][split], count=n).astype(bool)
    centre, scale = X[~test].mean(0), X[~test].std(0)
    scale[scale == 0] = 1.0
    X, y = (X - centre) / scale, (y - y[~test].mean()) / y[~test].std()
    arrays = (X[~test], y[~test], X[test], y[test])
    return [torch.as_tensor(a, dtype=torch.float32) for a in arrays]


def score(
    model: SVGP,
    likelihood: gpytorch.likelihoods.GaussianLikelihood,
    X: torch.Tensor,
    y: torch.Tensor,
) -> dict:
    """Return RMSE, NLPD and coverage of test rows, standardised."""
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        predicted = likelihood(model(X))
        error, variance = y - predicted.mean, predicted.variance
    model.train()
    likelihood.train()
    nlpd = 0.5 * (torch.log(2 * torch.pi * variance) + error**2 / variance).mean()
    inside = (error.abs() < 1.96 * variance.sqrt()).float().mean()
    return {
        "rmse": float(error.square().mean().sqrt()),
        "nlpd": float(nlpd),
        "coverage": float(inside),
    }


def main() -> None:
    """Train until the budget is spent; scores are taken after each epoch and their time is not counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--kernel", default="rbf")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.manual_seed(asked.split)
    X, y, X_test, y_test = load(asked.dataset, asked.split)
    model = SVGP(X[torch.randperm(len(X))[:512]].clone(), asked.kernel)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    adam = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    trace, spent = [], 0.0
    while spent < asked.seconds:
        began, bounds = time.perf_counter(), []
        for rows in torch.randperm(len(X)).split(1024):
            adam.zero_grad()
            loss = -objective(model(X[rows]), y[rows])
            loss.backward()
            adam.step()
            bounds.append(-loss.detach() * len(y))
        spent += time.perf_counter() - began
        elbo = float(torch.stack(bounds).mean())
        trace.append(
            {"seconds": round(spent, 1), "elbo": elbo} | score(model, likelihood, X_test, y_test)
        )
    result = {
        "dataset": asked.dataset, "split": asked.split, "method": "gpytorch-svgp-512", "kernel": asked.kernel,
        "n": len(y), "seconds": round(spent, 1), "epochs": len(trace), "final": trace[-1], "trace": trace,
        "versions": {"torch": torch.__version__, "gpytorch": gpytorch.__version__},
    }  # fmt: skip
    with asked.out.open("a") as lines:
        lines.write(json.dumps(result) + "\n")
    print(asked.dataset, result["final"])


if __name__ == "__main__":
    main()
