"""One kernel product and one step of training by GPyTorch, dense and with KeOps; JSON on standard output.

Runs in an environment of its own (``peers/README.md``; with pykeops for the second), called by
``benchmarks/iterative_products.py`` with the arrays in a file. Kernel products are of the RBF kernel with given
lengthscales; a step is that of ``ExactMarginalLogLikelihood`` with a fixed number of iterations of conjugate
gradients and a preconditioner of a given rank.
"""

from __future__ import annotations

import argparse
import json
import time

import gpytorch
import numpy as np
import torch


def median(run: object, repeats: int) -> float:
    """Return the median seconds of a call, after a first one."""
    run()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


class Model(gpytorch.models.ExactGP):
    """An exact process with a zero mean."""

    def __init__(self, X: torch.Tensor, y: torch.Tensor, likelihood: object, base: object) -> None:
        super().__init__(X, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(base)

    def forward(self, X: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Return the prior."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("arrays")
    parser.add_argument("--keops", action="store_true")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--rank", type=int, default=100)
    parser.add_argument("--probes", type=int, default=7)
    parser.add_argument("--step-rows", type=int, default=20_000)
    given = parser.parse_args()
    held = np.load(given.arrays)
    X, V, y = (torch.as_tensor(held[name]) for name in ("X", "V", "y"))
    d = X.shape[1]
    kind = gpytorch.kernels.keops.RBFKernel if given.keops else gpytorch.kernels.RBFKernel
    base = kind(ard_num_dims=d)
    base.lengthscale = torch.as_tensor(held["lengthscales"])[None]
    base.requires_grad_(False)
    with torch.no_grad():
        product = median(lambda: (base(X) @ V.T).sum(), 2)
        found = (base(X[:2000]) @ V[:, :2000].T).numpy()
    base.requires_grad_(True)
    X, y = X[: given.step_rows], y[: given.step_rows]
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.05
    model = Model(X, y, likelihood, base).train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    settings = gpytorch.settings

    def step() -> None:
        model.zero_grad()
        (-objective(model(X), y)).backward()

    with (
        settings.max_cholesky_size(0),
        settings.max_cg_iterations(given.iterations),
        settings.cg_tolerance(1e-9),
        settings.max_preconditioner_size(given.rank),
        settings.num_trace_samples(given.probes),
        settings.skip_logdet_forward(True),
    ):
        of_step = median(step, 1)
    print(json.dumps({"product": product, "step": of_step, "check": float(np.abs(found).sum())}))


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    main()
