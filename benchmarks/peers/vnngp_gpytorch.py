"""GPyTorch's variational nearest neighbour GP (VNNGP) with the training rows as inducing points: one JSON line.

    python benchmarks/peers/vnngp_gpytorch.py --data-file kin40k.npz --seconds 120

Needs torch, gpytorch and, for its neighbours, faiss or scikit-learn; install them in an environment of their own.
"""

from __future__ import annotations

import argparse
import json
import time

import gpytorch
import numpy as np
import torch
from gpytorch.variational import MeanFieldVariationalDistribution
from gpytorch.variational.nearest_neighbor_variational_strategy import NNVariationalStrategy


class Model(gpytorch.models.ApproximateGP):
    """Matern-5/2 with ARD, k neighbours."""

    def __init__(self, Z: torch.Tensor, k: int, batch: int) -> None:
        distribution = MeanFieldVariationalDistribution(Z.size(-2))
        strategy = NNVariationalStrategy(self, Z, distribution, k=k, training_batch_size=batch)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=Z.size(-1))
        )

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def __call__(self, x: torch.Tensor | None, prior: bool = False, **kwargs: object) -> object:
        if x is not None and x.dim() == 1:
            x = x.unsqueeze(-1)
        return self.variational_strategy(x=x, prior=False, **kwargs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-file", required=True)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--neighbors", type=int, default=64)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=0.01)
    arguments = parser.parse_args()
    with np.load(arguments.data_file) as file:
        X, y, n = file["X"], file["y"], int(file["n"])
        test = np.unpackbits(file["test_mask_packed"], axis=1, count=n).astype(bool)[
            arguments.split
        ]
    mean, scale = X[~test].mean(0), X[~test].std(0)
    centre, unit = y[~test].mean(), y[~test].std()
    tensor = lambda a: torch.as_tensor(a, dtype=torch.float32).contiguous()  # noqa: E731
    order = np.random.default_rng(0).permutation(int((~test).sum()))
    x, t = tensor((X[~test] - mean) / scale)[order], tensor((y[~test] - centre) / unit)[order]
    x_test, t_test = tensor((X[test] - mean) / scale), ((y[test] - centre) / unit)
    torch.manual_seed(0)
    began = time.perf_counter()
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, arguments.neighbors, arguments.batch)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(t))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=arguments.rate)
    model.train(), likelihood.train()
    steps = 0
    while time.perf_counter() - began < arguments.seconds:
        optimiser.zero_grad()
        output = model(x=None)
        rows = model.variational_strategy.current_training_indices
        loss = -objective(output, t[rows])
        loss.backward()
        optimiser.step()
        steps += 1
    seconds = time.perf_counter() - began
    model.eval(), likelihood.eval()
    means, variances = [], []
    with torch.no_grad():
        for part in x_test.split(512):
            found = likelihood(model(part))
            means.append(found.mean.numpy()), variances.append(found.variance.numpy())
    m, v = np.concatenate(means), np.concatenate(variances)
    error = t_test - m
    line = {
        "data": arguments.data_file.rsplit("/", 1)[-1][:-4], "split": arguments.split, "label": "VNNGP (GPyTorch)",
        "neighbors": arguments.neighbors, "inducing": len(t), "fit_seconds": seconds, "steps": steps,
        "rmse_standardised": float(np.sqrt(np.mean(error**2))),
        "nlpd_standardised": float(np.mean(0.5 * np.log(2 * np.pi * v) + 0.5 * error**2 / v)),
        "coverage": float(np.mean(np.abs(error) < 1.96 * v**0.5)),
        "noise_std": float(likelihood.noise.item() ** 0.5) * float(unit),
    }  # fmt: skip
    print(json.dumps(line))


if __name__ == "__main__":
    main()
