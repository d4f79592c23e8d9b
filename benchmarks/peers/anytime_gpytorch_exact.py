"""GPyTorch's exact process on a card, at the budgets of ../anytime.py, on the same rows.

    cd benchmarks
    python peers/anytime_gpytorch_exact.py --table kin40k --budget 30 --out results/accelerator_fits.jsonl

As Wang et al. (2019, arXiv:1903.08114) train exact processes of many rows: hyperparameters by a random part of 10,000
of them, there by Adam at 0.1, then the posterior of all. By Cholesky factors in float64, whose memory the card has:
conjugate gradients would be an approximation. Anisotropic Matern-3/2, as its examples and ours. 60 % of the budget is
for hyperparameters.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from product_gpytorch import Model
from sklearn.preprocessing import StandardScaler

sys.path.append(str(Path(__file__).parents[1]))
from anytime_program import Scored, command_line, run
from anytime_tables import Drawn, gaussian_scores, standardised

NAME = "GPyTorch exact"
_LEARNED_ROWS, _LEARNING_SHARE, _TEST_ROWS = 10_000, 0.6, 2000


def exact(budget: float, table: Drawn) -> Scored:
    """Learn on a part of the rows, and condition on all."""
    began = time.perf_counter()
    torch.manual_seed(0)
    where = "cuda" if torch.cuda.is_available() else "cpu"
    scaler = StandardScaler().fit(table.X)
    as_tensor = partial(torch.as_tensor, dtype=torch.float64, device=where)
    X, y = as_tensor(scaler.transform(table.X)), as_tensor(standardised(table))
    some = torch.randperm(len(y), device=where)[:_LEARNED_ROWS]
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(where, torch.float64)
    base = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=X.shape[1])
    model = Model(X[some], y[some], likelihood, base).to(where, torch.float64)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    steps = 0
    with gpytorch.settings.fast_computations(False, False, False):
        while steps == 0 or time.perf_counter() - began < _LEARNING_SHARE * budget:
            adam.zero_grad()
            (-objective(model(X[some]), y[some])).backward()
            adam.step()
            steps += 1
        model.set_train_data(X, y, strict=False)
        model.eval()
        likelihood.eval()
        with torch.no_grad():
            K = model.covar_module(X).to_dense()
            K.diagonal().add_(likelihood.noise)
            root = torch.linalg.cholesky(K)
            del K
            weights = torch.cholesky_solve(y[:, None], root)
            torch.cuda.synchronize() if where == "cuda" else None
    about = {
        "steps": steps, "stop": "hyperparameters had their share of the budget",
        "device": torch.cuda.get_device_name() if where == "cuda" else "cpu",
        "versions": {"torch": torch.__version__, "gpytorch": gpytorch.__version__},
    }  # fmt: skip
    X_test = as_tensor(scaler.transform(table.X_test))
    return partial(_scores, (model, likelihood, root, weights, X), X_test, table), about


def _scores(fitted: Any, X_test: torch.Tensor, table: Drawn) -> dict[str, float]:
    """Return scores of the test rows (Rasmussen & Williams 2006, algorithm 2.1)."""
    model, likelihood, root, weights, X = fitted
    means, variances = [], []
    with torch.no_grad():
        for some in X_test.split(_TEST_ROWS):
            cross = model.covar_module(X, some).to_dense()
            half = torch.linalg.solve_triangular(root, cross, upper=False)
            means.append((cross.T @ weights)[:, 0])
            variances.append(model.covar_module(some, diag=True) - (half**2).sum(0))
        mean, variance = torch.cat(means), torch.cat(variances) + likelihood.noise
    return gaussian_scores(table, mean.cpu().numpy(), np.sqrt(variance.cpu().numpy()))


if __name__ == "__main__":
    run(
        command_line(__doc__).parse_args(),
        lambda table: [NAME],
        lambda estimator, budget, params: partial(exact, budget, **params),
    )
