"""GPyTorch's SVGP at the budgets of ../anytime.py, on the same rows.

    /tmp/anytime/bin/python benchmarks/peers/anytime_gpytorch.py --table shared --budget 5 15 60 300

Model and settings are those of `svgp_gpytorch.py` (512 learned inducing points, Adam at 0.01, batches of 1024,
variational ELBO, anisotropic Matérn-3/2), with a Bernoulli likelihood for classes, on a card where there is one. It has
no rule by which to stop, so it takes the whole budget.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from svgp_gpytorch import SVGP

sys.path.append(str(Path(__file__).parents[1]))
from anytime_program import Scored, command_line, run
from anytime_tables import Drawn, class_scores, gaussian_scores, standardised

NAME = "GPyTorch SVGP"
WHERE = "cuda" if torch.cuda.is_available() else "cpu"
_BATCH = 1024


def batches(n: int) -> Iterator[torch.Tensor]:
    """Return batches of rows without end, epoch after epoch."""
    orders = (torch.randperm(n, device=WHERE) for _ in itertools.count())
    return itertools.chain.from_iterable(order.split(_BATCH) for order in orders)


def sparse(budget: float, table: Drawn, inducing: int = 512, kernel: str = "matern") -> Scored:
    """Train until the budget is over."""
    deadline = time.perf_counter() + 0.98 * budget
    torch.manual_seed(0)
    scaler = StandardScaler().fit(table.X)
    as_tensor = partial(torch.as_tensor, dtype=torch.float32, device=WHERE)
    X = as_tensor(scaler.transform(table.X))
    target = table.y if table.classes else standardised(table)
    y = as_tensor(target)
    model = SVGP(X[torch.randperm(len(X))[:inducing]].clone(), kernel).to(WHERE)
    kinds = gpytorch.likelihoods
    likelihood = kinds.BernoulliLikelihood() if table.classes else kinds.GaussianLikelihood()
    likelihood = likelihood.to(WHERE)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    adam = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    steps = 0
    for rows in batches(len(X)):
        adam.zero_grad()
        (-objective(model(X[rows]), y[rows])).backward()
        adam.step()
        steps += 1
        if time.perf_counter() > deadline:
            break
    about = {
        "steps": steps,
        "epochs": round(steps * _BATCH / len(X), 2) if len(X) > _BATCH else steps,
        "stop": "the budget was over",
        "versions": {"torch": torch.__version__, "gpytorch": gpytorch.__version__},
    }
    if WHERE == "cuda":
        about["device"] = torch.cuda.get_device_name()
    X_test = as_tensor(scaler.transform(table.X_test))
    return partial(_scores, model, likelihood, X_test, table), about


def _scores(model: SVGP, likelihood: Any, X: torch.Tensor, table: Drawn) -> dict[str, float]:
    """Return scores of the test rows."""
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        found = [likelihood(model(rows)) for rows in X.split(_BATCH)]
    mean = np.concatenate([each.mean.double().cpu().numpy() for each in found])
    if table.classes:
        return class_scores(table, np.stack([1.0 - mean, mean], axis=1), np.array([0, 1]))
    variance = np.concatenate([each.variance.double().cpu().numpy() for each in found])
    return gaussian_scores(table, mean, np.sqrt(variance))


if __name__ == "__main__":
    run(
        command_line(__doc__).parse_args(),
        lambda table: [NAME],
        lambda estimator, budget, params: partial(sparse, budget, **params),
    )
