"""GPyTorch's natural-gradient SVGP (`NGD`, as in its documentation), timed as `../step_time.py` says.

One backward pass gives both the natural gradient and the gradient of the rest, as its documentation has it. The
triangular form is the one that it recommends where the likelihood is not Gaussian: the other one lost positive
definiteness with ten classes in both precisions.
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


class Model(gpytorch.models.ApproximateGP):
    """One function for each class, one kernel and one set of inducing points for all."""

    def __init__(self, Z: torch.Tensor, functions: int) -> None:
        shape = torch.Size([functions]) if functions > 1 else torch.Size([])
        distribution = gpytorch.variational.TrilNaturalVariationalDistribution(
            len(Z), batch_shape=shape
        )
        strategy = gpytorch.variational.VariationalStrategy(
            self, Z, distribution, learn_inducing_locations=True
        )
        if functions > 1:
            strategy = gpytorch.variational.IndependentMultitaskVariationalStrategy(
                strategy, num_tasks=functions
            )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean()
        base = gpytorch.kernels.RBFKernel()
        base.lengthscale = 5.0
        self.covar_module = gpytorch.kernels.ScaleKernel(base)

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Return the prior at ``x``."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def main() -> None:
    """Time steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    dtype = getattr(torch, asked.dtype)
    torch.set_default_dtype(dtype)
    torch.manual_seed(0)
    with np.load(Path(os.environ["VASTGP_DATA"]) / "mnist.npz") as stored:
        X = torch.as_tensor(stored["X"] / 255.0, dtype=dtype)
        y = torch.as_tensor(stored["y"].astype(np.int64))
    C = asked.classes if asked.classes > 2 else 1
    if C > 1:
        likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=C, mixing_weights=False)
    else:
        likelihood, y = gpytorch.likelihoods.BernoulliLikelihood(), (y % 2).to(dtype)
    model = Model(X[torch.randperm(len(X))[:100]].clone(), C)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    natural = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=0.03)
    adam = torch.optim.Adam(
        [{"params": model.hyperparameters()}, {"params": likelihood.parameters()}], lr=0.03
    )
    seconds, values = [], []
    for batch in torch.randint(len(y), (150, 200)):
        began = time.perf_counter()
        natural.zero_grad()
        adam.zero_grad()
        loss = -objective(model(X[batch]), y[batch])
        loss.backward()
        natural.step()
        adam.step()
        values.append(-len(y) * float(loss.detach()))
        seconds.append(time.perf_counter() - began)
    result = {
        "program": "gpytorch", "method": "SVGP", "classes": asked.classes, "dtype": asked.dtype, "inducing": 100,
        "batch": 200, "seconds_per_step": float(np.median(seconds[20:])),
        "fastest_step": float(np.min(seconds)), "elbo": float(np.mean(values[-10:])),
        "steps": 150, "gpytorch": gpytorch.__version__, "torch": torch.__version__,
    }  # fmt: skip
    with asked.out.open("a") as lines:
        lines.write(json.dumps(result) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
